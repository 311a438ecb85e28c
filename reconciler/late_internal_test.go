package reconciler

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime/schema"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/source"
)

// lateManager is a manager whose API server learns of kinds, and whose cache fails and syncs, when a test says so.
type lateManager struct {
	ctrl.Manager
	known, synced bool
	failures      int
	indexed       map[string]bool
	watches       int
}

type (
	lateCache struct {
		cache.Cache
		m *lateManager
	}
	lateMapper struct {
		meta.RESTMapper
		m *lateManager
	}
	lateController struct {
		controller.Controller
		m *lateManager
	}
	lateInformer struct {
		cache.Informer
		m *lateManager
	}
)

func (m *lateManager) GetCache() cache.Cache                { return lateCache{m: m} }
func (m *lateManager) GetFieldIndexer() client.FieldIndexer { return lateCache{m: m} }
func (m *lateManager) GetRESTMapper() meta.RESTMapper       { return lateMapper{m: m} }
func (m *lateManager) GetLogger() logr.Logger               { return logr.Discard() }

func (i lateInformer) HasSynced() bool { return i.m.synced }

func (r lateMapper) RESTMapping(kind schema.GroupKind, _ ...string) (*meta.RESTMapping, error) {
	if !r.m.known {
		return nil, &meta.NoKindMatchError{GroupKind: kind}
	}
	return &meta.RESTMapping{}, nil
}

// IndexField refuses the same index twice, as the cache does.
func (c lateCache) IndexField(_ context.Context, object client.Object, field string, _ client.IndexerFunc) error {
	key := fmt.Sprintf("%T %s", object, field)
	if c.m.indexed[key] {
		return errors.New("indexer conflict")
	}
	c.m.indexed[key] = true
	return nil
}

func (c lateCache) GetInformer(_ context.Context, _ client.Object, options ...cache.InformerGetOption) (cache.Informer, error) {
	applied := &cache.InformerGetOptions{}
	for _, option := range options {
		option(applied)
	}
	if applied.BlockUntilSynced == nil || *applied.BlockUntilSynced {
		return nil, errors.New("a pass would wait here")
	}
	return lateInformer{m: c.m}, nil
}

func (c lateController) Watch(source.Source) error {
	if c.m.failures > 0 {
		c.m.failures--
		return errors.New("no connection")
	}
	c.m.watches++
	return nil
}

func TestLateKinds(t *testing.T) {
	m := &lateManager{indexed: map[string]bool{}, failures: 1}
	clock := time.Unix(1000, 0)
	late := &lateKinds{mgr: m, controller: lateController{m: m}, now: func() time.Time { return clock }}
	steps := []struct {
		name    string
		change  func()
		present bool
	}{
		{"unknown kinds", func() {}, false},
		{"known, and the first watch fails", func() { m.known = true }, false},
		{"watched, and not synced", func() {}, false},
		{"synced", func() { m.synced = true }, true},
		{"for good", func() { m.known = false }, true},
	}
	for _, step := range steps {
		step.change()
		clock = clock.Add(lateKindsPeriod)
		if got := late.present(t.Context()); got != step.present {
			t.Errorf("%s: present is %v", step.name, got)
		}
	}
	if m.watches != 2 || len(m.indexed) != 2 {
		t.Errorf("%d watches, indexes %v", m.watches, m.indexed)
	}
}

// TestKindsOfTheStart: what is known when the operator starts is watched before the first pass, and not once more.
func TestKindsOfTheStart(t *testing.T) {
	m := &lateManager{indexed: map[string]bool{}}
	late := &lateKinds{mgr: m, controller: lateController{m: m}, now: func() time.Time { return time.Unix(1000, 0) }}
	late.atStart()
	if m.watches != 0 {
		t.Errorf("%d watches of kinds that nobody knows", m.watches)
	}
	m.known, m.synced = true, true
	late.atStart()
	if m.watches != 2 {
		t.Errorf("%d watches at the start, want 2", m.watches)
	}
	if !late.present(t.Context()) || m.watches != 2 {
		t.Errorf("%d watches by the first pass, want 2", m.watches)
	}
}
