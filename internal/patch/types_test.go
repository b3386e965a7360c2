package patch_test

// This file specifies that Go types of all kinds are written and patched as encoding/json writes them. The documents that
// Kubernetes publishes in the module k8s.io/api are an object of every kind, with every field, as the newest release and
// four older ones write it.

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"strings"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	admissionv1 "k8s.io/api/admission/v1"
	admissionv1beta1 "k8s.io/api/admission/v1beta1"
	apidiscoveryv2 "k8s.io/api/apidiscovery/v2"
	apidiscoveryv2beta1 "k8s.io/api/apidiscovery/v2beta1"
	corev1 "k8s.io/api/core/v1"
	imagepolicyv1alpha1 "k8s.io/api/imagepolicy/v1alpha1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/intstr"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	kjson "sigs.k8s.io/json"

	decoding "code.cloudfoundry.org/eirinix/internal/decode"
	"code.cloudfoundry.org/eirinix/internal/patch"
	. "code.cloudfoundry.org/eirinix/internal/spectest"
)

// canonical is how encoding/json writes a decoded tree.
func canonical(text []byte) string {
	GinkgoHelper()
	dec := json.NewDecoder(bytes.NewReader(text))
	dec.UseNumber()
	var v any
	Expect(dec.Decode(&v)).To(Succeed())
	out := Must(json.Marshal(v))
	return string(out)
}

type holder struct {
	V *Everything `json:"v,omitempty"`
}

