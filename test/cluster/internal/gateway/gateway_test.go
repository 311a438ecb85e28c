package gateway

import (
	"context"
	"io"
	"net"
	"syscall"
	"testing"

	"golang.org/x/net/proxy"
)

func TestSOCKSReachesAnEchoServer(t *testing.T) {
	echo := listen(t)
	serve(t, echo, func(_ context.Context, c net.Conn) { _, _ = io.Copy(c, c) })
	socks := listen(t)
	asked := make(chan string, 2)
	serve(t, socks, SOCKS(func(ctx context.Context, address string) (net.Conn, error) {
		asked <- address
		return (&net.Dialer{}).DialContext(ctx, "tcp", echo.Addr().String())
	}))
	dialer, err := proxy.SOCKS5("tcp", socks.Addr().String(), nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	for _, address := range []string{"10.96.3.4:5432", "orders-db-rw.shop.svc:5432"} {
		connection, err := dialer.Dial("tcp", address)
		if err != nil {
			t.Fatal(err)
		}
		if got := <-asked; got != address {
			t.Errorf("dialled %q, want %q", got, address)
		}
		if _, err = connection.Write([]byte("hello")); err != nil {
			t.Fatal(err)
		}
		if err = connection.(interface{ CloseWrite() error }).CloseWrite(); err != nil {
			t.Fatal(err)
		}
		answer, err := io.ReadAll(connection)
		if err != nil || string(answer) != "hello" {
			t.Errorf("answer %q, %v", answer, err)
		}
	}
}

func TestSOCKSReportsARefusedConnection(t *testing.T) {
	closed := listen(t)
	address := closed.Addr().String()
	if err := closed.Close(); err != nil {
		t.Fatal(err)
	}
	socks := listen(t)
	serve(t, socks, SOCKS(func(ctx context.Context, address string) (net.Conn, error) {
		return (&net.Dialer{}).DialContext(ctx, "tcp", address)
	}))
	dialer, err := proxy.SOCKS5("tcp", socks.Addr().String(), nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := dialer.Dial("tcp", address); err == nil {
		t.Error("want an error")
	}
}

// TestServeSurvivesAConnectionThatItCannotAccept: the gateway is the way of all tests.
func TestServeSurvivesAConnectionThatItCannotAccept(t *testing.T) {
	echo := listen(t)
	serve(t, &failing{Listener: echo}, func(_ context.Context, c net.Conn) { _, _ = io.Copy(c, c) })
	connection, err := net.Dial("tcp", echo.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer connection.Close()
	if _, err = connection.Write([]byte("x")); err != nil {
		t.Fatal(err)
	}
	if _, err = io.ReadFull(connection, make([]byte, 1)); err != nil {
		t.Errorf("no answer: %v", err)
	}
}

// failing does not accept the first connection.
type failing struct {
	net.Listener
	failed bool
}

func (l *failing) Accept() (net.Conn, error) {
	if !l.failed {
		l.failed = true
		return nil, syscall.EMFILE
	}
	return l.Listener.Accept()
}

func TestQualify(t *testing.T) {
	for name, want := range map[string]string{
		"db-rw.shop.svc":                "db-rw.shop.svc.cluster.local.",
		"db-rw.shop.svc.cluster.local":  "db-rw.shop.svc.cluster.local.",
		"db-rw.shop.svc.cluster.local.": "db-rw.shop.svc.cluster.local.",
	} {
		if got := qualify(name); got != want {
			t.Errorf("qualify(%q) = %q, want %q", name, got, want)
		}
	}
}

func serve(t *testing.T, listener net.Listener, handle func(context.Context, net.Conn)) {
	t.Helper()
	go func() {
		if err := Serve(t.Context(), listener, handle); err != nil {
			t.Error(err)
		}
	}()
}

func listen(t *testing.T) net.Listener {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = listener.Close() })
	return listener
}
