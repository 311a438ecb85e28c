package runner_test

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"strconv"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/acme/pg-operator/apis/naming"
	"github.com/acme/pg-operator/instance/contract"
	"github.com/acme/pg-operator/instance/fence"
	"github.com/acme/pg-operator/instance/pg"
	"github.com/acme/pg-operator/instance/runner"
	"github.com/acme/pg-operator/postgres"
	"github.com/acme/pg-operator/test/authority"
)

const (
	cluster   = naming.Cluster("orders-db")
	namespace = "shop"
	password  = "correct horse"
	// superPassword is the superuser's.
	superPassword = "super secret"
)

// TestMain lets the tests' program be a sentinel, or an agent.
func TestMain(m *testing.M) {
	if len(os.Args) == 3 && os.Args[1] == "sentinel" {
		if err := fence.Stand(os.Args[2]); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		return
	}
	if len(os.Args) == 3 && os.Args[1] == "agent" {
		if err := live(os.Args[2]); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		return
	}
	os.Exit(m.Run())
}

// withPostgres finds the PostgreSQL that a test runs: the first on PATH, or where Debian puts it. Without one the test is
// skipped. here tells whether to go on: not if the test ran again as another user.
func withPostgres(t *testing.T) (major string, here bool) {
	t.Helper()
	programs, err := pg.FindPrograms(t.Context(), "")
	if err != nil {
		t.Skipf("no PostgreSQL to test with: %v", err)
	}
	return programs.Version.Major, !asOrdinaryUser(t)
}

// asOrdinaryUser runs the calling test again as a user that PostgreSQL accepts, if the present one is root.
func asOrdinaryUser(t *testing.T) (done bool) {
	t.Helper()
	if os.Getuid() != 0 {
		return false
	}
	account, err := user.Lookup("postgres")
	if err != nil {
		if account, err = user.Lookup("nobody"); err != nil {
			t.Skip("PostgreSQL does not run as root, and there is neither a user postgres nor nobody")
		}
	}
	uid, errUID := strconv.ParseUint(account.Uid, 10, 32)
	gid, errGID := strconv.ParseUint(account.Gid, 10, 32)
	if errUID != nil || errGID != nil {
		t.Fatal(errUID, errGID)
	}
	dir, err := os.MkdirTemp("", "pg-operator-test-") //nolint:usetesting // Its parent is closed to others.
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	binary := filepath.Join(dir, "test")
	self, err := os.ReadFile(os.Args[0])
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(binary, self, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.Chown(dir, int(uid), int(gid)); err != nil {
		t.Fatal(err)
	}
	args := []string{"-test.run=^" + t.Name() + "$", "-test.timeout=5m"}
	if testing.Verbose() {
		args = append(args, "-test.v")
	}
	var out bytes.Buffer
	command := exec.Command(binary, args...)
	command.Dir = dir
	command.Env = []string{"PATH=" + os.Getenv("PATH"), "TMPDIR=" + dir, "HOME=" + dir}
	command.Stdout, command.Stderr = &out, &out
	command.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: uint32(uid), Gid: uint32(gid)}}
	if err := command.Run(); err != nil {
		t.Fatalf("as user %s: %v\n%s", account.Username, err, out.String())
	}
	t.Logf("as user %s:\n%s", account.Username, out.String())
	return true
}

// issue writes a certificate of an authority as a mounted Secret has it.
func issue(a *authority.Authority, dir, name string, hosts ...string) *x509.Certificate {
	return a.Mount(dir, name, func(c *x509.Certificate) { c.DNSNames = hosts })
}

func put(t *testing.T, path string, content []byte) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	// Readable by the group, as the kubelet mounts it.
	if err := os.WriteFile(path, content, 0o640); err != nil {
		t.Fatal(err)
	}
}

// host is one instance's pod: its volume, mounts and ports stay the same from agent to agent.
type host struct {
	t         *testing.T
	world     *world
	authority *authority.Authority
	dir, name string
	port      int32
	starts    int
	output    *syncBuffer
	probeURL  string
	statusURL string
	stop      context.CancelFunc
	ended     chan struct{}
}