var _ = Describe("Go types", func() {
	It("are written exactly as encoding/json writes them", func() {
		for _, v := range []*Everything{everything(), {Float: 1e-6, Double: 1e-6}, {Float: 1e21}} {
			ops, err := patch.Diff([]byte(`{}`), &holder{}, &holder{V: v})
			Expect(err).NotTo(HaveOccurred())
			Expect(ops).To(HaveLen(1))
			want := Must(json.Marshal(v))
			Expect(string(ops[0].Value.(json.RawMessage))).To(Equal(canonical(want)))
		}
	})

	DescribeTable("are patched where they differ",
		func(edit func(*Everything), want string) {
			origin := everything()
			origin.PointedIn = nil // a value without an address is not written by its pointer method, and so not read again either
			raw, err := json.Marshal(origin)
			Expect(err).NotTo(HaveOccurred())
			var before, after Everything
			Expect(json.Unmarshal(raw, &before)).To(Succeed())
			Expect(json.Unmarshal(raw, &after)).To(Succeed())
			edit(&after)
			ops, err := patch.Diff(raw, &before, &after)
			Expect(err).NotTo(HaveOccurred())
			text := wire(ops)
			Expect(text).To(MatchJSON(want))
			applied, err := apply(raw, []byte(text))
			Expect(err).NotTo(HaveOccurred())
			plain := Must(json.Marshal(&after))
			Expect(applied).To(MatchJSON(plain))
		},
		Entry("embedded pointer", func(e *Everything) { e.FromPointer = "x" }, `[{"op":"replace","path":"/FromPointer","value":"x"}]`),
		Entry("embedded pointer gone", func(e *Everything) { e.Behind = nil }, `[{"op":"remove","path":"/FromPointer"}]`),
		Entry("a field that hides an embedded one", func(e *Everything) { e.Hidden = "x"; e.Inline.Hidden = "y" },
			`[{"op":"replace","path":"/hidden","value":"x"}]`),
		Entry("a skipped field", func(e *Everything) { e.Skipped = "x" }, `[]`),
		Entry("false, not omitted", func(e *Everything) { e.Bool = false }, `[{"op":"replace","path":"/bool","value":false}]`),
		Entry("numbers in quotes", func(e *Everything) { *e.Quoted = 8; e.QuotedToo = "<" },
			`[{"op":"replace","path":"/quoted","value":"8"},{"op":"replace","path":"/quotedToo","value":"\"\\u003c\""}]`),
		Entry("bytes", func(e *Everything) { e.Bytes[0] = 1; e.NullBytes = []byte{} },
			`[{"op":"replace","path":"/bytes","value":"Af8B"},{"op":"add","path":"/nullBytes","value":""}]`),
		Entry("arrays, as a whole", func(e *Everything) { e.Array[1] = 9 }, `[{"op":"replace","path":"/array","value":[1,9]}]`),
		Entry("trees", func(e *Everything) {
			e.Any.(map[string]any)["b"].([]any)[0] = 2.5
			e.Any.(map[string]any)["c"] = []string{"s"}
		},
			`[{"op":"replace","path":"/any/b/0","value":2.5},{"op":"add","path":"/any/c","value":["s"]}]`),
		Entry("trees of another Go type", func(e *Everything) { e.Any = map[string]int{"a": 7} }, `[{"op":"remove","path":"/any/b"}]`),
		Entry("keys that are text", func(e *Everything) { e.Colours[3] = "x"; delete(e.Colours, 11); e.Colours[5] = "n" },
			`[{"op":"remove","path":"/colours/colour-11"},{"op":"replace","path":"/colours/colour-3","value":"x"},{"op":"add","path":"/colours/colour-5","value":"n"}]`),
		Entry("keys that are numbers", func(e *Everything) { e.Numbers[10] = Loop{Name: "x"} },
			`[{"op":"add","path":"/numbers/10/name","value":"x"}]`),
		Entry("nil and empty maps", func(e *Everything) { e.NullMap = map[string]string{}; e.Map["nil"] = &Loop{} },
			`[{"op":"add","path":"/map/nil","value":{}},{"op":"add","path":"/nullMap","value":{}}]`),
		Entry("the last key of a map", func(e *Everything) { clear(e.Deep["x"]) }, `[{"op":"remove","path":"/deep/x/y"}]`),
		Entry("types that contain themselves", func(e *Everything) { e.Loop.Children[0].Next.Next = &Loop{Name: "x"} },
			`[{"op":"add","path":"/loop/children/0/next/next","value":{"name":"x"}}]`),
		Entry("raw extensions", func(e *Everything) { e.Extension.Raw = []byte(`{"a":2,"z":"<"}`) },
			`[{"op":"replace","path":"/extension/a","value":2}]`),
		Entry("ports and durations", func(e *Everything) { e.Port = intstr.FromInt32(80); e.Duration.Duration = time.Hour },
			`[{"op":"replace","path":"/duration","value":"1h0m0s"},{"op":"replace","path":"/port","value":80}]`),
		Entry("types of which only the pointer marshals itself", func(e *Everything) { e.Pointed.text = "x" },
			`[{"op":"replace","path":"/pointed","value":"\u003cx\u003e"}]`),
		Entry("times", func(e *Everything) { e.Std = e.Std.Add(1); e.Micro = nil; e.Time = metav1.Time{} },
			`[{"op":"remove","path":"/micro"},{"op":"replace","path":"/std","value":"1970-01-01T00:00:05.000000008Z"},{"op":"remove","path":"/time"}]`),
	)

	It("are made valid where their text is not", func() {
		ops, _ := changePod(`{"metadata":{"name":"\u00e9","labels":{"\ud800":"x"}}}`, func(p *corev1.Pod) {
			p.Name, p.Labels["\ufffd"], p.Labels["k"] = "a\xffb", "y", "\xc3"
		})
		Expect(ops).To(Equal(`[{"op":"add","path":"/metadata/labels/k","value":"\ufffd"},{"op":"replace","path":"/metadata/labels/�","value":"y"},` +
			`{"op":"replace","path":"/metadata/name","value":"a\ufffdb"}]`))
	})

	It("report a value that JSON cannot hold, and its place", func() {
		for _, v := range []any{math.NaN(), math.Inf(1), make(chan int), json.Number("x"), func() {}} {
			_, err := patch.Diff([]byte(`{"v":{"any":1}}`), &holder{V: &Everything{Any: 1}}, &holder{V: &Everything{Any: v}})
			Expect(err).To(MatchError(ContainSubstring(`"/v/any"`)))
		}
	})

	It("refuse a map whose keys raw spells otherwise", func() {
		a, b := map[int]string{1: "a"}, map[int]string{1: "b"}
		_, err := patch.Diff([]byte(`{"01":"a"}`), &a, &b)
		Expect(err).To(MatchError(patch.ErrMismatch))
	})

	It("remove no member that raw never had", func() {
		before, err := decode[struct{ *Embedded }]([]byte(`{"A":"x"}`))
		Expect(err).NotTo(HaveOccurred())
		after := struct{ *Embedded }{}
		ops := Must(patch.Diff([]byte(`{"A":"x"}`), &before, &after))
		Expect(wire(ops)).To(Equal(`[{"op":"remove","path":"/A"}]`))
	})

	It("keep the unknown members of a struct that is left out when it is zero", func() {
		for raw, edit := range map[string]func(*Everything){
			`{"loop":{"name":"n","x-new":1}}`: func(e *Everything) { e.Loop = Loop{} },
			`{"loop":{"x-new":1}}`:            func(e *Everything) { e.Loop.Name = "n" },
		} {
			before, err := decode[Everything]([]byte(raw))
			Expect(err).NotTo(HaveOccurred())
			after, err := decode[Everything]([]byte(raw))
			Expect(err).NotTo(HaveOccurred())
			edit(&after)
			ops := Must(patch.Diff([]byte(raw), &before, &after))
			Expect(ops).To(HaveLen(1))
			Expect(ops[0].Path).To(Equal("/loop/name"))
		}
	})

	It("are replaced where they do not write the members that raw has", func() {
		type holder struct {
			V []Renamed `json:"v"`
		}
		raw := []byte(`{"v":[{"old":1,"x-new":1},{"new":1,"x-new":1}]}`)
		ops := Must(patch.Diff(raw, &holder{[]Renamed{{1}, {1}}}, &holder{[]Renamed{{2}, {2}}}))
		Expect(wire(ops)).To(Equal(`[{"op":"replace","path":"/v/0","value":{"new":2}},{"op":"replace","path":"/v/1/new","value":2}]`))
	})

	It("name the list with an item that JSON cannot hold", func() {
		before, after := map[string]any{"l": []any{1.0}}, map[string]any{"l": []any{1.0, math.NaN()}}
		_, err := patch.Diff([]byte(`{"l":[1]}`), &before, &after)
		Expect(err).To(MatchError(`an item of "/l" cannot be written as JSON: unsupported value NaN`))
	})

	It("are read only", func() {
		q, dec := resource.MustParse("1"), resource.MustParse("1")
		dec.ToDec()
		type quantities struct{ Q resource.Quantity }
		before, after := quantities{q}, quantities{dec}
		Expect(patch.Diff([]byte(`{"Q":"1"}`), &before, &after)).To(BeNil())
		Expect(before).To(Equal(quantities{resource.MustParse("1")}))
	})
})

