package controller_test

// This file lets the model of rotations run: replicas that are slow, crash and lose connections, watches and API servers
// that lag behind, people who damage the Secret and the caBundles. Chance picks who acts next; the seed decides all, and
// is reported with the last events when something fails. The loop, the Store and the decisions are the shipped ones.
// It also checks the model: its invariants, the state that it reaches when it is left alone, and which bundle verifies
// which chain. Verdicts are those of crypto/x509. They are kept until the next moment at which one of the certificates
// that they depend on begins or ends, so that a cached verdict is exact.
//
// The bounds that the protocol needs are in settings. A "damaged Secret" is damaged only while every process that
// runs has started, and mostly in ways that its counter shows; other cases are below and among the
// broken rules, which show that each rule is needed: a world that did not notice would prove nothing.

import (
	"crypto/x509"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"

	"code.cloudfoundry.org/eirinix/internal/ca"
	"code.cloudfoundry.org/eirinix/internal/certsecret"
	"code.cloudfoundry.org/eirinix/internal/spectest"
)

const worldSteps = 4_900 // of one world; then it must come to rest

// usual is a world in which nothing is damaged.
var usual = settings{
	replicas: 3, authorities: 10 * time.Hour, leaves: 12 * time.Minute, retain: 12 * time.Minute,
	lag: 11*time.Minute + 50*time.Second, looks: 11 * time.Minute,
	pace: pace{slow: 0.02, flaky: 0.01}, requests: 25 * time.Minute, crashes: 25 * time.Minute,
}

type change func(*settings)

func but(changes ...change) settings {
	s := usual
	for _, c := range changes {
		c(&s)
	}
	return s
}

// promptly has API servers follow within a minute. A Secret that is put back while an old CA is retained is retained anew,
// but it is registered again only when a replica comes to it, and for that the retention has to leave time.
func promptly(s *settings) { s.lag = time.Minute }

var rotationWorlds = []struct {
	name string
	settings
}{
	{"three replicas", usual},
	{"two replicas and a rotation after the other", but(func(s *settings) { s.replicas, s.requests = 2, 5*time.Minute })},
	{"five slow replicas", but(func(s *settings) { s.replicas, s.slow, s.flaky = 5, 0.1, 0.05 })},
	{"a CA that grows old", but(func(s *settings) { s.requests, s.authorities = 0, 100*time.Minute })},
	{"a key that leaks", but(func(s *settings) {
		s.requests, s.leaks, s.slow = 0, 10*time.Minute, 0.1        // each call is over before the next
		s.lag, s.looks = 300*time.Millisecond, 500*time.Millisecond // the old CA stays for five seconds, by two clocks
	})},
	{"a CA that was taken over, and may issue no CAs", but(prompt, func(s *settings) { s.adopted = true })},
	{"a damaged Secret", but(promptly, func(s *settings) { s.losses = 15 * time.Minute })},
	{"damaged caBundles", but(func(s *settings) { s.blanks = 15 * time.Minute })},
	{"all of it", but(promptly, func(s *settings) {
		s.replicas, s.slow, s.flaky, s.losses, s.blanks = 4, 0.05, 0.03, 25*time.Minute, 25*time.Minute
	})},
}

// run lets a world be, and then come to rest.
func (w *rotations) run(steps int) *rotations {
	defer w.stop()
	for w.steps < steps {
		if !w.step() {
			return w
		}
	}
	w.frugal()
	w.settle()
	return w
}

var _ = Describe("A rotation of the CA, whatever comes between", Label("sequential"), func() {
	steps, seed := volume(rotationSteps)
	for i, of := range rotationWorlds {
		It("never serves a certificate that an API server does not trust, and comes to an end: "+of.name, func() {
			done, rotated, evicted := 0, 0, 0
			for seed := seed + uint64(i)<<12; done < steps/len(rotationWorlds); seed++ {
				w := bubble(func() *rotations {
					return newRotations(of.settings, seed).run(min(worldSteps, steps/len(rotationWorlds)))
				})
				holds(w.world)
				done, rotated, evicted = done+w.steps, rotated+w.staged, evicted+w.evictions
			}
			Expect(rotated).To(BeNumerically(">=", done/500), "the world is not worth its name")
			AddReportEntry(fmt.Sprintf("%d steps, %d rotations, %d forgeries", done, rotated, evicted), ReportEntryVisibilityFailureOrVerbose)
		})
	}
})

