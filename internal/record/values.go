package record

import (
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"strings"
)

// A program may repeat a value that it has seen in a Secret: in an annotation that its patch writes, or in a warning; and
// others may have put it into a label. A value that was taken out of a call is therefore taken out of its other texts, too,
// wherever it is repeated as it stood there, or decoded, or encoded. Parts of it, say, are not known again.

// leastValue is the shortest text in bytes that is known again: shorter ones are too often the words of something else.
const leastValue = 7

// values are the spellings of the values that have been taken out of a call, each with its placeholder. The zero value has
// none.
type values struct {
	spelt map[string]map[string]string // by their first leastValue bytes
	first [256]bool                    // the bytes with which they begin: most texts are passed over by those
}

// add adds the values that are being taken out of a text, and out of annotations in it.
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
	if trimmed := strings.TrimSpace(word); trimmed != word { // programs do so with what they read
		v.addPlain(trimmed)
	}
}

func (v *values) addPlain(plain string) {
	v.addSpelling(plain, Placeholder)
	inJSON, _ := encode(plain) // of a string, which can always be encoded
	forHTML, _ := json.Marshal(plain)
	for _, quoted := range [][]byte{inJSON, forHTML} { // in a text that is JSON itself
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

// scrubResponse takes the values out of what the program has answered, and tells where they stood. The names that the
// request holds, as it is recorded, stay where a path of the patch leads by them.
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

// hasName tells whether a member of that name stands anywhere in the text.
func (t text) hasName(name string) bool {
	for s, isName := range t.strings(t.all()) {
		if isName && t.word(s) == name {
			return true
		}
	}
	return false
}
