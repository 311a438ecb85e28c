// Package config checks the manifests of config/ with the real kubectl and the
// real API server.
package config

import (
	"errors"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	cmv1 "github.com/cert-manager/cert-manager/pkg/apis/certmanager/v1"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/yaml"

	"github.com/acme/pg-operator/apis/naming"
	"github.com/acme/pg-operator/certs"
	"github.com/acme/pg-operator/reconciler/manager"
	"github.com/acme/pg-operator/test/controlplane"
)

const (
	root         = "../.."
	namespace    = "pg-operator-system"
	injectCAFrom = "cert-manager.io/inject-ca-from"
	shutdown     = 30 * time.Second // what the manager takes to stop, at most
)

var plane *controlplane.ControlPlane

func TestMain(m *testing.M) { os.Exit(controlplane.Main(m, &plane, controlplane.Options{})) }

type objects []unstructured.Unstructured

func build(t *testing.T, dir string) objects {
	t.Helper()
	decoder := yaml.NewYAMLOrJSONDecoder(strings.NewReader(plane.Kubectl(t, "kustomize", dir)), 4096)
	var all objects
	for {
		var object unstructured.Unstructured
		err := decoder.Decode(&object.Object)
		if errors.Is(err, io.EOF) {
			return all
		}
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, object)
	}
}

// one converts the object of a kind and name.
func one[T any](t *testing.T, all objects, kind, name string) *T {
	t.Helper()
	for i := range all {
		if all[i].GetKind() == kind && all[i].GetName() == name {
			typed := new(T)
			if err := runtime.DefaultUnstructuredConverter.FromUnstructuredWithValidation(all[i].Object, typed, true); err != nil {
				t.Fatalf("%s %s: %v", kind, name, err)
			}
			return typed
		}
	}
	t.Fatalf("no %s %s", kind, name)
	return nil
}

func defaults(t *testing.T) objects { return build(t, filepath.Join(root, "config", "default")) }

func TestCertificates(t *testing.T) {
	all := defaults(t)
	one[cmv1.Issuer](t, all, "Issuer", certs.IssuerSelfSigned)
	issuer := one[cmv1.Issuer](t, all, "Issuer", certs.IssuerCA)
	ca := one[cmv1.Certificate](t, all, "Certificate", certs.CertificateCA)
	leaf := one[cmv1.Certificate](t, all, "Certificate", certs.CertificateServing)

	if !ca.Spec.IsCA || ca.Spec.SecretName != certs.SecretCA || ca.Spec.IssuerRef.Name != certs.IssuerSelfSigned {
		t.Errorf("the CA is %+v", ca.Spec)
	}
	if issuer.Spec.CA == nil || issuer.Spec.CA.SecretName != ca.Spec.SecretName || leaf.Spec.IssuerRef.Name != issuer.Name {
		t.Errorf("the leaf is not signed by the CA: issuer %+v, leaf's issuer %+v", issuer.Spec, leaf.Spec.IssuerRef)
	}
	if ca.Spec.RenewBefore.Duration <= leaf.Spec.Duration.Duration {
		t.Errorf("the CA is renewed %s before its end, but a leaf lives %s: it could outlive its CA",
			ca.Spec.RenewBefore.Duration, leaf.Spec.Duration.Duration)
	}
	for _, service := range []string{certs.ServiceWebhook, certs.ServiceMetrics} {
		if host := naming.ServiceHost(service, namespace); !slices.Contains(leaf.Spec.DNSNames, host) {
			t.Errorf("the leaf names %v, not %s", leaf.Spec.DNSNames, host)
		}
		one[corev1.Service](t, all, "Service", service)
	}
	if leaf.Spec.SecretName != certs.SecretServing {
		t.Errorf("the leaf is kept in %s, not %s", leaf.Spec.SecretName, certs.SecretServing)
	}
}

