package inforce_test

// This file stands in for kube-proxy: it balances the connections to the replicas.

import (
	"io"
	"math/rand/v2"
	"net"
	"slices"
	"sync"

	. "github.com/onsi/ginkgo/v2"

	. "code.cloudfoundry.org/eirinix/internal/spectest"
)

// balancer gives each new connection to a replica that is picked at random. Connections that stand are left alone.
type balancer struct {
	listener net.Listener

	mu        sync.Mutex
	endpoints []string
}

// newBalancer runs a balancer until the spec ends.
func newBalancer() *balancer {
	GinkgoHelper()
	b := &balancer{listener: Must(net.Listen("tcp", "127.0.0.1:0"))}
	DeferCleanup(b.listener.Close)
	go func() {
		for {
			conn, err := b.listener.Accept()
			if err != nil {
				return
			}
			go b.forward(conn.(*net.TCPConn))
		}
	}()
	return b
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

// dial connects to a replica. Once a replica has been removed, no connection to it begins.
func (b *balancer) dial() *net.TCPConn {
	b.mu.Lock()
	defer b.mu.Unlock()
	if len(b.endpoints) == 0 {
		return nil
	}
	conn, err := net.Dial("tcp", b.endpoints[rand.IntN(len(b.endpoints))])
	if err != nil {
		return nil
	}
	return conn.(*net.TCPConn)
}

// forward connects both ends. Without a replica it closes the connection, and the API server reports the call.
func (b *balancer) forward(from *net.TCPConn) {
	defer from.Close()
	to := b.dial()
	if to == nil {
		return
	}
	defer to.Close()
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
