package audit

import (
	"slices"
	"strings"

	"github.com/acme/pg-operator/apis/naming"
	"github.com/acme/pg-operator/certs"
)

const (
	claims = "persistentvolumeclaims"
	pods   = "pods"
	leases = "leases.coordination.k8s.io"
	slice  = "endpointslices.discovery.k8s.io"
)

// applied are the children that the operator applies; it deletes them too, but for volumes.
var applied = []string{
	"serviceaccounts", "configmaps", "services", claims, slice,
	"roles.rbac.authorization.k8s.io", "rolebindings.rbac.authorization.k8s.io",
	"poddisruptionbudgets.policy", "networkpolicies.networking.k8s.io",
	"issuers.cert-manager.io", "certificates.cert-manager.io", "statefulsets.apps",
}

// webhooks are the configurations in which the operator's own authority is written, with --webhook-certs=self.
var webhooks = []string{
	"mutatingwebhookconfigurations.admissionregistration.k8s.io", "validatingwebhookconfigurations.admissionregistration.k8s.io",
}

// created are the children that the operator makes once and never writes again.
var created = []string{"secrets", leases}

// operator says what is wrong with a request of the operator.
func (j *Judge) operator(r request) string {
	switch {
	case r.namespace == operatorNamespace && r.resource == "secrets" && r.name == certs.SecretAuthority:
		// With --webhook-certs=self. It is watched too, and it is not a child: the operator's alone.
		if !r.reads() && (r.manager != naming.FieldManagerAuthority || r.verb != "create" && r.verb != "update") {
			return "writes the webhooks' authority in an unknown way"
		}
		return ""
	case r.verb == "patch" && slices.Contains(webhooks, r.resource) && r.manager == naming.FieldManagerAuthority:
		return "" // The authority that the API server trusts; what is injected otherwise is taken over by force.
	case r.reads():
		if strings.HasPrefix(r.resource, "secrets") && (r.verb != "get" || !ourSecret(r.name)) {
			return "reads more Secrets than its own, one by one"
		}
		return ""
	case r.resource == "events.events.k8s.io", r.resource == "events",
		strings.HasSuffix(r.resource, "reviews.authentication.k8s.io"), strings.HasSuffix(r.resource, "reviews.authorization.k8s.io"):
		return ""
	case r.namespace == operatorNamespace && r.resource == leases && (r.name == election || r.name == ""):
		return "" // The election of a leader.
	case r.dryRun && (r.verb == "create" || r.verb == "patch") && (r.resource == pods || slices.Contains(applied, r.resource)):
		return "" // A question.
	case r.verb == "delete":
		if r.resource != pods && (r.resource == claims || !slices.Contains(applied, r.resource)) {
			return "deletes what it must not"
		}
		return ""
	case r.manager != naming.FieldManager:
		return "writes under a wrong name"
	case r.verb == "create":
		if !slices.Contains(created, r.resource) {
			return "creates what it must apply, or not make at all"
		}
		return ""
	case r.verb == "patch" && r.resource == "postgresclusters.db.example.com/status":
		return ""
	case r.verb == "patch" && slices.Contains(applied, r.resource):
		return j.apply(r)
	default:
		return "stands in no table"
	}
}

// apply lets force follow a conflict only.
func (j *Judge) apply(r request) string {
	key := r.resource + " " + r.namespace + "/" + r.name
	met := j.refused[key]
	j.refused[key] = r.conflict && !r.force
	if r.force && !met {
		return "takes fields by force without having met a conflict"
	}
	return ""
}

// ourSecret says that a Secret has a name that the operator gives: to Secrets of its own, and to those of certificates,
// which must not be somebody else's.
func ourSecret(name string) bool {
	cluster := naming.Cluster("")
	return slices.ContainsFunc([]string{
		cluster.SecretApp(), cluster.SecretSuperuser(),
		cluster.CertificateCA(), cluster.CertificateServer(), cluster.CertificateReplica(),
	}, func(suffix string) bool { return strings.HasSuffix(name, suffix) })
}

// sibling tells whether a pod is of a cluster.
func sibling(cluster naming.Cluster, pod string) bool {
	_, ok := cluster.Ordinal(pod)
	return ok
}

// judgeAgent says what is wrong with a request of an agent that says it runs in a pod.
func judgeAgent(r request, pod string) string {
	parts := strings.Split(r.user, ":")
	if len(parts) != 4 || parts[1] != "serviceaccount" || parts[2] != r.namespace {
		return "is no request of an agent's account in its own namespace"
	}
	cluster := naming.Cluster(parts[3])
	if _, ok := cluster.Ordinal(pod); !ok {
		return "comes from a pod " + pod + " that is not of the account's cluster"
	}
	writes := map[string]string{leases: cluster.Lease(), slice: cluster.EndpointSlice(), pods: pod}
	switch name, known := writes[r.resource]; {
	case r.resource == pods && r.verb == "get" && sibling(cluster, r.name):
		return ""
	case r.resource == pods && r.verb == "patch" && sibling(cluster, r.name) && !r.force && r.manager == naming.FieldManagerInstance:
		return "" // A new primary takes the label of the former one off. What is applied, by force, is the agent's own pod.
	case r.resource == "configmaps" && r.reads() && r.name == cluster.ConfigMap():
		return ""
	case !known || r.name != name:
		return "is about an object that is not the agent's"
	case r.verb == "get":
		return ""
	case r.verb != "patch":
		return "stands in no table"
	case r.manager != naming.FieldManagerInstance:
		return "writes under a wrong name"
	}
	return ""
}
