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
		}), options, unhurried)
		result := h.Create(example)
		Expect(eirinixtest.As[*widget](result).Spec.Size).To(Equal(3))
		Expect(result).To(eirinixtest.HavePatched(eirinixtest.Operation("replace", "/spec/size", 3)))
		Expect(result.Calls[0].Request.Resource.Resource).To(Equal("widgetry"))
		Expect(result.Calls[0].Request.Namespace).To(BeEmpty())
		h.CheckProperties(example)
	})

	DescribeTable("finds what a step without a Go type breaks", func(property string, apply func(map[string]any), message string) {
		Expect(failureOf(func(t *fakeTest) {
			h := eirinixtest.NewHarness(t, eirinix.Mutation[*unstructured.Unstructured]{
				ID: "under-test", Settings: eirinix.Settings{Rules: rulesFor("example.org", "v1", "gadgets")},
				Apply: func(_ context.Context, _ *eirinix.Call, u *unstructured.Unstructured) error {
					apply(u.Object)
					return nil
				},
			}, func(o *eirinixtest.HarnessOptions) { o.Resources = []offline.Resource{{Kind: gadgetKind("v1")}} })
			checks[property](h, gadget("v1", "g"))
		})).To(And(ContainSubstring("not "+property), ContainSubstring(message)))
	},
		Entry("a panic", "total", func(o map[string]any) { _ = o["spec"].(map[string]any)["size"].(int64) }, "a part left out"),
		Entry("a lost field", "lossless", func(o map[string]any) {
			size, _, _ := unstructured.NestedInt64(o, "spec", "size")
			o["spec"] = map[string]any{"size": size}
		}, "spec.fieldThatGoTypesDoNotKnow"),
	)
})
