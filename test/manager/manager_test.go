package manager

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/acme/pg-operator/apis/naming"
	"github.com/acme/pg-operator/apis/v1alpha1"
	"github.com/acme/pg-operator/test/world"
)

// From nothing to the first admission: issued, served, ready, trusted, called.
func TestInstall(t *testing.T) {
	v := installed(t)
	if err := admits(t.Context()); err == nil {
		t.Fatal("a PostgresCluster was admitted though no webhook runs")
	}
	o := launch(t, v.dir)
	o.serve(t)
	eventually(t, admits)

	// The webhook's own answer, and not only the schema's: both mistakes in one.
	bad := &v1alpha1.PostgresCluster{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "bad"},
		Spec:       v1alpha1.PostgresClusterSpec{Parameters: map[string]string{"work_mem": "lots"}},
	}
	err := plane.Client.Create(t.Context(), bad, client.DryRunAll)
	if !apierrors.IsInvalid(err) || !strings.Contains(err.Error(), "spec.parameters[work_mem]") {
		t.Fatalf("work_mem=lots: %v", err)
	}
}

func TestNoCertificateNoStart(t *testing.T) {
	o := launch(t, t.TempDir())
	if code := o.exit(t, 20*time.Second); code == 0 {
		t.Error("the exit code is 0")
	}
	if log := o.log(); !strings.Contains(log, "webhook certificate") {
		t.Errorf("the log does not say what is missing:\n%s", log)
	}
}

// A certificate that the API server would refuse makes the operator unready, and a good one ready again.
func TestReadinessNeedsTheRightName(t *testing.T) {
	v := installed(t)
	o := launch(t, v.dir, "--webhook-service-name=another")
	eventually(t, func(ctx context.Context) error {
		code, _, err := get(ctx, "http://"+o.probe+"/healthz")
		if err == nil && code != http.StatusOK {
			err = fmt.Errorf("healthz answers %d", code)
		}
		return err
	})
	eventually(t, func(ctx context.Context) error {
		err := o.ready(ctx)
		if err == nil {
			return errors.New("ready with a certificate for another name")
		}
		if !strings.Contains(err.Error(), "[-]webhook") {
			return fmt.Errorf("not ready for another reason: %w", err)
		}
		return nil
	})
	if code := o.stop(t); code != 0 {
		t.Errorf("exit code %d", code)
	}
}

// Operators replace one another, the leader first, while objects are admitted as fast as they can be: none fails, and
// somebody leads again in 3 s.
func TestHandover(t *testing.T) {
	v := installed(t)
	current := launch(t, v.dir, "--shutdown-delay=2s")
	current.serve(t)
	eventually(t, admits)
	var loads []*load
	for range 8 {
		loads = append(loads, startLoad(t, admits))
	}
	for range 3 {
		holder := leads(t, "")
		next := launch(t, v.dir, "--shutdown-delay=2s")
		next.serve(t)
		loads[0].passes(t, 10)

		// Kubernetes takes a pod out of its Services when it asks it to end. Connections that exist stay.
		asked := time.Now()
		if code := current.stop(t); code != 0 {
			t.Errorf("exit code %d after SIGTERM", code)
		}
		stopped := time.Now()
		leads(t, holder)
		taken := time.Since(stopped)
		t.Logf("stopped in %s, the Lease taken %s later", stopped.Sub(asked).Round(time.Millisecond), taken.Round(time.Millisecond))
		if taken > 3*time.Second {
			t.Errorf("the Lease was taken %s after its holder ended, want 3s at most", taken)
		}
		loads[0].passes(t, 10)
		current = next
	}
	var admitted int64
	for _, l := range loads {
		admitted += l.stop(t)
	}
	t.Logf("%d admissions, none failed", admitted)

	if code := current.stop(t); code != 0 {
		t.Errorf("exit code %d of the last", code)
	}
	found, err := lease(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if found.Spec.HolderIdentity != nil && *found.Spec.HolderIdentity != "" {
		t.Errorf("%s still holds the Lease", *found.Spec.HolderIdentity)
	}
}

// With --watch-namespace, clusters elsewhere are left alone.
func TestWatchedNamespaces(t *testing.T) {
	v := installed(t)
	watched, other := plane.Namespace(t), plane.Namespace(t)
	o := launch(t, v.dir, "--watch-namespace="+watched)
	o.serve(t)
	eventually(t, admits)
	cluster := func(namespace string) *v1alpha1.PostgresCluster {
		return &v1alpha1.PostgresCluster{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "db"}}
	}
	// The one that nobody looks after comes first, so that it would be seen by the time the second one was.
	for _, namespace := range []string{other, watched} {
		if err := plane.Client.Create(t.Context(), cluster(namespace)); err != nil {
			t.Fatal(err)
		}
	}
	conditions := func(ctx context.Context, namespace string) (int, error) {
		found := cluster(namespace)
		err := plane.Client.Get(ctx, client.ObjectKeyFromObject(found), found)
		return len(found.Status.Conditions), err
	}
	eventually(t, func(ctx context.Context) error {
		n, err := conditions(ctx, watched)
		if err == nil && n == 0 {
			err = errors.New("no status in the watched namespace")
		}
		return err
	})
	if n, err := conditions(t.Context(), other); err != nil || n > 0 {
		t.Errorf("a namespace that is not watched got a status of %d conditions (%v)", n, err)
	}
}

