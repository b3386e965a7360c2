package world

// This file is the promises about the CAs in the Secret: one is replaced when half of its life is over, or on request, and
// the keys of the Secret that others read hold the one that signs.

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"code.cloudfoundry.org/eirinix/internal/ca"
	"code.cloudfoundry.org/eirinix/internal/certsecret"
)

// theSecret is the name of the certificate Secret.
const theSecret = fingerprint + "-setupcertificate"

// state returns the state in the Secret; nil if it cannot be read.
func (w *World) state() *certsecret.State {
	found := w.find("Secret", namespace, theSecret)
	if found == nil {
		return nil
	}
	state, err := decode(found)
	if err != nil {
		return nil
	}
	return state
}

// wants notes that a person asks for a rotation.
func (w *World) wants() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.watch.rotationsWanted++
}

// rotates counts the rotations that have begun: none is without a reason. The caller holds mu.
func (w *World) rotates(was, is *unstructured.Unstructured) {
	if was == nil || is == nil || w.plan.CALifetime > 0 || !w.plan.settled("restore", "edit", "deletion", "namespace") {
		return // half of a life is over, or an earlier state is back
	}
	before, errBefore := decode(was)
	after, errAfter := decode(is)
	if errBefore != nil || errAfter != nil || before.NextID != 0 || after.NextID == 0 {
		return
	}
	setBack := func(f Fault) bool {
		since := time.Since(w.began) - f.At
		return f.Kind == "clock" && since >= 0 && since < settling
	}
	if slices.ContainsFunc(w.plan.Faults, setBack) {
		return // a replica that knows the old time may activate a CA that the others know to begin in the future
	}
	if w.watch.rotations++; w.watch.rotations > w.watch.rotationsWanted {
		w.breaks("the rotation %d of the CA begins, and %d were asked for", w.watch.rotations, w.watch.rotationsWanted)
	}
}

// signsAnew looks at the Secret after RotateCA has returned, which was so before: another CA signs.
func (w *World) signsAnew(was *certsecret.State) {
	is := w.state()
	w.mu.Lock()
	defer w.mu.Unlock()
	if was != nil && is != nil && is.Lineage == was.Lineage && is.CurrentID <= was.CurrentID && !w.troubledSince(time.Now(), spoiled, lapsed) && time.Since(w.watch.damaged) > settling {
		w.breaks("RotateCA has returned, and the CA %d signs as before", is.CurrentID)
	}
}

// rotationBegins is how long it takes at most until a rotation that is due or asked for begins.
const rotationBegins = 2 * settling

