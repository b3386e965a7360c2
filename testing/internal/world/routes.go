package world

// This file is the paths that API servers call while replicas of several versions live: every replica answers there, with the steps
// that it has.

import (
	"bytes"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"slices"
	"time"

	admissionv1 "k8s.io/api/admission/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"code.cloudfoundry.org/eirinix/internal/webhookconf"
)

// knownAfter is how long a replica takes at most to hear of a registration, or of another version, beside the lag. routesEvery is how
// often it is asked.
const knownAfter, routesEvery = 5 * time.Second, 4 * time.Second

// answersAll asks each replica on each path that is registered, while several versions live.
func (w *World) answersAll() {
	review := admissionv1.AdmissionReview{
		TypeMeta: metav1.TypeMeta{APIVersion: "admission.k8s.io/v1", Kind: "AdmissionReview"},
		Request: &admissionv1.AdmissionRequest{ // no step is about such an object
			UID: "asked", Kind: metav1.GroupVersionKind{Version: "v1", Kind: "Binding"}, Resource: metav1.GroupVersionResource{Version: "v1", Resource: "bindings"},
			Name: "asked", Namespace: "shop", Operation: admissionv1.Create, Object: runtime.RawExtension{Raw: []byte(`{"apiVersion":"v1","kind":"Binding","metadata":{"name":"asked"}}`)},
		},
	}
	body, err := json.Marshal(review)
	if err != nil {
		w.violate("there is no review: %v", err)
		return
	}
	for w.wait(routesEvery) {
		if !w.isMixed() {
			continue
		}
		for _, p := range w.mustAnswer() {
			for _, kind := range configurations {
				w.mu.Lock()
				entries := webhooksOf(w.history[kind].last())
				w.mu.Unlock()
				for _, h := range entries {
					w.asksFor(p, h, body)
				}
			}
		}
	}
}

// mustAnswer returns the replicas that know all paths that are registered, and all versions. After an order, those of another version
// leave the calls to those of the one that was ordered.
func (w *World) mustAnswer() (all []*process) {
	if !w.rights.held("get", "leases") || !w.rights.held("watch", "leases") {
		return nil
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	old := time.Now().Add(-knownAfter - 2*w.plan.Lag)
	if w.troubledSince(old, rough, slow, spoiled, lapsed, apart, strange, evicted) || w.watch.ordered.Add(time.Hour).After(time.Now()) && !w.watch.ordered.IsZero() {
		return nil
	}
	for _, kind := range configurations {
		if h := w.history[kind]; len(h) > 0 && h[len(h)-1].at.After(old) {
			return nil
		}
	}
	for _, at := range w.watch.recordedAt {
		if at.After(old) {
			return nil
		}
	}
	return slices.DeleteFunc(slices.Clone(w.processes), func(p *process) bool {
		return p.leaving || p.readySince.IsZero() || p.readySince.After(old) || !p.wire.hears()
	})
}

// asksFor sees that a replica answers on the path of an entry.
func (w *World) asksFor(p *process, h hook, body []byte) {
	mux := p.host.serves()
	if mux == nil || p.host.isDead() {
		return
	}
	_, at := webhookconf.TargetOf(h.ClientConfig)
	answer, request := httptest.NewRecorder(), httptest.NewRequest(http.MethodPost, at+"?timeout=5s", bytes.NewReader(body))
	request.Header.Set("Content-Type", "application/json")
	mux.ServeHTTP(answer, request)
	if answer.Code == http.StatusOK {
		w.tallyAt(at, func(t *tally) { t.sent, t.answered = t.sent+1, t.answered+1 })
	}
	if answer.Code == http.StatusServiceUnavailable || answer.Code == http.StatusNotFound {
		w.violate("%s answers %d on the path %s, which is registered and not by order: %s", p, answer.Code, at, answer.Body)
	}
}
