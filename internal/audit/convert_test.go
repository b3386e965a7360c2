package audit

// Specs of the Conversions that an audit plays.

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	goruntime "runtime"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"code.cloudfoundry.org/eirinix/internal/convert"
	"code.cloudfoundry.org/eirinix/internal/seam"
)

// shops converts shops of v1 to v2 and v3. v2 lacks their color, and v3 their size and what is in their rooms.
func shops() *convert.Kind {
	without := func(change func(*unstructured.Unstructured) error) convert.Func {
		return func(_ context.Context, o runtime.Object) (runtime.Object, error) {
			return o, change(o.(*unstructured.Unstructured))
		}
	}
	same := without(func(*unstructured.Unstructured) error { return nil })
	return &convert.Kind{Group: "shop.example.org", Versions: []convert.Version{
		{Name: "v1"},
		{Name: "v2", ToHub: without(func(o *unstructured.Unstructured) error {
			if o.GetName() == "stuck-back" {
				return errors.New("not back")
			}
			return nil
		}), FromHub: without(func(o *unstructured.Unstructured) error {
			switch strings.TrimRight(o.GetName(), "0123456789") {
			case "odd":
				return errors.New("not this one")
			case "bad":
				panic("boom")
			case "ended":
				goruntime.Goexit()
			case "moved":
				o.SetName("elsewhere")
			}
			unstructured.RemoveNestedField(o.Object, "color")
			return nil
		})},
		{Name: "v3", ToHub: same, FromHub: without(func(o *unstructured.Unstructured) error {
			unstructured.RemoveNestedField(o.Object, "spec", "size")
			rooms, _, _ := unstructured.NestedSlice(o.Object, "spec", "rooms")
			for _, room := range rooms {
				delete(room.(map[string]any), "a/b")
			}
			if rooms != nil {
				return unstructured.SetNestedSlice(o.Object, rooms, "spec", "rooms")
			}
			return nil
		})},
	}}
}

func shop(name, rest string) string {
	return fmt.Sprintf(`{"apiVersion":"shop.example.org/v1","kind":"Shop","metadata":{"name":%q}%s}`, name, rest)
}

// converting shows a kind to an audit, as package conversion does.
func converting(kind *convert.Kind) *seam.Conversion {
	c := &seam.Conversion{Lossy: kind.Forget, RoundTrip: kind.RoundTrip}
	for _, v := range kind.Versions {
		object := &unstructured.Unstructured{}
		object.SetAPIVersion(kind.Group + "/" + v.Name)
		c.Versions = append(c.Versions, object)
	}
	return c
}

// play audits these objects of v1.
func play(ctx context.Context, kind *convert.Kind, objects ...string) (Summary, []Finding, error) {
	const crd = "shops.shop.example.org"
	s, _, _ := newStep(Step{Name: crd, Webhook: Converted(crd, "v1"), Converts: converting(kind)}, nil, GinkgoLogr)
	var found []Finding
	e := &engine{
		Config:  Config{Finding: func(f Finding) error { found = append(found, f); return nil }, Log: GinkgoLogr},
		summary: Summary{Asked: map[string]int{}, Findings: map[string]map[Result]int{}}, gaps: map[Gap]int{},
	}
	t := &target{resource: resource{GroupVersionResource: schema.GroupVersionResource{Group: "shop.example.org", Version: "v1", Resource: "shops"}}, steps: []*step{s}}
	for _, text := range objects {
		i := &item{raw: []byte(text)}
		_ = json.Unmarshal(i.raw, &i.head) // as a list does
		if err := e.object(ctx, t, i); err != nil {
			return e.summary, found, err
		}
	}
	return e.summary, found, nil
}

