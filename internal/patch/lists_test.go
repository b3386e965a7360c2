package patch_test

// This file specifies how the items of lists are paired, and what becomes of those that come, go, move and change.

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"code.cloudfoundry.org/eirinix/internal/patch"
)

// containers is a pod whose containers have the given names, each with a member that only raw knows; it ends in
// stars for a name that comes again. The first one is long, so that it pays to leave it where it is.
func containers(names ...string) string {
	items := make([]string, len(names))
	again := map[string]string{}
	for i, n := range names {
		items[i] = fmt.Sprintf(`{"name":%q,"image":"i:%d","x-new":"of %s%s"}`, n, i, n, again[n])
		again[n] += "*"
		if i == 0 {
			items[i] = strings.Replace(items[i], "{", `{"x-long":"`+strings.Repeat("long", 50)+`",`, 1)
		}
	}
	return `{"spec":{"containers":[` + strings.Join(items, ",") + `]}}`
}

// owners lists name=unknown member of the containers of a patched pod.
func owners(applied string) []string {
	GinkgoHelper()
	var p struct {
		Spec struct {
			Containers []struct {
				Name string
				New  string `json:"x-new"`
			}
		}
	}
	Expect(json.Unmarshal([]byte(applied), &p)).To(Succeed())
	var out []string
	for _, c := range p.Spec.Containers {
		out = append(out, c.Name+"="+c.New)
	}
	return out
}

