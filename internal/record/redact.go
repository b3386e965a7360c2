package record

// This file finds the Secrets and tokens in a call, and replaces their values.

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"regexp"
	"slices"
	"strings"

	"code.cloudfoundry.org/eirinix/internal/lograte"
)

// Placeholder replaces a redacted value, in the encoding of that value. In the data of Secrets, that is base64.
const Placeholder = "redacted"

var inBase64 = base64.StdEncoding.EncodeToString([]byte(Placeholder))

// kept lists the members of an object that stay. The value of a member is the list for everything below it, or nil if
// the member stays whole. In all other members, strings and numbers are replaced. The lists ignore group and version,
// because a kind of that name in another group holds secrets, too.
type kept map[string]kept

var (
	ofSecret = kept{
		"apiVersion": nil, "kind": nil, "metadata": nil, "type": nil, "immutable": nil,
		"name": nil, "namespace": nil, // of a Secret that is described in a policy
	}
	ofSecretList = kept{"apiVersion": nil, "kind": nil, "metadata": nil, "items": ofSecret}
	ofToken      = kept{"apiVersion": nil, "kind": nil, "metadata": nil, "spec": besideToken, "status": besideToken}
	besideToken  = kept{
		"audiences": nil, "authenticated": nil, "boundObjectRef": nil, "error": nil, "expirationSeconds": nil,
		"expirationTimestamp": nil, "user": nil,
	}

	// lists has the lists by kind and by resource, in lower case. The subresource token is that of TokenRequests.
	lists = map[string]kept{
		"secret": ofSecret, "secrets": ofSecret, "secretlist": ofSecretList,
		"tokenreview": ofToken, "tokenreviews": ofToken, "tokenrequest": ofToken, "token": ofToken,
	}
)

// kindsOfRequest are the members of a request that say what its objects are.
var kindsOfRequest = [][]string{
	{"kind", "kind"},
	{"requestKind", "kind"},
	{"resource", "resource"},
	{"requestResource", "resource"},
	{"subResource"},
	{"requestSubResource"},
}

// redaction replaces values in the trees of a call, and remembers them. The zero value has replaced none.
type redaction struct {
	holdsSecret bool // the call holds a Secret or a token
	removed     []string
	copies      []func(*scrubber) // remove the annotations that can hold a copy of a Secret
	notes       notes
}

// keep replaces everything in a value that is not on the list.
func (r *redaction) keep(v any, list kept, at string) any {
	r.holdsSecret = true
	switch v := v.(type) {
	case map[string]any:
		for name, child := range v {
			if inside, stays := list[name]; !stays {
				v[name] = r.replace(child, strings.EqualFold(name, "data"), below(at, name))
			} else if inside != nil {
				v[name] = r.keep(child, inside, below(at, name))
			}
		}
		return v
	case []any:
		for i := range v {
			v[i] = r.keep(v[i], list, below(at, i))
		}
		return v
	}
	return r.replace(v, false, at)
}

// replace replaces all strings and numbers in a value. The shape of the value stays, so that it can be decoded.
func (r *redaction) replace(v any, isData bool, at string) any {
	if v != nil {
		r.notes.add(at)
	}
	switch v := v.(type) {
	case map[string]any:
		for name := range v {
			v[name] = r.replace(v[name], isData, "")
		}
	case []any:
		for i := range v {
			v[i] = r.replace(v[i], isData, "")
		}
	case json.Number:
		return json.Number("0")
	case string:
		if isData {
			r.removed = append(r.removed, decoded(v))
			return inBase64
		}
		r.removed = append(r.removed, v)
		return Placeholder
	}
	return v
}

