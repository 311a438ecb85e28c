package controlplane

import (
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
)

// watchdog ends the programs of a control plane whose tests were killed or have panicked: nobody calls Stop then. It
// is a shell that waits for the end of a pipe which this process holds open.
type watchdog struct {
	dir  string
	cmd  *exec.Cmd
	pipe io.WriteCloser
}

// watchdogScript gets the control plane's directory, in which each program has left its process id. Those that have
// ended are told from others that got their id by the directory in their arguments.
const watchdogScript = `read -r word; [ "$word" = stop ] && exit
for pid in $(cat "$1"/pids); do
  case "$(ps -o args= -p "$pid")" in *"$1"*) kill -9 "$pid" ;; esac
done 2>/dev/null
rm -rf "$1"`

func startWatchdog(dir string) (*watchdog, error) {
	w := &watchdog{dir: dir, cmd: exec.Command("sh", "-c", watchdogScript, "watchdog", dir)}
	// A group of its own, so that an interrupt from the keyboard leaves it alive.
	w.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	var err error
	if w.pipe, err = w.cmd.StdinPipe(); err != nil {
		return nil, err
	}
	if err := w.cmd.Start(); err != nil {
		return nil, fmt.Errorf("start the watchdog: %w", err)
	}
	return w, nil
}

// guard makes a command that runs a program under the watchdog's eyes. The command's process becomes the program.
func (w *watchdog) guard(program string) (string, error) {
	path := filepath.Join(w.dir, filepath.Base(program))
	script := fmt.Sprintf("#!/bin/sh\necho $$ >>'%s/pids'\nexec '%s' \"$@\"\n", w.dir, program)
	return path, os.WriteFile(path, []byte(script), 0o700)
}

// stop sends the watchdog away, after everything has ended.
func (w *watchdog) stop() error {
	if _, err := io.WriteString(w.pipe, "stop\n"); err != nil {
		return fmt.Errorf("stop the watchdog: %w", err)
	}
	return w.cmd.Wait()
}
