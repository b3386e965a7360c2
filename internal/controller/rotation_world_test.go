package controller_test

// This file is the world of the model of rotations: replicas that run the shipped loop over one Secret and two webhook
// configurations, API servers that trust them by older versions of these, and harm that is done to them.

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/go-logr/logr"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"code.cloudfoundry.org/eirinix/internal/ca"
	"code.cloudfoundry.org/eirinix/internal/certsecret"
	"code.cloudfoundry.org/eirinix/internal/controller"
	"code.cloudfoundry.org/eirinix/internal/spectest"
	"code.cloudfoundry.org/eirinix/internal/wait"
	"code.cloudfoundry.org/eirinix/internal/webhookconf"
)

// resync is at least the time between two passes when nothing happens.
const resync = 66 * time.Second

// rules of the protocol, each of which can be broken on purpose: by lies of the world, never by a switch in shipped code.
type rules struct {
	uncrossed    bool // cross-signed certificates are not sent along
	unconfirmed  bool // configurations that are read seem to hold the next CA
	prunesAtOnce bool // the old CA is not retained
	readsFirst   bool // the Secret that is read after the configurations is the late copy of it
	noForeign    bool // a CA that the Secret does not hold seems to stand in no caBundle
}

// settings of a world. The protocol keeps its promises when lag and looks are shorter than retain, by as much as the
// clocks of two replicas may differ: by retain it knows that no API server calls by the bundle before the last one, and
// that no replica serves a chain from before the last rotation. looks is pace.longest too.
type settings struct {
	replicas int
	pace

	authorities, leaves, retain time.Duration // lifetimes
	lag                         time.Duration // for how long an API server may call by a configuration that was replaced
	looks                       time.Duration // from a change of the Secret to its adoption, at most

	requests time.Duration // mean time between requested rotations; 0: none
	leaks    time.Duration // mean time between calls of RotateCA with Distrust, whose process dies
	crashes  time.Duration // mean time between crashes
	losses   time.Duration // mean time between faults of the Secret
	starters bool          // a new process starts at the moment of such a fault
	adopted  bool          // the first CA is another tool's, and may issue no CAs
	blanks   time.Duration // mean time between faults of a caBundle

	broken rules
}

type rotations struct {
	*world
	settings
	secret         *object
	configurations []*object
	replicas       []*replica
	trust          *trust
	asked, staged  int
	lastStaged     int64
	states         map[int]*certsecret.State // of the Secret, by version
	authorities    map[string]*ca.Authority  // all that could sign once, by subject
	crossed        []*x509.Certificate       // all that was cross-signed
	evictions      int
}

func newRotations(s settings, seed uint64) *rotations {
	w := &rotations{
		world: newWorld(pace{slow: s.slow, flaky: s.flaky, longest: s.looks}, seed), settings: s, trust: &trust{labels: map[string]string{}, bundles: map[string]*bundle{}, verdicts: map[*chain]map[*bundle]verdict{}},
		states: map[int]*certsecret.State{}, authorities: map[string]*ca.Authority{},
	}
	w.secret = w.object(newSecret(secretName))
	w.object(newLease(leaseName))
	for _, c := range (configurationsOf{}).all() {
		w.configurations = append(w.configurations, w.object(c.Object()))
	}
	w.world.check, w.world.wrote = w.check, w.wrote
	if s.adopted {
		key, secret := spectest.NewKey(), newSecret(secretName)
		secret.Data = map[string][]byte{
			"ca_certificate": spectest.ForeignCA(key, w.now, func(c *x509.Certificate) { c.MaxPathLenZero = true }),
			"ca_private_key": spectest.PKCS8(key),
		}
		w.put(w.secret, secret, false)
	}
	for id := range s.replicas {
		r := &replica{w: w, id: id + 1, skew: time.Duration(w.rng.Int64N(int64(4*time.Second))) - 2*time.Second}
		w.replicas = append(w.replicas, r)
		w.in(w.delay(), r.start)
	}
	w.every(s.requests, w.request)
	w.every(s.leaks, w.distrust)
	w.every(s.crashes, w.crash)
	w.every(s.losses, w.lose)
	w.every(s.blanks, w.blank)
	return w
}

// replica is one that is started again when its process has ended.
type replica struct {
	w       *rotations
	id      int
	skew    time.Duration
	process *process // nil before the first start
	ready   bool
	serves  *chain
	found   int // the version of the Secret that was read last
	adopted int // the one that is known
}

