package world

// This file is the control plane: API servers in front of the same objects, each with a clock and a watch cache of its own,
// and the way from a process to them.

import (
	"context"
	"crypto/tls"
	"errors"
	"io"
	"math/rand/v2"
	"net/http"
	"path"
	"runtime/pprof"
	"strings"
	"sync"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/rest"

	"code.cloudfoundry.org/eirinix/internal/cluster"
	"code.cloudfoundry.org/eirinix/internal/fakeapi"
	"code.cloudfoundry.org/eirinix/internal/inprocess"
	rbac "code.cloudfoundry.org/eirinix/internal/rights"
)

// apiServer is one of the API servers.
type apiServer struct {
	w      *World
	name   string
	ahead  time.Duration // its clock
	server *fakeapi.Server

	identity func() *tls.Certificate // with which it calls

	mu               sync.Mutex
	deaf             time.Time     // until then, a watch that it has ended may not have begun again
	outages, freezes int           // that are on
	failing          int           // the HTTP status with which it answers each request; 0 for none, -1 for no connection
	frozen           chan struct{} // closed when it answers again; nil while it does
	clients          map[string]*http.Client
	lag              time.Duration // of its copies of configurations
	extra            time.Duration // beside that, for a while
	behind           time.Duration // by which its watches are late, beside their usual lag
	shown            time.Time     // the moment that they show, which never goes back
}

func (s *apiServer) now() time.Time {
	return time.Now().Add(s.ahead - time.Duration(s.w.turned.Load()))
}

// state returns what a request meets.
func (s *apiServer) state() (failing int, frozen chan struct{}) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.failing, s.frozen
}

// isDeaf reports whether a replica may hear of nothing through it.
func (s *apiServer) isDeaf() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.failing != 0 || s.frozen != nil || s.behind > 0 || time.Now().Before(s.deaf)
}

// falls has its watches fall behind, or keep up again.
func (s *apiServer) falls(behind time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.behind, s.deaf = behind, time.Now().Add(2*s.behind)
}

func (s *apiServer) late() time.Duration {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.behind
}

// fail has it answer each request with a status, and with 0 no more, once for each time.
func (s *apiServer) fail(status int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.w.servers) > 1 { // else each replica notices it, and waits for the others
		s.deaf = time.Now().Add(cluster.Rewatched)
	}
	if status != 0 {
		s.outages++
		s.failing = status
		s.server.Close()
	} else if s.outages = max(0, s.outages-1); s.outages == 0 {
		s.failing = 0
	}
}

// freeze has it answer nothing, until it is thawed as often.
func (s *apiServer) freeze() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.freezes++; s.frozen == nil {
		s.frozen = make(chan struct{})
	}
}

func (s *apiServer) thaw() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.freezes = max(0, s.freezes-1); s.freezes == 0 && s.frozen != nil {
		close(s.frozen)
		s.frozen, s.deaf = nil, time.Now().Add(cluster.Rewatched)
	}
}

// heal has it answer again.
func (s *apiServer) heal() {
	s.mu.Lock()
	s.outages, s.freezes = 0, 0
	s.mu.Unlock()
	s.fail(0)
	s.thaw()
}

