package apiserver_test

// This file specifies how answers of webhooks are taken, the objects that webhooks receive, and how a text of objects is taken apart.

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"github.com/onsi/gomega/types"
	admissionv1 "k8s.io/api/admission/v1"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"

	"code.cloudfoundry.org/eirinix/internal/apiserver"
)

func TestAPIServer(t *testing.T) {
	RegisterFailHandler(Fail)
	RunSpecs(t, "An API server's admission in memory")
}

// program is one that serves a handler to a mutating and to a validating webhook, either of which may be left out.
func program(handler http.Handler, mutating *admissionregistrationv1.MutatingWebhook, validating *admissionregistrationv1.ValidatingWebhook) apiserver.Program {
	mapper := meta.NewDefaultRESTMapper(nil)
	for _, kind := range []schema.GroupVersionKind{
		corev1.SchemeGroupVersion.WithKind("ConfigMap"), corev1.SchemeGroupVersion.WithKind("Secret"), corev1.SchemeGroupVersion.WithKind("Pod"),
		appsv1.SchemeGroupVersion.WithKind("Deployment"),
		{Group: "example.org", Version: "v1", Kind: "Gadget"},
	} {
		mapper.Add(kind, meta.RESTScopeNamespace)
	}
	p := apiserver.Program{Handler: handler, Mapper: mapper}
	if mutating != nil {
		p.Mutating = &admissionregistrationv1.MutatingWebhookConfiguration{
			ObjectMeta: metav1.ObjectMeta{Name: mutating.Name}, Webhooks: []admissionregistrationv1.MutatingWebhook{*mutating},
		}
	}
	if validating != nil {
		p.Validating = &admissionregistrationv1.ValidatingWebhookConfiguration{
			ObjectMeta: metav1.ObjectMeta{Name: validating.Name}, Webhooks: []admissionregistrationv1.ValidatingWebhook{*validating},
		}
	}
	return p
}

func mutating(name string, change func(*admissionregistrationv1.MutatingWebhook)) *admissionregistrationv1.MutatingWebhook {
	v := validating(name)
	w := &admissionregistrationv1.MutatingWebhook{
		Name: v.Name, ClientConfig: v.ClientConfig, Rules: v.Rules, NamespaceSelector: v.NamespaceSelector, ObjectSelector: v.ObjectSelector,
		SideEffects: v.SideEffects, AdmissionReviewVersions: v.AdmissionReviewVersions,
	}
	change(w)
	return w
}

func validating(name string) *admissionregistrationv1.ValidatingWebhook {
	return &admissionregistrationv1.ValidatingWebhook{
		Name: name, ClientConfig: admissionregistrationv1.WebhookClientConfig{URL: new("https://webhook.invalid/" + name)},
		Rules: []admissionregistrationv1.RuleWithOperations{{
			Operations: []admissionregistrationv1.OperationType{"*"},
			Rule:       admissionregistrationv1.Rule{APIGroups: []string{"*"}, APIVersions: []string{"v1"}, Resources: []string{"*/*"}},
		}},
		NamespaceSelector: &metav1.LabelSelector{}, ObjectSelector: &metav1.LabelSelector{},
		SideEffects: new(admissionregistrationv1.SideEffectClassNone), AdmissionReviewVersions: []string{"v1", "v1beta1"},
	}
}

// reply answers with a text in which UID stands for that of the request, and returns the request.
func reply(w http.ResponseWriter, r *http.Request, text string) *admissionv1.AdmissionRequest {
	var review admissionv1.AdmissionReview
	_ = json.NewDecoder(r.Body).Decode(&review)
	w.Header().Set("Content-Type", "application/json")
	fmt.Fprint(w, strings.ReplaceAll(text, "UID", string(review.Request.UID)))
	return review.Request
}

func haveFailed(message string) types.GomegaMatcher {
	return And(HaveField("Denial", BeNil()), HaveField("Err", MatchError(ContainSubstring(message))))
}

var beUnchanged = WithTransform(func(o *apiserver.Outcome) bool { return o.Allowed() && string(o.Before.Raw) == string(o.After.Raw) }, BeTrue())

