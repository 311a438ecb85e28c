package server

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"io"
	"net"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/acme/pg-operator/apis/naming"
	"github.com/acme/pg-operator/instance/contract"
	"github.com/acme/pg-operator/instance/election"
	"github.com/acme/pg-operator/test/authority"
)

// member is a peer that grants everything, and notes what it was asked.
type member struct {
	vote     election.VoteRequest
	hold     election.HoldRequest
	hint     contract.Hint
	from     string
	promised int32
	asked    atomic.Int32
}

func (m *member) Status() contract.Status {
	m.asked.Add(1)
	return contract.Status{Instance: "orders-db-0", Written: "0/1"}
}

func (m *member) Heartbeat(from string, promised int32) contract.Heartbeat {
	m.asked.Add(1)
	m.from, m.promised = from, promised
	return contract.Heartbeat{Instance: "orders-db-0", Term: 7, Leading: true}
}

func (m *member) Vote(ctx context.Context, request election.VoteRequest) election.Vote {
	m.asked.Add(1)
	m.vote = request
	_, bounded := ctx.Deadline()
	return election.Vote{Instance: "orders-db-0", Granted: bounded, Received: 1<<63 + 1}
}

func (m *member) Promise(_ context.Context, request election.HoldRequest) election.HoldAnswer {
	m.asked.Add(1)
	m.hold = request
	return election.HoldAnswer{Instance: "orders-db-0", Granted: true}
}

func (m *member) Hint(_ context.Context, hint contract.Hint) {
	m.asked.Add(1)
	m.hint = hint
}

// peers is a server, and how to ask it.
type peers struct {
	t       *testing.T
	member  *member
	address string
	trust   *authority.Authority
	client  http.Client
}

func servePeers(t *testing.T, trust *authority.Authority, identity Identity) *peers {
	p := &peers{t: t, member: &member{}, trust: trust}
	p.address = start(t, func(ctx context.Context, l net.Listener) error { return ServePeers(ctx, l, identity, p.member) })
	return p
}

// as has the next questions asked in a new connection with a client certificate, or none.
func (p *peers) as(certificates ...tls.Certificate) *peers {
	config := &tls.Config{RootCAs: p.trust.Pool(), Certificates: certificates, MinVersion: tls.VersionTLS12}
	transport := &http.Transport{TLSClientConfig: config}
	p.t.Cleanup(transport.CloseIdleConnections)
	p.client = http.Client{Transport: transport, Timeout: 5 * time.Second}
	return p
}

// ask asks, and returns the answer; a body makes it a POST.
func (p *peers) ask(path, body string) (int, string) {
	p.t.Helper()
	request, err := http.NewRequestWithContext(p.t.Context(), http.MethodGet, "https://"+p.address+path, nil)
	if body != "" {
		request, err = http.NewRequestWithContext(p.t.Context(), http.MethodPost, "https://"+p.address+path, strings.NewReader(body))
	}
	if err != nil {
		p.t.Fatal(err)
	}
	if body != "" {
		request.Header.Set("Content-Type", "application/json")
	}
	response, err := p.client.Do(request)
	if err != nil {
		p.t.Fatalf("%s: %v", path, err)
	}
	content, err := io.ReadAll(response.Body)
	if err = errors.Join(err, response.Body.Close()); err != nil {
		p.t.Fatal(err)
	}
	return response.StatusCode, string(content)
}

func (p *peers) want(path, body string, code int, text string) {
	p.t.Helper()
	if got, answer := p.ask(path, body); got != code || !strings.Contains(answer, text) {
		p.t.Errorf("%s: %d %s, want %d with %q", path, got, answer, code, text)
	}
}

func fixed(certificate tls.Certificate, a *authority.Authority) Identity {
	pool := a.Pool()
	return func() (tls.Certificate, *x509.CertPool, error) { return certificate, pool, nil }
}