func TestWebhookConfigurations(t *testing.T) {
	all := defaults(t)
	check := func(t *testing.T, annotations map[string]string, name string, config admissionregistrationv1.WebhookClientConfig,
		effects *admissionregistrationv1.SideEffectClass, timeout *int32,
	) {
		t.Helper()
		if config.CABundle != nil {
			t.Errorf("%s: has a caBundle: applying it would take the injected one away", name)
		}
		if service := config.Service; service == nil || service.Name != certs.ServiceWebhook || service.Namespace != namespace {
			t.Errorf("%s: is served by %+v", name, service)
		}
		if effects == nil || *effects != admissionregistrationv1.SideEffectClassNone {
			t.Errorf("%s: has side effects, so dry runs fail", name)
		}
		if timeout == nil || *timeout > 5 {
			t.Errorf("%s: times out after %v s", name, timeout)
		}
		if got, want := annotations[injectCAFrom], namespace+"/"+certs.CertificateServing; got != want {
			t.Errorf("%s: CA is injected from %q, want %q", name, got, want)
		}
	}
	mutating := one[admissionregistrationv1.MutatingWebhookConfiguration](t, all, "MutatingWebhookConfiguration", "pg-operator")
	for i := range mutating.Webhooks {
		hook := &mutating.Webhooks[i]
		check(t, mutating.Annotations, hook.Name, hook.ClientConfig, hook.SideEffects, hook.TimeoutSeconds)
	}
	validating := one[admissionregistrationv1.ValidatingWebhookConfiguration](t, all, "ValidatingWebhookConfiguration", "pg-operator")
	for i := range validating.Webhooks {
		hook := &validating.Webhooks[i]
		check(t, validating.Annotations, hook.Name, hook.ClientConfig, hook.SideEffects, hook.TimeoutSeconds)
	}
	if len(mutating.Webhooks) == 0 || len(validating.Webhooks) == 0 {
		t.Error("no webhooks")
	}
}

// The policy and the webhook protect the same clusters; what they say is compared where they run.
func TestPolicyAndWebhookProtectTheSame(t *testing.T) {
	all := defaults(t)
	const name = "protect.postgresclusters.db.example.com"
	policy := one[admissionregistrationv1.ValidatingAdmissionPolicy](t, all, "ValidatingAdmissionPolicy", name)
	validating := one[admissionregistrationv1.ValidatingWebhookConfiguration](t, all, "ValidatingWebhookConfiguration", "pg-operator")
	hook := slices.IndexFunc(validating.Webhooks, func(w admissionregistrationv1.ValidatingWebhook) bool { return w.Name == name })
	if hook < 0 {
		t.Fatalf("no webhook %s", name)
	}
	if got, want := policy.Spec.MatchConditions, validating.Webhooks[hook].MatchConditions; !slices.Equal(got, want) {
		t.Errorf("the policy is for %v, the webhook for %v", got, want)
	}
}

// TestPoliciesDeny: each policy is in force, also where it cannot be evaluated, and is shipped by itself too.
func TestPoliciesDeny(t *testing.T) {
	alone := build(t, filepath.Join(root, "config", "policy"))
	if len(alone) != 10 {
		t.Errorf("config/policy has %d objects", len(alone))
	}
	all := defaults(t)
	for _, name := range []string{
		"protect.postgresclusters.db.example.com", "primary.endpointslices.db.example.com",
		"addresses.endpointslices.db.example.com", "others.endpointslices.db.example.com",
		"agents.pods.db.example.com",
	} {
		policy := one[admissionregistrationv1.ValidatingAdmissionPolicy](t, all, "ValidatingAdmissionPolicy", name)
		binding := one[admissionregistrationv1.ValidatingAdmissionPolicyBinding](t, all, "ValidatingAdmissionPolicyBinding", name)
		if binding.Spec.PolicyName != name || *policy.Spec.FailurePolicy != admissionregistrationv1.Fail ||
			!slices.Equal(binding.Spec.ValidationActions, []admissionregistrationv1.ValidationAction{admissionregistrationv1.Deny}) {
			t.Errorf("%s is %+v, its binding %+v", name, policy.Spec, binding.Spec)
		}
		if (policy.Spec.ParamKind == nil) != (binding.Spec.ParamRef == nil) {
			t.Errorf("%s and its binding do not agree about parameters", name)
		}
	}
}

