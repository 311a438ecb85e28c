package instance

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
)

// install copies this program to a path, as a whole or not at all.
func install(to string) (err error) {
	self, err := os.Executable()
	if err != nil {
		return err
	}
	from, err := os.Open(self)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, from.Close()) }()
	copied, err := os.CreateTemp(filepath.Dir(to), ".pg-operator-*")
	if err != nil {
		return fmt.Errorf("cannot install the agent: %w", err)
	}
	_, err = io.Copy(copied, from)
	err = errors.Join(err, copied.Chmod(0o755), copied.Close())
	if err == nil {
		err = os.Rename(copied.Name(), to)
	}
	if err != nil {
		return errors.Join(fmt.Errorf("cannot install the agent: %w", err), os.Remove(copied.Name()))
	}
	return nil
}