// find looks through some worlds for the effect of a broken rule. It returns the last one.
func find(s settings, worlds, steps int) *world {
	return bubble(func() *world {
		var w *rotations
		for seed := range worlds {
			w = newRotations(s, uint64(seed))
			for w.steps < steps && w.step() {
			}
			w.stop()
			if w.violation != "" {
				break
			}
		}
		return w.world
	})
}

const (
	untrusted = "certificate signed by unknown authority"
	shrinks   = "which the Secret trusts"
)

var _ = Describe("A rule of the rotation that is broken", Label("slow", "sequential"), func() {
	DescribeTable("is noticed",
		func(as string, changes ...change) {
			is(find(but(append([]change{busy}, changes...)...), 20, 10_000), as)
		},
		Entry("no cross-signed certificates", untrusted, uncrossed),
		Entry("activated before it is published, and an API server calls by the bundle before", untrusted, unconfirmed),
		Entry("activated before it is published, and no cross-signed certificates", untrusted, unconfirmed, uncrossed, prompt),
		Entry("pruned at once", untrusted, prunesAtOnce),
		Entry("a caBundle from a Secret that was read before", shrinks, readsFirst),
		Entry("an API server that lags behind for longer than an old CA is retained", untrusted,
			change(func(s *settings) { s.lag *= 4 })),
		Entry("a replica that does not look for longer than that", untrusted,
			change(func(s *settings) { s.looks *= 4 })),
		Entry("a process that registers a CA of its own while the Secret is gone, and takes away the others", untrusted,
			lossAtStart, prompt, noForeign),
	)

	It("is mended, for a process that starts while the Secret is gone, by taking away from a caBundle late", func() {
		holds(find(but(busy, lossAtStart, prompt), 2, rotationSteps/16))
	})
})

func uncrossed(s *settings)    { s.broken.uncrossed = true }
func unconfirmed(s *settings)  { s.broken.unconfirmed = true }
func prunesAtOnce(s *settings) { s.broken.prunesAtOnce = true }
func readsFirst(s *settings)   { s.broken.readsFirst = true }
func noForeign(s *settings)    { s.broken.noForeign = true }

// busy has much happen in few steps.
func busy(s *settings) { s.requests, s.slow = 5*time.Minute, 0.05 }

// prompt has API servers follow at once.
func prompt(s *settings) { s.lag = 0 }

// lossAtStart has processes start when the Secret is gone.
func lossAtStart(s *settings) { s.losses, s.starters = 12*time.Minute, true }

// check looks for a replica that an API server would not trust.
func (w *rotations) check() {
	for _, r := range w.replicas {
		if !r.ready {
			continue
		}
		for _, o := range w.configurations {
			for _, v := range o.heldAt(w.now, w.lag) {
				if v.fault || v.object == nil {
					continue
				}
				b := w.caBundle(v)
				if err := w.trust.verify(r.serves, b, w.now); err != nil {
					w.fail("%s serves a certificate of %s, and an API server may hold %s of the %s: %v", r, r.serves, b, o, err)
				}
			}
		}
	}
}

// wrote looks at each write of a replica.
func (w *rotations) wrote(p *process, o *object, last stored) {
	if o == w.secret {
		state := w.state()
		w.note(p, "the Secret is now %s", w.describe(state))
		if state.Phase == ca.Staged && state.NextID != w.lastStaged {
			w.lastStaged = state.NextID
			w.staged++
		}
		for i := range state.Generations {
			authority, err := state.Generations[i].Authority()
			if err == nil {
				w.authorities[string(authority.Certificate.RawSubject)] = authority
				w.crossed = append(w.crossed, authority.Chain...)
			}
		}
	}
	for _, configuration := range w.configurations {
		if o == configuration {
			w.note(p, "the %s is now %s", o, w.caBundle(o.latest()))
			w.onlyGrows(p, o, last)
			w.evicts()
		}
	}
}

// onlyGrows checks a write of a configuration. A CA that the write removes must not be in use any more.
func (w *rotations) onlyGrows(p *process, o *object, last stored) {
	state, next := w.state(), w.caBundle(o.latest())
	if state == nil || w.losses != 0 {
		return
	}
	for _, certificate := range w.caBundle(last).certificates {
		text := ca.EncodeCertificate(certificate)
		if !ca.Contains(next.pem, text) && ca.Contains(state.Bundle(), text) {
			w.fail("%s takes CA %s out of the %s, which the Secret trusts: %s", p, w.trust.name(certificate.RawSubject), o, w.describe(state))
		}
	}
}

