package convert_test

// This file holds the specs of all that a version cannot hold, or does not know.

import (
	"context"
	"fmt"
	"slices"
	"strings"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	kruntime "k8s.io/apimachinery/pkg/runtime"

	"code.cloudfoundry.org/eirinix/internal/convert"
)

// uncopied is a type that does not copy itself.
type uncopied struct {
	Alpha `json:",inline"`
}

func (*uncopied) DeepCopyObject() kruntime.Object { return nil }

// replaced replaces one text, which must be there.
func replaced(in, old, by string) string {
	GinkgoHelper()
	Expect(in).To(ContainSubstring(old))
	return strings.Replace(in, old, by, 1)
}

// quietly returns a kind whose Observer fails the spec if an annotation is ignored.
func quietly(k *convert.Kind) (*convert.Kind, *counter) {
	c := &counter{}
	k.Observer = c
	return k, c
}

var _ = Describe("A member that the source's type does not know", func() {
	DescribeTable("is copied",
		func(from, want string) {
			Expect(converted(cronJobs(), "v1", object("v1alpha1", "", from))).To(MatchJSON(object("v1", "", want)))
		},
		Entry("to the same place", `"schedule":"1","x":{"y":[1,{"z":null}]}`, `"schedule":{"minute":"1"},"suspend":false,"x":{"y":[1,{"z":null}]}`),
		Entry("into an item with the same name", `"schedule":"1","steps":[{"name":"a"},{"name":"b","x":1}]`,
			`"schedule":{"minute":"1"},"suspend":false,"steps":[{"name":"a"},{"name":"b","x":1}]`),
		Entry("into a struct behind a pointer", `"schedule":"1","template":{"containers":[{"name":"c","resources":{},"x":7}],"x":true}`,
			`"schedule":{"minute":"1"},"suspend":false,"template":{"containers":[{"name":"c","resources":{},"x":7}],"x":true}`),
	)

	It("is copied as it is written", func() {
		const member = `{"large":9007199254740993,"larger":123456789012345678901234567890,"e":1e3,"zero":-0,"text":"\u00e9\/<"}`
		got := converted(cronJobs(), "v1", object("v1alpha1", "", `"schedule":"1","x":`+member))
		Expect(got).To(ContainSubstring(`"x":` + member))
		Expect(noteOf(got)).To(BeEmpty())
	})

	It("is copied at the top of the object", func() {
		top := replaced(object("v1alpha1", "", `"schedule":"1"`), `"spec"`, `"extra":[1],"spec"`)
		Expect(converted(cronJobs(), "v1", top)).To(ContainSubstring(`"extra":[1]`))
	})

	It("is copied from the hub, and when losses are not kept", func() {
		k := cronJobs()
		k.Forget = true
		Expect(converted(k, "v1alpha1", object("v1", "", `"schedule":{"minute":"1","second":2},"x":1`))).To(
			MatchJSON(object("v1alpha1", "", `"schedule":"1","x":1`)))
	})

	It("is copied to a tree", func() {
		Expect(converted(cronJobs(), "v1beta1", object("v1", "", `"schedule":{"minute":"1"},"suspend":false,"x":1e3`))).To(
			ContainSubstring(`"x":1e3`))
	})

	It("is not copied to a member that the target's type knows, but survives", func() {
		k, counts := quietly(cronJobs())
		smuggled := object("v1alpha1", "", `"schedule":"1","timeZone":"UTC"`)
		there := converted(k, "v1", smuggled)
		Expect(there).NotTo(ContainSubstring(`"timeZone":"UTC"`))
		Expect(noteOf(there)).To(ContainSubstring(`"timeZone"`))
		Expect(converted(k, "v1alpha1", there)).To(MatchJSON(smuggled))
		Expect(counts.ignored).To(BeEmpty())
	})

	It("survives in an item without a name, where its place is not sure", func() {
		from := object("v1alpha1", "", `"schedule":"1","rules":[{"match":"a","x":1},{"match":"b"}]`)
		there := converted(cronJobs(), "v1", from)
		Expect(there).To(ContainSubstring(`"rules":[{"match":"a"},{"match":"b"}]`))
		Expect(converted(cronJobs(), "v1alpha1", there)).To(MatchJSON(from))
	})
})