func (r *replica) String() string { return fmt.Sprintf("replica %d", r.id) }

func (r *replica) alive() bool { return r.process != nil && r.process.alive }

// start begins a process without memory.
func (r *replica) start() {
	if r.alive() {
		return
	}
	if !r.w.starters && r.w.lost() {
		r.w.in(time.Minute, r.start)
		return
	}
	r.ready, r.serves, r.found, r.adopted = false, nil, -1, -1
	p := r.w.newProcess(r.String(), r.skew)
	r.process = p
	p.limit = r.mustLookBy
	p.ended = func() {
		r.w.note(p, "gives up")
		r.forget()
		r.w.in(r.w.after(resync), r.start)
	}
	r.w.note(p, "starts")
	p.start(func() { r.run(p) })
}

func (r *replica) crash(again time.Duration) {
	r.w.note(r, "crashes")
	r.process.crash()
	r.forget()
	r.w.in(again, r.start)
}

func (r *replica) forget() { r.ready, r.serves = false, nil }

// mustLookBy is when the Secret that has replaced the one that is known must have been adopted.
func (r *replica) mustLookBy() time.Time {
	if r.adopted < 0 || r.adopted+1 >= len(r.w.secret.past) {
		return time.Time{}
	}
	return r.w.secret.past[r.adopted+1].at.Add(r.w.looks)
}

// run does the same as root: obtain, then Controller.Run.
func (r *replica) run(p *process) {
	ctx := context.Background()
	c := controller.New(r.config(p))
	for {
		err := c.Obtain(ctx)
		if err == nil {
			break
		}
		r.w.note(p, "has no certificate: %v", err)
		if p.wait("tries again", time.Second) != nil {
			return
		}
	}
	for failures := 0; ; {
		next, err := p.reconcile(c, &failures)
		if _, refused := errors.AsType[*wait.RefusedError](err); refused && p.alive {
			r.w.fail("%s is refused: %v", p, err) // it may do all that it needs
			return
		}
		r.adopted = r.found
		if p.sleep(next) != nil {
			return
		}
	}
}

func (r *replica) config(p *process) controller.Config {
	w := r.w
	retain := w.retain
	if w.broken.prunesAtOnce {
		retain = 0
	}
	cache := copies{process: p, change: w.lie}
	connection := configurationsOf{p: p, change: w.lie}
	secrets := secretsOf{requests: requests[*corev1.Secret]{p: p, of: newSecret}}
	if w.broken.readsFirst {
		var before client.Object
		connection.before = func(*object) {
			last, _ := p.copied(w.secret)
			before = last.object
		}
		secrets.change = func(secret *corev1.Secret) {
			if before != nil {
				before.DeepCopyObject().(*corev1.Secret).DeepCopyInto(secret)
				before = nil
			}
		}
	}
	store := &certsecret.Store{
		Secrets: secrets, Namespace: namespace, Name: secretName, Lifetime: w.settings.authorities, Now: p.now,
		Cached: func(ctx context.Context) (*corev1.Secret, error) {
			secret := newSecret(secretName)
			_, r.found = p.copied(w.secret)
			return secret, copies{process: p}.Get(ctx, secret)
		},
	}
	return controller.Config{
		Cache: cache, Configurations: connection.all(), Lease: leaseOf(p),
		Certificates: &controller.OwnCA{Store: store, Leaf: leaf{r, p}, SetUp: true, Log: logr.Discard(), Now: p.now},
		Registration: program,
		Registers:    true, Serving: true, Retain: retain,
		Ready: func(err error) { r.becomes(p, err) },
		Now:   p.now, Random: w.rng.Float64,
	}
}

func (r *replica) becomes(p *process, err error) {
	if !p.alive || r.ready == (err == nil) {
		return
	}
	r.ready = err == nil
	r.w.note(p, map[bool]string{true: "is ready", false: "is not ready any more"}[r.ready])
}

// leaf is a replica's serving certificate. It behaves like serving.Leaf.
type leaf struct {
	r *replica
	p *process
}

// Use signs, which may take a while.
func (l leaf) Use(authority *ca.Authority) error {
	if l.r.w.broken.uncrossed {
		uncrossed := *authority
		uncrossed.Chain, authority = nil, &uncrossed
	}
	if l.r.serves != nil && l.r.serves.authority.Equal(authority) {
		return nil
	}
	if err := l.p.act("signs"); err != nil {
		return err
	}
	return l.sign(authority)
}

