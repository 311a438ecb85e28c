package reconciler

import (
	"context"
	"crypto/rand"
	"fmt"
	"strings"
	"time"

	cmv1 "github.com/cert-manager/cert-manager/pkg/apis/certmanager/v1"
	appsv1 "k8s.io/api/apps/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/acme/pg-operator/apis/naming"
	"github.com/acme/pg-operator/apis/v1alpha1"
	"github.com/acme/pg-operator/reconciler/apply"
	"github.com/acme/pg-operator/reconciler/decide"
	"github.com/acme/pg-operator/reconciler/outcome"
	"github.com/acme/pg-operator/reconciler/render"
	"github.com/acme/pg-operator/reconciler/snapshot"
)

// How often it is looked whether objects are still there that are never watched: seldom while all is well. A lost Secret
// shows in instances that do not run, and then it comes back soon. Agents tell of a lost Lease.
const (
	ensureAtRest  = 5 * time.Minute
	ensureTrouble = 10 * time.Second
	ensureLost    = time.Second
)

// +kubebuilder:rbac:groups="",resources=serviceaccounts;configmaps;services,verbs=get;list;watch;create;patch;delete
// +kubebuilder:rbac:groups="",resources=persistentvolumeclaims,verbs=get;list;watch;create;patch
// +kubebuilder:rbac:groups=rbac.authorization.k8s.io,resources=roles;rolebindings,verbs=get;list;watch;create;patch;delete
// +kubebuilder:rbac:groups=discovery.k8s.io,resources=endpointslices,verbs=get;list;watch;create;patch;delete
// +kubebuilder:rbac:groups=policy,resources=poddisruptionbudgets,verbs=get;list;watch;create;patch;delete
// +kubebuilder:rbac:groups=networking.k8s.io,resources=networkpolicies,verbs=get;list;watch;create;patch;delete
// +kubebuilder:rbac:groups=cert-manager.io,resources=issuers;certificates,verbs=get;list;watch;create;patch;delete
// +kubebuilder:rbac:groups=apps,resources=statefulsets,verbs=get;list;watch;create;patch;delete

// apply brings the children to the plan, in order; the StatefulSet waits for all others. At most one step disturbs an
// instance.
func (r *Reconciler) apply(ctx context.Context, s *snapshot.Cluster, plan decide.Plan, pass *apply.Pass) error {
	if !plan.Apply {
		return r.claims(ctx, s, plan, pass)
	}
	objects, err := r.objects(s, plan, r.options.render())
	if err != nil {
		return fmt.Errorf("rendering: %w", err)
	}
	intents, rendered, err := r.intents(s, objects)
	if err != nil {
		return err
	}
	switch answer, err := r.preflight(ctx, s, plan, intents, pass); {
	case err != nil || pass.Result.Gone:
		return err
	case answer == withheld:
		return r.claims(ctx, s, plan.Held(s), pass)
	case answer == held:
		plan = plan.Held(s)
		if objects, err = r.objects(s, plan, r.options.render()); err != nil {
			return fmt.Errorf("rendering: %w", err)
		}
		if intents, rendered, err = r.intents(s, objects); err != nil {
			return err
		}
	}
	r.ensure(ctx, s, pass)
	pass.Keep(func(key outcome.Key) bool { return rendered[key] })
	last := len(intents) - 1
	pass.All(ctx, intents[:last])
	if ctx.Err() != nil || pass.Result.Gone || pass.Result.Blocked() {
		return nil
	}
	if plan.Recreate != "" {
		// The pods stay; the StatefulSet comes back in a later pass, when it is gone, and takes them over.
		pass.Delete(ctx, outcome.NewKey(appsv1.GroupName, "StatefulSet", s.Names().StatefulSet()), plan.Recreate, true)
		return nil
	}
	if plan.Withheld {
		return nil
	}
	pass.All(ctx, intents[last:])
	r.prune(ctx, s, pass, rendered)
	r.restart(ctx, plan, pass)
	return nil
}

// claims applies volume claims alone.
func (r *Reconciler) claims(ctx context.Context, s *snapshot.Cluster, plan decide.Plan, pass *apply.Pass) error {
	intents, _, err := r.intents(s, render.Claims(s, plan))
	pass.All(ctx, intents)
	return err
}

// intents pairs what was rendered with what is live.
func (r *Reconciler) intents(
	s *snapshot.Cluster, objects []runtime.ApplyConfiguration,
) ([]apply.Intent, map[outcome.Key]bool, error) {
	intents := make([]apply.Intent, 0, len(objects))
	rendered := make(map[outcome.Key]bool, len(objects))
	for _, object := range objects {
		named, ok := object.(interface {
			GetKind() *string
			GetAPIVersion() *string
			GetName() *string
		})
		if !ok {
			return nil, nil, fmt.Errorf("rendering: %T does not tell its name", object)
		}
		group, _, found := strings.Cut(*named.GetAPIVersion(), "/")
		if !found {
			group = ""
		}
		key := outcome.NewKey(group, *named.GetKind(), *named.GetName())
		rendered[key] = true
		intent := apply.Intent{Object: object, Live: s.Children[key]}
		if key.Kind == cmv1.CertificateKind {
			intent.Makes.Kind = "Secret" // cert-manager would write over anybody's.
		}
		intents = append(intents, intent)
	}
	return intents, rendered, nil
}

