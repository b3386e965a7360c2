package patch_test

import (
	"strings"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"code.cloudfoundry.org/eirinix/internal/patch"
)

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

	It("is patched like any other object", func() {
		ops, applied := diff(route, func(o map[string]any) {
			spec := o["spec"].(map[string]any)
			spec["hosts"] = append([]any{"c"}, spec["hosts"].([]any)...)
			spec["new"] = map[string]any{"a": int64(1)}
			delete(o["metadata"].(map[string]any), "name")
		})
		Expect(ops).To(MatchJSON(`[{"op":"remove","path":"/metadata/name"},{"op":"add","path":"/spec/hosts/0","value":"c"},` +
			`{"op":"add","path":"/spec/new","value":{"a":1}}]`))
		Expect(applied).To(ContainSubstring(`"w":1.0`))
	})

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
})
