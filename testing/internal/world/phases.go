package world

// This file is the rotation as the Secret tells it: which states may follow each other, how long each lasts, and which CAs stay in
// the caBundles meanwhile.

import (
	"bytes"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"code.cloudfoundry.org/eirinix/internal/ca"
	"code.cloudfoundry.org/eirinix/internal/certsecret"
)

const (
	// distrustFor is how long a distrusted CA is retained, and leafFor the lifetime of a serving certificate if the plan names
	// none.
	distrustFor, leafFor = 5 * time.Second, 7 * day

	// written is how late a write may arrive that was decided before.
	written = 30 * time.Second
)

// retains is how long a CA stays trusted that is not needed any more: the lifetime of a serving certificate, and a tenth.
func (p Plan) retains() time.Duration {
	leaf := p.Leaf
	if leaf == 0 {
		leaf = leafFor
	}
	return leaf + leaf/10
}

// slack is how early a process may count a time as over: each takes the earlier of two clocks.
func (p Plan) slack() time.Duration { return 2*time.Second + max(p.Clocks, -p.Clocks) }

// phases looks at a write of the Secret by the program. The caller holds mu.
func (w *World) phases(was, is *unstructured.Unstructured) {
	if was == nil || is == nil || was.GetUID() != is.GetUID() || !w.plan.settled("restore", "edit", "deletion", "namespace", "clock") ||
		time.Since(w.watch.damaged) < settling || w.troubledSince(time.Now(), spoiled, lapsed) || w.troubledSince(time.Now().Add(-settling), slow) {
		return // another client has written it, or a CA begins in the future again
	}
	before, errBefore := decode(was)
	after, errAfter := decode(is)
	if errBefore != nil || errAfter != nil {
		return
	}
	if after.Lineage != before.Lineage && (w.plan.Issued || time.Since(was.GetCreationTimestamp().Time) < settling) {
		return // a CA that no configuration pins counts as none, such as each one of replicas that start without a Secret
	}
	if before.Lineage != "" && after.Lineage != before.Lineage || after.FormatVersion != before.FormatVersion {
		w.breaks("the Secret is of the lineage %q and format %d, and was of %q and %d", after.Lineage, after.FormatVersion, before.Lineage, before.FormatVersion)
	}
	last := before.Distrusted
	for _, g := range before.Generations {
		last = max(last, g.ID)
	}
	for _, g := range after.Generations {
		i := slices.IndexFunc(before.Generations, func(old certsecret.Generation) bool { return old.ID == g.ID })
		switch {
		case i < 0 && g.ID <= last:
			w.breaks("the Secret has a new CA with the number %d, and there were numbers up to %d", g.ID, last)
		case i >= 0 && !bytes.Equal(before.Generations[i].CertificatePEM, g.CertificatePEM):
			w.breaks("the CA %d of the Secret is another one than before", g.ID)
		}
	}
	if before.Phase == ca.Retaining && after.Phase == ca.Steady && time.Since(w.watch.rotatedBy) > settling {
		w.watch.pruned = time.Now()
	}
	took, slack := time.Since(before.Since), w.plan.slack()
	switch {
	case before.Phase == ca.Staged && after.Phase == ca.Staged && after.NextID != before.NextID:
		w.breaks("the rotation has staged the CA %d, and stages the CA %d now", before.NextID, after.NextID)
	case after.Phase == before.Phase && after.CurrentID == before.CurrentID:
		return
	case before.Phase == ca.Staged && (after.Phase != ca.Retaining || after.CurrentID != before.NextID):
		w.breaks("the rotation has staged the CA %d, and is %s with the CA %d now", before.NextID, after.Phase, after.CurrentID)
	case before.Phase != ca.Staged && after.CurrentID != before.CurrentID:
		w.breaks("the CA %d signs, and nothing has staged it", after.CurrentID)
	case slack > time.Minute:
	case after.Phase == ca.Steady && (took < distrustFor-slack || took < w.plan.retains()-slack && !before.DistrustsOld()):
		w.breaks("the old CA leaves the Secret %s after the new one began to sign", took.Round(time.Second))
	case time.Since(after.Since) > written+w.plan.Lag+slack:
		w.breaks("the rotation is %s, and says that it has been so since %s ago", after.Phase, time.Since(after.Since).Round(time.Second))
	}
}