// +kubebuilder:rbac:groups="",resources=secrets,verbs=get;create
// +kubebuilder:rbac:groups=coordination.k8s.io,resources=leases,verbs=get;create;patch

// ensure creates what is never applied over: credentials, which nobody reads back, and the agents' Lease. Reading a
// Secret's metadata tells whose it is when one is there already.
func (r *Reconciler) ensure(ctx context.Context, s *snapshot.Cluster, pass *apply.Pass) {
	period := r.ensurePeriod(s, &s.Object.Status)
	pass.Ensure(ctx, outcome.NewKey(corev1.GroupName, "Secret", s.Names().SecretApp()), period, func() client.Object {
		return render.AppSecret(s, rand.Text())
	})
	pass.Ensure(ctx, outcome.NewKey(corev1.GroupName, "Secret", s.Names().SecretSuperuser()), period, func() client.Object {
		return render.SuperuserSecret(s, rand.Text())
	})
	if s.LeaseMissing() {
		period = ensureLost
	}
	pass.Ensure(ctx, outcome.NewKey(coordinationv1.GroupName, "Lease", s.Names().Lease()), period, func() client.Object {
		return render.Lease(s)
	})
}

func (r *Reconciler) ensurePeriod(s *snapshot.Cluster, status *v1alpha1.PostgresClusterStatus) time.Duration {
	if !s.LeaseMissing() && status.Replicas != nil && status.ReadyReplicas != nil && *status.Replicas > 0 &&
		*status.Replicas == *status.ReadyReplicas {
		return ensureAtRest
	}
	return ensureTrouble
}

// prune deletes children that are no longer rendered. Volumes are never among them.
func (r *Reconciler) prune(ctx context.Context, s *snapshot.Cluster, pass *apply.Pass, rendered map[outcome.Key]bool) {
	for key, object := range s.Children {
		if rendered[key] || key.Kind == "PersistentVolumeClaim" || object.GetDeletionTimestamp() != nil ||
			!snapshot.ControlledBy(object, s.Object.UID) {
			continue
		}
		pass.Delete(ctx, key, object.GetUID(), false)
	}
}

// +kubebuilder:rbac:groups="",resources=pods,verbs=get;list;watch;create;patch;delete

// restart deletes the one pod that is to be made anew. The agents' rights on pods must be ours too, to be given. Pods are
// created by dry runs only (preflight).
func (r *Reconciler) restart(ctx context.Context, plan decide.Plan, pass *apply.Pass) {
	if plan.Restart == nil || ctx.Err() != nil {
		return
	}
	pass.Delete(ctx, outcome.NewKey(corev1.GroupName, "Pod", plan.Restart.Instance), plan.Restart.UID, false)
}

// owner describes a cluster to apply.
func (r *Reconciler) owner(s *snapshot.Cluster) apply.Owner {
	cluster := s.Object
	return apply.Owner{
		New:       len(s.Children) == 0,
		Namespace: cluster.Namespace, Name: cluster.Name, UID: cluster.UID,
		Kind: v1alpha1.PostgresClusterKind.GroupKind(),
		Labels: map[string]string{
			naming.LabelManagedBy: naming.ManagedBy, naming.LabelCluster: cluster.Name,
		},
		Confirm: func(ctx context.Context) (bool, error) {
			live := metadata(v1alpha1.PostgresClusterKind)
			if err := r.live.Get(ctx, client.ObjectKeyFromObject(cluster), live); err != nil {
				return false, client.IgnoreNotFound(err)
			}
			return live.UID == cluster.UID && live.DeletionTimestamp.IsZero(), nil
		},
	}
}

// former are the field managers whose fields are taken over.
var former = apply.Former{Names: naming.FormerFieldManagers, Writers: naming.FirstFieldManagers}

// yields says which fields are left to other managers: suggested labels, which for example Argo CD uses for its own
// bookkeeping, and annotations that are not ours. What selects or defines something is taken back.
func yields(path string) bool {
	if label, ok := strings.CutPrefix(path, ".metadata.labels."); ok {
		return label == naming.LabelInstance || label == naming.LabelName
	}
	annotation, ok := strings.CutPrefix(path, ".metadata.annotations.")
	return ok && !strings.HasPrefix(annotation, v1alpha1.Group+"/")
}
