package serving

// This file limits the resources that clients can hold without ever finishing a request.

import (
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"sync"
	"syscall"
	"time"

	"github.com/go-logr/logr"

	"code.cloudfoundry.org/eirinix/internal/lograte"
	"code.cloudfoundry.org/eirinix/internal/wait"
)

const (
	// maxConnections is more than the API servers of one cluster ever open. An idle connection takes about 30 KB.
	maxConnections = 1000

	// maxHeaderBytes limits the header of one request. An API server sends less than 1 KB.
	maxHeaderBytes = 32 << 10

	// firstRequest is longer than the end of a handshake takes, and the way of the request that follows it.
	firstRequest = 2 * time.Second

	// bodyRate is the number of bytes a second at which a body does not age. A link of 100 Mbit/s carries three times that.
	bodyRate = 4 << 20
)

var errAllBusy = errors.New("every connection that there may be has a request in flight; try again later")

// connections tracks the open connections. When the limit is reached, each new one replaces another: the one whose
// request has been arriving longest, or else the one that has been idle longest. A connection is busy, and stays, only
// once its request has been read whole. So clients that hold connections or trickle requests lose them to those that use
// theirs. It is safe for concurrent use.
//
// What protects an API server is the speed at which it sends. Its request is cut off only if as many others as there may
// be connections have begun meanwhile, and each byte of a body makes it younger, at bodyRate. An attacker would need that
// bandwidth on every connection. Who a client is does not count, because only programs with ClientCA know it.
//
// controller-runtime's server creates its own listener, so a connection is counted from its TLS handshake on. Before
// that it takes little, and net/http closes it after 32 s.
type connections struct {
	most int
	log  logr.Logger
	logs lograte.Limiter

	mu   sync.Mutex
	open map[string]*connection // by the client's address; closed ones stay until their place is needed
}

type connection struct {
	net.Conn
	all        *connections
	body       io.ReadCloser // of the request in flight
	since      time.Time     // of the handshake, or of the latest start or end of a request; bytes of a body move it on
	used       bool          // it has had a request
	idle, busy bool          // if neither, a request is arriving; the first one begins with the handshake
}

// admit adds a connection. If the limit is reached and every connection is busy, it fails.
func (c *connections) admit(conn net.Conn) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.open == nil {
		c.open = map[string]*connection{}
	}
	if len(c.open) >= c.most {
		if err := c.makeRoom(); err != nil {
			return err
		}
	}
	c.open[conn.RemoteAddr().String()] = &connection{Conn: conn, all: c, since: time.Now()}
	return nil
}

func (c *connections) makeRoom() error {
	var least *connection
	var address string
	for a, x := range c.open {
		if x.isClosed() {
			delete(c.open, a)
			continue
		}
		if !x.busy && (least == nil || x.isLessUsefulThan(least)) {
			least, address = x, a
		}
	}
	switch {
	case len(c.open) < c.most:
		return nil
	case least == nil:
		return errAllBusy
	}
	delete(c.open, address)
	if withheld, ok := c.logs.Allow("closed", ""); ok {
		c.log.Info("closed a connection to make room for another", "most", c.most, "from", address,
			"hadRequests", least.used, "idle", time.Since(least.since).String(), "moreSinceLast", withheld)
	}
	return least.Close()
}

func (x *connection) isLessUsefulThan(other *connection) bool {
	if x.idle != other.idle {
		return other.idle
	}
	return x.since.Before(other.since)
}

// isClosed queries the connection itself, because net/http does not report its end.
func (x *connection) isClosed() bool {
	system, ok := x.Conn.(syscall.Conn)
	if !ok {
		return false
	}
	raw, err := system.SyscallConn()
	return err != nil || raw.Control(func(uintptr) {}) != nil
}

// begin returns the connection of a request whose header has arrived, or nil if it was closed. Until end, the body of the
// request is one that notices when it has been read. HTTP/1.1 has one request at a time on a connection.
func (c *connections) begin(r *http.Request) *connection {
	c.mu.Lock()
	defer c.mu.Unlock()
	x := c.open[r.RemoteAddr]
	if x == nil {
		return nil
	}
	x.used, x.idle, x.busy, x.since, x.body = true, false, r.ContentLength == 0, time.Now(), r.Body
	if !x.busy {
		r.Body = body{x}
	}
	return x
}

// end ends a request, and gives net/http its body back. If that was not read whole, net/http can still wait for the rest.
func (x *connection) end(r *http.Request) {
	x.all.mu.Lock()
	defer x.all.mu.Unlock()
	if r.Body, x.body = x.body, nil; x.busy {
		x.idle, x.busy, x.since = true, false, time.Now()
	}
}

// body is the body of the request in flight on a connection.
type body struct{ *connection }

func (b body) Read(p []byte) (int, error) {
	n, err := b.body.Read(p)
	b.all.mu.Lock()
	defer b.all.mu.Unlock()
	b.since = b.since.Add(time.Duration(n) * time.Second / bodyRate)
	b.busy = errors.Is(err, io.EOF)
	return n, err
}

// Close does nothing, because net/http closes the body and must know how much of it was read.
func (body) Close() error { return nil }

// closeUnused closes the connections that have had no request, once none of them is young or ctx ends. API servers open
// such connections when many calls begin at once. When net/http shuts down, it closes them only once they are 5 s old, and
// drops each request that arrives on them before that.
func (c *connections) closeUnused(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, firstRequest)
	defer cancel()
	for c.arriving() && wait.Sleep(ctx, 10*time.Millisecond) == nil {
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	for address, x := range c.open {
		if !x.used {
			delete(c.open, address)
			_ = x.Close() // an error means that it is closed already
		}
	}
}

// arriving reports whether there is a connection whose first request may be on its way.
func (c *connections) arriving() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, x := range c.open {
		if !x.used && time.Since(x.since) < firstRequest && !x.isClosed() {
			return true
		}
	}
	return false
}
