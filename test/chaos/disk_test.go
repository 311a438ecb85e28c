package chaos

import (
	"context"
	"errors"
	"fmt"
	"os"
	"syscall"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/acme/pg-operator/apis/naming"
)

func fullPrimary(ctx context.Context, b *bed, primary string) (mend, error) {
	return b.fillUp(ctx, primary)
}

func fullReplica(ctx context.Context, b *bed, primary string) (mend, error) {
	return b.fillUp(ctx, b.others(primary)[0])
}

// fillUp takes all the room on an instance's volume, and then has so much log written that the instance needs some:
// the files of log that it has would last for long.
func (b *bed) fillUp(ctx context.Context, instance string) (mend, error) {
	remove, err := fill(ctx, b, instance)
	if err != nil {
		return remove, err
	}
	config, err := b.config(ctx)
	if err != nil {
		return remove, err
	}
	conn, err := pgx.ConnectConfig(ctx, config)
	if err != nil {
		return remove, err
	}
	defer func() { _ = conn.Close(context.WithoutCancel(ctx)) }()
	const piece, most = 4 << 20, 1 << 30
	for written := 0; written < most; written += piece {
		if primary, _ := b.healthy(ctx); primary == "" {
			return remove, nil // the instance has noticed
		}
		_, err = conn.Exec(ctx, "select pg_logical_emit_message(true, 'chaos', repeat('x', $1))", piece)
		var refusal *pgconn.PgError
		if errors.As(err, &refusal) && refusal.Code == "42501" {
			return remove, err
		}
		if err != nil {
			return remove, nil // the primary has no room, or ended
		}
	}
	return remove, fmt.Errorf("%s took %d MiB of log on a full volume", instance, most>>20)
}

// fill takes all the room on an instance's volume with a file beside PGDATA.
func fill(ctx context.Context, b *bed, instance string) (mend, error) {
	container, err := b.container(ctx, instance)
	if err != nil {
		return nil, err
	}
	// The volume stays mounted on the node when the container ends, and the file is reached through this directory.
	volume, err := os.Open(container.Path(naming.PathData))
	if err != nil {
		return nil, err
	}
	name := fmt.Sprintf("/proc/self/fd/%d/chaos-fill", volume.Fd())
	remove := func(context.Context) error {
		defer func() { _ = volume.Close() }()
		return os.Remove(name)
	}
	file, err := os.Create(name)
	if err != nil {
		return nil, err
	}
	defer func() { _ = file.Close() }()
	var size int64
	for step := int64(64 << 20); step >= 4096; {
		if err := syscall.Fallocate(int(file.Fd()), 0, size, step); err != nil {
			step /= 2 // the last room, in ever smaller pieces
			continue
		}
		size += step
	}
	return remove, nil
}
