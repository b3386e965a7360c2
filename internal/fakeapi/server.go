package fakeapi

// This file serves the objects of an API with watches, as a kube-apiserver does from its watch cache.

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"math/rand/v2"
	"net/http"
	"slices"
	"strconv"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/internalversion/validation"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/rest"

	"code.cloudfoundry.org/eirinix/internal/inprocess"
	"code.cloudfoundry.org/eirinix/internal/wait"
)

// ServerOptions configures a Server. The zero value shows changes at once, resumes watches from any version since the
// server's start, sends no bookmarks except the one that ends the initial events, and admits all.
type ServerOptions struct {
	// Lag returns how much later than its write a change reaches the server's watch cache. It is called once per change,
	// and must not use the API. A change is never shown before an earlier one of its resource. Those of several resources do
	// not keep their order, because kube-apiserver has a watch cache for each (k8s.io/apiserver, storage/cacher).
	Lag func() time.Duration

	// Keeps is the number of changes of a resource from which a watch can resume. An older version is an ERROR event with
	// the code 410. Zero means all.
	Keeps int

	// Bookmarks is the interval at which a watch gets bookmarks, if it allows them. A kube-apiserver's is about a minute,
	// and it sends one 2 s before the end of the watch too.
	Bookmarks time.Duration

	// Admit is called for a create, an update, a patch or a delete, before it is stored, dry runs included. It can take long
	// and use the API. If the object changes meanwhile, it is called again for the changed object, or the request fails
	// with a Conflict. old is nil for a create, and must not be changed. object is nil for a delete, and Admit's own
	// otherwise. It returns the object to store, warnings, and an error to refuse the request. It must be safe for
	// concurrent use.
	Admit func(ctx context.Context, r Request, old, object *unstructured.Unstructured) (*unstructured.Unstructured, []string, error)
}

// Server is an API server in front of an API. Several can serve the same one. Reads and writes are of the latest state.
// Watches, and lists with a resourceVersion, show the state of the server's watch cache of the resource. An API that has
// servers remembers all changes until a restore.
//
// It is safe for concurrent use, also in a bubble of testing/synctest.
type Server struct {
	api     *API
	options ServerOptions

	// Guarded by the API's mu.
	began    int // the version at the start
	caches   map[schema.GroupResource]*cache
	watchers map[*watcher]bool
}

// cache is the watch cache of a resource.
type cache struct {
	objects  map[objectKey]*object
	version  int         // of the last change that it knows, of any resource
	arrivals []time.Time // of all changes since the server's start
}

// change is a write. old is nil for a create, and object is nil for a delete.
type change struct {
	key         objectKey
	old, object *object
	last        *object // old with the version of the change, for those who see a deletion
}

// NewServer returns a server in front of the API.
func (a *API) NewServer(o ServerOptions) *Server {
	s := &Server{api: a, options: o}
	a.mu.Lock()
	defer a.mu.Unlock()
	if len(a.servers) == 0 {
		a.changes, a.base = nil, a.version
	}
	s.restart()
	a.servers = append(a.servers, s)
	return s
}

// Close ends all watches at once, as a restart does. The server then serves the latest state again, and forgets the
// changes before it.
func (s *Server) Close() {
	s.api.mu.Lock()
	defer s.api.mu.Unlock()
	s.restart()
}

// restart reads the watch cache anew. The caller holds mu.
func (s *Server) restart() {
	for w := range s.watchers {
		wait.Signal(w.wake)
	}
	s.watchers, s.caches, s.began = map[*watcher]bool{}, map[schema.GroupResource]*cache{}, s.api.version
}

// cache returns the watch cache of a resource, up to date. The caller holds mu.
func (s *Server) cache(of schema.GroupResource) *cache {
	c := s.caches[of]
	if c == nil {
		c = &cache{objects: maps.Clone(s.api.objects), version: s.api.version, arrivals: make([]time.Time, s.api.version-s.began)}
		maps.DeleteFunc(c.objects, func(key objectKey, _ *object) bool { return key.GroupResource != of })
		s.caches[of] = c
	}
	for now := time.Now(); c.version < s.api.version && !s.arrival(c, c.version+1).After(now); {
		c.version++
		switch change := s.api.change(c.version); {
		case change.key.GroupResource != of:
		case change.object == nil:
			delete(c.objects, change.key)
		default:
			c.objects[change.key] = change.object
		}
	}
	return c
}

// RestConfig returns a connection to the server, on which watches work. No request leaves the process. The caller owns
// the result.
func (s *Server) RestConfig() *rest.Config {
	c := s.api.RestConfig()
	c.Transport = inprocess.Transport{Handler: s}
	return c
}