// Everything that a custom resource's type may do with encoding/json.
type (
	Inline struct {
		FromInline string `json:"fromInline,omitempty"`
		Hidden     string `json:"hidden,omitempty"`
	}
	Behind   struct{ FromPointer string }
	Embedded struct{ A, B string }
	Colour   int
	Shouting string
	Loop     struct {
		Name     string          `json:"name,omitempty"`
		Children []Loop          `json:"children,omitempty"`
		Next     *Loop           `json:"next,omitempty"`
		Named    map[string]Loop `json:"named,omitempty"`
	}
	ByPointer  struct{ text string }
	Everything struct {
		Inline    `json:",inline"`
		*Behind   `json:",inline"`
		Hidden    string  `json:"hidden,omitempty"`
		Bool      bool    `json:"bool"`
		Int       int8    `json:"int,omitempty"`
		Uint      uint64  `json:"uint,omitempty"`
		Float     float32 `json:"float,omitempty"`
		Double    float64 `json:"double"`
		Text      string  `json:"text,omitempty"`
		Quoted    *int64  `json:"quoted,string,omitempty"`
		QuotedToo string  `json:"quotedToo,string,omitempty"`
		Skipped   string  `json:"-"`
		Dash      string  `json:"-,omitempty"` //nolint:staticcheck // legal, and so must work
		Untagged  string
		Bytes     []byte                       `json:"bytes,omitempty"`
		NullBytes []byte                       `json:"nullBytes"`
		Array     [2]int                       `json:"array"`
		Number    json.Number                  `json:"number,omitempty"`
		Any       any                          `json:"any,omitempty"`
		Colours   map[Colour]string            `json:"colours,omitempty"`
		Numbers   map[int]Loop                 `json:"numbers,omitempty"`
		Map       map[string]*Loop             `json:"map,omitempty"`
		NullMap   map[string]string            `json:"nullMap"`
		Loop      Loop                         `json:"loop,omitzero"`
		Loops     []*Loop                      `json:"loops,omitempty"`
		Matrix    [][]int                      `json:"matrix,omitempty"`
		Extension runtime.RawExtension         `json:"extension,omitempty"`
		Port      intstr.IntOrString           `json:"port,omitempty"`
		Duration  metav1.Duration              `json:"duration,omitempty"`
		Time      metav1.Time                  `json:"time,omitzero"`
		Micro     *metav1.MicroTime            `json:"micro,omitempty"`
		Quantity  *resource.Quantity           `json:"quantity,omitempty"`
		Pointed   ByPointer                    `json:"pointed"`
		PointedIn map[string]ByPointer         `json:"pointedIn,omitempty"`
		Shouting  Shouting                     `json:"shouting,omitempty"`
		Deep      map[string]map[string][]Loop `json:"deep,omitempty"`
		Std       time.Time                    `json:"std,omitzero"`
	}
)

