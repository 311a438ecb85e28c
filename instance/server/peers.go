package server

import (
	"context"
	"crypto/tls"
	stdjson "encoding/json"
	"errors"
	"fmt"
	"io"
	"mime"
	"net"
	"net/http"
	"strconv"
	"time"

	"sigs.k8s.io/json"

	"github.com/acme/pg-operator/instance/contract"
	"github.com/acme/pg-operator/instance/election"
)

// Peer is what an agent answers to the other agents of its cluster. Refusals are part of the answers.
type Peer interface {
	// Status is the agent's report, with log positions.
	Status() contract.Status
	// Heartbeat tells how the instance does. The asking instance promised never to stream from the given term again.
	Heartbeat(from string, promised int32) contract.Heartbeat
	// Vote answers a candidate, before ctx ends.
	Vote(ctx context.Context, request election.VoteRequest) election.Vote
	// Promise answers a holder that cannot renew the Lease.
	Promise(ctx context.Context, request election.HoldRequest) election.HoldAnswer
	// Hint says that the Lease is worth a look.
	Hint(ctx context.Context, hint contract.Hint)
}

// Limits of peers' requests.
const (
	// maxBody is how long a request's body may be, in bytes; the longest one has a few hundred.
	maxBody = 4 << 10
	// answerTimeout is how long an answer may take; whoever asks waits for less.
	answerTimeout = 3 * time.Second
)

// ServePeers answers peers on the listener until ctx ends.
func ServePeers(ctx context.Context, listener net.Listener, identity Identity, peer Peer) error {
	mux := http.NewServeMux()
	mux.HandleFunc("GET "+contract.PathStatus, func(w http.ResponseWriter, _ *http.Request) { answer(w, peer.Status()) })
	mux.HandleFunc("GET "+contract.PathHeartbeat, func(w http.ResponseWriter, r *http.Request) { heartbeat(w, r, peer) })
	mux.HandleFunc("POST "+contract.PathVote, ask(peer.Vote))
	mux.HandleFunc("POST "+contract.PathPromise, ask(peer.Promise))
	mux.HandleFunc("POST "+contract.PathHint, ask(func(ctx context.Context, hint contract.Hint) struct{} {
		peer.Hint(ctx, hint)
		return struct{}{}
	}))
	return serve(ctx, &http.Server{Handler: onlyPeers(identity, mux), ConnContext: withAdmission}, tls.NewListener(limit(listener), tlsConfig(identity)))
}

func heartbeat(w http.ResponseWriter, r *http.Request, peer Peer) {
	query := r.URL.Query()
	promised, err := strconv.ParseInt(query.Get(contract.QueryPromised), 10, 32)
	if err != nil || promised < 0 {
		http.Error(w, fmt.Sprintf("%s has to be a term of the Lease", contract.QueryPromised), http.StatusBadRequest)
		return
	}
	answer(w, peer.Heartbeat(query.Get(contract.QueryFrom), int32(promised)))
}

// ask reads a question, and writes what do answers.
func ask[Question, Answer any](do func(context.Context, Question) Answer) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		var question Question
		if code, err := read(w, r, &question); err != nil {
			http.Error(w, err.Error(), code)
			return
		}
		ctx, cancel := context.WithTimeout(r.Context(), answerTimeout)
		defer cancel()
		answer(w, do(ctx, question))
	}
}

// read reads a request's body, which must be what is expected and nothing else: a word that is not known could change
// what is promised. Who needs more to be understood asks at another path.
func read(w http.ResponseWriter, r *http.Request, into any) (code int, err error) {
	if kind, _, unread := mime.ParseMediaType(r.Header.Get("Content-Type")); unread != nil || kind != "application/json" {
		return http.StatusUnsupportedMediaType, errors.New("the body has to be application/json")
	}
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, maxBody))
	if long, ok := errors.AsType[*http.MaxBytesError](err); ok {
		return http.StatusRequestEntityTooLarge, fmt.Errorf("the body may have %d bytes", long.Limit)
	}
	if err != nil {
		return http.StatusBadRequest, errors.New("the body cannot be read")
	}
	problems, err := json.UnmarshalStrict(body, into)
	if err = errors.Join(append(problems, err)...); err != nil {
		return http.StatusBadRequest, fmt.Errorf("the body is not understood: %w", err)
	}
	return http.StatusOK, nil
}

func answer(w http.ResponseWriter, content any) {
	w.Header().Set("Content-Type", "application/json")
	// The client has gone if this fails.
	_ = stdjson.NewEncoder(w).Encode(content)
}
