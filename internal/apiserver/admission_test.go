package apiserver_test

// This file specifies the objects that webhooks receive, and how a text of objects is taken apart.

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strings"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	admissionv1 "k8s.io/api/admission/v1"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"

	"code.cloudfoundry.org/eirinix/internal/apiserver"
)

var _ = Describe("The object that webhooks receive", func() {
	// shown sends a request, and returns the requests that the mutating and the validating webhook received.
	shown := func(r apiserver.Request) (mutated, validated *admissionv1.AdmissionRequest) {
		GinkgoHelper()
		allow := func(into **admissionv1.AdmissionRequest) http.HandlerFunc {
			return func(w http.ResponseWriter, r *http.Request) {
				var review admissionv1.AdmissionReview
				_ = json.NewDecoder(r.Body).Decode(&review)
				*into = review.Request
				w.Header().Set("Content-Type", "application/json")
				fmt.Fprintf(w, `{"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "response": {"uid": %q, "allowed": true}}`, review.Request.UID)
			}
		}
		server := &apiserver.Server{Scheme: clientgoscheme.Scheme}
		Expect(server.Add(program(allow(&mutated), mutating("m.example.org", func(*admissionregistrationv1.MutatingWebhook) {}), nil))).To(Succeed())
		Expect(server.Add(program(allow(&validated), nil, validating("v.example.org")))).To(Succeed())
		outcome, err := server.Send(GinkgoTB().Context(), r)
		Expect(err).NotTo(HaveOccurred())
		Expect(outcome.Err).NotTo(HaveOccurred())
		return mutated, validated
	}

	It("is a Secret without stringData, as an API server decodes it", func() {
		const secret = `{apiVersion: v1, kind: Secret, metadata: {name: s}, data: {a: YQ==, b: b2xk}, stringData: {b: new}}`
		mutated, _ := shown(apiserver.Request{Operation: admissionv1.Create, Object: secret})
		Expect(mutated.Object.Raw).To(MatchJSON(`{"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "s", "namespace": "default"}, "data": {"a": "YQ==", "b": "bmV3"}}`))
		mutated, _ = shown(apiserver.Request{Operation: admissionv1.Update, Object: secret, OldObject: secret})
		Expect(string(mutated.Object.Raw)).NotTo(ContainSubstring("stringData"))
		const other = `{apiVersion: example.org/v1, kind: Gadget, metadata: {name: g}, stringData: {b: new}}`
		mutated, _ = shown(apiserver.Request{Operation: admissionv1.Create, Object: other})
		Expect(string(mutated.Object.Raw)).To(ContainSubstring("stringData"))
	})

	// Observed: mutating webhooks see an update as it was sent, validating ones as it will be stored.
	DescribeTable("has its fixed fields restored in an update, once it was mutated", func(kind, newStatus, expected string) {
		const format = `{apiVersion: %s, metadata: {name: d, namespace: default%s}%s}`
		mutated, validated := shown(apiserver.Request{
			Operation: admissionv1.Update,
			Object:    fmt.Sprintf(format, kind, `, uid: other`, newStatus),
			OldObject: fmt.Sprintf(format, kind, `, uid: own, generation: 7, creationTimestamp: "2026-01-01T00:00:00Z"`, `, status: {replicas: 3}`),
		})
		Expect(string(mutated.Object.Raw)).To(ContainSubstring(`"uid":"other"`))
		Expect(validated.Object.Raw).To(MatchJSON(expected))
	},
		Entry("status aside", "apps/v1, kind: Deployment", "",
			`{"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "d", "namespace": "default", "uid": "own", "generation": 7, "creationTimestamp": "2026-01-01T00:00:00Z"}, "status": {"replicas": 3}}`),
		Entry("the status of a built-in kind", "apps/v1, kind: Deployment", ", status: {replicas: 5}",
			`{"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "d", "namespace": "default", "uid": "own", "generation": 7, "creationTimestamp": "2026-01-01T00:00:00Z"}, "status": {"replicas": 3}}`),
		Entry("the status of a custom resource, which may have none of its own", "example.org/v1, kind: Gadget", ", status: {replicas: 5}",
			`{"apiVersion": "example.org/v1", "kind": "Gadget", "metadata": {"name": "d", "namespace": "default", "uid": "own", "generation": 7, "creationTimestamp": "2026-01-01T00:00:00Z"}, "status": {"replicas": 5}}`),
	)

	It("is of a subresource no more than that, once it was mutated", func() {
		update := func(subresource, old, now string) string {
			GinkgoHelper()
			mutated, validated := shown(apiserver.Request{Operation: admissionv1.Update, Subresource: subresource, Object: now, OldObject: old})
			Expect(string(mutated.Object.Raw)).To(ContainSubstring(`"hostname":"new"`))
			return string(validated.Object.Raw)
		}
		const (
			pod  = `{apiVersion: v1, kind: Pod, metadata: {name: p, namespace: default, labels: {is: old}}, spec: {hostname: old}, status: {message: old}}`
			sent = `{apiVersion: v1, kind: Pod, metadata: {name: p, namespace: default, labels: {is: new}}, spec: {hostname: new, ephemeralContainers: [{name: new}]}, status: {message: new}}`
		)
		Expect(update("status", pod, sent)).To(MatchJSON(`{"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p", "namespace": "default", "labels": {"is": "new"}}, "spec": {"hostname": "old"}, "status": {"message": "new"}}`))
		Expect(update("ephemeralcontainers", pod, sent)).To(MatchJSON(`{"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p", "namespace": "default", "labels": {"is": "old"}}, "spec": {"hostname": "old", "ephemeralContainers": [{"name": "new"}]}, "status": {"message": "old"}}`))
		other := strings.NewReplacer("v1, kind: Pod", "example.org/v1, kind: Gadget")
		Expect(update("status", other.Replace(pod), other.Replace(sent))).To(MatchJSON(`{"apiVersion": "example.org/v1", "kind": "Gadget", "metadata": {"name": "p", "namespace": "default", "labels": {"is": "old"}}, "spec": {"hostname": "old"}, "status": {"message": "new"}}`))
	})

	It("is a further generation, where more than metadata and status were changed", func() {
		update := func(old, now string) string {
			GinkgoHelper()
			const format = `{apiVersion: example.org/v1, kind: Gadget, metadata: {name: g, namespace: default%s}, %s}`
			_, validated := shown(apiserver.Request{
				Operation: admissionv1.Update,
				Object:    fmt.Sprintf(format, ", labels: {a: b}", now),
				OldObject: fmt.Sprintf(format, ", generation: 7", old),
			})
			return string(validated.Object.Raw)
		}
		Expect(update("spec: {a: 1}", "spec: {a: 1}, status: {b: 2}")).To(ContainSubstring(`"generation":7`))
		Expect(update("spec: {a: 1}", "spec: {a: 2}")).To(ContainSubstring(`"generation":8`))
	})
})