func (l leaf) sign(authority *ca.Authority) error {
	w := l.r.w
	certificate, err := authority.SignServing([]string{host}, w.leaves, l.p.now())
	if err != nil {
		return err
	}
	l.r.serves = &chain{authority: authority, leaf: certificate.Leaf, intermediates: authority.Chain, label: w.trust.describe(authority)}
	made := certificate.Leaf
	renewAt := made.NotBefore.Add(ca.RenewIn(made.NotAfter.Sub(made.NotBefore), w.rng.Float64()*2-1))
	if !certificate.Leaf.NotAfter.Before(authority.Certificate.NotAfter) {
		renewAt = certificate.Leaf.NotAfter
	}
	l.p.alarm = renewAt.Add(-l.p.skew)
	l.p.rings = func() {
		l.p.alarm = w.now.Add(time.Minute) // in case it fails
		_ = l.sign(authority)
	}
	w.note(l.p, "serves a certificate of %s", l.r.serves)
	return nil
}

var errNothingServed = errors.New("nothing is served yet")

func (l leaf) Verify(text []byte) error {
	if l.r.serves == nil {
		return errNothingServed
	}
	return l.r.w.trust.verify(l.r.serves, l.r.w.trust.bundle(text), l.p.now())
}

func (l leaf) Certificate() *x509.Certificate {
	if l.r.serves == nil {
		return nil
	}
	return l.r.serves.leaf
}

func (leaf) GetCertificate(*tls.ClientHelloInfo) (*tls.Certificate, error) { return nil, nil }

func (leaf) Run(context.Context, logr.Logger) {}

// lie changes a configuration that was read.
func (w *rotations) lie(object client.Object) {
	state := w.state()
	if state == nil {
		return
	}
	for _, c := range clientConfigs(object) {
		if w.broken.unconfirmed && state.Phase == ca.Staged && len(ca.SplitBundle(c.bundle())) > 0 {
			c.trust(ca.Bundle(c.bundle(), state.Bundle()))
		}
		if w.broken.noForeign {
			c.trust(ca.Common(c.bundle(), state.Bundle()))
		}
	}
}

// program is the registration of all replicas.
var program = desired("one", "logger")

// desired is a registration with a mutating and a validating entry for each name.
func desired(version string, names ...string) webhookconf.Registration {
	r := webhookconf.Registration{
		Options: webhookconf.Options{Fingerprint: fingerprint, Target: webhookconf.Target{Service: "logger", Namespace: namespace, Port: 443}},
		Version: version,
	}
	for _, name := range names {
		for _, validating := range []bool{false, true} {
			step := newStep(name)
			step.Validating, step.Isolated = validating, true
			r.Steps = append(r.Steps, step)
		}
	}
	return r
}

func newStep(name string) webhookconf.Step {
	return webhookconf.Step{
		Name: name, Kind: schema.GroupVersionKind{Version: "v1", Kind: "Pod"},
		Settings: webhookconf.Settings{
			Rules: []admissionregistrationv1.RuleWithOperations{{
				Operations: []admissionregistrationv1.OperationType{"CREATE"},
				Rule:       admissionregistrationv1.Rule{APIGroups: []string{""}, APIVersions: []string{"v1"}, Resources: []string{"pods"}},
			}},
			FailurePolicy: admissionregistrationv1.Fail, MatchPolicy: admissionregistrationv1.Equivalent, Timeout: 5 * time.Second,
			Reinvoke: admissionregistrationv1.NeverReinvocationPolicy, SideEffects: admissionregistrationv1.SideEffectClassNone,
		},
	}
}

// caBundle returns all that a configuration trusts.
func (w *rotations) caBundle(of stored) *bundle {
	var texts [][]byte
	if of.object != nil {
		for _, c := range clientConfigs(of.object) {
			texts = append(texts, c.bundle())
		}
	}
	texts = slices.CompactFunc(texts, slices.Equal)
	if len(texts) == 1 {
		return w.trust.bundle(texts[0])
	}
	return w.trust.bundle(ca.Bundle(texts...))
}

// stored returns a copy of the Secret; nil when there is none.
func (w *rotations) stored() *corev1.Secret {
	secret, _ := w.secret.latest().object.(*corev1.Secret)
	return secret.DeepCopy()
}

// request asks for a rotation.
func (w *rotations) request() {
	secret := w.stored()
	if secret == nil {
		return
	}
	w.asked++
	metav1.SetMetaDataAnnotation(&secret.ObjectMeta, certsecret.RotateAnnotation, fmt.Sprint("request ", w.asked))
	w.put(w.secret, secret, true)
	w.note(fate, "asks for a rotation")
}

