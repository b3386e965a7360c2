package certsecret_test

// What is done to the model's world from outside.

import (
	"context"
	"fmt"
	"maps"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	corev1client "k8s.io/client-go/kubernetes/typed/core/v1"

	"code.cloudfoundry.org/eirinix/internal/ca"
	"code.cloudfoundry.org/eirinix/internal/certsecret"
)

type outside string

func (o outside) String() string { return string(o) }

const somebody = outside("somebody")

// request asks for a rotation.
func (w *world) request() {
	if w.secret.secret == nil {
		return
	}
	w.asked++
	secret := w.secret.secret.DeepCopy()
	metav1.SetMetaDataAnnotation(&secret.ObjectMeta, certsecret.RotateAnnotation, fmt.Sprint("request ", w.asked))
	w.secret.put(secret)
	w.note(somebody, "asks for a rotation")
	w.changed()
}

// crash ends a process, but not the last one that knows a CA which the Secret has lost.
func (w *world) crash() {
	r := w.replicas[w.rng.IntN(len(w.replicas))]
	if !r.alive || w.lost() {
		return
	}
	w.note(r, "crashes")
	r.crash()
	r.wakeAt = w.now.Add(w.after(w.resync))
}

// lose damages the Secret, unless nobody could put it back.
func (w *world) lose() {
	known := false
	for _, r := range w.replicas {
		if r.alive && !r.ready && !w.starters {
			return // it might make a CA of its own
		}
		known = known || r.ready
	}
	if !known || w.secret.secret == nil || w.lost() {
		return
	}
	var what string
	secret := w.secret.secret.DeepCopy()
	switch w.rng.IntN(4 + count(w.older)) {
	case 0:
		what, secret = "deletes the Secret", nil
	case 1:
		what = "empties the Secret"
		secret.Data = nil
	case 2:
		what = "writes nonsense into the Secret"
		keys := []string{certsecret.StateKey, certsecret.CertificateKey, certsecret.PrivateKeyKey, certsecret.CACertificateKey}
		for range 1 + w.rng.IntN(4) {
			secret.Data[keys[w.rng.IntN(len(keys))]] = []byte("nonsense")
		}
	case 4:
		what = "puts an older Secret back"
		secret.Data = maps.Clone(w.secret.past[w.rng.IntN(len(w.secret.past))])
	case 3:
		what = "replaces the Secret by that of another deployment"
		secret.Data = w.foreign()
	}
	if secret == nil {
		w.secret.secret = nil
	} else {
		w.secret.put(secret)
	}
	w.note(somebody, what+", which is now %s", w.describe(w.state()))
	w.changed()
	if w.starters && w.chance(0.5) {
		w.replace()
	}
}

// replace crashes a process, if another one is ready, and starts a new one at once.
func (w *world) replace() {
	r, others := w.replicas[w.rng.IntN(len(w.replicas))], 0
	for _, other := range w.replicas {
		if other.ready && other != r {
			others++
		}
	}
	if r.alive && others > 0 {
		w.note(r, "crashes")
		r.crash()
		r.wakeAt = w.now.Add(w.short())
	}
}

// blank damages a caBundle.
func (w *world) blank() {
	c := w.configurations[w.rng.IntN(len(w.configurations))]
	if c.latest().bundle == nil {
		return
	}
	var text []byte
	switch w.rng.IntN(3) {
	case 1:
		text = []byte("nonsense")
	case 2:
		text = must(ca.New("somebody else", time.Hour, w.now)).CertificatePEM
	}
	c.put(w.trust.bundle(text), w.now, true)
	w.note(somebody, "breaks "+c.name+", which is now %s", c.latest().bundle)
	w.changed()
}

// foreign is the data of another deployment's Secret, a few writes old.
func (w *world) foreign() map[string][]byte {
	m := &memory{}
	store := &certsecret.Store{Secrets: plainClient{m: m}, Namespace: "other", Name: name, Lifetime: w.authorities, Now: func() time.Time { return w.now }}
	state, _, err := store.Ensure(context.Background())
	must(state, err)
	for range w.rng.IntN(30) {
		must(0, store.RecordRegistered(context.Background(), must(ca.New("x", time.Hour, w.now)).CertificatePEM))
	}
	return m.secret.Data
}

// plainClient answers at once.
type plainClient struct {
	corev1client.SecretInterface
	m *memory
}

func (c plainClient) Get(context.Context, string, metav1.GetOptions) (*corev1.Secret, error) {
	return c.m.get()
}

func (c plainClient) Create(_ context.Context, secret *corev1.Secret, _ metav1.CreateOptions) (*corev1.Secret, error) {
	return c.m.create(secret)
}

func (c plainClient) Update(_ context.Context, secret *corev1.Secret, _ metav1.UpdateOptions) (*corev1.Secret, error) {
	return c.m.update(secret)
}

func count(b bool) int {
	if b {
		return 1
	}
	return 0
}
