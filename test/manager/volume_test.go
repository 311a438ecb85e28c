package manager

import (
	"bytes"
	"context"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"github.com/acme/pg-operator/certs"
)

// volume is a Secret in the layout of the kubelet: links through ..data, which is swapped in one step.
type volume struct {
	dir  string
	n    int
	leaf *x509.Certificate
}

// mount waits for the serving certificate and lays it out.
func mount(t *testing.T) *volume {
	t.Helper()
	v := &volume{dir: t.TempDir()}
	eventually(t, v.sync)
	return v
}

// sync brings the files up to the Secret of the serving certificate.
func (v *volume) sync(ctx context.Context) error {
	found, err := secret(ctx, certs.SecretServing)
	if err != nil {
		return err
	}
	return v.put(found)
}

func (v *volume) put(secret *corev1.Secret) error {
	block, _ := pem.Decode(secret.Data[certs.FileCertificate])
	if block == nil {
		return errors.New("the Secret has no certificate yet")
	}
	leaf, err := x509.ParseCertificate(block.Bytes)
	if err != nil {
		return err
	}
	if v.leaf != nil && bytes.Equal(v.leaf.Raw, leaf.Raw) {
		return nil
	}
	v.n++
	version := "..v" + strconv.Itoa(v.n)
	if err := os.Mkdir(filepath.Join(v.dir, version), 0o700); err != nil {
		return err
	}
	for _, file := range []string{certs.FileCertificate, certs.FileKey} {
		if err := os.WriteFile(filepath.Join(v.dir, version, file), secret.Data[file], 0o600); err != nil {
			return err
		}
		link := filepath.Join(v.dir, file)
		if err := os.Symlink(filepath.Join("..data", file), link); err != nil && !errors.Is(err, os.ErrExist) {
			return err
		}
	}
	if err := os.Symlink(version, filepath.Join(v.dir, "..next")); err != nil {
		return err
	}
	if err := os.Rename(filepath.Join(v.dir, "..next"), filepath.Join(v.dir, "..data")); err != nil {
		return err
	}
	v.leaf = leaf
	if v.n == 1 {
		return nil
	}
	return os.RemoveAll(filepath.Join(v.dir, fmt.Sprintf("..v%d", v.n-1)))
}
