package webhooks

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"

	admissionv1 "k8s.io/api/admission/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"
	kjson "sigs.k8s.io/json"

	"github.com/acme/pg-operator/apis/v1alpha1"
	"github.com/acme/pg-operator/webhooks/rules"
)

var testDefaults = v1alpha1.Defaults{Version: "17", Storage: "50Gi"}

func request(operation admissionv1.Operation, old, object string) admission.Request {
	return admission.Request{AdmissionRequest: admissionv1.AdmissionRequest{
		Operation: operation, Name: "orders-db",
		Object: runtime.RawExtension{Raw: []byte(object)}, OldObject: runtime.RawExtension{Raw: []byte(old)},
	}}
}

func TestDefaulter(t *testing.T) {
	tests := map[string]struct {
		old, object string
		want        string
	}{
		"nothing set": {
			object: `{"spec":{}}`,
			want: `add /spec/deletionPolicy Retain, add /spec/replicas 1, add /spec/storage 50Gi, ` +
				`add /spec/upgradePolicy MinorOnly, add /spec/version 17`,
		},
		"no spec": {
			object: `{}`,
			want: `add /spec map[], add /spec/deletionPolicy Retain, add /spec/replicas 1, add /spec/storage 50Gi, ` +
				`add /spec/upgradePolicy MinorOnly, add /spec/version 17`,
		},
		"all set": {
			object: `{"spec":{"replicas":3,"version":"16","storage":"1Gi","deletionPolicy":"Delete","upgradePolicy":"AllowMajor"}}`,
		},
		"zero replicas are set": {
			object: `{"spec":{"replicas":0,"version":"16","storage":"1Gi","deletionPolicy":"Delete","upgradePolicy":"AllowMajor"}}`,
		},
		"left out in a change": {
			old:    `{"spec":{"replicas":1,"version":"15","storage":"9Gi"}}`,
			object: `{"spec":{"replicas":3,"deletionPolicy":"Retain","upgradePolicy":"MinorOnly"}}`,
			want:   `add /spec/storage 9Gi, add /spec/version 15`,
		},
		"left out before too, of a cluster that runs": {
			old:    `{"spec":{}}`,
			object: `{"spec":{"replicas":3,"deletionPolicy":"Retain","upgradePolicy":"MinorOnly"},"status":{"version":"15","provisionedStorage":"30Gi"}}`,
			want:   `add /spec/storage 30Gi, add /spec/version 15`,
		},
		"wrong type":   {object: `{"spec":{"replicas":"three"}}`},
		"wrong spec":   {object: `{"spec":[1]}`},
		"wrong case":   {object: `{"spec":{"Replicas":3,"replicas":2,"version":"16","storage":"1Gi","deletionPolicy":"Retain","upgradePolicy":"MinorOnly"}}`},
		"being gone":   {object: `{"metadata":{"deletionTimestamp":"2026-01-01T00:00:00Z"},"spec":{}}`},
		"unknown kept": {object: `{"spec":{"newer":1,"replicas":3,"version":"16","deletionPolicy":"Retain","upgradePolicy":"MinorOnly"}}`, want: `add /spec/storage 50Gi`},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			operation := admissionv1.Create
			if test.old != "" {
				operation = admissionv1.Update
			}
			response := (&defaulter{defaults: testDefaults}).Handle(t.Context(), request(operation, test.old, test.object))
			var patches []string
			for _, p := range response.Patches {
				patches = append(patches, fmt.Sprintf("%s %s %v", p.Operation, p.Path, p.Value))
			}
			if got := strings.Join(patches, ", "); !response.Allowed || got != test.want {
				t.Errorf("allowed %v, patches %q, want %q", response.Allowed, got, test.want)
			}
		})
	}
}

func TestValidator(t *testing.T) {
	tests := map[string]struct {
		operation   admissionv1.Operation
		old, object string
		want        []string
	}{
		"accepted": {operation: admissionv1.Create, object: `{"metadata":{"name":"orders-db"},"spec":{"replicas":3}}`},
		"sorted": {
			operation: admissionv1.Create, object: `{"metadata":{"name":"orders-db"},"spec":{"storage":"0Gi","replicas":9,"image":"A"}}`,
			want: []string{"spec.image", "spec.replicas", "spec.storage"},
		},
		"wrong type": {operation: admissionv1.Create, object: `{"spec":{"replicas":"three"}}`, want: []string{"spec.replicas"}},
		"not JSON":   {operation: admissionv1.Create, object: `{`, want: []string{"spec"}},
		"change": {
			operation: admissionv1.Update, old: `{"spec":{"storage":"9Gi"}}`, object: `{"spec":{"storage":"1Gi"}}`,
			want: []string{"spec.storage"},
		},
		"old of the wrong type": {
			operation: admissionv1.Update, old: `{"spec":{"replicas":"three"}}`, object: `{"spec":{"replicas":9}}`,
			want: []string{"spec.replicas"},
		},
		"deletion": {operation: admissionv1.Delete, old: `{"spec":{"replicas":9}}`},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			response := (&validator{}).Handle(t.Context(), request(test.operation, test.old, test.object))
			var fields []string
			if !response.Allowed {
				if response.Result.Code != 422 || response.Result.Details.Group != v1alpha1.Group ||
					response.Result.Details.Kind != "PostgresCluster" {
					t.Errorf("status %+v", response.Result)
				}
				for _, cause := range response.Result.Details.Causes {
					fields = append(fields, cause.Field)
				}
			}
			if response.Allowed != (test.want == nil) || !slices.Equal(fields, test.want) {
				t.Errorf("allowed %v, fields %q, want %q", response.Allowed, fields, test.want)
			}
		})
	}
}

