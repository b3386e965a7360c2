package world

// This file is the network: addresses on which processes listen, and connections in memory between them. A write never
// blocks, as with a kernel that has room. Faults are at the reader: bytes come only when a silence is over, or a reset comes instead.

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"net/netip"
	"os"
	"sync"
	"syscall"
	"time"
)

// network connects addresses. It is safe for concurrent use.
type network struct {
	mu        sync.Mutex
	listeners map[string]*listener
	ports     uint16 // of clients, the last one
}

func newNetwork() *network { return &network{listeners: map[string]*listener{}} }

// latency is the time that a connection takes to be made.
const latency = time.Millisecond

// host is a machine with one process. Its wires can be cut, or fall silent.
type host struct {
	name string

	mu     sync.Mutex
	dead   bool          // no connection is accepted or works any more
	silent chan struct{} // closed when bytes flow again; nil while they do
	open   map[*conn]struct{}
	mux    *http.ServeMux       // of its server; nil before it listens
	since  time.Time            // when it began to listen
	opened func(*http.ServeMux) // is called when it does; nil for none
}

// serves returns the mux of the server that listens; nil if there is none.
func (h *host) serves() *http.ServeMux {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.mux
}

// listening returns when its server began to listen; zero before.
func (h *host) listening() time.Time {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.since
}

func (h *host) listens(mux *http.ServeMux) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.mux, h.since = mux, time.Now()
	if h.opened != nil && mux != nil {
		h.opened(mux)
	}
}

func newHost(name string) *host { return &host{name: name, open: map[*conn]struct{}{}} }

// silence returns a channel that is closed when bytes flow again; nil if they do.
func (h *host) silence() chan struct{} {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.silent
}

// freeze leaves everything that arrives at the host, or leaves it, on the way, until thaw.
func (h *host) freeze() {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.silent == nil {
		h.silent = make(chan struct{})
	}
}

func (h *host) thaw() {
	h.mu.Lock()
	if h.silent != nil {
		close(h.silent)
		h.silent = nil
	}
	open := h.connections()
	h.mu.Unlock()
	for _, c := range open {
		c.wake()
	}
}

// connections needs mu.
func (h *host) connections() (all []*conn) {
	for c := range h.open {
		all = append(all, c)
	}
	return all
}

// cut resets all connections of the host. With kill, there are no others from then on.
func (h *host) cut(kill bool) {
	h.mu.Lock()
	h.dead = h.dead || kill
	open := h.connections()
	h.mu.Unlock()
	for _, c := range open {
		c.reset()
	}
	if kill {
		h.thaw()
	}
}

// halve ends what the host sends on all of its connections, and leaves what it receives.
func (h *host) halve() {
	h.mu.Lock()
	open := h.connections()
	h.mu.Unlock()
	for _, c := range open {
		c.out.change(func() { c.out.ended = true })
	}
}

func (h *host) isDead() bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.dead
}

type listener struct {
	network *network
	host    *host
	address address
	backlog chan net.Conn
	closed  chan struct{}
	once    sync.Once
}

type address string

func (address) Network() string  { return "tcp" }
func (a address) String() string { return string(a) }

func refused(at string) error {
	return &net.OpError{Op: "dial", Net: "tcp", Addr: address(at), Err: os.NewSyscallError("connect", syscall.ECONNREFUSED)}
}

func (n *network) listen(h *host, at string) (net.Listener, error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.listeners[at] != nil {
		return nil, &net.OpError{Op: "listen", Net: "tcp", Addr: address(at), Err: os.NewSyscallError("bind", syscall.EADDRINUSE)}
	}
	l := &listener{network: n, host: h, address: address(at), backlog: make(chan net.Conn, 1024), closed: make(chan struct{})}
	n.listeners[at] = l
	return l, nil
}

// open reports whether a process listens there.
func (n *network) open(at string) bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.listeners[at] != nil
}

func (l *listener) Accept() (net.Conn, error) {
	select {
	case c := <-l.backlog:
		return c, nil
	case <-l.closed:
		return nil, net.ErrClosed
	}
}

func (l *listener) Addr() net.Addr { return l.address }

func (l *listener) Close() error {
	l.once.Do(func() {
		l.network.mu.Lock()
		delete(l.network.listeners, string(l.address))
		l.network.mu.Unlock()
		close(l.closed)
		for {
			select {
			case c := <-l.backlog: // the kernel resets what was not accepted
				c.(*conn).reset()
			default:
				return
			}
		}
	})
	return nil
}

