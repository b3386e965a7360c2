package convert_test

// This file holds the specs of all that a version cannot hold, or does not know.

import (
	"context"
	"encoding/json"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"testing"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
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

// thereAndBack converts an object to another version and back to its own, where it must be as it was.
func thereAndBack(k *convert.Kind, to, source string) (there, back string) {
	GinkgoHelper()
	k, counts := quietly(k)
	there = converted(k, to, source)
	var is metav1.TypeMeta
	Expect(json.Unmarshal([]byte(source), &is)).To(Succeed())
	back = converted(k, is.GroupVersionKind().Version, there)
	Expect(back).To(MatchJSON(source))
	Expect(counts.ignored).To(BeEmpty())
	return there, back
}

// onList returns a change of spec.list.
func onList(change func([]any) []any) func(map[string]any) {
	return func(o map[string]any) {
		spec := o["spec"].(map[string]any)
		spec["list"] = change(spec["list"].([]any))
	}
}

var _ = Describe("A member that the source's type does not know", func() {
	DescribeTable("is copied",
		func(from, want string) {
			Expect(converted(cronJobs(), "v1", object("v1alpha1", "", from))).To(MatchJSON(object("v1", "", want)))
		},
		Entry("as it is written", `"schedule":"1","x":{"large":9007199254740993,"larger":123456789012345678901234567890,"e":1e3,"zero":-0,"text":"\u00e9\/<"}`,
			`"schedule":{"minute":"1"},"suspend":false,"x":{"large":9007199254740993,"larger":123456789012345678901234567890,"e":1e3,"zero":-0,"text":"é/<"}`),
		Entry("to the same place", `"schedule":"1","x":{"y":[1,{"z":null}]}`, `"schedule":{"minute":"1"},"suspend":false,"x":{"y":[1,{"z":null}]}`),
		Entry("into an item with the same name", `"schedule":"1","steps":[{"name":"a"},{"name":"b","x":1}]`,
			`"schedule":{"minute":"1"},"suspend":false,"steps":[{"name":"a"},{"name":"b","x":1}]`),
		Entry("into a struct behind a pointer", `"schedule":"1","template":{"containers":[{"name":"c","resources":{},"x":7}],"x":true}`,
			`"schedule":{"minute":"1"},"suspend":false,"template":{"containers":[{"name":"c","resources":{},"x":7}],"x":true}`),
	)

	It("is not copied to a member that the target's type knows, but survives", func() {
		there, _ := thereAndBack(cronJobs(), "v1", object("v1alpha1", "", `"schedule":"1","timeZone":"UTC"`))
		Expect(there).NotTo(ContainSubstring(`"timeZone":"UTC"`))
		Expect(noteOf(there)).To(ContainSubstring(`"timeZone"`))
	})
})

var _ = Describe("A member that the target cannot hold", func() {
	DescribeTable("survives the way there and back",
		func(from string, entries string) {
			there, _ := thereAndBack(cronJobs(), "v1", object("v1alpha1", "", from))
			if entries == "" {
				Expect(noteOf(there)).To(BeEmpty())
				Expect(there).NotTo(ContainSubstring("annotations"))
			} else {
				Expect(noteOf(there)).To(MatchJSON(`{"v1alpha1":` + entries + `}`))
			}
		},
		Entry("if nothing is lost", `"schedule":"5 4","suspend":true,"limit":9007199254740993,"steps":[{"name":"a","image":"i"}],"rules":[{"match":"m","weight":1}]`, ""),
		Entry("as a struct", `"schedule":"5","owner":{"team":"t","mails":["a","b"]}`, `[{"path":["spec","owner","mails",["#"]],"value":"a","above":2},{"path":["spec","owner","mails",["#"]],"value":"b","after":"#","above":2},
			  {"path":["spec","owner","team"],"value":"t","above":1}]`),
		Entry("as a part of a string", `"schedule":"5 4 # at night"`, `[{"path":["spec","schedule"],"value":"5 4 # at night","base":"#"}]`),
		Entry("as a member of a named item", `"schedule":"5","steps":[{"name":"a"},{"name":"b","note":"n"}]`,
			`[{"path":["spec","steps",["name=b"],"note"],"value":"n"}]`),
		Entry("as the first item", `"schedule":"5","steps":[{"name":"a","local":true},{"name":"b"},{"name":"c"}]`,
			`[{"path":["spec","steps",["name=a"],"local"],"value":true,"above":1},{"path":["spec","steps",["name=a"]],"value":{"name":"a"}}]`),
		Entry("as items in the middle and behind", `"schedule":"5","steps":[{"name":"a"},{"name":"b","local":true},{"name":"c","local":true},{"name":"d"},{"name":"e","local":true}]`,
			`[{"path":["spec","steps",["name=b"],"local"],"value":true,"above":1},{"path":["spec","steps",["name=b"]],"value":{"name":"b"},"after":"name=a"},
			  {"path":["spec","steps",["name=c"],"local"],"value":true,"above":1},{"path":["spec","steps",["name=c"]],"value":{"name":"c"},"after":"name=b"},
			  {"path":["spec","steps",["name=e"],"local"],"value":true,"above":1},{"path":["spec","steps",["name=e"]],"value":{"name":"e"},"after":"name=d"}]`),
		Entry("as all items", `"schedule":"5","steps":[{"name":"a","local":true}]`, `[{"path":["spec","steps",["name=a"],"local"],"value":true,"above":2},{"path":["spec","steps",["name=a"]],"value":{"name":"a"},"above":1}]`),
		Entry("as a member of an item without a name", `"schedule":"5","rules":[{"match":"a"},{"match":"b","note":"n"}]`,
			`[{"path":["spec","rules",["#"],"note"],"value":"n"}]`),
		Entry("as members of items that are equal without them", `"schedule":"5","rules":[{"match":"a","note":"n"},{"match":"a","note":"m"}]`,
			`[{"path":["spec","rules",["0/2 #"],"note"],"value":"n"},{"path":["spec","rules",["1/2 #"],"note"],"value":"m"}]`),
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

		global := map[string]any{"a": "b"}
		t := trees(func(o map[string]any) { o["spec"].(map[string]any)["changed"] = "in place" }, func(o map[string]any) { o["spec"] = global })
		converted(t, "v1alpha1", object("v1", "", `"a":"b"`))
		Expect(global).To(Equal(map[string]any{"a": "b"}))
	})

	It("survives for a type that does not copy itself", func() {
		k := cronJobs()
		k.Versions[0].Type = reflect.TypeFor[*uncopied]()
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

	// structured-merge-diff leaves null in the place of an object of which a manager has given up all that a version has.
	It("survives in an object of which null is left", func() {
		k := trees(func(o map[string]any) {
			if spec, ok := o["spec"].(map[string]any); ok {
				delete(spec, "size")
			}
		}, unchanged)
		there := converted(k, "v1", object("v1alpha1", "", `"size":7,"color":"red"`))
		null := strings.Replace(there, `"spec":{"color":"red"}`, `"spec":null`, 1)
		Expect(null).To(ContainSubstring(`"spec":null`))
		back := converted(k, "v1alpha1", null)
		Expect(back).To(ContainSubstring(`"spec":{"size":7}`))

		empty := strings.Replace(object("v1alpha1", "", ""), `"spec":{}`, `"spec":null`, 1)
		Expect(empty).To(ContainSubstring(`"spec":null`))
		k = trees(unchanged, func(o map[string]any) { o["spec"] = map[string]any{} }) // as a Go type writes it
		Expect(noteOf(converted(k, "v1", empty))).To(BeEmpty(), "an empty object in its place is no loss")
	})

	DescribeTable("survives", func(k *convert.Kind, to, source, expected string) {
		there, back := thereAndBack(k, to, source)
		Expect(there + back).To(ContainSubstring(expected))
	},
		Entry("from the hub to a spoke", cronJobs(), "v1alpha1", object("v1", `,"annotations":{"a":"b"}`, `"schedule":{"minute":"5"},"suspend":false,"timeZone":"UTC"`), `"schedule":"5"`),
		Entry("from a tree to a Go type, as it is written", cronJobs(), "v1",
			object("v1beta1", "", `"when":{"minute":"5"},"suspend":false,"color":{"n":1e3,"large":123456789012345678901234567890}`), `"n":1e3,"large":123456789012345678901234567890`),
		Entry("as a label and an annotation", with(cronJobs(), edited(func(j *Job) {
			delete(j.Labels, "a")
			delete(j.Annotations, "b")
		}), nil), "v1", object("v1alpha1", `,"labels":{"a":"1","c":"2"},"annotations":{"b":"3"}`, `"schedule":"5"`), `"labels":{"c":"2"}`),
		Entry("in an item without a name, where its place is not sure", cronJobs(), "v1",
			object("v1alpha1", "", `"schedule":"1","rules":[{"match":"a","x":1},{"match":"b"}]`), `"rules":[{"match":"a"},{"match":"b"}]`),
		Entry("as the order of a list", trees(onList(func(l []any) []any { slices.Reverse(l); return l }), unchanged), "v1",
			object("v1alpha1", "", `"list":[{"name":"a"},{"name":"b"},{"name":"c"}]`), `[{"name":"c"},{"name":"b"},{"name":"a"}]`),
		Entry("as an item without a name, beside others that stay", trees(onList(func(l []any) []any { return l[1:] }), unchanged), "v1",
			object("v1alpha1", "", `"list":[{"a":1},{"a":2}]`), `[{"a":2}]`),
		Entry("as a number in a tree, as an API server writes it", trees(unchanged, unchanged), "v1",
			object("v1alpha1", "", `"list":[1000,-1,0.1,9223372036854775807,9223372036854776000,1e+21,1e-7]`), `[1000,-1,0.1,9223372036854775807,9223372036854776000,1e+21,1e-7]`),
	)

	It("travels with the object in a version that it does not belong to", func() {
		k := cronJobs()
		hub := converted(k, "v1", object("v1alpha1", "", `"schedule":"5 # x"`))
		Expect(noteOf(hub)).To(ContainSubstring("v1alpha1"))
		beta := converted(k, "v1beta1", hub)
		Expect(noteOf(beta)).To(Equal(noteOf(hub)))
		colored := replaced(beta, `"spec":{`, `"spec":{"color":"red",`)
		hub = converted(k, "v1", colored)
		Expect(noteOf(hub)).To(MatchJSON(`{"v1alpha1":[{"path":["spec","schedule"],"value":"5 # x","base":"#"}],"v1beta1":[{"path":["spec","color"],"value":"red"}]}`))
		alpha := converted(k, "v1alpha1", hub)
		Expect(alpha).To(ContainSubstring(`"schedule":"5 # x"`))
		Expect(noteOf(alpha)).To(MatchJSON(`{"v1beta1":[{"path":["spec","color"],"value":"red"}]}`))
	})

	DescribeTable("gives way to an edit",
		func(from, old, by, want string) {
			there := replaced(converted(cronJobs(), "v1", object("v1alpha1", "", from)), old, by)
			Expect(converted(cronJobs(), "v1alpha1", there)).To(MatchJSON(object("v1alpha1", "", want)))
		},
		Entry("of the same value", `"schedule":"5 4 # x"`, `"minute":"5"`, `"minute":"6"`, `"schedule":"6 4"`),
		Entry("but not to one of another value", `"schedule":"5 4 # x","limit":1`, `"limit":1`, `"limit":2`, `"schedule":"5 4 # x","limit":2`),
		Entry("that removes the item", `"schedule":"5","steps":[{"name":"a","note":"n"},{"name":"b"}]`, `{"name":"a"},`, ``, `"schedule":"5","steps":[{"name":"b"}]`),
		Entry("but not to one that adds an item in front", `"schedule":"5","steps":[{"name":"a"},{"name":"l","local":true}]`, `[{"name":"a"}`, `[{"name":"n"},{"name":"a"}`,
			`"schedule":"5","steps":[{"name":"n"},{"name":"a"},{"name":"l","local":true}]`),
		Entry("that adds an item of the name that was lost", `"schedule":"5","steps":[{"name":"a"},{"name":"l","local":true}]`, `[{"name":"a"}`, `[{"name":"l"},{"name":"a"}`,
			`"schedule":"5","steps":[{"name":"l"},{"name":"a"}]`),
		Entry("that removes the item in front of a lost one", `"schedule":"5","steps":[{"name":"a"},{"name":"l","local":true},{"name":"b"}]`, `{"name":"a"},`, ``,
			`"schedule":"5","steps":[{"name":"b"},{"name":"l","local":true}]`),
		Entry("that makes the names ambiguous", `"schedule":"5","steps":[{"name":"a","note":"n"},{"name":"b"}]`, `{"name":"b"}`, `{"name":"a"}`,
			`"schedule":"5","steps":[{"name":"a"},{"name":"a"}]`),
		Entry("that makes another item equal to it", `"schedule":"5","rules":[{"match":"a","note":"n"},{"match":"b"}]`, `{"match":"b"}`, `{"match":"a"}`,
			`"schedule":"5","rules":[{"match":"a"},{"match":"a"}]`),
		Entry("that changes a list whose items cannot be told apart", `"schedule":"5","rules":[{"match":"a","note":"n"},{"match":"a","note":"m"}]`, `[{"match":"a"},`, `[`,
			`"schedule":"5","rules":[{"match":"a"}]`),
	)

	It("does not count an empty list that the way back adds", func() {
		k := trees(unchanged, func(o map[string]any) { o["spec"].(map[string]any)["list"] = []any{} })
		Expect(noteOf(converted(k, "v1", object("v1alpha1", "", `"a":1`)))).To(BeEmpty())
	})

	It("stands for the absence of a value that the way back adds", func() {
		there, _ := thereAndBack(trees(unchanged, func(o map[string]any) {
			if spec := o["spec"].(map[string]any); spec["policy"] == nil {
				spec["policy"] = "Default"
			}
		}), "v1", object("v1alpha1", "", `"a":1`))
		Expect(noteOf(there)).To(MatchJSON(`{"v1alpha1":[{"path":["spec","policy"],"base":"#"}]}`))
	})

	It("is forgotten on request, also where it was kept before", func() {
		k := cronJobs()
		k.Forget = true
		source := object("v1alpha1", `,"annotations":{"a":"b"}`, `"schedule":"5 # x"`)
		Expect(converted(k, "v1", source)).To(MatchJSON(object("v1", `,"annotations":{"a":"b"}`, `"schedule":{"minute":"5"},"suspend":false`)))
		Expect(converted(k, "v1alpha1", converted(cronJobs(), "v1", source))).To(MatchJSON(object("v1alpha1", `,"annotations":{"a":"b"}`, `"schedule":"5"`)))
	})

	It("is shed if its annotation does not fit, and all that fits is kept", func() {
		k, counts := quietly(cronJobs())
		source := func(mails int, theirs int) string {
			return object("v1alpha1", `,"annotations":{"theirs":"`+strings.Repeat("t", theirs)+`"}`,
				`"schedule":"5 # x","owner":{"mails":["`+strings.Repeat("m", mails)+`"]}`)
		}
		total := func(object string) (n int) {
			for name, value := range notesOf(object) {
				n += len(name) + len(value)
			}
			return n
		}
		beside := total(converted(k, "v1", source(0, 0))) + len("theirs")
		there := converted(k, "v1", source(100<<10, 156<<10-beside)) // all of the API server's 256 KiB
		Expect(converted(k, "v1alpha1", there)).To(MatchJSON(source(100<<10, 156<<10-beside)))
		Expect(counts.shed).To(BeEmpty())

		there = converted(k, "v1", source(100<<10+200, 156<<10-beside))
		Expect(notesOf(there)).To(HaveKeyWithValue(convert.Incomplete, ContainSubstring(`{"v1alpha1":[".spec.owner`)))
		Expect(counts.shed).To(ConsistOf(ContainSubstring(`lost are [".spec.owner`)))
		Expect(converted(k, "v1alpha1", there)).To(And(ContainSubstring(`"schedule":"5 # x"`), Not(ContainSubstring(`"owner":`))))

		there = converted(k, "v1", source(1, 256<<10-len("theirs")-10)) // no room for a word
		Expect(notesOf(there)).To(BeEmpty())
		Expect(counts.shed).To(HaveLen(2))
		Expect(counts.failed).To(BeEmpty())
	})

	It("is shed before others if it is larger", func() {
		k, large := trees(func(o map[string]any) { clear(o["spec"].(map[string]any)) }, unchanged), ""
		for _, name := range strings.Split("abcdefgh", "") {
			large += `"` + name + `":"` + strings.Repeat("m", 256<<10) + `",`
		}
		there := converted(k, "v1", object("v1alpha1", "", large+`"team":"t"`))
		eight := MatchRegexp(`^{"v1alpha1":\[("\.spec\.[a-h]",?){8}\]}$`)
		Expect(notesOf(there)).To(HaveKeyWithValue(convert.Incomplete, eight))
		Expect(converted(k, "v1alpha1", there)).To(ContainSubstring(`"team":"t"`))
	})

	It("is found without comparing each byte again and again where lists nest deep", func() {
		k, _ := quietly(trees(func(o map[string]any) { delete(o["spec"].(map[string]any), "note") }, unchanged))
		cost := func(depth int) float64 {
			// The result has its members in another order, so that their texts are not compared.
			source := object("v1alpha1", "", `"note":"n","l":`+strings.Repeat(`[{"z":1,"l":`, depth)+`1`+strings.Repeat(`}]`, depth))
			Expect(converted(k, "v1alpha1", converted(k, "v1", source))).To(MatchJSON(source))
			return testing.AllocsPerRun(1, func() { converted(k, "v1", source) })
		}
		shallow := cost(100)
		Expect(cost(400) / shallow).To(BeNumerically("<", 8))
	})

	It("is named for as long as the object has lost it", func() {
		k := cronJobs()
		there := converted(k, "v1", object("v1alpha1", "", `"schedule":"5","owner":{"mails":["`+strings.Repeat("<", 300<<10)+`"]}`))
		Expect(notesOf(there)).To(HaveKey(convert.Incomplete))
		beta := converted(k, "v1beta1", there)
		Expect(notesOf(beta)).To(HaveKey(convert.Incomplete))
		alpha := converted(k, "v1alpha1", beta)
		Expect(notesOf(alpha)).To(HaveKey(convert.Incomplete))
		Expect(notesOf(converted(k, "v1", alpha))).To(BeEmpty(), "nothing is missing now of what v1alpha1 holds")
	})

	It("is given up if the way back fails, because one object would fail each list of its kind", func() {
		for _, broken := range []convert.Func{
			func(context.Context, kruntime.Object) (kruntime.Object, error) { return nil, errBroken },
			func(context.Context, kruntime.Object) (kruntime.Object, error) { panic(errBroken) },
		} {
			k, counts := quietly(with(cronJobs(), nil, broken))
			there := converted(k, "v1", object("v1alpha1", "", `"schedule":"5"`))
			Expect(notesOf(there)).To(HaveKeyWithValue(convert.Incomplete, ContainSubstring("broken on purpose")))
			Expect(counts.shed).To(ConsistOf(ContainSubstring("broken on purpose")))
			Expect(counts.failed).To(BeEmpty())
		}
	})

	DescribeTable("has its item back where others lack a name, or share one",
		func(steps string) {
			k, counts := quietly(cronJobs())
			source := object("v1alpha1", "", `"schedule":"5","steps":[`+steps+`],"limit":7`)
			there := converted(k, "v1", source)
			Expect(there).To(ContainSubstring(`"limit":7`))
			Expect(converted(k, "v1alpha1", strings.Replace(there, `"limit":7`, `"limit":8`, 1))).To(MatchJSON(strings.Replace(source, `"limit":7`, `"limit":8`, 1)))
			// A version-only member of an item with a name of its own survives an edit of another item.
			edited := converted(k, "v1alpha1", strings.Replace(there, `"image":"i"`, `"image":"j"`, 1))
			Expect(edited).To(ContainSubstring(`{"name":"own","note":"n"`))
			Expect(counts.ignored).To(BeEmpty())
		},
		Entry("two that share a name", `{"name":"own","note":"n"},{"name":"a","note":"1"},{"name":"a","note":"2","image":"i"}`),
		Entry("two without one", `{"name":"own","note":"n"},{"name":"","image":"i"},{"name":"","note":"2"}`),
	)

	It("takes time that grows as the object does", func() {
		k := cronJobs()
		cost := func(n int) (there, back float64) {
			var steps, rules []string
			for i := range n {
				steps = append(steps, fmt.Sprintf(`{"name":"%d","note":"n","local":%t}`, i/2, i%3 == 0), fmt.Sprintf(`{"name":"x%d","note":"n"}`, i))
				rules = append(rules, `{"match":"a","note":"n"}`, fmt.Sprintf(`{"match":"%d","note":"n"}`, i))
			}
			source := review("v1", object("v1alpha1", "", `"schedule":"5","steps":[`+strings.Join(steps, ",")+`],"rules":[`+strings.Join(rules, ",")+`]`))
			hub := review("v1alpha1", converted(k, "v1", string(source[strings.Index(string(source), `{"apiVersion":"batch`):len(source)-3])))
			return testing.AllocsPerRun(1, func() { answered(k, source) }), testing.AllocsPerRun(1, func() { answered(k, hub) })
		}
		there, back := cost(1500)
		thereTwice, backTwice := cost(6000)
		Expect(thereTwice / there).To(BeNumerically("<", 5))
		Expect(backTwice / back).To(BeNumerically("<", 5))
	})
})

var _ = Describe("An annotation that the program has not signed", func() {
	hub := func(notes map[string]string) string {
		return object("v1", annotations(notes), `"schedule":{"minute":"5"},"suspend":false`)
	}
	signed := func(k *convert.Kind) map[string]string {
		return notesOf(converted(k, "v1", object("v1alpha1", "", `"schedule":"5","owner":{"team":"t"}`)))
	}

	DescribeTable("stays as it is and is not applied",
		func(change func(name, value string) (string, string)) {
			notes := map[string]string{}
			for name, value := range signed(cronJobs()) {
				name, value = change(name, value)
				notes[name] = value
			}
			k, counts := quietly(cronJobs())
			got := converted(k, "v1alpha1", hub(notes))
			Expect(got).To(MatchJSON(object("v1alpha1", annotations(notes), `"schedule":"5"`)))
			Expect(counts.ignored).To(ConsistOf(ContainSubstring("1 annotations, such as "+convert.Prefix)), "once for the object")
			Expect(converted(k, "v1", got)).To(MatchJSON(hub(notes)))
			Expect(counts.failed).To(BeEmpty())
		},
		Entry("with another value", func(name, value string) (string, string) { return name, strings.Replace(value, `"t"`, `"root"`, 1) }),
		Entry("with another path", func(name, value string) (string, string) { return name, strings.Replace(value, "owner", "limit", 1) }),
		Entry("with an empty signature", func(name, value string) (string, string) {
			parts := strings.SplitN(value, ".", 3)
			return name, parts[0] + ".." + parts[2]
		}),
		Entry("that is empty", func(name, _ string) (string, string) { return name, "" }),
		Entry("that is long", func(name, _ string) (string, string) { return name, strings.Repeat("[", 200<<10) }),
		Entry("with another name", func(_, value string) (string, string) { return convert.Prefix + "x", value }),
	)

	It("is applied once its key is there", func() {
		k := cronJobs()
		k.Keys = keysOf("another key")
		notes := signed(cronJobs())
		stored := converted(k, "v1alpha1", hub(notes))
		Expect(stored).NotTo(ContainSubstring(`"owner":{`))
		Expect(notesOf(stored)).To(Equal(notes))
		k.Keys.Learn(keyOf("a key"))
		Expect(converted(k, "v1alpha1", converted(cronJobs(), "v1", stored))).To(ContainSubstring(`"owner":{"team":"t"}`))
		Expect(converted(k, "v1alpha1", hub(notes))).To(MatchJSON(object("v1alpha1", "", `"schedule":"5","owner":{"team":"t"}`)))
	})
})

var _ = Describe("A kept value of another object", func() {
	notes := func(spec string) map[string]string {
		return notesOf(converted(cronJobs(), "v1", object("v1alpha1", "", spec)))
	}

	It("is applied where its place is as it was there, and nowhere else", func() {
		k, counts := quietly(cronJobs())
		copied := annotations(notes(`"schedule":"5 # x","owner":{"team":"t"},"steps":[{"name":"a","note":"n"}]`))
		Expect(converted(k, "v1alpha1", object("v1", copied, `"schedule":{"minute":"6"},"suspend":false`))).To(
			MatchJSON(object("v1alpha1", "", `"schedule":"6","owner":{"team":"t"}`)))
		Expect(counts.ignored).To(BeEmpty())
	})

	It("does not fail the object that it breaks", func() {
		for _, broken := range []func() error{func() error { return errBroken }, func() error { panic("no owner is expected") }} {
			k, counts := quietly(with(cronJobs(), func(ctx context.Context, o kruntime.Object) (kruntime.Object, error) {
				if o.(*Alpha).Spec.Owner != nil {
					return nil, broken()
				}
				return alphaToHub(ctx, o)
			}, nil))
			copied := annotations(notes(`"schedule":"5","owner":{"team":"t"}`))
			got := converted(k, "v1alpha1", object("v1", copied, `"schedule":{"minute":"5"},"suspend":false`))
			Expect(got).To(MatchJSON(object("v1alpha1", copied, `"schedule":"5"`)))
			Expect(counts.ignored).To(ConsistOf(ContainSubstring("they break the object")))
			Expect(counts.failed).To(BeEmpty())
		}
	})
})

var _ = Describe("The keys", func() {
	source := object("v1alpha1", "", `"schedule":"5","owner":{"team":"t"}`)
	naming := func(from, n int) string {
		unknown := map[string]string{}
		for i := range n {
			unknown[fmt.Sprint(convert.Prefix, i)] = fmt.Sprintf("%08d.s.{}", from+i)
		}
		return object("v1", annotations(unknown), `"schedule":{"minute":"5"}`)
	}

	It("are waited for no longer than the call lasts that needs them", func(ctx SpecContext) {
		k, fetching := cronJobs(), make(chan struct{})
		k.Keys.Fetch = func(context.Context) ([][]byte, error) { close(fetching); <-ctx.Done(); return nil, nil }
		go func() { _, _ = k.Answer(ctx, review("v1alpha1", naming(0, 1)), nil) }()
		<-fetching
		over, cancel := context.WithTimeout(ctx, 1e8)
		defer cancel()
		Expect(k.Answer(over, review("v1alpha1", naming(0, 1)), nil)).NotTo(BeEmpty(), "while another call fetches them")
	}, SpecTimeout(6e10)) // a minute

	It("are fetched once for an object that names others, and never for one that does not", func() {
		fetched, k, published := 0, cronJobs(), [][]byte{keyOf("a key"), keyOf("a newer key")}
		k.Keys.Fetch = func(context.Context) ([][]byte, error) { fetched++; return published, nil }
		Expect(converted(k, "v1alpha1", converted(k, "v1", source))).To(MatchJSON(source))
		Expect(fetched).To(BeZero())
		newer := cronJobs()
		newer.Keys = keysOf("a newer key")
		Expect(converted(k, "v1alpha1", converted(newer, "v1", source))).To(MatchJSON(source), "another replica signs with the newer key")
		Expect(fetched).To(Equal(1))
		Expect(notesOf(converted(k, "v1", source))).To(Equal(notesOf(converted(newer, "v1", source))), "from now on, this one does, too")
		Expect(converted(k, "v1alpha1", converted(cronJobs(), "v1", source))).To(MatchJSON(source), "the older key still counts")
		Expect(fetched).To(Equal(1))

		for range 3 {
			converted(k, "v1alpha1", naming(0, 100))
		}
		Expect(fetched).To(Equal(2), "a key that was not there can have signed nothing since")
	})

	It("that are not there are remembered up to a bound", func() {
		fetched, k := 0, cronJobs()
		k.Keys.Fetch = func(context.Context) ([][]byte, error) { fetched++; return nil, nil }
		for i := range 6 {
			converted(k, "v1alpha1", naming(200*i, 200))
		}
		Expect(fetched).To(Equal(6))
		converted(k, "v1alpha1", naming(0, 1))
		Expect(fetched).To(Equal(7), "a client can write any number of names, so the oldest are forgotten")
	})

	It("are not fetched for the mark of an object that has lost values", func() {
		fetched, k := 0, cronJobs()
		k.Keys.Fetch = func(context.Context) ([][]byte, error) { fetched++; return nil, nil }
		Expect(notesOf(converted(k, "v1", object("v1alpha1", annotations(map[string]string{convert.Incomplete: `{"v1":[".spec.timeZone"]}`}), `"schedule":"5"`)))).To(HaveKey(convert.Incomplete))
		Expect(fetched).To(BeZero())
	})

	It("that cannot be fetched are the reason that is told, and are not fetched again for the next object", func() {
		k, counts := quietly(cronJobs())
		fetched, told := 0, ContainSubstring("not applied: broken on purpose")
		k.Keys.Fetch = func(context.Context) ([][]byte, error) { fetched++; return nil, errBroken }
		converted(k, "v1alpha1", converted(k, "v1", object("v1alpha1", annotations(map[string]string{convert.Prefix + "x": "12345678.s.{}"}), `"schedule":"5"`)))
		Expect(append(counts.ignored, fmt.Sprint(fetched))).To(ConsistOf(told, told, "1"))
	})

	It("sign nothing that is lost before there is one", func() {
		k := cronJobs()
		k.Keys = &convert.Keys{}
		Expect(failure(k, review("v1", source))).To(ContainSubstring("there is no key to sign"))
		Expect(converted(k, "v1", object("v1alpha1", "", `"schedule":"5"`))).NotTo(ContainSubstring("annotations"))
	})
})

var _ = DescribeTable("A hostile object fails alone, or not at all",
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
	Entry("with many empty items", `"rules":[`+strings.Repeat("{},", 1<<20)+`{}]`, "too much memory"),
	Entry("with invalid UTF-8", "\"x\":\"\xff\",\"limit\":7", ""),
)
