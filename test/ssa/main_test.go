// Package ssa_test proves what the reconciler writes, field by field, against
// a real kube-apiserver with the real cert-manager controllers.
package ssa_test

import (
	"context"
	"os"
	"sync"
	"testing"

	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/acme/pg-operator/test/controlplane"
)

var plane *controlplane.ControlPlane

func TestMain(m *testing.M) {
	os.Exit(controlplane.Main(m, &plane, controlplane.Options{CertManager: true}))
}

// storageClasses are the default class, which can grow volumes, and one that cannot.
var storageClasses = sync.OnceValue(func() error {
	expand := true
	for _, class := range []*storagev1.StorageClass{
		{
			ObjectMeta: metav1.ObjectMeta{
				Name: "standard", Annotations: map[string]string{"storageclass.kubernetes.io/is-default-class": "true"},
			},
			Provisioner: "example.com/disk", AllowVolumeExpansion: &expand,
		},
		{ObjectMeta: metav1.ObjectMeta{Name: "rigid"}, Provisioner: "example.com/disk"},
	} {
		if err := plane.Client.Create(context.Background(), class); err != nil {
			return err
		}
	}
	return nil
})