// The library never answers like this, but a server that accepted every answer would hide a fault. The expected effect of
// each answer was observed on an API server.
var _ = Describe("An answer of a webhook", func() {
	const object = `{"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a"}, "data": {"a": "b"}}`

	answering := func(version string, failurePolicy admissionregistrationv1.FailurePolicyType, mutates bool, handler http.HandlerFunc) *apiserver.Outcome {
		GinkgoHelper()
		server := &apiserver.Server{Scheme: clientgoscheme.Scheme, Version: version}
		p := program(handler, nil, validating("v.example.org"))
		p.Validating.Webhooks[0].FailurePolicy = &failurePolicy
		if mutates {
			p = program(handler, mutating("m.example.org", func(w *admissionregistrationv1.MutatingWebhook) { w.FailurePolicy = &failurePolicy }), nil)
		}
		Expect(server.Add(p)).To(Succeed())
		outcome, err := server.Send(GinkgoTB().Context(), apiserver.Request{Operation: admissionv1.Create, Object: object, WebhookTimeout: time.Second})
		Expect(err).NotTo(HaveOccurred())
		return outcome
	}
	respond := func(version, response string) http.HandlerFunc {
		return func(w http.ResponseWriter, r *http.Request) {
			reply(w, r, fmt.Sprintf(`{"apiVersion": "admission.k8s.io/%s", "kind": "AdmissionReview", "response": %s}`, version, response))
		}
	}
	patching := func(operations string) http.HandlerFunc {
		return respond("v1", fmt.Sprintf(`{"uid": "UID", "allowed": true, "patchType": "JSONPatch", "patch": %q}`, base64.StdEncoding.EncodeToString([]byte(operations))))
	}
	const patch = `"W3sib3AiOiJhZGQiLCJwYXRoIjoiL2RhdGEvYyIsInZhbHVlIjoiZCJ9XQ=="` // adds c: d

	DescribeTable("is refused as an API server refuses it, and failurePolicy decides", func(mutating bool, response, message string) {
		Expect(answering("", admissionregistrationv1.Fail, mutating, respond("v1", response))).To(haveFailed(message))
		ignored := answering("", admissionregistrationv1.Ignore, mutating, respond("v1", response))
		Expect(ignored).To(And(beUnchanged, HaveField("Calls", ConsistOf(HaveField("Ignored", true)))))
	},
		Entry("no response", true, `null`, "received invalid webhook response: webhook response was absent"),
		Entry("another UID", true, `{"uid": "other", "allowed": true}`, `expected response.uid="`),
		Entry("a patch without type", true, `{"uid": "UID", "allowed": true, "patch": `+patch+`}`, "response.patch but not response.patchType"),
		Entry("a type without patch", true, `{"uid": "UID", "allowed": true, "patchType": "JSONPatch"}`, "response.patchType but not response.patch"),
		Entry("a patch of another type", true, `{"uid": "UID", "allowed": true, "patchType": "Merge", "patch": `+patch+`}`, `unsupported patch type "Merge"`),
		Entry("a patch that is none", true, `{"uid": "UID", "allowed": true, "patchType": "JSONPatch", "patch": "e30="}`, "received undecodable patch in webhook response"),
		Entry("a patch of a validating webhook", false, `{"uid": "UID", "allowed": true, "patchType": "JSONPatch", "patch": `+patch+`}`, "validating webhook may not return response.patch"),
		Entry("a patch type of a validating webhook", false, `{"uid": "UID", "allowed": true, "patchType": "JSONPatch"}`, "validating webhook may not return response.patchType"),
	)

	It("is refused where its kind is wrong", func() {
		Expect(answering("", admissionregistrationv1.Fail, true, func(w http.ResponseWriter, r *http.Request) {
			reply(w, r, `{"response": {"uid": "UID", "allowed": true}}`)
		})).To(haveFailed("expected webhook response of admission.k8s.io/v1, Kind=AdmissionReview, got /, Kind="))
	})

	It("may be lax in v1beta1", func() {
		lax := respond("v1beta1", `{"allowed": true, "patch": `+patch+`}`)
		Expect(answering("v1beta1", admissionregistrationv1.Fail, true, lax)).To(HaveField("Object", HaveField("Data", HaveKeyWithValue("c", "d"))))
	})

	DescribeTable("with a patch that cannot be applied fails whatever the failurePolicy", func(patch, message string) {
		for _, policy := range []admissionregistrationv1.FailurePolicyType{admissionregistrationv1.Fail, admissionregistrationv1.Ignore} {
			Expect(answering("", policy, true, patching(patch))).To(haveFailed(message))
		}
	},
		Entry("a test that fails", `[{"op": "test", "path": "/data/a", "value": "c"}]`, "testing value"),
		Entry("another type", `[{"op": "replace", "path": "/data", "value": 1}]`, "cannot unmarshal number"),
	)

	It("without explanation is reported as such", func() {
		Expect(answering("", admissionregistrationv1.Fail, true, respond("v1", `{"uid": "UID", "allowed": false}`)).Err).
			To(MatchError(HaveSuffix("denied the request without explanation")))
		Expect(answering("", admissionregistrationv1.Fail, true, respond("v1", `{"uid": "UID", "allowed": false, "status": {"reason": "Gone", "code": 200}}`)).Err).
			To(MatchError(HaveSuffix("denied the request: Gone")))
	})

	DescribeTable("is a failure", func(message string, handler http.HandlerFunc) {
		Expect(answering("", admissionregistrationv1.Fail, false, handler)).To(haveFailed(message))
		Expect(answering("", admissionregistrationv1.Ignore, false, handler)).To(beUnchanged)
	},
		Entry("that is an HTTP error", "out of order", func(w http.ResponseWriter, _ *http.Request) {
			http.Error(w, "out of order", http.StatusInternalServerError)
		}),
		Entry("that comes too late", "context deadline exceeded", func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() }),
		Entry("that breaks off", "EOF", func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) }),
	)

	It("keeps audit annotations whose keys an API server takes", func() {
		result := answering("", admissionregistrationv1.Fail, false, respond("v1", `{"uid": "UID", "allowed": true, "auditAnnotations": {"good": "1", "a/b": "2", "not good": "3"}}`))
		Expect(result.AuditAnnotations).To(HaveLen(1))
		Expect(result.AuditAnnotations).To(HaveKeyWithValue("v.example.org/good", "1"))
	})

	const (
		ifNeeded = admissionregistrationv1.IfNeededReinvocationPolicy
		never    = admissionregistrationv1.NeverReinvocationPolicy
	)
	const nothing = `[{"op": "replace", "path": "/data/a", "value": "b"}]`
	adds := func(value string) string { return `[{"op": "add", "path": "/data/c", "value": "` + value + `"}]` }

	type reinvocation = admissionregistrationv1.ReinvocationPolicyType
	DescribeTable("has webhooks called again", func(expected string, policy reinvocation, patches ...string) {
		server := &apiserver.Server{Scheme: clientgoscheme.Scheme}
		set := func(w *admissionregistrationv1.MutatingWebhook) { w.ReinvocationPolicy = &policy }
		for i, patch := range patches {
			Expect(server.Add(program(patching(patch), mutating(fmt.Sprint(i, ".example.org"), set), nil))).To(Succeed())
		}
		result, err := server.Send(GinkgoTB().Context(), apiserver.Request{Operation: admissionv1.Create, Object: object})
		Expect(err).NotTo(HaveOccurred())
		Expect(result.Err).NotTo(HaveOccurred())
		var calls []string
		for _, call := range result.Calls {
			calls = append(calls, strings.TrimSuffix(call.Webhook, ".example.org"))
		}
		Expect(strings.Join(calls, " ")).To(Equal(expected))
	},
		Entry("that come before one that changes the object", "0 1 2 0", ifNeeded, nothing, adds("d"), nothing),
		Entry("but not after a patch that changes nothing", "0 1", ifNeeded, nothing, nothing),
		Entry("but not under the policy Never", "0 1", never, nothing, adds("d")),
		Entry("once more each, where they fight", "0 1 0 1", ifNeeded, adds("d"), adds("e")),
	)
})

var _ = Describe("The object that webhooks receive", func() {
	// shown sends a request, and returns the requests that the mutating and the validating webhook received.
	shown := func(r apiserver.Request) (mutated, validated *admissionv1.AdmissionRequest) {
		GinkgoHelper()
		allow := func(into **admissionv1.AdmissionRequest) http.HandlerFunc {
			return func(w http.ResponseWriter, r *http.Request) {
				*into = reply(w, r, `{"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "response": {"uid": "UID", "allowed": true}}`)
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