// distrust has a person call RotateCA with Distrust, in a process that dies within seconds. What it has begun is finished.
func (w *rotations) distrust() {
	state := w.state()
	if state == nil {
		return
	}
	w.asked++
	w.in(5*time.Minute, func() {
		if id := state.CurrentID; w.state().CurrentID == id && w.stored().Annotations[certsecret.DistrustAnnotation] == fmt.Sprint(id) {
			w.fail("nobody finishes a rotation: the distrusted CA %d still signs", id)
		}
	})
	person := &replica{w: w}
	person.process = w.newProcess(fmt.Sprint("person ", w.asked), 0)
	person.process.start(func() {
		config := person.config(person.process)
		config.Serving, config.OnlyTrust, config.Lease, config.Ready = false, true, nil, nil
		c := controller.New(config)
		if err := c.Obtain(context.Background()); err == nil {
			_ = c.Rotate(context.Background(), true)
		}
	})
	lives := []time.Duration{200 * time.Millisecond, 5 * time.Second}[w.rng.IntN(2)]
	w.in(time.Duration(w.rng.Int64N(int64(lives))), func() {
		if person.alive() {
			w.note(person.process, "dies")
			person.process.crash()
		}
	})
}

// crash ends a process, but not the last one that knows a CA which the Secret has lost.
func (w *rotations) crash() {
	r := w.replicas[w.rng.IntN(len(w.replicas))]
	if r.alive() && !w.lost() {
		r.crash(w.after(resync))
	}
}

// lose damages the Secret, unless no replica could put it back.
func (w *rotations) lose() {
	known := false
	for _, r := range w.replicas {
		if r.alive() && !r.ready && !w.starters {
			return // it might make a CA of its own
		}
		known = known || r.ready
	}
	secret := w.stored()
	if !known || secret == nil || w.lost() {
		return
	}
	var deed string
	var next client.Object = secret
	switch w.rng.IntN(4) {
	case 0:
		deed, next = "deletes the Secret", nil
	case 1:
		deed = "empties the Secret"
		secret.Data = nil
	case 2:
		deed = "writes nonsense into the Secret"
		keys := []string{certsecret.StateKey, certsecret.CertificateKey, certsecret.PrivateKeyKey, certsecret.CACertificateKey}
		for range 1 + w.rng.IntN(4) {
			secret.Data[keys[w.rng.IntN(len(keys))]] = []byte("nonsense")
		}
	case 3:
		deed = "replaces the Secret by that of another deployment"
		secret.Data = w.foreign()
	}
	w.put(w.secret, next, true)
	w.note(fate, deed+", which is now %s", w.describe(w.state()))
	if w.starters && w.chance(0.5) {
		w.replace()
	}
}

// replace crashes a process, if another one is ready, and starts a new one at once.
func (w *rotations) replace() {
	r, others := w.replicas[w.rng.IntN(len(w.replicas))], 0
	for _, other := range w.replicas {
		if other.ready && other != r {
			others++
		}
	}
	if r.alive() && others > 0 {
		r.crash(w.short())
	}
}

// blank damages a caBundle.
func (w *rotations) blank() {
	o := w.configurations[w.rng.IntN(len(w.configurations))]
	last := o.latest().object
	if last == nil {
		return
	}
	var text []byte
	switch w.rng.IntN(3) {
	case 1:
		text = []byte("nonsense")
	case 2:
		text = must(ca.New("another program", time.Hour, w.now)).CertificatePEM
	}
	broken := last.DeepCopyObject().(client.Object)
	for _, c := range clientConfigs(broken) {
		c.trust(text)
	}
	w.put(o, broken, true)
	w.note(fate, "breaks the "+o.String()+", which is now %s", w.caBundle(o.latest()))
}

// foreign is the data of another deployment's Secret, a few writes old.
func (w *rotations) foreign() map[string][]byte {
	state := &certsecret.State{FormatVersion: certsecret.FormatVersion, Lineage: "foreign", Phase: ca.Steady, CurrentID: 1, Counter: 1 + w.rng.Int64N(30)}
	authority := must(ca.New(secretName, w.settings.authorities, w.now))
	state.Generations = []certsecret.Generation{{ID: 1, CertificatePEM: authority.CertificatePEM, PrivateKeyPEM: authority.PrivateKeyPEM}}
	return state.Encode(nil)
}
