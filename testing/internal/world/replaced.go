package world

// This file is the certificate Secret when it comes back: after a deletion with its CA, and against a tool that replaces it.

import (
	"reflect"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"code.cloudfoundry.org/eirinix/internal/ca"
	"code.cloudfoundry.org/eirinix/internal/certsecret"
)

// remakes sees that a Secret that was deleted comes back with its CA. The caller holds mu.
func (w *World) remakes(was, is *unstructured.Unstructured) {
	if was == nil || is == nil || was.GetUID() == is.GetUID() || w.watch.knew == 0 {
		return
	}
	before, errBefore := decode(was)
	after, errAfter := decode(is)
	if w.watch.knew == w.started && errBefore == nil && errAfter == nil && time.Since(before.Since) > settling {
		if held, err := before.Current(); err == nil && !ca.Contains(after.Bundle(), held.CertificatePEM) {
			w.breaks("the Secret was deleted, and comes back with another CA, although all replicas know the one of before")
		}
	}
	w.watch.knew = 0
}

const (
	replacedFor = 90 * time.Second
	replaced    = "another client replaces the CA in the certificate Secret again and again"
)

// replaces has a tool put another CA into the Secret whenever replicas put theirs back. They do so at once a few times, say so, and
// then once a minute.
func (w *World) replaces() bool {
	b := belongings[2]
	stranger, err := ca.New(intruder, 24*time.Hour, time.Now())
	if state := w.state(); err != nil || state == nil || state.FormatVersion > certsecret.FormatVersion || time.Since(w.began) > w.plan.Lasts-quiet-2*settling || !w.tools.TryLock() {
		return false
	}
	defer w.tools.Unlock()
	data := map[string]any{"tls.crt": encoded(stranger.CertificatePEM), "tls.key": encoded(stranger.PrivateKeyPEM)}
	w.tell(fate, "has a tool put another CA into the %s again and again, for %s", b.kind, replacedFor)
	began, times, started := time.Now(), 0, w.begun()
	for time.Since(began) < replacedFor && w.wait(200*time.Millisecond) {
		found := w.find(b.kind, b.namespace, b.name)
		if found == nil || found.Object["immutable"] == true || reflect.DeepEqual(found.Object["data"], data) {
			continue
		}
		object := found.DeepCopy()
		object.Object["data"] = data
		w.harms(b)
		if err := w.api.Put(object); err != nil {
			w.violate("an edit failed: %v", err)
		}
		w.observe()
		times++
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	told := func(l line) bool { return l.at.After(began) && strings.Contains(l.text, replaced) }
	if times > 6*max(1, len(w.processes)) && started == w.started && !slices.ContainsFunc(w.story, told) {
		w.breaks("a tool has put another CA into the Secret %d times, and no log tells: %s", times, replaced)
	}
	return true
}
