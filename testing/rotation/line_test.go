package rotation_test

import (
	"bytes"
	"context"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"syscall"
	"time"

	"code.cloudfoundry.org/eirinix/internal/spectest"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/kubernetes/scheme"

	"code.cloudfoundry.org/eirinix/internal/ca"
)

// line is a replica's connection to its API server. It can be cut: then the replica goes on serving, but learns and
// writes nothing more.
type line struct {
	replica    *replica
	deployment *deployment
	ctx        context.Context
	cut        context.CancelFunc
}

func newLine(r *replica, d *deployment) *line {
	l := &line{replica: r, deployment: d}
	l.ctx, l.cut = context.WithCancel(context.Background())
	return l
}

// moment is one write of a rotation.
type moment struct {
	object string   // secrets, mutatingwebhookconfigurations, validatingwebhookconfigurations or leases
	phase  ca.Phase // of the Secret that is written
	past   bool     // it has been written, and its writer does not know yet
}

// loseAt makes a crash: the first replica that comes to the moment is lost.
func loseAt(at func(moment) bool) *crash { return &crash{at: at, victim: make(chan *replica, 1)} }

// holdAt holds up all replicas at the moment until the channel is closed.
func holdAt(at func(moment) bool) *crash {
	return &crash{at: at, hold: make(chan struct{}), held: make(chan *replica, 1)}
}

// crash waits for a moment; the first replica that comes to it is lost. Or all are held up there.
type crash struct {
	at     func(moment) bool
	only   string        // the name of the only replica that may be lost; empty for any
	victim chan *replica // gets the replica that was lost
	hold   chan struct{} // if not nil, no replica is lost: all wait until it is closed
	held   chan *replica // gets the first that waits

	once sync.Once
}

// reach reports whether the replica is lost here.
func (c *crash) reach(ctx context.Context, r *replica, m moment) (lost bool) {
	if c == nil || c.only != "" && c.only != r.name || !c.at(m) {
		return false
	}
	if c.hold != nil {
		select {
		case c.held <- r:
		default:
		}
		select {
		case <-c.hold:
		case <-ctx.Done():
		}
		return false
	}
	c.once.Do(func() {
		lost = true
		c.victim <- r
	})
	return lost
}

func (l *line) wrap(next http.RoundTripper) http.RoundTripper {
	return roundTripper(func(r *http.Request) (*http.Response, error) {
		crash := l.deployment.crash.Load()
		m, writes := momentOf(r)
		if writes && crash.reach(r.Context(), l.replica, m) {
			l.cut()
		}
		if l.ctx.Err() != nil {
			return nil, &net.OpError{Op: "dial", Net: "tcp", Err: syscall.ECONNREFUSED}
		}
		ctx, cancel := context.WithCancel(r.Context())
		unlink := context.AfterFunc(l.ctx, cancel)
		end := func() { unlink(); cancel() }
		resp, err := next.RoundTrip(r.WithContext(ctx))
		if err != nil {
			end()
			return nil, err
		}
		resp.Body = &body{ReadCloser: resp.Body, end: end}
		if m.past = true; writes && resp.StatusCode < 300 && crash.reach(r.Context(), l.replica, m) {
			l.cut()
			return nil, &net.OpError{Op: "read", Net: "tcp", Err: syscall.ECONNRESET}
		}
		return resp, nil
	})
}

// momentOf returns the write that a request is about to make.
func momentOf(r *http.Request) (moment, bool) {
	parts := strings.Split(r.URL.Path, "/")
	if r.Method == http.MethodPost && parts[len(parts)-1] == "leases" {
		return moment{object: "leases"}, true
	}
	if r.Method != http.MethodPut || r.Body == nil {
		return moment{}, false
	}
	m := moment{object: parts[len(parts)-2]}
	if m.object == "secrets" {
		text, err := io.ReadAll(r.Body)
		if err != nil {
			return moment{}, false
		}
		r.Body = io.NopCloser(bytes.NewReader(text))
		object, _, err := scheme.Codecs.UniversalDeserializer().Decode(text, nil, nil)
		if err != nil {
			return moment{}, false
		}
		state, err := spectest.DecodeState(object.(*corev1.Secret).Data, time.Now())
		if err != nil {
			return moment{}, false
		}
		m.phase = state.Phase
	}
	return m, true
}

type roundTripper func(*http.Request) (*http.Response, error)

func (f roundTripper) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

type body struct {
	io.ReadCloser
	end func()
}

func (b *body) Close() error {
	defer b.end()
	return b.ReadCloser.Close()
}