// evicts looks, at the end of each rotation, whether a thief who has copied the old keys, and every certificate that was
// ever cross-signed, is trusted.
func (w *rotations) evicts() {
	state := w.state()
	if state == nil || state.Phase != ca.Steady || len(state.Generations) != 1 || w.losses != 0 {
		return // where the Secret was lost, the CA that was to be replaced has been put back
	}
	for _, o := range w.configurations {
		if o.latest().object == nil || !ca.EqualBundles(w.caBundle(o.latest()).pem, state.Bundle()) {
			return
		}
	}
	current, err := state.Current()
	if err != nil {
		return
	}
	roots := x509.NewCertPool()
	roots.AddCert(current.Certificate)
	for subject, old := range w.authorities {
		if subject == string(current.Certificate.RawSubject) || old.Usable(w.now) != nil {
			continue
		}
		forged, err := old.SignServing([]string{host}, time.Hour, w.now)
		if err == nil && verifies(forged.Leaf, w.crossed, roots, w.now) == nil {
			w.fail("a certificate by the key of CA %s is trusted after its pruning: %s", w.trust.name(old.Certificate.RawSubject), w.describe(state))
		}
		if old.Certificate.NotAfter.Sub(w.now) < w.settings.authorities-4*w.retain {
			delete(w.authorities, subject) // it has been tried often enough
		}
		w.evictions++
	}
}

// settle leaves the world alone, and looks whether it comes to rest with one CA, which is registered and serves.
func (w *rotations) settle() {
	w.events, w.world.pace = w.starting(), pace{longest: time.Second}
	w.note(fate, "leaves the world alone")
	for until := w.now.Add(5*w.retain + 30*time.Minute); !w.rests(); {
		if !w.step() {
			return
		}
		if w.now.After(until) {
			w.fail("the world does not come to rest: the Secret is %s, and %s is recorded as registered",
				w.describe(w.state()), w.trust.bundle(w.state().RegisteredBundle))
			return
		}
	}
	writes := w.writes
	for until := w.now.Add(3 * resync); w.now.Before(until); {
		if !w.step() {
			return
		}
	}
	if w.writes != writes {
		w.fail("%d writes although nothing is due", w.writes-writes)
	}
}

// starting are the starts of processes, of all that is to happen.
func (w *rotations) starting() (all []*event) {
	for _, e := range w.events {
		if e.every == 0 {
			all = append(all, e)
		}
	}
	return all
}

// rests reports whether nothing is left to do, and nothing comes for a while.
func (w *rotations) rests() bool {
	state := w.state()
	if state == nil || state.Phase != ca.Steady || len(state.Generations) != 1 || w.requested() || !ca.EqualBundles(state.RegisteredBundle, state.Bundle()) {
		return false
	}
	current, err := state.Current()
	if err != nil {
		return false
	}
	half := current.Certificate.NotBefore.Add(current.Certificate.NotAfter.Sub(current.Certificate.NotBefore) / 2)
	if !w.now.Add(4 * resync).Before(half) {
		return false
	}
	for _, o := range w.configurations {
		if o.latest().object == nil || !ca.EqualBundles(w.caBundle(o.latest()).pem, state.Bundle()) {
			return false
		}
	}
	for _, r := range w.replicas {
		if !r.ready || !r.process.idle || !r.serves.authority.Equal(current) {
			return false
		}
	}
	return !slices.ContainsFunc(w.processes, func(p *process) bool { return strings.HasPrefix(p.name, "person") })
}

func (w *rotations) requested() bool {
	state := w.state()
	annotations := w.stored().Annotations
	request := annotations[certsecret.RotateAnnotation]
	return request != "" && request != state.Handled || annotations[certsecret.DistrustAnnotation] == fmt.Sprint(state.CurrentID)
}

// frugal looks at the number of rotations where people alone ask for them, and at that of writes in a world whose objects are not damaged: a rotation takes ten, so fifteen are
// the bound. Each process may write once at its start.
func (w *rotations) frugal() {
	if w.leaks != 0 && w.staged > w.asked {
		w.fail("%d calls of RotateCA lead to %d rotations", w.asked, w.staged)
	}
	if w.losses == 0 && w.blanks == 0 && w.writes > 15*(w.staged+1)+len(w.replicas) {
		w.fail("%d writes for %d rotations", w.writes, w.staged)
	}
}