// outlives looks at the CA that signs: it is replaced at half of its life.
func (w *World) outlives() {
	if w.plan.CALifetime == 0 || !w.plan.settled("clock") {
		return
	}
	state := w.state()
	if state == nil || state.Phase != ca.Steady {
		return
	}
	current, err := state.Current()
	if err != nil {
		return
	}
	life := current.Certificate.NotAfter.Sub(current.Certificate.NotBefore)
	due, within := later(later(current.Certificate.NotBefore.Add(life/2), state.Since), w.began), rotationBegins
	if within += max(w.plan.Clocks, -w.plan.Clocks); w.plan.Split {
		within += 2 * registersEvery
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.look()
	due = later(due, w.watch.lonely)
	serves := func() bool {
		for _, p := range w.processes {
			if !p.release.issued && !p.leaving && !p.readySince.IsZero() {
				return true
			}
		}
		return false
	}
	if time.Since(due) > within && serves() && !w.watch.damaged.Add(within).After(time.Now()) && !w.troubledSince(due, rough, slow, spoiled, lapsed, apart, evicted, unissued, strange) {
		w.breaks("half of the life of the CA is over since %s, and no rotation begins", time.Since(due).Round(time.Second))
	}
}

// annotates has a person ask for a rotation by the annotation of the Secret.
func (w *World) annotates(rng *rand.Rand) {
	found, before := w.find("Secret", namespace, theSecret), w.state()
	if before == nil || before.Phase != ca.Steady {
		return
	}
	object := found.DeepCopy()
	all := object.GetAnnotations()
	if all == nil {
		all = map[string]string{}
	}
	all[certsecret.RotateAnnotation] = fmt.Sprint(rng.Uint32())
	object.SetAnnotations(all)
	w.wants()
	began := time.Now()
	w.tell(fate, "asks for a rotation of the CA by an annotation")
	if err := w.api.Put(object); err != nil {
		w.violate("an annotation cannot be written: %v", err)
	}
	w.wrote(theSecret)
	if !w.plan.Split && rng.IntN(3) == 0 {
		w.tasks.Go(func() { w.losesStaged(before, rng) })
	}
	within := rotationBegins
	if w.plan.Split {
		if w.plan.Seed%2 == 0 { // the serving half stages the next CA, and cannot publish it
			w.expects(registersEvery, "cannot take the next step for the certificates", func() bool {
				state := w.state()
				return state != nil && state.Phase == ca.Staged
			})
		}
		within += 2 * registersEvery
	}
	if !w.wait(within) {
		return
	}
	after := w.state()
	w.mu.Lock()
	defer w.mu.Unlock()
	if after != nil && after.CurrentID <= before.CurrentID && after.Lineage == before.Lineage && !w.watch.damaged.After(began) &&
		!w.troubledSince(began, rough, slow, spoiled, lapsed, apart, unissued, strange) && w.watch.lonely.Before(began) {
		w.breaks("a rotation was asked for %s ago by an annotation, and the CA is the same", time.Since(began).Round(time.Second))
	}
}

// mirrors sees that the keys of the Secret which other programs read hold the CA that signs. The caller holds mu.
func (w *World) mirrors(secret *unstructured.Unstructured, state *certsecret.State) {
	current, err := state.Current()
	if err != nil {
		return
	}
	for key, text := range map[string][]byte{certsecret.CertificateKey: current.CertificatePEM, certsecret.CACertificateKey: current.CertificatePEM, certsecret.PrivateKeyKey: current.PrivateKeyPEM} {
		if held, _, _ := unstructured.NestedString(secret.Object, "data", key); held != encoded(text) {
			w.breaks("at rest, the key %s of the Secret does not hold the CA that signs", key)
		}
	}
}

// confuses has another client write something else into one of these keys.
func (w *World) confuses(rng *rand.Rand) {
	found := w.find("Secret", namespace, theSecret)
	if found == nil || found.Object["immutable"] == true {
		return
	}
	object, key := found.DeepCopy(), []string{certsecret.CertificateKey, certsecret.CACertificateKey, certsecret.PrivateKeyKey}[rng.IntN(3)]
	w.harms(belongings[2])
	w.tell(fate, "changes the key %s of the Secret", key)
	text := ""
	if stranger, err := ca.New(intruder, day, time.Now()); err == nil && rng.IntN(2) == 0 {
		text = encoded(stranger.CertificatePEM)
	}
	if err := unstructured.SetNestedField(object.Object, text, "data", key); err != nil || w.api.Put(object) != nil {
		w.violate("an edit failed: %v", err)
	}
	w.wrote(theSecret)
}

// distrusted sees that no caBundle holds a CA at rest that the Secret distrusts. The caller holds mu.
func (w *World) distrusted(state *certsecret.State) {
	if state.Distrusted == 0 || w.plan.Issued || !w.plan.settled("restore", "edit", "deletion", "namespace") {
		return
	}
	for _, secret := range w.secrets {
		was, err := decode(secret)
		if err != nil || was.Lineage != state.Lineage {
			continue
		}
		for _, g := range was.Generations {
			for _, kind := range registered {
				if g.ID <= state.Distrusted && ca.Contains(bundlesOf(w.history[kind].last()), g.CertificatePEM) {
					w.breaks("at rest, the %s holds the CA %d, and all up to %d are distrusted", kind, g.ID, state.Distrusted)
				}
			}
		}
	}
}

// losesStaged deletes the Secret within moments of the write that stages the next CA. Replicas that live know of the rotation, or of
// the request for it, so it comes.
func (w *World) losesStaged(before *certsecret.State, rng *rand.Rand) {
	version := ""
	for began, staged := time.Now(), false; !staged; {
		if time.Since(began) > 2*asksWithin || !w.wait(20*time.Millisecond) {
			return
		}
		if found := w.find("Secret", namespace, theSecret); found != nil && found.GetResourceVersion() != version {
			version = found.GetResourceVersion()
			state := w.state()
			staged = state != nil && state.Phase == ca.Staged
		}
	}
	if !w.wait(time.Duration(rng.Int64N(int64(time.Second)))) {
		return
	}
	began := time.Now()
	if known := w.loses(belongings[2]); !known || !w.wait(2*rotationBegins) {
		return
	}
	after := w.state()
	w.mu.Lock()
	defer w.mu.Unlock()
	if after != nil && after.Lineage == before.Lineage && after.CurrentID <= before.CurrentID && !w.watch.damaged.After(began.Add(time.Millisecond)) &&
		!w.troubledSince(began, rough, slow, spoiled, apart, unissued, strange) && w.watch.lonely.Before(began) && w.watch.undone.Before(began) && w.watch.held == nil {
		w.breaks("the Secret was deleted %s ago amid a rotation that was asked for, and the CA %d signs as before", time.Since(began).Round(time.Second), after.CurrentID)
	}
}