// Renamed reads two spellings and writes one.
type Renamed struct{ n int }

func (r Renamed) MarshalJSON() ([]byte, error) { return fmt.Appendf(nil, `{"new":%d}`, r.n), nil }

func (r *Renamed) UnmarshalJSON(text []byte) error {
	var v struct{ Old, New int }
	err := json.Unmarshal(text, &v)
	r.n = v.Old + v.New
	return err
}

func (c Colour) MarshalText() ([]byte, error) { return fmt.Appendf(nil, "colour-%d", int(c)), nil }
func (c *Colour) UnmarshalText(t []byte) error {
	_, err := fmt.Sscanf(string(t), "colour-%d", (*int)(c))
	return err
}

func (s Shouting) MarshalText() ([]byte, error) { return []byte(strings.ToUpper(string(s))), nil }

func (s *Shouting) UnmarshalText(t []byte) error {
	*s = Shouting(strings.ToLower(string(t)))
	return nil
}
func (b *ByPointer) MarshalJSON() ([]byte, error) { return json.Marshal("<" + b.text + ">") }
func (b *ByPointer) UnmarshalJSON(text []byte) error {
	var s string
	err := json.Unmarshal(text, &s)
	b.text = strings.Trim(s, "<>")
	return err
}

func everything() *Everything {
	q, n := resource.MustParse("1500m"), int64(-7)
	return &Everything{
		Inline: Inline{FromInline: "i", Hidden: "h"}, Behind: &Behind{"b"}, Hidden: "visible", Bool: true, Int: -3, Uint: math.MaxUint64,
		Float: 1e-7, Double: 1e21, Text: "a<b>&\u2028\"\\\n\x01\x7f é", Quoted: &n, QuotedToo: `"<"`, Skipped: "s", Dash: "d", Untagged: "u",
		Bytes: []byte{0, 255, 1}, Array: [2]int{1, 2}, Number: "12e3", Any: map[string]any{"b": []any{1.5, nil, true, "x"}, "a": json.Number("7")},
		Colours: map[Colour]string{3: "c", 11: "k"}, Numbers: map[int]Loop{10: {}, 9: {Name: "n"}},
		Map: map[string]*Loop{"nil": nil, "b": {Name: "b"}}, Loop: Loop{Children: []Loop{{Next: &Loop{Name: "deep"}}}}, Loops: []*Loop{nil, {}},
		Matrix: [][]int{nil, {}, {1}}, Extension: runtime.RawExtension{Raw: []byte(`{ "a": 1, "z": "<" }`)}, Port: intstr.FromString("http"),
		Duration: metav1.Duration{Duration: time.Minute}, Time: metav1.Unix(1e9, 0), Micro: &metav1.MicroTime{Time: time.Unix(1, 5000)}, Quantity: &q,
		Pointed: ByPointer{"p"}, PointedIn: map[string]ByPointer{"k": {"in"}}, Shouting: "loud",
		Deep: map[string]map[string][]Loop{"x": {"y": {{Name: "z"}}}}, Std: time.Unix(5, 7).UTC(),
	}
}

