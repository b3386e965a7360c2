package webhookconf

// This file makes up what Register writes.

import (
	"context"
	"maps"
	"time"

	"k8s.io/apimachinery/pkg/api/equality"
)

func (r *registrarOf[C, W]) Register(ctx context.Context, bundle func(live [][]byte) ([]byte, error)) (Written, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	var p planned
	outcome, err := r.write(ctx, func(existing C) (C, Outcome, error) {
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

// replaced is the configuration with this process's steps.
func (r *registrarOf[C, W]) replaced(existing C, p *planned) C {
	var none C
	stamp := Stamp{}
	if existing != none {
		stamp = ReadStamp(existing.GetAnnotations(), p.now)
	}
	o := r.w.Options
	o.CABundle = p.bundle
	desired := r.desired(existing, o.OwnedBy, r.kind.Build(o, r.w.Entries))
	desired.SetAnnotations(r.stance.StampOver(stamp).in(desired.GetAnnotations()))
	r.tellSets(desired)
	return desired
}

// tellSets writes down which steps stand behind each entry, for replicas of other versions, or that none do.
func (r *registrarOf[C, W]) tellSets(desired C) {
	annotations := maps.Clone(desired.GetAnnotations())
	if sets := r.w.sets(r.kind.validating); sets != "" {
		if annotations == nil {
			annotations = map[string]string{}
		}
		annotations[SetsAnnotation] = sets
	} else {
		delete(annotations, SetsAnnotation)
	}
	desired.SetAnnotations(annotations)
}