var _ = Describe("A member that the target cannot hold", func() {
	DescribeTable("survives the way there and back",
		func(from string, entries string) {
			k, counts := quietly(cronJobs())
			source := object("v1alpha1", "", from)
			there := converted(k, "v1", source)
			if entries == "" {
				Expect(noteOf(there)).To(BeEmpty())
				Expect(there).NotTo(ContainSubstring("annotations"))
			} else {
				Expect(noteOf(there)).To(MatchJSON(`{"v1alpha1":` + entries + `}`))
			}
			Expect(converted(k, "v1alpha1", there)).To(MatchJSON(source))
			Expect(counts.ignored).To(BeEmpty())
		},
		Entry("if nothing is lost", `"schedule":"5 4","suspend":true,"limit":9007199254740993,"steps":[{"name":"a","image":"i"}],"rules":[{"match":"m","weight":1}]`, ""),
		Entry("as a struct", `"schedule":"5","owner":{"team":"t","mails":["a","b"]}`, `[{"path":["spec","owner"],"value":{"mails":["a","b"],"team":"t"}}]`),
		Entry("as a part of a string", `"schedule":"5 4 # at night"`, `[{"path":["spec","schedule"],"value":"5 4 # at night","base":"5 4"}]`),
		Entry("as a value that is there but false", `"schedule":"5","suspend":false`, `[{"path":["spec","suspend"],"value":false}]`),
		Entry("as a member of a named item", `"schedule":"5","steps":[{"name":"a"},{"name":"b","note":"n"}]`,
			`[{"path":["spec","steps",["b"],"note"],"value":"n"}]`),
		Entry("as the first item", `"schedule":"5","steps":[{"name":"a","local":true},{"name":"b"},{"name":"c"}]`,
			`[{"path":["spec","steps",["a"]],"value":{"name":"a","local":true}}]`),
		Entry("as items in the middle and behind", `"schedule":"5","steps":[{"name":"a"},{"name":"b","local":true},{"name":"c","local":true},{"name":"d"},{"name":"e","local":true}]`,
			`[{"path":["spec","steps",["b"]],"value":{"name":"b","local":true},"after":"a"},{"path":["spec","steps",["c"]],"value":{"name":"c","local":true},"after":"b"},
			  {"path":["spec","steps",["e"]],"value":{"name":"e","local":true},"after":"d"}]`),
		Entry("as all items", `"schedule":"5","steps":[{"name":"a","local":true}]`, `[{"path":["spec","steps"],"value":[{"name":"a","local":true}]}]`),
		Entry("as a member of an item without a name", `"schedule":"5","rules":[{"match":"a"},{"match":"b","note":"n"}]`,
			`[{"path":["spec","rules"],"value":{"match":"b","note":"n"},"base":{"match":"b"},"item":true}]`),
		Entry("as members of items that are equal without them", `"schedule":"5","rules":[{"match":"a","note":"n"},{"match":"a","note":"m"}]`,
			`[{"path":["spec","rules"],"value":[{"match":"a","note":"n"},{"match":"a","note":"m"}],"base":[{"match":"a"},{"match":"a"}]}]`),
		Entry("as several of those", `"schedule":"5 # x","owner":{"team":"t"},"rules":[{"match":"a","note":"n"}]`,
			`[{"path":["spec","owner"],"value":{"team":"t"}},{"path":["spec","rules"],"value":{"match":"a","note":"n"},"base":{"match":"a"},"item":true},
			  {"path":["spec","schedule"],"value":"5 # x","base":"5"}]`),
	)

	It("is looked for without a change of memory that the program shares between objects", func() {
		shared := map[string]string{"disk": "fast"}
		k := cronJobs()
		k.Versions[0].FromHub = func(ctx context.Context, o kruntime.Object) (kruntime.Object, error) {
			converted, err := alphaFromHub(ctx, o)
			converted.(*Alpha).Spec.Template = &corev1.PodSpec{NodeSelector: shared, Containers: []corev1.Container{{Name: "a"}}}
			return converted, err
		}
		k.Versions[0].ToHub = func(ctx context.Context, o kruntime.Object) (kruntime.Object, error) {
			o.(*Alpha).Spec.Template.NodeSelector["changed"] = "in place" // the argument is the function's own
			return alphaToHub(ctx, o)
		}
		Expect(converted(k, "v1alpha1", object("v1", "", `"schedule":{"minute":"1"},"timeZone":"CET","suspend":false`))).To(ContainSubstring(`"disk":"fast"`))
		Expect(shared).To(Equal(map[string]string{"disk": "fast"}))

		k = cronJobs()
		k.Versions[0].ToHub = func(context.Context, kruntime.Object) (kruntime.Object, error) {
			return &Job{Spec: JobSpec{Template: &corev1.PodSpec{NodeSelector: shared}}}, nil
		}
		k.Versions[1].FromHub = func(ctx context.Context, o kruntime.Object) (kruntime.Object, error) {
			o.(*Job).Spec.Template.NodeSelector["changed"] = "in place"
			return betaFromHub(ctx, o)
		}
		k.Forget = true
		answered(k, review("v1beta1", object("v1alpha1", "", `"schedule":"1"`)))
		Expect(shared).To(Equal(map[string]string{"disk": "fast"}), "by way of the hub")

		global := map[string]any{"a": "b"}
		t := trees(func(o map[string]any) { o["spec"].(map[string]any)["changed"] = "in place" }, func(o map[string]any) { o["spec"] = global })
		converted(t, "v1alpha1", object("v1", "", `"a":"b"`))
		Expect(global).To(Equal(map[string]any{"a": "b"}))
	})

	It("survives for a type that does not copy itself", func() {
		k := cronJobs()
		k.Versions[0].New = func() kruntime.Object { return &uncopied{} }
		spoke := func(f convert.Func) convert.Func {
			return func(ctx context.Context, o kruntime.Object) (kruntime.Object, error) {
				if u, ok := o.(*uncopied); ok {
					o = &u.Alpha
				}
				o, err := f(ctx, o)
				if a, ok := o.(*Alpha); ok {
					return &uncopied{*a}, err
				}
				return o, err
			}
		}
		k.Versions[0].ToHub, k.Versions[0].FromHub = spoke(alphaToHub), spoke(alphaFromHub)
		for _, zone := range []string{"", `,"timeZone":"CET"`} {
			hub := object("v1", "", `"schedule":{"minute":"1"},"suspend":false`+zone)
			Expect(converted(k, "v1", converted(k, "v1alpha1", hub))).To(MatchJSON(hub))
		}
	})

	It("survives from the hub to a spoke and back", func() {
		k, counts := quietly(cronJobs())
		source := object("v1", `,"annotations":{"a":"b"}`, `"schedule":{"minute":"5"},"suspend":false,"timeZone":"UTC"`)
		there := converted(k, "v1alpha1", source)
		Expect(there).NotTo(ContainSubstring(`"timeZone":"UTC"`))
		Expect(converted(k, "v1", there)).To(MatchJSON(source))
		Expect(counts.ignored).To(BeEmpty())
	})

	It("survives from a tree to a Go type and back, as it is written", func() {
		k, counts := quietly(cronJobs())
		source := object("v1beta1", "", `"when":{"minute":"5"},"suspend":false,"color":{"n":1e3,"large":123456789012345678901234567890}`)
		back := converted(k, "v1beta1", converted(k, "v1", source))
		Expect(back).To(MatchJSON(source))
		Expect(back).To(ContainSubstring(`"n":1e3,"large":123456789012345678901234567890`))
		Expect(counts.ignored).To(BeEmpty())
	})

	It("survives a way over all versions", func() {
		k, counts := quietly(cronJobs())
		source := object("v1alpha1", "", `"schedule":"5 4 # x","owner":{"team":"t"}`)
		at := source
		for _, version := range []string{"v1", "v1beta1", "v1", "v1beta1", "v1alpha1", "v1beta1", "v1alpha1"} {
			at = converted(k, version, at)
		}
		Expect(at).To(MatchJSON(source))
		Expect(counts.ignored).To(BeEmpty())
	})

	It("travels with the object in a version that it does not belong to", func() {
		k := cronJobs()
		hub := converted(k, "v1", object("v1alpha1", "", `"schedule":"5 # x"`))
		Expect(noteOf(hub)).To(ContainSubstring("v1alpha1"))
		beta := converted(k, "v1beta1", hub)
		Expect(noteOf(beta)).To(Equal(noteOf(hub)))
		colored := replaced(beta, `"spec":{`, `"spec":{"color":"red",`)
		hub = converted(k, "v1", colored)
		Expect(noteOf(hub)).To(MatchJSON(`{"v1alpha1":[{"path":["spec","schedule"],"value":"5 # x","base":"5"}],"v1beta1":[{"path":["spec","color"],"value":"red"}]}`))
		alpha := converted(k, "v1alpha1", hub)
		Expect(alpha).To(ContainSubstring(`"schedule":"5 # x"`))
		Expect(noteOf(alpha)).To(MatchJSON(`{"v1beta1":[{"path":["spec","color"],"value":"red"}]}`))
	})

	It("is kept for a version that is not served", func() {
		k := cronJobs()
		noted := object("v1alpha1", annotation(`{"v2":[{"path":["spec","z"],"value":1e3}]}`), `"schedule":"5 # x"`)
		Expect(noteOf(converted(k, "v1", noted))).To(MatchJSON(`{"v1alpha1":[{"path":["spec","schedule"],"value":"5 # x","base":"5"}],"v2":[{"path":["spec","z"],"value":1e3}]}`))
		Expect(noteOf(converted(k, "v1", noted))).To(ContainSubstring("1e3"))
	})

	It("survives for labels and annotations", func() {
		k := with(cronJobs(), edited(func(j *Job) {
			delete(j.Labels, "a")
			delete(j.Annotations, "b")
		}), nil)
		source := object("v1alpha1", `,"labels":{"a":"1","c":"2"},"annotations":{"b":"3"}`, `"schedule":"5"`)
		there := converted(k, "v1", source)
		Expect(there).To(ContainSubstring(`"labels":{"c":"2"}`))
		Expect(converted(k, "v1alpha1", there)).To(MatchJSON(source))
	})

	DescribeTable("gives way to an edit",
		func(from, old, by, want string) {
			there := replaced(converted(cronJobs(), "v1", object("v1alpha1", "", from)), old, by)
			Expect(converted(cronJobs(), "v1alpha1", there)).To(MatchJSON(object("v1alpha1", "", want)))
		},
		Entry("of the same value", `"schedule":"5 4 # x"`, `"minute":"5"`, `"minute":"6"`, `"schedule":"6 4"`),
		Entry("but not to one of another value", `"schedule":"5 4 # x","limit":1`, `"limit":1`, `"limit":2`, `"schedule":"5 4 # x","limit":2`),
		Entry("that removes the item", `"schedule":"5","steps":[{"name":"a","note":"n"},{"name":"b"}]`, `{"name":"a"},`, ``, `"schedule":"5","steps":[{"name":"b"}]`),
		Entry("but not to one that moves the item", `"schedule":"5","steps":[{"name":"a","note":"n"},{"name":"b"}]`, `[{"name":"a"},{"name":"b"}]`, `[{"name":"b"},{"name":"a"}]`,
			`"schedule":"5","steps":[{"name":"b"},{"name":"a","note":"n"}]`),
		Entry("but not to one that adds an item in front", `"schedule":"5","steps":[{"name":"a"},{"name":"l","local":true}]`, `[{"name":"a"}`, `[{"name":"n"},{"name":"a"}`,
			`"schedule":"5","steps":[{"name":"n"},{"name":"a"},{"name":"l","local":true}]`),
		Entry("that adds an item of the name that was lost", `"schedule":"5","steps":[{"name":"a"},{"name":"l","local":true}]`, `[{"name":"a"}`, `[{"name":"l"},{"name":"a"}`,
			`"schedule":"5","steps":[{"name":"l"},{"name":"a"}]`),
		Entry("that removes the item in front of a lost one", `"schedule":"5","steps":[{"name":"a"},{"name":"l","local":true},{"name":"b"}]`, `{"name":"a"},`, ``,
			`"schedule":"5","steps":[{"name":"b"},{"name":"l","local":true}]`),
		Entry("that makes the names ambiguous", `"schedule":"5","steps":[{"name":"a","note":"n"},{"name":"b"}]`, `{"name":"b"}`, `{"name":"a"}`,
			`"schedule":"5","steps":[{"name":"a"},{"name":"a"}]`),
		Entry("that moves an item without a name, which keeps its own", `"schedule":"5","rules":[{"match":"a","note":"n"},{"match":"b"}]`, `[{"match":"a"},{"match":"b"}]`, `[{"match":"b"},{"match":"a"}]`,
			`"schedule":"5","rules":[{"match":"b"},{"match":"a","note":"n"}]`),
		Entry("that makes another item equal to it", `"schedule":"5","rules":[{"match":"a","note":"n"},{"match":"b"}]`, `{"match":"b"}`, `{"match":"a"}`,
			`"schedule":"5","rules":[{"match":"a"},{"match":"a"}]`),
		Entry("that changes a list whose items cannot be told apart", `"schedule":"5","rules":[{"match":"a","note":"n"},{"match":"a","note":"m"}]`, `[{"match":"a"},`, `[`,
			`"schedule":"5","rules":[{"match":"a"}]`),
	)

	It("never moves to another item when the conversion reverses a list", func() {
		reverse := func(o map[string]any) {
			spec := o["spec"].(map[string]any)
			list := spec["list"].([]any)
			for i := range len(list) / 2 {
				list[i], list[len(list)-1-i] = list[len(list)-1-i], list[i]
			}
			for _, item := range list {
				delete(item.(map[string]any), "note")
			}
		}
		k := trees(reverse, unchanged)
		source := object("v1alpha1", "", `"list":[{"a":1,"note":"n"},{"a":2,"note":"m"}]`)
		there := converted(k, "v1", source)
		Expect(there).To(ContainSubstring(`"list":[{"a":2},{"a":1}]`))
		Expect(converted(k, "v1alpha1", replaced(there, `{"a":2},`, ""))).To(MatchJSON(object("v1alpha1", "", `"list":[{"a":1}]`)))
	})

	It("survives as the order of a list", func() {
		k, counts := quietly(trees(func(o map[string]any) { slices.Reverse(o["spec"].(map[string]any)["list"].([]any)) }, unchanged))
		source := object("v1alpha1", "", `"list":[{"name":"a"},{"name":"b"},{"name":"c"}]`)
		there := converted(k, "v1", source)
		Expect(there).To(ContainSubstring(`[{"name":"c"},{"name":"b"},{"name":"a"}]`))
		Expect(converted(k, "v1alpha1", there)).To(MatchJSON(source))
		Expect(counts.ignored).To(BeEmpty())
	})

	It("survives as the last digit of a large number", func() {
		k, counts := quietly(trees(func(o map[string]any) {
			spec := o["spec"].(map[string]any)
			spec["n"] = spec["n"].(int64) &^ 1
		}, unchanged))
		source := object("v1alpha1", "", `"n":9007199254740993`)
		there := converted(k, "v1", source)
		Expect(there).To(ContainSubstring(`"n":9007199254740992`))
		Expect(converted(k, "v1alpha1", there)).To(ContainSubstring(`"n":9007199254740993`))
		Expect(counts.ignored).To(BeEmpty())
	})

	It("gives way to an edit that the other version cannot see either", func() {
		k := trees(func(o map[string]any) {
			spec := o["spec"].(map[string]any)
			spec["tens"] = spec["n"].(int64) / 10
			delete(spec, "n")
		}, func(o map[string]any) {
			spec := o["spec"].(map[string]any)
			n := spec["tens"].(int64) * 10
			if spec["odd"] == true {
				n++
			}
			spec["n"] = n
			delete(spec, "tens")
			delete(spec, "odd")
		})
		there := converted(k, "v1", object("v1alpha1", "", `"n":13`))
		Expect(converted(k, "v1alpha1", there)).To(ContainSubstring(`"n":13`))
		Expect(converted(k, "v1alpha1", replaced(there, `"tens":1`, `"tens":1,"odd":true`))).To(ContainSubstring(`"n":11`))
	})

	It("does not count an empty list that the way back adds", func() {
		k := trees(unchanged, func(o map[string]any) { o["spec"].(map[string]any)["list"] = []any{} })
		Expect(noteOf(converted(k, "v1", object("v1alpha1", "", `"a":1`)))).To(BeEmpty())
	})

	It("stands for the absence of a value that the way back adds", func() {
		k, counts := quietly(trees(unchanged, func(o map[string]any) {
			if spec := o["spec"].(map[string]any); spec["policy"] == nil {
				spec["policy"] = "Default"
			}
		}))
		source := object("v1alpha1", "", `"a":1`)
		there := converted(k, "v1", source)
		Expect(noteOf(there)).To(MatchJSON(`{"v1alpha1":[{"path":["spec","policy"],"base":"Default"}]}`))
		Expect(converted(k, "v1alpha1", there)).To(MatchJSON(source))
		Expect(counts.ignored).To(BeEmpty())
	})

	It("is forgotten on request, also where it was kept before", func() {
		k := cronJobs()
		k.Forget = true
		source := object("v1alpha1", `,"annotations":{"a":"b"}`, `"schedule":"5 # x"`)
		Expect(converted(k, "v1", source)).To(MatchJSON(object("v1", `,"annotations":{"a":"b"}`, `"schedule":{"minute":"5"},"suspend":false`)))
		Expect(converted(k, "v1alpha1", converted(cronJobs(), "v1", source))).To(MatchJSON(object("v1alpha1", `,"annotations":{"a":"b"}`, `"schedule":"5"`)))
	})

	It("fails the object if it does not fit the annotation", func() {
		mails := func(n int) string {
			return object("v1alpha1", "", `"schedule":"5","owner":{"mails":["`+strings.Repeat("m", n)+`"]}`)
		}
		const beside = len(`{"v1alpha1":[{"path":["spec","owner"],"value":{"mails":[""]}}]}`)
		there := converted(cronJobs(), "v1", mails(64<<10-beside))
		Expect(noteOf(there)).To(HaveLen(64 << 10))
		Expect(converted(cronJobs(), "v1alpha1", there)).To(MatchJSON(mails(64<<10 - beside)))
		Expect(failure(cronJobs(), review("v1", mails(64<<10-beside+1)))).To(And(ContainSubstring("65537 bytes of at most 65536"), ContainSubstring("set Forget")))
	})
})

