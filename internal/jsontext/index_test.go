package jsontext

// This file specifies what the index of a text finds.

import (
	"bytes"
	"encoding/json"
	"fmt"
	"reflect"
	"strings"
	"testing"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
)

// tree decodes a text with its numbers as they are written.
func tree(text []byte) (v any, err error) {
	dec := json.NewDecoder(bytes.NewReader(text))
	dec.UseNumber()
	err = dec.Decode(&v)
	return v, err
}

// rebuild decodes a document by nothing but its nodes.
func rebuild(doc *Index, n Node) (any, error) {
	switch n.Kind {
	case '{', '[':
		entries, err := doc.Parts(n, nil)
		if err != nil {
			return nil, err
		}
		object, list := map[string]any{}, []any{}
		for _, e := range entries {
			v, err := rebuild(doc, e.Node)
			if err != nil {
				return nil, err
			}
			object[string(e.Name)], list = v, append(list, v)
		}
		if n.Kind == '{' {
			return object, nil
		}
		return list, nil
	}
	return tree(doc.raw[n.Start:n.End])
}

func compare(raw []byte) error {
	doc, root, err := NewIndex(raw)
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
		doc, root, err := NewIndex([]byte(strings.Repeat(`[`, 100000) + strings.Repeat(`]`, 100000)))
		Expect(err).NotTo(HaveOccurred())
		entries, err := doc.Parts(root, nil)
		Expect(err).NotTo(HaveOccurred())
		Expect(entries).To(HaveLen(1))
	})
	It("finds a duplicate among many members", func() {
		var b strings.Builder
		for i := range 100 {
			fmt.Fprintf(&b, `"m%d":%d,`, i, i)
		}
		for _, last := range []string{"m7", `\u006d7`, "new"} {
			doc, root, err := NewIndex([]byte(`{` + b.String() + `"` + last + `":0}`))
			Expect(err).NotTo(HaveOccurred())
			entries, err := doc.Parts(root, nil)
			Expect(err).NotTo(HaveOccurred())
			name, found := Duplicate(entries)
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
