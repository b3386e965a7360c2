package world

// This file is the program: the processes that run it, the kubelet that asks whether they are ready, and the
// Service that leads to them.

import (
	"context"
	"crypto/tls"
	"fmt"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"runtime/pprof"
	"slices"
	"sync"
	"time"

	"go.uber.org/zap"
	"k8s.io/apimachinery/pkg/types"

	"code.cloudfoundry.org/eirinix"
	"code.cloudfoundry.org/eirinix/internal/seam"
)

const (
	namespace   = "platform"
	serviceName = "webhook"
	fingerprint = "eirini-x"
	port        = "443"
	urlHost     = "webhook.example.com"
	modesName   = "modes"

	// probePeriod and probeFailures are those of the readiness probe (Kubernetes: 10 s and 3).
	probePeriod, probeFailures = 10 * time.Second, 2

	// readyWithin is how long a replica takes at most until it is ready, where nothing but its reads is out of order.
	readyWithin = 90 * time.Second

	// resync is longer than in a program that is started, so that what nothing but a resync would mend stays broken.
	resync = 10 * time.Minute

	// gracePeriod is how long a pod takes to stop at most, beside its DrainDelay: the longest call here, which is a conversion
	// of some objects that each take a while, and some seconds. manifests.Of gives it 45 s (terminationGracePeriodSeconds).
	gracePeriod = 20 * time.Second
)

// process is a replica.
type process struct {
	w          *World
	name       string
	address    string
	release    release
	generation int // of the Deployment that wanted it
	manager    *eirinix.ExtensionManager
	watcher    *observer                   // nil for none
	runs       func(context.Context) error // nil for the Manager itself
	recorded   func(context.Context) error // ends the recording; nil for none
	host       *host
	wire       *wire
	stop       context.CancelFunc
	ended      chan struct{} // its Run has returned
	err        error         // of Run, once ended is closed
	gone       chan struct{} // it is to be called no more: it stops, or was killed
	once       sync.Once

	// guarded by w.mu
	began, readySince, leavingAt time.Time
	endpoint                     bool // it counts as ready
	leaving                      bool
	told                         bool // to stop, and not killed
}

func (p *process) String() string { return p.name }

// start runs a replica of a version.
func (w *World) start(r release) *process {
	w.mu.Lock()
	w.started++
	w.startedAt = time.Now()
	n, generation := w.started, w.generation
	w.mu.Unlock()
	name := fmt.Sprintf("%s/%d", r.name, n)
	p := &process{
		w: w, name: name, address: fmt.Sprintf("10.1.%d.%d:%s", n/250, n%250+1, port), release: r, generation: generation, host: newHost(name),
		ended: make(chan struct{}), gone: make(chan struct{}), began: time.Now(),
	}
	p.wire = w.newWire(p.host, w.stream("wire", n))
	p.host.opened = func(mux *http.ServeMux) { w.tasks.Go(func() { w.opens(p, mux) }) }
	if w.plan.watches() {
		p.watcher = &observer{w: w, p: p, seen: map[types.UID]sighting{}}
	}
	p.manager = w.newManager(p.host, p.wire, name, p.address, r, func(o *eirinix.ManagerOptions) {
		p.hosts(o)
		if p.watcher != nil {
			p.watcher.resumes(o)
		}
		if p.wire.serves = w.plan.Split; p.wire.serves {
			o.RegisterWebHook, o.SetupCertificate = new(false), new(w.plan.Seed%2 == 0)
			o.UnregisterOnStop = w.plan.Seed%2 == 1 // it has registered nothing
		}
	})
	if err := r.add(p.manager); err != nil {
		w.violate("%s cannot be made: %v", p, err)
		close(p.ended)
		return p
	}
	w.records(p)
	if p.watcher != nil {
		p.manager.AddWatcher(p.watcher)
	}
	p.wire.granted = w.grantsOf(r, p.manager)
	ctx, stop := context.WithCancel(context.Background())
	p.stop = stop
	w.mu.Lock()
	w.processes = append(w.processes, p)
	w.watch.comings.add(time.Now())
	w.watch.compare(w, time.Now())
	w.mu.Unlock()
	select {
	case <-w.over: // no other will stop it
		stop()
	default:
	}
	w.tell(p, "starts")
	known := func() bool { return w.rights.held("get", "leases") }
	if len(w.releases) > 1 && !known() { // it may register what other replicas do not know
		w.excuseWhile(rough, func() bool { return !known() })
	}
	w.tasks.Go(func() {
		pprof.Do(ctx, pprof.Labels(processLabel, name), func(ctx context.Context) { p.err = p.run(ctx) })
		p.end()
	})
	if r.crashes {
		w.tasks.Go(func() {
			if w.wait(time.Duration(w.stream("crash", n).Int64N(int64(900 * time.Millisecond)))) { // a kubelet asks after a second
				if n%2 == 0 { // it is told to stop while it starts
					p.terminate()
				} else {
					p.kill()
				}
				w.wake()
			}
		})
	}
	w.tasks.Go(p.probe)
	w.tasks.Go(func() {
		select {
		case <-p.manager.Ready():
			if at := p.manager.Addr(); at == nil || at.String() != p.address {
				w.violate("%s is ready, and listens on %v instead of %s", p, at, p.address)
			}
			w.mu.Lock()
			w.first(p)
			w.mu.Unlock()
			w.trusted(p)
		case <-p.gone:
		}
	})
	return p
}