var _ = Describe("Lists", func() {
	fresh := corev1.Container{Name: "new", Image: "n:1"}

	DescribeTable("keep the unknown members of an item on that item",
		func(names []string, edit func([]corev1.Container) []corev1.Container, wantOps string, wantOwners ...string) {
			ops, applied := changePod(containers(names...), func(p *corev1.Pod) { p.Spec.Containers = edit(p.Spec.Containers) })
			Expect(ops).To(MatchJSON(wantOps))
			Expect(owners(applied)).To(Equal(wantOwners))
		},
		Entry("insert, and edit and rename others", []string{"a", "b"},
			func(c []corev1.Container) []corev1.Container {
				c[0].Image, c[1].Name = "x", "z"
				return slices.Insert(c, 0, fresh)
			},
			`[{"op":"add","path":"/spec/containers/0","value":{"image":"n:1","name":"new","resources":{}}},`+
				`{"op":"replace","path":"/spec/containers/1/image","value":"x"},`+
				`{"op":"replace","path":"/spec/containers/2/name","value":"z"}]`,
			"new=", "a=of a", "z=of b"),
		Entry("swap", []string{"a", "b"},
			func(c []corev1.Container) []corev1.Container { return []corev1.Container{c[1], c[0]} },
			`[{"op":"remove","path":"/spec/containers/1"},{"op":"add","path":"/spec/containers/0","value":{"name":"b","image":"i:1","x-new":"of b"}}]`,
			"b=of b", "a=of a"),
		Entry("rename while others come and go", []string{"a", "b", "c", "d"},
			func(c []corev1.Container) []corev1.Container {
				c[1].Name = "z"
				return append(slices.Delete(c, 3, 4), fresh, fresh)
			},
			`[{"op":"remove","path":"/spec/containers/3"},{"op":"add","path":"/spec/containers/-","value":{"image":"n:1","name":"new","resources":{}}},`+
				`{"op":"add","path":"/spec/containers/-","value":{"image":"n:1","name":"new","resources":{}}},`+
				`{"op":"replace","path":"/spec/containers/1/name","value":"z"}]`,
			"a=of a", "z=of b", "c=of c", "new=", "new="),
		Entry("another one in its place is not a rename", []string{"a", "b", "c"},
			func(c []corev1.Container) []corev1.Container { c[1].Name, c[1].Image = "z", "x"; return c },
			`[{"op":"remove","path":"/spec/containers/1"},{"op":"add","path":"/spec/containers/1","value":{"image":"x","name":"z","resources":{}}}]`,
			"a=of a", "z=", "c=of c"),
		Entry("a name for one that had none", []string{"a", ""},
			func(c []corev1.Container) []corev1.Container { c[1].Name, c[1].Image = "z", "x"; return c },
			`[{"op":"replace","path":"/spec/containers/1/image","value":"x"},{"op":"replace","path":"/spec/containers/1/name","value":"z"}]`,
			"a=of a", "z=of "),
		Entry("one for two is not a rename", []string{"a", "b", "c", "d"},
			func(c []corev1.Container) []corev1.Container { return []corev1.Container{c[0], fresh, c[3]} },
			`[{"op":"remove","path":"/spec/containers/2"},{"op":"remove","path":"/spec/containers/1"},`+
				`{"op":"add","path":"/spec/containers/1","value":{"image":"n:1","name":"new","resources":{}}}]`,
			"a=of a", "new=", "d=of d"),
		Entry("one of several without a key could be any of them", []string{"", ""},
			func(c []corev1.Container) []corev1.Container { c[1].Image = "x"; return c[1:] },
			`[{"op":"remove","path":"/spec/containers/1"},{"op":"remove","path":"/spec/containers/0"},`+
				`{"op":"add","path":"/spec/containers/-","value":{"image":"x","name":"","resources":{}}}]`,
			"="),
		Entry("the k-th of a key stays the k-th", []string{"a", "a"},
			func(c []corev1.Container) []corev1.Container {
				c[0].Image, c[1].Image = "x", "y"
				return slices.Insert(c, 0, fresh)
			},
			`[{"op":"add","path":"/spec/containers/0","value":{"image":"n:1","name":"new","resources":{}}},`+
				`{"op":"replace","path":"/spec/containers/1/image","value":"x"},{"op":"replace","path":"/spec/containers/2/image","value":"y"}]`,
			"new=", "a=of a", "a=of a*"),
	)

	It("distinguishes ports of one number by their other fields", func() {
		const raw = `{"spec":{"containers":[{"name":"dns","ports":[` +
			`{"containerPort":53,"protocol":"TCP","x-new":"tcp"},{"containerPort":53,"protocol":"UDP","x-new":"udp"}]}]}}`
		ops, applied := changePod(raw, func(p *corev1.Pod) {
			c := &p.Spec.Containers[0]
			c.Ports = c.Ports[1:]
			c.Ports[0].Name = "dns"
		})
		Expect(ops).To(MatchJSON(`[{"op":"remove","path":"/spec/containers/0/ports/0"},` +
			`{"op":"add","path":"/spec/containers/0/ports/0/name","value":"dns"}]`))
		Expect(applied).To(ContainSubstring(`"x-new":"udp"`))
	})

	It("writes an item that is null in raw", func() {
		ops, _ := changePod(`{"spec":{"containers":[null,{"name":"b"}]}}`, func(p *corev1.Pod) { p.Spec.Containers[0].Name = "a" })
		Expect(ops).To(MatchJSON(`[{"op":"replace","path":"/spec/containers/0","value":{"name":"a","resources":{}}}]`))
	})

	DescribeTable("of scalars",
		func(before, after []string, want string) {
			text, _ := json.Marshal(before)
			ops, _ := changePod(`{"spec":{"containers":[{"name":"a","args":`+string(text)+`}]}}`, func(p *corev1.Pod) {
				p.Spec.Containers[0].Args = after
			})
			Expect(ops).To(MatchJSON(strings.ReplaceAll(want, "ARGS", "/spec/containers/0/args")))
		},
		Entry("change one in its place", []string{"-a", "x", "-b", "x"}, []string{"-a", "y", "-b", "x"},
			`[{"op":"replace","path":"ARGS/1","value":"y"}]`),
		Entry("insert at one end, change the other", []string{"a", "x", "b", "x", "c"}, []string{"x", "a", "x", "b", "x", "d"},
			`[{"op":"add","path":"ARGS/0","value":"x"},{"op":"replace","path":"ARGS/5","value":"d"}]`),
	)
})