// TestAdmission: only the cluster's own replication certificate is answered, and all others are told why they are not.
func TestAdmission(t *testing.T) {
	ours, foreign := authority.New(t), authority.New(t)
	p := servePeers(t, ours, fixed(ours.Issue("server"), ours))
	usage := func(usages ...x509.ExtKeyUsage) func(*x509.Certificate) {
		return func(c *x509.Certificate) { c.ExtKeyUsage = usages }
	}
	valid := func(from, to time.Duration) func(*x509.Certificate) {
		return func(c *x509.Certificate) { c.NotBefore, c.NotAfter = time.Now().Add(from), time.Now().Add(to) }
	}
	tests := map[string]struct {
		certificates []tls.Certificate
		code         int
		text         string
	}{
		"a peer":                  {[]tls.Certificate{ours.Issue(naming.UserReplication)}, http.StatusOK, `"0/1"`},
		"nobody":                  {nil, http.StatusUnauthorized, "show the cluster's replication certificate"},
		"another cluster's peer":  {[]tls.Certificate{foreign.Issue(naming.UserReplication)}, http.StatusForbidden, "another authority"},
		"a forger":                {[]tls.Certificate{authority.SelfSigned(t, naming.UserReplication)}, http.StatusForbidden, "another authority"},
		"an application":          {[]tls.Certificate{ours.Issue("app")}, http.StatusForbidden, "does not belong to an instance"},
		"somebody without a name": {[]tls.Certificate{ours.Issue("")}, http.StatusForbidden, "does not belong to an instance"},
		"the operator":            {[]tls.Certificate{ours.Issue("pg-operator")}, http.StatusForbidden, "does not belong to an instance"},
		"one that expired": {
			[]tls.Certificate{ours.Issue(naming.UserReplication, valid(-2*time.Hour, -time.Hour))}, http.StatusForbidden, "expired",
		},
		"one of tomorrow": {
			[]tls.Certificate{ours.Issue(naming.UserReplication, valid(time.Hour, 2*time.Hour))}, http.StatusForbidden, "not valid yet",
		},
		"a server": {
			[]tls.Certificate{ours.Issue(naming.UserReplication, usage(x509.ExtKeyUsageServerAuth))}, http.StatusForbidden, "not one for clients",
		},
		"one for anything": {[]tls.Certificate{ours.Issue(naming.UserReplication, usage())}, http.StatusForbidden, "not one for clients"},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			p.t = t
			before := p.member.asked.Load()
			p.as(test.certificates...).want(contract.PathStatus, "", test.code, test.text)
			for path, body := range map[string]string{
				contract.PathVote: `{"candidate":"orders-db-1"}`, contract.PathPromise: `{"holder":"orders-db-1"}`, contract.PathHint: `{"term":1}`,
				contract.PathHeartbeat + "?from=orders-db-1&promised=0": "",
			} {
				p.want(path, body, test.code, "")
			}
			if asked := p.member.asked.Load() - before; (test.code == http.StatusOK) != (asked == 5) || test.code != http.StatusOK && asked != 0 {
				t.Errorf("the agent was asked %d times", asked)
			}
		})
	}
}

// TestHandshake: nothing older than TLS 1.3 is spoken, and no session is resumed.
func TestHandshake(t *testing.T) {
	ours := authority.New(t)
	p := servePeers(t, ours, fixed(ours.Issue("server"), ours))
	config := &tls.Config{
		RootCAs: ours.Pool(), Certificates: []tls.Certificate{ours.Issue(naming.UserReplication)}, ServerName: "127.0.0.1",
		MinVersion: tls.VersionTLS12, MaxVersion: tls.VersionTLS12,
	}
	if conn, err := tls.Dial("tcp", p.address, config); err == nil {
		_ = conn.Close()
		t.Error("speaks TLS 1.2")
	}
	config.MaxVersion, config.ClientSessionCache = tls.VersionTLS13, tls.NewLRUClientSessionCache(1)
	for range 2 {
		p.client = http.Client{Transport: &http.Transport{TLSClientConfig: config, DisableKeepAlives: true}, Timeout: 5 * time.Second}
		response, err := p.client.Get("https://" + p.address + contract.PathStatus)
		if err != nil {
			t.Fatal(err)
		}
		if response.TLS.DidResume || response.StatusCode != http.StatusOK {
			t.Errorf("resumed: %v, %d", response.TLS.DidResume, response.StatusCode)
		}
		if err := response.Body.Close(); err != nil {
			t.Error(err)
		}
	}
}

// TestNewAuthority: a connection that is open already does not outlive the authority that its certificate came from.
func TestNewAuthority(t *testing.T) {
	ours, renewed := authority.New(t), authority.New(t)
	var current atomic.Pointer[Identity]
	before, after := fixed(ours.Issue("server"), ours), fixed(renewed.Issue("server"), renewed)
	current.Store(&before)
	p := servePeers(t, ours, func() (tls.Certificate, *x509.CertPool, error) { return (*current.Load())() })
	p.as(ours.Issue(naming.UserReplication)).want(contract.PathStatus, "", http.StatusOK, "")
	current.Store(&after)
	p.want(contract.PathStatus, "", http.StatusForbidden, "another authority")
	p.trust = renewed
	p.as(renewed.Issue(naming.UserReplication)).want(contract.PathStatus, "", http.StatusOK, "")

	none := Identity(func() (tls.Certificate, *x509.CertPool, error) { return tls.Certificate{}, nil, errors.New("gone") })
	current.Store(&none)
	p.want(contract.PathStatus, "", http.StatusServiceUnavailable, "cannot be read")
}

