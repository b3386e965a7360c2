package conversion_test

// This file adds Conversions to a Manager, and converts objects without a cluster.

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

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

func TestConversion(t *testing.T) {
	RegisterFailHandler(Fail)
	RunSpecs(t, "Conversion")
}

type tree = *unstructured.Unstructured

const crd = "shops.example.com"

// add adds a Conversion to a new Manager.
func add(c any, options eirinix.ManagerOptions) (*eirinix.ExtensionManager, error) {
	m := eirinix.NewManager(options)
	return m, m.AddExtension(c)
}

// post sends an object to be converted, and returns the answer.
func post(m *eirinix.ExtensionManager, desired, object string) string {
	GinkgoHelper()
	program, err := offline.Of(m, offline.Options{})
	Expect(err).NotTo(HaveOccurred())
	r := httptest.NewRequest(http.MethodPost, program.Conversions[0].Path, strings.NewReader(fmt.Sprintf(
		`{"kind":"ConversionReview","apiVersion":"apiextensions.k8s.io/v1","request":{"uid":"u","desiredAPIVersion":"example.com/%s","objects":[%s]}}`, desired, object)))
	r.Header.Set("Content-Type", "application/json")
	w := httptest.NewRecorder()
	program.Handler.ServeHTTP(w, r)
	return w.Body.String()
}

var _ = Describe("AddExtension", func() {
	same := func(_ context.Context, from tree) (tree, error) { return from, nil }
	spoke := func(version string) conversion.Spoke[tree] { return conversion.NewSpoke(version, same, same) }

	DescribeTable("refuses", func(c conversion.Of[tree], reason string) {
		_, err := add(c, eirinix.ManagerOptions{Host: "127.0.0.1"})
		Expect(err).To(MatchError(ContainSubstring(reason)))
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
		c := conversion.Of[tree]{CRD: crd, Version: "v1", Spokes: []conversion.Spoke[tree]{spoke("v2")}}
		m, err := add(c, eirinix.ManagerOptions{Host: "127.0.0.1"})
		Expect(err).NotTo(HaveOccurred())
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

var _ = Describe("A conversion without a cluster", func() {
	It("is made by types that convert themselves", func() {
		m, err := add(conversion.Of[*newShopType]{
			CRD: crd, Version: "v1",
			Spokes: []conversion.Spoke[*newShopType]{conversion.ConvertibleSpoke[*newShopType, *oldShopType]("v1beta1")},
		}, eirinix.ManagerOptions{Host: "127.0.0.1"})
		Expect(err).NotTo(HaveOccurred())
		older, newer := `{"apiVersion":"example.com/v1beta1","kind":"Shop","metadata":{"name":"a"},"amount":"12"}`, `{"apiVersion":"example.com/v1","kind":"Shop","metadata":{"name":"a"},"price":"12 EUR"}`
		for desired, objects := range map[string][2]string{"v1": {older, newer}, "v1beta1": {newer, older}} {
			var answer struct {
				Response struct{ ConvertedObjects []json.RawMessage }
			}
			Expect(json.Unmarshal([]byte(post(m, desired, objects[0])), &answer)).To(Succeed())
			Expect(answer.Response.ConvertedObjects).To(HaveExactElements(MatchJSON(objects[1])))
		}
	})

	It("names its definition in the log when it fails", func() {
		core, lines := observer.New(zapcore.InfoLevel)
		fails := func(context.Context, tree) (tree, error) { return nil, errors.New("out of stock") }
		m, err := add(conversion.Of[tree]{CRD: crd, Version: "v1", Spokes: []conversion.Spoke[tree]{conversion.NewSpoke("v1beta1", fails, fails)}},
			eirinix.ManagerOptions{Logger: zap.New(core).Sugar()})
		Expect(err).NotTo(HaveOccurred())
		Expect(post(m, "v1", `{"apiVersion":"example.com/v1beta1","kind":"Shop","metadata":{"name":"a"}}`)).To(ContainSubstring("out of stock"))
		Expect(lines.FilterMessage("an object could not be converted").All()).
			To(HaveExactElements(HaveField("ContextMap()", HaveKeyWithValue("customResourceDefinition", crd))))
	})
})
