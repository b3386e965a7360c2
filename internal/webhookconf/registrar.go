package webhookconf

import (
	"bytes"
	"context"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/api/equality"
	admissionregistrationv1client "k8s.io/client-go/kubernetes/typed/admissionregistration/v1"
)

// Writer is one process that wants its steps registered.
type Writer struct {
	Options Options // without CABundle
	Entries []Entry
	Sets    map[string]string // a digest of the steps of each entry, by its name; see SetsAnnotation

	// Started is when the process started, and Now the time, both by a clock on which all replicas agree.
	Started time.Time
	Now     func() time.Time

	// Insists says that somebody ordered the registration just now, so that it yields to nobody.
	Insists bool
}

// A Registrar is one of the two configurations as one process sees it, among others that write it too: replicas with
// the same steps, another version in a rollout, somebody who edits, a tool that applies its own copy. It remembers what
// it has seen, so a process has one for as long as it lives. It is safe for concurrent use.
type Registrar interface {
	Configuration
	// Survey tells what stands there and whether anything is to be done about it. It writes nothing.
	Survey(ctx context.Context) (Standing, error)
	// Register makes the configuration what the entries say, in place, unless others' steps stay there or somebody
	// undoes it again and again; the caBundles of all entries of the fingerprint are looked after in any case. bundle
	// is given the different caBundles that they have, and may be called more than once.
	Register(ctx context.Context, bundle func(live [][]byte) ([]byte, error)) (Written, error)
}

// Standing is what a configuration is found to be.
type Standing struct {
	Exists  bool
	Missing []string // names of this process's entries that are not there, though they should be
	Bundles [][]byte // the different caBundles of the fingerprint's entries, whoever registered them
	Other   bool     // the steps of another version stand there, perhaps of replicas that still run
	Passed  []string // paths of this process's entries that others have registered with other steps

	Verdict          // beside the caBundles, which Register alone can judge
	Due     bool     // Register would write now; with Action Write and not Due, at At
	Contest *Contest // what somebody keeps undoing, until he has not done it for a quarter of an hour; nil for nothing
}

// Written is what Register did.
type Written struct {
	Outcome Outcome
	Verdict          // with Deferred, At is when it is due again
	Contest *Contest // nil unless somebody keeps undoing what this process writes
}

// Registrars gives both, the mutating one first. owner is the certificate Secret, "namespace/name".
func (w Writer) Registrars(client admissionregistrationv1client.AdmissionregistrationV1Interface, owner string) []Registrar {
	return []Registrar{
		newRegistrar(w, Mutating, client.MutatingWebhookConfigurations(), owner),
		newRegistrar(w, Validating, client.ValidatingWebhookConfigurations(), owner),
	}
}

type registrarOf[C object[C], W any] struct {
	configurationOf[C, W]
	w Writer

	mu     sync.Mutex
	stance Stance
	steps  contest // for everything but the caBundles
	trust  contest // for the caBundles
	known  []byte  // the caBundles as they were last found or made good, joined

	told   *Contest // what was told last, and when
	toldAt time.Time
}

func newRegistrar[C object[C], W any](w Writer, k Kind[C, W], client ClientOf[C], owner string) Registrar {
	return &registrarOf[C, W]{
		configurationOf: configurationOf[C, W]{kind: k, client: client, name: k.ConfigurationName(w.Options.Fingerprint), owner: owner},
		w:               w,
		stance:          Stance{Us: Stamp{Digest: k.digestOf(w), Started: w.Started.Round(0).UTC()}, Insists: w.Insists},
		steps:           contest{delays: putOff, anyCounts: true},
		trust:           contest{delays: putOffTrust},
	}
}

