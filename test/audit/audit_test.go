package audit_test

import (
	"strings"
	"testing"

	authenticationv1 "k8s.io/api/authentication/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	auditv1 "k8s.io/apiserver/pkg/apis/audit/v1"

	"github.com/acme/pg-operator/test/audit"
)

// event is a request written as "verb group/resource/subresource name query code"; a name may follow a namespace.
func event(user, agent, text string) *auditv1.Event {
	words := strings.Fields(text)
	parts := strings.Split(words[1], "/")
	e := &auditv1.Event{
		Stage: auditv1.StageResponseComplete, Verb: words[0], UserAgent: agent, RequestURI: "/x?" + words[3],
		User:             authenticationv1.UserInfo{Username: "admin"},
		ImpersonatedUser: &authenticationv1.UserInfo{Username: user},
		ObjectRef: &auditv1.ObjectReference{
			APIGroup: parts[0], Resource: parts[1], Namespace: "shop", Name: strings.Trim(words[2], "-"),
		},
		ResponseStatus: &metav1.Status{Code: 200},
	}
	if len(parts) > 2 {
		e.ObjectRef.Subresource = parts[2]
	}
	if namespace, name, found := strings.Cut(words[2], "/"); found {
		e.ObjectRef.Namespace, e.ObjectRef.Name = namespace, name
	}
	if len(words) > 4 {
		e.ResponseStatus.Code = 409
	}
	return e
}

// judged says what is wrong with the last of some requests.
func judged(user, agent string, requests ...string) string {
	j := audit.New()
	for _, text := range requests {
		j.Add(event(user, agent, text))
	}
	if j.Operator+j.Agents != len(requests) {
		return "not all requests were judged"
	}
	if err := j.Err(); err != nil {
		return err.Error()
	}
	return ""
}

func TestOperator(t *testing.T) {
	const ours = "fieldManager=pg-operator"
	tests := map[string]struct {
		requests []string
		want     string
	}{
		"apply":                    {[]string{"patch apps/statefulsets orders " + ours}, ""},
		"force after a conflict":   {[]string{"patch /services orders " + ours + " 409", "patch /services orders force=true&" + ours}, ""},
		"force at once":            {[]string{"patch /services orders force=true&" + ours}, "by force without"},
		"force of another object":  {[]string{"patch /services orders " + ours + " 409", "patch /services other force=true&" + ours}, "by force without"},
		"force twice":              {[]string{"patch /services orders " + ours + " 409", "patch /services orders force=true&" + ours, "patch /services orders force=true&" + ours}, "by force without"},
		"status":                   {[]string{"patch db.example.com/postgresclusters/status orders force=true&" + ours}, ""},
		"spec":                     {[]string{"patch db.example.com/postgresclusters orders " + ours}, "no table"},
		"finalizers":               {[]string{"update db.example.com/postgresclusters orders " + ours}, "no table"},
		"another manager":          {[]string{"patch apps/statefulsets orders fieldManager=manager"}, "wrong name"},
		"update":                   {[]string{"update apps/statefulsets orders " + ours}, "no table"},
		"update of the Lease":      {[]string{"update coordination.k8s.io/leases orders " + ours}, "no table"},
		"scale":                    {[]string{"patch apps/statefulsets/scale orders " + ours}, "no table"},
		"create":                   {[]string{"create /secrets - " + ours, "create coordination.k8s.io/leases - " + ours}, ""},
		"create what is applied":   {[]string{"create /services - " + ours}, "must apply"},
		"create a pod":             {[]string{"create /pods - " + ours}, "must apply"},
		"ask about a pod":          {[]string{"create /pods - dryRun=All"}, ""},
		"delete":                   {[]string{"delete /pods orders-0 x", "delete apps/statefulsets orders x"}, ""},
		"delete a volume":          {[]string{"delete /persistentvolumeclaims data-orders-0 x"}, "deletes what it must not"},
		"delete a Secret":          {[]string{"delete /secrets orders-app x"}, "deletes what it must not"},
		"delete a cluster":         {[]string{"delete db.example.com/postgresclusters orders x"}, "deletes what it must not"},
		"delete many":              {[]string{"deletecollection /pods - " + ours}, "no table"},
		"look at its Secret":       {[]string{"get /secrets orders-app x", "get /secrets orders-server x"}, ""},
		"look at another's Secret": {[]string{"get /secrets payroll x"}, "more Secrets"},
		"list Secrets":             {[]string{"list /secrets - x"}, "more Secrets"},
		"watch Secrets":            {[]string{"watch /secrets - x"}, "more Secrets"},
		"keep its authority": {[]string{
			"watch /secrets pg-operator-system/pg-operator-webhook-ca x",
			"create /secrets pg-operator-system/pg-operator-webhook-ca fieldManager=pg-operator-webhook-ca",
			"patch admissionregistration.k8s.io/validatingwebhookconfigurations pg-operator force=true&fieldManager=pg-operator-webhook-ca",
		}, ""},
		"delete its authority":       {[]string{"delete /secrets pg-operator-system/pg-operator-webhook-ca x"}, "unknown way"},
		"an authority elsewhere":     {[]string{"watch /secrets pg-operator-webhook-ca x"}, "more Secrets"},
		"webhooks as a child":        {[]string{"patch admissionregistration.k8s.io/validatingwebhookconfigurations pg-operator " + ours}, "no table"},
		"events":                     {[]string{"create events.k8s.io/events - x", "patch events.k8s.io/events e x"}, ""},
		"watch what is not a secret": {[]string{"watch apps/statefulsets - x"}, ""},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			got := judged("system:serviceaccount:pg-operator-system:pg-operator", "pg-operator/v0", test.requests...)
			if (test.want == "") != (got == "") || !strings.Contains(got, test.want) {
				t.Errorf("judged %q, want %q", got, test.want)
			}
		})
	}
}