func (s *apiServer) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	pprof.SetGoroutineLabels(context.Background()) // its connections to replicas are none of the process that asks
	failing, frozen := s.state()
	if frozen != nil {
		select {
		case <-frozen:
		case <-r.Context().Done():
			return
		}
	}
	w.Header().Set("Date", s.now().UTC().Format(http.TimeFormat))
	if failing > 0 {
		status := metav1.Status{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Status"}, Status: metav1.StatusFailure, Code: int32(failing), Message: "the world says so", Reason: metav1.StatusReasonUnknown}
		if failing == http.StatusTooManyRequests {
			status.Reason = metav1.StatusReasonTooManyRequests
			w.Header().Set("Retry-After", "1")
		}
		writeJSON(w, failing, status)
		return
	}
	if r.URL.Path == "/version" {
		if s.w.plan.Seed%5 == 4 { // not all accounts have the right
			writeJSON(w, http.StatusForbidden, metav1.Status{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Status"}, Status: metav1.StatusFailure, Code: http.StatusForbidden, Reason: metav1.StatusReasonForbidden, Message: "the right was never given"})
			return
		}
		writeJSON(w, http.StatusOK, map[string]string{"major": "1", "minor": "37", "gitVersion": "v1.37.2"})
		return
	}
	if s.w.rights.check(w, r) || s.lacks(w, r) || s.pages(w, r) {
		return
	}
	s.race(r)
	s.server.ServeHTTP(asMetadata(w, r), r)
	if r.Method != http.MethodGet {
		s.w.observe()
		s.w.wrote(path.Base(r.URL.Path))
		s.w.hearsRequest(r.URL.Path)
	}
}

// slowest is how long a request, and how late an event of a watch, can be. A version has a second and a half to contradict a
// replica that stops (internal/rollout), in which it hears of that, writes, and is heard.
const slowest = 300 * time.Millisecond

// wire is the way of a process to the API servers.
type wire struct {
	w    *World
	host *host
	rng  *rand.Rand

	serves  bool         // and registers nothing, for which it has no right
	granted []rbac.Grant // of its account; nil for one that may do all

	mu     sync.Mutex
	to     *apiServer
	open   map[*stream]struct{}
	made   rate          // of requests
	hushed chan struct{} // closed when the way is open again; nil while it is

	request  string // for a certificate, the last one
	requests rate
	read     map[string]time.Time // when it has last asked for an object of the program, by name
	asked    map[string]bool      // requests, without the parts that differ each time
	listed   time.Time            // when pods were listed for the first time
	odd      *rand.Rand           // of dates; nil before the first one
	frail    *rand.Rand           // decides which requests and answers are lost; nil for none
}

func (w *World) newWire(h *host, rng *rand.Rand) *wire {
	return &wire{w: w, host: h, rng: rng, open: map[*stream]struct{}{}}
}

// loses reports whether the answer to a request is lost on a way on which many are.
func (c *wire) loses() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.frail != nil && c.frail.IntN(5) == 0
}

func (c *wire) config() *rest.Config {
	return &rest.Config{Host: "http://api.invalid", Transport: c, QPS: -1, ContentConfig: rest.ContentConfig{ContentType: runtime.ContentTypeJSON}}
}

// choose returns the API server of the next request, and how long that is on its way. A connection leads to one server
// until it breaks.
func (c *wire) choose() (*apiServer, time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.made.add(time.Now())
	if c.to == nil || c.rng.IntN(50) == 0 {
		c.to = c.w.servers[c.rng.IntN(len(c.w.servers))]
	}
	took := time.Duration(1+c.rng.Int64N(5)) * time.Millisecond
	if c.rng.IntN(100) == 0 {
		took = time.Duration(c.rng.Int64N(int64(slowest)))
	}
	return c.to, took
}

// count returns how many requests there were.
func (c *wire) count() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.made.all
}

// cut breaks the requests and watches that are open.
func (c *wire) cut() {
	c.mu.Lock()
	var open []*stream
	for s := range c.open {
		open = append(open, s)
	}
	c.to = nil
	c.mu.Unlock()
	for _, s := range open {
		s.cancel()
	}
}

// hush leaves everything on the way, or lets it go on.
func (c *wire) hush(on bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case on && c.hushed == nil:
		c.hushed = make(chan struct{})
	case !on && c.hushed != nil:
		close(c.hushed)
		c.hushed = nil
	}
}

