package reconciler

import (
	"context"
	"sync"
	"time"

	cmv1 "github.com/cert-manager/cert-manager/pkg/apis/certmanager/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"

	"github.com/acme/pg-operator/reconciler/observe"
)

// lateKinds watches cert-manager's kinds as soon as the API server knows them, which may be long after the start.
type lateKinds struct {
	mgr        ctrl.Manager
	controller controller.Controller
	now        func() time.Time

	mu    sync.Mutex
	tried time.Time
	// indexed and watched are how many of the kinds are so far: neither can be done twice.
	indexed, watched int
	synced           bool
}

func lateObjects() []client.Object {
	return []client.Object{&cmv1.Certificate{}, metadata(observe.IssuerKind)}
}

// atStart watches the kinds that the API server knows already, so that the cache has them before the first pass: what a
// pass does not see it takes for missing, and finds in the way.
func (l *lateKinds) atStart() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.known() {
		l.tryWatch(context.Background())
	}
}

// lateKindsPeriod is how often the API server is asked for kinds that it did not know.
const lateKindsPeriod = 3 * time.Second

// present says that the cache can list the kinds at once. A list of a kind that is not synced would keep a pass waiting,
// and with it all that the pass has to do besides certificates.
func (l *lateKinds) present(ctx context.Context) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.synced {
		return true
	}
	objects := lateObjects()
	if l.watched < len(objects) {
		if l.now().Sub(l.tried) < lateKindsPeriod {
			return false
		}
		l.tried = l.now()
		if !l.known() || !l.tryWatch(ctx) {
			return false
		}
	}
	for _, object := range objects {
		informer, err := l.mgr.GetCache().GetInformer(ctx, object, cache.BlockUntilSynced(false))
		if err != nil || !informer.HasSynced() {
			return false
		}
	}
	l.synced = true
	return true
}

func (l *lateKinds) known() bool {
	for _, kind := range []schema.GroupVersionKind{
		cmv1.SchemeGroupVersion.WithKind(cmv1.CertificateKind), observe.IssuerKind,
	} {
		if _, err := l.mgr.GetRESTMapper().RESTMapping(kind.GroupKind(), kind.Version); err != nil {
			return false
		}
	}
	return true
}

// tryWatch logs a failure, which the next try goes on from.
func (l *lateKinds) tryWatch(ctx context.Context) bool {
	err := l.watch(ctx, lateObjects())
	if err != nil {
		l.mgr.GetLogger().Error(err, "Failed to watch cert-manager's kinds")
	}
	return err == nil
}

func (l *lateKinds) watch(ctx context.Context, objects []client.Object) error {
	for _, object := range objects[l.indexed:] {
		if err := indexChild(ctx, l.mgr, object); err != nil {
			return err
		}
		l.indexed++
	}
	for _, object := range objects[l.watched:] {
		if err := watchChild(l.mgr, l.controller, object); err != nil {
			return err
		}
		l.watched++
	}
	return nil
}
