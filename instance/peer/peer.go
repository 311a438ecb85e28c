// Package peer asks the other agents of a cluster.
package peer

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/acme/pg-operator/instance/contract"
	"github.com/acme/pg-operator/instance/election"
)

// How long an answer is waited for, unless the caller's context ends earlier. A voter takes up to a second to detach.
const (
	voteTimeout      = 2 * time.Second
	promiseTimeout   = time.Second
	hintTimeout      = time.Second
	heartbeatTimeout = time.Second
)

// maxAnswer is how much of an answer is read, in bytes.
const maxAnswer = 64 << 10

// Identity is the certificate to show, and the authority that the peers' certificates must come from. The same values
// are returned until they change.
type Identity func() (tls.Certificate, *x509.CertPool, error)

// Options say how peers are reached.
type Options struct {
	Identity Identity
	// ServerName is the name in an instance's certificate.
	ServerName func(instance string) string
	// Address is where its agent listens, as host:port.
	Address func(instance string) string
}

// Client asks peers. It keeps a connection to each open, and may be used by several goroutines.
type Client struct {
	options Options

	mu    sync.Mutex
	peers map[string]*connections
}

// New makes a client.
func New(options Options) *Client { return &Client{options: options, peers: map[string]*connections{}} }

// Vote asks an instance for its vote.
func (c *Client) Vote(ctx context.Context, instance string, request election.VoteRequest) (election.Vote, error) {
	var vote election.Vote
	err := c.post(ctx, voteTimeout, instance, contract.PathVote, request, &vote)
	return vote, c.checked(instance, vote.Instance, err)
}

// Promise asks an instance not to challenge the holder of the Lease for a while.
func (c *Client) Promise(ctx context.Context, instance string, request election.HoldRequest) (election.HoldAnswer, error) {
	var answer election.HoldAnswer
	err := c.post(ctx, promiseTimeout, instance, contract.PathPromise, request, &answer)
	return answer, c.checked(instance, answer.Instance, err)
}

// Hint tells an instance that the Lease is worth a look.
func (c *Client) Hint(ctx context.Context, instance string, term int32) error {
	return c.post(ctx, hintTimeout, instance, contract.PathHint, contract.Hint{Term: term}, &struct{}{})
}

// Heartbeat asks an instance how it does, and tells it what the instance from, which asks, has promised.
func (c *Client) Heartbeat(ctx context.Context, instance, from string, promised int32) (contract.Heartbeat, error) {
	query := url.Values{contract.QueryFrom: {from}, contract.QueryPromised: {strconv.Itoa(int(promised))}}
	var beat contract.Heartbeat
	err := c.call(ctx, heartbeatTimeout, instance, http.MethodGet, contract.PathHeartbeat+"?"+query.Encode(), nil, &beat)
	return beat, c.checked(instance, beat.Instance, err)
}

// Close closes all connections that are not in use.
func (c *Client) Close() {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, peer := range c.peers {
		peer.forget()
	}
}

// checked fails if somebody else answered: an address may have gone to another instance, and all have one certificate.
func (c *Client) checked(asked, answered string, err error) error {
	if err == nil && asked != answered {
		c.peer(asked).forget()
		return fmt.Errorf("%s was asked, but %q answered", asked, answered)
	}
	return err
}

func (c *Client) post(ctx context.Context, limit time.Duration, instance, path string, question, answer any) error {
	body, err := json.Marshal(question)
	if err != nil {
		return err
	}
	return c.call(ctx, limit, instance, http.MethodPost, path, body, answer)
}

// call asks once.
func (c *Client) call(ctx context.Context, limit time.Duration, instance, method, path string, body []byte, answer any) error {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	certificate, authority, err := c.options.Identity()
	if err != nil {
		return err
	}
	peer := c.peer(instance)
	peer.renew(certificate, authority)
	request, err := http.NewRequestWithContext(ctx, method, "https://"+c.options.Address(instance)+path, bytes.NewReader(body))
	if err != nil {
		return err
	}
	if method == http.MethodPost {
		request.Header.Set("Content-Type", "application/json")
		// To ask twice does no harm: if the kept connection was closed meanwhile, the transport asks in a new one.
		request.Header["Idempotency-Key"] = nil
	}
	response, err := peer.transport.RoundTrip(request)
	if err != nil {
		// What else is open to a host that vanished is as dead, and would be tried first.
		peer.transport.CloseIdleConnections()
		return unreachable(instance, err)
	}
	content, err := io.ReadAll(io.LimitReader(response.Body, maxAnswer))
	if err = errors.Join(err, response.Body.Close()); err != nil {
		return unreachable(instance, err)
	}
	if response.StatusCode != http.StatusOK {
		return fmt.Errorf("%s refuses: %s: %s", instance, response.Status, firstLine(content))
	}
	if err = json.Unmarshal(content, answer); err != nil {
		return fmt.Errorf("the answer of %s is not understood: %w", instance, err)
	}
	return nil
}

func unreachable(instance string, err error) error {
	if errors.Is(err, context.DeadlineExceeded) {
		err = context.DeadlineExceeded
	}
	return fmt.Errorf("%s does not answer: %w", instance, err)
}

// firstLine is what of a refusal is told, however much was sent.
func firstLine(content []byte) string {
	line, _, _ := strings.Cut(string(content), "\n")
	const most = 200
	if len(line) > most {
		line = line[:most]
	}
	return strings.ToValidUTF8(line, "")
}

func (c *Client) peer(instance string) *connections {
	c.mu.Lock()
	defer c.mu.Unlock()
	peer := c.peers[instance]
	if peer == nil {
		peer = newConnections(func() string { return c.options.ServerName(instance) }, c.options.Identity)
		c.peers[instance] = peer
	}
	return peer
}
