package record

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"strings"
)

// A program may repeat what it has seen in a Secret: in an annotation that its patch writes, or in a warning. What was
// taken out of a call is therefore taken out of what was answered, too, wherever it is repeated as it stood there, or
// decoded, or encoded. What a program makes of it, parts of it say, is not known again.

// leastValue is the shortest text in bytes that is known again: shorter ones are too often the words of something else.
const leastValue = 7

// values are the spellings of what has been taken out of a call, by their first leastValue bytes, and what replaces each.
type values map[string]map[string]string

// add adds what is being taken out of a text.
func (v values) add(d *redaction) {
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

func (v values) addWord(word string, isData bool) {
	if plain, ok := fromBase64(word); isData && ok {
		v.addSpelling(word, inBase64)
		word = string(plain)
	}
	v.addPlain(word)
	if trimmed := strings.TrimSpace(word); trimmed != word { // programs do so with what they read
		v.addPlain(trimmed)
	}
}

func (v values) addPlain(plain string) {
	v.addSpelling(plain, Placeholder)
	inJSON, _ := encode(plain) // of a string, which can always be encoded
	forHTML, _ := json.Marshal(plain)
	for _, quoted := range [][]byte{inJSON, forHTML} { // in a text that is JSON itself
		v.addSpelling(string(quoted[1:len(quoted)-1]), Placeholder)
	}
	standard := base64.StdEncoding.EncodeToString([]byte(plain))
	forURLs := strings.NewReplacer("+", "-", "/", "_").Replace(standard)
	for _, spelt := range []string{standard, forURLs} {
		v.addSpelling(spelt, inBase64)
		v.addSpelling(strings.TrimRight(spelt, "="), strings.TrimRight(inBase64, "="))
	}
}

func (v values) addSpelling(spelt, by string) {
	if len(spelt) < leastValue || spelt == by {
		return
	}
	known := v[spelt[:leastValue]]
	if known == nil {
		known = map[string]string{}
		v[spelt[:leastValue]] = known
	}
	if _, twice := known[spelt]; !twice {
		known[spelt] = by
	}
}

// scrubbed is a text without the values. Where they overlap, one placeholder stands for all.
func (v values) scrubbed(s string) string {
	var out strings.Builder
	done := 0 // up to where out has s
	for i := 0; len(v) > 0 && i+leastValue <= len(s); i++ {
		longest, by := "", ""
		for spelt, placeholder := range v[s[i:i+leastValue]] {
			if len(spelt) > len(longest) && strings.HasPrefix(s[i:], spelt) {
				longest, by = spelt, placeholder
			}
		}
		if longest == "" {
			continue
		}
		if i >= done { // and does not go on with the last one
			out.WriteString(s[done:i])
			out.WriteString(by)
		}
		done = max(done, i+len(longest))
	}
	return out.String() + s[done:]
}

// scrubbedWhole is scrubbed for a text that may as a whole be in base64, as the credentials for a registry are.
func (v values) scrubbedWhole(s string) string {
	if out := v.scrubbed(s); out != s {
		return out
	}
	if plain, ok := fromBase64(s); ok && v.scrubbed(string(plain)) != string(plain) {
		return inBase64
	}
	return s
}

// scrubResponse takes the values out of what the program has answered, and tells where they stood. The names that the
// request holds, as it is recorded, stay where a path of the patch leads by them.
func (v values) scrubResponse(response, request text) (_ text, notes []string, err error) {
	if len(v) == 0 || response == nil {
		return response, nil, nil
	}
	var edits []edit
	for m := range response.members(response.all()) {
		known := len(edits)
		switch {
		case response.is(m.name, "uid", "allowed", "patchType"):
		case response.isPatch(m):
			by, err := v.scrubPatch(response.word(m.value), request)
			if err != nil {
				return nil, nil, err
			}
			if by != response.word(m.value) {
				edits = append(edits, edit{span: m.value, by: `"` + by + `"`})
			}
		default:
			edits = v.scrubStrings(edits, response, m.value, response.is(m.name, "auditAnnotations"))
		}
		if len(edits) > known {
			notes = append(notes, fmt.Sprintf("response.%s (repeated a secret)", brief(response.word(m.name))))
		}
	}
	return response.edited(edits), notes, nil
}

// scrubStrings adds the edits that take the values out of the strings in a part of a text.
func (v values) scrubStrings(edits []edit, t text, in span, names bool) []edit {
	for s, isName := range t.strings(in) {
		if isName && !names {
			continue
		}
		edits = withWord(edits, t, s, v.scrubbedWhole(t.word(s)))
	}
	return edits
}

// withWord adds the edit that makes a string say something else.
func withWord(edits []edit, t text, s span, word string) []edit {
	if word == t.word(s) {
		return edits
	}
	by, _ := encode(word) // of a string, which can always be encoded
	return append(edits, edit{span: s, by: string(by)})
}

func (v values) scrubPatch(patch string, request text) (string, error) {
	plain, err := base64.StdEncoding.DecodeString(patch)
	if err != nil || !json.Valid(plain) {
		if v.scrubbed(patch) != patch || v.scrubbed(string(plain)) != string(plain) {
			return "", failed(notRedacted, "the patch of the response is not JSON in base64, so that nothing can be taken out of it")
		}
		return patch, nil
	}
	t := text(plain)
	var edits []edit
	if t.kind(t.all()) != '[' {
		edits = v.scrubStrings(edits, t, t.all(), true)
	}
	for operation := range t.elements(t.all()) {
		if t.kind(operation) != '{' {
			edits = v.scrubStrings(edits, t, operation, true)
		}
		for m := range t.members(operation) {
			switch isWord := t.kind(m.value) == '"'; {
			case isWord && t.is(m.name, "op"):
			case isWord && t.is(m.name, "path", "from"):
				edits = withWord(edits, t, m.value, v.scrubbedPath(t.word(m.value), request))
			default:
				edits = v.scrubStrings(edits, t, m.value, true)
			}
		}
	}
	return base64.StdEncoding.EncodeToString(t.edited(edits)), nil
}

func (v values) scrubbedPath(path string, request text) string {
	parts := strings.Split(path, "/")
	for i, part := range parts {
		part = unescaped(part)
		if by := v.scrubbedWhole(part); by != part && !request.hasName(part) {
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
