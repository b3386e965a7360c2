package patch_test

// This file specifies the operations for the members of an object, how they are written and applied, and what is refused.

import (
	"encoding/json"
	"fmt"
	"math"
	"reflect"
	"strings"
	"testing"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"gomodules.xyz/jsonpatch/v2"
	evanphx "gopkg.in/evanphx/json-patch.v4"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	kjson "sigs.k8s.io/json"

	"code.cloudfoundry.org/eirinix/internal/jsontext"
	"code.cloudfoundry.org/eirinix/internal/patch"
)

func TestPatch(t *testing.T) {
	RegisterFailHandler(Fail)
	RunSpecs(t, "Lossless patch")
}

// decode reads JSON as the API server and the webhook do: case-sensitive, unknown members ignored.
func decode[T any](raw []byte) (T, error) {
	var v T
	err := kjson.UnmarshalCaseSensitivePreserveInts(raw, &v)
	return v, err
}

// apply applies our answer as the API server does.
func apply(raw, wire []byte) ([]byte, error) {
	p, err := evanphx.DecodePatch(wire)
	if err != nil {
		return nil, err
	}
	return p.Apply(raw)
}

// wire renders operations, both ways at once.
func wire(ops []jsonpatch.Operation) string {
	GinkgoHelper()
	fast := string(patch.AppendJSON(nil, ops))
	slow, err := json.Marshal(ops)
	Expect(err).NotTo(HaveOccurred())
	if ops == nil {
		slow = []byte("[]")
	}
	Expect(fast).To(Equal(string(slow)), "AppendJSON and json.Marshal must agree")
	return fast
}

// change decodes raw, edits a deep copy, and returns the patch and its result in the API server. It checks the invariant of
// every patch: it applies, and the result decodes to the edited copy.
func change[T any, P interface {
	*T
	DeepCopy() *T
}](raw string, edit func(*T),
) (ops, applied string) {
	GinkgoHelper()
	v, err := decode[T]([]byte(raw))
	Expect(err).NotTo(HaveOccurred())
	before := P(&v)
	after := before.DeepCopy()
	edit(after)
	got, err := patch.Diff([]byte(raw), before, after)
	Expect(err).NotTo(HaveOccurred())
	ops = wire(got)
	result, err := apply([]byte(raw), []byte(ops))
	Expect(err).NotTo(HaveOccurred(), "patch %s", ops)
	have, err := decode[T](result)
	Expect(err).NotTo(HaveOccurred())
	want := roundTrip(after)
	Expect(equality.Semantic.DeepEqual(have, want)).To(BeTrue(), "patch %s\ngives %s", ops, result)
	if len(got) == 0 {
		Expect(got).To(BeNil(), "no change must give no operations at all")
	}
	return ops, string(result)
}

func roundTrip[T any](v *T) T {
	GinkgoHelper()
	text, err := json.Marshal(v)
	Expect(err).NotTo(HaveOccurred())
	back, err := decode[T](text)
	Expect(err).NotTo(HaveOccurred())
	return back
}

func changePod(raw string, edit func(*corev1.Pod)) (ops, applied string) {
	GinkgoHelper()
	return change[corev1.Pod](raw, edit)
}

const pod = `{"kind":"Pod","apiVersion":"v1","metadata":{"name":"p","creationTimestamp":null},` +
	`"spec":{"containers":[{"name":"app","image":"app:1","resources":{}}],"x-new":true},"status":{}}`

