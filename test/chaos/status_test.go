package chaos

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/acme/pg-operator/apis/naming"
	"github.com/acme/pg-operator/apis/v1alpha1"
)

// followStatus looks at the cluster's status until the returned function asks what it said: the failover that happened
// meanwhile, nil if none did, and its cause, or else the reasons why the cluster was not well.
func (r *trial) followStatus() (told func() (failover *v1alpha1.FailoverRecord, reason string)) {
	ctx, cancel := context.WithCancel(r.t.Context())
	r.t.Cleanup(cancel)
	done := make(chan struct{})
	before, _ := r.status(ctx)
	seen := map[string]bool{}
	go func() {
		defer close(done)
		for ctx.Err() == nil {
			if status, err := r.status(ctx); err == nil {
				collect(seen, status)
			}
			wait(ctx, 300*time.Millisecond)
		}
	}()
	return func() (*v1alpha1.FailoverRecord, string) {
		cancel()
		<-done
		after, err := r.status(r.t.Context())
		if err == nil && after.LastFailover != nil && !reflect.DeepEqual(before.LastFailover, after.LastFailover) {
			return after.LastFailover, after.LastFailover.Cause
		}
		return nil, strings.Join(slices.Sorted(maps.Keys(seen)), ", ")
	}
}

func (r *trial) status(ctx context.Context) (v1alpha1.PostgresClusterStatus, error) {
	object := &v1alpha1.PostgresCluster{}
	err := r.bed.cluster.Client.Get(ctx, r.bed.key(string(r.bed.Cluster)), object)
	return object.Status, err
}

// collect notes why a cluster is not ready.
func collect(seen map[string]bool, status v1alpha1.PostgresClusterStatus) {
	for _, condition := range status.Conditions {
		bad := metav1.ConditionTrue
		if condition.Type == v1alpha1.ConditionReady {
			bad = metav1.ConditionFalse
		}
		if condition.Status == bad && condition.Type != v1alpha1.ConditionProgressing {
			seen[condition.Reason] = true
		}
	}
}

// telling are what agents log of the steps of a failover.
var telling = regexp.MustCompile(`PostgreSQL ended unexpectedly|Gives the Lease away|Hands over|Lease changed|Was (not )?elected|` +
	`let this instance go on|Became the primary|Led the -rw Service here|Fencing PostgreSQL|licence to take writes|sentinel ended|Diagnosed why|State changed|Answered a candidate|Failed to|Task failed`)

// short leaves out of a line of an agent's log what says nothing here.
func short(line string) string {
	var said map[string]any
	if json.Unmarshal([]byte(line), &said) != nil {
		return line
	}
	text := fmt.Sprint(said["msg"])
	for _, key := range []string{"level", "ts", "caller", "msg", "systemID"} {
		delete(said, key)
	}
	for _, key := range slices.Sorted(maps.Keys(said)) {
		text += fmt.Sprintf(" %s=%v", key, said[key])
	}
	return text
}

func (r *trial) logSteps(ctx context.Context, since time.Time) {
	for _, text := range r.bed.stepsOf(ctx, since) {
		r.t.Log(text)
	}
}

// stepsOf are the lines of the agents' logs that tell what they did after a moment, in the order of their times, which
// are those since then.
func (b *bed) stepsOf(ctx context.Context, since time.Time) []string {
	type step struct {
		at   time.Duration
		text string
	}
	var steps []step
	for _, instance := range b.names() {
		text, err := b.cluster.Kubectl(ctx, "logs", "-n", b.namespace, instance, "-c", naming.ContainerPostgres,
			"--timestamps", "--since-time", since.UTC().Format(time.RFC3339))
		if err != nil {
			continue // its container is gone, with what it logged
		}
		for line := range strings.Lines(text) {
			stamp, said, _ := strings.Cut(strings.TrimSpace(line), " ")
			at, err := time.Parse(time.RFC3339Nano, stamp)
			if err == nil && at.After(since) && telling.MatchString(said) {
				steps = append(steps, step{at.Sub(since), instance + ": " + short(said)})
			}
		}
	}
	slices.SortFunc(steps, func(a, b step) int { return cmp.Compare(a.at, b.at) })
	var lines []string
	for _, s := range steps {
		lines = append(lines, fmt.Sprintf("%.3f %s", s.at.Seconds(), s.text))
	}
	return lines[:min(len(lines), 80)]
}
