package decode

// This file specifies that Into reads what sigs.k8s.io/json reads, with the same errors, when it needs no help, and which
// memory it takes.

import (
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"reflect"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"testing"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"

	"code.cloudfoundry.org/eirinix/internal/jsontext"
	"code.cloudfoundry.org/eirinix/internal/jsontype"
)

// values are texts that may stand where a value of another kind was expected.
var values = []string{
	`null`, `true`, `false`, `""`, `"x"`, `"1"`, `"null"`, `"true"`, `"aGVsbG8="`, `"aGVs\nbG8="`, `"?"`, `"\"x\""`, `"1.5"`, `"127.0.0.1"`,
	`0`, `-0`, `1`, `-1`, `127`, `128`, `-128`, `-129`, `255`, `256`, `32768`, `65536`, `2147483647`, `2147483648`, `4294967296`,
	`9223372036854775807`, `9223372036854775808`, `-9223372036854775808`, `-9223372036854775809`, `18446744073709551615`, `18446744073709551616`,
	`1.0`, `1.5`, `-0.0`, `1e2`, `1E+2`, `1e-2`, `3.5e38`, `1e309`, `-1e400`, `1e-400`, `0.1`, `16777217`, `123456789012345678901234567890`,
	`01`, `-`, `1.`, `.5`, `1e`, `+1`, `0x10`, `NaN`, `nul`, `nulll`, `tru`, `TRUE`, `'x'`, `"`, `"\`, `"\u12"`, `"\x"`, "\"\t\"", "\"\x7f\"", "\"a\x00\"",
	`"\u0041\u00e9\b\f\n\r\t\/\\\""`, `"\ud83d\ude00"`, `"\ud83d"`, `"\ude00\ud83d"`, `"\ud83dx"`, `"\ud83d\u0041"`, `"\ud83d\ud83d\ude00"`,
	`"grün 😀"`, "\"a\xffb\xc3\"", "\"\xed\xa0\x80\"", "\"\xf4\x90\x80\x80 \xc0\x80\"", "\"\\n\xff\\u0041\xfe\"", "\"\\ufffd\ufffd\"", "\"\u2028\"",
	`"2026-01-31T10:00:00Z"`, `"2026-01-31T10:00:00.123456Z"`, `"2026-01-31T10:00:00+02:00"`, `"2026\u002d01-31T10:00:00Z"`, `"2026-01-31"`, `"1h5m"`,
	`"100m"`, `"1Gi"`, `" 1 "`, `"1e3"`, `"\u0031"`, `"0.5"`, `"99999999999999999999"`,
	`[]`, `[ ]`, `[null]`, `[1]`, `[1,2,3,4,5]`, `["a","b"]`, `["a",null,"b"]`, `["a",1]`, `[true]`, `[[1],[],null,[2,3]]`, `[[["a"]]]`, `[1,]`, `[,1]`, `[1 2]`, `[1`, `[`, `]`,
	`[300]`, `[-1]`, `[1.5]`, `["1","2"]`, `["2026-01-31T10:00:00Z",null]`, `[{"Int":1},{"Int":2,"String":"x"},null]`, `[{"a":"b"},{}]`,
	`{}`, `{ }`, `{"a":null}`, `{"a":"b"}`, `{"a":1,"b":2}`, `{"a":1,"a":2}`, `{"a":{"b":[1,2.5,{"c":null}]}}`, `{"1":"a","-1":"b"}`, `{"cpu":"1","memory":"1Gi"}`, `{"cpu":1}`,
	`{"a":"b",}`, `{,}`, `{"a"}`, `{"a":}`, `{"a" "b"}`, `{a:1}`, `{"a":1`, `{`, `}`, `{1:2}`, `{"a":1]`, `[1}`, `{"\u0061":"\u0062"}`, "{\"\xff\":1}", `{"":""}`,
	`{"Int":1,"String":"x","Bool":true}`, `{"Int":"x"}`, `{"Int":1,"Int":2}`, `{"Deepest":1}`, `{"Field":1}`, `{"Name":"n","Children":[{"Name":"c"}],"Left":{"Name":"l"}}`,
	` { "a" : [ 1 , 2 ] , "b" : { } } `, "\n\t\r 1", "\f1", "\ufeff1", `{"a":["b"]}`, `{"a":{"b":"c"}}`, `{"a":["b",1]}`, `{"127.0.0.1":1}`, `{"true":"a"}`,
}

// capturedPod is a pod that was captured on its way from a real API server.
func capturedPod(tb testing.TB, size string) []byte {
	tb.Helper()
	text, err := os.ReadFile(filepath.Join("..", "..", "bench", "testdata", "pod-"+size+".json"))
	if err != nil {
		tb.Skip(err)
	}
	var review struct {
		Request struct{ Object json.RawMessage } `json:"request"`
	}
	if err := json.Unmarshal(text, &review); err != nil {
		tb.Fatal(err)
	}
	return review.Request.Object
}

func agree(raw string, t reflect.Type) {
	GinkgoHelper()
	if d := disagreement([]byte(raw), t); d != "" {
		Fail(d)
	}
}

var _ = Describe("Into, beside sigs.k8s.io/json", func() {
	It("reads every kind of value into every type", func() {
		for _, t := range append(oddTypes, apiTypes...) {
			for _, v := range values {
				agree(v, t)
				agree(" \n"+v+"\t ", t)
				agree(v+" x", t)
				agree(v+"{}", t)
			}
			agree("", t)
			agree(" ", t)
		}
	})

	// some returns a few values, others each time: a fuzz target has more.
	some := func(r *rand.Rand, all []string) []string {
		few := make([]string, 12)
		for i := range few {
			few[i] = all[r.IntN(len(all))]
		}
		return few
	}

	It("reads any kind of value into every field", Label("sequential"), func() {
		r := rand.New(rand.NewPCG(uint64(GinkgoRandomSeed()), 5))
		for _, t := range append(oddTypes, apiTypes...) {
			for _, name := range names(t) {
				key, err := json.Marshal(name)
				Expect(err).NotTo(HaveOccurred())
				for _, v := range some(r, values) {
					agree(fmt.Sprintf(` { %s : %s , "unknown" : %[2]s } `, key, v), t)
					agree(fmt.Sprintf(`{"a":[{%s:%s},{%[1]s:%[2]s}]}`, key, v), reflect.MapOf(reflect.TypeFor[text](), reflect.SliceOf(t)))
				}
			}
		}
	})

	It("reads two members of one name", Label("sequential"), func() {
		r := rand.New(rand.NewPCG(uint64(GinkgoRandomSeed()), 6))
		short := []string{`null`, `1`, `"x"`, `[1,2]`, `["a"]`, `[]`, `{"a":"b"}`, `{"b":"c"}`, `{"Int":1}`, `{"String":"y"}`, `[{"Int":1}]`, `[{"Bool":true},{}]`, `{"x":{"Int":1}}`, `{"x":{"Bool":true}}`}
		for _, t := range oddTypes {
			for _, name := range names(t) {
				for i, v := range some(r, short) {
					agree(fmt.Sprintf(`{%q:%s,%[1]q:%s}`, name, v, short[(i+len(name))%len(short)]), t)
				}
			}
		}
	})

	It("reads members of any order and of names written in any way", func() {
		t := reflect.TypeFor[embedding]()
		members := []string{`"id":"1"`, `"\u0069d":"2"`, `"name":"n"`, `"Inner":3`, `"Deepest":4`, `"deep":{"Deepest":5}`, `"Inline":{"Deepest":6}`, `"Word":"w"`, `"Extra":"e"`, "\"i\xffd\":1", `"ID":"no"`}
		for _, a := range members {
			for _, b := range members {
				for _, c := range members {
					agree("{"+a+","+b+","+c+"}", t)
				}
			}
		}
		for _, key := range []string{`"größe"`, `"gr\u00f6\u00dfe"`, "\"a\xff\"", `"a\ufffd"`, `"a\ud800"`, `"-"`, `""`, `"a b$%"`, `"a\"b"`, `"a'b"`, `"Ünicode"`, `"lower"`, `"Lower"`, `"LOWER"`, `"\u006cower"`, `"Same"`, `"SAME"`, `"same"`} {
			agree("{"+key+":1}", reflect.TypeFor[naming]())
			agree("{"+key+":1}", wronglyTagged)
			agree("{"+key+":1}", reflect.TypeFor[oddlyNamed]())
		}
	})

	It("reads strings of any length with anything at any place", func() {
		for _, odd := range []string{"", `\n`, `\u00e9`, `\ud83d\ude00`, `\ud83d`, "é", "\xff", "\xe2\x82", "\x01", `\q`, `"`, "\x7f", "\x80"} {
			for _, length := range []int{0, 1, 6, 7, 8, 9, 15, 16, 17, 33} {
				for at := range length + 1 {
					s := strings.Repeat("a", at) + odd + strings.Repeat("b", length-at)
					agree(`"`+s+`"`, reflect.TypeFor[string]())
					agree(`{"`+s+`":"`+s+`"}`, reflect.TypeFor[map[string]any]())
					agree(`{"unknown":"`+s+`"}`, reflect.TypeFor[scalars]())
				}
			}
		}
	})

	It("reads many strings, long and short", func() {
		for _, n := range []int{longString - 1, longString, longString + 1, keptTogether - 1, keptTogether, keptTogether + 1, 3 * keptTogether} {
			var list []string
			for i := range 40 {
				list = append(list, strings.Repeat(string(rune('a'+i%26)), n>>(i%11)))
			}
			raw, err := json.Marshal(list)
			Expect(err).NotTo(HaveOccurred())
			agree(string(raw), reflect.TypeFor[[]string]())
			Expect(isFast(string(raw), reflect.TypeFor[[]string]())).To(BeTrue())
		}
	})

	It("knows all escapes, and no others", func() {
		for c := range 256 {
			for _, t := range []reflect.Type{reflect.TypeFor[string](), reflect.TypeFor[scalars]()} {
				agree("\"\\"+string([]byte{byte(c)})+"\"", t)
				agree("{\"unknown\":\"\\"+string([]byte{byte(c)})+"0041\"}", t)
				agree("\"\\u00"+string([]byte{byte(c)})+"1\"", t)
			}
		}
	})

	It("reads deeply nested values", func() {
		for _, n := range []int{1, 63, 64, 65, 66, 130, maxNesting - 1, maxNesting, maxNesting + 1, 9998, 9999, 10000, 10001, 20000} {
			for _, t := range []reflect.Type{reflect.TypeFor[any](), reflect.TypeFor[scalars](), reflect.TypeFor[tree](), crdType, reflect.TypeFor[methods]()} {
				agree(strings.Repeat("[", n)+strings.Repeat("]", n), t)
				agree(strings.Repeat(`{"a":`, n)+"1"+strings.Repeat("}", n), t)
				agree(strings.Repeat(`{"Left":`, n)+"{}"+strings.Repeat("}", n), t)
				agree(`{"unknown":`+strings.Repeat("[", n)+strings.Repeat("]", n)+"}", t)
				agree(`{"Value":`+strings.Repeat(`{"a":`, n)+"1"+strings.Repeat("}", n)+"}", t)
				agree(strings.Repeat("[", n), t)
			}
		}
	})

	It("adds to a target that is not empty", func() {
		for _, raw := range []string{`{"Ints":[1],"Strings":null,"Structs":[{"Int":5}]}`, `{}`, `null`, `{"Ints":"x"}`, `{`} {
			make := func() *lists {
				return &lists{Ints: []int{7, 8}, Strings: []string{"a"}, Structs: []scalars{{String: "kept"}, {}}, Array: [3]int{1, 2, 3}}
			}
			mine, theirs := make(), make()
			err, want := both([]byte(raw), mine, theirs)
			Expect(fmt.Sprint(err)).To(Equal(fmt.Sprint(want)))
			Expect(mine).To(Equal(theirs))
		}
	})

	It("refuses a target that is no pointer to a value", func() {
		var none *corev1.Pod
		for _, target := range []any{nil, none, corev1.Pod{}, 1, map[string]any{}} {
			err, want := both([]byte(`{}`), target, target)
			Expect(err).To(HaveOccurred())
			Expect(err).To(Equal(want))
		}
	})

	It("keeps nothing of the text that it was given", func() {
		raw := []byte(`{"metadata":{"name":"pod","labels":{"a":"b"},"managedFields":[{"fieldsV1":{"f:a":{}}}]},"spec":{"containers":[{"name":"c"}]}}`)
		var got, want corev1.Pod
		Expect(Into([]byte(string(raw)), &want)).To(Succeed())
		Expect(Into(raw, &got)).To(Succeed())
		clear(raw)
		Expect(got).To(Equal(want))
	})

	It("reads on many goroutines at once", func() {
		raw := []byte(`{"Name":"a","Children":[{"Name":"b"}],"ByName":{"c":{"Left":{"Name":"d"}}}}`)
		type again tree // which has no plan yet
		var all sync.WaitGroup
		for range 50 {
			all.Go(func() {
				defer GinkgoRecover()
				var got again
				Expect(Into(raw, &got)).To(Succeed())
				Expect(got.ByName["c"].Left.Name).To(Equal("d"))
			})
		}
		all.Wait()
	})
})