// ServeHTTP implements http.Handler. A watch needs a writer with Flush, or with Unwrap as http.ResponseController knows it.
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) { s.api.serve(w, r, s) }

// admit calls Admit without mu, which the caller holds.
func (s *Server) admit(ctx context.Context, q Request, old *object, made *unstructured.Unstructured) (*unstructured.Unstructured, []string, error) {
	s.api.mu.Unlock()
	defer s.api.mu.Lock()
	var before *unstructured.Unstructured
	if old != nil {
		before = old.Unstructured
	}
	admitted, warnings, err := s.options.Admit(ctx, q, before, made)
	if made == nil {
		admitted = nil
	}
	return admitted, warnings, err
}

// learn takes the latest change. The caller holds mu.
func (s *Server) learn(latest *change) {
	for of, c := range s.caches {
		at := time.Now()
		if of == latest.key.GroupResource && s.options.Lag != nil {
			at = at.Add(s.options.Lag())
		}
		if n := len(c.arrivals); n > 0 && at.Before(c.arrivals[n-1]) {
			at = c.arrivals[n-1]
		}
		c.arrivals = append(c.arrivals, at)
	}
	for w := range s.watchers {
		if w.shows(latest) {
			wait.Signal(w.wake)
		}
	}
}

// arrival returns when a cache knows a version. The caller holds mu.
func (s *Server) arrival(c *cache, version int) time.Time { return c.arrivals[version-s.began-1] }

// patience is how long a server waits for a version that it does not have yet.
const patience = 3 * time.Second

// reach waits until the watch cache of a resource has a version, and returns it. The caller holds mu.
func (s *Server) reach(ctx context.Context, of schema.GroupResource, wanted int) (*cache, error) {
	c := s.cache(of)
	if wanted <= c.version {
		return c, nil
	}
	pause := patience
	if wanted <= s.api.version {
		pause = min(pause, time.Until(s.arrival(c, wanted)))
	}
	s.api.mu.Unlock()
	err := wait.Sleep(ctx, pause)
	s.api.mu.Lock()
	if c = s.cache(of); err != nil || wanted <= c.version {
		return c, err
	}
	late := apierrors.NewTimeoutError(fmt.Sprintf("Too large resource version: %d, current: %d", wanted, c.version), 1)
	late.ErrStatus.Details.Causes = []metav1.StatusCause{{Type: metav1.CauseTypeResourceVersionTooLarge, Message: "Too large resource version"}}
	return c, late
}

// watcher is a watch. The API's mu guards what changes.
type watcher struct {
	scope
	kind     schema.GroupVersionKind
	initial  bool          // the initial events are to be sent
	ends     bool          // the bookmark after them is to be sent
	seen     int           // the version up to which the client has all
	wake     chan struct{} // asks it to look again
	bookmark time.Time     // of the next one; zero for none
	deadline time.Time
}

func (w *watcher) shows(c *change) bool { return w.covers(c.key, c.object) || w.covers(c.key, c.old) }

// watch serves a watch until it ends.
func (s *Server) watch(w http.ResponseWriter, r *http.Request, q Request) {
	of, err := s.begin(r, q)
	event := apierrors.IsResourceExpired(err) || apierrors.IsTimeout(err) // a watch that was understood fails with an event
	if q.Status = http.StatusOK; err != nil && !event {
		q.Status = refuse(w, err)
	}
	s.api.mu.Lock()
	s.api.requests = append(s.api.requests, q)
	s.api.mu.Unlock()
	if err != nil {
		if event {
			reply(w, http.StatusOK, map[string]any{"type": watch.Error, "object": statusOf(err)})
		}
		return
	}
	defer s.end(of)
	w.Header().Set("Content-Type", runtime.ContentTypeJSON)
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		parts, next, open := s.next(of)
		for _, part := range parts {
			_, _ = w.Write(part)
		}
		_ = http.NewResponseController(w).Flush() // where it cannot, the client waits
		if !open {
			return
		}
		timer.Reset(time.Until(next))
		select {
		case <-r.Context().Done():
			return
		case <-of.wake:
		case <-timer.C:
		}
	}
}

