package decode

import (
	"errors"
	"math"
	"math/rand/v2"
	"reflect"
	"runtime"
	"strconv"
	"strings"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"

	"code.cloudfoundry.org/eirinix/internal/jsontext"
	"code.cloudfoundry.org/eirinix/internal/jsontype"
)

// taken reads a text and returns the memory that this took, by its own count and by that of the runtime.
func taken(raw string, obj any, take func(int64) error) (made, allocated int64, err error) {
	text := []byte(raw)
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	made, err = Within(text, obj, new(jsontext.Index), take)
	runtime.ReadMemStats(&after)
	return made, int64(after.TotalAlloc - before.TotalAlloc), err
}

// list returns numbered items, separated by commas.
func list(n int, item string) string {
	var b strings.Builder
	for i := range n {
		b.WriteString(strings.ReplaceAll(item, "#", strconv.Itoa(100_000+i)) + ",")
	}
	return strings.TrimSuffix(b.String(), ",")
}

// held returns what the values are counted for that are read into objects, and what they hold in the heap. It reads the
// text many times, because the heap holds other things, too.
func held(raw string, fresh func() any, read func(*decoder, any) error) (made, live int64) {
	GinkgoHelper()
	text, objects := []byte(raw), []any(nil)
	for range 1 + (1<<19)/len(raw) {
		objects = append(objects, fresh())
	}
	Expect(read(&decoder{Reader: jsontext.Reader{Text: text}, most: math.MaxInt64, deepest: maxNesting}, fresh())).To(Succeed()) // makes plans
	heap := func() int64 {
		var stats runtime.MemStats
		runtime.GC()
		runtime.GC()
		runtime.ReadMemStats(&stats)
		return int64(stats.HeapAlloc)
	}
	before := heap()
	for _, obj := range objects {
		d := &decoder{Reader: jsontext.Reader{Text: text}, most: math.MaxInt64, deepest: maxNesting}
		Expect(read(d, obj)).To(Succeed())
		made += d.made
	}
	live = heap() - before
	runtime.KeepAlive(objects)
	return made, live
}

// These are the ways in which held reads.
func readFast(d *decoder, obj any) error {
	if !d.fast(obj) {
		return errors.New("it is left to sigs.k8s.io/json")
	}
	return nil
}

func readSlow(d *decoder, obj any) (err error) {
	d.made, err = d.slow(obj)
	return err
}

