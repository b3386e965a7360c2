package decode

import (
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"strings"
	"testing"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	kjson "sigs.k8s.io/json"

	"code.cloudfoundry.org/eirinix/internal/jsontext"
)

func TestDecode(t *testing.T) {
	RegisterFailHandler(Fail)
	RunSpecs(t, "Decode")
}

// disagreement reads a text into a type with both decoders, and returns the difference of the outcomes: not at all, or
// the specification is broken.
func disagreement(raw []byte, t reflect.Type) string {
	mine, theirs := reflect.New(t), reflect.New(t)
	before := string(raw)
	err := Into(raw, mine.Interface())
	if errors.Is(err, ErrTooLarge) {
		return "" // the one error of its own
	}
	if string(raw) != before {
		return "the text was changed"
	}
	want := kjson.UnmarshalCaseSensitivePreserveInts(raw, theirs.Interface())
	switch {
	case reflect.TypeOf(err) != reflect.TypeOf(want) || err != nil && err.Error() != want.Error():
		return fmt.Sprintf("%s from %s\n fails with %v\nbut should with %v", t, clip(raw), err, want)
	case !reflect.DeepEqual(mine.Interface(), theirs.Interface()):
		return fmt.Sprintf("%s from %s\n becomes %+v\nbut should %+v", t, clip(raw), mine.Elem().Interface(), theirs.Elem().Interface())
	}
	if d := misplaced(raw, t); d != "" {
		return d
	}
	if strings.Contains(before+t.String(), "Unnamed") || strings.Contains(t.String(), "struct {") || !json.Valid(raw) {
		return "" // sigs.k8s.io/json reads a field of an unnamed type in another way than a value of that type alone
	}
	if misfit := Misfit(raw, theirs.Interface()); (misfit != nil) != (want != nil) {
		return fmt.Sprintf("%s from %s\n has the misfit %v\nbut fails with %v", t, clip(raw), misfit, want)
	}
	return ""
}

// misplaced compares the index that Within records with one that is made by itself.
func misplaced(raw []byte, t reflect.Type) string {
	var doc jsontext.Index
	if _, err := Within(raw, reflect.New(t).Interface(), &doc, nil); err != nil || !doc.IsOf(raw) {
		return ""
	}
	own, root, err := jsontext.NewIndex(raw)
	if err != nil {
		return err.Error()
	}
	nodes := []jsontext.Node{root}
	for len(nodes) > 0 {
		n := nodes[0]
		if nodes = nodes[1:]; n.Kind != '{' && n.Kind != '[' {
			continue
		}
		want, err := own.Parts(n, nil)
		have, failed := doc.Parts(n, nil)
		if err != nil || failed != nil || !reflect.DeepEqual(have, want) {
			return fmt.Sprintf("%s from %s\n has the parts %v (%v)\nand not %v (%v)", t, clip(raw), have, failed, want, err)
		}
		for _, p := range want {
			nodes = append(nodes, p.Node)
		}
	}
	return ""
}

func clip(raw []byte) string {
	if len(raw) > 4000 {
		return fmt.Sprintf("%q... (%d bytes)", raw[:4000], len(raw))
	}
	return fmt.Sprintf("%q", raw)
}

// isFast returns true if the text is read without the help of sigs.k8s.io/json.
func isFast(raw string, t reflect.Type) bool { return fast([]byte(raw), reflect.New(t).Interface()) }

func fast(raw []byte, obj any) bool {
	d := decoder{Reader: jsontext.Reader{Text: raw}, most: MaxMemory, deepest: maxNesting}
	return d.fast(obj)
}
