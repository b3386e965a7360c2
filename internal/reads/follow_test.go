package reads

// This file plays what a source can go through with a cluster: refusals, silence, broken and dead watches, and a cluster
// that goes back. The clock is a bubble's, so that no spec waits.

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-logr/logr/funcr"
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"code.cloudfoundry.org/eirinix/internal/cluster"
	. "code.cloudfoundry.org/eirinix/internal/spectest"
)

// apiServer serves ConfigMaps as an API server does: lists in pages, and watches from a version on.
type apiServer struct {
	mu      sync.Mutex
	version int
	objects map[string]*corev1.ConfigMap // by namespace/name
	history []watch.Event                // since the version before all of them
	watches map[*stream]context.Context

	listing    func(ctx context.Context) error // fails lists; nil for none
	watching   func(ctx context.Context) error // fails watches
	deaf       bool                            // watches get no events, and do not end
	lists      []metav1.ListOptions            // that were asked for
	unfinished int                             // first pages after which no more were asked for
	watched    []metav1.ListOptions
}

// stream is a watch.
type stream struct {
	events  chan watch.Event
	once    sync.Once
	stopped atomic.Bool
}

func (s *stream) ResultChan() <-chan watch.Event { return s.events }
func (s *stream) Stop()                          { s.once.Do(func() { s.stopped.Store(true); close(s.events) }) }

func newAPIServer(names ...string) *apiServer {
	c := &apiServer{version: 100, objects: map[string]*corev1.ConfigMap{}, watches: map[*stream]context.Context{}}
	for _, name := range names {
		c.put(name, "")
	}
	return c
}

// put creates or changes an object.
func (c *apiServer) put(name, value string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.version++
	o := configMap("a", name)
	o.ResourceVersion, o.Data = strconv.Itoa(c.version), map[string]string{"value": value}
	o.Labels = map[string]string{"name": name}
	c.objects[name] = o
	c.tell(watch.Event{Type: watch.Modified, Object: o})
}

func (c *apiServer) remove(name string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.version++
	o := c.objects[name].DeepCopy()
	o.ResourceVersion = strconv.Itoa(c.version)
	delete(c.objects, name)
	c.tell(watch.Event{Type: watch.Deleted, Object: o})
}

func (c *apiServer) tell(e watch.Event) {
	c.history = append(c.history, e)
	if c.deaf {
		return
	}
	for w := range c.watches {
		if !w.stopped.Load() {
			w.events <- watch.Event{Type: e.Type, Object: e.Object.DeepCopyObject()}
		}
	}
}

// cut ends all watches, with an event before if there is one.
func (c *apiServer) cut(with ...watch.Event) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for w := range c.watches {
		for _, e := range with {
			w.events <- e
		}
		w.Stop()
	}
	clear(c.watches)
}

func (c *apiServer) list(ctx context.Context, o metav1.ListOptions, into client.ObjectList) error {
	c.mu.Lock()
	c.lists = append(c.lists, o)
	fails := c.listing
	c.mu.Unlock()
	if fails != nil {
		if err := fails(ctx); err != nil {
			return err
		}
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	list, _ := into.(*corev1.ConfigMapList)
	names := slices.Sorted(maps.Keys(c.objects))
	from, _ := strconv.Atoi(o.Continue)
	names = names[from:]
	list.ResourceVersion = strconv.Itoa(c.version)
	if o.Limit > 0 && int64(len(names)) > o.Limit {
		names = names[:o.Limit]
		list.Continue = strconv.Itoa(from + len(names))
	}
	switch last := list.Continue == ""; {
	case from == 0 && !last:
		c.unfinished++
	case from > 0 && last:
		c.unfinished--
	}
	for _, name := range names {
		list.Items = append(list.Items, *c.objects[name].DeepCopy())
	}
	return nil
}

func (c *apiServer) watch(ctx context.Context, o metav1.ListOptions) (watch.Interface, error) {
	c.mu.Lock()
	c.watched = append(c.watched, o)
	fails := c.watching
	c.mu.Unlock()
	if fails != nil {
		if err := fails(ctx); err != nil {
			return nil, err
		}
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	from, _ := strconv.Atoi(o.ResourceVersion)
	w := &stream{events: make(chan watch.Event, 10_000)}
	for _, e := range c.history {
		version, _ := strconv.Atoi(e.Object.(client.Object).GetResourceVersion())
		if version > from {
			w.events <- watch.Event{Type: e.Type, Object: e.Object.DeepCopyObject()}
		}
	}
	c.watches[w] = ctx
	end := func() {
		c.mu.Lock()
		defer c.mu.Unlock()
		delete(c.watches, w)
		w.Stop()
	}
	context.AfterFunc(ctx, end)
	agreed := time.AfterFunc(time.Duration(*o.TimeoutSeconds)*time.Second, func() {
		if c.mu.Lock(); c.deaf {
			c.mu.Unlock()
			return
		}
		c.mu.Unlock()
		end()
	})
	context.AfterFunc(ctx, func() { agreed.Stop() })
	return w, nil
}

// asked returns how often lists of all objects and watches were asked for, and forgets them.
func (c *apiServer) asked() (lists, watches int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, o := range c.lists {
		if o.Continue == "" {
			lists++
		}
	}
	lists -= c.unfinished
	watches = len(c.watched)
	c.lists, c.watched, c.unfinished = nil, nil, 0
	return lists, watches
}

// fail makes lists and watches fail with the error of f; nil ends that.
func (c *apiServer) fail(f func(context.Context) error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.listing, c.watching = f, f
}

// scene is a source that follows a cluster.
type scene struct {
	*apiServer
	set   *Set
	src   *source
	lines []string
	mu    sync.Mutex
	end   context.CancelFunc
}

func (s *scene) said() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.lines)
}

