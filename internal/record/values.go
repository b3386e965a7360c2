package record

import (
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"strings"
)

// This file collects the redacted values, and removes them from the response. A program can repeat a value from a
// Secret in an annotation that its patch writes, or in a warning. Users can have put it into a label. So a redacted
// value is removed from the other texts of the call, too, as it was, decoded, or encoded. Parts of a value, for
// example, are not recognized.

// leastValue is the length in bytes of the shortest text that is recognized. Shorter texts often mean something else.
const leastValue = 7

// values are the spellings of the values that were removed from a call, each with its placeholder. The zero value has
// none.
type values struct {
	spelt map[string]map[string]string // by their first leastValue bytes
	first [256]bool                    // the first bytes of all spellings: most texts are skipped by these
}

// add adds the values that are removed from a text, and from annotations in it.
func (v *values) add(d *redaction) {
	for _, hidden := range d.hidden {
		v.add(hidden)
	}
	for _, e := range d.edits {
		if e.by != inData && e.by != inText {
			continue
		}
		for s, isName := range d.text.strings(e.span) {
			if !isName {
				v.addWord(d.text.word(s), e.by == inData)
			}
		}
	}
}

func (v *values) addWord(word string, isData bool) {
	if plain, ok := fromBase64(word); isData && ok {
		v.addSpelling(word, inBase64)
		word = string(plain)
	}
	v.addPlain(word)
	if trimmed := strings.TrimSpace(word); trimmed != word { // programs often trim a value that they read
		v.addPlain(trimmed)
	}
}

func (v *values) addPlain(plain string) {
	v.addSpelling(plain, Placeholder)
	inJSON, _ := encode(plain) // a string can always be encoded
	forHTML, _ := json.Marshal(plain)
	for _, quoted := range [][]byte{inJSON, forHTML} { // for a text that is JSON itself
		v.addSpelling(string(quoted[1:len(quoted)-1]), Placeholder)
	}
	if len(plain) >= leastValue {
		spelt := hex.EncodeToString([]byte(plain))
		v.addSpelling(spelt, inHex)
		v.addSpelling(strings.ToUpper(spelt), inHex)
	}
	standard := base64.StdEncoding.EncodeToString([]byte(plain))
	for _, spelt := range []string{standard, forURLs.Replace(standard)} {
		v.addSpelling(spelt, inBase64)
		v.addSpelling(strings.TrimRight(spelt, "="), strings.TrimRight(inBase64, "="))
	}
}

var forURLs = strings.NewReplacer("+", "-", "/", "_")

func (v *values) addSpelling(spelt, by string) {
	if len(spelt) < leastValue || spelt == by {
		return
	}
	if v.spelt == nil {
		v.spelt = map[string]map[string]string{}
	}
	known := v.spelt[spelt[:leastValue]]
	if known == nil {
		known = map[string]string{}
		v.spelt[spelt[:leastValue]], v.first[spelt[0]] = known, true
	}
	if _, twice := known[spelt]; !twice {
		known[spelt] = by
	}
}

// scrubResponse removes the values from the program's response. It also returns their places. Names that the
// recorded request holds stay in the paths of the patch.
func (v *values) scrubResponse(response, request text) (_ text, notes []string, err error) {
	if v.spelt == nil || response == nil {
		return response, nil, nil
	}
	s := &scrubber{values: v, text: response}
	for m := range response.members(response.all()) {
		known := len(s.edits)
		switch {
		case response.is(m.name, "uid", "allowed", "patchType"):
		case response.isPatch(m):
			by, err := v.scrubPatch(response.word(m.value), request)
			if err != nil {
				return nil, nil, err
			}
			s.word(m.value, by)
		case response.is(m.name, "auditAnnotations"):
			s.value(m.value.start, free)
		default:
			s.value(m.value.start, anywhere)
		}
		if len(s.edits) > known {
			notes = append(notes, fmt.Sprintf("response.%s (repeated a secret)", brief(response.word(m.name))))
		}
	}
	return response.edited(s.edits), notes, nil
}

func (v *values) scrubPatch(patch string, request text) (string, error) {
	plain, err := base64.StdEncoding.DecodeString(patch)
	if err != nil || !json.Valid(plain) {
		if v.scrubbed(patch) != patch || v.scrubbed(string(plain)) != string(plain) {
			return "", failed(notRedacted, "the patch of the response is not JSON in base64, so that nothing can be taken out of it")
		}
		return patch, nil
	}
	s := &scrubber{values: v, text: plain}
	t := s.text
	if t.kind(t.all()) != '[' {
		s.value(t.all().start, free)
	}
	for operation := range t.elements(t.all()) {
		if t.kind(operation) != '{' {
			s.value(operation.start, free)
		}
		for m := range t.members(operation) {
			switch isWord := t.kind(m.value) == '"'; {
			case isWord && t.is(m.name, "op"):
			case isWord && t.is(m.name, "path", "from"):
				s.word(m.value, v.scrubbedPath(t.word(m.value), request))
			default:
				s.value(m.value.start, free)
			}
		}
	}
	return base64.StdEncoding.EncodeToString(t.edited(s.edits)), nil
}

func (v *values) scrubbedPath(path string, request text) string {
	parts := strings.Split(path, "/")
	for i, part := range parts {
		part = unescaped(part)
		if by := v.scrubbed(part); by != part && !request.hasName(part) {
			parts[i] = strings.NewReplacer("~", "~0", "/", "~1").Replace(by)
		}
	}
	return strings.Join(parts, "/")
}

// hasName reports whether the text has a member of that name, at any depth.
func (t text) hasName(name string) bool {
	for s, isName := range t.strings(t.all()) {
		if isName && t.word(s) == name {
			return true
		}
	}
	return false
}