func (r *registrarOf[C, W]) Survey(ctx context.Context) (standing Standing, err error) {
	found, err := r.kind.Read(ctx, r.client, r.name)
	if err != nil {
		return Standing{}, err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	now := r.w.Now()
	defer func() { standing.Contest = r.telling(now) }()
	var none C
	s := Standing{Exists: found != none, Bundles: r.kind.bundlesOf(found, r.w.Options.Fingerprint)}
	if bytes.Equal(bytes.Join(s.Bundles, nil), r.known) {
		r.trust.healed(now) // perhaps by another replica
	}
	if found != none {
		stamp := ReadStamp(found.GetAnnotations(), now)
		s.Other = !stamp.IsZero() && stamp.Digest != r.stance.Us.Digest
	}
	if s.Verdict = r.judge(found, now); s.Action == Yield {
		s.Passed = r.w.elsewhere(found.GetAnnotations(), r.kind.validating)
		return s, nil
	}
	s.Missing = r.kind.Missing(found, r.w.Options.Fingerprint, r.w.Entries)
	if s.Action != Write {
		return s, nil
	}
	at, _ := r.repair(found, now)
	if s.Due = !now.Before(at); !s.Due {
		s.At = at
	}
	return s, nil
}

func (r *registrarOf[C, W]) Register(ctx context.Context, bundle func(live [][]byte) ([]byte, error)) (Written, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	var p planned
	_, outcome, err := r.kind.write(ctx, r.client, r.name, r.owner, func(existing C) (C, Outcome, error) {
		p = planned{now: r.w.Now()}
		p.Verdict = r.judge(existing, p.now)
		return r.plan(existing, &p, bundle)
	})
	if err != nil {
		return Written{}, err
	}
	if p.steps {
		r.stance.Wrote(p.now)
		r.steps.healed(p.now)
	}
	if p.trust {
		r.known = p.bundle
		r.trust.healed(p.now)
	}
	p.Outcome = outcome
	return p.Written, nil
}

// planned is what Register is about to do, and to remember when it is done.
type planned struct {
	Written
	now    time.Time
	bundle []byte
	steps  bool // this process's steps will stand there, written by it
	trust  bool // every caBundle of the fingerprint will be right
}

// plan gives what is to be written, or nil and what becomes of it instead.
func (r *registrarOf[C, W]) plan(existing C, p *planned, bundle func([][]byte) ([]byte, error)) (C, Outcome, error) {
	var none C
	if existing == none && !r.Holds(r.w.Entries) {
		return none, Absent, nil
	}
	live := r.kind.bundlesOf(existing, r.w.Options.Fingerprint)
	if len(live) > 0 || r.Holds(r.w.Entries) {
		var err error
		if p.bundle, err = bundle(live); err != nil {
			return none, "", err
		}
	}
	if p.Action == Write {
		at, contest := r.repair(existing, p.now)
		p.Contest = contest
		if !p.now.Before(at) {
			p.steps, p.trust = true, true
			return r.replaced(existing, p), "", nil
		}
		p.At = at
		if existing == none {
			return none, Deferred, nil
		}
	}
	idle := map[Action]Outcome{Keep: Unchanged, Yield: Yielded, Write: Deferred}[p.Action]
	desired := existing.DeepCopy()
	r.kind.trust(desired, r.w.Options.Fingerprint, func(string, []byte) []byte { return p.bundle })
	if !equality.Semantic.DeepEqual(existing, desired) && r.undone(existing, live, p) {
		return none, Deferred, nil
	}
	p.trust = true
	return desired, idle, nil
}

// undone notes that caBundles are wrong, and tells whether that happens so often that it is not repaired now.
func (r *registrarOf[C, W]) undone(existing C, live [][]byte, p *planned) bool {
	found := bytes.Join(live, nil)
	if r.known == nil || bytes.Equal(found, r.known) {
		return false // what is to be trusted has changed, not what stands there
	}
	times, at := r.trust.harmed(p.now, string(found))
	if c := r.tell(p.now, r.trust.told(p.now, "caBundle", times, at, lastManager(existing.GetManagedFields()))); c != nil {
		p.Contest = c
	}
	if !p.now.Before(at) {
		return false
	}
	p.At = at
	return true
}

// judge decides whose steps are to stand there, and remembers it.
func (r *registrarOf[C, W]) judge(found C, now time.Time) Verdict {
	var none C
	if found == none {
		v := r.stance.Judge(now, false, Stamp{}, false)
		if !r.Holds(r.w.Entries) {
			v = Verdict{Action: Keep, Reason: "there is nothing to register"}
		}
		return v
	}
	intact := equality.Semantic.DeepEqual(found, r.kept(found))
	v := r.stance.Judge(now, true, ReadStamp(found.GetAnnotations(), now), intact)
	if v.Action != Write {
		r.steps.healed(now)
	}
	return v
}

// repair notes that what stands there is not what should, and tells when it is to be repaired.
func (r *registrarOf[C, W]) repair(found C, now time.Time) (time.Time, *Contest) {
	var none C
	what, kind, by := "", "deleted", ""
	if found != none {
		what, kind, by = r.kind.Digest(*r.kind.webhooks(found)), "edited", lastManager(found.GetManagedFields())
	}
	times, at := r.steps.harmed(now, what)
	return at, r.tell(now, r.steps.told(now, kind, times, at, by))
}

// tell remembers what is told.
func (r *registrarOf[C, W]) tell(now time.Time, c *Contest) *Contest {
	if c != nil {
		r.told, r.toldAt = c, now
	}
	return c
}

// telling is what was told, for as long as more of it would be the same story.
func (r *registrarOf[C, W]) telling(now time.Time) *Contest {
	if r.told == nil || now.Sub(r.toldAt) > lately {
		return nil
	}
	c := *r.told
	if !now.Before(c.Until) {
		c.Until = time.Time{}
	}
	return &c
}

// replaced is the configuration with this process's steps.
func (r *registrarOf[C, W]) replaced(existing C, p *planned) C {
	var none C
	stamp := Stamp{}
	if existing != none {
		stamp = ReadStamp(existing.GetAnnotations(), p.now)
	}
	o := r.w.Options
	o.CABundle = p.bundle
	desired := r.kind.desired(existing, r.name, r.owner, o.OwnedBy, r.kind.Build(o, r.w.Entries))
	annotations := r.stance.StampOver(stamp).in(desired.GetAnnotations())
	if sets := r.w.sets(r.kind.validating); sets != "" {
		annotations[SetsAnnotation] = sets
	}
	desired.SetAnnotations(annotations)
	return desired
}

// kept is the configuration as it should be if it holds this process's steps, with the stamp and the caBundles as they
// are.
func (r *registrarOf[C, W]) kept(found C) C {
	live := map[string][]byte{}
	r.kind.trust(found.DeepCopy(), r.w.Options.Fingerprint, func(name string, bundle []byte) []byte {
		live[name] = bundle
		return bundle
	})
	kept := r.kind.desired(found, r.name, r.owner, r.w.Options.OwnedBy, r.kind.Build(r.w.Options, r.w.Entries))
	r.kind.trust(kept, r.w.Options.Fingerprint, func(name string, _ []byte) []byte { return live[name] })
	return kept
}
