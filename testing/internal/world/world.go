// Package world runs whole programs where one seed decides everything: the replicas of a program, each a Manager through
// its public API, API servers in memory, and callers that admit as an API server does, over real TLS. All of it lives in one bubble of
// testing/synctest, so that hours take milliseconds. A Plan says which faults come when. The promises are checked on every
// call, and where the world is at rest.
//
// A world cannot control the order in which goroutines that could all run do so, nor reach a goroutine that waits for a mutex
// while its holder waits for the time: that stops the clock of the bubble. So a seed that fails may need more than one try to
// fail again. A frozen process has silent wires and goes on by itself, because a goroutine cannot be halted. All processes
// share one clock, and those of the API servers differ from it. Nothing here listens on a real socket: controller-runtime's
// webhook server has specs of its own.
package world

import (
	"context"
	"errors"
	"fmt"
	"hash/fnv"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"code.cloudfoundry.org/eirinix"
	"code.cloudfoundry.org/eirinix/internal/fakeapi"
	"code.cloudfoundry.org/eirinix/internal/mapper"
	"code.cloudfoundry.org/eirinix/internal/rollout"
)

// World is one run of a plan.
type World struct {
	plan     Plan
	releases []release
	api      *fakeapi.API
	servers  []*apiServer
	network  *network
	service  *service
	rights   rights
	tasks    sync.WaitGroup // everything that the world started
	tools    sync.Mutex     // held by the one that keeps reverting a configuration
	moving   sync.Mutex     // held while the program is at another address
	over     chan struct{}  // closed at the end of the time, or at the first violation
	changed  chan struct{}  // wakes the deployment
	touched  chan struct{}  // wakes those who look at the chains that replicas serve
	auditing atomic.Bool    // while an audit is under way
	audited  atomic.Int64   // audits that have begun
	listed   atomic.Int64   // pages of lists
	forgot   atomic.Bool    // an API server has forgotten where a list of this audit was
	turned   atomic.Int64   // by which the clocks of all API servers are set back, in nanoseconds
	began    time.Time
	end      sync.Once
	overTo   chan<- *World // outside the bubble; receives it when it is over

	controlPlane *host
	authorities  authorities

	mu          sync.Mutex
	rng         *rand.Rand
	started     int
	startedAt   time.Time // when the last replica did
	loads       int
	crowdings   int
	processes   []*process
	wanted      release
	generation  int // of the Deployment
	replicas    int
	paused      time.Time          // until then, replicas of other versions stay
	failed      time.Time          // when a replica has last ended by itself
	history     map[string]history // of the configurations, by kind
	secrets     []*unstructured.Unstructured
	decoded     map[*unstructured.Unstructured][]hook
	policies    []policyVersion
	generations int               // of the policy
	modes       map[string]modeOf // of steps; Deny for others
	boxes       []boxStep
	paths       map[string][]string // the names of the steps that versions have recorded, by path
	story       []line
	violation   string
	counts      Counts
	before      gathered // the metrics, when the world began
	watch       promises
	recordings  recordings
}

// Counts says how much has happened.
type Counts struct{ Calls, Admissions, Denials, Starts, Writes int }

func (c *Counts) add(other Counts) {
	c.Calls += other.Calls
	c.Admissions += other.Admissions
	c.Denials += other.Denials
	c.Starts += other.Starts
	c.Writes += other.Writes
}

// Result is what a run has shown.
type Result struct {
	Plan      Plan
	Violation string // empty if every promise held
	Counts    Counts
	story     []line
	began     time.Time
}

// Run plays a plan.
func Run(t *testing.T, plan Plan) (result Result) {
	over, ended := make(chan *World, 1), make(chan struct{})
	defer close(ended)
	go awaitEnd(over, ended)
	synctest.Test(t, func(*testing.T) {
		w := newWorld(plan)
		w.overTo = over
		result = w.run()
	})
	return result
}