var _ = Describe("Diff", func() {
	DescribeTable("the members of an object",
		func(raw string, edit func(*corev1.Pod), want string) {
			ops, _ := changePod(raw, edit)
			Expect(ops).To(MatchJSON(want))
		},
		Entry("nothing changed", pod, func(*corev1.Pod) {}, `[]`),
		Entry("nothing changed but the spelling",
			pod, func(p *corev1.Pod) { p.Labels = map[string]string{}; p.Spec.Volumes = []corev1.Volume{} }, `[]`),
		Entry("a member that raw lacks", pod, func(p *corev1.Pod) { p.Spec.NodeName = "n" },
			`[{"op":"add","path":"/spec/nodeName","value":"n"}]`),
		Entry("a member that raw has", pod, func(p *corev1.Pod) { p.Name = "q" },
			`[{"op":"replace","path":"/metadata/name","value":"q"}]`),
		Entry("a member that raw has and the type omits, untouched",
			`{"spec":{"hostNetwork":false}}`, func(p *corev1.Pod) { p.Spec.NodeName = "n" },
			`[{"op":"add","path":"/spec/nodeName","value":"n"}]`),
		Entry("a cleared member", `{"spec":{"nodeName":"n"}}`, func(p *corev1.Pod) { p.Spec.NodeName = "" },
			`[{"op":"remove","path":"/spec/nodeName"}]`),
		Entry("a list that raw lacks is one operation", pod,
			func(p *corev1.Pod) {
				p.Spec.InitContainers = []corev1.Container{{Name: "i", Image: "i:1"}, {Name: "j"}}
			},
			`[{"op":"add","path":"/spec/initContainers","value":[{"image":"i:1","name":"i","resources":{}},{"name":"j","resources":{}}]}]`),
		Entry("a list that is null in raw", `{"spec":{"containers":null}}`,
			func(p *corev1.Pod) { p.Spec.Containers = []corev1.Container{{Name: "i"}} },
			`[{"op":"add","path":"/spec/containers","value":[{"name":"i","resources":{}}]}]`),
		Entry("a cleared list that is never omitted", `{"spec":{"containers":[{"name":"i"}]}}`,
			func(p *corev1.Pod) { p.Spec.Containers = nil },
			`[{"op":"replace","path":"/spec/containers","value":null}]`),
		Entry("all of a spec that raw lacks", `{"metadata":{"name":"p"}}`,
			func(p *corev1.Pod) { p.Spec.NodeName = "n"; p.Spec.HostNetwork = true },
			`[{"op":"add","path":"/spec","value":{"containers":null,"hostNetwork":true,"nodeName":"n"}}]`),
		Entry("a struct that is null in raw", `{"spec":null}`, func(p *corev1.Pod) { p.Spec.NodeName = "n" },
			`[{"op":"add","path":"/spec","value":{"containers":null,"nodeName":"n"}}]`),
		Entry("a map that raw lacks is one operation", pod,
			func(p *corev1.Pod) { p.Annotations = map[string]string{"b": "2", "a": "1"} },
			`[{"op":"add","path":"/metadata/annotations","value":{"a":"1","b":"2"}}]`),
		Entry("members of a map, in their order", `{"metadata":{"annotations":{"a":"1","b":"2","c":"3"}}}`,
			func(p *corev1.Pod) { p.Annotations = map[string]string{"0": "0", "a": "x", "b": "2", "d": "4"} },
			`[{"op":"add","path":"/metadata/annotations/0","value":"0"},{"op":"replace","path":"/metadata/annotations/a","value":"x"},`+
				`{"op":"remove","path":"/metadata/annotations/c"},{"op":"add","path":"/metadata/annotations/d","value":"4"}]`),
		Entry("names that a pointer must escape, empty ones and other alphabets", `{"metadata":{"annotations":{"a/b":"1","~":"2","":"3","é\u00e9\"":"4"}}}`,
			func(p *corev1.Pod) {
				p.Annotations = map[string]string{"a/b": "x", "~": "x", "": "x", "éé\"": "x", "~1": "n"}
			},
			`[{"op":"replace","path":"/metadata/annotations/","value":"x"},{"op":"replace","path":"/metadata/annotations/a~1b","value":"x"},`+
				`{"op":"replace","path":"/metadata/annotations/~0","value":"x"},{"op":"add","path":"/metadata/annotations/~01","value":"n"},`+
				`{"op":"replace","path":"/metadata/annotations/éé\"","value":"x"}]`),
		Entry("members that differ from ours by case are not ours", `{"spec":{"NodeName":"x","nodename":"y"}}`,
			func(p *corev1.Pod) { p.Spec.NodeName = "n" },
			`[{"op":"add","path":"/spec/nodeName","value":"n"}]`),
		Entry("a cleared struct keeps the members that only raw knows", `{"spec":{"containers":[]},"status":{"phase":"Running","x-new":1,"message":"m"}}`,
			func(p *corev1.Pod) { p.Status = corev1.PodStatus{} },
			`[{"op":"remove","path":"/status/message"},{"op":"remove","path":"/status/phase"}]`),
	)

	Describe("values that marshal themselves", func() {
		const limits = `{"spec":{"containers":[{"name":"a","resources":{"limits":{"cpu":"1000m","memory":"1024Mi"}}}]}}`

		It("leaves untouched quantities alone, whatever their spelling", func() {
			ops, applied := changePod(limits, func(p *corev1.Pod) {
				_ = p.Spec.Containers[0].Resources.Limits.Cpu().String()
				p.Spec.Containers[0].Image = "x"
			})
			Expect(ops).To(Equal(`[{"op":"add","path":"/spec/containers/0/image","value":"x"}]`))
			Expect(applied).To(ContainSubstring(`"cpu":"1000m"`))
		})
		It("writes changed quantities in their canonical form", func() {
			ops, _ := changePod(limits, func(p *corev1.Pod) {
				p.Spec.Containers[0].Resources.Limits["cpu"] = resource.MustParse("2500m")
				p.Spec.Containers[0].Resources.Requests = corev1.ResourceList{"memory": resource.MustParse("2048Mi")}
			})
			Expect(ops).To(Equal(`[{"op":"replace","path":"/spec/containers/0/resources/limits/cpu","value":"2500m"},` +
				`{"op":"add","path":"/spec/containers/0/resources/requests","value":{"memory":"2Gi"}}]`))
		})
		It("compares times as they are written", func() {
			const raw = `{"metadata":{"creationTimestamp":"2026-01-02T03:04:05Z","name":"p"}}`
			ops, _ := changePod(raw, func(p *corev1.Pod) {
				p.CreationTimestamp = metav1.NewTime(p.CreationTimestamp.Add(5))
			})
			Expect(ops).To(Equal(`[]`))
			ops, _ = changePod(raw, func(p *corev1.Pod) { p.CreationTimestamp = metav1.Time{} })
			Expect(ops).To(Equal(`[{"op":"remove","path":"/metadata/creationTimestamp"}]`))
		})
	})

	Describe("input that no right patch exists for", func() {
		diff := func(raw string, before, after *corev1.Pod) error {
			GinkgoHelper()
			ops, err := patch.Diff([]byte(raw), before, after)
			Expect(ops).To(BeNil())
			return err
		}
		two := &corev1.Pod{Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "a"}, {Name: "b"}}}}
		edited := two.DeepCopy()
		edited.Spec.Containers[1].Image = "x"

		DescribeTable("is refused",
			func(raw string, want error) { Expect(diff(raw, two, edited)).To(MatchError(want)) },
			Entry("nothing", ``, jsontext.ErrSyntax),
			Entry("another type of document", `[]`, patch.ErrMismatch),
			Entry("another type of list", `{"spec":{"containers":{}}}`, patch.ErrMismatch),
			Entry("fewer items", `{"spec":{"containers":[{"name":"a"}]}}`, patch.ErrMismatch),
			Entry("more items", `{"spec":{"containers":[{},{},{}]}}`, patch.ErrMismatch),
			Entry("another type of item", `{"spec":{"containers":[{},7]}}`, patch.ErrMismatch),
			Entry("half a document", `{"spec":{"containers":[{},{}`, jsontext.ErrSyntax),
			Entry("a document and a half", `{"spec":{"containers":[{},{}]}}{}`, jsontext.ErrSyntax),
			Entry("wrong brackets", `{"spec":{"containers":[{},{]}}}`, jsontext.ErrSyntax),
			Entry("no colon", `{"spec" {"containers":[{},{}]}}`, jsontext.ErrSyntax),
			Entry("a member twice in two spellings", `{"sp\u0065c":{},"spec":{"containers":[{},{}]}}`, patch.ErrDuplicate),
		)
		It("is not looked at when nothing has changed", func() {
			Expect(diff(`{`, two, two.DeepCopy())).To(Succeed())
		})
		It("names the place", func() {
			Expect(diff(`{"spec":{"containers":[{},7]}}`, two, edited)).To(
				MatchError(`raw JSON and decoded object disagree: raw has another kind of value than the Go type at "/spec/containers/1"`))
		})
		It("must be two pointers of one type", func() {
			for _, pair := range [][2]any{
				{nil, nil},
				{&corev1.Pod{}, nil},
				{&corev1.Pod{}, corev1.Pod{}},
				{&corev1.Pod{}, &corev1.Node{}},
				{&corev1.Pod{}, (*corev1.Pod)(nil)},
			} {
				_, err := patch.Diff([]byte(`{}`), pair[0], pair[1])
				Expect(err).To(HaveOccurred())
			}
		})
	})
})