var _ = Describe("Unstructured", func() {
	diff := func(raw string, edit func(map[string]any)) (ops, applied string) {
		GinkgoHelper()
		before := &unstructured.Unstructured{}
		Expect(before.UnmarshalJSON([]byte(raw))).To(Succeed())
		after := before.DeepCopy()
		edit(after.Object)
		got, err := patch.Diff([]byte(raw), before, after)
		Expect(err).NotTo(HaveOccurred())
		ops = wire(got)
		result, err := apply([]byte(raw), []byte(ops))
		Expect(err).NotTo(HaveOccurred())
		have := &unstructured.Unstructured{}
		Expect(have.UnmarshalJSON(result)).To(Succeed())
		Expect(have.Object).To(Equal(after.Object))
		return ops, string(result)
	}
	route := `{"apiVersion":"example.org/v1","kind":"Route","metadata":{"name":"r"},"spec":{"hosts":["a","b"],` +
		`"groups":[{"id":"g","members":[{"id":"x","w":1.0,"long":"` + strings.Repeat("long", 50) + `"},{"id":"y","w":9007199254740993}]}]}}`

	members := func(edit func([]any) []any) func(map[string]any) {
		return func(o map[string]any) {
			g := o["spec"].(map[string]any)["groups"].([]any)[0].(map[string]any)
			g["members"] = edit(g["members"].([]any))
		}
	}
	swap := members(func(m []any) []any {
		m[0].(map[string]any)["w"], m[1].(map[string]any)["w"] = 2.5, int64(3)
		return []any{m[1], m[0], map[string]any{"id": "z"}}
	})
	swapped := `[{"op":"remove","path":"/spec/groups/0/members/1"},` +
		`{"op":"add","path":"/spec/groups/0/members/0","value":{"id":"y","w":9007199254740993}},` +
		`{"op":"add","path":"/spec/groups/0/members/-","value":{"id":"z"}},` +
		`{"op":"replace","path":"/spec/groups/0/members/0/w","value":3},{"op":"replace","path":"/spec/groups/0/members/1/w","value":2.5}]`

	It("pairs items by position where nothing else is known", func() {
		ops, _ := diff(route, members(func(m []any) []any { m[1].(map[string]any)["w"] = int64(2); return m }))
		Expect(ops).To(MatchJSON(`[{"op":"replace","path":"/spec/groups/0/members/1/w","value":2}]`))
	})
	It("pairs items by their name, key or id", func() {
		for _, name := range []string{"name", "key", "id"} {
			raw := strings.ReplaceAll(route, `"id"`, `"`+name+`"`)
			ops, _ := diff(raw, func(o map[string]any) {
				swap(o)
				last := o["spec"].(map[string]any)["groups"].([]any)[0].(map[string]any)["members"].([]any)[2].(map[string]any)
				delete(last, "id")
				last[name] = "z"
			})
			Expect(ops).To(MatchJSON(strings.ReplaceAll(swapped, `"id"`, `"`+name+`"`)))
		}
	})
	DescribeTable("knows a renamed item again if all else of it is the same",
		func(renamed map[string]any, want string) {
			ops, _ := diff(route, members(func(m []any) []any { return []any{map[string]any{"id": "new"}, m[0], renamed} }))
			Expect(ops).To(MatchJSON(strings.ReplaceAll(want, "MEMBERS", "/spec/groups/0/members")))
		},
		Entry("in a list that grows", map[string]any{"id": "z", "w": int64(9007199254740993)},
			`[{"op":"add","path":"MEMBERS/0","value":{"id":"new"}},{"op":"replace","path":"MEMBERS/2/id","value":"z"}]`),
		Entry("but not another one in its place", map[string]any{"id": "z", "w": int64(7)},
			`[{"op":"remove","path":"MEMBERS/1"},{"op":"add","path":"MEMBERS/0","value":{"id":"new"}},{"op":"add","path":"MEMBERS/-","value":{"id":"z","w":7}}]`),
	)
})

// named are items behind pointers, in a list whose type names no key.
type named struct {
	Items []*struct {
		Name  string `json:"name"`
		Image string `json:"image,omitempty"`
	} `json:"items"`
}

func (n *named) DeepCopy() *named {
	c := &named{}
	for _, item := range n.Items {
		c.Items = append(c.Items, new(*item))
	}
	return c
}

