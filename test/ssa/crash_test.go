package ssa_test

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/rest"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/acme/pg-operator/apis/v1alpha1"
	"github.com/acme/pg-operator/test/controlplane"
	"github.com/acme/pg-operator/test/world"
)

var everyWrite = flag.Bool("every-write", false, "crash at every write, not at every fifth")

var errCrashed = errors.New("the operator has crashed")

// mortal is a client whose writes stop for ever at one of them: before it reaches the server, or after.
type mortal struct {
	client.Client
	left   *atomic.Int32
	before bool
	died   chan struct{}
}

func (m mortal) write(do func() error) error {
	switch left := m.left.Add(-1); {
	case left > 0:
		return do()
	case left < 0:
		return errCrashed
	}
	if !m.before {
		_ = do() // Nobody learns of its result.
	}
	close(m.died)
	return errCrashed
}

func (m mortal) Apply(ctx context.Context, obj runtime.ApplyConfiguration, opts ...client.ApplyOption) error {
	return m.write(func() error { return m.Client.Apply(ctx, obj, opts...) })
}

func (m mortal) Create(ctx context.Context, obj client.Object, opts ...client.CreateOption) error {
	return m.write(func() error { return m.Client.Create(ctx, obj, opts...) })
}

func (m mortal) Delete(ctx context.Context, obj client.Object, opts ...client.DeleteOption) error {
	return m.write(func() error { return m.Client.Delete(ctx, obj, opts...) })
}

func (m mortal) Status() client.SubResourceWriter { return mortalStatus{m.Client.Status(), m} }

type mortalStatus struct {
	client.SubResourceWriter
	m mortal
}

func (s mortalStatus) Apply(ctx context.Context, obj runtime.ApplyConfiguration, opts ...client.SubResourceApplyOption) error {
	return s.m.write(func() error { return s.SubResourceWriter.Apply(ctx, obj, opts...) })
}

// children are the kinds and names of what a cluster left behind, once it is Ready.
func children(t *testing.T, namespace string) string {
	t.Helper()
	names := slices.Sorted(maps.Keys(versions(t, t.Context(), namespace)))
	return strings.Join(names, "\n")
}

// TestCrashAtAnyWriteEndsInTheSameState creates a cluster and grows it, with an operator that crashes.
func TestCrashAtAnyWriteEndsInTheSameState(t *testing.T) {
	flow := func(t *testing.T, crashed func(namespace string)) string {
		namespace := plane.Namespace(t)
		world.Start(t, plane, namespace)
		c := cluster(namespace, "orders", 1)
		create(t, c)
		crashed(namespace)
		startOperator(t, namespace)
		awaitReady(t, c)
		edit(t, c, func() { c.Spec.Storage = "30Gi" })
		awaitReady(t, c)
		quiet(t, namespace)
		return children(t, namespace)
	}
	want := flow(t, func(string) {})
	step := int32(5)
	if *everyWrite {
		step = 1
	}
	for at := int32(1); at <= 26; at += step {
		for _, before := range []bool{true, false} {
			t.Run(fmt.Sprintf("write %d, before %v", at, before), func(t *testing.T) {
				got := flow(t, func(namespace string) {
					m := mortal{left: &atomic.Int32{}, before: before, died: make(chan struct{})}
					m.left.Store(at)
					o := startOperatorWith(t, namespace, func(_ *rest.Config, options *ctrl.Options) {
						options.NewClient = func(config *rest.Config, clientOptions client.Options) (client.Client, error) {
							inner, err := client.New(config, clientOptions)
							m.Client = inner
							return m, err
						}
					})
					controlplane.Eventually(t, func(ctx context.Context) error {
						select {
						case <-m.died:
							return nil
						default:
						}
						live, err := get(ctx, namespace, "orders", &v1alpha1.PostgresCluster{})
						if err == nil && live.Status.ReadyReplicas != nil && *live.Status.ReadyReplicas == 1 {
							return nil // It took fewer writes.
						}
						return errors.Join(err, errors.New("the operator has not crashed"))
					})
					o.stop()
				})
				if got != want {
					t.Errorf("what is left differs:\n%s\nwant:\n%s", got, want)
				}
			})
		}
	}
}
