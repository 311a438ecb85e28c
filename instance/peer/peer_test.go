package peer_test

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"net"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/acme/pg-operator/apis/naming"
	"github.com/acme/pg-operator/instance/contract"
	"github.com/acme/pg-operator/instance/election"
	"github.com/acme/pg-operator/instance/peer"
	"github.com/acme/pg-operator/instance/server"
	"github.com/acme/pg-operator/test/authority"
)

const (
	self, other = "orders-db-0", "orders-db-1"
	wildcard    = "*.orders-db.shop.svc"
)

func serverName(instance string) string {
	return naming.Cluster("orders-db").InstanceHost(instance, "shop")
}

// agent is a peer that grants everything, unless it hangs.
type agent struct {
	name string
	// hang, if not nil, holds up votes until it is closed.
	hang  chan struct{}
	votes atomic.Int32
	beat  atomic.Int32
	hint  atomic.Int32
}

func (a *agent) Status() contract.Status { return contract.Status{Instance: a.name} }

func (a *agent) Heartbeat(from string, promised int32) contract.Heartbeat {
	if from == self {
		a.beat.Store(promised)
	}
	return contract.Heartbeat{Instance: a.name, Term: 3, Leading: true, Healthy: true}
}

func (a *agent) Vote(ctx context.Context, request election.VoteRequest) election.Vote {
	a.votes.Add(1)
	if a.hang != nil {
		select {
		case <-a.hang:
		case <-ctx.Done():
		}
	}
	return election.Vote{Instance: a.name, Granted: true, SystemID: request.SystemID, Promised: request.Term, Received: 1<<53 + 1}
}

func (a *agent) Promise(_ context.Context, request election.HoldRequest) election.HoldAnswer {
	return election.HoldAnswer{Instance: a.name, Granted: request.Duration == 10*time.Second}
}

func (a *agent) Hint(_ context.Context, hint contract.Hint) { a.hint.Store(hint.Term) }

// identities is an identity that a test may change.
type identities struct {
	mu    sync.Mutex
	name  string
	shown tls.Certificate
	pool  *x509.CertPool
}

func newIdentity(a *authority.Authority, name string, hosts ...string) *identities {
	i := &identities{name: name}
	i.renew(a, hosts...)
	return i
}

func (i *identities) renew(a *authority.Authority, hosts ...string) {
	i.mu.Lock()
	defer i.mu.Unlock()
	i.shown = a.Issue(i.name, func(c *x509.Certificate) { c.DNSNames, c.IPAddresses = hosts, nil })
	i.pool = a.Pool()
}

func (i *identities) get() (tls.Certificate, *x509.CertPool, error) {
	i.mu.Lock()
	defer i.mu.Unlock()
	return i.shown, i.pool, nil
}

// counter counts the connections that a listener accepted.
type counter struct {
	net.Listener
	accepted atomic.Int32
}

func (c *counter) Accept() (net.Conn, error) {
	conn, err := c.Listener.Accept()
	if err == nil {
		c.accepted.Add(1)
	}
	return conn, err
}

// serve runs an agent's server until the test ends, or stop is called.
func serve(t testing.TB, address string, identity *identities, a *agent) (listener *counter, stop func()) {
	t.Helper()
	l, err := net.Listen("tcp", address)
	if err != nil {
		t.Fatal(err)
	}
	listener = &counter{Listener: l}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- server.ServePeers(ctx, listener, identity.get, a) }()
	stop = sync.OnceFunc(func() {
		cancel()
		if err := <-ended; err != nil {
			t.Errorf("the server ended with %v", err)
		}
	})
	t.Cleanup(stop)
	return listener, stop
}

func newClient(t testing.TB, identity *identities, address func(string) string) *peer.Client {
	t.Helper()
	client := peer.New(peer.Options{Identity: identity.get, ServerName: serverName, Address: address})
	t.Cleanup(client.Close)
	return client
}

func at(listener net.Listener) func(string) string {
	return func(string) string { return listener.Addr().String() }
}

