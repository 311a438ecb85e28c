package decide

import (
	"strings"
	"time"

	"github.com/acme/pg-operator/apis/naming"
	"github.com/acme/pg-operator/apis/v1alpha1"
	"github.com/acme/pg-operator/reconciler/snapshot"
)

// switchover follows what the user asks for by the annotation of the cluster. A request is carried out once; another one
// has another text, or comes after the annotation was away.
func (p *Plan) switchover(s *snapshot.Cluster, now time.Time) {
	request := s.Object.Annotations[naming.AnnotationSwitchover]
	if request == "" || s.Deleting() {
		return
	}
	if len(request) > maxRequest {
		request = strings.ToValidUTF8(request[:maxRequest], "")
	}
	target, _, _ := strings.Cut(request, naming.SwitchoverMark)
	if target == naming.SwitchoverAny {
		target = ""
	}
	stored := s.Object.Status.Switchover.DeepCopy()
	switch {
	case stored != nil && stored.Request == request && stored.State != v1alpha1.SwitchoverWaiting:
		p.Switchover = stored
		if running(stored) {
			p.track(s, stored, target, now)
		}
	case !p.Apply:
		p.Switchover = &record{Request: request, State: v1alpha1.SwitchoverWaiting, Message: "the cluster is paused, or its spec is invalid"}
	case p.moving():
		p.Switchover = &record{Request: request, State: v1alpha1.SwitchoverWaiting, Message: "another change of primary is going on"}
	default:
		next := p.begin(s, wish{request: request, target: target, members: s.WantedReplicas()}, now)
		p.Switchover = &next
		if running(p.Switchover) {
			p.tell(p.Switchover, handOverPatience)
		}
	}
}

// asked tells of a request that cannot be carried out yet.
func (p *Plan) asked(s *snapshot.Cluster) {
	primary, known := s.Primary()
	if known && p.Switchover != nil && p.Switchover.State == v1alpha1.SwitchoverWaiting {
		p.step(primary.Name, ActionWait, "a switchover is asked for: "+p.Switchover.Message)
	}
}

// maxRequest is how much of a request is looked at, in bytes: what admission lets pass is shorter.
const maxRequest = 128
