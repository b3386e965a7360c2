package eirinixtest_test

import (
	"context"
	"maps"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"code.cloudfoundry.org/eirinix"
	"code.cloudfoundry.org/eirinix/offline"
	eirinixtest "code.cloudfoundry.org/eirinix/testing"
)

// widget is a custom resource of its own Go type, which belongs to no namespace and has an odd plural.
type widget struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata"`
	Spec              widgetSpec `json:"spec"`
}

type widgetSpec struct {
	Size    int               `json:"size,omitempty"`
	Colours map[string]string `json:"colours,omitempty"`
	Parts   []widgetPart      `json:"parts,omitempty"`
}

type widgetPart struct {
	Name string  `json:"name"`
	Note *string `json:"note,omitempty"`
}

func (w *widget) DeepCopyObject() runtime.Object {
	c := *w
	w.ObjectMeta.DeepCopyInto(&c.ObjectMeta)
	c.Spec.Colours = maps.Clone(w.Spec.Colours)
	c.Spec.Parts = append([]widgetPart(nil), w.Spec.Parts...)
	return &c
}

var widgetKind = schema.GroupVersionKind{Group: "example.org", Version: "v1", Kind: "Widget"}

var _ = Describe("The Harness with a custom resource", func() {
	var scheme *runtime.Scheme
	BeforeEach(func() {
		scheme = runtime.NewScheme()
		scheme.AddKnownTypeWithName(widgetKind, &widget{})
		metav1.AddToGroupVersion(scheme, widgetKind.GroupVersion())
		Expect(clientgoscheme.AddToScheme(scheme)).To(Succeed())
	})
	options := func(o *eirinixtest.HarnessOptions) {
		o.Manager.Scheme = scheme
		o.Resources = []offline.Resource{{Kind: widgetKind, Resource: "widgetry", ClusterScoped: true}}
	}
	painter := func(change func(*widget) error) any {
		return eirinix.Mutation[*widget]{ID: "painter", Apply: func(_ context.Context, _ *eirinix.Call, w *widget) error { return change(w) }}
	}
	example := &widget{ObjectMeta: metav1.ObjectMeta{Name: "w"}, Spec: widgetSpec{Size: 1, Parts: []widgetPart{{Name: "a", Note: new("n")}}}}

	It("returns objects of its type", func() {
		h := eirinixtest.NewHarness(GinkgoTB(), painter(func(w *widget) error {
			w.Spec.Size = max(w.Spec.Size, 3)
			return nil
		}), options)
		result := h.Create(example)
		Expect(eirinixtest.As[*widget](result).Spec.Size).To(Equal(3))
		Expect(result).To(eirinixtest.HavePatched(eirinixtest.Operation("replace", "/spec/size", 3)))
		Expect(result.Calls[0].Request.Resource.Resource).To(Equal("widgetry"))
		Expect(result.Calls[0].Request.Namespace).To(BeEmpty())
		h.CheckProperties(example)
	})

	It("answers as the server does for one that does not decode", func() {
		typo := &unstructured.Unstructured{Object: map[string]any{"spec": map[string]any{"parts": []any{map[string]any{"name": int64(5)}}}}}
		typo.SetGroupVersionKind(widgetKind)
		typo.SetName("w")
		h := eirinixtest.NewHarness(GinkgoTB(), painter(func(*widget) error { return nil }), options)
		Expect(h.Create(typo)).To(eirinixtest.BeDenied().WithCode(400).
			WithMessage("spec.parts[0].name cannot be read: json: cannot unmarshal number into Go value of type string"))
	})

	It("serves it in the API, to the Manager's own client", func(ctx SpecContext) {
		h := eirinixtest.NewHarness(GinkgoTB(), painter(func(*widget) error { return nil }), options)
		Expect(h.API().Client().Create(ctx, example.DeepCopyObject().(client.Object))).To(Succeed())
		found := &widget{}
		Expect(h.Manager().GetKubeManager().GetAPIReader().Get(ctx, client.ObjectKey{Name: "w"}, found)).To(Succeed())
		Expect(found.Spec.Size).To(Equal(1))
	})

	DescribeTable("finds broken properties of it, too", func(property string, change func(*widget) error, message string) {
		Expect(failureOf(func(t *fakeTest) {
			checks[property](eirinixtest.NewHarness(t, painter(change), options), example)
		})).To(And(ContainSubstring("not "+property), ContainSubstring(message)))
	},
		Entry("not idempotent", "idempotent", func(w *widget) error { w.Spec.Size++; return nil }, "+  size: 3"),
		Entry("not total, on a part that is missing", "total", func(w *widget) error { _ = *w.Spec.Parts[0].Note; return nil }, "index out of range"),
		Entry("not total, on a map that is nil", "total", func(w *widget) error { w.Spec.Colours["a"] = "b"; return nil }, "assignment to entry in nil map"),
	)

	It("finds panics without a Go type", func() {
		failure := failureOf(func(t *fakeTest) {
			h := eirinixtest.NewHarness(t, eirinix.Mutation[*unstructured.Unstructured]{
				ID: "believer", Settings: eirinix.Settings{Rules: rulesFor("example.org", "v1", "gadgets")},
				Apply: func(_ context.Context, _ *eirinix.Call, u *unstructured.Unstructured) error {
					_ = u.Object["spec"].(map[string]any)["size"].(int64)
					return nil
				},
			}, func(o *eirinixtest.HarnessOptions) { o.Resources = []offline.Resource{{Kind: gadgetKind("v1")}} })
			h.CheckTotal(gadget("v1", "g"))
		})
		Expect(failure).To(And(ContainSubstring("not total"), ContainSubstring("a part left out"), Not(ContainSubstring("size"))))
	})

	It("finds lost fields without a Go type", func() {
		failure := failureOf(func(t *fakeTest) {
			h := eirinixtest.NewHarness(t, eirinix.Mutation[*unstructured.Unstructured]{
				ID: "cutter", Settings: eirinix.Settings{Rules: rulesFor("example.org", "v1", "gadgets")},
				Apply: func(_ context.Context, _ *eirinix.Call, u *unstructured.Unstructured) error {
					size, _, _ := unstructured.NestedInt64(u.Object, "spec", "size")
					u.Object["spec"] = map[string]any{"size": size}
					return nil
				},
			}, func(o *eirinixtest.HarnessOptions) { o.Resources = []offline.Resource{{Kind: gadgetKind("v1")}} })
			h.CheckLossless(gadget("v1", "g"))
		})
		Expect(failure).To(ContainSubstring("spec.fieldThatGoTypesDoNotKnow"))
	})
})