// kindIn returns the kind that the name of a document says: <group>.<version>.<kind>.json. A watch event has no other place
// for it.
func kindIn(path string) schema.GroupVersionKind {
	GinkgoHelper()
	parts := strings.Split(strings.TrimSuffix(strings.TrimSuffix(filepath.Base(path), ".json"), ".after_roundtrip"), ".")
	Expect(len(parts)).To(BeNumerically(">", 2), path)
	last := len(parts) - 1
	group := strings.Join(parts[:last-1], ".")
	if group == "core" {
		group = ""
	}
	return schema.GroupVersionKind{Group: group, Version: parts[last-1], Kind: parts[last]}
}

// kinds returns the Go types of all published kinds: those of client-go, and those that only servers use.
func kinds() *runtime.Scheme {
	GinkgoHelper()
	all := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{
		clientgoscheme.AddToScheme, admissionv1.AddToScheme, admissionv1beta1.AddToScheme,
		apidiscoveryv2.AddToScheme, apidiscoveryv2beta1.AddToScheme, imagepolicyv1alpha1.AddToScheme,
	} {
		Expect(add(all)).To(Succeed())
	}
	return all
}

var _ = It("The published objects of Kubernetes are read as sigs.k8s.io/json does, need no patch unless they change, and a new label touches the label alone", Label("sequential"), func(ctx SpecContext) {
	dir, err := exec.CommandContext(ctx, "go", "list", "-m", "-f", "{{.Dir}}", "k8s.io/api").Output()
	Expect(err).NotTo(HaveOccurred())
	paths, err := filepath.Glob(filepath.Join(strings.TrimSpace(string(dir)), "testdata", "*", "*.json"))
	Expect(err).NotTo(HaveOccurred())
	typed, labelled, all := 0, 0, kinds()
	for _, path := range paths {
		kind := kindIn(path)
		if !all.Recognizes(kind) {
			Expect(path).NotTo(ContainSubstring("/HEAD/"), "a kind of the newest release has a Go type")
			continue
		}
		typed++
		raw, err := os.ReadFile(path)
		Expect(err).NotTo(HaveOccurred())
		object, theirs := Must(all.New(kind)), Must(all.New(kind))
		Expect(decoding.Into(raw, object)).To(Succeed(), path)
		Expect(kjson.UnmarshalCaseSensitivePreserveInts(raw, theirs)).To(Succeed(), path)
		if !reflect.DeepEqual(object, theirs) {
			Expect(object).To(Equal(theirs), path)
		}
		after := object.DeepCopyObject()
		Expect(patch.Diff(raw, object, after)).To(BeNil(), path)

		meta, hasLabels := after.(metav1.Object)
		if !hasLabels {
			continue
		}
		labelled++
		labels := meta.GetLabels()
		Expect(labels).To(HaveKey("labelsKey"), path)
		labels["example.org/added"] = "here"
		ops, err := patch.Diff(raw, object, after)
		Expect(err).NotTo(HaveOccurred(), path)
		Expect(string(patch.AppendJSON(nil, ops))).To(Equal(`[{"op":"add","path":"/metadata/labels/example.org~1added","value":"here"}]`), path)
	}
	AddReportEntry(fmt.Sprintf("%d documents: %d of kinds with a Go type, %d with labels", len(paths), typed, labelled))
	Expect(typed).To(BeNumerically(">", max(800, len(paths)*9/10)))
	Expect(labelled).To(BeNumerically(">", len(paths)*7/10))
})
