package audit

// A fuzz target of the objects that an audit reads.

import (
	"encoding/json"
	"reflect"
	"strings"
	"testing"

	"github.com/onsi/gomega"
	"k8s.io/apimachinery/pkg/runtime/schema"
	kjson "sigs.k8s.io/json"
)

// FuzzStored changes any object as for a request. The result is the same tree, with a type, and without the members
// that a cluster adds.
func FuzzStored(f *testing.F) {
	for _, seed := range []string{
		one("a/x"), `{}`, `{ }`, `{"status":{}}`, `{"metadata":null}`, `{"metadata":{"uid":"x","uid":"y"}}`, `{"kind":"A"}`, `{"apiVersion":""}`,
		`{"metadata":{"uid":1,"labels":{"\u00e9":"<"}},"n":1e400}`, `{"a":12345678901234567890,"\ud800":1}`,
	} {
		f.Add([]byte(seed))
	}
	kind := schema.GroupVersionKind{Group: "shop.example.org", Version: "v1", Kind: "Shop"}
	f.Fuzz(func(t *testing.T, raw []byte) {
		var tree map[string]any
		raw = []byte(strings.TrimSpace(string(raw))) // as a decoder passes it
		if !json.Valid(raw) || kjson.UnmarshalCaseSensitivePreserveInts(raw, &tree) != nil || tree == nil {
			return
		}
		g := gomega.NewWithT(t)
		i := &item{raw: raw}
		if json.Unmarshal(raw, &i.head) != nil {
			return
		}
		var was head
		if err := kjson.UnmarshalCaseSensitivePreserveInts(raw, &was); err != nil {
			return
		}
		i.head = was
		text, created := resource{kind: kind}.texts(i.raw)
		var now map[string]any
		g.Expect(kjson.UnmarshalCaseSensitivePreserveInts(text, &now)).To(gomega.Succeed())
		for name := range tree {
			if name != "apiVersion" && name != "kind" {
				g.Expect(reflect.DeepEqual(now[name], tree[name])).To(gomega.BeTrue(), "%s", name)
			}
		}
		var fresh map[string]any
		g.Expect(kjson.UnmarshalCaseSensitivePreserveInts(created, &fresh)).To(gomega.Succeed())
		delete(now, "status")
		if metadata, ok := now["metadata"].(map[string]any); ok {
			for _, name := range notCreated {
				delete(metadata, name)
			}
		}
		g.Expect(fresh).To(gomega.Equal(now))
	})
}