func newHost(t *testing.T, w *world, a *authority.Authority, ordinal int32) *host {
	t.Helper()
	dir, err := os.MkdirTemp("", "pg") //nolint:usetesting // A socket's path is at most 107 bytes long.
	if err != nil {
		t.Fatal(err)
	}
	h := &host{t: t, world: w, authority: a, dir: dir, name: cluster.Instance(ordinal), output: &syncBuffer{}}
	for _, sub := range []string{"data", "run"} {
		if err := os.Mkdir(filepath.Join(dir, sub), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	issue(a, h.path("server"), h.name, cluster.InstanceHost(h.name, namespace))
	issue(a, h.path("client"), naming.UserReplication)
	put(t, h.path("app", "password"), []byte(password))
	put(t, h.path("superuser", "password"), []byte(superPassword))
	h.port = freePort(t)
	t.Cleanup(func() {
		h.halt()
		if t.Failed() {
			t.Logf("log of %s:\n%s", h.name, h.output)
		}
		_ = os.RemoveAll(dir)
	})
	return h
}

func (h *host) path(parts ...string) string {
	return filepath.Join(append([]string{h.dir}, parts...)...)
}

// clientKeys are the agent's own.
func (h *host) clientKeys() pg.Keys {
	return pg.Keys{Source: h.path("client"), Dir: h.path("run", "client")}
}

func (h *host) pgdata() string { return h.path("data", "pgdata") }

func freePort(t *testing.T) int32 {
	t.Helper()
	l := listenLocal(t)
	defer func() { _ = l.Close() }()
	return int32(l.Addr().(*net.TCPAddr).Port)
}

func listenLocal(t *testing.T) net.Listener {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	return l
}

// start starts an agent on the host, and returns its incarnation.
func (h *host) start() string {
	h.t.Helper()
	h.starts++
	probes, status := listenLocal(h.t), listenLocal(h.t)
	h.probeURL, h.statusURL = "http://"+probes.Addr().String(), "https://"+status.Addr().String()
	h.world.do(func() { h.world.agents[h.name] = status.Addr().String() })
	options := h.options(fmt.Sprintf("start%d", h.starts), h.output)
	options.Probes, options.Status = probes, status
	ctx, cancel := context.WithCancel(context.Background())
	h.stop, h.ended = cancel, make(chan struct{})
	go func(ended chan struct{}) {
		defer close(ended)
		r := runner.New(options, podKube{h.world, h.name}, h.logger(h.output))
		r.Hurry()
		r.Run(ctx)
	}(h.ended)
	return options.Incarnation
}

// options are an agent's on the host.
func (h *host) options(incarnation string, log io.Writer) runner.Options {
	return runner.Options{
		Cluster: cluster, Instance: h.name, Namespace: namespace,
		Volume: pg.Volume{Root: h.path("data")}, RunDir: h.path("run"), Listen: "127.0.0.1", Port: h.port,
		ServerTLS:         pg.Keys{Source: h.path("server"), Dir: h.path("run", "server")},
		ClientTLS:         h.clientKeys(),
		SuperuserPassword: h.path("superuser", "password"), AppPassword: h.path("app", "password"),
		Sentinel:        []string{"/proc/self/exe", "sentinel", h.pgdata()},
		ShutdownTimeout: 20 * time.Second, Incarnation: incarnation, AgentVersion: "test", Log: log,
		PeerAddress: h.world.agentAddress,
	}
}

// halt stops the agent as the kubelet does, and waits for its end.
func (h *host) halt() {
	h.t.Helper()
	if h.stop == nil {
		return
	}
	h.stop()
	select {
	case <-h.ended:
	case <-time.After(30 * time.Second):
		h.t.Errorf("agent of %s does not stop", h.name)
	}
	h.stop = nil
}

// sql runs a statement as the superuser through the Unix socket, and returns its first value as text.
func (h *host) sql(database, statement string) (string, error) {
	ctx, cancel := context.WithTimeout(h.t.Context(), 10*time.Second)
	defer cancel()
	conn, err := pg.Server{RunDir: h.path("run"), Port: h.port}.Connect(ctx, database)
	if err != nil {
		return "", err
	}
	defer func() { _ = conn.Close(context.Background()) }()
	return first(ctx, conn, statement)
}

func first(ctx context.Context, conn *pgx.Conn, statement string) (string, error) {
	rows, err := conn.Query(ctx, statement, pgx.QueryExecModeSimpleProtocol)
	if err != nil {
		return "", err
	}
	defer rows.Close()
	value := ""
	if rows.Next() {
		value = string(rows.RawValues()[0])
	}
	rows.Close()
	return value, rows.Err()
}

func (h *host) mustSQL(database, statement string) string {
	h.t.Helper()
	value, err := h.sql(database, statement)
	if err != nil {
		h.t.Fatalf("%s on %s: %v", statement, h.name, err)
	}
	return value
}

// login connects over the network as the application does.
func (h *host) login(user, password, sslmode string) error {
	ctx, cancel := context.WithTimeout(h.t.Context(), 10*time.Second)
	defer cancel()
	conn, err := pgx.Connect(ctx, fmt.Sprintf("host=127.0.0.1 port=%d user=%s password='%s' dbname=app sslmode=%s sslrootcert=%s",
		h.port, user, password, sslmode, h.path("server", "ca.crt")))
	if err != nil {
		return err
	}
	return conn.Close(ctx)
}

// eventually asks again and again until the answer is yes.
func eventually(t *testing.T, within time.Duration, what string, ask func() bool) {
	t.Helper()
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	ctx, cancel := context.WithTimeout(t.Context(), within)
	defer cancel()
	for !ask() {
		select {
		case <-tick.C:
		case <-ctx.Done():
			t.Fatalf("waited %s for: %s", within, what)
		}
	}
}

// get asks for a status, with a client certificate or none.
func (h *host) get(url, certificates string) (int, string, error) {
	config := &tls.Config{RootCAs: h.authority.Pool(), MinVersion: tls.VersionTLS13}
	if certificates != "" {
		pair, err := tls.LoadX509KeyPair(filepath.Join(certificates, "tls.crt"), filepath.Join(certificates, "tls.key"))
		if err != nil {
			return 0, "", err
		}
		config.Certificates = []tls.Certificate{pair}
	}
	client := &http.Client{Transport: &http.Transport{TLSClientConfig: config, DisableKeepAlives: true}, Timeout: 5 * time.Second}
	response, err := client.Get(url)
	if err != nil {
		return 0, "", err
	}
	defer func() { _ = response.Body.Close() }()
	body, err := io.ReadAll(response.Body)
	return response.StatusCode, string(body), err
}

// config is what the operator would render.
func config(major string, members int32, user map[string]string) contract.Config {
	settings, hba := postgres.Settings(major, user), postgres.HBA(major, nil)
	c := contract.Config{
		Cluster: string(cluster), Namespace: namespace, Version: major, LeaseDurationSeconds: 3,
		Parameters: settings, HBA: hba, SettingsHash: postgres.SettingsHash(settings, hba),
	}
	for ordinal := range members {
		c.Members = append(c.Members, cluster.Instance(ordinal))
	}
	return c
}

type syncBuffer struct {
	mu     sync.Mutex
	buffer bytes.Buffer
}

func (b *syncBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buffer.Write(p)
}

func (b *syncBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buffer.String()
}
