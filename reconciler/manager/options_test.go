package manager

import (
	"strings"
	"testing"

	"github.com/spf13/pflag"
	"sigs.k8s.io/controller-runtime/pkg/cache"

	"github.com/acme/pg-operator/postgres"
)

func parse(t *testing.T, args ...string) *options {
	t.Helper()
	o := &options{}
	flags := pflag.NewFlagSet("manager", pflag.ContinueOnError)
	o.addFlags(flags)
	if err := flags.Parse(args); err != nil {
		t.Fatal(err)
	}
	return o
}

func TestFlags(t *testing.T) {
	tests := map[string]struct {
		args []string
		want []string // parts of the error; none: accepted
	}{
		"defaults in a pod":  {args: []string{"--pod-name=pg-operator-0"}},
		"defaults elsewhere": {want: []string{"--operator-image is empty", "--pod-name"}},
		"all set": {args: []string{
			"--operator-image=example.com/op:v1", "--default-version=15", "--default-storage=1Gi", "--postgres-image=15=a/b:15",
			"--postgres-image=17=a/b:17@sha256:0", "--postgres-uid=26", "--failover-lease-duration=60s", "--watch-namespace=a",
			"--watch-namespace=b", "--metrics-bind-address=0", "--health-probe-bind-address=127.0.0.1:0", "--max-concurrent-reconciles=1",
		}},
		"largest storage":    {args: []string{"--pod-name=x", "--default-storage=65536Gi"}},
		"version":            {args: []string{"--pod-name=x", "--default-version=17.2"}, want: []string{`--default-version="17.2"`, "15, 16, 17, 18"}},
		"storage zero":       {args: []string{"--pod-name=x", "--default-storage=0Gi"}, want: []string{`--default-storage="0Gi"`, "50Gi"}},
		"storage too large":  {args: []string{"--pod-name=x", "--default-storage=65537Gi"}, want: []string{"65536Gi"}},
		"storage unit":       {args: []string{"--pod-name=x", "--default-storage=1Ti"}, want: []string{"whole gibibytes"}},
		"image form":         {args: []string{"--pod-name=x", "--postgres-image=a/b:17"}, want: []string{`--postgres-image="a/b:17"`, "VERSION=IMAGE"}},
		"image empty":        {args: []string{"--pod-name=x", "--postgres-image=17="}, want: []string{"VERSION=IMAGE"}},
		"image version":      {args: []string{"--pod-name=x", "--postgres-image=14=a/b:14"}, want: []string{"version must be one of"}},
		"image twice":        {args: []string{"--pod-name=x", "--postgres-image=17=a", "--postgres-image=17=b"}, want: []string{"twice"}},
		"root":               {args: []string{"--pod-name=x", "--postgres-uid=0"}, want: []string{`--postgres-uid="0"`}},
		"uid too large":      {args: []string{"--pod-name=x", "--postgres-uid=2147483648"}, want: []string{"2147483647"}},
		"lease too short":    {args: []string{"--pod-name=x", "--failover-lease-duration=4s"}, want: []string{"5s to 60s"}},
		"lease too long":     {args: []string{"--pod-name=x", "--failover-lease-duration=61s"}, want: []string{"5s to 60s"}},
		"lease not whole":    {args: []string{"--pod-name=x", "--failover-lease-duration=5500ms"}, want: []string{"whole seconds"}},
		"empty namespace":    {args: []string{"--pod-name=x", "--watch-namespace="}, want: []string{`--watch-namespace=""`, "leave the flag out"}},
		"no workers":         {args: []string{"--pod-name=x", "--max-concurrent-reconciles=0"}, want: []string{"1 or more"}},
		"metrics address":    {args: []string{"--pod-name=x", "--metrics-bind-address=8443"}, want: []string{`--metrics-bind-address="8443"`, ":PORT"}},
		"probe address":      {args: []string{"--pod-name=x", "--health-probe-bind-address=a:"}, want: []string{"--health-probe-bind-address"}},
		"webhook port":       {args: []string{"--pod-name=x", "--webhook-port=0"}, want: []string{"--webhook-port=0"}},
		"webhook service":    {args: []string{"--pod-name=x", "--webhook-service-name=a.b"}, want: []string{"--webhook-service-name"}},
		"negative delay":     {args: []string{"--pod-name=x", "--shutdown-delay=-1s"}, want: []string{"--shutdown-delay=-1s"}},
		"operator namespace": {args: []string{"--pod-name=x", "--namespace="}, want: []string{"--namespace"}},
		"no webhooks, so no certificate": {
			args: []string{"--pod-name=x", "--webhooks=false", "--webhook-cert-dir=", "--webhook-port=0"},
		},
		"own certificate": {args: []string{"--pod-name=x", "--webhook-certs=self", "--webhook-cert-dir="}},
		"own lifetimes": {
			args: []string{"--pod-name=x", "--webhook-certs=self", "--webhook-ca-lifetime=96h", "--webhook-cert-lifetime=24h"},
		},
		"origin of the certificate": {args: []string{"--pod-name=x", "--webhook-certs=auto"}, want: []string{`--webhook-certs="auto"`, "files or self"}},
		"CA ends too early": {
			args: []string{"--pod-name=x", "--webhook-certs=self", "--webhook-ca-lifetime=95h", "--webhook-cert-lifetime=24h"},
			want: []string{"--webhook-ca-lifetime=95h", "four times"},
		},
		"certificate ends too early": {
			args: []string{"--pod-name=x", "--webhook-certs=self", "--webhook-cert-lifetime=1s"}, want: []string{"--webhook-cert-lifetime=1s"},
		},
		"lifetimes of files are cert-manager's": {args: []string{"--pod-name=x", "--webhook-ca-lifetime=0"}},
		"every mistake at once": {
			args: []string{"--default-version=9", "--postgres-uid=-1", "--webhook-cert-dir="},
			want: []string{"--operator-image", "--default-version", "--postgres-uid", "--webhook-cert-dir"},
		},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			err := parse(t, tc.args...).validate()
			if len(tc.want) == 0 {
				if err != nil {
					t.Fatalf("refused: %v", err)
				}
				return
			}
			if err == nil {
				t.Fatal("accepted")
			}
			for _, part := range tc.want {
				if !strings.Contains(err.Error(), part) {
					t.Errorf("no %q in: %v", part, err)
				}
			}
		})
	}
}

func TestImages(t *testing.T) {
	images, err := parse(t, "--postgres-image=16=example.com/pg:16").images()
	if err != nil {
		t.Fatal(err)
	}
	if len(images) != len(postgres.Majors()) {
		t.Fatalf("got images for %d versions, want %d", len(images), len(postgres.Majors()))
	}
	if images["16"] != "example.com/pg:16" || images["17"] != "docker.io/library/postgres:17" {
		t.Fatalf("got %v", images)
	}
}

func TestWatchedNamespaces(t *testing.T) {
	if got := parse(t).cache(cache.Options{}).DefaultNamespaces; got != nil {
		t.Fatalf("without a flag, only %v is watched", got)
	}
	got := parse(t, "--watch-namespace=a", "--watch-namespace=b").cache(cache.Options{}).DefaultNamespaces
	if _, all := got[cache.AllNamespaces]; all || len(got) != 2 {
		t.Fatalf("got %v, want a and b", got)
	}
}