// walk redacts the Secrets and tokens in a value, at any depth, and the credentials of users. In annotations, and in
// the operations of a patch, it also finds those in a text that is JSON. It does not change such a text.
func (r *redaction) walk(v any, at string, inAnnotation bool) {
	switch v := v.(type) {
	case map[string]any:
		for name, kind := range v {
			if kind, ok := kind.(string); ok && strings.EqualFold(name, "kind") && isWhole(v) {
				if list := lists[strings.ToLower(kind)]; list != nil {
					r.keep(v, list, at)
				}
			}
		}
		for name, child := range v {
			below, isAnnotations := below(at, name), strings.EqualFold(name, "annotations")
			if members, ok := child.(map[string]any); ok && isAnnotations {
				r.annotations(members, below)
			} else if ok && strings.EqualFold(name, "extra") {
				r.extra(members, below)
			}
			r.walk(child, below, inAnnotation || isAnnotations)
		}
	case []any:
		for i, child := range v {
			r.walk(child, below(at, i), inAnnotation)
		}
	case string:
		var hidden any
		if text := decoded(v); inAnnotation && isJSON(text) && decode([]byte(text), &hidden) == nil {
			r.walk(hidden, "", true)
		}
	}
}

// isWhole reports whether an object with a kind is that object itself. If it is not, it only refers to one.
func isWhole(object map[string]any) bool {
	for name := range object {
		switch strings.ToLower(name) {
		case "metadata", "data", "stringdata", "spec", "status", "items":
			return true
		}
	}
	return false
}

var credential = regexp.MustCompile(`(?i)token|passw|secret|bearer|assertion|credential|api-?key|private-?key`)

// extra replaces the credentials that authentication adds to a user. They are lists, and are known by their names.
func (r *redaction) extra(extra map[string]any, at string) {
	for name, value := range extra {
		if list, ok := value.([]any); ok && credential.MatchString(name) && !strings.HasSuffix(name, "/credential-id") {
			r.replace(list, false, below(at, name))
		}
	}
}

// annotations finds the annotations that can hold a copy of an object, such as
// kubectl.kubernetes.io/last-applied-configuration. Tools keep such copies of earlier states, whose values are
// nowhere else in the call. They are removed if the call holds a Secret or a token.
func (r *redaction) annotations(annotations map[string]any, at string) {
	for name, text := range annotations {
		if text, ok := text.(string); ok && canHoldObject(text) {
			r.copies = append(r.copies, func(s *scrubber) {
				delete(annotations, name)
				r.notes.add(below(at, s.text(name)))
			})
		}
	}
}

// canHoldObject reports whether a text is long, has several lines, or is JSON or gzip, also in base64.
func canHoldObject(text string) bool {
	const longest = 256
	plain := strings.TrimSpace(decoded(text))
	return len(text) > longest || isJSON(plain) || strings.Contains(plain, "\n") || strings.HasPrefix(plain, "\x1f\x8b")
}

// isJSON reports whether a text begins like an object, a list or a string in JSON.
func isJSON(text string) bool {
	text = strings.TrimSpace(text)
	return text != "" && strings.ContainsRune(`{["`, rune(text[0]))
}

// decoded returns the text that s holds in base64, with padding or without, or s itself.
func decoded(s string) string {
	plain, err := base64.RawStdEncoding.DecodeString(strings.TrimRight(strings.TrimSpace(s), "="))
	if err != nil {
		return s
	}
	return string(plain)
}

// below returns the path to a member or an element below a path. The path of a value that is not written is empty, as
// are those below it. A long path ends early.
func below(path string, step any) string {
	const most = 1000
	name, isName := step.(string)
	switch name = brief(name, maxName); {
	case path == "" || len(path) > most:
		return path
	case !isName:
		return fmt.Sprintf("%s[%d]", path, step)
	case strings.ContainsAny(name, "./[]\""):
		return fmt.Sprintf("%s[%q]", path, name)
	}
	return path + "." + name
}

// notes are the redacted places. Their number is bounded.
type notes []string

func (n *notes) add(note string) {
	const most = 50
	switch {
	case note == "" || len(*n) > most || slices.Contains(*n, note):
	case len(*n) == most:
		*n = append(*n, "and more")
	default:
		*n = append(*n, note)
	}
}

// maxName is the length of the longest name that Kubernetes allows.
const maxName = 253

// brief bounds untrusted text in a list.
func brief(s string, most int) string { return lograte.Brief(strings.ToValidUTF8(s, "?"), most) }
