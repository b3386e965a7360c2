package serving

// This file finds a port, checks that this process answers on it, explains failures, and compares addresses.

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"net/netip"
	"strconv"
	"syscall"
	"time"
)

// awaitAnswer returns when our own certificate answers on the port, or the server has failed.
func (s *Server) awaitAnswer(ctx context.Context) error {
	// The server listens within a millisecond, so the first probe can be too early. Each tick that is missed delays the
	// start.
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	for {
		err := s.probe(ctx)
		if err == nil {
			return nil
		}
		select {
		case <-s.done:
			if s.err == nil {
				return errors.New("the webhook server ended at once")
			}
			return s.err
		case <-ctx.Done():
			return fmt.Errorf("the webhook server does not answer: %w (%w)", context.Cause(ctx), err)
		case <-tick.C:
		}
	}
}

// probe performs one handshake with the port and checks that this process answers. Package net dials this machine if
// the host is unspecified, or none is named.
func (s *Server) probe(ctx context.Context) error {
	own, err := s.GetCertificate(&tls.ClientHelloInfo{})
	if err != nil {
		return err
	}
	dialer := tls.Dialer{
		NetDialer: &net.Dialer{Timeout: time.Second},
		Config: &tls.Config{
			MinVersion:         tls.VersionTLS12,
			InsecureSkipVerify: true, // compared byte by byte with our own instead
			VerifyPeerCertificate: func(raw [][]byte, _ [][]*x509.Certificate) error {
				if len(raw) == 0 || string(raw[0]) != string(own.Certificate[0]) {
					return errors.New("another process answers on the port")
				}
				return nil
			},
		},
	}
	conn, err := dialer.DialContext(ctx, "tcp", net.JoinHostPort(s.Host, strconv.Itoa(s.port)))
	if err != nil {
		return err
	}
	return conn.Close()
}

// freePort returns a port that is free at this moment, chosen by the system.
func freePort(host string) (int, error) {
	l, err := net.Listen("tcp", net.JoinHostPort(host, "0"))
	if err != nil {
		return 0, err
	}
	port := l.Addr().(*net.TCPAddr).Port
	return port, l.Close()
}

// listenError adds the remedy to an error about a port that cannot be used.
func listenError(host string, port int, err error) error {
	address := net.JoinHostPort(host, strconv.Itoa(port))
	switch {
	case errors.Is(err, syscall.EADDRINUSE):
		return fmt.Errorf("cannot listen on %s, another process has that port; stop it, or set ManagerOptions.Port or ListenAddress to another (port 0 in ListenAddress picks a free one): %w", address, err)
	case errors.Is(err, fs.ErrPermission):
		return fmt.Errorf("cannot listen on %s, ports below 1024 need a privilege; set ManagerOptions.ListenAddress to a higher port, or grant CAP_NET_BIND_SERVICE: %w", address, err)
	case errors.Is(err, syscall.EADDRNOTAVAIL):
		return fmt.Errorf("cannot listen on %s, this machine has no such address; where Host is a load balancer's address, set ManagerOptions.ListenAddress to \"0.0.0.0:%d\": %w", address, port, err)
	}
	return fmt.Errorf("cannot serve on %s: %w", address, err)
}

// BindPort returns the port of a listen address that other machines can reach. It returns 0 for an address that they
// cannot reach, or that is switched off.
func BindPort(address string) int32 {
	host, service, _ := net.SplitHostPort(address)
	port, err := strconv.ParseUint(service, 10, 16)
	if err != nil || !EveryAddress(host) {
		return 0
	}
	return int32(port)
}

// EveryAddress reports whether listening on a host means listening on all addresses.
func EveryAddress(host string) bool {
	ip, err := netip.ParseAddr(host)
	return host == "" || err == nil && ip.IsUnspecified()
}

// Collide reports whether one process cannot listen on both addresses, because they have the same port on the same
// interface or on all.
func Collide(a, b string) bool {
	hostA, portA, errA := net.SplitHostPort(a)
	hostB, portB, errB := net.SplitHostPort(b)
	return errA == nil && errB == nil && portA == portB && portA != "0" && (hostA == hostB || EveryAddress(hostA) || EveryAddress(hostB))
}
