package balancing_test

// This file holds other programs, which take an address that a replica gave up.

import (
	"bytes"
	"context"
	"crypto/tls"
	"io"
	"log"
	"net"
	"net/http"
	"sync/atomic"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	. "code.cloudfoundry.org/eirinix/internal/spectest"
	"code.cloudfoundry.org/eirinix/testing/internal/load"
)

// intruder is another program. It counts all that it receives.
type intruder struct {
	net.Listener
	connections atomic.Int64
	requests    atomic.Int64 // of HTTP, or connections whose bytes hold the words of an admission request
}

// host is the name that replicas have certificates for.
func (p *program) host() string { return load.ServiceName + "." + p.name + ".svc" }

// intrude runs another program at an endpoint, as soon as that is free, until the spec ends. It has a foreign certificate
// for the host, or no TLS.
func intrude(ctx context.Context, endpoint string, withTLS bool, host string) *intruder {
	GinkgoHelper()
	i := &intruder{}
	Eventually(func() (err error) {
		i.Listener, err = net.Listen("tcp", endpoint)
		return err
	}).WithContext(ctx).WithPolling(time.Millisecond).Should(Succeed())
	DeferCleanup(i.Listener.Close)
	if !withTLS {
		go i.listen()
		return i
	}
	certificate, key := Issue(NewCA(time.Hour, time.Now()), ForServer(host))
	server := &http.Server{
		TLSConfig: &tls.Config{Certificates: []tls.Certificate{Must(tls.X509KeyPair(certificate, key))}},
		ErrorLog:  log.New(io.Discard, "", 0), // its clients refuse its certificate
		Handler:   http.HandlerFunc(func(http.ResponseWriter, *http.Request) { i.requests.Add(1) }),
	}
	go func() { _ = server.ServeTLS(i, "", "") }()
	return i
}

// listen reads the first bytes of each connection, and closes it.
func (i *intruder) listen() {
	for {
		conn, err := i.Accept()
		if err != nil {
			return
		}
		first := make([]byte, 64<<10)
		n, _ := conn.Read(first)
		if bytes.Contains(first[:n], []byte("AdmissionReview")) || bytes.Contains(first[:n], []byte("POST")) {
			i.requests.Add(1)
		}
		_ = conn.Close()
	}
}

// Accept implements net.Listener.
func (i *intruder) Accept() (net.Conn, error) {
	conn, err := i.Listener.Accept()
	if err == nil {
		i.connections.Add(1)
	}
	return conn, err
}

// expectNothing sees that no connection came, and then that one would have been counted.
func (i *intruder) expectNothing(ctx context.Context) {
	GinkgoHelper()
	Expect(i.connections.Load()).To(BeZero(), "connections to the program that took %s", i.Addr())
	conn := Must((&net.Dialer{}).DialContext(ctx, "tcp", i.Addr().String()))
	defer conn.Close()
	Eventually(i.connections.Load).WithContext(ctx).Should(BeEquivalentTo(1))
}