var _ = Describe("The fast road", func() {
	It("is the one that captured pods take", func() {
		for _, size := range []string{"4KB", "22KB", "310KB"} {
			raw := string(capturedPod(GinkgoTB(), size))
			for _, t := range []reflect.Type{reflect.TypeFor[corev1.Pod](), reflect.TypeFor[map[string]any]()} {
				Expect(isFast(raw, t)).To(BeTrue(), "%s into %s", size, t)
				agree(raw, t)
			}
		}
	})

	It("is the one that every API type takes", func() {
		r := rand.New(rand.NewPCG(1, 2))
		for _, t := range apiTypes {
			for range 20 {
				raw := string(randomText(r, t))
				Expect(isFast(raw, t)).To(BeTrue(), "%s: %s", t, raw)
			}
		}
	})

	DescribeTable("is left", func(raw string, t reflect.Type, isFastExpected bool) {
		Expect(isFast(raw, t)).To(Equal(isFastExpected))
	},
		Entry("never for unknown members", `{"unknown":[1,{"a":"\n"}]}`, reflect.TypeFor[corev1.Pod](), true),
		Entry("never for null", `{"metadata":null,"spec":{"containers":null,"nodeSelector":{"a":null}}}`, reflect.TypeFor[corev1.Pod](), true),
		Entry("never for escapes and invalid text", "{\"kind\":\"\\u0041\xff\"}", reflect.TypeFor[corev1.Pod](), true),
		Entry("for malformed text", `{"kind":"Pod"`, reflect.TypeFor[corev1.Pod](), false),
		Entry("for a value that does not fit", `{"kind":1}`, reflect.TypeFor[corev1.Pod](), false),
		Entry("for a member that comes twice", `{"kind":"Pod","kind":"Pod"}`, reflect.TypeFor[corev1.Pod](), false),
		Entry("not for one in a map", `{"a":1,"a":2}`, reflect.TypeFor[map[string]any](), true),
		Entry("for the string option", `{"Int":"1"}`, reflect.TypeFor[quoting](), false),
		Entry("for keys that are numbers", `{"ByInt":{"1":"a"}}`, reflect.TypeFor[maps](), false),
		Entry("for deeply nested values", strings.Repeat("[", 600)+strings.Repeat("]", 600), reflect.TypeFor[any](), false),
	)

	It("leaves no trace when it is left", func() {
		var got corev1.Pod
		Expect(fast([]byte(`{"kind":"Pod","metadata":{"name":"a","labels":{"a":"b"}},"spec":1}`), &got)).To(BeFalse())
		Expect(got).To(Equal(corev1.Pod{}))
	})
})

