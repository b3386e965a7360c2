// Package reads keeps the objects that steps look at in memory, as the steps declare them, and serves them from there.
//
// A source follows the objects of one kind and selector: one list and watch, which all steps share that declare the
// same. A view holds the objects of a source as one declaration keeps them, encoded, because decoding an object costs as
// little as copying it and needs a third of the memory. A Snapshot is what one call sees: it does not change while the
// views do. Readers serve a step from a Snapshot.
package reads

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/go-logr/logr"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// Step is a step with its declarations.
type Step struct {
	Name  string
	Reads []Declaration
}

// use is the use of a view by a step.
type use struct {
	*view
	declared Declaration // of this step; the view's is that of the first step
}

// Set holds the objects that the steps of a program declare. It is safe for concurrent use.
type Set struct {
	scheme  *runtime.Scheme
	steps   map[string][]use
	views   []*view
	sources []*source
	log     logr.Logger
	metrics Metrics
	changed chan struct{}

	Regained func() // is called when objects are followed again that the API server had refused; nil for none

	unwatched atomic.Bool // nothing notices a dead connection, as over HTTP/1.1
}

// New returns the Set of the steps. The scheme has the typed objects. It sends no request: Run does, or Fixed
// replaces it.
func New(scheme *runtime.Scheme, steps []Step, log logr.Logger, metrics *Metrics) (*Set, error) {
	s := &Set{scheme: scheme, steps: map[string][]use{}, log: log, changed: make(chan struct{}, 1)}
	if metrics != nil {
		s.metrics = *metrics
	}
	for _, step := range steps {
		for _, d := range step.Reads {
			v, err := s.viewOf(d)
			if err != nil {
				return nil, err
			}
			s.steps[step.Name] = append(s.steps[step.Name], use{v, d})
			if d.Required {
				v.requiring = append(v.requiring, step.Name)
			}
			for _, src := range v.sources {
				if d.MaxStale > 0 && (src.patience == 0 || d.MaxStale < src.patience) {
					src.patience = d.MaxStale
				}
			}
		}
	}
	return s, nil
}

// viewOf returns the view of a declaration. Steps share the view of equal declarations, and the sources of different
// views of the same objects.
func (s *Set) viewOf(d Declaration) (*view, error) {
	for _, v := range s.views {
		if v.declaration.equal(d) {
			return v, nil
		}
	}
	v, err := newView(s.scheme, d)
	if err != nil {
		return nil, err
	}
	v.set, v.at = s, len(s.views)
	s.views = append(s.views, v)
	namespaces := d.Namespaces
	if len(namespaces) == 0 {
		namespaces = []string{metav1.NamespaceAll}
	}
	for _, namespace := range namespaces {
		src := s.sourceOf(d, namespace)
		src.views = append(src.views, v)
		v.sources = append(v.sources, src)
		v.missing[src] = true
	}
	return v, nil
}

func (s *Set) sourceOf(d Declaration, namespace string) *source {
	of := origin{kind: d.Kind, form: formOf(d.Object), namespace: namespace, labels: text(d.Labels), fields: text(d.Fields)}
	for _, known := range s.sources {
		if known.origin == of {
			return known
		}
	}
	src := &source{
		origin: of, set: s, declared: d, settled: make(chan struct{}),
		wake: make(chan struct{}, 1), since: time.Now(), ended: make(chan struct{}),
	}
	s.sources = append(s.sources, src)
	return src
}

// Empty reports whether no step declares anything.
func (s *Set) Empty() bool { return len(s.steps) == 0 }

// Run follows the objects with the client until ctx ends.
func (s *Set) Run(ctx context.Context, c client.WithWatch) {
	var following sync.WaitGroup
	for _, src := range s.sources {
		following.Go(func() { src.run(ctx, c) })
	}
	following.Wait()
}