// TestExpiry: a certificate that was good when the connection began is judged again once it expired.
func TestExpiry(t *testing.T) {
	ours := authority.New(t)
	leaf := ours.Issue(naming.UserReplication).Leaf
	r := &http.Request{TLS: &tls.ConnectionState{PeerCertificates: []*x509.Certificate{leaf}}}
	r = r.WithContext(withAdmission(t.Context(), nil))
	identity := fixed(ours.Issue("server"), ours)
	for _, step := range []struct {
		now  time.Time
		code int
	}{{time.Now(), http.StatusOK}, {leaf.NotAfter.Add(-time.Second), http.StatusOK}, {leaf.NotAfter.Add(time.Second), http.StatusForbidden}} {
		if code, why := admit(r, identity, step.now); code != step.code {
			t.Errorf("at %s: %d %s, want %d", step.now, code, why, step.code)
		}
	}
}

// TestQuestions: what is asked arrives as it was meant, and what is not understood is refused.
func TestQuestions(t *testing.T) {
	ours := authority.New(t)
	p := servePeers(t, ours, fixed(ours.Issue("server"), ours)).as(ours.Issue(naming.UserReplication))
	vote := election.VoteRequest{Candidate: "orders-db-1", SystemID: "7", Term: 3, Free: true}
	hold := election.HoldRequest{Holder: "orders-db-1", Term: 3, Duration: 10 * time.Second}
	post := func(path string, question any) {
		body, err := json.Marshal(question)
		if err != nil {
			t.Fatal(err)
		}
		p.want(path, string(body), http.StatusOK, "")
	}
	post(contract.PathVote, vote)
	post(contract.PathPromise, hold)
	post(contract.PathHint, contract.Hint{Term: 4})
	p.want(contract.PathHeartbeat+"?from=orders-db-2&promised=5", "", http.StatusOK, `"leading":true`)
	if m := p.member; m.vote != vote || m.hold != hold || m.hint.Term != 4 || m.from != "orders-db-2" || m.promised != 5 {
		t.Errorf("what arrived is %+v", p.member)
	}
	var answered election.Vote
	if _, text := p.ask(contract.PathVote, `{}`); json.Unmarshal([]byte(text), &answered) != nil ||
		!answered.Granted || answered.Received != 1<<63+1 {
		t.Errorf("the vote is %s; it has to be bounded in time, and positions exact", text)
	}
	asked := p.member.asked.Load()
	for name, test := range map[string]struct {
		path, body string
		code       int
	}{
		"an unknown word":    {contract.PathVote, `{"candidate":"orders-db-1","unless":true}`, http.StatusBadRequest},
		"a word in capitals": {contract.PathVote, `{"Candidate":"orders-db-1"}`, http.StatusBadRequest},
		"a word twice":       {contract.PathVote, `{"term":1,"term":2}`, http.StatusBadRequest},
		"more after it":      {contract.PathVote, `{"term":1}{"term":2}`, http.StatusBadRequest},
		"another type":       {contract.PathVote, `{"term":"1"}`, http.StatusBadRequest},
		"a term too large":   {contract.PathVote, `{"term":2147483648}`, http.StatusBadRequest},
		"half":               {contract.PathPromise, `{"term":1`, http.StatusBadRequest},
		"too long":           {contract.PathHint, `{"term":1` + strings.Repeat(" ", maxBody) + `}`, http.StatusRequestEntityTooLarge},
		"no promise":         {contract.PathHeartbeat + "?from=orders-db-2", "", http.StatusBadRequest},
		"a promise below":    {contract.PathHeartbeat + "?from=orders-db-2&promised=-1", "", http.StatusBadRequest},
		"a vote by GET":      {contract.PathVote, "", http.StatusMethodNotAllowed},
		"another path":       {"/v2/vote", "{}", http.StatusNotFound},
	} {
		t.Run(name, func(t *testing.T) {
			p.t = t
			p.want(test.path, test.body, test.code, "")
		})
	}
	response, err := p.client.Post("https://"+p.address+contract.PathVote, "text/plain", strings.NewReader("{}"))
	if err != nil {
		t.Fatal(err)
	}
	if err := response.Body.Close(); err != nil || response.StatusCode != http.StatusUnsupportedMediaType {
		t.Errorf("text/plain: %d %v", response.StatusCode, err)
	}
	if now := p.member.asked.Load(); now != asked {
		t.Errorf("the agent was asked %d times more", now-asked)
	}
}