// newManager makes a Manager of a version on a host. The changes are to its options.
func (w *World) newManager(h *host, c *wire, name, listen string, r release, changes ...func(*eirinix.ManagerOptions)) *eirinix.ExtensionManager {
	o := eirinix.ManagerOptions{
		RestConfig: c.config(), OperatorFingerprint: fingerprint, ServiceName: serviceName, WebhookNamespace: namespace,
		ListenAddress: listen, Logger: zap.New(&recorder{w: w, who: name}).Sugar(), CALifetime: w.plan.CALifetime,
		UnregisterOnStop: w.plan.Unregister, DrainDelay: w.plan.Drain, MaxRequestBytes: mostBytes,
	}
	if w.plan.URL {
		o.ServiceName, o.Host, o.Port, o.DrainDelay = "", urlHost, 443, w.plan.drain()
	}
	if w.plan.Modes {
		o.ModesConfigMap = modesName
	}
	if w.plan.strong() {
		o.KeyAlgorithm = "ECDSA-P384"
	}
	if w.plan.newest() {
		o.TLS = func(c *tls.Config) { c.MinVersion = tls.VersionTLS13 }
	}
	if w.plan.only() {
		o.Namespace = "shop"
	}
	w.sources(&o, r)
	for _, change := range changes {
		change(&o)
	}
	m := eirinix.NewManager(o)
	if s, err := seam.Of(m); err == nil {
		s.SetNetwork(networkOf(w.network, h), resync)
		s.SetLifetimes(w.plan.lifetimes())
	}
	return m
}

func (p *process) end() {
	p.stop()
	p.leave()
	p.host.cut(true)
	p.wire.cut()
	p.recordedSoon()
	w := p.w
	w.mu.Lock()
	w.processes = slices.DeleteFunc(w.processes, func(other *process) bool { return other == p })
	leaving := p.leaving
	w.watch.comings.add(time.Now())
	w.endsWell(p)
	w.mu.Unlock()
	close(p.ended)
	switch {
	case p.err != nil:
		w.tell(p, "has ended: %v", p.err)
	default:
		w.tell(p, "has ended")
	}
	if !leaving {
		w.endedByItself(p)
	}
	w.tasks.Go(func() { w.leaks(p) })
}

// leave takes the replica out of the Service.
func (p *process) leave() {
	p.once.Do(func() {
		close(p.gone)
		p.w.service.set(p.address, false, p.w.lag())
	})
}

// terminate stops the replica as Kubernetes does: it is taken out of the Service while it gets the signal. It returns when it
// has ended.
func (p *process) terminate() {
	p.w.mu.Lock()
	p.told = true
	p.w.mu.Unlock()
	if p.w.stream("haunts "+p.name, 0).IntN(2) == 0 {
		p.w.haunts(p)
	}
	p.leaves()
	p.w.tell(p, "is told to stop")
	p.leave()
	p.stops()
	p.w.tasks.Go(func() { p.w.arrives(p) })
	p.w.tasks.Go(func() { p.w.trickles(p) })
	select {
	case <-p.ended:
	case <-time.After(time.Second):
		if p.ready() {
			p.w.violate("%s is stopping, and says that it is ready", p)
		}
		p.w.stillFollows(p)
		p.w.lasts(p)
		p.w.tasks.Go(func() { p.w.calledAtLast(p) })
		p.w.saysSo(p)
	}
	p.w.tasks.Go(func() { p.w.follows(p) })
	select {
	case <-p.ended:
	case <-time.After(p.w.plan.drain() + gracePeriod):
		p.w.violate("%s has not stopped within %s", p, p.w.plan.drain()+gracePeriod)
		p.host.cut(true)
		p.wire.cut()
		<-p.ended
	}
}

func (p *process) leaves() {
	p.w.mu.Lock()
	defer p.w.mu.Unlock()
	if p.leaving = true; p.leavingAt.IsZero() {
		p.leavingAt = time.Now()
	}
}

