package record

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

// hooked is what the program's own hook has to see of a call.
type hooked struct {
	hook     func(map[string]any)
	request  text   // the review that holds the request
	response []byte // nil when there is none
	notes    []string

	object  span           // the last one, which is the one that counts; its end is 0 when there is none
	after   map[string]any // what the hook has left of it
	changed bool           // whether that is less
}

// run shows the hook the objects. A hook that has seen the object is shown what the patch makes of it, too: if it takes
// something out of either, the patch is made anew, of what is left.
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

// show shows the hook an object, and gives what it leaves of it, and whether the text must be replaced by it.
func (h *hooked) show(raw []byte) (after map[string]any, text []byte, changed bool, err error) {
	if err := decode(raw, &after); err != nil {
		return nil, nil, false, err
	}
	before, err := encode(after)
	if err != nil {
		return nil, nil, false, err
	}
	// A member that comes twice is shown once, so the text may hold more than what the hook has seen.
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

// difference is a patch. Arrays are replaced whole.
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

// decode keeps numbers as they are spelt.
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

// countMembers counts those of all objects in a text.
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

// withoutValues says what a panic was about. What the program panics with may hold parts of the object; what the
// runtime says does not.
func withoutValues(v any) string {
	if err, ok := v.(runtime.Error); ok {
		return err.Error()
	}
	return fmt.Sprintf("with a %T", v)
}