// ownText marshals itself.
type ownText string

func (o ownText) MarshalJSON() ([]byte, error) { return []byte(o), nil }

var _ = Describe("AppendMembers", func() {
	It("writes pods as encoding/json does", func() {
		r := newPotter(uint64(GinkgoRandomSeed()))
		for range 50 {
			p := r.pod()
			text, err := patch.AppendMembers(nil, p)
			Expect(err).NotTo(HaveOccurred())
			want, err := json.Marshal(p)
			Expect(err).NotTo(HaveOccurred())
			Expect("{" + strings.TrimPrefix(string(text), ",") + "}").To(MatchJSON(want))
		}
	})

	DescribeTable("leaves members out, and puts a comma in front of the others",
		func(obj any, want string) {
			text, err := patch.AppendMembers([]byte("#"), obj, "metadata", "status", "é")
			Expect(err).NotTo(HaveOccurred())
			Expect(string(text)).To(Equal("#" + want))
		},
		Entry("of a struct", &corev1.ConfigMap{TypeMeta: metav1.TypeMeta{Kind: "ConfigMap"}, Data: map[string]string{"status": "<"}}, `,"data":{"status":"\u003c"},"kind":"ConfigMap"`),
		Entry("of a tree", &map[string]any{"metadata": 1, "b": []any{true}, "a": "x"}, `,"a":"x","b":[true]`),
		Entry("of an empty tree", map[string]any{}, ``),
		Entry("of a type that marshals itself", ownText(`{ "a" : 1 , "\u00e9" : {} , "status":2, "b":3 }`), `,"a":1,"b":3`),
	)

	DescribeTable("fails",
		func(obj any) {
			_, err := patch.AppendMembers(nil, obj)
			Expect(err).To(HaveOccurred())
		},
		Entry("for nil", nil),
		Entry("for a nil pointer", (*corev1.Pod)(nil)),
		Entry("for a nil map", map[string]any(nil)),
		Entry("for a list", []int{1}),
		Entry("for a number that JSON cannot hold", &struct{ F float64 }{math.NaN()}),
		Entry("for a type that writes no JSON", ownText(`{`)),
	)
})