// follow runs a scene in a bubble. The step "step" has the declarations.
func follow(t *testing.T, c *apiServer, run func(t *testing.T, s *scene), declared ...Declaration) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		RegisterTestingT(t)
		s := &scene{apiServer: c}
		log := funcr.New(func(_, args string) {
			s.mu.Lock()
			defer s.mu.Unlock()
			s.lines = append(s.lines, args)
		}, funcr.Options{})
		s.set = newSet(log, nil, declared...)
		s.src = s.set.sources[0]
		ctx, cancel := context.WithCancel(t.Context())
		s.end = cancel
		done := make(chan struct{})
		go func() {
			defer close(done)
			s.set.Run(ctx, server{list: c.list, watch: c.watch})
		}()
		synctest.Wait()
		run(t, s)
		cancel()
		<-done
	})
}

// call returns the values that a call sees, and how long it took.
func (s *scene) call() (values map[string]string, took time.Duration, err error) {
	began := time.Now()
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	var list corev1.ConfigMapList
	err = s.set.Snapshot(ctx).Reader("step").List(ctx, &list)
	values = map[string]string{}
	for _, o := range list.Items {
		values[o.Name] = o.Data["value"]
	}
	return values, time.Since(began), err
}

// sees expects the values that a call sees.
func (s *scene) sees(matcher OmegaMatcher) {
	GinkgoHelper()
	values, _, err := s.call()
	Expect(err).NotTo(HaveOccurred())
	Expect(values).To(matcher)
}

func forbidden(context.Context) error {
	return apierrors.NewForbidden(corev1.Resource("configmaps"), "", errors.New("no right"))
}

func down(context.Context) error { return errors.New("connection refused") }

// hangs answers when the request is given up.
func hangs(ctx context.Context) error {
	<-ctx.Done()
	return ctx.Err()
}

func unavailable(context.Context) error {
	return apierrors.NewServiceUnavailable("etcd is away")
}

func converts(context.Context) error {
	return apierrors.NewInternalError(errors.New("conversion webhook for v1 failed: connection refused"))
}

func TestFailuresBeforeTheFirstListAreSaidWithinTwoSecondsAndTriedAgainWithinFive(t *testing.T) {
	for reason, fails := range map[string]func(context.Context) error{
		"no right": forbidden, "etcd is away": unavailable, "conversion webhook for v1 failed": converts, "connection refused": down, "has not answered in full": hangs,
	} {
		t.Run(reason, func(t *testing.T) {
			c := newAPIServer("one")
			c.fail(fails)
			follow(t, c, func(t *testing.T, s *scene) {
				time.Sleep(2 * time.Second)
				Expect(s.said()).To(ConsistOf(And(ContainSubstring("cannot be listed"), ContainSubstring(reason))))
				Expect(s.set.Waiting("step")).To(MatchError(ContainSubstring(reason)))
				Expect(s.set.Interruptions()).To(ConsistOf(And(HaveField("Listed", false), HaveField("Steps", ConsistOf("step")), HaveField("Reason", ContainSubstring(reason)))))
				time.Sleep(10 * time.Minute)
				Expect(len(s.said())).To(BeNumerically("<=", 2), "a reason is said once")
				c.fail(nil)
				if reason == "has not answered in full" {
					time.Sleep(answerTimeout)
				}
				time.Sleep(5 * time.Second)
				Expect(s.set.Waiting("step")).To(Succeed())
				Expect(s.said()).To(ContainElement(ContainSubstring("up to date again")))
				s.sees(HaveKey("one"))
			}, Declaration{MaxStale: time.Minute})
		})
	}
}

