package decode

import (
	"errors"
	"math/rand/v2"
	"reflect"
	"runtime"
	"strings"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
)

// taken reads a text and returns the memory that this took, by its own count and by that of the runtime.
func taken(raw string, obj any, take func(int64) error) (made, allocated int64, err error) {
	text := []byte(raw)
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	made, err = Within(text, obj, take)
	runtime.ReadMemStats(&after)
	return made, int64(after.TotalAlloc - before.TotalAlloc), err
}

var _ = Describe("The memory of an object", Serial, func() {
	const items = 300_000
	empty := strings.Repeat("{},", items) + "{}"
	pods := `{"spec":{"containers":[` + empty + `]}}`

	type holder struct {
		Foreign map[int]string `json:"foreign"` // for sigs.k8s.io/json
		Pods    []corev1.PodSpec
	}

	DescribeTable("is bounded: beyond that nothing more is made of", func(raw string, obj any) {
		_, allocated, err := taken(raw, obj, nil)
		Expect(err).To(MatchError(ErrTooLarge))
		Expect(err).To(MatchError(And(ContainSubstring("send a smaller object"), ContainSubstring("lists of empty or tiny items"))))
		Expect(allocated).To(BeNumerically("<", 2*Bound(len(raw))), "the text has %d bytes", len(raw))
	},
		Entry("a list of empty structs", pods, &corev1.Pod{}),
		Entry("one that sigs.k8s.io/json has to read, for a member comes twice", strings.Replace(pods, `{"spec"`, `{"kind":"a","kind":"b","spec"`, 1), &corev1.Pod{}),
		Entry("or one comes that does not fit", strings.Replace(pods, `{"spec"`, `{"kind":1,"spec"`, 1), &corev1.Pod{}),
		Entry("or one nests deeply", strings.Replace(pods, `{"spec"`, `{"x":`+strings.Repeat("[", 600)+strings.Repeat("]", 600)+`,"spec"`, 1), &corev1.Pod{}),
		Entry("or the type is one that it has to read", `{"Pods":[`+empty+`]}`, &holder{}),
		Entry("or the target holds something", pods, &corev1.Pod{Spec: corev1.PodSpec{NodeName: "a"}}),
		Entry("lists of lists", `{"Pods":[`+strings.Repeat(`{"containers":[{},{},{}]},`, items/10)+`{}]}`, &struct{ Pods []corev1.PodSpec }{}),
		Entry("pointers", `[`+empty+`]`, &[]*corev1.Container{}),
		Entry("maps", `[`+strings.Repeat(`{"a":1},`, items)+`{}]`, new(any)),
		Entry("lists of anything", `[`+strings.Repeat(`[[]],`, 2*items)+`[]]`, new(any)),
		Entry("maps of structs", `[`+strings.Repeat(`{"a":{}},`, items/10)+`{}]`, &[]map[string]corev1.Container{}),
	)

	It("grows no further than it must, however long a list is", func() {
		raw := `{"spec":{"tolerations":[` + strings.Repeat(`{"key":"0123456789012345678901234567890123456789"},`, 100_000) + `{}]}}`
		pod := &corev1.Pod{}
		made, allocated, err := taken(raw, pod, nil)
		Expect(err).NotTo(HaveOccurred())
		Expect(pod.Spec.Tolerations).To(HaveLen(100_001))
		held := int64(reflect.TypeFor[corev1.Toleration]().Size())*100_001 + 100_000*40
		Expect(allocated).To(BeNumerically("<", held*5/4), "doubling and a copy would be four times as much")
		Expect(made).To(BeNumerically("~", held, held/4))
	})

	It("is asked for once, when it is more than little, and for as much as it may become", func() {
		var asked []int64
		take := func(most int64) error {
			asked = append(asked, most)
			return nil
		}
		small := `{"spec":{"containers":[{"name":"a","image":"b"}]}}`
		made, _, err := taken(small, &corev1.Pod{}, take)
		Expect(err).NotTo(HaveOccurred())
		Expect(made).To(And(BeNumerically(">", 500), BeNumerically("<", Free)))
		Expect(asked).To(BeEmpty())

		large := `{"spec":{"containers":[` + strings.Repeat(`{"name":"a","image":"b"},`, 1000) + `{}]}}`
		for _, raw := range []string{large, strings.Replace(large, `{"spec"`, `{"kind":"a","kind":"b","spec"`, 1)} {
			asked = nil
			made, _, err = taken(raw, &corev1.Pod{}, take)
			Expect(err).NotTo(HaveOccurred())
			Expect(asked).To(Equal([]int64{Bound(len(raw))}))
			Expect(made).To(And(BeNumerically(">", Free), BeNumerically("<=", Bound(len(raw)))))
		}

		full := errors.New("there is none")
		_, allocated, err := taken(large, &corev1.Pod{}, func(int64) error { return full })
		Expect(err).To(MatchError(full))
		Expect(allocated).To(BeNumerically("<", 4*Free))
	})

	It("is counted by both readers alike, up to the cost of growing", func() {
		r := rand.New(rand.NewPCG(uint64(GinkgoRandomSeed()), 7))
		for _, t := range []reflect.Type{reflect.TypeFor[corev1.Pod](), reflect.TypeFor[apiextensionsv1.CustomResourceDefinition](), reflect.TypeFor[map[string]any]()} {
			for range 20 {
				raw := randomText(r, t)
				d := decoder{raw: raw, most: Most, deepest: maxNesting}
				if t.Kind() == reflect.Map {
					raw = randomText(r, reflect.TypeFor[corev1.Pod]())
					d.raw = raw
				}
				Expect(d.fast(reflect.New(t).Interface())).To(BeTrue())
				counting := decoder{raw: raw, most: Most, deepest: maxNesting}
				Expect(counting.count(planFor(t), 0)).To(Equal(len(raw)))
				Expect(counting.made).To(BeNumerically(">", d.made/3), "%s", raw)
				Expect(counting.made).To(BeNumerically("<", 3*d.made+1000), "%s", raw)
			}
		}
	})
})