var _ = Describe("AppendJSON", func() {
	DescribeTable("writes the same as json.Marshal, also for operations that are not ours",
		func(op jsonpatch.Operation) {
			want, err := json.Marshal([]jsonpatch.Operation{op, op})
			Expect(err).NotTo(HaveOccurred())
			Expect(string(patch.AppendJSON([]byte("before"), []jsonpatch.Operation{op, op}))).To(Equal("before" + string(want)))
		},
		Entry("remove", jsonpatch.NewOperation("remove", `/a~1"<é`, nil)),
		Entry("add nothing", jsonpatch.NewOperation("add", "/a", nil)),
		Entry("replace by nothing", jsonpatch.NewOperation("replace", "/a", nil)),
		Entry("text", jsonpatch.NewOperation("add", "/a", "<\u2028\x00>")),
		Entry("JSON", jsonpatch.NewOperation("add", "/a", json.RawMessage("{\"<\":\"&\u2029\u2027\"}"))),
		Entry("no JSON", jsonpatch.NewOperation("add", "/a", json.RawMessage(nil))),
		Entry("a tree", jsonpatch.NewOperation("test", "/a", map[string]any{"b": []int{1}, "a": 1.5})),
	)
	It("leaves a patch malformed that has a value which cannot be written", func() {
		Expect(json.Valid(patch.AppendJSON(nil, []jsonpatch.Operation{jsonpatch.NewOperation("add", "/a", make(chan int))}))).To(BeFalse())
	})
})