func newWorld(plan Plan) *World {
	w := &World{
		plan: plan, network: newNetwork(), over: make(chan struct{}), changed: make(chan struct{}, 1), touched: make(chan struct{}, 1), began: time.Now(),
		controlPlane: newHost("the control plane"), history: map[string]history{}, decoded: map[*unstructured.Unstructured][]hook{}, modes: map[string]modeOf{},
	}
	w.rng = w.stream("world", 0)
	w.watch.digests, w.watch.gone, w.watch.written = map[string]string{}, map[string]bool{}, map[string]hook{}
	w.watch.tallies, w.watch.refusals, w.watch.killed = map[string]*tally{}, map[int]int{}, map[string]bool{}
	w.releases = releases(w.stream("releases", 0), plan)
	w.replicas, w.paths = plan.Replicas, map[string][]string{}
	for i := range w.releases {
		w.releases[i].over = w.over
	}
	if plan.Boxes {
		w.boxes = drawBoxes(w.stream("boxes", 0), plan.Modes && plan.settled("mode", "restore", "right", "namespace", audits))
		w.widen(w.stream("wide boxes", 0))
		w.likens(w.stream("like boxes", 0))
		for i := range w.releases {
			w.releases[i].boxes = w.boxes
		}
	}
	w.learn(w.stream("thirds", 0))
	w.part(w.stream("parts", 0))
	w.declare(w.stream("declared modes", 0))
	w.service = &service{rng: w.stream("service", 0), turn: map[string]int{}, seen: map[string]int{}}
	return w
}

// stream returns chances of their own, so that a fault that is left out changes no others.
func (w *World) stream(name string, n int) *rand.Rand {
	h := fnv.New64a()
	_, _ = fmt.Fprintf(h, "%s/%d", name, n)
	return rand.New(rand.NewPCG(w.plan.Seed, h.Sum64())) //nolint:gosec // a seed decides
}

// lag is how late something is known.
func (w *World) lag() time.Duration {
	w.mu.Lock()
	defer w.mu.Unlock()
	return time.Duration(w.rng.Int64N(int64(w.plan.Lag) + 1))
}

// hesitation is how long the first bytes of a connection take; usually no time.
func (w *World) hesitation() time.Duration {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.rng.IntN(8) > 0 {
		return 0
	}
	return time.Duration(w.rng.Int64N(int64(min(w.plan.Lag, slowest/2))))
}

func (w *World) run() Result {
	var err error
	if w.before, err = gather(); err != nil {
		w.violate("the metrics cannot be read: %v", err)
	}
	if err := w.makeCluster(); err != nil {
		w.violate("no cluster: %v", err)
		return w.result()
	}
	w.tasks.Go(w.startsAlone)
	w.tasks.Go(w.serveLater)
	w.tasks.Go(w.sleeps)
	w.tasks.Go(w.deploy)
	w.tasks.Go(w.callAll)
	w.tasks.Go(w.strike)
	w.tasks.Go(w.adds)
	if w.plan.Late && w.plan.Reads {
		w.tasks.Go(w.late)
	}
	if w.plan.Split {
		w.tasks.Go(w.cron)
	} else if len(w.releases) > 1 && !w.plan.Callers && !w.plan.Records { // they would be callers without a certificate, and recorded
		w.tasks.Go(w.answersAll)
	}
	w.tasks.Go(w.adapts)
	w.tasks.Go(w.shakes)
	if w.plan.Wide {
		w.tasks.Go(w.movesTenants)
	}
	if w.plan.watches() {
		w.tasks.Go(w.movesPods)
	}
	w.tasks.Go(w.minutes)
	w.mistakes()
	if w.plan.Callers {
		w.tasks.Go(w.visits)
	}
	if w.wait(w.plan.Lasts - quiet) {
		w.rest()
	}
	w.isOver()
	w.finish()
	return w.result()
}

