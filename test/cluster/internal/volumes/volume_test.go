package volumes

import (
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

func TestSizeFor(t *testing.T) {
	cases := map[string]int64{
		"1":               MinBytes,
		"100Mi":           MinBytes,
		"300Mi":           MinBytes,
		"300000001":       MinBytes, // rounded up to MiB it is less than the smallest
		"1Gi":             1 << 30,
		"1000M":           954 << 20,
		"1.5Gi":           1536 << 20,
		"314572801":       301 << 20,
		"64Ti":            64 << 40,
		"100000000000000": 95367432 << 20,
	}
	for request, want := range cases {
		if got := sizeFor(resource.MustParse(request)); got != want {
			t.Errorf("%s becomes %d bytes, want %d", request, got, want)
		}
	}
}

func TestRefusal(t *testing.T) {
	const node = "node1"
	cases := map[string]struct {
		spec corev1.PersistentVolumeClaimSpec
		node string
		want string // part of the reason
	}{
		"plain":       {spec: corev1.PersistentVolumeClaimSpec{AccessModes: []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce}}, node: node},
		"one pod":     {spec: corev1.PersistentVolumeClaimSpec{AccessModes: []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOncePod}}, node: node},
		"no node":     {want: "WaitForFirstConsumer"},
		"shared":      {spec: corev1.PersistentVolumeClaimSpec{AccessModes: []corev1.PersistentVolumeAccessMode{corev1.ReadWriteMany}}, node: node, want: "ReadWriteMany"},
		"selector":    {spec: corev1.PersistentVolumeClaimSpec{Selector: &metav1.LabelSelector{}}, node: node, want: "spec.selector"},
		"data source": {spec: corev1.PersistentVolumeClaimSpec{DataSourceRef: &corev1.TypedObjectReference{}}, node: node, want: "spec.dataSource"},
	}
	for title, tc := range cases {
		t.Run(title, func(t *testing.T) {
			got := refusal(&corev1.PersistentVolumeClaim{Spec: tc.spec}, tc.node)
			if (got == "") != (tc.want == "") || !strings.Contains(got, tc.want) {
				t.Errorf("refusal %q, want one about %q", got, tc.want)
			}
		})
	}
}

func TestBelongsTo(t *testing.T) {
	volume := newVolume("pvc-1", "node1", "/v/pvc-1/data", MinBytes, &corev1.PersistentVolumeClaim{}, corev1.PersistentVolumeReclaimDelete)
	if belongsTo(volume, "node1") {
		t.Error("a volume without our annotation is taken for ours")
	}
	volume.Annotations = map[string]string{provisionedBy: ProvisionerName}
	if !belongsTo(volume, "node1") {
		t.Error("our volume is not known as ours")
	}
	if belongsTo(volume, "node2") {
		t.Error("a volume of node1 is taken for one of node2")
	}
	volume.Spec.NodeAffinity = nil
	if belongsTo(volume, "node1") {
		t.Error("a volume without a node is taken for ours")
	}
}

func TestDevicesBelow(t *testing.T) {
	list := "/dev/loop0 /v/a.img\n/dev/loop1 /volumes/b.img\n/dev/loop12 /v/b c.img (deleted)\n/dev/loop3"
	got := strings.Join(devicesBelow(list, "/v"), " ")
	if got != "/dev/loop0 /dev/loop12" {
		t.Errorf("devices %q", got)
	}
}
