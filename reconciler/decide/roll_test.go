package decide_test

import (
	"testing"

	appsv1 "k8s.io/api/apps/v1"

	"github.com/acme/pg-operator/apis/naming"
	"github.com/acme/pg-operator/reconciler/decide"
	"github.com/acme/pg-operator/reconciler/snapshot"
)

// TestNoRestartForATemplateThatIsNotOurs: what the StatefulSet has is about to be set back, or to change once more.
func TestNoRestartForATemplateThatIsNotOurs(t *testing.T) {
	for live, restarts := range map[string]bool{"ours": true, "forged": false, "": false} {
		s := &snapshot.Cluster{StatefulSet: &appsv1.StatefulSet{}}
		s.StatefulSet.Spec.Template.Annotations = map[string]string{naming.AnnotationTemplateHash: live}
		p := decide.Plan{Restart: &decide.Restart{Instance: "db-1"}}
		p.Template(s, "ours")
		if restarted := p.Restart != nil; restarted != restarts || p.TemplateHash != "ours" {
			t.Errorf("template %q: restarts %v, want %v", live, restarted, restarts)
		}
	}
}