// dial connects a host to an address.
func (n *network) dial(ctx context.Context, from *host, to string) (net.Conn, error) {
	timer := time.NewTimer(latency)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	n.mu.Lock()
	l := n.listeners[to]
	n.ports++
	local := address(netip.AddrPortFrom(netip.AddrFrom4([4]byte{10, 9, byte(n.ports >> 8), byte(n.ports)}), 1024+n.ports/2).String())
	n.mu.Unlock()
	if l == nil || l.host.isDead() || from.isDead() {
		return nil, refused(to)
	}
	near, far := newPipe(), newPipe()
	client := &conn{host: from, peer: l.host, in: near, out: far, local: local, remote: l.address}
	server := &conn{host: l.host, peer: from, in: far, out: near, local: l.address, remote: local}
	for _, c := range []*conn{client, server} {
		c.host.mu.Lock()
		c.host.open[c] = struct{}{}
		c.host.mu.Unlock()
	}
	select {
	case l.backlog <- server:
		return client, nil
	default:
		client.reset()
		server.reset()
		return nil, refused(to)
	}
}

// pipe is one direction of a connection.
type pipe struct {
	mu      sync.Mutex
	changed *sync.Cond
	waiting [][]byte
	ended   bool  // the writer has closed its end
	broken  error // what the reader gets instead of all bytes
	closed  bool  // by the reader
}

func newPipe() *pipe {
	p := &pipe{}
	p.changed = sync.NewCond(&p.mu)
	return p
}

func (p *pipe) write(b []byte) (int, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	switch {
	case p.broken != nil:
		return 0, syscall.EPIPE
	case p.ended:
		return 0, net.ErrClosed
	case p.closed:
		return len(b), nil // nothing tells the writer yet
	}
	p.waiting = append(p.waiting, bytes.Clone(b))
	p.changed.Broadcast()
	return len(b), nil
}

func (p *pipe) change(f func()) {
	p.mu.Lock()
	defer p.mu.Unlock()
	f()
	p.changed.Broadcast()
}

// conn is one end of a connection.
type conn struct {
	host, peer    *host
	in, out       *pipe
	local, remote address

	mu       sync.Mutex
	deadline time.Time // of reads
	writes   time.Time // the deadline of writes, which are done at once
}

func (c *conn) LocalAddr() net.Addr  { return c.local }
func (c *conn) RemoteAddr() net.Addr { return c.remote }

func (c *conn) wake() { c.in.change(func() {}) }

// Read waits for bytes. While one of the hosts is silent, nothing arrives.
func (c *conn) Read(b []byte) (int, error) {
	p := c.in
	p.mu.Lock()
	defer p.mu.Unlock()
	for {
		c.mu.Lock()
		deadline := c.deadline
		c.mu.Unlock()
		silent := c.host.silence() != nil || c.peer.silence() != nil
		late := !deadline.IsZero() && !time.Now().Before(deadline)
		switch {
		case p.closed:
			return 0, net.ErrClosed
		case p.broken != nil:
			return 0, &net.OpError{Op: "read", Net: "tcp", Addr: c.remote, Err: p.broken}
		case late:
			return 0, &net.OpError{Op: "read", Net: "tcp", Addr: c.remote, Err: os.ErrDeadlineExceeded}
		case silent:
		case len(p.waiting) > 0:
			n := copy(b, p.waiting[0])
			if p.waiting[0] = p.waiting[0][n:]; len(p.waiting[0]) == 0 {
				p.waiting = p.waiting[1:]
			}
			return n, nil
		case p.ended:
			return 0, io.EOF
		}
		if deadline.IsZero() {
			p.changed.Wait()
			continue
		}
		timer := time.AfterFunc(time.Until(deadline), c.wake)
		p.changed.Wait()
		timer.Stop()
	}
}

func (c *conn) Write(b []byte) (int, error) {
	c.mu.Lock()
	late := !c.writes.IsZero() && !time.Now().Before(c.writes)
	c.mu.Unlock()
	if late {
		return 0, &net.OpError{Op: "write", Net: "tcp", Addr: c.remote, Err: os.ErrDeadlineExceeded}
	}
	return c.out.write(b)
}

// Close ends the connection. The peer reads what is on the way, and then the end.
func (c *conn) Close() error {
	c.forget()
	c.in.change(func() { c.in.closed, c.in.waiting = true, nil })
	c.out.change(func() { c.out.ended = true })
	return nil
}

// reset breaks the connection at both ends.
func (c *conn) reset() {
	c.forget()
	for _, p := range []*pipe{c.in, c.out} {
		p.change(func() { p.broken, p.waiting = syscall.ECONNRESET, nil })
	}
}

func (c *conn) forget() {
	c.host.mu.Lock()
	delete(c.host.open, c)
	c.host.mu.Unlock()
}

func (c *conn) SetDeadline(t time.Time) error {
	return errors.Join(c.SetReadDeadline(t), c.SetWriteDeadline(t))
}

func (c *conn) SetReadDeadline(t time.Time) error {
	c.mu.Lock()
	c.deadline = t
	c.mu.Unlock()
	c.wake()
	return nil
}

func (c *conn) SetWriteDeadline(t time.Time) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.writes = t
	return nil
}
