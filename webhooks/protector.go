package webhooks

import (
	"context"
	"fmt"
	"net/http"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"
	kjson "sigs.k8s.io/json"

	"github.com/acme/pg-operator/webhooks/rules"
)

// protector refuses the deletion of clusters that ask for it.
type protector struct{}

var _ admission.Handler = &protector{}

// Handle answers 403 with the way out. A deletion has only an old object, and no more of it is read than is needed, so
// that a field which is wrong for another reason unprotects nothing. A cluster that is being deleted already is let go:
// nothing can call that back.
func (p *protector) Handle(_ context.Context, req admission.Request) admission.Response {
	var cluster struct {
		Metadata metav1.ObjectMeta `json:"metadata"`
		Spec     struct {
			DeletionProtection bool `json:"deletionProtection"`
		} `json:"spec"`
	}
	if err := kjson.UnmarshalCaseSensitivePreserveInts(req.OldObject.Raw, &cluster); err != nil {
		return admission.Errored(http.StatusBadRequest, fmt.Errorf("decode the PostgresCluster to be deleted: %w", err))
	}
	if !cluster.Spec.DeletionProtection || !cluster.Metadata.DeletionTimestamp.IsZero() {
		return admission.Allowed("")
	}
	return admission.Denied(rules.Protected(req.UserInfo.Username,
		types.NamespacedName{Namespace: cluster.Metadata.Namespace, Name: cluster.Metadata.Name}))
}
