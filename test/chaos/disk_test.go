package chaos

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/acme/pg-operator/apis/naming"
	"github.com/acme/pg-operator/test/localcluster"
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

// breakDisk has every access to the primary's volume fail from now on, as that of a disk that died: what was not on it
// yet is lost. In the end it is a disk again, with what was on it.
func breakDisk(ctx context.Context, b *bed, primary string) (mend, error) {
	container, err := b.container(ctx, primary)
	if err != nil {
		return nil, err
	}
	point, err := b.mountPoint(ctx, primary)
	if err != nil {
		return nil, err
	}
	replace := func(ctx context.Context) error {
		if _, err := shell(ctx, "umount", "--lazy", point); err != nil {
			return err
		}
		if err := b.delete(ctx, primary, -1); err != nil {
			return err
		}
		// The dead file system lasts until the pod has gone, and would be mounted again until then.
		_, err := localcluster.Wait(ctx, time.Minute, "nobody uses the dead file system", func(ctx context.Context) (bool, string) {
			used, err := shell(ctx, "losetup", "--associated", point+".img")
			return err == nil && used == "", fmt.Sprint(used, err)
		})
		if err != nil {
			return err
		}
		_, err = shell(ctx, "mount", "-t", "xfs", "-o", "loop,noatime", point+".img", point)
		return err
	}
	return replace, container.BreakVolume(naming.PathData)
}

func shell(ctx context.Context, name string, args ...string) (string, error) {
	out, err := exec.CommandContext(ctx, name, args...).CombinedOutput()
	if err != nil {
		return "", fmt.Errorf("%s %v: %w: %s", name, args, err, out)
	}
	return string(out), nil
}

// mountPoint is where an instance's volume is mounted on this machine; beside it is its image.
func (b *bed) mountPoint(ctx context.Context, instance string) (string, error) {
	pod, err := b.pod(ctx, instance)
	if err != nil {
		return "", err
	}
	for _, used := range pod.Spec.Volumes {
		if used.PersistentVolumeClaim == nil {
			continue
		}
		claim, volume := &corev1.PersistentVolumeClaim{}, &corev1.PersistentVolume{}
		if err = b.cluster.Client.Get(ctx, b.key(used.PersistentVolumeClaim.ClaimName), claim); err != nil {
			return "", err
		}
		if err = b.cluster.Client.Get(ctx, client.ObjectKey{Name: claim.Spec.VolumeName}, volume); err != nil {
			return "", err
		}
		if volume.Spec.Local != nil {
			return filepath.Dir(volume.Spec.Local.Path), nil
		}
	}
	return "", errors.New(instance + " has no volume on its node")
}
