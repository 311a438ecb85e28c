package ssa_test

import (
	"bytes"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/structured-merge-diff/v6/fieldpath"

	"github.com/acme/pg-operator/apis/naming"
	"github.com/acme/pg-operator/test/golden"
)

// uids stand in the paths of owner references.
var uids = regexp.MustCompile(`uid="[0-9a-f-]+"`)

// TestGoldenOwnership keeps a list of every field that the operator owns: no default, no status, nothing by accident.
func TestGoldenOwnership(t *testing.T) {
	c, _, _ := converged(t, 1)
	quiet(t, c.Namespace)
	var lines []string
	for _, list := range childLists() {
		if err := plane.Client.List(t.Context(), list, client.InNamespace(c.Namespace)); err != nil {
			t.Fatal(err)
		}
		objects, err := objectsOf(list)
		if err != nil {
			t.Fatal(err)
		}
		for _, object := range objects {
			for _, entry := range object.GetManagedFields() {
				if entry.Manager != naming.FieldManager || entry.Operation != metav1.ManagedFieldsOperationApply {
					continue
				}
				owned := fieldpath.NewSet()
				if err := owned.FromJSON(bytes.NewReader(entry.FieldsV1.GetRawBytes())); err != nil {
					t.Fatal(err)
				}
				owned.Leaves().Iterate(func(path fieldpath.Path) {
					lines = append(lines, fmt.Sprintf("%s %s %s", strings.TrimSuffix(strings.TrimPrefix(fmt.Sprintf("%T", list), "*"), "List"),
						object.GetName(), uids.ReplaceAllString(path.String(), "uid=*")))
				})
			}
		}
	}
	slices.Sort(lines)
	got := strings.Join(lines, "\n") + "\n"
	golden.Equal(t, "owned.txt", []byte(got))
}

// TestWhatIsNoLongerRenderedGoes: fields of ours go with the intent, others stay.
func TestWhatIsNoLongerRenderedGoes(t *testing.T) {
	c, _, _ := converged(t, 1)
	edit(t, c, func() { c.Spec.NodeSelector = map[string]string{"disk": "fast"} })
	awaitReady(t, c)
	plane.Kubectl(t, "annotate", "statefulset", c.Name, "-n", c.Namespace, "example.com/note=mine")
	edit(t, c, func() { c.Spec.NodeSelector = nil })
	awaitReady(t, c)
	out := plane.Kubectl(t, "get", "statefulset", c.Name, "-n", c.Namespace, "-o",
		"jsonpath={.spec.template.spec.nodeSelector}|{.metadata.annotations.example\\.com/note}")
	if out != "|mine" {
		t.Errorf("node selector and annotation are %q", out)
	}
}