var _ = It("Items behind pointers keep what only raw knows", func() {
	ops, applied := change[named](`{"items":[{"name":"a","x-new":1},{"name":"b","x-new":2},{"name":"c"}]}`, func(n *named) {
		n.Items[1].Image = "x"
		n.Items = n.Items[1:]
	})
	Expect(ops).To(MatchJSON(`[{"op":"remove","path":"/items/0"},{"op":"add","path":"/items/0/image","value":"x"}]`))
	Expect(applied).To(ContainSubstring(`"x-new":2`))
})

var _ = Describe("Long lists", func() {
	long := func(n int) string {
		var b strings.Builder
		b.WriteString(`{"spec":{"containers":[{"name":"a","env":[`)
		for i := range n {
			if i > 0 {
				b.WriteByte(',')
			}
			fmt.Fprintf(&b, `{"name":"ENV_%d","value":"value %d","x-new":%d}`, i, i, i)
		}
		b.WriteString(`]}]}}`)
		return b.String()
	}
	editEnv := func(n int, edit func([]corev1.EnvVar) []corev1.EnvVar) (ops, applied string) {
		GinkgoHelper()
		return changePod(long(n), func(p *corev1.Pod) { p.Spec.Containers[0].Env = edit(p.Spec.Containers[0].Env) })
	}
	numbered := func(applied string) {
		GinkgoHelper()
		var p struct {
			Spec struct {
				Containers []struct {
					Env []struct {
						Name string
						New  *int `json:"x-new"`
					}
				}
			}
		}
		Expect(json.Unmarshal([]byte(applied), &p)).To(Succeed())
		for _, e := range p.Spec.Containers[0].Env {
			if strings.HasPrefix(e.Name, "ENV_") {
				Expect(e.New).NotTo(BeNil(), e.Name)
				Expect(e.Name).To(Equal(fmt.Sprintf("ENV_%d", *e.New)))
			}
		}
	}

	DescribeTable("one insertion among 1,000 is one short operation",
		func(at int, index string) {
			ops, applied := editEnv(1000, func(env []corev1.EnvVar) []corev1.EnvVar {
				return slices.Insert(env, at, corev1.EnvVar{Name: "NEW", Value: "v"})
			})
			Expect(ops).To(Equal(`[{"op":"add","path":"/spec/containers/0/env/` + index + `","value":{"name":"NEW","value":"v"}}]`))
			Expect(len(ops)).To(BeNumerically("<=", len(`{"name":"NEW","value":"v"}`)+100))
			numbered(applied)
		},
		Entry("head", 0, "0"), Entry("end", 1000, "-"),
	)
	DescribeTable("moves items as long as that is less than writing the list anew",
		func(moved, operations int) {
			ops, applied := editEnv(1000, func(env []corev1.EnvVar) []corev1.EnvVar {
				return slices.Concat(env[900:900+moved], env[:900], env[900+moved:])
			})
			Expect(strings.Count(ops, `"op":`)).To(Equal(operations))
			numbered(applied)
		},
		Entry("one", 1, 2), Entry("seventy", 70, 1),
	)
	It("writes a list anew when that is the shorter patch", func() {
		ops, applied := changePod(`{"spec":{"containers":[{"name":"a","x":1},{"name":"b","x":2}]}}`, func(p *corev1.Pod) {
			slices.Reverse(p.Spec.Containers)
			p.Spec.Containers[0].Image = "x"
		})
		Expect(ops).To(Equal(`[{"op":"replace","path":"/spec/containers","value":[{"name":"b","x":2},{"name":"a","x":1}]},` +
			`{"op":"add","path":"/spec/containers/0/image","value":"x"}]`))
		Expect(applied).To(ContainSubstring(`{"image":"x","name":"b","x":2}`))
	})
	It("writes a short list anew when more than a few items move", func() {
		names := strings.Split("abcdefgh", "")
		ops, applied := changePod(containers(names...), func(p *corev1.Pod) { slices.Reverse(p.Spec.Containers) })
		Expect(strings.Count(ops, `"op":`)).To(Equal(1))
		slices.Reverse(names)
		for i, n := range names {
			names[i] = n + "=of " + n
		}
		Expect(owners(applied)).To(Equal(names))
	})
	It("removes and inserts many one by one, until writing the list anew is less", func() {
		ops, applied := editEnv(1000, func(env []corev1.EnvVar) []corev1.EnvVar {
			return slices.DeleteFunc(env, func(e corev1.EnvVar) bool { return strings.HasSuffix(e.Name, "00") })
		})
		Expect(strings.Count(ops, `"op":"remove"`)).To(Equal(9))
		numbered(applied)
		ops, applied = editEnv(1000, func(env []corev1.EnvVar) []corev1.EnvVar {
			return slices.DeleteFunc(env, func(e corev1.EnvVar) bool { return !strings.HasSuffix(e.Name, "7") })
		})
		Expect(ops).To(HavePrefix(`[{"op":"replace","path":"/spec/containers/0/env","value":[{"name":"ENV_7",`))
		numbered(applied)
	})
	DescribeTable("are written anew when every item changes a little and is short, with all that raw has in them", func(edit func(i int, e *corev1.EnvVar), expected string) {
		const items = 1000
		ops, applied := editEnv(items, func(env []corev1.EnvVar) []corev1.EnvVar {
			for i := range env {
				edit(i, &env[i])
			}
			return env
		})
		Expect(ops).To(HavePrefix(`[{"op":"replace","path":"/spec/containers/0/env","value":[` + expected + `,`))
		Expect(strings.Count(ops, `"op":`)).To(Equal(1))
		Expect(len(ops)).To(BeNumerically("<", 3*len(long(items))/2))
		numbered(applied)
	},
		Entry("a member", func(_ int, e *corev1.EnvVar) { e.Value = "<" }, `{"name":"ENV_0","value":"\u003c","x-new":0}`),
		Entry("one that goes", func(_ int, e *corev1.EnvVar) { e.Value = "" }, `{"name":"ENV_0","x-new":0}`),
	)
	It("are written anew once when all items move and change", func() {
		ops, applied := editEnv(1000, func(env []corev1.EnvVar) []corev1.EnvVar {
			slices.Reverse(env)
			for i := range env {
				env[i].Value = "v"
			}
			return env
		})
		Expect(ops).To(HavePrefix(`[{"op":"replace","path":"/spec/containers/0/env","value":[{"name":"ENV_999","value":"v","x-new":999},`))
		Expect(strings.Count(ops, `"op":`)).To(Equal(1))
		numbered(applied)
	})
	It("keep their place when few items change, or when the changes are shorter", func() {
		ops, _ := editEnv(1000, func(env []corev1.EnvVar) []corev1.EnvVar {
			for i := range 100 {
				env[10*i].Value = "v"
			}
			return env
		})
		Expect(strings.Count(ops, `"op":"replace"`)).To(Equal(100))
	})
})

