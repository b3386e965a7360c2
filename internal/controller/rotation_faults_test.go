package controller_test

// This file is about harm that is done to the world of the model of rotations.

import (
	"context"
	"fmt"
	"maps"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"code.cloudfoundry.org/eirinix/internal/ca"
	"code.cloudfoundry.org/eirinix/internal/certsecret"
	"code.cloudfoundry.org/eirinix/internal/controller"
)

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
	kinds := 4
	if w.older {
		kinds = 5
	}
	switch w.rng.IntN(kinds) {
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
	case 4:
		deed = "puts an older Secret back"
		var past []*corev1.Secret
		for _, s := range w.secret.past {
			if old, ok := s.object.(*corev1.Secret); ok && !s.fault {
				past = append(past, old)
			}
		}
		past = past[max(0, len(past)-20):]
		secret.Data = maps.Clone(past[w.rng.IntN(len(past))].Data)
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
