package patch

import (
	"encoding/json"
	"fmt"
	"reflect"
	"strings"
	"testing"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
)

// rebuild decodes a document by nothing but its nodes.
func rebuild(doc *document, n node) (any, error) {
	switch n.kind {
	case '{', '[':
		entries, err := doc.entries(n, nil)
		if err != nil {
			return nil, err
		}
		object, list := map[string]any{}, []any{}
		for _, e := range entries {
			v, err := rebuild(doc, e.node)
			if err != nil {
				return nil, err
			}
			name := e.name
			if name == "" {
				name = string(doc.raw[e.nameStart:e.nameEnd])
			}
			object[name], list = v, append(list, v)
		}
		if n.kind == '{' {
			return object, nil
		}
		return list, nil
	}
	return tree(doc.raw[n.start:n.end])
}

func compare(raw []byte) error {
	doc, root, err := open(raw)
	if !json.Valid(raw) {
		if err == nil {
			_, _ = rebuild(&doc, root) // may find out or not, but must come back
		}
		return nil
	}
	if err != nil {
		return err
	}
	have, err := rebuild(&doc, root)
	if err != nil {
		return err
	}
	want, err := tree(raw)
	if err != nil {
		return err
	}
	if !reflect.DeepEqual(have, want) {
		return fmt.Errorf("have %v\nwant %v", have, want)
	}
	return nil
}

var documents = []string{
	`{}`, `[]`, `null`, ` { "a" : [ 1 , -2.5e3 , true , false , null , "x" ] , "b" : { } } `,
	`{"a\"b":"\\","\\\\":"\"","é":"\ud83d\ude00","\u0061":{"":[[],[{}]]}}`,
	`["` + strings.Repeat("long ", 20) + `\\\"","` + strings.Repeat(`\\`, 9) + `","1234567","12345678\"","\n"]`,
	`{"a":1,"a":{"b":2},"a":[3]}`, `{"a":{}`, `{"a":]}`, `{"a" 1}`, `{"a":1 "b":2}`, `[1,]`, `[,1]`, `{"a"}`, `{"a":`, `"\`, `"`, `]`, `{1:2}`, ``, `[1}`, `1 2`, `{"a":tru{}}`,
}

var _ = Describe("The index of raw JSON", func() {
	It("finds the same members as encoding/json", func() {
		for _, d := range documents {
			Expect(compare([]byte(d))).To(Succeed(), d)
		}
	})
	It("reads a document of any depth", func() {
		doc, root, err := open([]byte(strings.Repeat(`[`, 100000) + strings.Repeat(`]`, 100000)))
		Expect(err).NotTo(HaveOccurred())
		entries, err := doc.entries(root, nil)
		Expect(err).NotTo(HaveOccurred())
		Expect(entries).To(HaveLen(1))
	})
	It("finds a duplicate among many members", func() {
		var b strings.Builder
		for i := range 100 {
			fmt.Fprintf(&b, `"m%d":%d,`, i, i)
		}
		for _, last := range []string{"m7", `\u006d7`, "new"} {
			doc, root, err := open([]byte(`{` + b.String() + `"` + last + `":0}`))
			Expect(err).NotTo(HaveOccurred())
			entries, err := doc.entries(root, nil)
			Expect(err).NotTo(HaveOccurred())
			name, found := doc.duplicate(entries)
			Expect(found).To(Equal(last != "new"))
			if found {
				Expect(name).To(Equal("m7"))
			}
		}
	})
})

func FuzzIndex(f *testing.F) {
	for _, d := range documents {
		f.Add([]byte(d))
	}
	f.Fuzz(func(t *testing.T, raw []byte) {
		if err := compare(raw); err != nil {
			t.Fatal(err)
		}
	})
}