var _ = It("The origins of all items of a list take hardly longer than that of one", func() {
	const items = 3000
	var before, after corev1.PodSpec
	for i := range items {
		before.Containers = append(before.Containers, corev1.Container{Name: fmt.Sprint("c", i)})
	}
	after.Containers = append([]corev1.Container{{Name: "first"}}, before.Containers...)
	last := after.Containers[items]
	after.Containers[items] = corev1.Container{Name: "last"} // so they have no common end
	after.Containers = append(after.Containers, last)
	origins, began := patch.OriginsOf(&before, &after), time.Now()
	var one time.Duration
	for i := range items - 1 {
		o, ok := origins.Of(fmt.Sprintf("containers[%d].image", i+1))
		Expect(ok).To(BeTrue())
		Expect(o.Path).To(Equal(fmt.Sprintf("containers[%d].image", i)))
		if i == 0 {
			one = time.Since(began)
		}
	}
	Expect(time.Since(began)).To(BeNumerically("<", 500*one))
})

var _ = DescribeTable("The origin of an item of a list with one", func(path string, there bool) {
	spec := corev1.PodSpec{Containers: []corev1.Container{{Name: "a"}}}
	_, ok := patch.OriginsOf(&spec, spec.DeepCopy()).Of(path)
	Expect(ok).To(Equal(there))
},
	Entry("is there for the first", "containers[0].image", true),
	Entry("is none behind the last", "containers[1].image", false),
	Entry("is none before the first", "containers[-1].image", false),
	Entry("is none without brackets", "containers.0.image", false),
)
