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
)

// intruder is another program. It counts all that it receives.
type intruder struct {
	address     string
	connections atomic.Int64
	requests    atomic.Int64 // of HTTP, or connections whose bytes hold the words of an admission request
}

// intrude runs another program at an address, as soon as the address is free, until the spec ends. It has a foreign
// certificate for the name of the Service, or no TLS.
func intrude(ctx context.Context, address string, withTLS bool, serverName string) *intruder {
	GinkgoHelper()
	i := &intruder{address: address}
	var listener net.Listener
	Eventually(func() (err error) {
		listener, err = net.Listen("tcp", endpointAt(address))
		return err
	}).WithContext(ctx).WithPolling(time.Millisecond).Should(Succeed())
	counted := counting{listener, &i.connections}
	if !withTLS {
		DeferCleanup(counted.Close)
		go i.listen(counted)
		return i
	}
	certificate, key := Issue(NewCA(time.Hour, time.Now()), ForServer(serverName))
	server := &http.Server{
		TLSConfig: &tls.Config{Certificates: []tls.Certificate{Must(tls.X509KeyPair(certificate, key))}},
		ErrorLog:  log.New(io.Discard, "", 0), // its clients refuse its certificate
		Handler: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			i.requests.Add(1)
		}),
	}
	DeferCleanup(server.Close)
	go func() { _ = server.ServeTLS(counted, "", "") }()
	return i
}

// listen reads the first bytes of each connection, and closes it.
func (i *intruder) listen(listener net.Listener) {
	for {
		conn, err := listener.Accept()
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

// expectNothing sees that no connection came, and then that one would have been counted.
func (i *intruder) expectNothing(ctx context.Context) {
	GinkgoHelper()
	Expect(i.connections.Load()).To(BeZero(), "connections to the program that took %s", i.address)
	conn := Must((&net.Dialer{}).DialContext(ctx, "tcp", endpointAt(i.address)))
	defer conn.Close()
	Eventually(i.connections.Load).WithContext(ctx).Should(BeEquivalentTo(1))
}

// counting counts the connections that a listener accepts.
type counting struct {
	net.Listener
	connections *atomic.Int64
}

func (c counting) Accept() (net.Conn, error) {
	conn, err := c.Listener.Accept()
	if err == nil {
		c.connections.Add(1)
	}
	return conn, err
}
