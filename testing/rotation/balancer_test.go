package rotation_test

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
)

// balancer spreads new connections over replicas, as kube-proxy does for a Service: each goes to one that is picked at
// random. Connections that stand are left alone when a replica is removed.
type balancer struct {
	listener net.Listener

	mu        sync.Mutex
	endpoints []string
	open      map[string]int // connections that stand, by endpoint
	random    *rand.Rand

	handshakes atomic.Int64 // connections that began a TLS handshake
	resumed    atomic.Int64 // those that wanted to resume a session, and so would not look at a certificate
	unserved   atomic.Int64 // those that found no replica
}

func newBalancer() (*balancer, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	b := &balancer{listener: l, open: map[string]int{}, random: rand.New(rand.NewPCG(uint64(GinkgoRandomSeed()), 0))}
	go b.serve()
	return b, nil
}

func (b *balancer) port() int32 { return int32(b.listener.Addr().(*net.TCPAddr).Port) }

func (b *balancer) add(endpoint string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.endpoints = append(b.endpoints, endpoint)
}

func (b *balancer) remove(endpoint string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.endpoints = slices.DeleteFunc(b.endpoints, func(e string) bool { return e == endpoint })
}

// dial connects to one of the replicas. Once a replica has been removed, no connection to it begins.
func (b *balancer) dial() (conn *net.TCPConn, closed func(), err error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if len(b.endpoints) == 0 {
		return nil, nil, errors.New("no endpoints")
	}
	endpoint := b.endpoints[b.random.IntN(len(b.endpoints))]
	dialled, err := net.Dial("tcp", endpoint)
	if err != nil {
		return nil, nil, err
	}
	b.open[endpoint]++
	return dialled.(*net.TCPConn), func() {
		_ = dialled.Close()
		b.mu.Lock()
		defer b.mu.Unlock()
		b.open[endpoint]--
	}, nil
}

// standing is how many connections to an endpoint there are.
func (b *balancer) standing(endpoint string) int {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.open[endpoint]
}

func (b *balancer) serve() {
	for {
		conn, err := b.listener.Accept()
		if err != nil {
			return
		}
		go b.forward(conn.(*net.TCPConn))
	}
}

func (b *balancer) forward(from *net.TCPConn) {
	defer from.Close()
	first, resumes, err := readHello(from)
	if err != nil {
		return // no handshake: the client has gone
	}
	b.handshakes.Add(1)
	if resumes {
		b.resumed.Add(1)
	}
	to, closed, err := b.dial()
	if err != nil {
		b.unserved.Add(1)
		return
	}
	defer closed()
	if _, err := to.Write(first); err != nil {
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
func (r recorded) Close() error                { return nil }
