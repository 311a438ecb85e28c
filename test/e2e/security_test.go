package e2e

import (
	"fmt"
	"strings"

	authorizationv1 "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/acme/pg-operator/apis/naming"
	"github.com/acme/pg-operator/test/localcluster"
)

const enforceLabel = "pod-security.kubernetes.io/enforce"

// checkPodSecurity: where a namespace enforces "restricted", pods that exist are the proof.
func checkPodSecurity(d *database) {
	for _, name := range []string{d.namespace, localcluster.OperatorNamespace} {
		namespace := &corev1.Namespace{}
		if err := d.cluster.Client.Get(d.t.Context(), client.ObjectKey{Name: name}, namespace); err != nil {
			d.t.Fatal(err)
		}
		if got := namespace.Labels[enforceLabel]; got != "restricted" {
			d.t.Errorf("namespace %s enforces %q, want restricted", name, got)
		}
	}
	for ordinal := range int32(3) {
		for _, container := range d.pod(ordinal).Spec.Containers {
			security := container.SecurityContext
			if security == nil || security.ReadOnlyRootFilesystem == nil || !*security.ReadOnlyRootFilesystem {
				d.t.Errorf("container %s of %s can write to its root file system", container.Name, d.Instance(ordinal))
			}
		}
	}
}

// checkAgentRights asks the API server, as the agents' ServiceAccount, what it
// may do, and tries what it may not.
func checkAgentRights(d *database) {
	role := &rbacv1.Role{}
	d.get(d.Role(), role)
	for _, rule := range role.Rules {
		if len(rule.ResourceNames) == 0 {
			d.t.Errorf("a rule of the agents' Role names no objects: %v", rule)
		}
	}
	config := rest.CopyConfig(d.cluster.Config)
	config.Impersonate = rest.ImpersonationConfig{
		UserName: fmt.Sprintf("system:serviceaccount:%s:%s", d.namespace, d.ServiceAccount()),
		Groups:   []string{"system:serviceaccounts", "system:serviceaccounts:" + d.namespace, "system:authenticated"},
	}
	agent, err := client.New(config, client.Options{Scheme: localcluster.Scheme()})
	if err != nil {
		d.t.Fatal(err)
	}
	for _, test := range []struct {
		verb, group, resource, name string
		allowed                     bool
	}{
		{verb: "get", group: "coordination.k8s.io", resource: "leases", name: d.Lease(), allowed: true},
		{verb: "patch", group: "coordination.k8s.io", resource: "leases", name: d.Lease(), allowed: true},
		{verb: "patch", resource: "pods", name: d.Instance(0), allowed: true},
		{verb: "get", resource: "secrets", name: d.SecretSuperuser()},
		{verb: "get", resource: "secrets", name: d.SecretApp()},
		{verb: "list", resource: "secrets"},
		{verb: "get", group: "coordination.k8s.io", resource: "leases", name: "other"},
		{verb: "patch", group: "coordination.k8s.io", resource: "leases", name: "other"},
		{verb: "create", group: "coordination.k8s.io", resource: "leases"},
		{verb: "patch", resource: "pods", name: "other-0"},
		{verb: "delete", resource: "pods", name: d.Instance(1)},
		{verb: "list", resource: "pods"},
		{verb: "create", resource: "pods"},
		{verb: "patch", group: "discovery.k8s.io", resource: "endpointslices", name: "other-rw"},
		{verb: "patch", group: "apps", resource: "statefulsets", name: d.StatefulSet()},
		{verb: "patch", group: "db.example.com", resource: "postgresclusters", name: string(d.Cluster)},
	} {
		review := &authorizationv1.SelfSubjectAccessReview{Spec: authorizationv1.SelfSubjectAccessReviewSpec{
			ResourceAttributes: &authorizationv1.ResourceAttributes{
				Namespace: d.namespace, Verb: test.verb, Group: test.group, Resource: test.resource, Name: test.name,
			},
		}}
		if err = agent.Create(d.t.Context(), review); err != nil {
			d.t.Fatal(err)
		}
		if review.Status.Allowed != test.allowed {
			d.t.Errorf("agents may %s %s %q: %t, want %t", test.verb, test.resource, test.name, review.Status.Allowed, test.allowed)
		}
	}
	err = agent.Get(d.t.Context(), d.key(d.SecretSuperuser()), &corev1.Secret{})
	if err == nil || !strings.Contains(err.Error(), "forbidden") {
		d.t.Errorf("an agent reads the superuser's Secret: %v", err)
	}
	env := ""
	for _, container := range d.pod(0).Spec.Containers {
		if container.Name == naming.ContainerPostgres {
			env = fmt.Sprint(container.Env, container.Args, container.Command)
		}
	}
	if password := d.credentials()["password"]; strings.Contains(env, password) {
		d.t.Error("the password stands in the container's environment or arguments")
	}
}
