// Package webhooks adapts the pure rules of package rules to admission
// requests. Nothing here decides what is right.
package webhooks

import (
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"

	"github.com/acme/pg-operator/apis/v1alpha1"
)

// Paths under which the webhooks are served; config/webhook names them.
const (
	PathDefault  = "/default-db-example-com-v1alpha1-postgrescluster"
	PathValidate = "/validate-db-example-com-v1alpha1-postgrescluster"
	PathProtect  = "/protect-db-example-com-v1alpha1-postgrescluster"
)

// A webhook is called for a new object and when a spec changes, or another primary is asked for: other annotations, labels,
// finalizers and status need none, so that a dead operator stands in nobody's way. Without the defaulting webhook objects are stored as they are, and the
// reconciler fills in the same defaults in memory; without the validating one nothing is stored.
//
// +kubebuilder:webhook:mutating=true,path=/default-db-example-com-v1alpha1-postgrescluster,groups=db.example.com,resources=postgresclusters,verbs=create;update,versions=v1alpha1,name=default.postgresclusters.db.example.com,admissionReviewVersions=v1,failurePolicy=ignore,matchPolicy=Equivalent,sideEffects=None,timeoutSeconds=5,reinvocationPolicy=Never,patch=`{"matchConditions":[{"name":"spec-changed","expression":"request.operation != 'UPDATE' || !has(object.spec) || !has(oldObject.spec) || object.spec != oldObject.spec"}]}`
// +kubebuilder:webhook:mutating=false,path=/validate-db-example-com-v1alpha1-postgrescluster,groups=db.example.com,resources=postgresclusters,verbs=create;update,versions=v1alpha1,name=validate.postgresclusters.db.example.com,admissionReviewVersions=v1,failurePolicy=fail,matchPolicy=Equivalent,sideEffects=None,timeoutSeconds=5,patch=`{"matchConditions":[{"name":"spec-changed","expression":"request.operation != 'UPDATE' || !has(object.spec) || !has(oldObject.spec) || object.spec != oldObject.spec || object.metadata.?annotations[?'db.example.com/switchover'] != oldObject.metadata.?annotations[?'db.example.com/switchover']"}]}`
//
// Deletions have a webhook of their own, which is called for protected clusters only: a dead operator must not keep
// others, or a namespace, from going away. The policy in config/policy says the same without an operator.
//
// +kubebuilder:webhook:mutating=false,path=/protect-db-example-com-v1alpha1-postgrescluster,groups=db.example.com,resources=postgresclusters,verbs=delete,versions=v1alpha1,name=protect.postgresclusters.db.example.com,admissionReviewVersions=v1,failurePolicy=fail,matchPolicy=Equivalent,sideEffects=None,timeoutSeconds=5,patch=`{"matchConditions":[{"name":"protected","expression":"has(oldObject.spec) && has(oldObject.spec.deletionProtection) && oldObject.spec.deletionProtection == true && !has(oldObject.metadata.deletionTimestamp)"}]}`

// Options of the webhooks.
type Options struct {
	// Defaults fill in what users leave out.
	Defaults v1alpha1.Defaults
}

// SetupWithManager serves the webhooks on the manager's webhook server.
func SetupWithManager(mgr ctrl.Manager, opts Options) error {
	server := mgr.GetWebhookServer()
	server.Register(PathDefault, &admission.Webhook{Handler: &defaulter{defaults: opts.Defaults}})
	server.Register(PathValidate, &admission.Webhook{Handler: &validator{}})
	server.Register(PathProtect, &admission.Webhook{Handler: &protector{}})
	return nil
}
