package world

// This file is a call just before a stop that leaves a run in Shadow, which waits for its context: it ends with the program.

import (
	"bytes"
	"encoding/json"
	"slices"
	"strings"
	"time"

	admissionv1 "k8s.io/api/admission/v1"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/uuid"

	"code.cloudfoundry.org/eirinix"
)

// reviewOf is the text of a review of a pod that is created.
func reviewOf(pod *unstructured.Unstructured) []byte {
	text, _ := json.Marshal(admissionv1.AdmissionReview{
		TypeMeta: metav1.TypeMeta{APIVersion: "admission.k8s.io/v1", Kind: "AdmissionReview"},
		Request: &admissionv1.AdmissionRequest{
			UID: uuid.NewUUID(), Kind: podKind, Resource: podResource, Name: pod.GetName(), Namespace: pod.GetNamespace(), Operation: admissionv1.Create, UserInfo: userOf(userName),
			Object: runtime.RawExtension{Object: pod},
		},
	}) // of texts and numbers
	return text
}

// haunts calls a replica for a pod on which a step in Shadow waits for its context, if there is such a step. Other steps leave it as it is.
func (w *World) haunts(p *process) {
	s, pod, name := w.servers[0], podIn("shop", "first"), ghost
	if failing, frozen := s.state(); failing != 0 || frozen != nil || !p.ready() {
		return
	}
	_ = unstructured.SetNestedSlice(pod.Object, []any{map[string]any{"name": "i", "image": "i"}}, "spec", "initContainers") // it is an object
	if !w.plan.Shadow {
		i := slices.IndexFunc(w.boxes, func(s boxStep) bool {
			return s.Mode == eirinix.ModeShadow && s.kind.Kind == "Pod" && len(s.Objects.MatchExpressions) == 0 && slices.Contains(s.Operations, admissionregistrationv1.Create)
		})
		if i < 0 {
			return
		}
		name = w.boxes[i].name
		pod.SetLabels(map[string]string{boxed: "yes", does + name: hang})
		pod.SetAnnotations(map[string]string{nonceKey: "first"})
	}
	for _, kind := range configurations {
		for _, h := range s.entries(kind) {
			w.mu.Lock()
			holds := strings.HasPrefix(h.Name, name+".") || slices.ContainsFunc(w.boxesAt(h.path()), func(s boxStep) bool { return s.name == name })
			w.mu.Unlock()
			_, at, err := s.client(h.ClientConfig)
			if !holds || err != nil {
				continue
			}
			client := w.only(s, p, h.ClientConfig.CABundle)
			client.Timeout = 300 * time.Millisecond
			w.tallied(h.ClientConfig, func(t *tally) { t.sent++ })
			if answer, err := client.Post(at+"?timeout=10s", "application/json", bytes.NewReader(reviewOf(pod))); err == nil {
				_ = answer.Body.Close()
			}
			client.CloseIdleConnections()
			return
		}
	}
}
