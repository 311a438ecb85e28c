package volumes

import (
	"context"
	"errors"
	"testing"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes/fake"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/record"
)

// fakeDisks records what was grown to which size.
type fakeDisks struct {
	grown map[string]int64
	fails error
}

func (d *fakeDisks) Grow(_ context.Context, name string, bytes int64) error {
	if d.fails != nil {
		return d.fails
	}
	d.grown[name] = bytes
	return nil
}

func storage(size string) corev1.ResourceList {
	return corev1.ResourceList{corev1.ResourceStorage: resource.MustParse(size)}
}

// bound is a claim of 1Gi on a volume of node1.
func bound() (*corev1.PersistentVolumeClaim, *corev1.PersistentVolume) {
	claim := &corev1.PersistentVolumeClaim{
		ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "data", UID: "claim-uid"},
		Spec:       corev1.PersistentVolumeClaimSpec{VolumeName: "pvc-1", Resources: corev1.VolumeResourceRequirements{Requests: storage("1Gi")}},
		Status:     corev1.PersistentVolumeClaimStatus{Phase: corev1.ClaimBound, Capacity: storage("1Gi")},
	}
	volume := newVolume("pvc-1", "node1", "/v/pvc-1/data", 1<<30, claim, corev1.PersistentVolumeReclaimDelete)
	volume.Annotations = map[string]string{provisionedBy: ProvisionerName}
	volume.Spec.StorageClassName = "local"
	volume.Spec.ClaimRef = &corev1.ObjectReference{Namespace: "ns", Name: "data", UID: "claim-uid"}
	return claim, volume
}

func TestResizer(t *testing.T) {
	type (
		claim  = corev1.PersistentVolumeClaim
		volume = corev1.PersistentVolume
	)
	cases := map[string]struct {
		change func(*claim, *volume)
		fixed  bool  // the class forbids expansion
		fails  error // of the disks
		grown  int64
		want   string // capacity of volume and status afterwards
		state  corev1.ClaimResourceStatus
		event  bool
		fail   bool
	}{
		"nothing to do":    {change: func(*claim, *volume) {}, want: "1Gi"},
		"growth":           {change: func(c *claim, _ *volume) { c.Spec.Resources.Requests = storage("2Gi") }, grown: 2 << 30, want: "2Gi", event: true},
		"rounded growth":   {change: func(c *claim, _ *volume) { c.Spec.Resources.Requests = storage("1073741825") }, grown: 1025 << 20, want: "1025Mi", event: true},
		"class forbids it": {change: func(c *claim, _ *volume) { c.Spec.Resources.Requests = storage("2Gi") }, fixed: true, want: "1Gi"},
		"interrupted after the volume grew": {
			change: func(c *claim, v *volume) {
				c.Spec.Resources.Requests, v.Spec.Capacity = storage("2Gi"), storage("2Gi")
				started(&c.Status, resource.MustParse("2Gi"), metav1.Now())
			},
			want: "2Gi", event: true,
		},
		"taken back after a failure": {
			change: func(c *claim, _ *volume) { failed(&c.Status, resource.MustParse("2Gi"), "no space", metav1.Now()) },
			want:   "1Gi",
		},
		"pending condition of another controller": {
			change: func(c *claim, _ *volume) {
				c.Status.Conditions = []corev1.PersistentVolumeClaimCondition{{Type: corev1.PersistentVolumeClaimFileSystemResizePending, Status: corev1.ConditionTrue}}
			},
			want: "1Gi",
		},
		"the disk refuses": {
			change: func(c *claim, _ *volume) { c.Spec.Resources.Requests = storage("2Gi") },
			fails:  errors.New("no space"), want: "1Gi", state: corev1.PersistentVolumeClaimControllerResizeInfeasible, event: true, fail: true,
		},
		"another node's volume": {
			change: func(c *claim, v *volume) {
				c.Spec.Resources.Requests = storage("2Gi")
				v.Spec.NodeAffinity.Required.NodeSelectorTerms[0].MatchExpressions[0].Values = []string{"node2"}
			},
			want: "1Gi",
		},
		"volume of an earlier claim of that name": {
			change: func(c *claim, v *volume) {
				c.Spec.Resources.Requests = storage("2Gi")
				v.Spec.ClaimRef.UID = "earlier"
			},
			want: "1Gi",
		},
	}
	for title, tc := range cases {
		t.Run(title, func(t *testing.T) {
			ctx := t.Context()
			claim, volume := bound()
			tc.change(claim, volume)
			expandable := !tc.fixed
			class := &storagev1.StorageClass{ObjectMeta: metav1.ObjectMeta{Name: "local"}, Provisioner: ProvisionerName, AllowVolumeExpansion: &expandable}
			client := fake.NewClientset(claim, volume, class)
			factory := informers.NewSharedInformerFactory(client, 0)
			disks := &fakeDisks{grown: map[string]int64{}, fails: tc.fails}
			events := record.NewFakeRecorder(10)
			r, err := newResizer(client, factory, "node1", disks, events)
			if err != nil {
				t.Fatal(err)
			}
			factory.Start(ctx.Done())
			factory.WaitForCacheSync(ctx.Done())

			err = r.sync(ctx, cache.NewObjectName("ns", "data"))
			if (err != nil) != tc.fail {
				t.Fatalf("error %v, want one: %v", err, tc.fail)
			}
			if disks.grown["pvc-1"] != tc.grown {
				t.Errorf("grown to %d, want %d", disks.grown["pvc-1"], tc.grown)
			}
			volume, err = client.CoreV1().PersistentVolumes().Get(ctx, "pvc-1", metav1.GetOptions{})
			if err != nil {
				t.Fatal(err)
			}
			claim, err = client.CoreV1().PersistentVolumeClaims("ns").Get(ctx, "data", metav1.GetOptions{})
			if err != nil {
				t.Fatal(err)
			}
			want := resource.MustParse(tc.want)
			if got := volume.Spec.Capacity.Storage(); got.Cmp(want) != 0 {
				t.Errorf("volume has %s, want %s", got, tc.want)
			}
			if got := claim.Status.Capacity.Storage(); got.Cmp(want) != 0 {
				t.Errorf("claim's status has %s, want %s", got, tc.want)
			}
			if got := claim.Status.AllocatedResourceStatuses[corev1.ResourceStorage]; got != tc.state {
				t.Errorf("state %q, want %q", got, tc.state)
			}
			if (len(claim.Status.Conditions) != 0) != tc.fail {
				t.Errorf("conditions %v, want some: %v", claim.Status.Conditions, tc.fail)
			}
			if (len(events.Events) != 0) != tc.event {
				t.Errorf("%d events, want some: %v", len(events.Events), tc.event)
			}
		})
	}
}

func TestFailureIsNotRestated(t *testing.T) {
	status := corev1.PersistentVolumeClaimStatus{}
	request := resource.MustParse("2Gi")
	first := metav1.Now()
	failed(&status, request, "no space", first)
	if !failedBefore(&status, request) {
		t.Error("a failure is forgotten")
	}
	if failedBefore(&status, resource.MustParse("3Gi")) {
		t.Error("another request counts as failed before")
	}
	before := *status.DeepCopy()
	failed(&status, request, "no space", metav1.NewTime(first.Add(3600e9)))
	if !equality.Semantic.DeepEqual(before, status) {
		t.Errorf("the same failure changes the status from %+v to %+v", before, status)
	}
}
