package manager

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/http"
	"sync"
)

// service plays kube-proxy: the API server asks it by HTTP CONNECT for whatever lies in the cluster, and gets one of
// the backends.
type service struct {
	listener net.Listener
	path     string

	mu       sync.Mutex
	backends []string
	next     int
}

func listen(path string) (*service, error) {
	listener, err := net.Listen("unix", path)
	if err != nil {
		return nil, err
	}
	s := &service{listener: listener, path: path}
	go s.accept()
	return s, nil
}

func (s *service) close() { _ = s.listener.Close() }

// egressConfiguration sends the API server's traffic into the cluster, and no other, through the tunnel.
func (s *service) egressConfiguration() string {
	return fmt.Sprintf(`apiVersion: apiserver.k8s.io/v1beta1
kind: EgressSelectorConfiguration
egressSelections:
  - name: cluster
    connection:
      proxyProtocol: HTTPConnect
      transport: {uds: {udsName: %q}}
  - name: controlplane
    connection: {proxyProtocol: Direct}
  - name: etcd
    connection: {proxyProtocol: Direct}
`, s.path)
}

func (s *service) add(address string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.backends = append(s.backends, address)
}

func (s *service) remove(address string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	kept := s.backends[:0]
	for _, backend := range s.backends {
		if backend != address {
			kept = append(kept, backend)
		}
	}
	s.backends = kept
}

// dial reaches the backends in turn.
func (s *service) dial() (net.Conn, error) {
	s.mu.Lock()
	if len(s.backends) == 0 {
		s.mu.Unlock()
		return nil, fmt.Errorf("no backend")
	}
	s.next++
	address := s.backends[s.next%len(s.backends)]
	s.mu.Unlock()
	return net.Dial("tcp", address)
}

func (s *service) accept() {
	for {
		conn, err := s.listener.Accept()
		if err != nil {
			return
		}
		go s.serve(conn)
	}
}

func (s *service) serve(client net.Conn) {
	defer client.Close()
	reader := bufio.NewReader(client)
	request, err := http.ReadRequest(reader)
	if err != nil || request.Method != http.MethodConnect {
		return
	}
	backend, err := s.dial()
	if err != nil {
		_, _ = io.WriteString(client, "HTTP/1.1 503 Service Unavailable\r\n\r\n")
		return
	}
	defer backend.Close()
	if _, err := io.WriteString(client, "HTTP/1.1 200 OK\r\n\r\n"); err != nil {
		return
	}
	done := make(chan struct{}, 2)
	pipe := func(to, from net.Conn, buffered io.Reader) {
		_, _ = io.Copy(to, buffered)
		_ = to.Close()
		_ = from.Close()
		done <- struct{}{}
	}
	go pipe(backend, client, reader)
	go pipe(client, backend, backend)
	<-done
	<-done
}
