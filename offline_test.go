package eirinix_test

// This file specifies package offline: what a Manager registers and answers without a cluster.

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"runtime"
	"strings"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"go.uber.org/zap"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"

	"code.cloudfoundry.org/eirinix"
	"code.cloudfoundry.org/eirinix/conversion"
	. "code.cloudfoundry.org/eirinix/internal/spectest"
	"code.cloudfoundry.org/eirinix/offline"
)

var _ = Describe("Package offline", func() {
	gizmo := schema.GroupVersionKind{Group: "example.org", Version: "v1", Kind: "Gizmo"}
	gizmoRules := []admissionregistrationv1.RuleWithOperations{{
		Operations: []admissionregistrationv1.OperationType{"CREATE"},
		Rule:       admissionregistrationv1.Rule{APIGroups: []string{"example.org"}, APIVersions: []string{"v1"}, Resources: []string{"gizmata"}},
	}}
	addGizmos := eirinix.Mutation[*unstructured.Unstructured]{
		ID: "gizmos", Settings: eirinix.Settings{Rules: gizmoRules},
		Apply: func(context.Context, *eirinix.Call, *unstructured.Unstructured) error { return nil },
	}
	deny := eirinix.Validation[*rbacv1.ClusterRole]{ID: "roles", Delete: func(context.Context, *eirinix.Call, *rbacv1.ClusterRole) error {
		return eirinix.Deny("stays")
	}}

	// of returns what package offline makes of a Manager with these steps.
	of := func(o eirinix.ManagerOptions, given offline.Options, added ...any) *offline.Program {
		GinkgoHelper()
		return Must(offline.Of(managerWith(o, added...), given))
	}
	post := func(ctx context.Context, handler http.Handler, path, review string) string {
		req := httptest.NewRequestWithContext(ctx, http.MethodPost, path, strings.NewReader(review))
		req.Header.Set("Content-Type", "application/json")
		w := httptest.NewRecorder()
		handler.ServeHTTP(w, req)
		return w.Body.String()
	}
	// mapped returns the resource of a kind, and whether it is in namespaces.
	mapped := func(p *offline.Program, kind schema.GroupVersionKind) (resource string, namespaced bool) {
		GinkgoHelper()
		mapping := Must(p.Mapper.RESTMapping(kind.GroupKind(), kind.Version))
		return mapping.Resource.Resource, mapping.Scope.Name() == meta.RESTScopeNameNamespace
	}

	It("needs neither Host nor kubeconfig, and leaves the Manager as it was", func() {
		m := managerWith(eirinix.ManagerOptions{KubeConfig: "/does/not/exist"}, addEnv{})
		played := Must(offline.Of(m, offline.Options{}))
		Expect(played.Validating).To(BeNil())
		Expect(played.Mutating.Name).To(Equal("eirini-x-mutating-hook"))
		Expect(played.Mutating.Webhooks).To(ConsistOf(And(
			HaveField("ClientConfig.URL", HaveValue(HavePrefix("https://webhook.invalid:443/mutate/pods-"))),
			HaveField("TimeoutSeconds", HaveValue(Equal(int32(5)))),
			HaveField("Rules", ConsistOf(HaveField("Resources", []string{"pods"}))))))
		Expect(m.AddExtension(deny)).To(Succeed(), "it has not been started")
		Expect(m.Ready()).NotTo(BeClosed())
	})

	It("describes conversions, with the Hub first, and answers for them", func(ctx SpecContext) {
		same := func(_ context.Context, u *corev1.Pod) (*corev1.Pod, error) { return u, nil }
		played := of(eirinix.ManagerOptions{}, offline.Options{Resources: []offline.Resource{{Kind: gizmo, Resource: "gizmata", ClusterScoped: true}}},
			conversion.Of[*unstructured.Unstructured]{
				CRD: "gizmata.example.org", Version: "v2", Lossy: true,
				Spokes: []conversion.Spoke[*unstructured.Unstructured]{conversion.NewSpoke("v1", unchanged, unchanged)},
			},
			conversion.Of[*corev1.Pod]{CRD: "podlets.example.org", Version: "v1", Spokes: []conversion.Spoke[*corev1.Pod]{conversion.NewSpoke("v1beta1", same, same)}})
		Expect(played.Conversions).To(HaveExactElements(
			And(HaveField("CRD", "gizmata.example.org"), HaveField("Lossy", true), HaveField("Versions", HaveExactElements(
				&unstructured.Unstructured{Object: map[string]any{"apiVersion": "example.org/v2", "kind": ""}},
				&unstructured.Unstructured{Object: map[string]any{"apiVersion": "example.org/v1", "kind": ""}}))),
			And(HaveField("Lossy", false), HaveField("Versions", HaveExactElements(
				&corev1.Pod{TypeMeta: metav1.TypeMeta{APIVersion: "example.org/v1", Kind: "Pod"}},
				&corev1.Pod{TypeMeta: metav1.TypeMeta{APIVersion: "example.org/v1beta1", Kind: "Pod"}})))))
		for _, version := range []string{"v1", "v2"} {
			resource, namespaced := mapped(played, schema.GroupVersionKind{Group: "example.org", Version: version, Kind: "Gizmo"})
			Expect(resource).To(Equal("gizmata"))
			Expect(namespaced).To(BeFalse())
		}
		resource, _ := mapped(played, schema.GroupVersionKind{Group: "example.org", Version: "v1beta1", Kind: "Pod"})
		Expect(resource).To(Equal("podlets"), "of the name of the definition")

		Expect(post(ctx, played.Handler, played.Conversions[0].Path, `{"kind":"ConversionReview","apiVersion":"apiextensions.k8s.io/v1","request":{"uid":"u",
			"desiredAPIVersion":"example.org/v2","objects":[{"apiVersion":"example.org/v1","kind":"Gizmo","metadata":{"name":"g"}}]}}`)).
			To(And(ContainSubstring(`"apiVersion":"example.org/v2"`), ContainSubstring(`"Success"`)))
	})

	It("derives rules without a cluster, with scopes", func() {
		played := of(eirinix.ManagerOptions{ServiceName: "s", WebhookNamespace: "n", OperatorFingerprint: "f"}, offline.Options{}, deny)
		Expect(played.Mutating).To(BeNil())
		Expect(played.Validating.Name).To(Equal("f-validating-hook"))
		webhook := played.Validating.Webhooks[0]
		Expect(webhook.ClientConfig.Service).To(And(HaveField("Name", "s"), HaveField("Path", HaveValue(HavePrefix("/validate/clusterroles-")))))
		Expect(webhook.Rules).To(Equal([]admissionregistrationv1.RuleWithOperations{{
			Operations: []admissionregistrationv1.OperationType{"DELETE"},
			Rule: admissionregistrationv1.Rule{
				APIGroups: []string{"rbac.authorization.k8s.io"}, APIVersions: []string{"v1"}, Resources: []string{"clusterroles"},
				Scope: new(admissionregistrationv1.ClusterScope),
			},
		}}))
	})

	It("learns of kinds that the scheme does not hold by an option, or takes another mapper, and forms plurals as people do", func() {
		_, err := offline.Of(managerWith(eirinix.ManagerOptions{}, addGizmos), offline.Options{})
		Expect(err).To(MatchError(And(ContainSubstring(`step "gizmos"`), ContainSubstring("offline.Options.Resources"))))
		gateway := schema.GroupVersionKind{Group: "example.org", Version: "v1", Kind: "Gateway"}
		played := of(eirinix.ManagerOptions{}, offline.Options{Resources: []offline.Resource{{Kind: gizmo, Resource: "gizmata", ClusterScoped: true}, {Kind: gateway}}}, addGizmos)
		resource, namespaced := mapped(played, gizmo)
		Expect(resource).To(Equal("gizmata"))
		Expect(namespaced).To(BeFalse())
		resource, namespaced = mapped(played, gateway)
		Expect(resource).To(Equal("gateways"))
		Expect(namespaced).To(BeTrue())

		mapper := meta.NewDefaultRESTMapper(nil)
		mapper.AddSpecific(gizmo, gizmo.GroupVersion().WithResource("gizmata"), gizmo.GroupVersion().WithResource("gizmo"), meta.RESTScopeRoot)
		Expect(of(eirinix.ManagerOptions{}, offline.Options{Mapper: mapper}, addGizmos).Mapper).To(BeIdenticalTo(mapper))
	})

	It("reports every error of Start at once", func() {
		m := managerWith(eirinix.ManagerOptions{Port: -1}, eirinix.Mutation[*corev1.Pod]{
			Settings: eirinix.Settings{SideEffects: "Some"}, Apply: func(context.Context, *eirinix.Call, *corev1.Pod) error { return nil },
		})
		Expect(m.AddExtension(nil)).NotTo(Succeed())
		_, err := offline.Of(m, offline.Options{})
		Expect(err).To(MatchError(And(ContainSubstring("Port is -1"), ContainSubstring("AddExtension got nil"), ContainSubstring("sideEffects"))))
	})

	DescribeTable("reports the outcome of each step", func(step any, matcher OmegaMatcher) {
		var began []string
		var ends []offline.StepEnd
		played := of(eirinix.ManagerOptions{Logger: zap.NewNop().Sugar()}, offline.Options{Observe: func(ctx context.Context, step string) func(offline.StepEnd) {
			began = append(began, step+" of "+fmt.Sprint(ctx.Value(requestKey{})))
			return func(end offline.StepEnd) { ends = append(ends, end) }
		}}, step)
		post(context.WithValue(context.Background(), requestKey{}, "this request"), played.Handler, strings.TrimPrefix(*played.Mutating.Webhooks[0].ClientConfig.URL, "https://webhook.invalid:443"),
			`{"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": {"uid": "u", "operation": "CREATE",
			"kind": {"version": "v1", "kind": "Pod"}, "resource": {"version": "v1", "resource": "pods"}, "namespace": "default",
			"object": {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "a"}, "spec": {"containers": [{"name": "c"}]}}}}`)
		Expect(began).To(Equal([]string{"step of this request"}))
		Expect(ends).To(ConsistOf(matcher))
	},
		Entry("a Mutation", mutating(func() error { return nil }), Equal(offline.StepEnd{})),
		Entry("a denial", mutating(func() error { return eirinix.Deny("no") }), HaveField("Err", MatchError("no"))),
		Entry("a panic", mutating(func() error { panic("a bug") }), And(HaveField("Panic", "a bug"), HaveField("Stack", ContainSubstring("offline_test.go")))),
		Entry("an end of its goroutine", mutating(func() error { runtime.Goexit(); return nil }), HaveField("Err", MatchError(ContainSubstring("runtime.Goexit")))),
		Entry("an Extension", handleFunc{"step", func(context.Context, eirinix.Manager, *corev1.Pod, admission.Request) admission.Response {
			return admission.Denied("no")
		}},
			HaveField("Response.Result.Message", "no")),
	)

	// Only an API server knows all plurals and scopes for certain.
	It("knows built-in kinds as an API server does", Label("api-server"), func() {
		played := of(eirinix.ManagerOptions{}, offline.Options{})
		_, lists, err := clients().Discovery().ServerGroupsAndResources()
		Expect(err).NotTo(HaveOccurred())
		compared := 0
		for _, list := range lists {
			for _, r := range list.APIResources {
				kind := Must(schema.ParseGroupVersion(list.GroupVersion)).WithKind(r.Kind)
				if strings.Contains(r.Name, "/") || !clientgoscheme.Scheme.Recognizes(kind) {
					continue
				}
				compared++
				resource, namespaced := mapped(played, kind)
				Expect(resource).To(Equal(r.Name))
				Expect(namespaced).To(Equal(r.Namespaced), "%s", kind)
			}
		}
		Expect(compared).To(BeNumerically(">", 50))
	})

	It("registers the same as Start", Label("api-server"), func(ctx SpecContext) {
		namespace := newNamespace(ctx)
		steps := []any{addEnv{}, eirinix.Mutation[*corev1.Secret]{
			Settings: eirinix.Settings{Reinvoke: "IfNeeded", Objects: &metav1.LabelSelector{MatchLabels: map[string]string{"a": "b"}}},
			Apply:    func(context.Context, *eirinix.Call, *corev1.Secret) error { return nil },
		}}
		m := serveSteps(ctx, namespace, steps...)
		played := Must(offline.Of(m, offline.Options{}))
		live := configuration(ctx, m)
		Expect(live.Name).To(Equal(played.Mutating.Name))
		Expect(played.Mutating.Webhooks).To(HaveLen(len(steps)))
		for i, w := range played.Mutating.Webhooks {
			w.ClientConfig = live.Webhooks[i].ClientConfig // the port is picked, and certificates made, when it is served
			Expect(w).To(Equal(live.Webhooks[i]))
		}
	}, SpecTimeout(patience))
})

// requestKey is the key of the spec's value in a request's context.
type requestKey struct{}

// mutating is a step of pods that ends as the function does.
func mutating(end func() error) eirinix.Mutation[*corev1.Pod] {
	return eirinix.Mutation[*corev1.Pod]{ID: "step", Apply: func(context.Context, *eirinix.Call, *corev1.Pod) error { return end() }}
}
