package instance

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"net"
	"os"
	"os/signal"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/go-logr/logr"
	"github.com/go-logr/zapr"
	"go.uber.org/zap"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	"k8s.io/klog/v2"

	"github.com/acme/pg-operator/apis/naming"
	"github.com/acme/pg-operator/instance/contract"
	"github.com/acme/pg-operator/instance/kube"
	"github.com/acme/pg-operator/instance/pg"
	"github.com/acme/pg-operator/instance/runner"
)

type runOptions struct {
	cluster         string
	shutdownTimeout time.Duration
}

// passwordKey is the key of passwords in Secrets.
const passwordKey = "password"

// run runs the agent until it is asked to stop and PostgreSQL has stopped.
func run(ctx context.Context, o runOptions) error {
	logger, err := newLogger()
	if err != nil {
		return err
	}
	klog.SetLogger(logger)
	pod, err := podFromEnvironment()
	if err != nil {
		return err
	}
	config, err := rest.InClusterConfig()
	if err != nil {
		return err
	}
	cluster := naming.Cluster(o.cluster)
	client, err := kube.New(config, cluster, pod)
	if err != nil {
		return err
	}
	ctx, stop := signal.NotifyContext(ctx, syscall.SIGTERM, syscall.SIGINT)
	defer stop()
	if os.Getpid() == 1 {
		go pg.Reap(context.WithoutCancel(ctx).Done())
	}
	options, err := containerOptions(ctx, cluster, pod)
	if err != nil {
		return err
	}
	options.ShutdownTimeout = o.shutdownTimeout
	runner.New(options, client, logger).Run(ctx)
	return nil
}

// newLogger writes JSON to standard error; PostgreSQL's own log goes to standard output.
func newLogger() (logr.Logger, error) {
	config := zap.NewProductionConfig()
	config.Sampling = nil
	config.DisableStacktrace = true
	logger, err := config.Build()
	if err != nil {
		return logr.Logger{}, err
	}
	return zapr.NewLogger(logger), nil
}

func podFromEnvironment() (kube.Pod, error) {
	var missing []string
	read := func(name string) string {
		value := os.Getenv(name)
		if value == "" {
			missing = append(missing, name)
		}
		return value
	}
	pod := kube.Pod{
		Name: read("POD_NAME"), Namespace: read("POD_NAMESPACE"), UID: types.UID(read("POD_UID")), IP: read("POD_IP"),
	}
	if len(missing) > 0 {
		return kube.Pod{}, fmt.Errorf("the environment has no %s, which the pod template must set", strings.Join(missing, ", "))
	}
	return pod, nil
}

// containerOptions are the paths and ports of the postgres container.
func containerOptions(ctx context.Context, cluster naming.Cluster, pod kube.Pod) (runner.Options, error) {
	probes, errProbes := listen(ctx, naming.PortProbe)
	status, errStatus := listen(ctx, naming.PortAgent)
	if err := errors.Join(errProbes, errStatus); err != nil {
		return runner.Options{}, err
	}
	return runner.Options{
		Cluster: cluster, Instance: pod.Name, Namespace: pod.Namespace,
		Volume: pg.Volume{Root: naming.PathData}, RunDir: naming.PathRun, Listen: "*", Port: naming.PortPostgres,
		ServerTLS:         pg.Keys{Source: naming.PathServerTLS, Dir: filepath.Join(naming.PathRun, "server-tls")},
		ClientTLS:         pg.Keys{Source: naming.PathClientTLS, Dir: filepath.Join(naming.PathRun, "client-tls")},
		SuperuserPassword: filepath.Join(naming.PathSuperuser, passwordKey),
		AppPassword:       filepath.Join(naming.PathAppUser, passwordKey),
		Sentinel:          sentinel(pg.Volume{Root: naming.PathData}.PGData()),
		Incarnation:       strings.ToLower(rand.Text()[:12]),
		AgentVersion:      contract.Version,
		Log:               os.Stdout,
		Probes:            probes, Status: status,
		PeerAddress: func(instance string) string {
			return net.JoinHostPort(cluster.InstanceHost(instance, pod.Namespace), strconv.Itoa(naming.PortAgent))
		},
	}, nil
}

func listen(ctx context.Context, port int) (net.Listener, error) {
	return (&net.ListenConfig{}).Listen(ctx, "tcp", ":"+strconv.Itoa(port))
}
