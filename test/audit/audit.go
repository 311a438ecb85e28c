// Package audit judges what the operator and the agents did, by the API
// server's audit log: every write must stand in the table of field managers,
// and nothing may be asked that could tell of other people's Secrets.
package audit

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"maps"
	"net/url"
	"os"
	"slices"
	"strings"
	"time"

	auditv1 "k8s.io/apiserver/pkg/apis/audit/v1"

	"github.com/acme/pg-operator/apis/naming"
)

const (
	operatorNamespace = "pg-operator-system"
	operatorUser      = "system:serviceaccount:" + operatorNamespace + ":pg-operator"
	// election is the name of the Lease by which operators elect their leader.
	election = "pg-operator"
)

// Judge takes the events of one audit log, in its order.
type Judge struct {
	// Operator and Agents count the judged requests of each.
	Operator, Agents int

	problems map[string]int
	// refused are the objects of which the operator's last unforced apply met a conflict.
	refused map[string]bool
}

// New returns a Judge that has seen nothing.
func New() *Judge { return &Judge{problems: map[string]int{}, refused: map[string]bool{}} }

// Read judges an audit log from a moment on.
func (j *Judge) Read(log io.Reader, since time.Time) error {
	lines := bufio.NewScanner(log)
	lines.Buffer(nil, 4<<20)
	for lines.Scan() {
		if !bytes.Contains(lines.Bytes(), []byte("pg-operator")) {
			continue // Of somebody else.
		}
		event := &auditv1.Event{}
		if err := json.Unmarshal(lines.Bytes(), event); err != nil {
			continue // The last line while it is being written.
		}
		if event.RequestReceivedTimestamp.Time.Before(since) {
			continue
		}
		j.Add(event)
	}
	return lines.Err()
}

// Add judges one event; those of others than the operator and the agents are left out.
func (j *Judge) Add(event *auditv1.Event) {
	if event.ObjectRef == nil || event.Stage != auditv1.StageResponseComplete {
		return
	}
	user := event.User.Username
	if event.ImpersonatedUser != nil {
		user = event.ImpersonatedUser.Username
	}
	r := newRequest(event, user)
	var problem string
	switch pod, agent := strings.CutPrefix(event.UserAgent, naming.FieldManagerInstance+"/"); {
	case user == operatorUser:
		j.Operator++
		problem = j.operator(r)
	case agent:
		j.Agents++
		problem = judgeAgent(r, pod)
	}
	if problem != "" {
		j.problems[fmt.Sprintf("%s: %s", r, problem)]++
	}
}

// Err lists what was done and is not allowed; nil when nothing was.
func (j *Judge) Err() error {
	var errs []error
	for _, problem := range slices.Sorted(maps.Keys(j.problems)) {
		errs = append(errs, fmt.Errorf("%s (%d times)", problem, j.problems[problem]))
	}
	return errors.Join(errs...)
}

// request is what an event tells of a request.
type request struct {
	verb, resource, namespace, name string // resource with its group and subresource, such as postgresclusters.db.example.com/status
	user                            string
	manager                         string
	force, dryRun                   bool
	conflict                        bool
}

func newRequest(event *auditv1.Event, user string) request {
	ref := event.ObjectRef
	r := request{verb: event.Verb, resource: ref.Resource, namespace: ref.Namespace, name: ref.Name, user: user}
	if ref.APIGroup != "" {
		r.resource += "." + ref.APIGroup
	}
	if ref.Subresource != "" {
		r.resource += "/" + ref.Subresource
	}
	if uri, err := url.ParseRequestURI(event.RequestURI); err == nil {
		query := uri.Query()
		r.manager, r.force, r.dryRun = query.Get("fieldManager"), query.Get("force") == "true", query.Has("dryRun")
	}
	r.conflict = event.ResponseStatus != nil && event.ResponseStatus.Code == 409
	return r
}

func (r request) String() string {
	text := fmt.Sprintf("%s %s %s by %s", r.verb, r.resource, r.name, r.user)
	if r.manager != "" {
		text += fmt.Sprintf(" as %q", r.manager)
	}
	if r.force {
		text += " by force"
	}
	return text
}

func (r request) reads() bool { return r.verb == "get" || r.verb == "list" || r.verb == "watch" }

// Subject is whose requests a log must have for its verdict to count.
type Subject func(*Judge) int

// The operator, and the agents.
var (
	Operator Subject = func(j *Judge) int { return j.Operator }
	Agents   Subject = func(j *Judge) int { return j.Agents }
)

// Check judges an audit log from a moment on. When all tests of a package ran, requests of all subjects must be in it.
func Check(path string, since time.Time, subjects ...Subject) error {
	file, err := os.Open(path)
	if err != nil {
		return err
	}
	defer file.Close()
	j := New()
	if err := j.Read(file, since); err != nil {
		return fmt.Errorf("audit log: %w", err)
	}
	if selected := flag.Lookup("test.run"); selected == nil || selected.Value.String() == "" {
		for _, subject := range subjects {
			if subject(j) == 0 {
				return errors.New("audit log: nothing was judged of a subject of these tests")
			}
		}
	}
	if err := j.Err(); err != nil {
		return fmt.Errorf("audit log, %d requests of the operator and %d of agents: %w", j.Operator, j.Agents, err)
	}
	return nil
}
