package record

// This file removes the redacted values from the other texts of a call. A program can repeat a value from a Secret in
// an annotation that its patch writes, or in a warning. Users can have put it into a label.

import (
	"cmp"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"maps"
	"net/url"
	"regexp"
	"slices"
	"strings"
)

const (
	leastValue = 7 // bytes of the shortest value that is recognised: shorter texts often mean something else
	maxNested  = 2 // times that a value may be in base64, as in the base64 of a Secret's data
)

// scrubber replaces values in texts. A nil scrubber replaces none.
type scrubber struct {
	spellings *strings.Replacer
	changes   int // the number of texts that were changed
}

// newScrubber returns a scrubber for the values in all the spellings that programs use for them, except base64.
func newScrubber(values []string) *scrubber {
	var pairs [][2]string // a spelling, and the placeholder in that spelling
	for _, value := range values {
		for _, plain := range []string{value, strings.TrimSpace(value)} { // programs often trim a value that they read
			if len(plain) < leastValue || strings.Contains(Placeholder, plain) {
				continue
			}
			inJSON, _ := encode(plain) // a string can always be encoded
			forHTML, _ := json.Marshal(plain)
			for _, spelt := range []string{
				plain, unquoted(inJSON), unquoted(forHTML),
				url.QueryEscape(plain), url.PathEscape(plain), url.UserPassword("", plain).String()[len(":"):],
			} {
				pairs = append(pairs, [2]string{spelt, Placeholder})
			}
			inHex := hex.EncodeToString([]byte(plain))
			hexPlaceholder := hex.EncodeToString([]byte(Placeholder)) // it has no letters
			pairs = append(pairs, [2]string{inHex, hexPlaceholder}, [2]string{strings.ToUpper(inHex), hexPlaceholder})
			for _, between := range []string{" ", ",", ", "} { // as fmt, JSON and other languages write lists of bytes
				pairs = append(pairs, [2]string{asBytes(plain, between), asBytes(Placeholder, between)})
			}
		}
	}
	if len(pairs) == 0 {
		return nil
	}
	slices.SortFunc(pairs, func(a, b [2]string) int { // the longest first, because one value can begin with another
		return cmp.Or(cmp.Compare(len(b[0]), len(a[0])), cmp.Compare(a[0], b[0]))
	})
	flat := make([]string, 0, 2*len(pairs))
	for _, pair := range pairs {
		flat = append(flat, pair[0], pair[1])
	}
	return &scrubber{spellings: strings.NewReplacer(flat...)}
}

func unquoted(inJSON []byte) string { return string(inJSON[1 : len(inJSON)-1]) }

// asBytes returns a text as a list of its bytes.
func asBytes(plain, between string) string {
	return strings.ReplaceAll(strings.Trim(fmt.Sprint([]byte(plain)), "[]"), " ", between)
}

// text returns a text without the values.
func (s *scrubber) text(text string) string {
	if s == nil || len(text) < leastValue {
		return text
	}
	clean := s.within(text, maxNested)
	if clean != text {
		s.changes++
	}
	return clean
}

func (s *scrubber) within(text string, nested int) string {
	if nested > 0 {
		text = base64Run.ReplaceAllStringFunc(text, func(run string) string { return s.encoded(run, nested-1) })
	}
	return s.spellings.Replace(text)
}

// base64Run matches a text in base64, of either alphabet, that is long enough for a value. It can have several lines.
var base64Run = regexp.MustCompile(`[A-Za-z0-9+/_-](?:[\r\n]*[A-Za-z0-9+/_-]){9,}={0,2}`)

var (
	toStandard = strings.NewReplacer("-", "+", "_", "/", "\r", "", "\n", "")
	toURLs     = strings.NewReplacer("+", "-", "/", "_")
)

// encoded returns a text in base64 without the values in it. A word in front of it can consist of characters of
// base64, too. So the text can begin at any of the first four characters.
func (s *scrubber) encoded(run string, nested int) string {
	standard := toStandard.Replace(strings.TrimRight(run, "="))
	for skip := range 4 {
		part := standard[skip:]
		if len(part)%4 == 1 {
			part = part[:len(part)-1]
		}
		plain, err := base64.RawStdEncoding.DecodeString(part)
		if err != nil {
			continue
		}
		clean := s.within(string(plain), nested)
		if clean == string(plain) {
			continue
		}
		encoding := base64.RawStdEncoding
		if strings.HasSuffix(run, "=") || len(part)%4 == 0 {
			encoding = base64.StdEncoding
		}
		again := standard[:skip] + encoding.EncodeToString([]byte(clean))
		if strings.ContainsAny(run, "-_") {
			again = toURLs.Replace(again)
		}
		return again
	}
	return run
}

// These are the members that stay, because a call could not be replayed without them, or because they only are names.
// In objects, that depends on the member that holds them. All kinds and API versions stay, too.
var (
	stayInRequest = []string{
		"uid", "kind", "resource", "subResource", "requestKind", "requestResource", "requestSubResource",
		"name", "namespace", "operation",
	}
	stayInResponse = []string{"uid", "allowed", "patchType", "patch"}
	stayInRead     = []string{"kind", "apiVersion"}
	stayBelow      = map[string][]string{
		"metadata": {
			"name", "generateName", "namespace", "uid", "resourceVersion", "selfLink", "creationTimestamp", "deletionTimestamp",
		},
		"managedFields": {"operation", "time", "fieldsType"},
	}
	// Below these members, the names of members can hold a value.
	ofFreeNames = []string{"labels", "annotations", "fieldsV1", "auditAnnotations"}
)

// members replaces the values in a request or response, and notes the members that held some.
func (s *scrubber) members(of map[string]any, name string, stay []string, to *notes) {
	for _, member := range slices.Sorted(maps.Keys(of)) {
		if slices.Contains(stay, member) {
			continue
		}
		before := s.changes
		of[member] = s.value(of[member], member, slices.Contains(ofFreeNames, member))
		if s.changes > before {
			to.add(name + "." + brief(member, maxName) + " (repeated a secret)")
		}
	}
}

// value replaces the values in a tree, which is the value of a member. If the names of members are free, it replaces
// values in them, too.
func (s *scrubber) value(v any, member string, freeNames bool) any {
	switch v := v.(type) {
	case string:
		return s.text(v)
	case []any:
		if clean := s.bytes(v); clean != nil {
			return clean
		}
		for i := range v {
			v[i] = s.value(v[i], member, freeNames)
		}
	case map[string]any:
		for _, name := range slices.Sorted(maps.Keys(v)) {
			child := v[name]
			isName := name == "kind" || name == "apiVersion" || slices.Contains(stayBelow[member], name)
			if _, isText := child.(string); isText && isName && !freeNames {
				continue
			}
			if freeNames {
				delete(v, name)
				name = s.text(name)
			}
			v[name] = s.value(child, name, freeNames || slices.Contains(ofFreeNames, name))
		}
	}
	return v
}

// bytes returns a list of numbers without the values that are in it as bytes; nil if there are none.
func (s *scrubber) bytes(list []any) (clean []any) {
	if len(list) < leastValue {
		return nil
	}
	if _, isNumber := list[0].(json.Number); !isNumber {
		return nil
	}
	text, _ := encode(list) // a tree can always be encoded
	if changed := s.text(string(text)); changed != string(text) {
		_ = decode([]byte(changed), &clean)
	}
	return clean
}
