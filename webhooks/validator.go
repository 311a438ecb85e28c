package webhooks

import (
	"context"
	"encoding/json"
	"errors"

	admissionv1 "k8s.io/api/admission/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"

	"github.com/acme/pg-operator/apis/v1alpha1"
	"github.com/acme/pg-operator/webhooks/rules"
)

// validator refuses what the rules refuse, all at once.
type validator struct{}

var _ admission.Handler = &validator{}

// Handle answers 422 with one cause per field, as the API server does for its own kinds.
func (v *validator) Handle(_ context.Context, req admission.Request) admission.Response {
	if req.Operation == admissionv1.Delete {
		return admission.Allowed("")
	}
	cluster, err := decode(req.Object.Raw)
	if err != nil {
		return refuse(req.Name, field.ErrorList{undecodable(err)})
	}
	var old *v1alpha1.PostgresCluster
	if req.Operation == admissionv1.Update {
		// An old object that cannot be decoded has nothing that the new one could be compared with.
		if stored, oldErr := decode(req.OldObject.Raw); oldErr == nil {
			old = stored
		}
	}
	response := admission.Allowed("")
	if errs := judge(req.Operation, old, cluster); len(errs) > 0 {
		response = refuse(cluster.Name, errs)
	}
	return response.WithWarnings(rules.Warnings(old, cluster)...)
}

func judge(operation admissionv1.Operation, old, cluster *v1alpha1.PostgresCluster) field.ErrorList {
	switch {
	case operation == admissionv1.Create:
		return rules.ValidateCreate(cluster)
	case old == nil:
		return rules.ValidateSpec(&cluster.Spec)
	default:
		return rules.ValidateUpdate(old, cluster)
	}
}

func refuse(name string, errs field.ErrorList) admission.Response {
	status := apierrors.NewInvalid(v1alpha1.PostgresClusterKind.GroupKind(), name, errs).Status()
	return admission.Response{AdmissionResponse: admissionv1.AdmissionResponse{Result: &status}}
}

// undecodable names the field that has the wrong type. The schema has refused such objects before, so this is for a
// CRD that is not ours.
func undecodable(err error) *field.Error {
	var wrongType *json.UnmarshalTypeError
	if errors.As(err, &wrongType) && wrongType.Field != "" {
		return field.TypeInvalid(field.NewPath(wrongType.Field), wrongType.Value, "must be of type "+wrongType.Type.String())
	}
	return field.Invalid(field.NewPath("spec"), field.OmitValueType{}, err.Error())
}
