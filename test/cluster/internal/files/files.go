// Package files writes files so that no reader ever sees a part of one.
package files

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"text/template"
)

// Write replaces a file at once, so that a crash leaves the old content or
// the new and never a part.
func Write(file string, data []byte, mode fs.FileMode) error {
	temporary, err := os.CreateTemp(filepath.Dir(file), "."+filepath.Base(file)+".*")
	if err != nil {
		return err
	}
	defer func() { _ = os.Remove(temporary.Name()) }()
	_, err = temporary.Write(data)
	err = errors.Join(err, temporary.Chmod(mode), temporary.Close())
	if err != nil {
		return fmt.Errorf("write %s: %w", file, err)
	}
	return os.Rename(temporary.Name(), file)
}

// Render renders a file like Write, and leaves it alone when its
// content is the same already.
func Render(file string, source *template.Template, values any, mode fs.FileMode) error {
	var content bytes.Buffer
	if err := source.Execute(&content, values); err != nil {
		return fmt.Errorf("render %s: %w", file, err)
	}
	if old, err := os.ReadFile(file); err == nil && bytes.Equal(old, content.Bytes()) {
		return nil
	}
	return Write(file, content.Bytes(), mode)
}