var _ = It("The index of a text is of that text, and of none that could not be decoded", func() {
	raw := []byte(`{"metadata":{"labels":{"a":"` + strings.Repeat("b", 100) + `"}}}`)
	doc := jsontext.Index{}
	_, err := Within(raw, new(corev1.Pod), &doc, nil)
	Expect(err).NotTo(HaveOccurred())
	Expect(doc.IsOf(raw)).To(BeTrue())

	many := []byte(`{"spec":{"containers":[` + strings.Repeat(`{"name":"a"},`, 10_000) + `{}]}}`)
	full := errors.New("full")
	_, err = Within(many, new(corev1.Pod), &doc, func(int64) error { return full })
	Expect(err).To(MatchError(full))
	Expect(doc.IsOf(many)).To(BeFalse(), "its end is not known")

	_, err = Within(raw, new(corev1.Pod), nil, nil)
	Expect(err).NotTo(HaveOccurred(), "one that no patch needs is not recorded")
})

// That there is an error exactly where sigs.k8s.io/json fails is compared in disagreement.
var _ = DescribeTable("A value that does not fit is named with its path", func(raw string, obj any, want string) {
	misfit := Misfit([]byte(raw), obj)
	if want == "" {
		Expect(misfit).NotTo(HaveOccurred())
		return
	}
	Expect(misfit).To(MatchError(HavePrefix(want)))
	Expect(Into([]byte(raw), obj)).NotTo(Succeed())
},
	Entry("in a map in a list", `{"kind":"Pod","x":[{}],"spec":{"containers":[{"name":"a"},{"name":"b","resources":{"limits":{"memory":"1Gi","cpu":"1x"}}}]}}`, &corev1.Pod{},
		"spec.containers[1].resources.limits.cpu cannot be read: quantities must match the regular expression"),
	Entry("behind a pointer", ` { "spec" : { "replicas" : null, "terminationGracePeriodSeconds" : "30" } } `, &corev1.Pod{},
		"spec.terminationGracePeriodSeconds cannot be read: json: cannot unmarshal string into Go value of type int64"),
	Entry("of an embedded type", `{"metadata":{"creationTimestamp":"yesterday"}}`, &corev1.Pod{}, `metadata.creationTimestamp cannot be read: parsing time "yesterday"`),
	Entry("in place of a list", `{"spec":{"containers":{}}}`, &corev1.Pod{}, "spec.containers cannot be read: json: cannot unmarshal object into Go value of type []v1.Container"),
	Entry("in a list in a list", `{"a":[["x"],["y",5]]}`, &map[string][][]string{}, "a[1][1] cannot be read: json: cannot unmarshal number"),
	Entry("as the whole", `"text"`, &corev1.Pod{}, "the object cannot be read: json: cannot unmarshal string into Go value of type v1.Pod"),
	Entry("in a tree", `{"a":{"b":1e999}}`, &map[string]any{}, "a cannot be read: json: cannot unmarshal number 1e999"),
	Entry("unless it has no place", `{"spec":{"none":"1x","containers":null}}`, &corev1.Pod{}, ""),
	Entry("unless the text nests too deep", `{"x":`+strings.Repeat("[", deepestOfAll+1)+strings.Repeat("]", deepestOfAll+1)+`,"spec":5}`, &corev1.Pod{}, ""),
)