// formed looks at the state that the program has written: its phase says which CAs there are. The caller holds mu.
func (w *World) formed(is *unstructured.Unstructured) {
	if is == nil {
		return
	}
	state, err := decode(is)
	if err != nil {
		return // another client has written it
	}
	next := slices.IndexFunc(state.Generations, func(g certsecret.Generation) bool { return g.ID == state.NextID })
	switch {
	case state.Phase == ca.Staged && (next < 0 || state.NextID == state.CurrentID || len(state.Generations[next].PrivateKeyPEM) == 0):
		w.breaks("the rotation is staged, and the Secret has no other CA that could sign (%v)", state)
	case state.Phase != ca.Staged && state.NextID != 0:
		w.breaks("the rotation is %s, and the Secret has the next CA %d (%v)", state.Phase, state.NextID, state)
	case state.Phase == ca.Steady && len(state.Generations) > 1:
		w.breaks("no rotation is under way, and the Secret trusts %d CAs (%v)", len(state.Generations), state)
	}
}

// mirrored sees at rest that the Secret holds the current CA by the keys by which other programs know it.
func (w *World) mirrored() {
	found, state := w.find("Secret", namespace, theSecret), w.state()
	if found == nil || state == nil || state.FormatVersion > certsecret.FormatVersion || found.Object["immutable"] == true || w.plan.Split || w.plan.Issued {
		return
	}
	current, err := state.Current()
	data, _, _ := unstructured.NestedStringMap(found.Object, "data")
	w.mu.Lock()
	defer w.mu.Unlock()
	signs := func(p *process) bool { return !p.release.issued && !p.leaving && p.wire.hears() }
	if err != nil || !slices.ContainsFunc(w.processes, signs) || w.troubledSince(time.Now().Add(-settling), rough, slow, apart, strange) {
		return
	}
	for key, text := range map[string][]byte{certsecret.CertificateKey: current.CertificatePEM, certsecret.CACertificateKey: current.CertificatePEM, certsecret.PrivateKeyKey: current.PrivateKeyPEM} {
		if data[key] != encoded(text) {
			w.breaks("at rest, the Secret holds something else than the current CA by its key %s", key)
		}
	}
}

// isStuck looks at how long a rotation takes. The caller does not hold mu.
func (w *World) isStuck() {
	state := w.state()
	if state == nil || state.Phase == ca.Steady || w.plan.Split || max(w.plan.Clocks, -w.plan.Clocks) > time.Minute || !w.plan.settled("clock") {
		return
	}
	most := 2 * settling
	if state.Phase == ca.Retaining {
		most += w.plan.retains()
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.look()
	signs := func(p *process) bool {
		return !p.release.issued && !p.leaving && !p.readySince.IsZero() && time.Since(p.readySince) > most
	}
	if took := time.Since(state.Since); took > most && slices.ContainsFunc(w.processes, signs) && time.Since(w.watch.undone) > most && time.Since(w.watch.damaged) > most &&
		!w.troubledSince(time.Now().Add(-2*settling), rough, slow, spoiled, lapsed, apart, evicted, unissued, strange) && w.watch.held == nil {
		w.breaks("the rotation is %s since %s", state.Phase, took.Round(time.Second))
	}
}

// holds looks at the CAs that leave a configuration with a write of the program: none that the Secret trusts, and none that
// another client has added, before its time is over; replicas with other sources ask each other. The caller holds mu.
func (w *World) holds(kind string, was, is *unstructured.Unstructured) {
	if was == nil || is == nil || was.GetUID() != is.GetUID() || w.troubledSince(time.Now(), spoiled, lapsed, strange) || time.Since(w.watch.undone) < time.Second {
		return // another client has written it
	}
	before, after := bundlesOf(was), bundlesOf(is)
	if len(after) == 0 || bytes.Equal(before, after) {
		return
	}
	w.touches()
	if state := w.state(); state != nil && !w.plan.Issued {
		if lost := ca.Common(before, state.Bundle()); !ca.Contains(after, lost) {
			w.breaks("the %s loses a CA that the Secret trusts", kind)
		}
	}
	for authority, since := range w.watch.foreign {
		if ca.Contains(before, []byte(authority)) && !ca.Contains(after, []byte(authority)) && time.Since(since) < w.plan.retains()-w.plan.slack() && !w.plan.Issued && w.plan.settled("distrust", "restore", "clock") {
			w.breaks("the %s loses a CA that it holds since %s, and a replica may need it for %s", kind, time.Since(since).Round(time.Second), w.plan.retains())
		}
	}
}

// ours sees that a configuration at rest holds no CA of the program that the Secret does not hold. The caller holds mu.
func (w *World) ours(kind string, object *unstructured.Unstructured) {
	state := w.state()
	if state == nil || w.plan.Issued || w.plan.Split || w.watch.estranged || time.Since(state.Since).Abs() < time.Minute { // a CA has just left the Secret
		return
	}
	if all := ca.OfName(bundlesOf(object), theSecret); !ca.Contains(state.Bundle(), all) {
		w.breaks("at rest, the %s trusts %d CAs of the program, and the Secret holds %d", kind, len(ca.SplitBundle(all)), len(ca.SplitBundle(state.Bundle())))
	}
}
