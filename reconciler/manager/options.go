package manager

import (
	"errors"
	"fmt"
	"net"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/pflag"
	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/acme/pg-operator/apis/v1alpha1"
	"github.com/acme/pg-operator/certs"
	"github.com/acme/pg-operator/postgres"
	"github.com/acme/pg-operator/webhooks/rules"
)

// Bounds of --failover-lease-duration: below, a busy API server looks like a dead
// primary; above, a dead primary goes unseen for longer than people wait.
const (
	minFailoverLease = 5 * time.Second
	maxFailoverLease = 60 * time.Second
)

// maxUID is the largest user id that Pod Security and the kernel take.
const maxUID = 1<<31 - 1

// Values of --webhook-certs.
const (
	certsFiles = "files"
	certsSelf  = "self"
)

type options struct {
	operatorImage  string
	podName        string
	namespace      string
	defaultVersion string
	defaultStorage string
	postgresImages []string
	postgresUID    int64
	failoverLease  time.Duration

	leaderElect    bool
	concurrency    int
	preflight      bool
	namespaces     []string
	metricsBind    string
	probeBind      string
	webhooks       bool
	webhookPort    int
	webhookCerts   string
	certDir        string
	caLifetime     time.Duration
	certLifetime   time.Duration
	webhookService string
	shutdownDelay  time.Duration
}

func (o *options) addFlags(flags *pflag.FlagSet) {
	flags.StringVar(&o.operatorImage, "operator-image", "",
		"Image that carries the agent into the instances' pods. Empty: the image of the operator's own pod (--pod-name).")
	flags.StringVar(&o.podName, "pod-name", "", "Name of the operator's own pod; read when --operator-image is empty.")
	flags.StringVar(&o.namespace, "namespace", "pg-operator-system",
		"Namespace of the operator: of its pod, its leader election Lease and its webhook's Service.")
	flags.StringVar(&o.defaultVersion, "default-version", "17",
		"spec.version where a PostgresCluster has none: one of "+strings.Join(postgres.Majors(), ", ")+".")
	flags.StringVar(&o.defaultStorage, "default-storage", "50Gi",
		"spec.storage where a PostgresCluster has none, in whole gibibytes.")
	flags.StringArrayVar(&o.postgresImages, "postgres-image", nil,
		"VERSION=IMAGE: image of a major version where a PostgresCluster has none; repeatable. "+
			"Otherwise docker.io/library/postgres:VERSION.")
	flags.Int64Var(&o.postgresUID, "postgres-uid", 999, "User and group id that PostgreSQL runs as in its images.")
	flags.DurationVar(&o.failoverLease, "failover-lease-duration", v1alpha1.DefaultLeaseDuration,
		"How long a silent primary keeps its Lease where spec.failover.leaseDuration is omitted, 5s to 60s.")

	flags.BoolVar(&o.leaderElect, "leader-elect", true,
		"Reconcile in one of several operators only. Without it, run no more than one.")
	flags.IntVar(&o.concurrency, "max-concurrent-reconciles", 4, "PostgresClusters reconciled at the same time.")
	flags.BoolVar(&o.preflight, "preflight", true,
		"Ask the API server by dry runs whether it would take pods and volumes, before anything is made and before a running "+
			"pod is replaced. Turn it off where a policy judges pods by who creates them.")
	flags.StringArrayVar(&o.namespaces, "watch-namespace", nil,
		"Namespace whose PostgresClusters are reconciled; repeatable. Otherwise all namespaces.")
	flags.StringVar(&o.metricsBind, "metrics-bind-address", ":8443",
		`Address of /metrics: TLS, for callers that Kubernetes lets get the path. "0" turns it off.`)
	flags.StringVar(&o.probeBind, "health-probe-bind-address", ":8081",
		`Address of /healthz and /readyz. "0" turns them off.`)
	flags.BoolVar(&o.webhooks, "webhooks", true,
		"Serve the admission webhooks. Without them the rules of the CRD still hold, with shorter messages.")
	flags.IntVar(&o.webhookPort, "webhook-port", 9443, "Port of the admission webhooks.")
	flags.StringVar(&o.webhookCerts, "webhook-certs", certsFiles,
		"Where the certificate of the webhooks and of /metrics comes from. files: from --webhook-cert-dir, where cert-manager's "+
			"is mounted. self: the operator signs it by itself and writes caBundle of its webhook configurations; deploy with "+
			"config/self-certs. The databases' certificates need cert-manager either way.")
	flags.StringVar(&o.certDir, "webhook-cert-dir", "/etc/pg-operator/serving-tls",
		"Directory with the webhooks' tls.crt and tls.key; changes are followed. Only with --webhook-certs=files.")
	flags.DurationVar(&o.caLifetime, "webhook-ca-lifetime", 365*24*time.Hour,
		"How long a CA of --webhook-certs=self is valid; it is replaced, with an overlap, when a third of it is left.")
	flags.DurationVar(&o.certLifetime, "webhook-cert-lifetime", 7*24*time.Hour,
		"How long a certificate of --webhook-certs=self is valid; it is replaced when a third of it is left.")
	flags.StringVar(&o.webhookService, "webhook-service-name", certs.ServiceWebhook,
		"Service by which the API server calls the webhooks; the certificate must name it.")
	flags.DurationVar(&o.shutdownDelay, "shutdown-delay", 0,
		"How long the webhooks go on after SIGTERM, until every API server has stopped calling this pod.")
}

