package server

import (
	"context"
	"crypto/tls"
	"errors"
	"io"
	"net"
	"net/http"
	"sync/atomic"
	"testing"
	"time"

	"github.com/acme/pg-operator/apis/naming"
	"github.com/acme/pg-operator/instance/contract"
	"github.com/acme/pg-operator/test/authority"
)

// ended tells whether the other side closes a connection within a time; it may say something before.
func ended(t *testing.T, conn net.Conn, within time.Duration) bool {
	t.Helper()
	if err := conn.SetReadDeadline(time.Now().Add(within)); err != nil {
		t.Fatal(err)
	}
	_, err := io.Copy(io.Discard, conn)
	late, ok := errors.AsType[net.Error](err)
	return !ok || !late.Timeout()
}

// TestFlood: one client that opens all it can takes nobody's place but its own, and whoever only begins to speak is not
// waited for.
func TestFlood(t *testing.T) {
	t.Parallel()
	ours := authority.New(t)
	p := servePeers(t, ours, fixed(ours.Issue("server"), ours)).as(ours.Issue(naming.UserReplication))
	flood := &net.Dialer{LocalAddr: &net.TCPAddr{IP: net.IPv4(127, 0, 0, 2)}}
	dial := func() net.Conn {
		conn, err := flood.DialContext(t.Context(), "tcp", p.address)
		if err != nil {
			t.Skipf("no second address of this machine: %v", err)
		}
		t.Cleanup(func() { _ = conn.Close() })
		return conn
	}
	var held []net.Conn
	for range maxPerClient {
		held = append(held, dial())
	}
	for range 3 * maxPerClient {
		if conn := dial(); !ended(t, conn, 3*time.Second) {
			t.Fatal("a client has more connections than it may")
		}
	}
	p.want(contract.PathStatus, "", http.StatusOK, "")

	slow := tls.Client(held[0], &tls.Config{RootCAs: ours.Pool(), ServerName: "127.0.0.1", MinVersion: tls.VersionTLS13})
	if _, err := io.WriteString(slow, "GET "+contract.PathStatus+" HTTP/1.1\r\n"); err != nil {
		t.Fatal(err)
	}
	if !ended(t, slow, 2*readTimeout) {
		t.Error("who does not finish a request is waited for")
	}
	if !ended(t, held[1], 2*readTimeout) {
		t.Error("who says nothing is waited for")
	}
	again := tls.Client(dial(), &tls.Config{RootCAs: ours.Pool(), ServerName: "127.0.0.1", MinVersion: tls.VersionTLS13})
	if err := again.HandshakeContext(t.Context()); err != nil {
		t.Errorf("after others ended: %v", err)
	}
}

// endless is a body that goes on for ever.
type endless struct{ read atomic.Int64 }

func (e *endless) Read(p []byte) (int, error) {
	e.read.Add(int64(len(p)))
	return len(p), nil
}

// TestEndlessBody: nobody's body is read for longer than the longest that is understood, whoever it is.
func TestEndlessBody(t *testing.T) {
	ours := authority.New(t)
	p := servePeers(t, ours, fixed(ours.Issue("server"), ours))
	for name, test := range map[string]struct {
		certificates []tls.Certificate
		code         int
	}{
		"nobody": {nil, http.StatusUnauthorized},
		"a peer": {[]tls.Certificate{ours.Issue(naming.UserReplication)}, http.StatusRequestEntityTooLarge},
	} {
		body := &endless{}
		ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
		defer cancel()
		request, err := http.NewRequestWithContext(ctx, http.MethodPost, "https://"+p.address+contract.PathVote, body)
		if err != nil {
			t.Fatal(err)
		}
		request.Header.Set("Content-Type", "application/json")
		response, err := p.as(test.certificates...).client.Do(request)
		// The connection may be closed before the client looks for an answer.
		if err == nil && response.StatusCode != test.code {
			t.Errorf("%s: %d, want %d", name, response.StatusCode, test.code)
		}
		if err == nil {
			_ = response.Body.Close()
		}
		const buffers = 16 << 20 // What lies in the kernel's and the client's.
		if sent := body.read.Load(); ctx.Err() != nil || sent > buffers {
			t.Errorf("%s: sent %d bytes", name, sent)
		}
	}
	if asked := p.member.asked.Load(); asked != 0 {
		t.Errorf("the agent was asked %d times", asked)
	}
}