func TestDeployment(t *testing.T) {
	all := defaults(t)
	deployment := one[appsv1.Deployment](t, all, "Deployment", "pg-operator")
	pod := &deployment.Spec.Template.Spec
	container := &pod.Containers[0]

	if *deployment.Spec.Replicas < 2 || deployment.Spec.Strategy.RollingUpdate.MaxUnavailable.IntValue() != 0 {
		t.Error("a rollout can leave no webhook")
	}
	command := manager.NewCommand()
	if err := command.ParseFlags(container.Args[1:]); err != nil || container.Args[0] != command.Name() {
		t.Errorf("the manager does not take %v: %v", container.Args, err)
	}
	delay, err := command.Flags().GetDuration("shutdown-delay")
	if err != nil || delay < 5*time.Second {
		t.Errorf("webhooks go on for %s (%v) after SIGTERM: too short for every kube-proxy to hear of it", delay, err)
	}
	if grace := time.Duration(*pod.TerminationGracePeriodSeconds) * time.Second; grace <= delay+shutdown {
		t.Errorf("the grace period %s does not hold --shutdown-delay=%s and the manager's %s", grace, delay, shutdown)
	}
	certDir := command.Flag("webhook-cert-dir").Value.String()
	mount := slices.IndexFunc(container.VolumeMounts, func(m corev1.VolumeMount) bool { return m.MountPath == certDir })
	if mount < 0 {
		t.Fatalf("nothing is mounted at --webhook-cert-dir=%s", certDir)
	}
	for i := range pod.Volumes {
		if volume := &pod.Volumes[i]; volume.Name == container.VolumeMounts[mount].Name {
			if volume.Secret.SecretName != certs.SecretServing || volume.Secret.Optional != nil && *volume.Secret.Optional {
				t.Errorf("%s is mounted from %+v", certDir, volume.Secret)
			}
		}
	}
	if service := command.Flag("webhook-service-name").Value.String(); service != certs.ServiceWebhook {
		t.Errorf("--webhook-service-name is %q by default", service)
	}
}

// Another namespace is one line, another image an overlay.
func TestOverlays(t *testing.T) {
	copied := filepath.Join(t.TempDir(), "config")
	if err := os.CopyFS(copied, os.DirFS(filepath.Join(root, "config"))); err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(copied, "default", "kustomization.yaml")
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	text = regexp.MustCompile(`(?m)^namespace: .*$`).ReplaceAll(text, []byte("namespace: elsewhere"))
	if err := os.WriteFile(file, text, 0o600); err != nil {
		t.Fatal(err)
	}
	overlay := filepath.Join(copied, "overlay")
	if err := os.Mkdir(overlay, 0o700); err != nil {
		t.Fatal(err)
	}
	const kustomization = "resources: [../default]\nimages: [{name: pg-operator, newName: registry.example.com/pg, newTag: v9}]\n"
	if err := os.WriteFile(filepath.Join(overlay, "kustomization.yaml"), []byte(kustomization), 0o600); err != nil {
		t.Fatal(err)
	}
	all := build(t, overlay)
	for i := range all {
		encoded, err := all[i].MarshalJSON()
		if err != nil {
			t.Fatal(err)
		}
		if strings.Contains(string(encoded), namespace) {
			t.Errorf("%s %s still speaks of %s:\n%s", all[i].GetKind(), all[i].GetName(), namespace, encoded)
		}
	}
	deployment := one[appsv1.Deployment](t, all, "Deployment", "pg-operator")
	if got := deployment.Spec.Template.Spec.Containers[0].Image; got != "registry.example.com/pg:v9" {
		t.Errorf("the image is %s", got)
	}
}