func TestAgent(t *testing.T) {
	const ours = "fieldManager=pg-operator-instance"
	tests := map[string]struct{ request, want string }{
		"its Lease":            {"patch coordination.k8s.io/leases orders " + ours, ""},
		"another Lease":        {"patch coordination.k8s.io/leases other " + ours, "not the agent's"},
		"update its Lease":     {"update coordination.k8s.io/leases orders " + ours, "no table"},
		"its pod":              {"patch /pods orders-1 " + ours, ""},
		"another pod":          {"patch /pods orders-0 force=true&" + ours, "not the agent's"},
		"another pod's label":  {"patch /pods orders-0 " + ours, ""},
		"a stranger's label":   {"patch /pods other-0 " + ours, "not the agent's"},
		"look at another pod":  {"get /pods orders-0 x", ""},
		"look at a stranger":   {"get /pods other-0 x", "not the agent's"},
		"update its pod":       {"update /pods orders-1 " + ours, "no table"},
		"its status":           {"patch /pods/status orders-1 " + ours, "not the agent's"},
		"the slice":            {"patch discovery.k8s.io/endpointslices orders-rw " + ours, ""},
		"as somebody else":     {"patch discovery.k8s.io/endpointslices orders-rw fieldManager=pg-operator", "wrong name"},
		"another slice":        {"patch discovery.k8s.io/endpointslices orders-ro " + ours, "not the agent's"},
		"its configuration":    {"watch /configmaps orders-instance x", ""},
		"write configuration":  {"patch /configmaps orders-instance " + ours, "not the agent's"},
		"all configuration":    {"list /configmaps - x", "not the agent's"},
		"a Secret":             {"get /secrets orders-app x", "not the agent's"},
		"the cluster":          {"patch db.example.com/postgresclusters/status orders " + ours, "not the agent's"},
		"delete its own Lease": {"delete coordination.k8s.io/leases orders " + ours, "no table"},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			got := judged("system:serviceaccount:shop:orders", "pg-operator-instance/orders-1", test.request)
			if (test.want == "") != (got == "") || !strings.Contains(got, test.want) {
				t.Errorf("judged %q, want %q", got, test.want)
			}
		})
	}
	if got := judged("system:serviceaccount:other:orders", "pg-operator-instance/orders-1", "get /pods orders-1 x"); got == "" {
		t.Error("an account of another namespace is let pass")
	}
}