// The race detector makes objects larger, so these specs run without it.
var _ = Describe("The memory of an object", Serial, Label("sequential"), func() {
	tree, pod, crd := func() any { return new(map[string]any) }, func() any { return new(corev1.Pod) }, func() any { return new(apiextensionsv1.CustomResourceDefinition) }
	configMap := func() any { return new(corev1.ConfigMap) }

	DescribeTable("is counted as what it holds, and not as what is thrown away while it grows:", func(raw string, fresh func() any) {
		for name, read := range map[string]func(*decoder, any) error{"fast": readFast, "slow": readSlow} {
			made, live := held(raw, fresh, read)
			Expect(made).To(BeNumerically(">", live-live/50), "%s: the count bounds the memory, but for what else is in the heap", name)
			Expect(made).To(BeNumerically("<", 9*live/4), name)
		}
	},
		Entry("a tree with a long list", `{"a":[`+list(40_000, `#`)+`]}`, tree),
		Entry("with lists of lists", `{"a":[`+list(10_000, `[#.5,[1.5],[]]`)+`]}`, tree),
		Entry("with objects of one member", `{"a":[`+list(10_000, `{"a":#}`)+`]}`, tree),
		Entry("of eight, which is a group", `{"a":[`+list(1000, `{"a":#,"b":1,"c":1,"d":1,"e":1,"f":1,"g":1,"h":1}`)+`]}`, tree),
		Entry("of nine", `{"a":[`+list(1000, `{"a":#,"b":1,"c":1,"d":1,"e":1,"f":1,"g":1,"h":1,"i":1}`)+`]}`, tree),
		Entry("with strings that have escapes", `{"a":[`+list(10_000, `"\n#"`)+`]}`, tree),
		Entry("a map that has just grown", `{"data":{`+list(15, `"#":"v"`)+`}}`, configMap),
		Entry("to several groups", `{"data":{`+list(57, `"#":"v"`)+`}}`, configMap),
		Entry("to several tables", `{"data":{`+list(7170, `"#":"v"`)+`}}`, configMap),
		Entry("a map of bytes", `{"binaryData":{`+list(900, `"#":"AAAA"`)+`}}`, configMap),
		Entry("a map of large values", `{"spec":{"versions":[{"schema":{"openAPIV3Schema":{"properties":{`+list(2000, `"p#":{"type":"string"}`)+`}}}}]}}`, crd),
		Entry("lists of structs", `{"spec":{"containers":[`+list(200, `{"name":"c#","env":[{"name":"a","valueFrom":{"configMapKeyRef":{"key":"#"}}}],"resources":{"limits":{"cpu":"#m"}}}`)+`]}}`, pod),
	)

	DescribeTable("does not keep out what is legal:", func(raw string, obj any) {
		made, _, err := taken(raw, obj, nil)
		Expect(err).NotTo(HaveOccurred())
		Expect(made).To(BeNumerically("<=", Bound(len(raw))))
	},
		Entry("a definition of 20,000 properties", `{"spec":{"versions":[{"schema":{"openAPIV3Schema":{"properties":{`+list(20_000, `"p#":{"type":"string"}`)+`}}}}]}}`, crd()),
		Entry("a tree with 400,000 numbers", `{"spec":{"numbers":[`+list(400_000, `#`)+`]}}`, tree()),
		Entry("in several lists", `{"spec":{"numbers":[`+list(400, `[`+list(1000, `1`)+`]`)+`]}}`, tree()),
		Entry("a tree with 60,000 small objects", `{"spec":{"items":[`+list(60_000, `{"a":#}`)+`]}}`, tree()),
		Entry("with two members each", `{"spec":{"items":[`+list(60_000, `{"id":#,"on":true}`)+`]}}`, tree()),
	)

	It("is that of the field which hides others of its name", func() {
		type base struct {
			List []corev1.PodSpec `json:"list"`
		}
		type hiding struct {
			base
			List []corev1.Toleration `json:"list"`
		}
		raw := `{"list":[` + list(1000, `{}`) + `]}`
		made, live := held(raw, func() any { return new(hiding) }, readSlow)
		Expect(made).To(And(BeNumerically(">", live), BeNumerically("<", 3*live)))
	})

	It("is that of the reader that reads the object in the end", func() {
		large := `"spec":{"containers":[` + list(1000, `{"name":"a"}`) + `]}`
		first, _, err := taken(`{"kind":"a","kind":"b",`+large+`}`, pod(), nil)
		Expect(err).NotTo(HaveOccurred())
		last, _, err := taken(`{`+large+`,"kind":"a","kind":"b"}`, pod(), nil)
		Expect(err).NotTo(HaveOccurred())
		Expect(last).To(Equal(first), "the other one has given up late")
	})

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
		Expect(made).To(And(BeNumerically(">", 450), BeNumerically("<", Free)))
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
				d := decoder{Reader: jsontext.Reader{Text: raw}, most: MaxMemory, deepest: maxNesting}
				if t.Kind() == reflect.Map {
					raw = randomText(r, reflect.TypeFor[corev1.Pod]())
					d.Text = raw
				}
				Expect(d.fast(reflect.New(t).Interface())).To(BeTrue())
				counting := decoder{Reader: jsontext.Reader{Text: raw}, most: MaxMemory, deepest: maxNesting}
				counting.count(jsontype.Of(t))
				Expect(counting.At).To(Equal(len(raw)))
				Expect(counting.made).To(BeNumerically(">", d.made/3), "%s", raw)
				Expect(counting.made).To(BeNumerically("<", 3*d.made+1000), "%s", raw)
			}
		}
	})
})