var _ = Describe("A number in a tree", func() {
	It("stays as it is written", func() {
		const numbers = `"list":[1e3,-0,0.10,9223372036854775807,9223372036854775808,123456789012345678901234567890,1E+2]`
		k, counts := quietly(trees(func(o map[string]any) { o["spec"].(map[string]any)["more"] = true }, func(o map[string]any) { delete(o["spec"].(map[string]any), "more") }))
		there := converted(k, "v1", object("v1alpha1", "", numbers))
		Expect(there).To(ContainSubstring(numbers))
		Expect(noteOf(there)).To(BeEmpty())
		Expect(converted(k, "v1alpha1", there)).To(ContainSubstring(numbers))
		Expect(counts.ignored).To(BeEmpty())
	})

	It("stays as it is written when losses are not kept", func() {
		k := trees(unchanged, unchanged)
		k.Forget = true
		Expect(converted(k, "v1", object("v1alpha1", "", `"a":1e3`))).To(ContainSubstring(`"a":1e3`))
	})

	It("is an int64 or a float64 for the conversion", func() {
		var seen []any
		k := trees(func(o map[string]any) { seen = o["spec"].(map[string]any)["list"].([]any) }, unchanged)
		converted(k, "v1", object("v1alpha1", "", `"list":[9007199254740993,1e3]`))
		Expect(seen).To(Equal([]any{int64(9007199254740993), float64(1000)}))
	})
})