// finish ends all processes, and waits for all goroutines.
func (w *World) finish() {
	for _, s := range w.servers {
		s.heal()
	}
	w.mu.Lock()
	all := slices.Clone(w.processes)
	w.mu.Unlock()
	var ending sync.WaitGroup
	if w.plan.Unregister && w.plan.Modes && w.violation == "" {
		ending.Go(func() { w.setMode("a", string(eirinix.ModeShadow)) })
		time.Sleep(w.lag())
	}
	for _, p := range all {
		if w.plan.Gentle {
			ending.Go(p.terminate)
		} else {
			ending.Go(p.kill)
		}
	}
	ending.Wait()
	if w.plan.Unregister && w.plan.Gentle && w.violation == "" {
		for _, kind := range configurations {
			if hooks := webhooksOf(w.history[kind].last()); len(hooks) > 0 {
				w.violate("every replica has stopped with UnregisterOnStop, and the %s still holds %d entries", kind, len(hooks))
			}
		}
	}
	if w.plan.Unregister && w.plan.Gentle && w.violation == "" {
		w.unreported()
	}
	w.tasks.Wait()
	w.comparesRecordings()
	w.counted()
	for _, s := range w.servers {
		s.reset()
		s.server.Close()
	}
	w.controlPlane.cut(true)
}

// rate counts events.
type rate struct {
	all    int
	recent []time.Time                // within minute
	last   *unstructured.Unstructured // of writes
}

// rateOf returns the rate of that name, and makes it at first.
func rateOf(all *map[string]*rate, name string) *rate {
	if *all == nil {
		*all = map[string]*rate{}
	}
	if (*all)[name] == nil {
		(*all)[name] = &rate{}
	}
	return (*all)[name]
}

func (r *rate) add(at time.Time) {
	r.all++
	for len(r.recent) > 0 && at.Sub(r.recent[0]) > time.Minute {
		r.recent = r.recent[1:]
	}
	r.recent = append(r.recent, at)
}

func (w *World) result() Result {
	w.mu.Lock()
	defer w.mu.Unlock()
	return Result{Plan: w.plan, Violation: w.violation, Counts: w.counts, story: w.story, began: w.began}
}

func (w *World) count(f func(*Counts)) {
	w.mu.Lock()
	defer w.mu.Unlock()
	f(&w.counts)
}

// makeCluster makes the API servers, and what is in the cluster before the program comes.
func (w *World) makeCluster() (err error) {
	meta := func(ns, name string) metav1.ObjectMeta {
		m := metav1.ObjectMeta{Namespace: ns, Name: name}
		if ns == "" {
			m.Labels = map[string]string{corev1.LabelMetadataName: name}
		}
		return m
	}
	objects := []client.Object{
		&corev1.Namespace{ObjectMeta: meta("", namespace)}, &corev1.Namespace{ObjectMeta: meta("", "shop")}, &corev1.Namespace{ObjectMeta: meta("", "kube-system")},
		&corev1.Service{ObjectMeta: meta(namespace, serviceName), Spec: corev1.ServiceSpec{ClusterIP: "10.0.0.10", Ports: []corev1.ServicePort{{Port: 443}}}},
	}
	if w.plan.Reads && !w.plan.Late {
		objects = append(objects, w.plan.policy(1))
		w.policies, w.generations = []policyVersion{{generation: 1, from: w.began}}, 1
	}
	if w.plan.vaults() {
		objects, w.recordings.tokens = append(objects, secretThatIsRead()), append(w.recordings.tokens, vaultedToken)
	}
	for n := range tenants {
		if w.plan.Wide {
			objects = append(objects, tenant(n, n%floors))
		}
	}
	scheme := runtime.NewScheme()
	if err := errors.Join(clientgoscheme.AddToScheme(scheme), apiextensionsv1.AddToScheme(scheme)); err != nil {
		return err
	}
	w.rights.coming = w.plan.comes()
	w.rights.unserve(w.plan.Kinds && w.plan.Late && w.plan.Seed%2 == 0)
	if w.plan.Converts {
		objects = append(objects, definition(w.plan))
	}
	if objects = append(objects, w.existing(scheme)...); w.plan.Boxes && !w.plan.audits() {
		objects = append(objects, bankNamespace())
	}
	if w.plan.migrates() {
		secret, err := w.eirinixSecret()
		if err != nil {
			return err
		}
		objects = append(objects, secret)
	}
	if w.api, err = fakeapi.New(scheme, mapper.New(scheme, nil), objects...); err != nil {
		return err
	}
	rng := w.stream("servers", 0)
	for i := range w.plan.Servers {
		s := &apiServer{w: w, name: fmt.Sprint("API server ", i+1), identity: w.identity, lag: time.Duration(rng.Int64N(int64(w.plan.Lag) + 1))}
		s.reset()
		s.ahead = w.plan.Clocks + time.Duration(rng.Int64N(int64(time.Second))) // they agree with each other
		lags := w.stream(s.name, 0)
		s.server = w.api.NewServer(fakeapi.ServerOptions{
			Lag: func() time.Duration { return time.Duration(lags.Int64N(int64(min(w.plan.Lag, slowest))+1)) + s.late() }, Keeps: 20 + rng.IntN(100), Bookmarks: 5 * time.Minute,
			Admit: s.admits,
		})
		w.servers = append(w.servers, s)
	}
	if slices.ContainsFunc(w.boxes, func(s boxStep) bool { return len(s.modes) > 0 }) {
		w.writeModes()
	}
	return errors.Join(w.authorities.set(w), w.setSigner(), w.mounts())
}