// A leader that loses its Lease ends with an error, at once, so that two never reconcile. Another one goes on with what
// it has made, and makes nothing twice.
func TestLostLease(t *testing.T) {
	v := installed(t)
	o := launch(t, v.dir)
	o.serve(t)
	leads(t, "")
	cluster := &v1alpha1.PostgresCluster{ObjectMeta: metav1.ObjectMeta{Namespace: plane.Namespace(t), Name: "db"}}
	eventually(t, admits)
	if err := plane.Client.Create(t.Context(), cluster); err != nil {
		t.Fatal(err)
	}
	eventually(t, func(ctx context.Context) error {
		return plane.Client.Get(ctx, client.ObjectKeyFromObject(cluster), &appsv1.StatefulSet{})
	})
	made := children(t, cluster.Namespace)
	next := launch(t, v.dir)
	next.serve(t)

	eventually(t, func(ctx context.Context) error {
		found, err := lease(ctx)
		if err != nil {
			return err
		}
		thief, now := "thief", metav1.NowMicro()
		found.Spec.HolderIdentity, found.Spec.RenewTime = &thief, &now
		return plane.Client.Update(ctx, found)
	})
	// The deadline of a renewal is 10 s; the rest is for a busy machine.
	if code := o.exit(t, 30*time.Second); code == 0 {
		t.Error("the exit code is 0")
	}
	if !strings.Contains(o.log(), "leader election lost") {
		t.Error("the log does not say why")
	}
	tunnel.remove(o.webhook)
	leads(t, "thief")
	plane.Kubectl(t, "patch", "pgc", cluster.Name, "-n", cluster.Namespace, "--type=merge", "-p", `{"spec":{"replicas":2}}`)
	eventually(t, func(ctx context.Context) error {
		set := &appsv1.StatefulSet{}
		err := plane.Client.Get(ctx, client.ObjectKeyFromObject(cluster), set)
		if err == nil && *set.Spec.Replicas != 2 {
			err = errors.New("the next operator has not seen the edit")
		}
		return err
	})
	now := children(t, cluster.Namespace)
	for name, uid := range made {
		if now[name] != uid {
			t.Errorf("%s was made anew", name)
		}
		delete(now, name)
	}
	if len(now) != 1 {
		t.Errorf("there are %v besides, want the second instance's volume claim alone", now)
	}
}

// children are the objects in a namespace that the operator makes itself, with their UIDs.
func children(t *testing.T, namespace string) map[string]types.UID {
	t.Helper()
	found := map[string]types.UID{}
	objects, err := world.Children(t.Context(), plane.Client, namespace)
	if err != nil {
		t.Fatal(err)
	}
	for _, object := range objects {
		if secret, ok := object.(*corev1.Secret); ok && secret.Type == corev1.SecretTypeTLS {
			continue // cert-manager makes it, in its own time.
		}
		if object.GetLabels()[naming.LabelManagedBy] == naming.ManagedBy {
			found[fmt.Sprintf("%T %s", object, object.GetName())] = object.GetUID()
		}
	}
	return found
}