// agrees compares an applier with the one that the API server uses: the same value, or a failure of both.
func agrees(raw, wire []byte, applier func([]byte) ([]byte, error)) error {
	was := string(raw)
	want, wantErr := apply(raw, wire)
	have, haveErr := applier(raw)
	switch {
	case string(raw) != was:
		return fmt.Errorf("the raw JSON was changed by %s", wire)
	case (wantErr == nil) != (haveErr == nil):
		return fmt.Errorf("%s on %s: got error %w instead of %w", wire, raw, haveErr, wantErr)
	case wantErr != nil:
		return nil //nolint:nilerr // both failed, as they should
	case !json.Valid(have):
		return fmt.Errorf("%s on %s: %s is no JSON", wire, raw, have)
	case !reflect.DeepEqual(value(want), value(have)):
		return fmt.Errorf("%s on %s: got %s instead of %s", wire, raw, have, want)
	}
	return nil
}

func value(text []byte) (v any) {
	dec := json.NewDecoder(strings.NewReader(string(text)))
	dec.UseNumber()
	if err := dec.Decode(&v); err != nil {
		return err
	}
	return v
}

func applyWire(wire string) func([]byte) ([]byte, error) {
	return func(raw []byte) ([]byte, error) {
		result, _, err := patch.Apply(raw, []byte(wire))
		return result, err
	}
}

// appliedTo is the document that the patches below are applied to.
const appliedTo = ` { "a": {"b": [1, {"c": "x"}, null, []], "b~/": "é\n"}, "a\/b": {"\u0063": 1}, "n": null, "s": "text",
	"twice": 1, "twice": {"x": 2}, "e": {}, "l": [[1],[2]] } `