var _ = Describe("The audit of a Conversion", func() {
	audit := func(ctx context.Context, kind *convert.Kind, objects ...string) (Summary, []Finding) {
		GinkgoHelper()
		s, found, err := play(ctx, kind, objects...)
		Expect(err).NotTo(HaveOccurred())
		return s, found
	}

	annotated := fmt.Sprintf(`{"apiVersion":"shop.example.org/v1","kind":"Shop","metadata":{"name":"a","annotations":{%q:"12345678.x.{}",%q:"{\"v1\":[\".color\"]}"}}}`,
		convert.Prefix+"a", convert.Incomplete)
	DescribeTable("says what becomes of an object", func(ctx SpecContext, object string, change func(*convert.Kind), result Result, message string, paths ...string) {
		kind := shops()
		if change != nil {
			change(kind)
		}
		s, found := audit(ctx, kind, object)
		Expect(s.Objects).To(Equal(1))
		Expect(s.Gaps).To(BeEmpty(), "the answer is known")
		if result == Passed {
			Expect(found).To(BeEmpty())
			return
		}
		Expect(found).To(HaveLen(1), "it is one object")
		Expect(found[0].Result).To(Equal(result))
		Expect(found[0].Text()).To(Equal(message))
		Expect(found[0].Paths).To(Equal(append([]string(nil), paths...)))
		Expect(found[0].Step).To(Equal("shops.shop.example.org"))
	},
		Entry("that every version holds", shop("a", `,"spec":{"door":1}`), nil, Passed, ""),
		Entry("that a version cannot hold", shop("a", `,"color":"hunter2"`), nil, Drift, "v2 cannot hold /color, which annotations keep", "/color"),
		Entry("that no version can hold", shop("a", `,"color":"red","spec":{"size":1,"door":1,"rooms":[{"name":"x","a/b":1},{"name":"y","a/b":2}]}`), nil, Drift,
			"v2 cannot hold /color, which annotations keep; v3 cannot hold /spec/rooms/*/a~1b, /spec/size, which annotations keep", "/color", "/spec/rooms/*/a~1b", "/spec/size"),
		Entry("that a lossy version cannot hold", shop("a", `,"color":"red"`), func(k *convert.Kind) { k.Forget = true }, Drift, "v2 cannot hold /color, which is lost", "/color"),
		Entry("that annotations cannot hold either", shop("a", `,"color":"`+strings.Repeat("x", 300<<10)+`"`), nil, Drift, "v2 cannot hold /color, which is lost", "/color"),
		Entry("with what earlier conversions have kept, and lost, which no function sees", annotated, func(k *convert.Kind) {
			k.Versions[1].FromHub = func(_ context.Context, o runtime.Object) (runtime.Object, error) {
				o.(*unstructured.Unstructured).SetAnnotations(nil)
				return o, nil
			}
		}, Passed, ""),
		Entry("that fails", shop("odd", ""), nil, Failed, "to v2: the conversion from v1 to v2 failed: not this one"),
		Entry("that fails on the way back", shop("stuck-back", ""), nil, Failed, "back from v2: the conversion from v2 to v1 failed: not back"),
		Entry("that panics", shop("bad", ""), nil, Failed, "to v2: the conversion panicked: boom"),
		Entry("that ends its goroutine", shop("ended", ""), nil, Failed, "a conversion ended its goroutine (runtime.Goexit); return an error instead"),
		Entry("whose metadata is changed", shop("moved", ""), nil, Failed,
			`to v2: the conversion from v1 to v2: it changed metadata.name from "moved" to "elsewhere"; a conversion can change labels and annotations alone`),
		Entry("that is none", "5", nil, Failed, "to v2: it cannot be read as v1: json: cannot unmarshal number into Go value of type map[string]interface {}; to v3: it cannot be read as v1: json: cannot unmarshal number into Go value of type map[string]interface {}"),
	)

	It("names no more than a part of very many paths", func(ctx SpecContext) {
		kind := shops()
		kind.Versions[1].FromHub = func(_ context.Context, o runtime.Object) (runtime.Object, error) {
			unstructured.RemoveNestedField(o.(*unstructured.Unstructured).Object, "spec")
			return o, unstructured.SetNestedMap(o.(*unstructured.Unstructured).Object, map[string]any{"kept": true}, "spec")
		}
		var members []string
		for n := range 200 {
			members = append(members, fmt.Sprintf(`"m%03d":1`, n))
		}
		_, found := audit(ctx, kind, shop("a", `,"spec":{"kept":true,`+strings.Join(members, ",")+`}`))
		Expect(found).To(HaveLen(1))
		Expect(found[0].Paths).To(And(HaveLen(maxPaths), HaveEach(HavePrefix("/spec/m"))))
		Expect(len(found[0].Message)).To(BeNumerically("<=", maxText+len("...")))
	})
})

// A test in a bubble of synctest needs a *testing.T.
func TestConversionsThatDoNotEnd(t *testing.T) {
	for name, waits := range map[string]func(context.Context, chan struct{}) error{
		"that ignores its context": func(_ context.Context, end chan struct{}) error { <-end; return nil },
		"that returns with it":     func(ctx context.Context, _ chan struct{}) error { <-ctx.Done(); return ctx.Err() },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				g, end, began, runs := NewWithT(t), make(chan struct{}), time.Now(), new(atomic.Int64)
				defer close(end)
				kind := shops()
				kind.Versions[1].FromHub = func(ctx context.Context, o runtime.Object) (runtime.Object, error) {
					runs.Add(1)
					return o, waits(ctx, end)
				}
				s, found, err := play(t.Context(), kind, shop("a", ""), shop("b", ""))
				g.Expect(err).NotTo(HaveOccurred())
				g.Expect(time.Since(began)).To(Equal(conversionTime))
				g.Expect(runs.Load()).To(BeEquivalentTo(1), "the others would take as long")
				reason := "the conversions of a from v1 and back do not end within 1m0s, so no further one begins"
				g.Expect(s.Gaps).To(HaveExactElements(And(HaveField("Reason", reason), HaveField("Objects", 0), HaveField("Resource.Resource", "shops"))))
				g.Expect(found).To(HaveExactElements(And(HaveField("Result", Unknown), HaveField("Message", HavePrefix(reason)))))
			})
		})
	}
	t.Run("with the audit", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			g, kind := NewWithT(t), shops()
			ctx, cancel := context.WithCancelCause(t.Context())
			kind.Versions[1].FromHub = func(ctx context.Context, _ runtime.Object) (runtime.Object, error) {
				cancel(errors.New("enough"))
				return nil, ctx.Err()
			}
			_, found, err := play(ctx, kind, shop("a", ""))
			g.Expect(err).To(MatchError("enough"))
			g.Expect(found).To(BeEmpty())
		})
	})
}