func TestProtector(t *testing.T) {
	tests := map[string]struct {
		old  string
		code int32
	}{
		"protected":   {old: `{"metadata":{"name":"orders-db","namespace":"shop"},"spec":{"deletionProtection":true}}`, code: 403},
		"unprotected": {old: `{"metadata":{"name":"orders-db"},"spec":{"deletionProtection":false}}`},
		"not set":     {old: `{"metadata":{"name":"orders-db"},"spec":{}}`},
		"no spec":     {old: `{}`},
		"going already": {
			old: `{"metadata":{"name":"orders-db","deletionTimestamp":"2026-01-01T00:00:00Z"},"spec":{"deletionProtection":true}}`,
		},
		"protected and wrong elsewhere": {old: `{"spec":{"deletionProtection":true,"replicas":"three","hba":7}}`, code: 403},
		"not JSON":                      {old: `{`, code: 400},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			req := request(admissionv1.Delete, test.old, "")
			req.UserInfo.Username = "jane"
			response := (&protector{}).Handle(t.Context(), req)
			if response.Allowed != (test.code == 0) || !response.Allowed && response.Result.Code != test.code {
				t.Errorf("allowed %v, %+v, want code %d", response.Allowed, response.Result, test.code)
			}
			if test.code == 403 && !strings.HasPrefix(response.Result.Message, "jane cannot delete PostgresCluster ") {
				t.Errorf("says %q", response.Result.Message)
			}
		})
	}
}

// FuzzAdmission sends any object through both webhooks, as new and as a change of another: they must not panic, what
// defaulting adds is added once, and it never makes a good object bad.
func FuzzAdmission(f *testing.F) {
	for _, seed := range []string{
		`{"spec":{}}`, `{}`, `null`, `[]`, `{"spec":null}`, `{"spec":{"replicas":"three"}}`,
		`{"metadata":{"name":"a"},"spec":{"replicas":3,"version":"16","storage":"20Gi","image":"postgres:16","parameters":{"work_mem":"8MB"}}}`,
		`{"spec":{"resources":{"limits":{"cpu":"1e400","memory":"-0"}},"nodeSelector":{"a":"b"}},"status":{"provisionedStorage":"1e30"}}`,
		`{"spec":{"affinity":{"podAffinity":{"requiredDuringSchedulingIgnoredDuringExecution":[{"topologyKey":"x","labelSelector":{"matchExpressions":[{"key":"a","operator":"In"}]}}]}}}}`,
		`{"spec":{"tolerations":[{}],"topologySpreadConstraints":[{"matchLabelKeys":["a","a"],"labelSelector":{"matchLabels":{"a":"b"}}}]}}`,
	} {
		f.Add(seed, `{"spec":{"version":"15","storage":"10Gi"}}`)
	}
	f.Fuzz(func(t *testing.T, object, old string) {
		for _, operation := range []admissionv1.Operation{admissionv1.Create, admissionv1.Update} {
			defaulting := &defaulter{defaults: testDefaults}
			response := defaulting.Handle(t.Context(), request(operation, old, object))
			if !response.Allowed {
				t.Fatalf("defaulting refused: %+v", response)
			}
			(&validator{}).Handle(t.Context(), request(operation, old, object))
			if len(response.Patches) == 0 {
				continue
			}
			defaulted := patched(t, object, response)
			if again := defaulting.Handle(t.Context(), request(operation, old, defaulted)); len(again.Patches) > 0 {
				t.Fatalf("defaulted twice: %v after %s", again.Patches, defaulted)
			}
			before, err := decode([]byte(object))
			if err != nil {
				t.Fatal(err)
			}
			after, err := decode([]byte(defaulted))
			if err != nil {
				t.Fatal(err)
			}
			if len(rules.ValidateSpec(&before.Spec)) == 0 && before.Spec.Parameters == nil {
				if errs := rules.ValidateSpec(&after.Spec); len(errs) > 0 && operation == admissionv1.Create && before.Status.Version == "" {
					t.Fatalf("defaults are refused: %v", errs.ToAggregate())
				}
			}
		}
	})
}

// patched applies operations that only add.
func patched(t *testing.T, object string, response admission.Response) string {
	t.Helper()
	content := map[string]any{}
	if err := kjson.UnmarshalCaseSensitivePreserveInts([]byte(object), &content); err != nil {
		t.Fatal(err)
	}
	for _, p := range response.Patches {
		if p.Path == "/spec" {
			content["spec"] = map[string]any{}
			continue
		}
		spec, ok := content["spec"].(map[string]any)
		if name, below := strings.CutPrefix(p.Path, "/spec/"); ok && below && p.Operation == "add" {
			spec[name] = p.Value
			continue
		}
		t.Fatalf("patch %v does not fit %s", p, object)
	}
	text, err := json.Marshal(content)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}