// passes waits while the host, or the way itself, is silent.
func (c *wire) passes(ctx context.Context) error {
	for {
		silent := c.host.silence()
		if silent == nil {
			c.mu.Lock()
			silent = c.hushed
			c.mu.Unlock()
		}
		switch {
		case c.host.isDead():
			return refused("api.invalid:443")
		case silent == nil:
			return nil
		}
		select {
		case <-silent:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

func (c *wire) RoundTrip(r *http.Request) (*http.Response, error) {
	to, took := c.choose()
	c.w.floods(c)
	c.guards(r)
	c.entitled(r)
	loses := c.asks(r)
	if strings.Contains(r.URL.Path, "/events") || discovers(r) { // client-go's recorder, and a RESTMapper, hold a mutex meanwhile, which would stop the clock
		if failing, frozen := to.state(); failing != 0 || frozen != nil || c.host.isDead() || c.host.silence() != nil {
			return nil, refused("api.invalid:443")
		}
		return inprocess.Transport{Handler: to}.RoundTrip(r)
	}
	ctx, cancel := context.WithCancel(r.Context())
	s := &stream{wire: c, ctx: ctx, cancel: cancel, lease: strings.Contains(r.URL.Path, "/leases") && r.URL.Query().Get("watch") != "", asks: isAsking(r.URL.Path, r.URL.RawQuery)}
	c.mu.Lock()
	c.open[s] = struct{}{}
	c.mu.Unlock()
	if c.serves {
		r = r.Clone(ctx)
		r.Header.Set(servesHeader, "yes")
	}
	answered := c.rereads(r)
	loses = c.loses() || loses
	response, err := c.send(r.WithContext(ctx), to, took)
	if err == nil && loses {
		_ = response.Body.Close() // it was not read
		err = io.ErrUnexpectedEOF
	}
	if err == nil {
		answered(response.StatusCode == http.StatusOK)
		c.lists(r, response.StatusCode)
	}
	if err != nil {
		s.end()
		if r.Context().Err() == nil && errors.Is(err, context.Canceled) {
			err = io.ErrUnexpectedEOF
		}
		return nil, err
	}
	c.mu.Lock()
	s.ReadCloser = response.Body
	c.mu.Unlock()
	response.Body = s
	return response, nil
}

func (c *wire) send(r *http.Request, to *apiServer, took time.Duration) (*http.Response, error) {
	if err := c.passes(r.Context()); err != nil {
		return nil, err
	}
	select {
	case <-time.After(took):
	case <-r.Context().Done():
		return nil, r.Context().Err()
	}
	if failing, _ := to.state(); failing < 0 {
		c.mu.Lock()
		c.to = nil
		c.mu.Unlock()
		return nil, refused("api.invalid:443")
	}
	response, err := inprocess.Transport{Handler: to}.RoundTrip(r)
	if err == nil {
		c.dates(response)
		if err = c.passes(r.Context()); err != nil {
			_ = response.Body.Close()
		}
	}
	return response, err
}

// stream is the body of a response.
type stream struct {
	io.ReadCloser
	wire   *wire
	ctx    context.Context
	cancel context.CancelFunc
	lease  bool // a watch of it
	asks   bool // a watch of a request for a certificate
}

// hears reports whether a watch of the Lease is open.
func (c *wire) hears() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	for s := range c.open {
		if s.lease && s.ReadCloser != nil {
			return true
		}
	}
	return false
}

func (s *stream) Read(b []byte) (int, error) {
	n, err := s.ReadCloser.Read(b)
	if waits := s.wire.passes(s.ctx); waits != nil {
		return 0, io.ErrUnexpectedEOF
	}
	return n, err
}

func (s *stream) Close() error {
	defer s.end()
	return s.ReadCloser.Close()
}

func (s *stream) end() {
	s.cancel()
	s.wire.mu.Lock()
	delete(s.wire.open, s)
	s.wire.mu.Unlock()
}

// version is an object as it was from a moment on; nil while it does not exist.
type version struct {
	object *unstructured.Unstructured
	at     time.Time
}

// history is all that an object has been.
type history []version

// at is the object as it was then.
func (h history) at(then time.Time) *unstructured.Unstructured {
	for i := len(h) - 1; i >= 0; i-- {
		if i == 0 || !h[i].at.After(then) {
			return h[i].object
		}
	}
	return nil
}

func (h history) last() *unstructured.Unstructured {
	if len(h) == 0 {
		return nil
	}
	return h[len(h)-1].object
}

// find returns a stored object, or nil. The caller must not change it.
func (w *World) find(kind, namespace, name string) *unstructured.Unstructured {
	return w.api.Find(kind, namespace, name)
}
