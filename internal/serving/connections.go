package serving

// This file bounds what clients that never finish a request can take up.

import (
	"errors"
	"net"
	"sync"
	"syscall"
	"time"

	"github.com/go-logr/logr"
)

const (
	// mostConnections is more than the API servers of one cluster ever open. An idle one takes some 30 KB.
	mostConnections = 1000

	// mostHeaderBytes is for the header of one request. An API server sends less than 1 KB.
	mostHeaderBytes = 32 << 10
)

var errAllBusy = errors.New("every connection that there may be has a request in flight; come again")

// connections knows which connections are open. When there are too many, one has to go for each that comes: the one that
// has waited longest for its first request, or else the one that has been idle longest. So a client that holds on to
// connections loses them to one that uses its own. It is safe for concurrent use.
//
// controller-runtime's server makes its listener itself, so a connection is counted from its TLS handshake on; before that
// it takes little, and net/http ends it after 32 s.
type connections struct {
	most int
	log  logr.Logger
	rarely

	mu   sync.Mutex
	open map[string]*connection // by the client's address; closed ones stay until there is need for their place
}

type connection struct {
	net.Conn
	since time.Time // of the handshake, or of the end of the latest request
	used  bool      // it has had a request
	busy  int       // requests in flight
}

// admit takes a connection in.
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
	if withheld, ok := c.pass(); ok {
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

// isClosed asks the connection itself: net/http does not report the end of one.
func (x *connection) isClosed() bool {
	system, ok := x.Conn.(syscall.Conn)
	if !ok {
		return false
	}
	raw, err := system.SyscallConn()
	return err != nil || raw.Control(func(uintptr) {}) != nil
}

// begin notes that a request has come from an address; end, that it has been answered.
func (c *connections) begin(address string) {
	c.count(address, 1)
}

func (c *connections) end(address string) {
	c.count(address, -1)
}

func (c *connections) count(address string, requests int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if x := c.open[address]; x != nil {
		x.busy += requests
		x.used, x.since = true, time.Now()
	}
}