// TestCalls: all questions arrive, in one connection.
func TestCalls(t *testing.T) {
	ours := authority.New(t)
	a := &agent{name: other}
	listener, _ := serve(t, "127.0.0.1:0", newIdentity(ours, other, wildcard), a)
	client := newClient(t, newIdentity(ours, naming.UserReplication), at(listener))

	vote, err := client.Vote(t.Context(), other, election.VoteRequest{Candidate: self, SystemID: "7", Term: 3})
	if err != nil || !vote.Granted || vote.SystemID != "7" || vote.Promised != 3 || vote.Received != 1<<53+1 {
		t.Errorf("vote: %+v %v", vote, err)
	}
	hold, err := client.Promise(t.Context(), other, election.HoldRequest{Holder: self, Term: 3, Duration: 10 * time.Second})
	if err != nil || !hold.Granted {
		t.Errorf("promise: %+v %v", hold, err)
	}
	beat, err := client.Heartbeat(t.Context(), other, self, 2)
	if err != nil || !beat.Leading || beat.Term != 3 || a.beat.Load() != 2 {
		t.Errorf("heartbeat: %+v %v", beat, err)
	}
	if err := client.Hint(t.Context(), other, 4); err != nil || a.hint.Load() != 4 {
		t.Errorf("hint: %v, term %d", err, a.hint.Load())
	}
	if n := listener.accepted.Load(); n != 1 {
		t.Errorf("%d connections for four calls", n)
	}
}

// TestOtherCluster: an agent with another authority's certificate is refused, whichever side it is on.
func TestOtherCluster(t *testing.T) {
	ours, foreign := authority.New(t), authority.New(t)
	a := &agent{name: other}
	listener, _ := serve(t, "127.0.0.1:0", newIdentity(ours, other, wildcard), a)
	mixed := newIdentity(foreign, naming.UserReplication)
	mixed.pool = ours.Pool()
	client := newClient(t, mixed, at(listener))
	_, err := client.Vote(t.Context(), other, election.VoteRequest{Candidate: self})
	if err == nil || !strings.Contains(err.Error(), "403") || !strings.Contains(err.Error(), "another authority") {
		t.Errorf("a foreign client is told: %v", err)
	}
	client = newClient(t, newIdentity(foreign, naming.UserReplication), at(listener))
	var unknown x509.UnknownAuthorityError
	if _, err = client.Vote(t.Context(), other, election.VoteRequest{Candidate: self}); !errors.As(err, &unknown) {
		t.Errorf("a foreign server is asked: %v", err)
	}
	if a.votes.Load() != 0 {
		t.Error("a vote was asked for")
	}
}

// TestWrongServer: who has a certificate of another name, or answers for another instance, is not believed.
func TestWrongServer(t *testing.T) {
	ours := authority.New(t)
	identity := newIdentity(ours, naming.UserReplication)
	listener, _ := serve(t, "127.0.0.1:0", newIdentity(ours, other, "*.billing-db.shop.svc"), &agent{name: other})
	var name x509.HostnameError
	if _, err := newClient(t, identity, at(listener)).Heartbeat(t.Context(), other, self, 0); !errors.As(err, &name) {
		t.Errorf("another cluster's name: %v", err)
	}
	listener, _ = serve(t, "127.0.0.1:0", newIdentity(ours, other, wildcard), &agent{name: "orders-db-2"})
	client := newClient(t, identity, at(listener))
	if _, err := client.Heartbeat(t.Context(), other, self, 0); err == nil || !strings.Contains(err.Error(), `"orders-db-2" answered`) {
		t.Errorf("another instance's heartbeat: %v", err)
	}
	if _, err := client.Vote(t.Context(), other, election.VoteRequest{}); err == nil {
		t.Error("another instance's vote counts")
	}
	if _, err := client.Promise(t.Context(), other, election.HoldRequest{}); err == nil {
		t.Error("another instance's promise counts")
	}
}

// TestRenewal: after a renewal of certificates and authority both sides go on, with the new ones.
func TestRenewal(t *testing.T) {
	first, second := authority.New(t), authority.New(t)
	server, client := newIdentity(first, other, wildcard), newIdentity(first, naming.UserReplication)
	listener, _ := serve(t, "127.0.0.1:0", server, &agent{name: other})
	c := newClient(t, client, at(listener))
	beat := func() error {
		_, err := c.Heartbeat(t.Context(), other, self, 0)
		return err
	}
	if err := beat(); err != nil {
		t.Fatal(err)
	}
	client.renew(first)
	if err := beat(); err != nil || listener.accepted.Load() != 2 {
		t.Errorf("with a renewed certificate: %v, %d connections", err, listener.accepted.Load())
	}
	server.renew(second, wildcard)
	if err := beat(); err == nil {
		t.Error("the old authority's certificate is answered")
	}
	client.renew(second)
	if err := beat(); err != nil {
		t.Errorf("with the new authority: %v", err)
	}
}

