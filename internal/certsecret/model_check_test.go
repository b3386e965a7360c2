package certsecret_test

// What must always hold in the model's world, and what must come about when it is left alone.

import (
	"fmt"

	"code.cloudfoundry.org/eirinix/internal/ca"
	"code.cloudfoundry.org/eirinix/internal/certsecret"
)

// settle leaves the world alone, and looks whether it comes to rest with one CA, which is registered and serves.
func (w *world) settle() {
	w.events, w.flaky, w.slow = nil, 0, 0
	w.note(somebody, "leaves the world alone")
	for until := w.now.Add(5*w.retain + w.patience); !w.rests(); {
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
	for until := w.now.Add(3 * w.resync); w.now.Before(until); {
		if !w.step() {
			return
		}
	}
	if w.writes != writes {
		w.fail("%d writes although nothing is due", w.writes-writes)
	}
	if state := w.state(); w.records && !ca.EqualBundles(state.RegisteredBundle, state.Bundle()) {
		w.fail("%s is recorded as registered: %s", w.trust.bundle(state.RegisteredBundle), w.describe(state))
	}
}

// rests tells whether nothing is left to do, and nothing comes for a while.
func (w *world) rests() bool {
	state := w.state()
	if state == nil || state.Phase != ca.Steady || len(state.Generations) != 1 || w.requested() ||
		w.records && !ca.EqualBundles(state.RegisteredBundle, state.Bundle()) {
		return false
	}
	current, err := state.Current()
	if err != nil {
		return false
	}
	half := current.Certificate.NotBefore.Add(current.Certificate.NotAfter.Sub(current.Certificate.NotBefore) / 2)
	if !w.now.Add(4 * w.resync).Before(half) {
		return false
	}
	for _, c := range w.configurations {
		if c.latest().bundle == nil || !ca.EqualBundles(c.latest().pem, state.Bundle()) {
			return false
		}
	}
	for _, r := range w.replicas {
		if !r.ready || r.writing || !r.serves.authority.Equal(current) {
			return false
		}
	}
	return true
}

func (w *world) requested() bool {
	state := w.state()
	request := w.secret.secret.Annotations[certsecret.RotateAnnotation]
	return request != "" && request != state.Handled
}

// frugal looks at the number of writes in a world whose objects nobody has damaged: a rotation takes nine.
func (w *world) frugal() {
	if w.losses == 0 && w.blanks == 0 && w.writes > 14*(w.staged+1)+len(w.replicas) {
		w.fail("%d writes for %d rotations", w.writes, w.staged)
	}
}

func (w *world) wroteSecret(r *replica) {
	w.writes++
	state := w.state()
	w.note(r, "the Secret is now %s", w.describe(state))
	if state.Phase == ca.Staged && state.NextID != w.lastStaged {
		w.lastStaged = state.NextID
		w.staged++
	}
	w.changed()
}

// state is what stands in the Secret; nil if nothing that can be used does.
func (w *world) state() *certsecret.State {
	if w.secret.secret == nil {
		return nil
	}
	if version := w.secret.secret.ResourceVersion; w.decodedOf != version {
		w.decodedOf = version
		w.decoded, _ = certsecret.Decode(w.secret.secret.Data)
	}
	return w.decoded
}

func (w *world) describe(state *certsecret.State) string {
	if state == nil {
		return "unusable"
	}
	text := fmt.Sprintf("%s (counter %d), trusts %s", state.Phase, state.Counter, w.trust.bundle(state.Bundle()))
	if authority, err := state.Current(); err == nil {
		text += ", current " + w.trust.describe(authority)
	}
	return text
}

// lost tells whether the Secret does not know what is served.
func (w *world) lost() bool {
	state := w.state()
	for _, r := range w.replicas {
		if r.ready && (state == nil || !ca.Contains(state.Bundle(), r.serves.authority.CertificatePEM)) {
			return true
		}
	}
	return false
}

// check looks for a replica that an API server would not trust.
func (w *world) check() {
	for _, r := range w.replicas {
		if !r.ready {
			continue
		}
		for _, c := range w.configurations {
			for _, v := range c.heldAt(w.now, w.lag) {
				if v.fault {
					continue
				}
				if err := w.trust.verify(r.serves, v.bundle, w.now); err != nil {
					w.fail("%s serves a certificate of %s, and an API server may hold %s of %s: %v", r, r.serves, v.bundle, c.name, err)
				}
			}
		}
	}
}

// onlyGrows looks at a write of a configuration: what it takes away must not be trusted any more.
func (w *world) onlyGrows(r *replica, c *configuration, next *bundle) {
	state := w.state()
	if state == nil || c.latest().bundle == nil || w.losses != 0 {
		return
	}
	for _, certificate := range c.latest().certificates {
		text := ca.EncodeCertificate(certificate)
		if !ca.Contains(next.pem, text) && ca.Contains(state.Bundle(), text) {
			w.fail("%s takes CA %s out of %s, which the Secret trusts: %s", r, w.trust.name(certificate.RawSubject), c.name, w.describe(state))
		}
	}
}