// validate reports every flag that cannot be used, and what it accepts.
func (o *options) validate() error {
	var errs []error
	refuse := func(flag, value, accepted string) {
		errs = append(errs, fmt.Errorf("--%s=%q: %s", flag, value, accepted))
	}
	if o.operatorImage == "" && o.podName == "" {
		errs = append(errs, errors.New("--operator-image is empty: give the image of this program, "+
			"or --pod-name so that it is read from the operator's pod"))
	}
	if !slices.Contains(postgres.Majors(), o.defaultVersion) {
		refuse("default-version", o.defaultVersion, "use one of "+strings.Join(postgres.Majors(), ", "))
	}
	if o.defaultStorage == "" || len(rules.ValidateSpec(&v1alpha1.PostgresClusterSpec{Storage: o.defaultStorage})) > 0 {
		refuse("default-storage", o.defaultStorage, "use whole gibibytes from 1Gi to 65536Gi, such as 50Gi")
	}
	if _, err := o.images(); err != nil {
		errs = append(errs, err)
	}
	if o.postgresUID < 1 || o.postgresUID > maxUID {
		refuse("postgres-uid", strconv.FormatInt(o.postgresUID, 10), "use 1 to 2147483647; root is refused by Pod Security")
	}
	if o.failoverLease < minFailoverLease || o.failoverLease > maxFailoverLease || o.failoverLease%time.Second != 0 {
		refuse("failover-lease-duration", o.failoverLease.String(), "use whole seconds from 5s to 60s")
	}
	if o.concurrency < 1 {
		refuse("max-concurrent-reconciles", strconv.Itoa(o.concurrency), "use 1 or more")
	}
	for _, name := range o.namespaces {
		if len(validation.IsDNS1123Label(name)) > 0 {
			refuse("watch-namespace", name, "give the name of a namespace, or leave the flag out to watch all")
		}
	}
	return errors.Join(append(errs, o.validateServing()...)...)
}

func (o *options) validateServing() []error {
	var errs []error
	name := func(flag, value string) {
		if len(validation.IsDNS1123Label(value)) > 0 {
			errs = append(errs, fmt.Errorf("--%s=%q: give a name of lower-case letters, digits and dashes", flag, value))
		}
	}
	address := func(flag, value string) {
		if _, port, err := net.SplitHostPort(value); value != "0" && (err != nil || port == "") {
			errs = append(errs, fmt.Errorf(`--%s=%q: use HOST:PORT or :PORT, or "0" to turn it off`, flag, value))
		}
	}
	name("namespace", o.namespace)
	address("metrics-bind-address", o.metricsBind)
	address("health-probe-bind-address", o.probeBind)
	if !o.webhooks {
		return errs
	}
	name("webhook-service-name", o.webhookService)
	if o.webhookPort < 1 || o.webhookPort > 65535 {
		errs = append(errs, fmt.Errorf("--webhook-port=%d: use 1 to 65535, or --webhooks=false", o.webhookPort))
	}
	if o.shutdownDelay < 0 {
		errs = append(errs, fmt.Errorf("--shutdown-delay=%s: use 0s or more", o.shutdownDelay))
	}
	switch o.webhookCerts {
	case certsFiles:
		if o.certDir == "" {
			errs = append(errs, errors.New("--webhook-cert-dir is empty: give the directory of tls.crt and tls.key"))
		}
	case certsSelf:
		if err := o.authority().Validate(); err != nil {
			errs = append(errs, err)
		}
	default:
		errs = append(errs, fmt.Errorf("--webhook-certs=%q: use files or self", o.webhookCerts))
	}
	return errs
}

// images are the image of each major version.
func (o *options) images() (map[string]string, error) {
	images := map[string]string{}
	for _, major := range postgres.Majors() {
		images[major] = "docker.io/library/postgres:" + major
	}
	var errs []error
	given := map[string]bool{}
	for _, pair := range o.postgresImages {
		major, image, found := strings.Cut(pair, "=")
		switch _, known := images[major]; {
		case !found || image == "" || strings.ContainsAny(image, " \t\n"):
			errs = append(errs, fmt.Errorf("--postgres-image=%q: use VERSION=IMAGE, such as 17=docker.io/library/postgres:17", pair))
		case !known:
			errs = append(errs, fmt.Errorf("--postgres-image=%q: version must be one of %s", pair, strings.Join(postgres.Majors(), ", ")))
		case given[major]:
			errs = append(errs, fmt.Errorf("--postgres-image=%q: version %s was given twice", pair, major))
		}
		images[major], given[major] = image, true
	}
	return images, errors.Join(errs...)
}