func TestAStartWaitsForFailuresNotAtAllAndForSilenceTenSeconds(t *testing.T) {
	for _, fails := range []func(context.Context) error{forbidden, unavailable, converts, down, hangs} {
		c := newAPIServer("one")
		c.fail(fails)
		follow(t, c, func(t *testing.T, s *scene) {
			began := time.Now()
			s.set.Settled(t.Context())
			if time.Since(began) != 0 {
				Expect(time.Since(began)).To(Equal(maxSettle))
				Expect(s.said()).To(ContainElement(ContainSubstring("going on without objects")))
			}
		}, Declaration{})
	}
}

func TestABrokenReadCostsACallNothing(t *testing.T) {
	for name, fails := range map[string]func(context.Context) error{"refused": forbidden, "unavailable": unavailable, "down": down, "hanging": hangs} {
		t.Run(name, func(t *testing.T) {
			c := newAPIServer("one")
			follow(t, c, func(t *testing.T, s *scene) {
				c.fail(fails)
				c.cut()
				time.Sleep(2*time.Minute + answerTimeout)
				var whole time.Duration
				c.asked()
				began := time.Now()
				for range 1000 {
					_, took, err := s.call()
					Expect(err).To(MatchError(ContainSubstring("Read.MaxStale")))
					whole += took
					time.Sleep(137 * time.Millisecond)
				}
				Expect(whole).To(BeNumerically("<=", maxWait), "1,000 calls together")
				c.mu.Lock()
				attempts := len(c.lists) + len(c.watched)
				c.mu.Unlock()
				Expect(attempts).To(BeNumerically("<=", int(time.Since(began)/soonest)), "calls cause one attempt a second at most")
				Expect(len(s.said())).To(BeNumerically("<=", 2), "%v", s.said())
			}, Declaration{MaxStale: time.Minute})
		})
	}
}

func TestCallsShareOneAttempt(t *testing.T) {
	c := newAPIServer("one")
	follow(t, c, func(t *testing.T, s *scene) {
		c.fail(down)
		c.cut()
		time.Sleep(10 * time.Minute)
		for s.src.mu.Lock(); time.Since(s.src.tried) < 2*soonest; s.src.mu.Lock() {
			s.src.mu.Unlock()
			time.Sleep(time.Second)
		}
		s.src.mu.Unlock()
		c.mu.Lock()
		c.listing = func(ctx context.Context) error { time.Sleep(100 * time.Millisecond); return nil }
		c.watching = nil
		c.mu.Unlock()
		c.asked()
		var calls sync.WaitGroup
		for range 100 {
			calls.Go(func() {
				values, took, err := s.call()
				Expect(err).NotTo(HaveOccurred(), "the call itself shows that the API server is up again")
				Expect(values).To(HaveKey("one"))
				Expect(took).To(Equal(100 * time.Millisecond))
			})
		}
		calls.Wait()
		lists, watches := c.asked()
		Expect([]int{lists, watches}).To(Equal([]int{1, 1}))
	}, Declaration{MaxStale: time.Minute})
}

func TestAnInterruptedWatchGoesOnOnlyIfThatHidesNothing(t *testing.T) {
	for name, of := range map[string]struct {
		broken time.Duration
		lists  int
		stale  []time.Duration
	}{
		"after a short time":                     {20 * time.Second, 0, []time.Duration{time.Hour, time.Minute}},
		"after a time that is too long for one":  {90 * time.Second, 1, []time.Duration{time.Hour, time.Minute}},
		"after any time, for objects of any age": {time.Hour, 0, []time.Duration{0}},
		"after a long time, for one of several":  {time.Hour, 1, []time.Duration{0, 2 * time.Minute, 0}},
	} {
		t.Run(name, func(t *testing.T) {
			c := newAPIServer("one")
			for n := range 600 { // more than a page: fewer are always listed
				c.put(strconv.Itoa(n), "")
			}
			var declared []Declaration
			for _, age := range of.stale {
				declared = append(declared, Declaration{MaxStale: age})
			}
			follow(t, c, func(t *testing.T, s *scene) {
				time.Sleep(time.Hour)
				c.fail(down)
				c.cut()
				c.put("two", "")
				c.remove("one")
				time.Sleep(of.broken)
				c.fail(nil)
				c.asked()
				time.Sleep(2 * cluster.LastPause)
				lists, _ := c.asked()
				Expect(lists).To(Equal(of.lists))
				s.sees(And(HaveLen(601), HaveKey("two"), Not(HaveKey("one"))))
			}, declared...)
		})
	}
}

