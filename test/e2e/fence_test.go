package e2e

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"syscall"
	"testing"
	"time"

	"github.com/acme/pg-operator/apis/naming"
	"github.com/acme/pg-operator/apis/v1alpha1"
	"github.com/acme/pg-operator/test/chaos/host"
)

// TestFrozenAgent freezes the first process of a primary's container, so that nobody but its sentinel can end PostgreSQL
// before another instance may take over.
func TestFrozenAgent(t *testing.T) {
	cluster := environment(t)
	beyondCore(t)
	t.Parallel()
	const leaseDuration = 5 * time.Second
	d := newDatabase(t, cluster, "frozen", func(spec *v1alpha1.PostgresClusterSpec) {
		replicas(2)(spec)
		spec.Failover = &v1alpha1.Failover{LeaseDuration: leaseDuration.String()}
	})
	d.awaitReady(readyTimeout)
	d.execSQL("create table kept as select 1 as id")
	container := d.container(0)
	postmaster, err := container.Postmaster()
	if err != nil {
		t.Fatal(err)
	}
	if err = container.Agent().Signal(syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	thaw := func() { _ = container.Agent().Signal(syscall.SIGCONT) }
	t.Cleanup(thaw)
	took := eventually(t, 4*leaseDuration, "the end of PostgreSQL", func(context.Context) (bool, string) {
		_, gone := container.Postmaster()
		return errors.Is(gone, fs.ErrNotExist), fmt.Sprintf("the postmaster is process %d (%v)", postmaster.PID, gone)
	})
	t.Logf("PostgreSQL ended %v after its agent was frozen, with a Lease of %v", took, leaseDuration)
	if took > leaseDuration {
		t.Errorf("PostgreSQL ended after %v, when another instance may have taken over", took)
	}
	left, err := container.Processes()
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range left {
		if p.PID != container.Agent().PID && p.Parent != container.Agent().PID {
			t.Errorf("process %+v is left", p)
		}
	}
	thaw()
	d.awaitReady(readyTimeout)
	d.awaitRows(d.ServiceReadWrite(), "kept", 1)
	d.execSQL("insert into kept values (2)")
}

// container of an instance's PostgreSQL, as this machine sees it.
func (d *database) container(ordinal int32) host.Container {
	d.t.Helper()
	for _, status := range d.pod(ordinal).Status.ContainerStatuses {
		if status.Name != naming.ContainerPostgres {
			continue
		}
		container, err := host.Find(status.ContainerID)
		if err != nil {
			d.t.Fatal(err)
		}
		return container
	}
	d.t.Fatalf("%s has no container %s", d.Instance(ordinal), naming.ContainerPostgres)
	return host.Container{}
}
