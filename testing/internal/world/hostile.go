package world

// This file is requests that are no reviews: each is refused with the status that says why, before a step sees it.

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"math/rand/v2"
	"net/http"
	"strings"

	admissionv1 "k8s.io/api/admission/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/uuid"
)

// hostile is a request, and the status of its answer.
type hostile struct {
	method, path string
	header       map[string]string
	body         []byte
	status       int
}

// harasses sends a request that is no review to a webhook.
func (w *World) harasses(rng *rand.Rand) {
	s := w.servers[rng.IntN(len(w.servers))]
	entries := s.entries(configurations[rng.IntN(2)])
	if failing, frozen := s.state(); failing != 0 || frozen != nil || len(entries) == 0 {
		return
	}
	entry := entries[rng.IntN(len(entries))]
	client, at, err := s.client(entry.ClientConfig)
	if err != nil {
		return
	}
	h := drawHostile(rng)
	began := w.begins()
	ctx, cancel := w.ctx()
	defer cancel()
	ctx, cancelTimeout := context.WithTimeout(ctx, requestTime)
	defer cancelTimeout()
	if h.path != "" {
		at = strings.TrimSuffix(at, entry.path()) + h.path
	}
	request, err := http.NewRequestWithContext(ctx, h.method, at, bytes.NewReader(h.body))
	if err != nil {
		w.violate("a request cannot be made: %v", err)
		return
	}
	request.Header.Set("Content-Type", "application/json")
	for name, value := range h.header {
		request.Header.Set(name, value)
	}
	only := *client
	only.CheckRedirect = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
	response, err := only.Do(request)
	if err != nil {
		return
	}
	said, _ := io.ReadAll(response.Body) // what has come
	_ = response.Body.Close()
	w.mu.Lock()
	defer w.mu.Unlock()
	elsewhere := response.StatusCode == http.StatusServiceUnavailable && response.Header.Get("Retry-After") == "0" && h.status != response.StatusCode // another version has the path
	if response.StatusCode == http.StatusForbidden || elsewhere || !w.settledSince(began) {
		return // a caller without a good certificate is forbidden
	}
	w.watch.refusals[response.StatusCode]++
	if response.StatusCode != h.status {
		w.breaks("%s: a request that is no review (%s %s %v: %.300s) is answered with %d, and not %d: %.300s", s.name, h.method, at, h.header, h.body, response.StatusCode, h.status, said)
	}
	if h.status == http.StatusServiceUnavailable && (response.Header.Get("Retry-After") != "0" || !response.Close) {
		w.breaks("%s: an unknown path is answered with Retry-After %q, and the connection is closed: %t", s.name, response.Header.Get("Retry-After"), response.Close)
	}
}

// drawHostile draws a request.
func drawHostile(rng *rand.Rand) hostile {
	pod := podIn("shop", "hostile")
	pod.SetAnnotations(map[string]string{"text": spelled[rng.IntN(len(spelled))]})
	review := admissionv1.AdmissionReview{
		TypeMeta: metav1.TypeMeta{APIVersion: "admission.k8s.io/v1", Kind: "AdmissionReview"},
		Request: &admissionv1.AdmissionRequest{
			UID: uuid.NewUUID(), Kind: podKind, Resource: podResource, Name: "hostile", Namespace: "shop", Operation: admissionv1.Create, UserInfo: userOf(userName),
			Object: runtime.RawExtension{Object: pod},
		},
	}
	h := hostile{method: http.MethodPost, header: map[string]string{}, status: http.StatusBadRequest}
	text := func() []byte {
		body, _ := json.Marshal(review) // of texts
		return body
	}
	h.body = text()
	switch rng.IntN(16) {
	case 0:
		h.method, h.body, h.status = http.MethodGet, nil, http.StatusMethodNotAllowed
	case 1:
		h.header["Content-Type"], h.status = "text/plain", http.StatusUnsupportedMediaType
	case 2:
		h.header["Content-Encoding"], h.status = "gzip", http.StatusUnsupportedMediaType
	case 3:
		h.body = nil
	case 4:
		review.Kind = "Pod"
		h.body = text()
	case 5:
		review.APIVersion = "admission.k8s.io/v2"
		h.body = text()
	case 6:
		review.Request.UID = ""
		h.body = text()
	case 7:
		review.Request.UID = review.Request.UID + "-" + uuid.NewUUID() + "-" // and so on
		for len(review.Request.UID) <= 253 {
			review.Request.UID += review.Request.UID
		}
		h.body = text()
	case 8:
		review.Request.Operation = "PATCH"
		h.body = text()
	case 9:
		review.Request = nil
		h.body = text()
	case 10:
		review.Request.UserInfo.Groups, h.status = []string{strings.Repeat("group ", 60_000)}, http.StatusRequestEntityTooLarge
		h.body = text()
	case 11:
		h.path, h.status = []string{"/mutate/unknown", "/validate/unknown", "/convert/unknown"}[rng.IntN(3)], http.StatusServiceUnavailable
	case 12:
		h.path, h.status = []string{"/", "/unknown", "/mutate", "//readyz", "/a/../mutate"}[rng.IntN(5)], http.StatusNotFound
	default:
		h.body = malformed(h.body, rng)
	}
	return h
}

// malformed changes a text until it is no JSON.
func malformed(text []byte, rng *rand.Rand) []byte {
	const bytesOfJSON = "{}[],:\"\\0-.eE+truefalsenull \n\x00\x1f/u"
	for {
		all := bytes.Clone(text)
		for range 1 + rng.IntN(2) {
			at, one := rng.IntN(len(all)), bytesOfJSON[rng.IntN(len(bytesOfJSON))]
			switch rng.IntN(4) {
			case 0:
				all = append(all[:at], all[at+1:]...)
			case 1:
				all[at] = one
			case 2:
				all = append(all[:at], append([]byte{one}, all[at:]...)...)
			default:
				all = all[:at+1]
			}
		}
		if !json.Valid(all) {
			return all
		}
	}
}
