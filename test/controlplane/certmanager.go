package controlplane

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"time"
)

// process is a program that runs beside the API server.
type process struct {
	cmd *exec.Cmd
	log string
	// exited is closed when the program has ended, with err.
	exited chan struct{}
	err    error
}

// startCertManager runs the program that test/cluster builds from cert-manager's controllers and cainjector.
func (p *ControlPlane) startCertManager() error {
	path := p.programs.path("cert-manager")
	if _, err := os.Stat(path); err != nil {
		return fmt.Errorf("no cert-manager in %s or %s: run `make test-api`, which builds it: %w",
			p.programs.bin, p.programs.cached, err)
	}
	guarded, err := p.watchdog.guard(path)
	if err != nil {
		return err
	}
	started, err := startProcess(filepath.Join(p.dir, "cert-manager.log"), guarded, "--kubeconfig", p.Kubeconfig)
	p.certManager = started
	return err
}

func startProcess(log, path string, args ...string) (*process, error) {
	out, err := os.Create(log)
	if err != nil {
		return nil, err
	}
	defer out.Close()
	cmd := exec.Command(path, args...)
	cmd.Stdout, cmd.Stderr = out, out
	if err := cmd.Start(); err != nil {
		return nil, fmt.Errorf("start %s: %w", path, err)
	}
	p := &process{cmd: cmd, log: log, exited: make(chan struct{})}
	go func() {
		defer close(p.exited)
		p.err = cmd.Wait()
	}()
	return p, nil
}

// stop ends the process; one that had ended by itself is an error, with the end of its log.
func (p *process) stop() error {
	select {
	case <-p.exited:
		text, _ := os.ReadFile(p.log)
		return fmt.Errorf("%s ended by itself: %w\n%s", filepath.Base(p.cmd.Path), p.err, text[max(0, len(text)-4096):])
	default:
	}
	if err := p.cmd.Process.Signal(syscall.SIGTERM); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return err
	}
	select {
	case <-p.exited:
		return nil
	case <-time.After(10 * time.Second):
		return p.cmd.Process.Kill()
	}
}
