package gateway

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"strconv"
	"syscall"
	"time"
)

// Codes of RFC 1928.
const (
	socksVersion = 5

	methodNone         = 0x00
	methodUnacceptable = 0xff

	commandConnect = 1

	addressIPv4 = 1
	addressName = 3
	addressIPv6 = 4

	replySucceeded           = 0
	replyFailure             = 1
	replyHostUnreachable     = 4
	replyRefused             = 5
	replyCommandUnsupported  = 7
	replyAddressTypeUnknown  = 8
	handshakeLimit           = 10 * time.Second
	socksReplyAddressIgnored = "\x01\x00\x00\x00\x00\x00\x00"
)

// SOCKS handles connections as a SOCKS5 server (RFC 1928) that knows CONNECT
// and asks for no authentication: it listens on loopback only.
func SOCKS(dial func(ctx context.Context, address string) (net.Conn, error)) func(context.Context, net.Conn) {
	return func(ctx context.Context, client net.Conn) {
		_ = client.SetDeadline(time.Now().Add(handshakeLimit))
		address, reply, err := handshake(client)
		if err != nil {
			if reply != replySucceeded {
				_ = sendReply(client, reply)
			}
			return
		}
		_ = client.SetDeadline(time.Time{})
		server, err := dial(ctx, address)
		if err != nil {
			_ = sendReply(client, replyTo(err))
			return
		}
		if sendReply(client, replySucceeded) != nil {
			_ = server.Close()
			return
		}
		join(client, server)
	}
}

// handshake reads the greeting and the request. With an error it returns the
// reply to send, or replySucceeded when none can be sent.
func handshake(client io.ReadWriter) (address string, reply byte, err error) {
	head := make([]byte, 2)
	if _, err = io.ReadFull(client, head); err != nil {
		return "", replySucceeded, err
	}
	methods := make([]byte, head[1])
	if _, err = io.ReadFull(client, methods); err != nil {
		return "", replySucceeded, err
	}
	method := byte(methodUnacceptable)
	for _, offered := range methods {
		if offered == methodNone {
			method = methodNone
		}
	}
	if head[0] != socksVersion {
		return "", replySucceeded, fmt.Errorf("SOCKS version %d, want 5", head[0])
	}
	if _, err = client.Write([]byte{socksVersion, method}); err != nil {
		return "", replySucceeded, err
	}
	if method == methodUnacceptable {
		return "", replySucceeded, errors.New("the client insists on authentication")
	}
	request := make([]byte, 4)
	if _, err = io.ReadFull(client, request); err != nil {
		return "", replySucceeded, err
	}
	host, reply, err := readHost(client, request[3])
	if err != nil {
		return "", reply, err
	}
	port := make([]byte, 2)
	if _, err := io.ReadFull(client, port); err != nil {
		return "", replySucceeded, err
	}
	if request[1] != commandConnect {
		return "", replyCommandUnsupported, fmt.Errorf("SOCKS command %d, want CONNECT", request[1])
	}
	return net.JoinHostPort(host, strconv.Itoa(int(binary.BigEndian.Uint16(port)))), replySucceeded, nil
}

func readHost(client io.Reader, kind byte) (host string, reply byte, err error) {
	var length int
	switch kind {
	case addressIPv4:
		length = net.IPv4len
	case addressIPv6:
		length = net.IPv6len
	case addressName:
		size := make([]byte, 1)
		if _, err := io.ReadFull(client, size); err != nil {
			return "", replySucceeded, err
		}
		length = int(size[0])
	default:
		return "", replyAddressTypeUnknown, fmt.Errorf("SOCKS address type %d", kind)
	}
	data := make([]byte, length)
	if _, err := io.ReadFull(client, data); err != nil {
		return "", replySucceeded, err
	}
	if kind == addressName {
		return string(data), replySucceeded, nil
	}
	return net.IP(data).String(), replySucceeded, nil
}

func sendReply(client io.Writer, reply byte) error {
	_, err := client.Write(append([]byte{socksVersion, reply, 0}, socksReplyAddressIgnored...))
	return err
}

func replyTo(err error) byte {
	switch {
	case errors.Is(err, syscall.ECONNREFUSED):
		return replyRefused
	case errors.Is(err, syscall.EHOSTUNREACH), errors.Is(err, context.DeadlineExceeded):
		return replyHostUnreachable
	}
	return replyFailure
}
