package webhookconf

import (
	"bytes"
	"context"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/watch"
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
	// String is kind and name.
	String() string
	// Holds tells whether entries of its kind are among these.
	Holds(entries []Entry) bool
	// Survey tells what stands there and whether anything is to be done about it. It writes nothing.
	Survey(ctx context.Context) (Standing, error)
	// Register makes the configuration what the entries say, in place, unless others' steps stay there or somebody
	// undoes it again and again; the caBundles of all entries of the fingerprint are looked after in any case. bundle
	// is given the different caBundles that they have, and may be called more than once.
	Register(ctx context.Context, bundle func(live [][]byte) ([]byte, error)) (Written, error)
	// Delete removes the configuration if it is ours.
	Delete(ctx context.Context) (Outcome, error)
	// Watch tells of changes to the object, and of nothing else.
	Watch(ctx context.Context) (watch.Interface, error)
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

// Outcome tells what a write did.
type Outcome string

// What Register and Delete did.
const (
	Created   Outcome = "created"
	Updated   Outcome = "updated"
	Unchanged Outcome = "unchanged"
	Deleted   Outcome = "deleted"
	Absent    Outcome = "absent"
	Yielded   Outcome = "yielded" // the steps of a process that started later stay
	Deferred  Outcome = "put off" // somebody undoes it again and again
)

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

func newRegistrar[C object[C], W any](w Writer, k Kind[C, W], client clientOf[C], owner string) Registrar {
	return &registrarOf[C, W]{
		configurationOf: configurationOf[C, W]{kind: k, client: client, name: k.ConfigurationName(w.Options.Fingerprint), owner: owner},
		w:               w,
		stance:          Stance{Us: Stamp{Digest: k.digestOf(w), Started: w.Started.Round(0).UTC()}, Insists: w.Insists},
		steps:           contest{delays: putOff, anyCounts: true},
		trust:           contest{delays: putOffTrust},
	}
}

func (r *registrarOf[C, W]) Survey(ctx context.Context) (standing Standing, err error) {
	found, err := r.read(ctx)
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
	s.Missing = r.kind.missing(found, r.w.Options.Fingerprint, r.w.Entries)
	if s.Action != Write {
		return s, nil
	}
	at, _ := r.repair(found, now)
	if s.Due = !now.Before(at); !s.Due {
		s.At = at
	}
	return s, nil
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

// kept is the configuration as it should be if it holds this process's steps, with the stamp and the caBundles as they
// are.
func (r *registrarOf[C, W]) kept(found C) C {
	live := map[string][]byte{}
	r.kind.trust(found.DeepCopy(), r.w.Options.Fingerprint, func(name string, bundle []byte) []byte {
		live[name] = bundle
		return bundle
	})
	kept := r.desired(found, r.w.Options.OwnedBy, r.kind.Build(r.w.Options, r.w.Entries))
	r.kind.trust(kept, r.w.Options.Fingerprint, func(name string, _ []byte) []byte { return live[name] })
	r.tellSets(kept)
	return kept
}
