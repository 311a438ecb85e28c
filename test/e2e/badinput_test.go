package e2e

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/acme/pg-operator/apis/naming"
	"github.com/acme/pg-operator/apis/v1alpha1"
)

// TestRefusedManifests: what admission knows is refused by the real kubectl
// with the field's path, and nothing is stored.
func TestRefusedManifests(t *testing.T) {
	cluster := environment(t)
	t.Parallel()
	namespace := cluster.Namespace(t, "refused")
	for name, test := range map[string]struct{ spec, want string }{
		"unknown field":       {`{replicas: 1, replica: 2}`, `unknown field "spec.replica"`},
		"wrong type":          {`{replicas: three}`, "spec.replicas"},
		"version as a number": {`{version: 16}`, "spec.version"},
		"unknown version":     {`{version: "14"}`, "spec.version"},
		"too few":             {`{replicas: 0}`, "spec.replicas"},
		"too many":            {`{replicas: 6}`, "spec.replicas"},
		"zero storage":        {`{storage: 0Gi}`, "spec.storage"},
		"absurd storage":      {`{storage: 99999Gi}`, "spec.storage"},
		"other unit":          {`{storage: 1.5Gi}`, "spec.storage"},
		"negative cpu":        {`{resources: {requests: {cpu: "-1"}}}`, "spec.resources"},
		"request above limit": {`{resources: {requests: {cpu: "2"}, limits: {cpu: "1"}}}`, "spec.resources"},
	} {
		t.Run(name, func(t *testing.T) {
			manifest := "apiVersion: db.example.com/v1alpha1\nkind: PostgresCluster\n" +
				"metadata: {name: bad, namespace: " + namespace + "}\nspec: " + test.spec + "\n"
			_, err := cluster.KubectlInput(t.Context(), manifest, "apply", "-f", "-")
			if err == nil || !strings.Contains(err.Error(), test.want) {
				t.Errorf("got %v, want an error with %q", err, test.want)
			}
		})
	}
	if left, err := cluster.Kubectl(t.Context(), "get", "pgc", "-n", namespace, "-o", "name"); err != nil || left != "" {
		t.Errorf("refused manifests are stored: %q, %v", left, err)
	}
}

// trouble is bad input that only the reconciler can notice.
type trouble struct {
	// prepare makes what stands in the way.
	prepare func(d *database)
	// spec is the bad spec.
	spec func(*v1alpha1.PostgresClusterSpec)
	// begins waits until the trouble can be known, where others have work to do before; its time is not ours.
	begins func(d *database)
	// reason and words of the condition Ready.
	reason string
	words  func(d *database) []string
	// mend takes the trouble away.
	mend func(d *database)
}

const missingImage = "registry.local/missing:1"

var troubles = map[string]trouble{
	"resources that no node has": {
		spec: func(spec *v1alpha1.PostgresClusterSpec) {
			spec.Resources.Requests[corev1.ResourceCPU] = resource.MustParse("1000")
		},
		reason: v1alpha1.ReasonUnschedulable,
		words:  func(d *database) []string { return []string{d.Instance(0), "cpu"} },
		mend: func(d *database) {
			d.mustPatchSpec(map[string]any{"resources": map[string]any{"requests": map[string]any{"cpu": "20m"}}})
		},
	},
	"a StorageClass that does not exist": {
		spec: func(spec *v1alpha1.PostgresClusterSpec) {
			class := "e2e-missing"
			spec.StorageClassName = &class
		},
		reason: v1alpha1.ReasonStorageClassMissing,
		words:  func(*database) []string { return []string{"e2e-missing"} },
		mend:   func(d *database) { d.makeStorageClass("e2e-missing") },
	},
	"an image that does not exist": {
		spec:   func(spec *v1alpha1.PostgresClusterSpec) { spec.Image = missingImage },
		begins: awaitInstalled,
		reason: v1alpha1.ReasonImagePullFailed,
		words:  func(d *database) []string { return []string{d.Instance(0), missingImage} },
		mend:   func(d *database) { d.mustPatchSpec(map[string]any{"image": nil}) },
	},
	"an image without PostgreSQL": {
		spec:   func(spec *v1alpha1.PostgresClusterSpec) { spec.Image = "registry.local/no-postgres:1" },
		begins: awaitInstalled,
		reason: v1alpha1.ReasonInstanceFailed,
		words:  func(d *database) []string { return []string{d.Instance(0), "no PostgreSQL"} },
		mend:   func(d *database) { d.mustPatchSpec(map[string]any{"image": nil}) },
	},
	"an exceeded quota of volumes": {
		prepare: func(d *database) { d.makeQuota("volumes", "requests.storage", "512Mi") },
		reason:  v1alpha1.ReasonQuotaExceeded,
		words:   func(*database) []string { return []string{"volumes"} },
		mend:    func(d *database) { d.kubectl("delete", "resourcequota", "volumes") },
	},
	"an exceeded quota of pods": {
		prepare: func(d *database) { d.makeQuota("no-pods", "pods", "0") },
		reason:  v1alpha1.ReasonQuotaExceeded,
		words:   func(*database) []string { return []string{"no-pods"} },
		mend:    func(d *database) { d.kubectl("delete", "resourcequota", "no-pods") },
	},
}

