// Package decide turns a snapshot into a plan. It is pure: it reaches no
// server, and the time is passed in.
package decide

import (
	"fmt"
	"time"

	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/types"

	"github.com/acme/pg-operator/apis/naming"
	"github.com/acme/pg-operator/apis/v1alpha1"
	"github.com/acme/pg-operator/instance/contract"
	"github.com/acme/pg-operator/postgres"
	"github.com/acme/pg-operator/reconciler/snapshot"
)

// Config are the operator's settings that decisions need.
type Config struct {
	// Images are the container images by major version, for clusters that name none.
	Images map[string]string
	// LeaseDuration is how long a silent holder keeps the Lease of a cluster whose spec does not say.
	LeaseDuration time.Duration
}

// Plan is everything that one pass will do, and why.
type Plan struct {
	// Apply is false when nothing of this cluster may be changed: paused, deleting or invalid. Claims are applied even
	// then: they hold only what must be.
	Apply bool
	// Replicas the StatefulSet gets; more than spec.replicas while a scale-down is blocked.
	Replicas int32
	// Members is how many instances the agents are told to be; fewer than Replicas just before some are removed.
	Members int32
	// Version and Image the instances run; the old ones while a major upgrade is pending.
	Version string
	Image   string
	// TemplateHash is that of the pod template which the plan renders to; set when it is rendered.
	TemplateHash string
	// SystemID of the data that the cluster is known to have.
	SystemID string
	// Parameters, HBA and SettingsHash for the agents.
	Parameters   map[string]string
	HBA          []string
	SettingsHash string
	// LeaseDuration is passed on to the agents.
	LeaseDuration time.Duration
	// Claims are the wanted volume claims.
	Claims []Claim
	// TemplateStorage is the size in the StatefulSet's volume claim template.
	TemplateStorage resource.Quantity
	// Recreate asks for the StatefulSet of this UID to be deleted without its pods, so that it can come back with a
	// larger volume claim template; empty otherwise.
	Recreate types.UID
	// Withheld keeps the StatefulSet from being made.
	Withheld bool
	// Orders to the agents.
	Orders []contract.Order
	// Switchover is what becomes of the user's request for another primary, HandOver of the operator's own; nil for none.
	Switchover, HandOver *v1alpha1.SwitchoverStatus
	// Restart is the pod to be deleted in this pass, if any.
	Restart *Restart
	// Steps are what is being done to which instance, for the status.
	Steps []v1alpha1.PlannedStep
	// Blocks are what keeps the plan from being what the spec says.
	Blocks []Block
	// RequeueAfter is when to look again if nothing changes; zero for never.
	RequeueAfter time.Duration
}

// Quiet says that nothing is going on that only another pass would carry on.
func (p *Plan) Quiet() bool { return p.Restart == nil && p.Recreate == "" }

// Claim is a wanted volume claim.
type Claim struct {
	Ordinal          int32
	Size             resource.Quantity
	StorageClassName *string
	// SystemID and DataVersion of the data in the volume; empty when unknown.
	SystemID    string
	DataVersion string
	// Owned claims are deleted with the cluster.
	Owned bool
}

// Restart is one pod that must go to be made anew.
type Restart struct {
	Instance string
	UID      types.UID
	Reason   string
}

// Block is a reason for a plan to be less than the spec.
type Block struct {
	// Reason is one of the condition reasons; Message says what to do.
	Reason  string
	Message string
}

// Names of the actions in Plan.Steps.
const (
	ActionCreate     = "Create"
	ActionRestart    = "Restart"
	ActionRemove     = "Remove"
	ActionSwitchOver = "SwitchOver"
	ActionWait       = "Wait"
)

// Next decides what one pass does about a cluster.
func Next(s *snapshot.Cluster, config Config, now time.Time) Plan {
	plan := Plan{LeaseDuration: s.Object.Spec.LeaseDuration(config.LeaseDuration)}
	plan.SystemID, _ = s.SystemID()
	plan.Apply = !s.Deleting() && !s.Object.Spec.Paused && len(s.Invalid) == 0
	plan.version(s, config)
	plan.settings(s)
	plan.goOn(s, now)
	plan.switchover(s, now)
	plan.replicas(s, now)
	plan.claims(s)
	if !plan.Apply {
		plan.Steps, plan.Blocks, plan.Orders = nil, nil, nil
		plan.ownership(s)
		return plan
	}
	plan.leaving(s, now)
	plan.creations(s)
	plan.roll(s, now)
	plan.asked(s)
	plan.timeouts(s, now)
	return plan
}

