package certs

import (
	"fmt"
	"path/filepath"

	"sigs.k8s.io/controller-runtime/pkg/certwatcher"
)

// Files is a certificate in files that somebody else, the kubelet, keeps up to date.
type Files struct{ *certwatcher.CertWatcher }

// NewFiles reads FileCertificate and FileKey in dir, which must exist: a pod that mounts the Secret is not started
// before it does.
func NewFiles(dir string) (*Files, error) {
	watcher, err := certwatcher.New(filepath.Join(dir, FileCertificate), filepath.Join(dir, FileKey))
	if err != nil {
		return nil, fmt.Errorf("webhook certificate: %w (mount the Secret %s there, or start with "+
			"--webhook-certs=self or --webhooks=false)", err, SecretServing)
	}
	return &Files{CertWatcher: watcher}, nil
}

// Advice implements Source.
func (f *Files) Advice() string {
	return "the files are cert-manager's: kubectl describe certificate " + CertificateServing
}