func TestWatchesThatAProxyCutsGoOnSoon(t *testing.T) {
	c := newAPIServer("one")
	follow(t, c, func(t *testing.T, s *scene) {
		for n := range 10 {
			time.Sleep(20 * time.Second)
			c.cut()
			c.put("one", strconv.Itoa(n))
			time.Sleep(1500 * time.Millisecond)
			s.sees(Equal(map[string]string{"one": strconv.Itoa(n)}))
		}
		lists, watches := c.asked()
		Expect([]int{lists, watches}).To(Equal([]int{11, 11}), "an API server that stops ends its watches in the same way")
	}, Declaration{MaxStale: time.Minute})
}

func TestAClusterThatWentBackIsListed(t *testing.T) {
	c := newAPIServer("one")
	follow(t, c, func(t *testing.T, s *scene) {
		before := c.version
		c.put("lost", "")
		time.Sleep(time.Second)
		c.fail(down)
		c.cut()
		time.Sleep(10 * time.Second)
		c.mu.Lock() // as after a restore
		c.version, c.history = before, nil
		delete(c.objects, "lost")
		c.mu.Unlock()
		c.fail(nil)
		time.Sleep(cluster.LastPause)
		s.sees(Equal(map[string]string{"one": ""}))
	}, Declaration{MaxStale: time.Minute})
}

func TestAVersionThatIsGoneMakesOneList(t *testing.T) {
	expired := apierrors.NewResourceExpired("too old resource version")
	ahead := apierrors.NewTimeoutError("Too large resource version: 900, current: 800", 1)
	ahead.ErrStatus.Details.Causes = []metav1.StatusCause{{Type: metav1.CauseTypeResourceVersionTooLarge}}
	for name, how := range map[string]func(*apiServer){
		"in the watch":          func(c *apiServer) { c.cut(watch.Event{Type: watch.Error, Object: &expired.ErrStatus}) },
		"of the future":         func(c *apiServer) { c.cut(watch.Event{Type: watch.Error, Object: &ahead.ErrStatus}) },
		"when the watch begins": func(c *apiServer) { c.refuseOnce(expired) },
	} {
		t.Run(name, func(t *testing.T) {
			c := newAPIServer("one")
			follow(t, c, func(t *testing.T, s *scene) {
				time.Sleep(time.Hour)
				c.asked()
				how(c)
				time.Sleep(5 * time.Second)
				lists, _ := c.asked()
				Expect(lists).To(Equal(map[bool]int{true: 2, false: 1}[name == "when the watch begins"]), "and one after the watch before it")
				c.put("one", "new")
				time.Sleep(time.Second)
				s.sees(Equal(map[string]string{"one": "new"}))
			}, Declaration{MaxStale: time.Minute})
		})
	}
}

// refuseOnce ends all watches, and refuses the next one.
func (c *apiServer) refuseOnce(err error) {
	c.mu.Lock()
	c.watching = func(context.Context) error {
		c.mu.Lock()
		defer c.mu.Unlock()
		c.watching = nil
		return err
	}
	c.mu.Unlock()
	c.cut()
}

func TestObjectsThatMayBeListedButNotWatchedAreNotServedAndListedOnce(t *testing.T) {
	for _, stale := range []time.Duration{0, time.Minute} {
		c := newAPIServer("one")
		c.watching = forbidden
		follow(t, c, func(t *testing.T, s *scene) {
			time.Sleep(10 * time.Minute)
			lists, _ := c.asked()
			Expect(lists).To(Equal(1))
			Expect(s.set.Waiting("step")).To(MatchError(ContainSubstring("no right")))
			_, _, err := s.call()
			Expect(err).To(MatchError(ContainSubstring("no right")))
			c.put("one", "changed")
			c.fail(nil)
			time.Sleep(5 * time.Second)
			s.sees(Equal(map[string]string{"one": "changed"}))
			lists, _ = c.asked()
			Expect(lists).To(Equal(map[time.Duration]int{0: 0, time.Minute: 1}[stale]), "an old list is not taken for a new one")
			c.mu.Lock()
			defer c.mu.Unlock()
			maps.DeleteFunc(c.watches, func(w *stream, _ context.Context) bool { return w.stopped.Load() })
			Expect(c.watches).To(HaveLen(1), "a watch that is given up is stopped")
		}, Declaration{MaxStale: stale})
	}
}

