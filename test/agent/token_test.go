package agent_test

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	authenticationv1 "k8s.io/api/authentication/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/acme/pg-operator/apis/naming"
	"github.com/acme/pg-operator/test/controlplane"
)

// stolen has somebody use an instance's token for all that would lead further. The policies are in force.
func (f *fixture) stolen(t *testing.T) {
	thief, err := client.New(bound(t, f.namespace, cluster.ServiceAccount(), f.pods["orders-db-0"]), client.Options{Scheme: plane.Scheme})
	if err != nil {
		t.Fatal(err)
	}
	patch := func(ctx context.Context, object client.Object, change map[string]any) error {
		content, err := json.Marshal(change)
		if err != nil {
			return err
		}
		return thief.Patch(ctx, object, client.RawPatch(types.StrategicMergePatchType, content), client.DryRunAll)
	}
	labels := func(labels map[string]any) map[string]any {
		return map[string]any{"metadata": map[string]any{"labels": labels}}
	}
	annotations := func(annotations map[string]any) map[string]any {
		return map[string]any{"metadata": map[string]any{"annotations": annotations}}
	}
	image := map[string]any{"spec": map[string]any{"containers": []any{map[string]any{"name": naming.ContainerPostgres, "image": "evil"}}}}
	own, other := f.pods["orders-db-0"], f.pods["orders-db-1"]
	note := client.RawPatch(types.MergePatchType, []byte(`{"metadata":{"annotations":{"`+naming.AnnotationImage+`":"x"}}}`))
	if err := plane.Client.Patch(t.Context(), own.DeepCopy(), note); err != nil {
		t.Fatal(err)
	}
	controlplane.Eventually(t, func(ctx context.Context) error { // The policy of pods is in force soon after the others.
		if err := patch(ctx, own.DeepCopy(), image); !apierrors.IsForbidden(err) {
			return fmt.Errorf("another image: %w", err)
		}
		return nil
	})
	for name, test := range map[string]struct {
		pod    *corev1.Pod
		change map[string]any
		says   string
	}{
		"another image":            {own, image, "the annotation db.example.com/report only"},
		"a shorter life":           {own, map[string]any{"spec": map[string]any{"activeDeadlineSeconds": 1}}, "the annotation db.example.com/report only"},
		"a label of a Service":     {own, labels(map[string]any{"app": "web"}), "can change db.example.com/role only"},
		"another cluster":          {own, labels(map[string]any{naming.LabelCluster: "other"}), "can change db.example.com/role only"},
		"no cluster":               {own, labels(map[string]any{naming.LabelCluster: nil}), "can change db.example.com/role only"},
		"another annotation":       {own, annotations(map[string]any{naming.AnnotationTemplateHash: "x"}), "can change db.example.com/report only"},
		"an annotation less":       {own, annotations(map[string]any{naming.AnnotationImage: nil}), "can change db.example.com/report only"},
		"somebody's annotation":    {own, annotations(map[string]any{"example.com/note": "x"}), ""},
		"a finalizer":              {own, map[string]any{"metadata": map[string]any{"finalizers": []string{"example.com/x"}}}, "the annotation db.example.com/report only"},
		"another instance's role":  {other, labels(map[string]any{naming.LabelRole: naming.RoleReplica}), "its own pod only"},
		"another instance's image": {other, image, "its own pod only"},
		"its role":                 {own, labels(map[string]any{naming.LabelRole: naming.RolePrimary}), ""},
		"its report":               {own, annotations(map[string]any{naming.AnnotationReport: "{}"}), ""},
	} {
		err := patch(t.Context(), test.pod.DeepCopy(), test.change)
		if test.says == "" && err != nil || test.says != "" && (!apierrors.IsForbidden(err) || !strings.Contains(err.Error(), test.says)) {
			t.Errorf("%s: %v, want that %q", name, err, test.says)
		}
	}
	f.unlabels(t, patch)
	agent := f.agent(t, 0, "10.0.0.1")
	for _, role := range []string{naming.RolePrimary, naming.RoleReplica, ""} {
		if err := agent.Publish(t.Context(), `{"role":"`+role+`"}`, role); err != nil {
			t.Errorf("the agent publishes %q: %v", role, err)
		}
	}
	meta := func(name string) metav1.ObjectMeta { return metav1.ObjectMeta{Name: name, Namespace: f.namespace} }
	foreign := &coordinationv1.Lease{ObjectMeta: meta("other")}
	secret := &corev1.Secret{ObjectMeta: meta(cluster.SecretSuperuser())}
	for _, object := range []client.Object{foreign, secret} {
		if err := plane.Client.Create(t.Context(), object); err != nil {
			t.Fatal(err)
		}
	}
	for name, err := range map[string]error{
		"another cluster's Lease":         patch(t.Context(), foreign.DeepCopy(), map[string]any{"spec": map[string]any{"holderIdentity": "x"}}),
		"a new Lease":                     thief.Create(t.Context(), &coordinationv1.Lease{ObjectMeta: meta("new")}),
		"the Lease's end":                 thief.Delete(t.Context(), &coordinationv1.Lease{ObjectMeta: meta(cluster.Lease())}),
		"a Secret":                        thief.Get(t.Context(), client.ObjectKeyFromObject(secret), &corev1.Secret{}),
		"all Secrets":                     thief.List(t.Context(), &corev1.SecretList{}, client.InNamespace(f.namespace)),
		"a new pod":                       thief.Create(t.Context(), &corev1.Pod{ObjectMeta: meta("new"), Spec: own.Spec}),
		"another instance's end":          thief.Delete(t.Context(), other.DeepCopy()),
		"a token of its own account":      thief.SubResource("token").Create(t.Context(), &corev1.ServiceAccount{ObjectMeta: meta(cluster.ServiceAccount())}, &authenticationv1.TokenRequest{}),
		"a debugging container in itself": thief.SubResource("ephemeralcontainers").Patch(t.Context(), own.DeepCopy(), client.RawPatch(types.MergePatchType, []byte("{}"))),
		"its own status":                  thief.Status().Patch(t.Context(), own.DeepCopy(), client.RawPatch(types.MergePatchType, []byte("{}"))),
	} {
		if !apierrors.IsForbidden(err) {
			t.Errorf("%s: %v, want that it is forbidden", name, err)
		}
	}
}

