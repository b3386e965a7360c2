package conversion_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
	"go.uber.org/zap/zaptest/observer"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	crconversion "sigs.k8s.io/controller-runtime/pkg/conversion"

	"code.cloudfoundry.org/eirinix"
	"code.cloudfoundry.org/eirinix/conversion"
	"code.cloudfoundry.org/eirinix/offline"
)

var _ = Describe("AddExtension", func() {
	type tree = *unstructured.Unstructured
	same := func(_ context.Context, from tree) (tree, error) { return from, nil }
	spoke := func(version string) conversion.Spoke[tree] { return conversion.NewSpoke(version, same, same) }
	add := func(c conversion.Of[tree]) error {
		return eirinix.NewManager(eirinix.ManagerOptions{Host: "127.0.0.1"}).AddExtension(c)
	}
	const crd = "shops.example.com"

	DescribeTable("refuses", func(c conversion.Of[tree], reason string) {
		Expect(add(c)).To(MatchError(ContainSubstring(reason)))
	},
		Entry("no definition", conversion.Of[tree]{Version: "v1", Spokes: []conversion.Spoke[tree]{spoke("v2")}}, "set CRD to its name"),
		Entry("a name without a group", conversion.Of[tree]{CRD: "shops", Version: "v1", Spokes: []conversion.Spoke[tree]{spoke("v2")}}, "<plural>.<group>"),
		Entry("no spoke", conversion.Of[tree]{CRD: crd, Version: "v1"}, "has no Spokes"),
		Entry("a Hub without a version", conversion.Of[tree]{CRD: crd, Spokes: []conversion.Spoke[tree]{spoke("v2")}}, `has the version ""`),
		Entry("a spoke of the Hub's version", conversion.Of[tree]{CRD: crd, Version: "v1", Spokes: []conversion.Spoke[tree]{spoke("v1")}}, `"v1" twice`),
		Entry("a zero spoke", conversion.Of[tree]{CRD: crd, Version: "v1", Spokes: []conversion.Spoke[tree]{{}}}, "NewSpoke or ConvertibleSpoke"),
		Entry("a spoke without a way back", conversion.Of[tree]{CRD: crd, Version: "v1", Spokes: []conversion.Spoke[tree]{conversion.NewSpoke[tree, tree]("v2", same, nil)}}, "one from it"),
	)

	It("refuses a second Hub of one definition", func() {
		m := eirinix.NewManager(eirinix.ManagerOptions{Host: "127.0.0.1"})
		c := conversion.Of[tree]{CRD: crd, Version: "v1", Spokes: []conversion.Spoke[tree]{spoke("v2")}}
		Expect(m.AddExtension(c)).To(Succeed())
		c.Version, c.Spokes = "v2", []conversion.Spoke[tree]{spoke("v1")}
		Expect(m.AddExtension(c)).To(MatchError(ContainSubstring("one Hub")))
		Expect(m.Validate()).To(MatchError(ContainSubstring("one Hub")))
	})
})

// newShopType is the hub of the specs with Go types, and oldShopType its spoke, as kubebuilder makes them.
type newShopType struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`
	Price             string `json:"price"`
}

type oldShopType struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`
	Amount            string `json:"amount"`
}

func (s *newShopType) Hub() {}

func (s *newShopType) DeepCopyObject() runtime.Object {
	c := *s
	s.ObjectMeta.DeepCopyInto(&c.ObjectMeta)
	return &c
}

func (s *oldShopType) DeepCopyObject() runtime.Object {
	c := *s
	s.ObjectMeta.DeepCopyInto(&c.ObjectMeta)
	return &c
}

func (s *oldShopType) ConvertTo(hub crconversion.Hub) error {
	to := hub.(*newShopType)
	to.ObjectMeta, to.Price = s.ObjectMeta, s.Amount+" EUR"
	return nil
}

func (s *oldShopType) ConvertFrom(hub crconversion.Hub) error {
	from := hub.(*newShopType)
	s.ObjectMeta, s.Amount = from.ObjectMeta, strings.TrimSuffix(from.Price, " EUR")
	return nil
}

var _ = Describe("Types that convert themselves", func() {
	It("are a spoke", func() {
		m := eirinix.NewManager(eirinix.ManagerOptions{Host: "127.0.0.1"})
		Expect(m.AddExtension(conversion.Of[*newShopType]{
			CRD: "shops.example.com", Version: "v1",
			Spokes: []conversion.Spoke[*newShopType]{conversion.ConvertibleSpoke[*newShopType, *oldShopType]("v1beta1")},
		})).To(Succeed())
		played, err := offline.Of(m, offline.Options{})
		Expect(err).NotTo(HaveOccurred())
		convert := func(desired, object string) string {
			r := httptest.NewRequest(http.MethodPost, "/convert/shops.example.com", strings.NewReader(fmt.Sprintf(
				`{"kind":"ConversionReview","apiVersion":"apiextensions.k8s.io/v1","request":{"uid":"u","desiredAPIVersion":"example.com/%s","objects":[%s]}}`, desired, object)))
			r.Header.Set("Content-Type", "application/json")
			w := httptest.NewRecorder()
			played.Handler.ServeHTTP(w, r)
			var answer struct {
				Response struct{ ConvertedObjects []json.RawMessage }
			}
			Expect(json.Unmarshal(w.Body.Bytes(), &answer)).To(Succeed(), w.Body.String())
			Expect(answer.Response.ConvertedObjects).To(HaveLen(1), w.Body.String())
			return string(answer.Response.ConvertedObjects[0])
		}
		older, newer := `{"apiVersion":"example.com/v1beta1","kind":"Shop","metadata":{"name":"a"},"amount":"12"}`, `{"apiVersion":"example.com/v1","kind":"Shop","metadata":{"name":"a"},"price":"12 EUR"}`
		Expect(convert("v1", older)).To(MatchJSON(newer))
		Expect(convert("v1beta1", newer)).To(MatchJSON(older))
	})
})

var _ = Describe("A conversion without a cluster", func() {
	It("names its definition in the log when it fails", func() {
		core, lines := observer.New(zapcore.InfoLevel)
		m := eirinix.NewManager(eirinix.ManagerOptions{Logger: zap.New(core).Sugar()})
		type tree = *unstructured.Unstructured
		fails := func(context.Context, tree) (tree, error) { return nil, errors.New("out of stock") }
		Expect(m.AddExtension(conversion.Of[tree]{CRD: "shops.example.com", Version: "v1", Spokes: []conversion.Spoke[tree]{conversion.NewSpoke("v1beta1", fails, fails)}})).To(Succeed())
		program, err := offline.Of(m, offline.Options{})
		Expect(err).NotTo(HaveOccurred())
		r := httptest.NewRequest(http.MethodPost, program.Conversions[0].Path, strings.NewReader(`{"kind":"ConversionReview","apiVersion":"apiextensions.k8s.io/v1","request":{"uid":"u","desiredAPIVersion":"example.com/v1","objects":[
			{"apiVersion":"example.com/v1beta1","kind":"Shop","metadata":{"name":"a"}}]}}`))
		r.Header.Set("Content-Type", "application/json")
		w := httptest.NewRecorder()
		program.Handler.ServeHTTP(w, r)
		Expect(w.Body.String()).To(ContainSubstring("out of stock"))
		failed := lines.FilterMessage("an object could not be converted").All()
		Expect(failed).To(HaveLen(1))
		Expect(failed[0].ContextMap()).To(HaveKeyWithValue("customResourceDefinition", "shops.example.com"))
	})
})