// TestTroubles: each bad input becomes a condition with the blocking object's
// name in time, and the cluster comes up once it is mended. That cert-manager
// is missing is tried in the control-plane suite: here it would take the
// operator's own certificates away.
func TestTroubles(t *testing.T) {
	cluster := environment(t)
	beyondCore(t)
	for name, trouble := range troubles {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			d := &database{t: t, cluster: cluster, namespace: cluster.Namespace(t, "trouble"), Cluster: naming.Cluster("bad")}
			if trouble.prepare != nil {
				trouble.prepare(d)
			}
			d.create(trouble.spec)
			created := time.Now()
			if trouble.begins != nil {
				trouble.begins(d)
			}
			elapsed := d.awaitTrouble(conditionTimeout, trouble.reason, trouble.words(d)...)
			t.Logf("Said after %s, %s after the creation", elapsed.Round(100*time.Millisecond), time.Since(created).Round(100*time.Millisecond))
			trouble.mend(d)
			d.awaitReady(readyTimeout)
			d.execSQL("create table works ()")
		})
	}
}

// TestTroubleInUse changes a running database for the worse and wants it to go on.
func TestTroubleInUse(t *testing.T) {
	cluster := environment(t)
	beyondCore(t)
	t.Parallel()
	d := newDatabase(t, cluster, "inuse", replicas(2))
	d.awaitReady(readyTimeout)
	l := d.write()
	d.mustPatchSpec(map[string]any{"image": missingImage})
	// The replica stops in an orderly way before its successor meets the bad image.
	elapsed := d.awaitTrouble(2*conditionTimeout, v1alpha1.ReasonImagePullFailed, missingImage)
	t.Logf("Said after %s", elapsed.Round(100*time.Millisecond))
	d.awaitWrites(l, conditionTimeout) // a replica goes first, so the primary still runs
	if image := d.pod(0).Spec.Containers[0].Image; image == missingImage {
		t.Error("the primary was replaced although its replica failed")
	}
	d.mustPatchSpec(map[string]any{"image": nil})
	d.awaitReady(readyTimeout)
	d.awaitStreaming(1, readyTimeout)
	d.verify(l)
}

// awaitInstalled waits until the kubelet comes to the first pod's postgres container.
func awaitInstalled(d *database) {
	eventually(d.t, readyTimeout, "the agent is installed in "+d.Instance(0), func(ctx context.Context) (bool, string) {
		pod := &corev1.Pod{}
		if err := d.cluster.Client.Get(ctx, d.key(d.Instance(0)), pod); err != nil {
			return false, err.Error()
		}
		for _, status := range pod.Status.InitContainerStatuses {
			if status.State.Terminated != nil {
				return true, ""
			}
		}
		return false, fmt.Sprint(pod.Status.InitContainerStatuses)
	})
}

func (d *database) makeQuota(name string, kind corev1.ResourceName, limit string) {
	d.t.Helper()
	quota := &corev1.ResourceQuota{
		ObjectMeta: metav1.ObjectMeta{Namespace: d.namespace, Name: name},
		Spec:       corev1.ResourceQuotaSpec{Hard: corev1.ResourceList{kind: resource.MustParse(limit)}},
	}
	if err := d.cluster.Client.Create(d.t.Context(), quota); err != nil {
		d.t.Fatal(err)
	}
	eventually(d.t, conditionTimeout, "quota "+name+" is in force", func(ctx context.Context) (bool, string) {
		live := &corev1.ResourceQuota{}
		if err := d.cluster.Client.Get(ctx, d.key(name), live); err != nil {
			return false, err.Error()
		}
		_, done := live.Status.Hard[kind]
		return done, "no status"
	})
}

// makeStorageClass makes a class like the default one for the time of the test.
func (d *database) makeStorageClass(name string) {
	d.t.Helper()
	classes := &storagev1.StorageClassList{}
	if err := d.cluster.Client.List(d.t.Context(), classes); err != nil {
		d.t.Fatal(err)
	}
	for _, class := range classes.Items {
		if class.Annotations["storageclass.kubernetes.io/is-default-class"] != "true" {
			continue
		}
		class.ObjectMeta = metav1.ObjectMeta{Name: name}
		if err := d.cluster.Client.Create(d.t.Context(), &class); err != nil {
			d.t.Fatal(err)
		}
		d.t.Cleanup(func() {
			if err := d.cluster.Client.Delete(context.Background(), &class); client.IgnoreNotFound(err) != nil {
				d.t.Errorf("delete StorageClass %s: %v", name, err)
			}
		})
		return
	}
	d.t.Fatal("the local cluster has no default StorageClass")
}