// state is the one in the Secret; nil if it holds none that can be used.
func (w *rotations) state() *certsecret.State {
	last := w.secret.latest()
	secret, ok := last.object.(*corev1.Secret)
	if !ok {
		return nil
	}
	state, known := w.states[last.version]
	if !known {
		state, _ = spectest.DecodeState(secret.Data, w.now)
		w.states[last.version] = state
	}
	return state
}

func (w *rotations) describe(state *certsecret.State) string {
	if state == nil {
		return "unusable"
	}
	text := fmt.Sprintf("%s (counter %d), trusts %s", state.Phase, state.Counter, w.trust.bundle(state.Bundle()))
	if authority, err := state.Current(); err == nil {
		text += ", current " + w.trust.describe(authority)
	}
	return text
}

// lost reports whether the Secret does not know the CA of a served certificate.
func (w *rotations) lost() bool {
	state := w.state()
	for _, r := range w.replicas {
		if r.ready && (state == nil || !ca.Contains(state.Bundle(), r.serves.authority.CertificatePEM)) {
			return true
		}
	}
	return false
}

// host is the host that every replica serves.
const host = "logger.cf.svc"

// bundle is a caBundle. Equal texts are the same bundle.
type bundle struct {
	pem          []byte
	certificates []*x509.Certificate
	roots        *x509.CertPool
	label        string
}

func (b *bundle) String() string { return b.label }

// chain is the certificate chain that a replica serves.
type chain struct {
	authority     *ca.Authority
	leaf          *x509.Certificate
	intermediates []*x509.Certificate
	label         string
}

func (c *chain) String() string { return c.label }

type verdict struct {
	err   error
	until time.Time
}

type trust struct {
	labels   map[string]string // subject to "1", "2", ...
	bundles  map[string]*bundle
	verdicts map[*chain]map[*bundle]verdict
}

// name numbers CAs in the order in which they appear. Each has a subject of its own.
func (t *trust) name(subject []byte) string {
	label, ok := t.labels[string(subject)]
	if !ok {
		label = strconv.Itoa(len(t.labels) + 1)
		t.labels[string(subject)] = label
	}
	return label
}

func (t *trust) bundle(text []byte) *bundle {
	if b := t.bundles[string(text)]; b != nil {
		return b
	}
	b := &bundle{pem: text, certificates: ca.SplitBundle(text), roots: x509.NewCertPool()}
	names := make([]string, 0, len(b.certificates))
	for _, certificate := range b.certificates {
		b.roots.AddCert(certificate)
		names = append(names, t.name(certificate.RawSubject))
	}
	b.label = "{" + strings.Join(names, ",") + "}"
	t.bundles[string(text)] = b
	return b
}

// describe names an authority and those that have signed it.
func (t *trust) describe(a *ca.Authority) string {
	label := "CA " + t.name(a.Certificate.RawSubject)
	for i, cross := range a.Chain {
		label += []string{" signed by ", " and "}[min(i, 1)] + t.name(cross.RawIssuer)
	}
	return label
}

// verify reports why a client that trusts b refuses c.
func (t *trust) verify(c *chain, b *bundle, now time.Time) error {
	of := t.verdicts[c]
	if v, ok := of[b]; ok && !now.After(v.until) {
		return v.err
	}
	if of == nil {
		of = map[*bundle]verdict{}
		t.verdicts[c] = of
	}
	err := verifies(c.leaf, c.intermediates, b.roots, now)
	v := verdict{err: err, until: now.AddDate(1000, 0, 0)}
	for _, certificate := range slices.Concat([]*x509.Certificate{c.leaf}, c.intermediates, b.certificates) {
		switch {
		case now.Before(certificate.NotBefore):
			v.until = earliest(v.until, certificate.NotBefore.Add(-1))
		case !now.After(certificate.NotAfter):
			v.until = earliest(v.until, certificate.NotAfter)
		}
	}
	of[b] = v
	return err
}

func verifies(leaf *x509.Certificate, intermediates []*x509.Certificate, roots *x509.CertPool, now time.Time) error {
	between := x509.NewCertPool()
	for _, certificate := range intermediates {
		between.AddCert(certificate)
	}
	_, err := leaf.Verify(x509.VerifyOptions{DNSName: host, Roots: roots, Intermediates: between, CurrentTime: now})
	return err
}

func earliest(a, b time.Time) time.Time {
	if a.Before(b) {
		return a
	}
	return b
}
