package patch_test

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
)

// containers is a pod whose containers have the given names, each with a member that only raw knows; it ends in
// stars for a name that comes again.
func containers(names ...string) string {
	items := make([]string, len(names))
	again := map[string]string{}
	for i, n := range names {
		items[i] = fmt.Sprintf(`{"name":%q,"image":"i:%d","x-new":"of %s%s"}`, n, i, n, again[n])
		again[n] += "*"
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

	DescribeTable("keep what raw knows about an item on that item",
		func(names []string, edit func([]corev1.Container) []corev1.Container, wantOps string, wantOwners ...string) {
			ops, applied := changePod(containers(names...), func(p *corev1.Pod) { p.Spec.Containers = edit(p.Spec.Containers) })
			Expect(ops).To(MatchJSON(wantOps))
			Expect(owners(applied)).To(Equal(wantOwners))
		},
		Entry("insert at the head", []string{"a", "b"},
			func(c []corev1.Container) []corev1.Container { return slices.Insert(c, 0, fresh) },
			`[{"op":"add","path":"/spec/containers/0","value":{"image":"n:1","name":"new","resources":{}}}]`,
			"new=", "a=of a", "b=of b"),
		Entry("insert in between", []string{"a", "b"},
			func(c []corev1.Container) []corev1.Container { return slices.Insert(c, 1, fresh) },
			`[{"op":"add","path":"/spec/containers/1","value":{"image":"n:1","name":"new","resources":{}}}]`,
			"a=of a", "new=", "b=of b"),
		Entry("append", []string{"a", "b"},
			func(c []corev1.Container) []corev1.Container { return append(c, fresh) },
			`[{"op":"add","path":"/spec/containers/-","value":{"image":"n:1","name":"new","resources":{}}}]`,
			"a=of a", "b=of b", "new="),
		Entry("remove", []string{"a", "b", "c"},
			func(c []corev1.Container) []corev1.Container { return slices.Delete(c, 1, 2) },
			`[{"op":"remove","path":"/spec/containers/1"}]`,
			"a=of a", "c=of c"),
		Entry("insert and edit others", []string{"a", "b"},
			func(c []corev1.Container) []corev1.Container {
				c[1].Image = "x"
				return slices.Insert(c, 0, fresh)
			},
			`[{"op":"add","path":"/spec/containers/0","value":{"image":"n:1","name":"new","resources":{}}},`+
				`{"op":"replace","path":"/spec/containers/2/image","value":"x"}]`,
			"new=", "a=of a", "b=of b"),
		Entry("swap", []string{"a", "b"},
			func(c []corev1.Container) []corev1.Container { return []corev1.Container{c[1], c[0]} },
			`[{"op":"remove","path":"/spec/containers/1"},{"op":"add","path":"/spec/containers/0","value":{"name":"b","image":"i:1","x-new":"of b"}}]`,
			"b=of b", "a=of a"),
		Entry("move to the front and edit", []string{"a", "b", "c"},
			func(c []corev1.Container) []corev1.Container {
				c[2].Image = "x"
				return []corev1.Container{c[2], c[0], c[1]}
			},
			`[{"op":"remove","path":"/spec/containers/2"},{"op":"add","path":"/spec/containers/0","value":{"name":"c","image":"i:2","x-new":"of c"}},`+
				`{"op":"replace","path":"/spec/containers/0/image","value":"x"}]`,
			"c=of c", "a=of a", "b=of b"),
		Entry("rename in its place", []string{"a", "b", "c"},
			func(c []corev1.Container) []corev1.Container { c[1].Name = "z"; return c },
			`[{"op":"replace","path":"/spec/containers/1/name","value":"z"}]`,
			"a=of a", "z=of b", "c=of c"),
		Entry("rename while others come and go", []string{"a", "b", "c", "d"},
			func(c []corev1.Container) []corev1.Container {
				c[1].Name = "z"
				return append(slices.Delete(c, 3, 4), fresh, fresh)
			},
			`[{"op":"remove","path":"/spec/containers/3"},{"op":"add","path":"/spec/containers/-","value":{"image":"n:1","name":"new","resources":{}}},`+
				`{"op":"add","path":"/spec/containers/-","value":{"image":"n:1","name":"new","resources":{}}},`+
				`{"op":"replace","path":"/spec/containers/1/name","value":"z"}]`,
			"a=of a", "z=of b", "c=of c", "new=", "new="),
		Entry("one for two is not a rename", []string{"a", "b", "c", "d"},
			func(c []corev1.Container) []corev1.Container { return []corev1.Container{c[0], fresh, c[3]} },
			`[{"op":"remove","path":"/spec/containers/2"},{"op":"remove","path":"/spec/containers/1"},`+
				`{"op":"add","path":"/spec/containers/1","value":{"image":"n:1","name":"new","resources":{}}}]`,
			"a=of a", "new=", "d=of d"),
		Entry("items without a key go by position", []string{"", ""},
			func(c []corev1.Container) []corev1.Container { c[0].Image, c[1].Image = "x", "y"; return c },
			`[{"op":"replace","path":"/spec/containers/0/image","value":"x"},{"op":"replace","path":"/spec/containers/1/image","value":"y"}]`,
			"=of ", "=of *"),
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
		Entry("an equal item comes before the k-th of a key", []string{"a", "a"},
			func(c []corev1.Container) []corev1.Container {
				c[0].Image = "x"
				return []corev1.Container{c[1], c[0]}
			},
			`[{"op":"remove","path":"/spec/containers/1"},{"op":"add","path":"/spec/containers/0","value":{"name":"a","image":"i:1","x-new":"of a*"}},`+
				`{"op":"replace","path":"/spec/containers/1/image","value":"x"}]`,
			"a=of a*", "a=of a"),
		Entry("replace everything", []string{"a"},
			func([]corev1.Container) []corev1.Container { return []corev1.Container{fresh, fresh} },
			`[{"op":"remove","path":"/spec/containers/0"},{"op":"add","path":"/spec/containers/-","value":{"image":"n:1","name":"new","resources":{}}},`+
				`{"op":"add","path":"/spec/containers/-","value":{"image":"n:1","name":"new","resources":{}}}]`,
			"new=", "new="),
	)

	It("tells ports of one number apart by what else they have", func() {
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

	It("enters nested lists at the index that their items have afterwards", func() {
		const raw = `{"spec":{"containers":[{"name":"a","env":[{"name":"A","value":"1","x-new":1},{"name":"B","value":"2","x-new":2}],"x-new":0}]}}`
		ops, applied := changePod(raw, func(p *corev1.Pod) {
			c := &p.Spec.Containers[0]
			c.Env = append([]corev1.EnvVar{{Name: "Z"}}, c.Env...)
			c.Env[2].Value = "3"
			p.Spec.Containers = slices.Insert(p.Spec.Containers, 0, fresh)
		})
		Expect(ops).To(MatchJSON(`[{"op":"add","path":"/spec/containers/0","value":{"image":"n:1","name":"new","resources":{}}},` +
			`{"op":"add","path":"/spec/containers/1/env/0","value":{"name":"Z"}},` +
			`{"op":"replace","path":"/spec/containers/1/env/2/value","value":"3"}]`))
		Expect(applied).To(ContainSubstring(`{"name":"B","value":"3","x-new":2}`))
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
		Entry("insert", []string{"-a", "x", "-b", "x"}, []string{"x", "-a", "x", "-b", "x"},
			`[{"op":"add","path":"ARGS/0","value":"x"}]`),
		Entry("change one in its place", []string{"-a", "x", "-b", "x"}, []string{"-a", "y", "-b", "x"},
			`[{"op":"replace","path":"ARGS/1","value":"y"}]`),
		Entry("insert at one end, change the other", []string{"a", "x", "b", "x", "c"}, []string{"x", "a", "x", "b", "x", "d"},
			`[{"op":"add","path":"ARGS/0","value":"x"},{"op":"replace","path":"ARGS/5","value":"d"}]`),
		Entry("empty", []string{"a"}, []string{}, `[{"op":"remove","path":"ARGS"}]`),
	)

	Describe("long ones", func() {
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
			Entry("head", 0, "0"), Entry("middle", 500, "500"), Entry("end", 1000, "-"),
		)
		It("appends without counting", func() {
			ops, applied := editEnv(1000, func(env []corev1.EnvVar) []corev1.EnvVar {
				for i := range 1000 {
					env = append(env, corev1.EnvVar{Name: fmt.Sprint("NEW_", i)})
				}
				return env
			})
			Expect(strings.Count(ops, `"path":"/spec/containers/0/env/-"`)).To(Equal(1000))
			numbered(applied)
		})
		It("moves few items one by one", func() {
			ops, applied := editEnv(1000, func(env []corev1.EnvVar) []corev1.EnvVar {
				env[3], env[900] = env[900], env[3]
				return env
			})
			Expect(strings.Count(ops, `"op":"remove"`)).To(Equal(2))
			Expect(strings.Count(ops, `"op":"add"`)).To(Equal(2))
			numbered(applied)
		})
		DescribeTable("moves items as long as that is less than writing the list anew",
			func(moved, operations int) {
				ops, applied := editEnv(1000, func(env []corev1.EnvVar) []corev1.EnvVar {
					return slices.Concat(env[900:900+moved], env[:900], env[900+moved:])
				})
				Expect(strings.Count(ops, `"op":`)).To(Equal(operations))
				numbered(applied)
			},
			Entry("one", 1, 2), Entry("twenty", 20, 40), Entry("seventy", 70, 1),
		)
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
		It("writes the list anew when many items move, with the bytes that raw has for them", func() {
			ops, applied := editEnv(1000, func(env []corev1.EnvVar) []corev1.EnvVar { slices.Reverse(env); return env })
			Expect(strings.Count(ops, `"op":`)).To(Equal(1))
			Expect(ops).To(HavePrefix(`[{"op":"replace","path":"/spec/containers/0/env","value":[{"name":"ENV_999","value":"value 999","x-new":999},`))
			numbered(applied)
		})
		It("writes the list anew in between what it shares at both ends", func() {
			ops, applied := editEnv(300, func(env []corev1.EnvVar) []corev1.EnvVar {
				slices.Reverse(env[10:200])
				return slices.Delete(env, 50, 60)
			})
			Expect(ops).To(HavePrefix(`[{"op":"replace","path":"/spec/containers/0/env","value":[{"name":"ENV_0",`))
			Expect(strings.Count(ops, `"name"`)).To(Equal(290))
			numbered(applied)
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
		It("writes the list anew and edits its items", func() {
			ops, applied := editEnv(300, func(env []corev1.EnvVar) []corev1.EnvVar {
				slices.Reverse(env[10:])
				env[100].Value = "changed"
				env = slices.Delete(env, 50, 60)
				return append(env, corev1.EnvVar{Name: "NEW"})
			})
			Expect(ops).To(HavePrefix(`[{"op":"replace","path":"/spec/containers/0/env","value":[`))
			numbered(applied)
		})
	})
})
