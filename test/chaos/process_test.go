package chaos

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"
	"time"

	"github.com/acme/pg-operator/apis/naming"
	"github.com/acme/pg-operator/test/chaos/host"
)

// signal sends a process of an instance's container a signal, and returns what takes a SIGSTOP back.
func (b *bed) signal(ctx context.Context, instance string, which func(host.Container) (host.Process, error), signal syscall.Signal) (mend, error) {
	container, err := b.container(ctx, instance)
	if err != nil {
		return nil, err
	}
	process, err := which(container)
	if err != nil {
		return nil, err
	}
	if signal != syscall.SIGSTOP {
		return nil, process.Signal(signal)
	}
	return func(context.Context) error { return process.Signal(syscall.SIGCONT) }, process.Signal(signal)
}

func agent(c host.Container) (host.Process, error) { return c.Agent(), nil }

func killPostmaster(ctx context.Context, b *bed, primary string) (mend, error) {
	return b.signal(ctx, primary, host.Container.Postmaster, syscall.SIGKILL)
}

func hangPostmaster(ctx context.Context, b *bed, primary string) (mend, error) {
	return b.signal(ctx, primary, host.Container.Postmaster, syscall.SIGSTOP)
}

func killBackend(ctx context.Context, b *bed, primary string) (mend, error) {
	client := func(c host.Container) (host.Process, error) {
		return c.Child(naming.UserApp + " " + naming.DatabaseApp)
	}
	return b.signal(ctx, primary, client, syscall.SIGKILL)
}

func killAgent(ctx context.Context, b *bed, primary string) (mend, error) {
	return b.signal(ctx, primary, agent, syscall.SIGKILL)
}

func hangAgent(ctx context.Context, b *bed, primary string) (mend, error) {
	return b.signal(ctx, primary, agent, syscall.SIGSTOP)
}

// flapReplica kills a replica's postmaster again and again, as soon as there is one.
func flapReplica(ctx context.Context, b *bed, primary string) (mend, error) {
	const fewest = 5
	ctx, cancel := context.WithCancel(ctx)
	done, killed := make(chan struct{}), 0
	go func() {
		defer close(done)
		for ; ctx.Err() == nil; wait(ctx, time.Second) {
			if _, err := killPostmaster(ctx, b, b.others(primary)[0]); err == nil {
				killed++
			}
		}
	}()
	return func(context.Context) error {
		cancel()
		if <-done; killed < fewest {
			return fmt.Errorf("the replica was there to be killed only %d times", killed)
		}
		return nil
	}, nil
}

func slowReplica(ctx context.Context, b *bed, primary string) (mend, error) {
	receiver := func(c host.Container) (host.Process, error) { return c.Child("walreceiver") }
	return b.signal(ctx, b.others(primary)[0], receiver, syscall.SIGSTOP)
}

func freeze(ctx context.Context, b *bed, primary string) (mend, error) {
	container, err := b.container(ctx, primary)
	if err != nil {
		return nil, err
	}
	return func(context.Context) error { return unlessGone(container.Freeze(false)) }, container.Freeze(true)
}

// unlessGone: what has ended needs no mending.
func unlessGone(err error) error {
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return err
}

// slowDisk lets the primary write 20 times a second.
func slowDisk(ctx context.Context, b *bed, primary string) (mend, error) {
	container, err := b.container(ctx, primary)
	if err != nil {
		return nil, err
	}
	free := func(context.Context) error { return unlessGone(container.SlowWrites(naming.PathData, 0)) }
	return free, container.SlowWrites(naming.PathData, 20)
}

func killAll(ctx context.Context, b *bed, _ string) (mend, error) {
	var agents []host.Process
	for _, instance := range b.names() {
		container, err := b.container(ctx, instance)
		if err != nil {
			return nil, err
		}
		agents = append(agents, container.Agent())
	}
	for _, process := range agents {
		if err := process.Signal(syscall.SIGKILL); err != nil {
			return nil, err
		}
	}
	return nil, nil
}

// twoInARow kills the postmaster of whoever is the primary as soon as there is one after the first time.
func twoInARow(ctx context.Context, b *bed, primary string) (mend, error) {
	_, term, err := b.lease(ctx)
	if err != nil {
		return nil, err
	}
	if _, err = killPostmaster(ctx, b, primary); err != nil {
		return nil, err
	}
	next, err := b.awaitPrimary(ctx, term)
	if err != nil {
		return nil, err
	}
	return killPostmaster(ctx, b, next)
}

// wipe removes the primary's data while it runs.
func wipe(ctx context.Context, b *bed, primary string) (mend, error) {
	container, err := b.container(ctx, primary)
	if err != nil {
		return nil, err
	}
	entries, err := os.ReadDir(container.Path(naming.PathPGData))
	if err != nil {
		return nil, err
	}
	for _, entry := range entries {
		// PostgreSQL makes files meanwhile; what is left is enough of a loss.
		_ = os.RemoveAll(filepath.Join(container.Path(naming.PathPGData), entry.Name()))
	}
	return nil, nil
}