func TestNothingOlderThanMaxStaleIsServed(t *testing.T) {
	for name, over := range map[string]int{"HTTP/1.1": 1, "HTTP/2": 2} {
		t.Run(name, func(t *testing.T) {
			c := newAPIServer("one")
			follow(t, c, func(t *testing.T, s *scene) {
				answer := answers{s.set, false, RoundTrip(func(*http.Request) (*http.Response, error) {
					return &http.Response{ProtoMajor: over, Header: http.Header{}}, nil
				})}
				response, err := answer.RoundTrip(nil)
				Expect(err).NotTo(HaveOccurred())
				Expect(response.ProtoMajor).To(Equal(over))
				time.Sleep(13 * time.Minute) // until a watch has begun that knows the protocol
				began := time.Now()
				for time.Since(began) < 5*time.Minute { // nothing is refused while all is well
					_, _, err := s.call()
					Expect(err).NotTo(HaveOccurred())
					time.Sleep(time.Second)
				}
				c.asked()
				time.Sleep(10 * time.Minute)
				lists, watches := c.asked()
				Expect(lists).To(BeZero())
				if over == 1 {
					Expect(watches).To(BeNumerically("~", 24, 1))
				} else {
					Expect(watches).To(BeNumerically("<=", 2))
				}

				c.mu.Lock()
				c.deaf = true // the connection is dead, without a word
				c.mu.Unlock()
				c.put("one", "new")
				dead := time.Now()
				c.fail(hangs)
				if over == 2 { // client-go notices it
					time.AfterFunc(cluster.Unnoticed, func() {
						c.cut(watch.Event{Type: watch.Error, Object: &apierrors.NewInternalError(errors.New("http2: client connection lost")).ErrStatus})
					})
				}
				for _, _, err := s.call(); err == nil; _, _, err = s.call() {
					Expect(time.Since(dead)).To(BeNumerically("<=", time.Minute))
					time.Sleep(time.Second)
				}
			}, Declaration{MaxStale: time.Minute})
		})
	}
}

func TestATransportOfTheProgramIsNotTrustedToNotice(t *testing.T) {
	RegisterTestingT(t)
	for _, given := range []bool{false, true} {
		config, set := &rest.Config{Host: "http://localhost"}, setOf(Declaration{})
		http2 := RoundTrip(func(*http.Request) (*http.Response, error) {
			return &http.Response{StatusCode: http.StatusServiceUnavailable, ProtoMajor: 2, Header: http.Header{"Retry-After": {"30"}}, Body: http.NoBody}, nil
		})
		if given {
			config.Transport = http2
		}
		set.Wrap(config)
		Expect(set.unwatched.Load()).To(Equal(given))
		response := Must(config.WrapTransport(http2).RoundTrip(nil))
		Expect(set.unwatched.Load()).To(Equal(given))
		Expect(response.Header).To(BeEmpty(), "client-go would wait, and hide the reason")
	}
}

func TestManyObjectsAreListedInPages(t *testing.T) {
	var names []string
	for n := range 1200 {
		names = append(names, fmt.Sprintf("o%04d", n))
	}
	for _, expires := range []bool{false, true} {
		c := newAPIServer(names...)
		if expires {
			c.listing = func(context.Context) error {
				c.mu.Lock()
				defer c.mu.Unlock()
				if last := c.lists[len(c.lists)-1]; last.Continue != "" {
					return apierrors.NewResourceExpired("the continue token is too old")
				}
				return nil
			}
		}
		follow(t, c, func(t *testing.T, s *scene) {
			s.sees(HaveLen(1200))
			last := map[bool]int64{false: 500, true: 0}[expires]
			Expect(c.lists).To(HaveExactElements(HaveField("Limit", int64(500)), HaveField("Limit", int64(500)), HaveField("Limit", last)))
		}, Declaration{})
	}
}

func TestAListThatTakesLongerThanMaxStaleIsStored(t *testing.T) {
	c := newAPIServer()
	for n := range 4 * 500 {
		c.put(fmt.Sprintf("o%04d", n), "")
	}
	c.listing = func(context.Context) error { time.Sleep(20 * time.Second); return nil }
	follow(t, c, func(t *testing.T, s *scene) {
		time.Sleep(2 * time.Minute)
		s.sees(HaveLen(4 * 500))
		lists, watches := c.asked()
		Expect([]int{lists, watches}).To(Equal([]int{1, 1}))
	}, Declaration{MaxStale: time.Minute})
}