// observe notes how the configurations are now.
func (w *World) observe() {
	for i, kind := range registered {
		now := w.find(kind, "", []string{fingerprint + "-mutating-hook", fingerprint + "-validating-hook", definitionName}[i])
		w.mu.Lock()
		h := w.history[kind]
		if last := h.last(); now != last {
			w.history[kind] = append(h, version{now, time.Now()})
			w.watch.configured(w, kind, last, now)
		}
		w.mu.Unlock()
	}
	w.publish()
	lease := w.find("Lease", namespace, fingerprint+"-versions")
	w.mu.Lock()
	defer w.mu.Unlock()
	if lease != nil {
		w.recorded(rollout.Read(lease.GetAnnotations()))
	} else {
		w.watch.versions = nil // those of the next Lease begin anew
	}
}

// line is a sentence of the story.
type line struct {
	at    time.Time
	who   string
	text  string
	minor bool // left out where there is not room for all
}

func (w *World) tell(who fmt.Stringer, format string, args ...any) {
	w.note(line{who: who.String(), text: fmt.Sprintf(format, args...)})
}

func (w *World) note(l line) {
	l.at = time.Now()
	w.mu.Lock()
	defer w.mu.Unlock()
	w.story = append(w.story, l)
}

type named string

func (n named) String() string { return string(n) }

// violate ends the world: a promise did not hold.
func (w *World) violate(format string, args ...any) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.breaks(format, args...)
}

// breaks is violate for a caller that holds mu.
func (w *World) breaks(format string, args ...any) {
	if w.violation != "" {
		return
	}
	w.violation = fmt.Sprintf(format, args...)
	w.story = append(w.story, line{at: time.Now(), who: "the world", text: "a promise does not hold: " + w.violation})
	w.isOver()
}

const (
	most  = 30 // sentences of a story
	least = 10
)

// Story tells what led to the violation.
func (r Result) Story() string {
	var told []line
	for _, minors := range []bool{false, true} {
		told = nil
		for i := len(r.story) - 1; i >= 0 && len(told) < most; i-- {
			if !r.story[i].minor || minors {
				told = append(told, r.story[i])
			}
		}
		if len(told) >= least {
			break
		}
	}
	slices.Reverse(told)
	return r.tell(told)
}

// Everything is all that was noted, for those who look for a cause.
func (r Result) Everything() string { return r.tell(r.story) }

func (r Result) tell(told []line) string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s\n", r.Plan)
	for _, l := range told {
		fmt.Fprintf(&b, "%12s  %-14s %s\n", l.at.Sub(r.began).Round(time.Millisecond), l.who, l.text)
	}
	return b.String()
}

// wait returns false when the world is over before the time has passed.
func (w *World) wait(d time.Duration) bool {
	select {
	case <-time.After(d):
		return true
	case <-w.over:
		return false
	}
}

func (w *World) wake() {
	select {
	case w.changed <- struct{}{}:
	default:
	}
}

// ctx ends with the world.
func (w *World) ctx() (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancel(context.Background())
	go func() {
		select {
		case <-w.over:
			cancel()
		case <-ctx.Done():
		}
	}()
	return ctx, cancel
}
