package serving

// This file limits the resources that clients can hold without ever finishing a request.

import (
	"errors"
	"net"
	"sync"
	"syscall"
	"time"

	"github.com/go-logr/logr"

	"code.cloudfoundry.org/eirinix/internal/lograte"
)

const (
	// mostConnections is more than the API servers of one cluster ever open. An idle connection takes about 30 KB.
	mostConnections = 1000

	// mostHeaderBytes limits the header of one request. An API server sends less than 1 KB.
	mostHeaderBytes = 32 << 10
)

var errAllBusy = errors.New("every connection that there may be has a request in flight; try again later")

// connections tracks the open connections. When the limit is reached, each new one replaces another. The one that has
// waited longest for its first request goes first, then the one that has been idle longest. So a client that only holds
// connections loses them to one that uses its own. It is safe for concurrent use.
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
	since time.Time // of the handshake, or of the latest start or end of a request
	used  bool      // it has had a request
	busy  int       // requests in flight
}

// admit adds a connection. If the limit is reached and every connection has a request in flight, it fails.
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
	c.open[conn.RemoteAddr().String()] = &connection{Conn: conn, since: time.Now()}
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
		if x.busy == 0 && (least == nil || x.isLessUsefulThan(least)) {
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
	if x.used != other.used {
		return !x.used
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

// count adds to the requests in flight from an address: 1 when one has arrived, and -1 when it was answered.
func (c *connections) count(address string, requests int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if x := c.open[address]; x != nil {
		x.busy += requests
		x.used, x.since = true, time.Now()
	}
}

// closeUnused closes the connections that have had no request. API servers open such connections when many calls begin
// at once. When net/http shuts down, it closes them only once they are 5 s old, and drops each request that arrives on
// them before that.
func (c *connections) closeUnused() {
	c.mu.Lock()
	defer c.mu.Unlock()
	for address, x := range c.open {
		if !x.used {
			delete(c.open, address)
			_ = x.Close() // an error means that it is closed already
		}
	}
}
