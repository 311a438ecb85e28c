package decide_test

import (
	"testing"

	appsv1 "k8s.io/api/apps/v1"

	"github.com/acme/pg-operator/apis/naming"
	"github.com/acme/pg-operator/apis/v1alpha1"
	"github.com/acme/pg-operator/reconciler/decide"
	"github.com/acme/pg-operator/reconciler/snapshot"
)

// TestNoRestartForATemplateThatIsNotOurs: what the StatefulSet has is about to be set back, or to change once more.
func TestNoRestartForATemplateThatIsNotOurs(t *testing.T) {
	for live, restarts := range map[string]bool{"ours": true, "forged": false, "": false} {
		s := &snapshot.Cluster{Object: &v1alpha1.PostgresCluster{}, StatefulSet: &appsv1.StatefulSet{}}
		s.StatefulSet.Spec.Template.Annotations = map[string]string{naming.AnnotationTemplateHash: live}
		p := decide.Plan{
			Restart:  &decide.Restart{Instance: "db-1"},
			HandOver: &v1alpha1.SwitchoverStatus{State: v1alpha1.SwitchoverRunning},
		}
		p.Template(s, "ours")
		if restarted := p.Restart != nil; restarted != restarts || (p.HandOver != nil) != restarts || p.TemplateHash != "ours" {
			t.Errorf("template %q: restarts %v, hands over %v, want %v", live, restarted, p.HandOver != nil, restarts)
		}
	}
}