// begin returns the watch that a request asks for.
func (s *Server) begin(r *http.Request, q Request) (*watcher, error) {
	selected, o, version, err := scopeOf(r, q)
	if err != nil {
		return nil, err
	}
	kind, err := s.api.mapper.KindFor(q.Resource)
	if err != nil {
		return nil, apierrors.NewNotFound(q.Resource.GroupResource(), q.Name)
	}
	if all := validation.ValidateListOptions(o, true); len(all) > 0 {
		return nil, apierrors.NewInvalid(schema.GroupKind{Group: "meta.k8s.io", Kind: "ListOptions"}, "", all)
	}
	lasts := 30*time.Minute + rand.N(30*time.Minute)
	if o.TimeoutSeconds != nil && *o.TimeoutSeconds > 0 {
		lasts = time.Duration(*o.TimeoutSeconds) * time.Second
	}
	w := &watcher{scope: selected, kind: kind, seen: version, wake: make(chan struct{}, 1), deadline: time.Now().Add(lasts)}

	s.api.mu.Lock()
	defer s.api.mu.Unlock()
	complete := o.SendInitialEvents != nil && *o.SendInitialEvents
	if complete && o.ResourceVersion == "" {
		version = s.api.version
	}
	c := s.cache(selected.GroupResource)
	if complete {
		c, err = s.reach(r.Context(), selected.GroupResource, version)
	}
	w.ends = complete && o.AllowWatchBookmarks
	switch w.initial = complete || version == 0 && o.SendInitialEvents == nil; {
	case err != nil:
		return nil, err
	case w.initial: // it begins with the cache
	case version == 0:
		w.seen = c.version
	case s.forgot(selected.GroupResource, version):
		return nil, apierrors.NewResourceExpired(fmt.Sprintf("too old resource version: %d", version))
	}
	if o.AllowWatchBookmarks && s.options.Bookmarks > 0 {
		w.schedule(time.Now(), s.options.Bookmarks)
	}
	s.watchers[w] = true
	return w, nil
}

func (s *Server) end(w *watcher) {
	s.api.mu.Lock()
	defer s.api.mu.Unlock()
	delete(s.watchers, w)
}

// schedule determines when the next bookmark is sent: after the interval, or 2 s before the end.
func (w *watcher) schedule(now time.Time, interval time.Duration) {
	w.bookmark = now.Add(interval)
	if last := w.deadline.Add(-2 * time.Second); last.After(now) && last.Before(w.bookmark) {
		w.bookmark = last
	}
}

// next returns the text that a watch sends now, in parts, when it goes on at the latest, and false if it ends.
func (s *Server) next(w *watcher) (parts [][]byte, next time.Time, open bool) {
	s.api.mu.Lock()
	defer s.api.mu.Unlock()
	if !s.watchers[w] {
		return nil, next, false
	}
	now, version, c := time.Now(), w.kind.GroupVersion(), s.cache(w.GroupResource)
	event := func(kind watch.EventType, text []byte) {
		parts = append(parts, []byte(`{"type":"`+kind+`","object":`), text, []byte("}\n"))
	}
	if w.initial {
		for _, key := range keys(c.objects, w.scope) {
			event(watch.Added, c.objects[key].text(version))
		}
		w.initial, w.seen = false, c.version
	}
	times := []time.Time{w.deadline}
	for v := w.seen + 1; v <= s.api.version; v++ {
		change := s.api.change(v)
		was, is := w.covers(change.key, change.old), w.covers(change.key, change.object)
		if v > c.version && (was || is) {
			times = append(times, s.arrival(c, v))
			break
		}
		switch {
		case is && was:
			event(watch.Modified, change.object.text(version))
		case is:
			event(watch.Added, change.object.text(version))
		case was:
			event(watch.Deleted, change.deleted(v).text(version))
		}
	}
	due := !w.bookmark.IsZero() && !now.Before(w.bookmark)
	if w.ends || due && w.seen <= c.version { // a client with a version of the future gets nothing until then
		object := &unstructured.Unstructured{Object: map[string]any{}}
		object.SetGroupVersionKind(w.kind)
		object.SetResourceVersion(strconv.Itoa(c.version))
		if w.ends {
			object.SetAnnotations(map[string]string{metav1.InitialEventsAnnotationKey: "true"})
		}
		text, _ := json.Marshal(object.Object) // a tree of JSON
		event(watch.Bookmark, text)
	}
	if w.ends, w.seen = false, max(w.seen, c.version); due {
		w.schedule(now, s.options.Bookmarks)
	}
	if !w.bookmark.IsZero() {
		times = append(times, w.bookmark)
	}
	return parts, slices.MinFunc(times, time.Time.Compare), now.Before(w.deadline)
}

// deleted returns the last state of an object with the version of its deletion. The caller holds mu.
func (c *change) deleted(version int) *object {
	if c.last == nil {
		c.last = &object{Unstructured: c.old.DeepCopy()}
		c.last.SetResourceVersion(strconv.Itoa(version))
	}
	return c.last
}

// forgot reports whether the watch cache lacks changes of a resource after a version. The caller holds mu.
func (s *Server) forgot(resource schema.GroupResource, version int) bool {
	kept := 0
	for v := s.caches[resource].version; v > version && v > s.began; v-- {
		if s.api.change(v).key.GroupResource == resource {
			kept++
		}
	}
	return version < s.began || s.options.Keeps > 0 && kept > s.options.Keeps
}