var patches = []string{
	`[]`, `null`, ` [ ] `, `{}`, `[{}]`, `[1]`, `[null]`, `x`, ``,
	`[{"op":"add","path":"/new","value":{"x":[1]}}]`,
	`[{"op":"add","path":"/new","value":{"x":[1]}},{"op":"add","path":"/new/x/0","value":0},{"op":"remove","path":"/new/x/1"}]`,
	`[{"op":"add","path":"/new","value":{"x":{"y":{}}}},{"op":"replace","path":"/new/x/y","value":null},{"op":"add","path":"/new/x/y/z","value":1}]`,
	`[{"op":"add","path":"/a/b/-","value":"<>&"}]`,
	`[{"op":"add","path":"/a/b/0","value":0},{"op":"add","path":"/a/b/5","value":9},{"op":"remove","path":"/a/b/1"}]`,
	`[{"op":"add","path":"/a/b/4","value":9}]`, `[{"op":"add","path":"/a/b/5","value":9}]`,
	`[{"op":"add","path":"/a/b/-1","value":9}]`, `[{"op":"add","path":"/a/b/01","value":9}]`, `[{"op":"add","path":"/a/b/+1","value":9}]`,
	`[{"op":"add","path":"/a/b/","value":9}]`, `[{"op":"add","path":"/a/b/x","value":9}]`, `[{"op":"add","path":"/a/b/99999999999999999999","value":9}]`,
	`[{"op":"add","path":"/a/b/1/d"}]`, `[{"op":"add","path":"/a/b/1/d","value":null}]`, `[{"op":"add","path":"/a/b/2/d","value":1}]`,
	`[{"op":"add","path":"/a/b/9/d","value":1}]`, `[{"op":"add","path":"/a/b/-/d","value":1}]`, `[{"op":"add","path":"/a/b/-3/c","value":1}]`,
	`[{"op":"add","path":"/s/d","value":1}]`, `[{"op":"add","path":"/n/d","value":1}]`, `[{"op":"add","path":"/missing/d","value":1}]`,
	`[{"op":"add","path":"/a~1b/d","value":1}]`, `[{"op":"add","path":"/a/b~0~1","value":1}]`, `[{"op":"remove","path":"/a/b~0~1"}]`,
	`[{"op":"remove","path":"/a~1b/c"}]`, `[{"op":"replace","path":"/a~1b/c","value":2}]`, `[{"op":"add","path":"/a~01b/c","value":2}]`,
	`[{"op":"replace","path":"/a/b/3","value":[2]},{"op":"add","path":"/a/b/3/0","value":[2]}]`, `[{"op":"replace","path":"/a/b/4","value":1}]`,
	`[{"op":"replace","path":"/a/b/-1","value":1}]`, `[{"op":"replace","path":"/a/b/-","value":1}]`,
	`[{"op":"replace","path":"/missing","value":1}]`, `[{"op":"replace","path":"/missing/x","value":1}]`, `[{"op":"replace","path":"/n","value":1}]`,
	`[{"op":"replace","path":"","value":{"x":1}}]`, `[{"op":"replace","path":"","value":1}]`, `[{"op":"add","path":"","value":{}}]`, `[{"op":"remove","path":""}]`,
	`[{"op":"replace","path":"/","value":1}]`, `[{"op":"add","path":"/","value":1},{"op":"remove","path":"/"}]`, `[{"op":"add","path":"x/y","value":1}]`,
	`[{"op":"remove","path":"/a"},{"op":"add","path":"/a","value":1},{"op":"remove","path":"/a"},{"op":"remove","path":"/a"}]`,
	`[{"op":"remove","path":"/n"}]`, `[{"op":"remove","path":"/missing"}]`, `[{"op":"remove","path":"/a/b/4"}]`, `[{"op":"remove","path":"/a/b/-1"}]`, `[{"op":"remove","path":"/a/b/-"}]`,
	`[{"op":"add","path":"/twice/y","value":1}]`, `[{"op":"remove","path":"/twice"}]`, `[{"op":"replace","path":"/twice","value":3}]`,
	`[{"op":"test","path":"/a/b/0","value":1},{"op":"add","path":"/ok","value":true}]`, `[{"op":"test","path":"/a/b/0","value":2},{"op":"add","path":"/ok","value":true}]`,
	`[{"op":"add","path":"/ok","value":true},{"op":"test","path":"/ok","value":true}]`, `[{"op":"test","path":"/missing"}]`,
	`[{"op":"move","from":"/a","path":"/moved"}]`, `[{"op":"copy","from":"/a","path":"/moved"},{"op":"add","path":"/moved/x","value":1}]`, `[{"op":"move","path":"/moved"}]`,
	`[{"op":"add","value":1}]`, `[{"op":"add","path":1,"value":1}]`, `[{"op":"ADD","path":"/x","value":1}]`, `[{"path":"/x","value":1}]`, `[{"op":"add","path":null,"value":1}]`,
	`[{"op":"add","path":"/l/0/-","value":2},{"op":"add","path":"/l/1/0","value":1},{"op":"add","path":"/l/2","value":[3]},{"op":"add","path":"/l/2/-","value":4}]`,
	`[{"op":"add","path":"/x","value":1},{"op":"remove","path":"/missing"}]`,
	`[{"op":"add","path":"/\u00e9","value":{"\ud800":"\ud83d\ude00"}},{"op":"add","path":"/é/x","value":1}]`,
}