var _ = Describe("A text of objects", func() {
	DescribeTable("is taken apart as kubectl does", func(text string, expected ...string) {
		all, err := apiserver.Documents([]byte(text))
		Expect(err).NotTo(HaveOccurred())
		Expect(all).To(HaveLen(len(expected)))
		for i, e := range expected {
			Expect(all[i]).To(MatchJSON(e))
		}
	},
		Entry("nothing", ""),
		Entry("YAML", "a: 1\n---\n# none\n---\nb: 2\n", `{"a": 1}`, `{"b": 2}`),
		Entry("with a byte order mark", "\ufeffa: 1\n", `{"a": 1}`),
		Entry("JSON after JSON", `{"a": 1}{"b": 2}`+"\n"+`{"c": 3}`, `{"a": 1}`, `{"b": 2}`, `{"c": 3}`),
	)

	DescribeTable("that is none is refused, and not read by half", func(text, message string) {
		_, err := apiserver.Documents([]byte(text))
		Expect(err).To(MatchError(ContainSubstring(message)))
	},
		Entry("text after JSON", `{"a": 1} garbage: [`, "neither JSON nor YAML"),
		Entry("a template", "a: {{ .Values.a }}\nb: [", "neither JSON nor YAML"),
		Entry("UTF-16", "\xff\xfea\x00:\x00", "perhaps UTF-16"),
	)

	It("is one object where one is asked for", func() {
		_, err := apiserver.ReadDocument([]byte("{apiVersion: v1, kind: Pod}\n---\n{apiVersion: v1, kind: Pod}"))
		Expect(err).To(MatchError(ContainSubstring("several objects; give one at a time")))
		_, err = apiserver.ReadDocument([]byte("# nothing"))
		Expect(err).To(MatchError(ContainSubstring("the text holds no object")))
		d, err := apiserver.ReadDocument([]byte(`{"apiVersion": "v1", "kind": "Pod", "spec": {"big": 12345678901234567890.0}}`))
		Expect(err).NotTo(HaveOccurred())
		Expect(string(d.Raw)).To(ContainSubstring("12345678901234567890.0"))
	})
})