func TestARequiredObjectIsAState(t *testing.T) {
	c := newAPIServer()
	follow(t, c, func(t *testing.T, s *scene) {
		missing := MatchError(And(ContainSubstring("there is no ConfigMap in namespace a, b"), ContainSubstring("create it")))
		for range 2 {
			Expect(s.set.Waiting("step")).To(missing)
			_, _, err := s.call()
			Expect(err).To(missing)
			Expect(s.set.Interruptions()).To(ConsistOf(And(HaveField("Absent", true), HaveField("Listed", true), HaveField("Steps", ConsistOf("step")))))
			select {
			case <-s.set.Changed():
			default:
			}
			c.put("one", "")
			synctest.Wait()
			Expect(s.set.Changed()).To(Receive())
			Expect(s.set.Waiting("step")).To(Succeed())
			Expect(s.set.Interruptions()).To(BeEmpty())
			c.remove("one")
			synctest.Wait()
		}
		Expect(s.said()).To(HaveExactElements(ContainSubstring("missing that steps require"), ContainSubstring("there again"),
			ContainSubstring("missing that steps require"), ContainSubstring("there again"), ContainSubstring("missing that steps require")))
	}, Declaration{Required: true, Namespaces: []string{"a", "b"}})
}

func TestTransformCannotHideAnObjectFromALookupByLabels(t *testing.T) {
	c := newAPIServer("one", "two")
	follow(t, c, func(t *testing.T, s *scene) {
		var list corev1.ConfigMapList
		Expect(s.set.Snapshot(t.Context()).Reader("step").List(t.Context(), &list, client.MatchingLabels{"name": "one"})).To(Succeed())
		Expect(list.Items).To(HaveLen(1))
		Expect(labels.Set(list.Items[0].Labels)).To(Equal(labels.Set{"name": "one"}))
		Expect(list.Items[0].Data).To(BeEmpty())
	}, Declaration{Transform: func(o client.Object) { *o.(*corev1.ConfigMap) = corev1.ConfigMap{} }})
}

func TestRightsTakenAwayAreSaidAtOnce(t *testing.T) {
	c := newAPIServer("one")
	follow(t, c, func(t *testing.T, s *scene) {
		var regained atomic.Int32
		s.set.Regained = func() { regained.Add(1) }
		time.Sleep(time.Minute)
		c.fail(forbidden)
		c.cut()
		time.Sleep(2 * time.Second)
		Expect(s.said()).To(ConsistOf(And(ContainSubstring("are refused"), ContainSubstring("no right"))))
		_, _, err := s.call()
		Expect(err).NotTo(HaveOccurred(), "before MaxStale")
		time.Sleep(time.Minute)
		_, _, err = s.call()
		Expect(err).To(MatchError(And(ContainSubstring("Read.MaxStale"), ContainSubstring("no right"))))
		c.fail(nil)
		time.Sleep(2 * cluster.LastPause)
		_, _, err = s.call()
		Expect(err).NotTo(HaveOccurred())
		Expect(regained.Load()).To(BeEquivalentTo(1), "what else was refused is looked at again")
	}, Declaration{MaxStale: time.Minute})
}

func TestACallHasRefusedObjectsListedAgain(t *testing.T) {
	c := newAPIServer("one")
	follow(t, c, func(t *testing.T, s *scene) {
		c.fail(forbidden)
		c.cut()
		time.Sleep(10 * time.Minute) // until attempts have become rare
		c.fail(nil)
		var took time.Duration
		for range 2 {
			_, took, _ = s.call()
			Expect(took).To(BeZero(), "it waits for nothing")
			time.Sleep(2 * soonest)
		}
		_, _, err := s.call()
		Expect(err).NotTo(HaveOccurred())
	}, Declaration{MaxStale: time.Minute})
}

func TestAnAnswerThatComesWithTheEndOfPatienceIsNoInterruption(t *testing.T) {
	RegisterTestingT(t)
	src := setOf(Declaration{}).sources[0]
	listed(src)
	src.broke(errSilent) // the timer ran out while the answer was read
	broken, _ := src.broken()
	Expect(broken).To(BeZero())
	src.began = time.Now()
	src.broke(errSilent)
	broken, _ = src.broken()
	Expect(broken).NotTo(BeZero())
}
