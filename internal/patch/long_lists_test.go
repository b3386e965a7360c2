package patch_test

// This file specifies when the patch of a long list names its changes, and when it writes the list anew.

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"code.cloudfoundry.org/eirinix/internal/jsontext"
	"code.cloudfoundry.org/eirinix/internal/patch"
)

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
	DescribeTable("of a tree make a patch that is about as long as the list, if each item gets", func(member, before, after string) {
		var items []string
		for i := range 60_000 {
			items = append(items, fmt.Sprintf(`{"a":%d%s}`, i, before))
		}
		raw := []byte(`{"kind":"A","spec":{"items":[` + strings.Join(items, ",") + `]}}`)
		was, err := decode[map[string]any](raw)
		Expect(err).NotTo(HaveOccurred())
		is := runtime.DeepCopyJSON(was)
		for _, item := range is["spec"].(map[string]any)["items"].([]any) {
			item.(map[string]any)[member] = int64(2)
		}
		made, err := patch.Compare(raw, jsontext.Index{}, was, is)
		Expect(err).NotTo(HaveOccurred())
		text := made.AppendJSON(nil)
		Expect(len(text)).To(BeNumerically("<", len(raw)*3/2))
		result, err := apply(raw, text)
		Expect(err).NotTo(HaveOccurred())
		Expect(string(result)).To(Equal(strings.ReplaceAll(string(raw), before+"}", after+"}")))
	},
		Entry("another value", "b", `,"b":1`, `,"b":2`),
	)
})
