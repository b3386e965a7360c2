package eirinix_test

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

	It("needs neither Host nor kubeconfig, and leaves the Manager as it was", func() {
		m := eirinix.NewManager(eirinix.ManagerOptions{KubeConfig: "/does/not/exist"})
		Expect(m.AddExtension(addEnv{})).To(Succeed())
		played, err := offline.Of(m, offline.Options{})
		Expect(err).NotTo(HaveOccurred())
		Expect(played.Validating).To(BeNil())
		Expect(played.Mutating.Name).To(Equal("eirini-x-mutating-hook"))
		Expect(played.Mutating.Webhooks).To(ConsistOf(And(
			HaveField("ClientConfig.URL", HaveValue(HavePrefix("https://webhook.invalid:443/mutate/pods-"))),
			HaveField("TimeoutSeconds", HaveValue(Equal(int32(5)))),
			HaveField("Rules", ConsistOf(HaveField("Resources", []string{"pods"}))))))
		Expect(m.AddExtension(deny)).To(Succeed(), "it has not been started")
		Expect(m.Ready()).NotTo(BeClosed())
	})

	It("describes conversions, with the Hub first, and answers for them", func() {
		same := func(_ context.Context, u *unstructured.Unstructured) (*unstructured.Unstructured, error) {
			return u, nil
		}
		m := eirinix.NewManager(eirinix.ManagerOptions{})
		Expect(m.AddExtension(conversion.Of[*unstructured.Unstructured]{
			CRD: "gizmata.example.org", Version: "v2", Lossy: true,
			Spokes: []conversion.Spoke[*unstructured.Unstructured]{conversion.NewSpoke("v1", same, same)},
		})).To(Succeed())
		typed := func(_ context.Context, u *corev1.Pod) (*corev1.Pod, error) { return u, nil }
		Expect(m.AddExtension(conversion.Of[*corev1.Pod]{
			CRD: "podlets.example.org", Version: "v1", Spokes: []conversion.Spoke[*corev1.Pod]{conversion.NewSpoke("v1beta1", typed, typed)},
		})).To(Succeed())
		played, err := offline.Of(m, offline.Options{Resources: []offline.Resource{{Kind: gizmo, Resource: "gizmata", ClusterScoped: true}}})
		Expect(err).NotTo(HaveOccurred())
		Expect(played.Conversions).To(HaveLen(2))
		c := played.Conversions[0]
		Expect(c.CRD).To(Equal("gizmata.example.org"))
		Expect(c.Lossy).To(BeTrue())
		Expect(c.Versions).To(HaveExactElements(
			&unstructured.Unstructured{Object: map[string]any{"apiVersion": "example.org/v2", "kind": ""}},
			&unstructured.Unstructured{Object: map[string]any{"apiVersion": "example.org/v1", "kind": ""}}))
		Expect(played.Conversions[1].Versions).To(HaveExactElements(
			&corev1.Pod{TypeMeta: metav1.TypeMeta{APIVersion: "example.org/v1", Kind: "Pod"}},
			&corev1.Pod{TypeMeta: metav1.TypeMeta{APIVersion: "example.org/v1beta1", Kind: "Pod"}}))

		for _, version := range []string{"v1", "v2"} {
			mapping, err := played.Mapper.RESTMapping(schema.GroupKind{Group: "example.org", Kind: "Gizmo"}, version)
			Expect(err).NotTo(HaveOccurred())
			Expect(mapping.Resource.Resource).To(Equal("gizmata"))
			Expect(mapping.Scope.Name()).To(Equal(meta.RESTScopeNameRoot))
		}
		mapping, err := played.Mapper.RESTMapping(schema.GroupKind{Group: "example.org", Kind: "Pod"}, "v1beta1")
		Expect(err).NotTo(HaveOccurred())
		Expect(mapping.Resource.Resource).To(Equal("podlets"), "of the name of the definition")

		review := `{"kind":"ConversionReview","apiVersion":"apiextensions.k8s.io/v1","request":{"uid":"u","desiredAPIVersion":"example.org/v2","objects":[{"apiVersion":"example.org/v1","kind":"Gizmo","metadata":{"name":"g"}}]}}`
		req := httptest.NewRequest(http.MethodPost, c.Path, strings.NewReader(review))
		req.Header.Set("Content-Type", "application/json")
		w := httptest.NewRecorder()
		played.Handler.ServeHTTP(w, req)
		Expect(w.Body.String()).To(And(ContainSubstring(`"apiVersion":"example.org/v2"`), ContainSubstring(`"Success"`)))
	})

	It("derives rules without a cluster, with scopes", func() {
		m := eirinix.NewManager(eirinix.ManagerOptions{ServiceName: "s", WebhookNamespace: "n", OperatorFingerprint: "f"})
		Expect(m.AddExtension(deny)).To(Succeed())
		played, err := offline.Of(m, offline.Options{})
		Expect(err).NotTo(HaveOccurred())
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

	It("learns of kinds that the scheme does not hold by an option", func() {
		m := eirinix.NewManager(eirinix.ManagerOptions{})
		Expect(m.AddExtension(addGizmos)).To(Succeed())
		_, err := offline.Of(m, offline.Options{})
		Expect(err).To(MatchError(And(ContainSubstring(`step "gizmos"`), ContainSubstring("offline.Options.Resources"))))
		played, err := offline.Of(m, offline.Options{Resources: []offline.Resource{{Kind: gizmo, Resource: "gizmata", ClusterScoped: true}}})
		Expect(err).NotTo(HaveOccurred())
		mapping, err := played.Mapper.RESTMapping(gizmo.GroupKind())
		Expect(err).NotTo(HaveOccurred())
		Expect(mapping.Resource.Resource).To(Equal("gizmata"))
		Expect(mapping.Scope.Name()).To(Equal(meta.RESTScopeNameRoot))
	})

	It("takes another mapper instead", func() {
		mapper := meta.NewDefaultRESTMapper(nil)
		mapper.AddSpecific(gizmo, gizmo.GroupVersion().WithResource("gizmata"), gizmo.GroupVersion().WithResource("gizmo"), meta.RESTScopeRoot)
		m := eirinix.NewManager(eirinix.ManagerOptions{})
		Expect(m.AddExtension(addGizmos)).To(Succeed())
		played, err := offline.Of(m, offline.Options{Mapper: mapper})
		Expect(err).NotTo(HaveOccurred())
		Expect(played.Mapper).To(BeIdenticalTo(mapper))
	})

	It("forms plurals as people do", func() {
		gateway := schema.GroupVersionKind{Group: "example.org", Version: "v1", Kind: "Gateway"}
		played, err := offline.Of(eirinix.NewManager(eirinix.ManagerOptions{}), offline.Options{Resources: []offline.Resource{{Kind: gateway}}})
		Expect(err).NotTo(HaveOccurred())
		mapping, err := played.Mapper.RESTMapping(gateway.GroupKind())
		Expect(err).NotTo(HaveOccurred())
		Expect(mapping.Resource.Resource).To(Equal("gateways"))
	})

	It("reports every error of Start at once", func() {
		m := eirinix.NewManager(eirinix.ManagerOptions{Port: -1})
		Expect(m.AddExtension(nil)).NotTo(Succeed())
		Expect(m.AddExtension(eirinix.Mutation[*corev1.Pod]{
			Settings: eirinix.Settings{SideEffects: "Some"}, Apply: func(context.Context, *eirinix.Call, *corev1.Pod) error { return nil },
		})).To(Succeed())
		_, err := offline.Of(m, offline.Options{})
		Expect(err).To(MatchError(And(ContainSubstring("Port is -1"), ContainSubstring("AddExtension got nil"), ContainSubstring("sideEffects"))))
	})

	DescribeTable("reports the outcome of each step", func(step any, matcher OmegaMatcher) {
		var began []string
		var ends []offline.StepEnd
		m := eirinix.NewManager(eirinix.ManagerOptions{Logger: zap.NewNop().Sugar()})
		Expect(m.AddExtension(step)).To(Succeed())
		played, err := offline.Of(m, offline.Options{Observe: func(ctx context.Context, step string) func(offline.StepEnd) {
			began = append(began, step+" of "+fmt.Sprint(ctx.Value(requestKey{})))
			return func(end offline.StepEnd) { ends = append(ends, end) }
		}})
		Expect(err).NotTo(HaveOccurred())
		path := ""
		if played.Mutating != nil {
			_, path, _ = strings.Cut(*played.Mutating.Webhooks[0].ClientConfig.URL, ":443")
		} else {
			_, path, _ = strings.Cut(*played.Validating.Webhooks[0].ClientConfig.URL, ":443")
		}
		review := `{"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": {"uid": "u", "operation": "CREATE",
			"kind": {"version": "v1", "kind": "Pod"}, "resource": {"version": "v1", "resource": "pods"}, "namespace": "default",
			"object": {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "a"}, "spec": {"containers": [{"name": "c"}]}}}}`
		req := httptest.NewRequestWithContext(context.WithValue(context.Background(), requestKey{}, "this request"), http.MethodPost, path, strings.NewReader(review))
		req.Header.Set("Content-Type", "application/json")
		played.Handler.ServeHTTP(httptest.NewRecorder(), req)
		Expect(began).To(Equal([]string{"step of this request"}))
		Expect(ends).To(ConsistOf(matcher))
	},
		Entry("a Mutation", mutating(func() error { return nil }), Equal(offline.StepEnd{})),
		Entry("a denial", mutating(func() error { return eirinix.Deny("no") }), HaveField("Err", MatchError("no"))),
		Entry("a panic", mutating(func() error { panic("a bug") }), And(HaveField("Panic", "a bug"), HaveField("Stack", ContainSubstring("offline_test.go")))),
		Entry("an end of its goroutine", mutating(func() error { runtime.Goexit(); return nil }), HaveField("Err", MatchError(ContainSubstring("runtime.Goexit")))),
		Entry("a Validation", eirinix.Validation[*corev1.Pod]{ID: "step", Create: func(context.Context, *eirinix.Call, *corev1.Pod) error { return eirinix.Deny("no") }},
			HaveField("Err", MatchError("no"))),
		Entry("an Extension", handleFunc{"step", func(context.Context, eirinix.Manager, *corev1.Pod, admission.Request) admission.Response {
			return admission.Denied("no")
		}},
			HaveField("Response.Result.Message", "no")),
	)

	// Only an API server knows all plurals and scopes for certain.
	It("knows built-in kinds as an API server does", Label("api-server"), func(ctx SpecContext) {
		played, err := offline.Of(eirinix.NewManager(eirinix.ManagerOptions{}), offline.Options{})
		Expect(err).NotTo(HaveOccurred())
		_, lists, err := clients().Discovery().ServerGroupsAndResources()
		Expect(err).NotTo(HaveOccurred())
		compared := 0
		for _, list := range lists {
			gv, err := schema.ParseGroupVersion(list.GroupVersion)
			Expect(err).NotTo(HaveOccurred())
			for _, r := range list.APIResources {
				kind := gv.WithKind(r.Kind)
				if strings.Contains(r.Name, "/") || !clientgoscheme.Scheme.Recognizes(kind) {
					continue
				}
				compared++
				mapping, err := played.Mapper.RESTMapping(kind.GroupKind(), kind.Version)
				Expect(err).NotTo(HaveOccurred())
				Expect(mapping.Resource).To(Equal(gv.WithResource(r.Name)))
				Expect(mapping.Scope.Name() == meta.RESTScopeNameNamespace).To(Equal(r.Namespaced), "%s", kind)
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
		played, err := offline.Of(m, offline.Options{})
		Expect(err).NotTo(HaveOccurred())
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