// stops tells the replica to stop, by the end of its context or by Stop.
func (p *process) stops() {
	if p.runs == nil && p.w.stream("stops "+p.name, 0).IntN(2) == 0 {
		p.manager.Stop()
	} else {
		p.stop()
	}
}

// kill ends the replica at once. The kubelet notices it after a moment.
func (p *process) kill() {
	p.leaves()
	p.w.mu.Lock()
	p.told, p.w.watch.killed[p.name] = false, true
	p.w.mu.Unlock()
	p.w.tell(p, "is killed")
	p.host.cut(true)
	p.wire.cut()
	p.stop()
	p.leave()
	<-p.ended
}

// ready asks the replica as a kubelet does, but without a connection.
func (p *process) ready() bool {
	if p.host.isDead() || p.host.silence() != nil {
		return false
	}
	mux := p.host.serves()
	if mux == nil {
		return false
	}
	answer := httptest.NewRecorder()
	mux.ServeHTTP(answer, httptest.NewRequest(http.MethodGet, "/readyz", nil))
	ready := answer.Code == http.StatusOK
	if alive := httptest.NewRecorder(); !ready {
		mux.ServeHTTP(alive, httptest.NewRequest(http.MethodGet, "/healthz", nil))
		if alive.Code != http.StatusOK {
			p.w.violate("%s serves, and /healthz answers %d: %s", p, alive.Code, alive.Body)
		}
	}
	return ready
}

// probe is the kubelet.
func (p *process) probe() {
	rng := p.w.stream("probe "+p.name, 0)
	failures, ready := 0, false
	for {
		wait := probePeriod
		if !ready { // kubelets ask a container that has just started more often than that
			wait = time.Second
		}
		select {
		case <-time.After(wait + time.Duration(rng.Int64N(int64(100*time.Millisecond)))):
		case <-p.gone:
			return
		}
		now := p.ready()
		p.w.mu.Lock()
		within := readyWithin
		if p.w.plan.blind() { // its certificate is perhaps one that the CronJob has to register
			within += registersEvery
		}
		if p.readySince.IsZero() && time.Since(p.began) > within && !p.w.troubledSince(p.began, rough, slow, spoiled, lapsed, unissued) {
			p.w.breaks("%s is not ready %s after its start", p, within)
		}
		p.w.isSlow(p)
		p.w.mu.Unlock()
		if now {
			failures = 0
		} else {
			failures++
		}
		if now && !ready {
			p.w.mu.Lock()
			p.w.look() // before it counts
			if p.readySince.IsZero() {
				p.readySince = time.Now()
			}
			p.w.mu.Unlock()
			p.w.tell(p, "is ready")
		}
		if now != ready && (now || failures >= probeFailures) {
			ready = now
			p.w.service.set(p.address, now, p.w.lag())
			if !now {
				p.w.tell(p, "is not ready any more")
				p.w.endpoints(p)
			}
			p.w.mu.Lock()
			p.endpoint = now
			p.w.mu.Unlock()
		}
		select {
		case <-p.gone:
			return
		default:
		}
	}
}

// listening returns the address of a replica that listens, or "".
func (w *World) listening() string {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, p := range w.processes {
		if w.network.open(p.address) {
			return p.address
		}
	}
	return ""
}

// service is the endpoints of the program, as kube-proxy knows them. It is safe for concurrent use.
type service struct {
	mu    sync.Mutex
	rng   *rand.Rand
	ready []string
	turn  map[string]int
	seen  map[string]int
}

// set makes an endpoint known as ready or not, after lag.
func (s *service) set(address string, ready bool, lag time.Duration) {
	s.mu.Lock()
	s.turn[address]++
	turn := s.turn[address]
	s.mu.Unlock()
	time.AfterFunc(lag, func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		if turn < s.seen[address] {
			return // a later change is known already
		}
		s.seen[address] = turn
		s.ready = slices.DeleteFunc(s.ready, func(a string) bool { return a == address })
		if ready {
			s.ready = append(s.ready, address)
		}
	})
}

// pick returns one of the endpoints, or "".
func (s *service) pick() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.ready) == 0 {
		return ""
	}
	return s.ready[s.rng.IntN(len(s.ready))]
}

// endpoints looks at the Service when a replica is not ready any more, which it is only while another one may be called.
func (w *World) endpoints(p *process) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if !p.leaving && w.settledSince(time.Now().Add(-settling)) {
		w.breaks("%s is not ready any more, and nothing has happened for %s", p, settling)
	}
	others := slices.ContainsFunc(w.processes, func(other *process) bool { return other != p && !other.leaving && other.endpoint })
	if !others && !p.leaving && !w.troubledSince(time.Now(), rough, unissued, strange, apart) {
		w.breaks("%s is not ready any more, and no other replica is", p)
	}
}