var _ = Describe("Applying a patch", func() {
	It("returns the result of the API server's library, or fails where that fails", func() {
		for _, wire := range patches {
			for _, raw := range []string{appliedTo, `{}`, `{"a":{"b":{"0":1}}}`} {
				Expect(agrees([]byte(raw), []byte(wire), applyWire(wire))).To(Succeed())
			}
		}
	})

	It("counts the operations, and returns a reason for none", func() {
		_, count, err := patch.Apply([]byte(appliedTo), []byte(patches[10]))
		Expect(count, err).To(Equal(3))
		_, _, err = patch.Apply([]byte(appliedTo), []byte(`{}`))
		Expect(err).To(MatchError(HavePrefix("the patch is no JSON patch: ")))
		_, _, err = patch.Apply([]byte(appliedTo), []byte(`[{"op":"remove","path":"/x"}]`))
		Expect(err).To(MatchError(And(HavePrefix("the patch does not apply to the object: "), ContainSubstring("/x"))))
	})

	It("leaves values outside of the patch as they were written", func() {
		const raw = `{ "n" : 1e400, "deep" : {"a" : [ 1.0 , "\u0041" ]}, "x": 1 }`
		after, _, err := patch.Apply([]byte(raw), []byte(`[{"op":"add","path":"/y","value":2},{"op":"remove","path":"/x"}]`))
		Expect(string(after), err).To(Equal(`{"n":1e400,"deep":{"a" : [ 1.0 , "\u0041" ]},"y":2}`))
	})
})

var _ = Describe("The operations of a Patch", func() {
	raw := []byte(`{"metadata":{"name":"p","labels":{"a":"1"}},"spec":{"containers":[]}}`)
	made := func() (patch.Patch, []jsonpatch.Operation) {
		GinkgoHelper()
		before, err := decode[corev1.Pod](raw)
		Expect(err).NotTo(HaveOccurred())
		after := before.DeepCopy()
		after.Labels = map[string]string{"b": "2"}
		after.Name = "q"
		p, err := patch.Compare(raw, jsontext.Index{}, &before, after)
		Expect(err).NotTo(HaveOccurred())
		Expect(p.Len()).To(Equal(3))
		return p, p.Operations()
	}

	DescribeTable("are known again until they are changed:", func(same bool, change func([]jsonpatch.Operation) []jsonpatch.Operation) {
		p, ops := made()
		text := string(p.AppendJSON(nil))
		Expect(string(patch.AppendJSON(nil, ops))).To(Equal(text))
		Expect(p.Is(change(ops))).To(Equal(same))
		Expect(string(p.AppendJSON(nil))).To(Equal(text))
	},
		Entry("as they are", true, func(ops []jsonpatch.Operation) []jsonpatch.Operation { return ops }),
		Entry("copied", true, func(ops []jsonpatch.Operation) []jsonpatch.Operation {
			return append([]jsonpatch.Operation(nil), ops...)
		}),
		Entry("one more", false, func(ops []jsonpatch.Operation) []jsonpatch.Operation {
			return append(ops, jsonpatch.NewOperation("remove", "/x", nil))
		}),
		Entry("of another kind", false, func(ops []jsonpatch.Operation) []jsonpatch.Operation {
			ops[0].Operation = "test"
			return ops
		}),
		Entry("elsewhere", false, func(ops []jsonpatch.Operation) []jsonpatch.Operation {
			ops[0].Path += "x"
			return ops
		}),
		Entry("with another value", false, func(ops []jsonpatch.Operation) []jsonpatch.Operation {
			ops[len(ops)-1].Value = "q"
			return ops
		}),
		Entry("with a value that was changed where it stands", false, func(ops []jsonpatch.Operation) []jsonpatch.Operation {
			for _, op := range ops {
				if text, ok := op.Value.(json.RawMessage); ok {
					text[1] = '#'
				}
			}
			return ops
		}),
	)
})

func FuzzApply(f *testing.F) {
	for _, wire := range patches {
		f.Add(appliedTo, wire)
	}
	f.Fuzz(func(t *testing.T, raw, wire string) {
		var object map[string]any
		if json.Unmarshal([]byte(raw), &object) != nil || object == nil {
			return
		}
		defer func() {
			_ = recover() // the library that it is compared with panics, on a copy of null for one
		}()
		if err := agrees([]byte(raw), []byte(wire), applyWire(wire)); err != nil {
			t.Fatal(err)
		}
	})
}