var _ = Describe("The annotation of a hostile object", func() {
	entry := func(path, rest string) string { return `{"v1alpha1":[{"path":` + path + rest + `}]}` }

	DescribeTable("is ignored, with the reason",
		func(value, reason string) {
			k, counts := quietly(cronJobs())
			got := converted(k, "v1alpha1", object("v1", value, `"schedule":{"minute":"5"},"suspend":false`))
			Expect(got).To(MatchJSON(object("v1alpha1", "", `"schedule":"5"`)))
			Expect(counts.ignored).To(ConsistOf(ContainSubstring(reason)))
			Expect(counts.failed).To(BeEmpty())
		},
		Entry("that is no JSON", annotation(`{`), "not well-formed"),
		Entry("that is empty", annotation(``), "not well-formed"),
		Entry("that is a number", `,"annotations":{"`+convert.Annotation+`":7}`, "not a string"),
		Entry("that is a list", annotation(`[]`), "not a JSON object"),
		Entry("that holds no list", annotation(`{"v1alpha1":{}}`), `"v1alpha1" is not a list`),
		Entry("that holds a version twice", annotation(`{"v1alpha1":[],"v1alpha1":[]}`), "occurs twice"),
		Entry("that is too large", annotation(`{"v1alpha1":[`+strings.Repeat(" ", 64<<10)+`]}`), "at most 65536"),
		Entry("that nests too deep", annotation(`{"v1alpha1":[`+strings.Repeat("[", 2000)+strings.Repeat("]", 2000)+`]}`), "nests deeper"),
		Entry("whose entry is no object", annotation(`{"v1alpha1":[7]}`), "no path"),
		Entry("with an empty path", annotation(entry(`[]`, `,"value":1`)), "path is malformed"),
		Entry("with a path of numbers", annotation(entry(`["spec",1]`, `,"value":1`)), "path is malformed"),
		Entry("with a path to the apiVersion", annotation(entry(`["apiVersion"]`, `,"value":"v7"`)), "no conversion changes"),
		Entry("with a path to the name", annotation(entry(`["metadata","name"]`, `,"value":"x","base":"nightly"`)), "no conversion changes"),
		Entry("with a path to all metadata", annotation(entry(`["metadata"]`, `,"value":{}`)), "no conversion changes"),
		Entry("with a path to itself", annotation(entry(`["metadata","annotations","`+convert.Annotation+`"]`, `,"value":"{}"`)), "no conversion changes"),
		Entry("that changes a value which the source holds, too", annotation(entry(`["spec","schedule"]`, `,"value":"0 0","base":"5"`)), "it changes the object as v1"),
		Entry("that adds a step", annotation(entry(`["spec","steps"]`, `,"value":[{"name":"evil"}]`)), "it changes the object as v1"),
		Entry("that adds a label", annotation(entry(`["metadata","labels"]`, `,"value":{"a":"b"}`)), "it changes the object as v1"),
		Entry("that adds a label which is a number", annotation(entry(`["metadata","labels"]`, `,"value":{"a":1}`)), "it changes the object as v1"),
		Entry("whose value does not fit the type", annotation(entry(`["spec","owner"]`, `,"value":"x"`)), "it changes the object as v1"),
	)

	DescribeTable("is ignored where there is no such place",
		func(path, rest string) {
			k, counts := quietly(cronJobs())
			got := converted(k, "v1alpha1", object("v1", annotation(entry(path, rest)), `"schedule":{"minute":"5"},"suspend":false,"steps":[{"name":"a"}]`))
			Expect(got).To(MatchJSON(object("v1alpha1", "", `"schedule":"5","steps":[{"name":"a"}]`)))
			Expect(counts.failed).To(BeEmpty())
		},
		Entry("an absent parent", `["spec","owner","team"]`, `,"value":"x"`),
		Entry("a parent that is a string", `["spec","schedule","x"]`, `,"value":"x"`),
		Entry("a name that there is not", `["spec","steps",["b"],"note"]`, `,"value":"x"`),
		Entry("an item of an object", `["spec",["b"]]`, `,"value":{"name":"b"}`),
		Entry("a list that is an object", `["spec"]`, `,"value":1,"base":{},"item":true`),
		Entry("an item that is lost and has a base", `["spec","steps",["b"]]`, `,"value":{"name":"b","local":true},"base":{"name":"b"}`),
		Entry("no value at all", `["spec","steps",["b"]]`, ``),
		Entry("no value, and no base of an item", `["spec","steps"]`, `,"item":true`),
	)

	It("is applied as far as it makes no difference to the source", func() {
		k, counts := quietly(cronJobs())
		value := annotation(`{"v1alpha1":[{"path":["spec","owner"],"value":{"team":"t"}},{"path":["spec","limit"],"value":7}]}`)
		got := converted(k, "v1alpha1", object("v1", value, `"schedule":{"minute":"5"},"suspend":false`))
		Expect(got).To(MatchJSON(object("v1alpha1", "", `"schedule":"5","owner":{"team":"t"}`)))
		Expect(counts.ignored).To(ConsistOf(ContainSubstring("entry 1 for v1alpha1")))
	})

	It("is ignored as a whole if too many entries would have to be tried", func() {
		k, counts := quietly(cronJobs())
		entries := `{"path":["spec","limit"],"value":7}` + strings.Repeat(`,{"path":["spec","owner"],"value":{"team":"t"}}`, 32)
		got := converted(k, "v1alpha1", object("v1", annotation(`{"v1alpha1":[`+entries+`]}`), `"schedule":{"minute":"5"},"suspend":false`))
		Expect(got).To(MatchJSON(object("v1alpha1", "", `"schedule":"5"`)))
		Expect(counts.ignored).To(ConsistOf(ContainSubstring("all entries for v1alpha1")))
	})

	It("does not fail the object if the conversion panics on its contents", func() {
		k, counts := quietly(with(cronJobs(), func(ctx context.Context, o kruntime.Object) (kruntime.Object, error) {
			if o.(*Alpha).Spec.Owner != nil {
				panic("no owner is expected")
			}
			return alphaToHub(ctx, o)
		}, nil))
		got := converted(k, "v1alpha1", object("v1", annotation(entry(`["spec","owner"]`, `,"value":{"team":"t"}`)), `"schedule":{"minute":"5"},"suspend":false`))
		Expect(got).To(MatchJSON(object("v1alpha1", "", `"schedule":"5"`)))
		Expect(counts.panics).NotTo(BeEmpty())
	})

	It("is found under an escaped name", func() {
		escaped := `,"annotations":{"eirinix.cloudfoundry.org\/conversion":"{}"}`
		Expect(noteOf(converted(cronJobs(), "v1", object("v1alpha1", escaped, `"schedule":"5"`)))).To(BeEmpty())
	})
})

