package patch_test

// This file specifies how a patch is applied, and when its operations are known again.

import (
	"encoding/json"
	"fmt"
	"reflect"
	"strings"
	"testing"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"gomodules.xyz/jsonpatch/v2"
	corev1 "k8s.io/api/core/v1"

	"code.cloudfoundry.org/eirinix/internal/jsontext"
	"code.cloudfoundry.org/eirinix/internal/patch"
)

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