// TestWithoutNames: an instance that answered once is found though its name leads nowhere any more, and one that moved
// is found by its name.
func TestWithoutNames(t *testing.T) {
	ours := authority.New(t)
	var address atomic.Pointer[string]
	set := func(text string) { address.Store(&text) }
	client := newClient(t, newIdentity(ours, naming.UserReplication), func(string) string { return *address.Load() })
	ask := func() error {
		_, err := client.Heartbeat(t.Context(), other, self, 0)
		return err
	}
	listener, stop := serve(t, "127.0.0.1:0", newIdentity(ours, other, wildcard), &agent{name: other})
	set(listener.Addr().String())
	if err := ask(); err != nil {
		t.Fatal(err)
	}
	client.Close()
	if set("no-such-name.invalid:8443"); ask() == nil {
		t.Error("an address that was given up is used")
	}
	set(listener.Addr().String())
	if err := ask(); err != nil {
		t.Fatal(err)
	}
	stop()
	if err := ask(); err == nil {
		t.Fatal("nobody listens, but somebody answers")
	}
	set("no-such-name.invalid:8443")
	again, stopAgain := serve(t, listener.Addr().String(), newIdentity(ours, other, wildcard), &agent{name: other})
	if err := ask(); err != nil || again.accepted.Load() != 1 {
		t.Errorf("without names: %v, %d connections", err, again.accepted.Load())
	}
	stopAgain()
	moved, _ := serve(t, "127.0.0.1:0", newIdentity(ours, other, wildcard), &agent{name: other})
	set(moved.Addr().String())
	if err := ask(); err != nil || moved.accepted.Load() != 1 {
		t.Errorf("after it moved: %v, %d connections", err, moved.accepted.Load())
	}
}

// TestSilence: who does not answer is given up in time, and does not hold up the next call.
func TestSilence(t *testing.T) {
	ours := authority.New(t)
	a := &agent{name: other, hang: make(chan struct{})}
	listener, _ := serve(t, "127.0.0.1:0", newIdentity(ours, other, wildcard), a)
	client := newClient(t, newIdentity(ours, naming.UserReplication), at(listener))
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	if _, err := client.Vote(ctx, other, election.VoteRequest{}); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("silence is %v", err)
	}
	close(a.hang)
	if _, err := client.Vote(t.Context(), other, election.VoteRequest{}); err != nil {
		t.Errorf("after silence: %v", err)
	}
	// The caller sets no limit: a host that takes connections, and says nothing.
	silent, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = silent.Close() })
	if _, err := newClient(t, newIdentity(ours, naming.UserReplication), at(silent)).Heartbeat(t.Context(), other, self, 0); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("a silent host is %v", err)
	}
}

// TestBadAnswers: what is no answer is an error, however it is sent.
func TestBadAnswers(t *testing.T) {
	ours := authority.New(t)
	identity := newIdentity(ours, other, wildcard)
	certificate, _, _ := identity.get()
	var reply atomic.Pointer[http.HandlerFunc]
	listener, err := tls.Listen("tcp", "127.0.0.1:0", &tls.Config{MinVersion: tls.VersionTLS13, Certificates: []tls.Certificate{certificate}})
	if err != nil {
		t.Fatal(err)
	}
	s := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { (*reply.Load())(w, r) }), ReadHeaderTimeout: time.Minute}
	ended := make(chan error, 1)
	go func() { ended <- s.Serve(listener) }()
	t.Cleanup(func() {
		if err := s.Close(); err != nil || !errors.Is(<-ended, http.ErrServerClosed) {
			t.Error(err)
		}
	})
	client := newClient(t, newIdentity(ours, naming.UserReplication), at(listener))
	for name, handler := range map[string]http.HandlerFunc{
		"no JSON": func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte("yes")) },
		"too long": func(w http.ResponseWriter, _ *http.Request) {
			_, _ = w.Write([]byte(`{"instance":"` + strings.Repeat("x", 1<<20) + `"}`))
		},
		"a redirect":  func(w http.ResponseWriter, r *http.Request) { http.Redirect(w, r, "/v1/heartbeat", http.StatusFound) },
		"cut off":     func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) },
		"no instance": func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte(`{"leading":true}`)) },
		"a refusal": func(w http.ResponseWriter, _ *http.Request) {
			http.Error(w, strings.Repeat("no ", 1000), http.StatusTeapot)
		},
	} {
		t.Run(name, func(t *testing.T) {
			reply.Store(&handler)
			if beat, err := client.Heartbeat(t.Context(), other, self, 0); err == nil || len(err.Error()) > 400 {
				t.Errorf("%+v %v", beat, err)
			}
		})
	}
}

// BenchmarkHeartbeat is what one answered heartbeat costs both sides together, over TLS.
func BenchmarkHeartbeat(b *testing.B) {
	ours := authority.New(b)
	listener, _ := serve(b, "127.0.0.1:0", newIdentity(ours, other, wildcard), &agent{name: other})
	client := newClient(b, newIdentity(ours, naming.UserReplication), at(listener))
	for b.Loop() {
		if _, err := client.Heartbeat(b.Context(), other, self, 0); err != nil {
			b.Fatal(err)
		}
	}
}
