package load

// This file stands in for kube-proxy: it balances the connections to a Service.

import (
	"bytes"
	"crypto/tls"
	"encoding/binary"
	"errors"
	"io"
	"math/rand/v2"
	"net"
	"slices"
	"sync"
	"sync/atomic"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
)

// Balancer spreads new connections over replicas, as kube-proxy does for a Service: each goes to one that is picked at
// random. Connections that stand are left alone when a replica is removed.
type Balancer struct {
	listener net.Listener

	mu        sync.Mutex
	endpoints []string
	standing  map[string]int // connections, by endpoint

	Handshakes atomic.Int64 // connections that began a TLS handshake
	Resumed    atomic.Int64 // those that wanted to resume a session, and so would not look at a certificate
	Unserved   atomic.Int64 // those that found no replica
}

// NewBalancer listens at an address until the spec ends.
func NewBalancer(address string) *Balancer {
	GinkgoHelper()
	listener, err := net.Listen("tcp", address)
	Expect(err).NotTo(HaveOccurred())
	DeferCleanup(listener.Close)
	b := &Balancer{listener: listener, standing: map[string]int{}}
	go func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			go b.forward(conn.(*net.TCPConn))
		}
	}()
	return b
}

// Port is where the balancer listens.
func (b *Balancer) Port() int32 { return int32(b.listener.Addr().(*net.TCPAddr).Port) }

// Lead changes the endpoints. No connection to one that is gone begins after it.
func (b *Balancer) Lead(change func(endpoints []string) []string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.endpoints = change(b.endpoints)
}

// Add adds an endpoint.
func (b *Balancer) Add(endpoint string) {
	b.Lead(func(all []string) []string { return append(all, endpoint) })
}

// Remove removes an endpoint.
func (b *Balancer) Remove(endpoint string) {
	b.Lead(func(all []string) []string {
		return slices.DeleteFunc(all, func(e string) bool { return e == endpoint })
	})
}

// Standing is how many connections to an endpoint there are.
func (b *Balancer) Standing(endpoint string) int {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.standing[endpoint]
}

func (b *Balancer) dial() (conn *net.TCPConn, closed func(), err error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if len(b.endpoints) == 0 {
		return nil, nil, errors.New("no endpoints")
	}
	endpoint := b.endpoints[rand.IntN(len(b.endpoints))]
	dialled, err := net.Dial("tcp", endpoint)
	if err != nil {
		return nil, nil, err
	}
	b.standing[endpoint]++
	return dialled.(*net.TCPConn), func() {
		_ = dialled.Close()
		b.mu.Lock()
		defer b.mu.Unlock()
		b.standing[endpoint]--
	}, nil
}

func (b *Balancer) forward(from *net.TCPConn) {
	defer from.Close()
	hello, resumes, err := readHello(from)
	if err != nil {
		return // no handshake: the client has gone
	}
	b.Handshakes.Add(1)
	if resumes {
		b.Resumed.Add(1)
	}
	to, closed, err := b.dial()
	if err != nil {
		b.Unserved.Add(1)
		return // the API server reports the call
	}
	defer closed()
	if _, err := to.Write(hello); err != nil {
		return
	}
	var both sync.WaitGroup
	both.Go(func() { pipe(to, from) })
	both.Go(func() { pipe(from, to) })
	both.Wait()
}

// pipe copies until from ends, and passes the end on.
func pipe(to, from *net.TCPConn) {
	_, _ = io.Copy(to, from)
	_ = to.CloseWrite()
}

// readHello reads the first TLS record. resumes says that its client wants to resume a session.
func readHello(r io.Reader) (record []byte, resumes bool, err error) {
	record = make([]byte, 5)
	if _, err := io.ReadFull(r, record); err != nil {
		return nil, false, err
	}
	record = append(record, make([]byte, binary.BigEndian.Uint16(record[3:]))...)
	if _, err := io.ReadFull(r, record[5:]); err != nil {
		return nil, false, err
	}
	const preSharedKey = 41
	_ = tls.Server(recorded{Reader: bytes.NewReader(record)}, &tls.Config{
		GetConfigForClient: func(hello *tls.ClientHelloInfo) (*tls.Config, error) {
			resumes = slices.Contains(hello.Extensions, preSharedKey)
			return nil, errors.New("seen enough")
		},
	}).Handshake()
	return record, resumes, nil
}

// recorded is a connection that has been recorded. Answers are thrown away.
type recorded struct {
	net.Conn
	io.Reader
}

func (r recorded) Read(b []byte) (int, error)  { return r.Reader.Read(b) }
func (r recorded) Write(b []byte) (int, error) { return len(b), nil }
