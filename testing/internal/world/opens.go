package world

// This file is the first moment of a port: API servers can call as soon as it is open, because another version can be registered
// already.

import (
	"bytes"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"strings"
	"time"

	admissionv1 "k8s.io/api/admission/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"code.cloudfoundry.org/eirinix/internal/rollout"
)

// opens calls a replica on all paths that are registered, as it opens its port. It answers on each that a version has recorded, if not
// one that came after its own.
func (w *World) opens(p *process, mux *http.ServeMux) {
	w.mu.Lock()
	fits := !w.troubledSince(time.Now().Add(-settling), slow, spoiled, lapsed, apart, strange) && !w.plan.Split && !w.plan.Unregister && len(w.releases) > 1
	w.mu.Unlock()
	lease := w.find("Lease", namespace, fingerprint+"-versions")
	if !fits || lease == nil || !w.rights.held("get", "leases") || !w.rights.held("watch", "leases") {
		return
	}
	review := admissionv1.AdmissionReview{
		TypeMeta: metav1.TypeMeta{APIVersion: "admission.k8s.io/v1", Kind: "AdmissionReview"},
		Request:  &admissionv1.AdmissionRequest{UID: "first", Kind: podKind, Resource: podResource, Name: "first", Namespace: "shop", Operation: admissionv1.Create, Object: runtime.RawExtension{Object: podIn("shop", "first")}},
	}
	body, err := json.Marshal(review)
	if err != nil {
		w.violate("there is no review: %v", err)
		return
	}
	versions := rollout.Read(lease.GetAnnotations())
	later := func(r rollout.Record) bool { // than its own: no replica of this one has the steps that it has added
		for _, own := range versions {
			if stepsOf(own) == p.release.declares() && r.Ordinal > own.Ordinal {
				return true
			}
		}
		return false
	}
	for version, r := range versions {
		w.mu.Lock()
		young := time.Since(w.watch.recordedAt[version]) < 5*time.Second // its copy may be late
		w.mu.Unlock()
		if young || strings.Contains(r.Target, other) || r.Removed || later(r) {
			continue
		}
		for at := range r.Steps {
			if !strings.HasPrefix(at, "/mutate/") && !strings.HasPrefix(at, "/validate/") {
				continue
			}
			answer, request := httptest.NewRecorder(), httptest.NewRequest(http.MethodPost, at+"?timeout=5s", bytes.NewReader(body))
			request.Header.Set("Content-Type", "application/json")
			w.tallyAt(at, func(t *tally) { t.sent++ })
			mux.ServeHTTP(answer, request)
			if answer.Code == http.StatusServiceUnavailable || answer.Code == http.StatusNotFound {
				w.violate("%s opens its port, and answers %d on the path %s, which another version has recorded: %s", p, answer.Code, at, answer.Body)
				return
			}
		}
	}
}