// Client returns the client with which the objects are followed. Its lists can be long, so it does not share the limits of
// the connection.
func (s *Set) Client(connection *rest.Config, mapper meta.RESTMapper) (client.WithWatch, error) {
	config := rest.CopyConfig(connection)
	config.QPS, config.RateLimiter, config.Timeout = -1, nil, 0
	config.DisableCompression = true
	s.Wrap(config)
	c, err := client.NewWithWatch(config, client.Options{Scheme: s.scheme, Mapper: mapper})
	if err != nil {
		return nil, fmt.Errorf("eirinix: the kubeconfig cannot be used: %w", err)
	}
	return c, nil
}

// Wrap makes the Set know over which protocol the client of this configuration is answered.
func (s *Set) Wrap(config *rest.Config) {
	s.unwatched.Store(config.Transport != nil) // what it notices is not known
	config.Wrap(func(next http.RoundTripper) http.RoundTripper { return &answers{s, config.Transport != nil, next} })
}

// answers looks at the answers of an API server.
type answers struct {
	set   *Set
	given bool // the program has given the transport
	http.RoundTripper
}

// RoundTrip notes the protocol. It hides when to ask again from client-go, which would do so without telling the
// reason; a source has delays of its own.
func (a *answers) RoundTrip(r *http.Request) (*http.Response, error) {
	response, err := a.RoundTripper.RoundTrip(r)
	if err == nil {
		a.set.unwatched.Store(a.given || response.ProtoMajor < 2)
		response.Header.Del("Retry-After")
	}
	return response, err
}

// maxSettle limits the time for which a start waits for objects.
const maxSettle = 10 * time.Second

// Settled returns when each source has been listed, or has failed, and at the latest after ten seconds.
func (s *Set) Settled(ctx context.Context) {
	most := time.NewTimer(maxSettle)
	defer most.Stop()
	for _, src := range s.sources {
		select {
		case <-src.settled:
		case <-ctx.Done():
			return
		case <-most.C:
			s.log.Info("going on without objects that steps read; the steps wait for them", "objects", src.String(), "reason", src.unlisted().Error())
			return
		}
	}
}

// Waiting returns the reason why a step cannot be served: objects that it reads have never been listed, or one that it
// requires is missing. It is nil if it can.
func (s *Set) Waiting(step string) error {
	for _, u := range s.steps[step] {
		for _, src := range u.sources {
			if err := src.unlisted(); err != nil {
				return err
			}
		}
		if u.declared.Required && u.absent.Load() {
			return u.absence()
		}
	}
	return nil
}

// Changed receives a value after objects have been listed for the first time, and when an object that a step requires
// has come or gone.
func (s *Set) Changed() <-chan struct{} { return s.changed }

// Interruption is a source that does not serve steps.
type Interruption struct {
	Objects string // that it follows
	Steps   []string
	Listed  bool          // at least once
	Absent  bool          // all is well with the source, but there is no object, and the steps require one
	For     time.Duration // since when the watch is broken
	Reason  string
}

// Interruptions returns the sources that have never been listed, those whose objects are too old for a step, and what is
// missing that steps require.
func (s *Set) Interruptions() (all []Interruption) {
	for _, src := range s.sources {
		broken, why := src.broken()
		i := Interruption{Objects: src.String(), For: broken, Listed: src.unlisted() == nil, Reason: why}
		for step, uses := range s.steps {
			if slices.ContainsFunc(uses, func(u use) bool {
				return slices.Contains(u.sources, src) && (!i.Listed || u.declared.MaxStale > 0 && broken > u.declared.MaxStale)
			}) {
				i.Steps = append(i.Steps, step)
			}
		}
		if slices.Sort(i.Steps); len(i.Steps) > 0 {
			all = append(all, i)
		}
	}
	for _, v := range s.views {
		if v.absent.Load() {
			all = append(all, Interruption{Objects: v.String(), Steps: v.requiring, Listed: true, Absent: true})
		}
	}
	return all
}