// with builds config/default with components.
func with(t *testing.T, components ...string) objects {
	t.Helper()
	overlay := t.TempDir()
	config, err := filepath.Abs(filepath.Join(root, "config"))
	if err != nil {
		t.Fatal(err)
	}
	relative, err := filepath.Rel(overlay, config)
	if err != nil {
		t.Fatal(err)
	}
	text := "resources: [" + relative + "/default]\ncomponents:\n"
	for _, name := range components {
		text += "  - " + relative + "/" + name + "\n"
	}
	if err := os.WriteFile(filepath.Join(overlay, "kustomization.yaml"), []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return build(t, overlay)
}

func TestPrometheusComponentBuilds(t *testing.T) {
	all := with(t, "prometheus")
	for _, kind := range []string{"ServiceMonitor", "PrometheusRule"} {
		if !slices.ContainsFunc(all, func(o unstructured.Unstructured) bool { return o.GetKind() == kind }) {
			t.Errorf("no %s", kind)
		}
	}
}

// Without cert-manager's certificate nothing of cert-manager's is left, and the operator gets the rights for its own.
func TestSelfCerts(t *testing.T) {
	all := with(t, "prometheus", "self-certs")
	for i := range all {
		text, err := all[i].MarshalJSON()
		if err != nil {
			t.Fatal(err)
		}
		kind := all[i].GetKind()
		if strings.HasPrefix(all[i].GetAPIVersion(), "cert-manager.io") || strings.Contains(string(text), injectCAFrom) ||
			strings.Contains(string(text), certs.SecretServing) {
			t.Errorf("%s %s needs cert-manager's certificate:\n%s", kind, all[i].GetName(), text)
		}
		if kind == "ServiceMonitor" && !strings.Contains(string(text), `"secret":{"key":"ca.crt","name":"`+certs.SecretAuthority+`"}`) {
			t.Errorf("Prometheus does not know the CA:\n%s", text)
		}
	}
	deployment := one[appsv1.Deployment](t, all, "Deployment", "pg-operator")
	pod := &deployment.Spec.Template.Spec
	command := manager.NewCommand()
	if err := command.ParseFlags(pod.Containers[0].Args[1:]); err != nil || command.Flag("webhook-certs").Value.String() != "self" {
		t.Errorf("the manager runs with %v (%v)", pod.Containers[0].Args, err)
	}
	if len(pod.Volumes)+len(pod.Containers[0].VolumeMounts) > 0 {
		t.Errorf("volumes are mounted: %+v", pod.Volumes)
	}

	role := one[rbacv1.Role](t, all, "Role", "pg-operator")
	cluster := one[rbacv1.ClusterRole](t, all, "ClusterRole", "pg-operator")
	for _, tc := range []struct {
		rules          []rbacv1.PolicyRule
		resource, name string
		verbs          []string
	}{
		{role.Rules, "secrets", "", []string{"create"}},
		{role.Rules, "secrets", certs.SecretAuthority, []string{"get", "list", "watch", "update"}},
		{cluster.Rules, "validatingwebhookconfigurations", certs.WebhookConfiguration, []string{"get", "list", "watch", "patch"}},
		{cluster.Rules, "mutatingwebhookconfigurations", certs.WebhookConfiguration, []string{"get", "list", "watch", "patch"}},
	} {
		var got []string
		for _, rule := range tc.rules {
			if !slices.Contains(rule.Resources, tc.resource) {
				continue
			}
			if name := strings.Join(rule.ResourceNames, " "); name == tc.name {
				got = append(got, rule.Verbs...)
			} else if name != "" && name != certs.SecretAuthority {
				t.Errorf("a right to %s %q", tc.resource, name)
			}
		}
		if !slices.Equal(got, tc.verbs) {
			t.Errorf("%s %q: %v, want %v", tc.resource, tc.name, got, tc.verbs)
		}
	}
}
