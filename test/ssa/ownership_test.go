package ssa_test

import (
	"bytes"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	appsv1ac "k8s.io/client-go/applyconfigurations/apps/v1"
	corev1ac "k8s.io/client-go/applyconfigurations/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/structured-merge-diff/v6/fieldpath"

	"github.com/acme/pg-operator/apis/naming"
	"github.com/acme/pg-operator/test/golden"
)

// uids stand in the paths of owner references.
var uids = regexp.MustCompile(`uid="[0-9a-f-]+"`)

// TestGoldenOwnership keeps a list of every field that the operator owns: no default, no status, nothing by accident.
// More instances have more volume claims, each like the first.
func TestGoldenOwnership(t *testing.T) {
	t.Parallel()
	c, _, _ := converged(t, 1)
	quiet(t, c.Namespace)
	golden.Equal(t, "owned.txt", []byte(ownedFields(t, c.Namespace)))
	replicas := int32(3)
	edit(t, c, func() { c.Spec.Replicas = &replicas })
	awaitReady(t, c)
	quiet(t, c.Namespace)
	golden.Equal(t, "owned.txt", []byte(ownedFields(t, c.Namespace)))
}

// otherClaims are the volume claims of all instances but the first.
var otherClaims = regexp.MustCompile(`data-orders-[12]`)

func ownedFields(t testing.TB, namespace string) string {
	t.Helper()
	var lines []string
	for _, object := range childrenOf(t, namespace) {
		kind := strings.TrimPrefix(fmt.Sprintf("%T", object), "*")
		name := otherClaims.ReplaceAllString(object.GetName(), "data-orders-0")
		for _, entry := range object.GetManagedFields() {
			if entry.Manager != naming.FieldManager || entry.Operation != metav1.ManagedFieldsOperationApply {
				continue
			}
			owned := fieldpath.NewSet()
			if err := owned.FromJSON(bytes.NewReader(entry.FieldsV1.GetRawBytes())); err != nil {
				t.Fatal(err)
			}
			owned.Leaves().Iterate(func(path fieldpath.Path) {
				lines = append(lines, fmt.Sprintf("%s %s %s", kind, name, uids.ReplaceAllString(path.String(), "uid=*")))
			})
		}
	}
	slices.Sort(lines)
	return strings.Join(slices.Compact(lines), "\n") + "\n"
}

// TestWhatIsNoLongerRenderedGoes: fields of ours go with the intent; those of others stay, and those that others own, too.
func TestWhatIsNoLongerRenderedGoes(t *testing.T) {
	t.Parallel()
	c, _, _ := converged(t, 1)
	edit(t, c, func() {
		c.Spec.NodeSelector = map[string]string{"disk": "fast"}
		c.Spec.Tolerations = []corev1.Toleration{{Key: "a", Operator: corev1.TolerationOpExists}}
	})
	awaitReady(t, c)
	plane.Kubectl(t, "annotate", "statefulset", c.Name, "-n", c.Namespace, "example.com/note=mine")
	shared := appsv1ac.StatefulSet(c.Name, c.Namespace).WithSpec(appsv1ac.StatefulSetSpec().WithTemplate(
		corev1ac.PodTemplateSpec().WithSpec(corev1ac.PodSpec().
			WithTolerations(corev1ac.Toleration().WithKey("a").WithOperator(corev1.TolerationOpExists)).
			WithContainers(corev1ac.Container().WithName("sidecar").WithImage("mesh:1")))))
	if err := plane.Client.Apply(t.Context(), shared, client.FieldOwner("mesh")); err != nil {
		t.Fatal(err)
	}
	edit(t, c, func() { c.Spec.NodeSelector, c.Spec.Tolerations = nil, nil })
	awaitReady(t, c)
	out := plane.Kubectl(t, "get", "statefulset", c.Name, "-n", c.Namespace, "-o", "jsonpath="+
		"{.spec.template.spec.nodeSelector}|{.metadata.annotations.example\\.com/note}|{.spec.template.spec.tolerations[*].key}|"+
		"{.spec.template.spec.containers[*].name}")
	if out != "|mine|a|postgres sidecar" && out != "|mine|a|sidecar postgres" {
		t.Errorf("node selector, annotation, tolerations and containers are %q", out)
	}
}