var _ = Describe("A hostile object", func() {
	DescribeTable("fails alone, or not at all",
		func(spec, reason string) {
			r := answered(cronJobs(), review("v1", object("v1alpha1", "", `"schedule":"5",`+spec)))
			if reason == "" {
				Expect(r.Result.Message).To(BeEmpty())
				Expect(r.ConvertedObjects).To(HaveLen(1))
				return
			}
			Expect(r.Result.Message).To(ContainSubstring(reason))
			Expect(r.Result.Message).To(HavePrefix("object 0 (CronJob cf/nightly) from v1alpha1 to v1: "))
		},
		Entry("that nests in an unknown member", `"x":`+strings.Repeat("[", 900)+strings.Repeat("]", 900), ""),
		Entry("that nests deeper", `"x":`+strings.Repeat("[", 5000)+strings.Repeat("]", 5000), "nests deeper than 1000"),
		Entry("with more values than memory", `"x":[`+strings.Repeat("0,", 1<<20)+`0]`, "too many values"),
		Entry("with many empty items", `"rules":[`+strings.Repeat("{},", 1<<20)+`{}]`, "too much memory"),
		Entry("with many members", `"x":{`+manyMembers(20_000)+`}`, ""),
		Entry("with many members, of which two are the same", `"x":{`+manyMembers(1000)+`,"m7":1}`, `"m7" occurs twice`),
		Entry("with invalid UTF-8", "\"x\":\"\xff\",\"limit\":7", ""),
		Entry("with a large exponent", `"x":1e999999999`, ""),
	)
})

func manyMembers(n int) string {
	members := make([]string, n)
	for i := range members {
		members[i] = fmt.Sprintf(`"m%d":%d`, i, i)
	}
	return strings.Join(members, ",")
}