var _ = DescribeTable("Whole finds members that a type does not know",
	func(raw string, obj any, all bool) {
		got, err := Whole([]byte(raw), obj)
		Expect(got).To(Equal(all))
		Expect(err == nil).To(Equal(json.Valid([]byte(raw))))
	},
	Entry("nothing", `{}`, &corev1.Pod{}, true),
	Entry("known members", `{"metadata":{"labels":{"any":"x"}},"spec":{"containers":[{"resources":{"limits":{"x":"1"}}}]}}`, &corev1.Pod{}, true),
	Entry("a member of an item", `{"spec":{"containers":[{"name":"a"},{"x":1}]}}`, &corev1.Pod{}, false),
	Entry("a member in other letters", `{"Spec":{}}`, &corev1.Pod{}, false),
	Entry("a member below one that reads its JSON", `{"metadata":{"managedFields":[{"fieldsV1":{"x":{}}}]}}`, &corev1.Pod{}, true),
	Entry("a member twice", `{"spec":{"nodeName":"a","nodeName":"b"}}`, &corev1.Pod{}, false),
	Entry("text that is malformed", `{"spec":`, &corev1.Pod{}, false),
	Entry("any member of a tree", `{"x":[1,{"y":2}]}`, new(map[string]any), true),
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

	It("is not counted ahead for a list in four for which it was, because each count scans the text", func() {
		raw, made := "[]", make([]int64, maxCounted+2)
		for lists := range made {
			made[lists], _, _ = taken(raw, new(any), nil)
			raw = "[" + strings.Repeat("1,", 5000) + raw + "]"
		}
		each := made[2] - made[1]
		Expect(made[maxCounted] - made[maxCounted-1]).To(Equal(each))
		Expect(made[maxCounted+1] - made[maxCounted]).To(BeNumerically(">", each))
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
