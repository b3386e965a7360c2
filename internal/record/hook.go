package record

// This file runs the Redact hook of the program.

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"maps"
	"reflect"
	"runtime"
	"slices"
	"strings"

	jsonpatch "gopkg.in/evanphx/json-patch.v4"
)

// hooked holds the parts of a call that the program's hook must see.
type hooked struct {
	hook     func(map[string]any)
	request  text   // the review that holds the request
	response []byte // nil if there is none
	notes    []string

	object  span           // the last one, which is the one that counts; its end is 0 if there is none
	after   map[string]any // the object after the hook
	changed bool           // whether its text must be replaced
}

// run runs the hook on the objects. If there is a patch, the hook also sees the patched object. If it removes
// something from either, a new patch is made from the remaining data.
func (h *hooked) run() (err error) {
	defer func() {
		if v := recover(); v != nil {
			err = failed(notRedacted, "Redact panicked (%s)", withoutValues(v))
		}
	}()
	var edits []edit
	t := h.request
	for m := range t.members(t.all()) {
		if !t.is(m.name, "request") {
			continue
		}
		for o := range t.members(m.value) {
			if !t.is(o.name, "object", "oldObject") || t.kind(o.value) != '{' {
				continue
			}
			after, text, changed, err := h.show(t.at(o.value))
			if err != nil {
				return err
			}
			if changed {
				edits = append(edits, edit{span: o.value, by: string(text)})
				h.notes = append(h.notes, "request."+t.word(o.name)+" (by Redact)")
			}
			if t.word(o.name) == "object" {
				h.object, h.after, h.changed = o.value, after, changed
			}
		}
	}
	if h.response != nil {
		if err := h.redactPatch(); err != nil {
			return err
		}
	}
	h.request = t.edited(edits)
	return nil
}

// show runs the hook on an object. It returns the object after the hook, its text, and whether the text must be
// replaced.
func (h *hooked) show(raw []byte) (after map[string]any, text []byte, changed bool, err error) {
	if err := decode(raw, &after); err != nil {
		return nil, nil, false, err
	}
	before, err := encode(after)
	if err != nil {
		return nil, nil, false, err
	}
	// A member that occurs twice is shown once, so the text can hold more than the hook has seen.
	more := countMembers(raw) != countMembers(before)
	h.hook(after)
	if text, err = encode(after); err != nil {
		return nil, nil, false, failed(notRedacted, "Redact left what is not JSON: %v", err)
	}
	return after, text, more || !bytes.Equal(before, text), nil
}

func (h *hooked) redactPatch() error {
	t := text(h.response)
	for m := range t.members(t.all()) {
		if !t.isPatch(m) {
			continue
		}
		plain, err := base64.StdEncoding.DecodeString(t.word(m.value))
		if err != nil {
			return failed(notRedacted, "the patch of the response is not base64, so that Redact cannot be shown what it makes: %v", err)
		}
		operations, err := jsonpatch.DecodePatch(plain)
		if err != nil {
			return failed(notRedacted, "the patch of the response cannot be read, so that Redact cannot be shown what it makes: %v", err)
		}
		if len(operations) == 0 {
			continue
		}
		if h.object.end == 0 {
			return failed(notRedacted, "the response has a patch but the request has no object, so that Redact cannot be shown what it makes")
		}
		made, err := operations.Apply(h.request.at(h.object))
		if err != nil {
			return failed(notRedacted, "the patch of the response does not apply to the object, so that Redact cannot be shown what it makes")
		}
		after, _, changed, err := h.show(made)
		if err != nil {
			return err
		}
		if !h.changed && !changed {
			continue
		}
		anew, err := encode(difference(nil, "", h.after, after))
		if err != nil {
			return err
		}
		h.response = t.edited([]edit{{span: m.value, by: `"` + base64.StdEncoding.EncodeToString(anew) + `"`}})
		h.notes = append(h.notes, "response.patch (made anew, after Redact)")
		return nil
	}
	return nil
}

// difference appends the operations of a patch between two objects. Arrays are replaced as a whole.
func difference(patch []map[string]any, path string, from, to map[string]any) []map[string]any {
	if patch == nil {
		patch = []map[string]any{}
	}
	names := slices.Sorted(maps.Keys(to))
	for name := range from {
		if _, stays := to[name]; !stays {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	for _, name := range names {
		at := path + "/" + strings.NewReplacer("~", "~0", "/", "~1").Replace(name)
		was, old := from[name]
		is, stays := to[name]
		wasObject, _ := was.(map[string]any)
		isObject, _ := is.(map[string]any)
		switch {
		case !stays:
			patch = append(patch, map[string]any{"op": "remove", "path": at})
		case !old:
			patch = append(patch, map[string]any{"op": "add", "path": at, "value": is})
		case wasObject != nil && isObject != nil:
			patch = difference(patch, at, wasObject, isObject)
		case !reflect.DeepEqual(was, is):
			patch = append(patch, map[string]any{"op": "replace", "path": at, "value": is})
		}
	}
	return patch
}

// decode decodes an object, and keeps the spelling of numbers.
func decode(raw []byte, into *map[string]any) error {
	d := json.NewDecoder(bytes.NewReader(raw))
	d.UseNumber()
	if err := d.Decode(into); err != nil {
		return failed(notRedacted, "the object cannot be read, so that Redact cannot be shown it")
	}
	return nil
}

func encode(v any) ([]byte, error) {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	err := e.Encode(v)
	return bytes.TrimSuffix(b.Bytes(), []byte("\n")), err
}

// countMembers counts the members of all objects in a text.
func countMembers(raw []byte) (n int) {
	t := text(raw)
	for i := 0; i < len(t); i++ {
		switch t[i] {
		case '"':
			i = t.skipString(i) - 1
		case ':':
			n++
		}
	}
	return n
}

// withoutValues describes a panic. A panic value from the program can hold parts of the object, so only its type is
// shown. A runtime error holds none.
func withoutValues(v any) string {
	if err, ok := v.(runtime.Error); ok {
		return err.Error()
	}
	return fmt.Sprintf("with a %T", v)
}