// unlabels has a new primary take the label of the former one off, and nothing else of it.
func (f *fixture) unlabels(t *testing.T, patch func(context.Context, client.Object, map[string]any) error) {
	t.Helper()
	former := f.pods["orders-db-1"]
	role := map[string]any{"labels": map[string]any{naming.LabelRole: nil}}
	for _, published := range []string{naming.RoleReplica, naming.RolePrimary} {
		if err := f.agent(t, 1, "10.0.0.2").Publish(t.Context(), `{"term":4}`, published); err != nil {
			t.Fatal(err)
		}
		err := patch(t.Context(), former.DeepCopy(), map[string]any{"metadata": role})
		if (err == nil) != (published == naming.RolePrimary) {
			t.Errorf("the label %s is taken away: %v", published, err)
		}
	}
	role["annotations"] = map[string]any{naming.AnnotationReport: nil}
	if err := patch(t.Context(), former.DeepCopy(), map[string]any{"metadata": role}); !apierrors.IsForbidden(err) {
		t.Errorf("the report is taken away as well: %v", err)
	}
	if err := f.agent(t, 0, "10.0.0.1").Unlabel(t.Context(), former.Name, 5); err != nil {
		t.Error(err)
	}
	var pod corev1.Pod
	if f.get(t, former.Name, &pod); pod.Labels[naming.LabelRole] != "" {
		t.Errorf("labels %v", pod.Labels)
	}
}