// version keeps the image on the major version of the data: newer programs do not start on it.
func (p *Plan) version(s *snapshot.Cluster, config Config) {
	spec := s.Object.Spec
	p.Version, p.Image = spec.Version, spec.Image
	data, known := s.DataVersion()
	if known && data != spec.Version {
		p.Version, p.Image = data, ""
		if spec.Image != "" {
			p.Image = liveImage(s)
		}
		p.Blocks = append(p.Blocks, Block{v1alpha1.ReasonMajorUpgradePending, fmt.Sprintf(
			"the data is of PostgreSQL %s and spec.version is %q: upgrading the data to another major version is not done "+
				"by this operator yet; the database goes on with %s. Set spec.version back to %q, or dump and restore into a new cluster",
			data, spec.Version, data, data)})
	}
	if p.Image == "" {
		p.Image = config.Images[p.Version]
	}
}

func (p *Plan) settings(s *snapshot.Cluster) {
	p.Parameters = postgres.Settings(p.Version, postgres.OnVolume(s.Object.Spec.Parameters, volume(s)))
	p.HBA = postgres.HBA(p.Version, s.Object.Spec.HBA)
	p.SettingsHash = postgres.SettingsHash(p.Parameters, p.HBA, p.availability(&s.Object.Spec))
}

// availability is what agents are told beside settings. It is of their hash, so that Ready means that all have heard of it.
func (p *Plan) availability(spec *v1alpha1.PostgresClusterSpec) string {
	return fmt.Sprint(spec.SynchronousNumber(), spec.SynchronousRequired(), spec.FailoverEnabled(), p.LeaseDuration,
		spec.Suspicion(), spec.MaxLag())
}

// volume is the size in bytes of the smallest volume: the spec's, or less while one has not grown yet.
func volume(s *snapshot.Cluster) int64 {
	wanted, err := resource.ParseQuantity(s.Object.Spec.Storage)
	if provisioned, known := s.ProvisionedStorage(); known && (err != nil || provisioned.Cmp(wanted) < 0) {
		wanted = provisioned
	}
	return wanted.Value()
}

// leavingPatience is for how long after its time a pod may be on its way out until nobody waits for it any more: that of
// a lost node stays until somebody removes it.
const leavingPatience = 10 * time.Second

// leaving has the StatefulSet wait for the pods of an earlier one that have its instances' names and are on their way out.
// Its controller would try in vain to make pods of these names, each time with a longer pause until the next try, up to a
// quarter of an hour, and nothing tells it when such a pod has gone.
func (p *Plan) leaving(s *snapshot.Cluster, now time.Time) {
	for _, pod := range s.Leaving {
		if wait := pod.DeletionTimestamp.Add(leavingPatience).Sub(now); wait > 0 {
			p.Withheld = true
			p.step(pod.Name, ActionCreate, "its former pod is still being removed")
			p.lookAgain(wait)
		}
	}
}

// creations tell of the instances that are still to come.
func (p *Plan) creations(s *snapshot.Cluster) {
	for ordinal := range p.Replicas {
		if instance, ok := s.Instance(ordinal); !ok || instance.Pod == nil {
			p.step(s.Names().Instance(ordinal), ActionCreate, "the instance has no pod")
		}
	}
}

// missingPodsDelay is how often the reasons are looked up why a controller creates no pods or volumes: often enough to
// show them within 15 seconds.
const missingPodsDelay = 4 * time.Second

// timeouts set when to look again where no event will tell.
func (p *Plan) timeouts(s *snapshot.Cluster, now time.Time) {
	if s.Missing(p.Replicas) {
		p.lookAgain(missingPodsDelay)
	}
	for _, certificate := range s.Certificates {
		_, wait := snapshot.CertificateLate(certificate, now)
		p.lookAgain(wait)
	}
	_, wait := s.WaitingLate(now)
	p.lookAgain(wait)
}

// lookAgain is for what no event will tell.
func (p *Plan) lookAgain(wait time.Duration) {
	if wait > 0 && (p.RequeueAfter == 0 || wait < p.RequeueAfter) {
		p.RequeueAfter = wait
	}
}

func (p *Plan) step(instance, action, reason string) {
	for _, step := range p.Steps {
		if step.Instance == instance {
			return
		}
	}
	p.Steps = append(p.Steps, v1alpha1.PlannedStep{Instance: instance, Action: action, Reason: reason})
}

// liveImage is what was rendered last, not what a policy made of it: that would be made of itself again and again.
func liveImage(s *snapshot.Cluster) string {
	if s.StatefulSet != nil && s.StatefulSet.Annotations[naming.AnnotationImage] != "" {
		return s.StatefulSet.Annotations[naming.AnnotationImage]
	}
	if s.StatefulSet == nil || len(s.StatefulSet.Spec.Template.Spec.Containers) == 0 {
		return ""
	}
	return s.StatefulSet.Spec.Template.Spec.Containers[0].Image
}
