package convert

// This file reads and writes the annotations.

import (
	"bytes"
	"cmp"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"

	"code.cloudfoundry.org/eirinix/internal/jsontext"
)

// Prefix begins the names of the annotations that hold what the object's version cannot hold. There is one for each lost
// place, so that server-side apply removes, owns and refuses each by itself. The rest of the name is a hash of the
// version and the path.
//
// The value is "<key>.<signature>.<entry>". An annotation that no key of the program has signed is as any other: it stays,
// and is not applied. All of them are hidden from the program's functions.
const Prefix = "conversion.eirinix.cloudfoundry.org/"

// Incomplete is the annotation that names the places whose values did not fit, as JSON: a list of paths for each version.
const Incomplete = Prefix + "incomplete"

const (
	// maxAnnotated is what an API server accepts for the names and values of all annotations of an object
	// (k8s.io/apimachinery/pkg/api/validation, TotalAnnotationSizeLimitB).
	maxAnnotated = 256 << 10

	// maxNamed bounds what Incomplete says of a version: so many places, of so many bytes each.
	maxNamed, longestNamed = 8, 100

	// nameLength is that of a place's name behind Prefix, and signatureLength that of 16 bytes in base64.
	nameLength, signatureLength = 32, 22
)

// An entry is one value that the way back gives otherwise than it was.
type entry struct {
	Version string `json:"version"`

	// Path leads to the place: ".name" to a member, and "[name=web" to the item with this identity.
	Path []string `json:"path"`

	// Value is the one that was lost. It is missing if the way back adds one.
	Value json.RawMessage `json:"value,omitempty"`

	// Base is the digest of the value that the way back gives. It is empty if it gives none.
	Base string `json:"base,omitempty"`

	// After is the identity of the item in front of a lost item. It is empty for the first one.
	After string `json:"after,omitempty"`

	// Above is the number of steps in front of the last one whose places are lost, too.
	Above int `json:"above,omitempty"`

	text       string // the entry as JSON, of a loss
	annotation *tree  // that holds it, of another one
}

// text returns JSON in which no character takes more room than it has to.
func text(v any) string {
	var b bytes.Buffer
	encoder := json.NewEncoder(&b)
	encoder.SetEscapeHTML(false)
	if encoder.Encode(v) != nil {
		return "" // no value of this package
	}
	return strings.TrimSuffix(b.String(), "\n")
}

// notes are the annotations of an object.
type notes struct {
	entries []entry // for the version of the result
	others  []*tree // those that travel
}

// take removes the annotations from an object. An entry for the object's own version could not be applied where it came
// from, because its key was not known there. It travels on, unless its place is lost again.
func (c *conversion) take(object *tree) (n notes) {
	metadata := object.Member("metadata")
	annotations := metadata.Member("annotations")
	var ours []*tree
	var keys []string
	if annotations.IsObject() {
		for _, a := range slices.Clone(annotations.Items) {
			if strings.HasPrefix(a.Name, Prefix) {
				annotations.Remove(a.Name)
				if ours = append(ours, a); a.Name != Incomplete { // no key signs it
					keys = append(keys, keyOf(a))
				}
			}
		}
	}
	if len(ours) > 0 && len(annotations.Items) == 0 {
		metadata.Remove("annotations")
	}
	if c.Forget {
		return n
	}
	slices.SortFunc(ours, func(a, b *tree) int { return cmp.Compare(a.Name, b.Name) })
	var unsigned []string
	known, unread := c.Keys.find(c.ctx, keys)
	for _, a := range ours {
		e, err := c.verify(a, known)
		if err == nil && e.Version == c.to.Name {
			n.entries = append(n.entries, e)
			continue
		}
		n.others = append(n.others, a)
		if err != nil && a.Name != Incomplete {
			unsigned = append(unsigned, a.Name)
		}
	}
	if len(unsigned) > 0 {
		c.ignored(fmt.Errorf("%d annotations, such as %s, are signed with none of the program's keys; they stay as they are, and are not applied: %w",
			len(unsigned), unsigned[0], cmp.Or(unread, errUnsigned)))
	}
	return n
}

// keyOf returns the name of the key that has signed an annotation; empty for none.
func keyOf(annotation *tree) string {
	value, _ := stringOf(annotation)
	key, _, signed := strings.Cut(value, ".")
	if !signed || len(key) != keyNameLength {
		return ""
	}
	return key
}

var errUnsigned = errors.New("another program has written them, or their key is gone")

// verify reads the entry in an annotation. Nothing of it is read before its signature is good.
func (c *conversion) verify(annotation *tree, known map[string][]byte) (e entry, err error) {
	value, _ := stringOf(annotation)
	parts := strings.SplitN(value, ".", 3)
	if len(parts) < 3 || known[parts[0]] == nil ||
		!hmac.Equal([]byte(parts[1]), []byte(c.signature(known[parts[0]], annotation.Name, parts[2]))) {
		return e, errUnsigned
	}
	err = json.Unmarshal([]byte(parts[2]), &e)
	e.annotation = annotation
	return e, err
}

// signature signs an entry for its kind and its name. It does not bind the object, so a copy of an object keeps its values.
func (c *conversion) signature(key []byte, name, text string) string {
	h := hmac.New(sha256.New, key)
	for _, s := range []string{c.Group, c.kind, name, text} {
		h.Write(fmt.Appendf(nil, "%d:%s", len(s), s))
	}
	return base64.RawURLEncoding.EncodeToString(h.Sum(nil)[:16])
}

// signed returns the name and the value of a loss's annotation.
func (c *conversion) signed(e *entry, key namedKey) (name, value string) {
	place := sha256.Sum256([]byte(text(entry{Version: e.Version, Path: e.Path})))
	name = Prefix + hex.EncodeToString(place[:nameLength/2])
	return name, key.name + "." + c.signature(key.key, name, e.text) + "." + e.text
}

// put adds annotations to the result: those that travel, and one for each loss of a version. If there is no room for one
// for each leaf, larger values are kept in one. If they do not fit either, the largest ones are left out.
func (c *conversion) put(result *tree, n notes, from string, losses func(room int) ([]entry, error)) error {
	metadata := result.Member("metadata")
	annotations := metadata.Member("annotations")
	if !annotations.IsObject() {
		annotations = jsontext.NewTree('{')
	}
	incomplete := map[string][]string{}
	for _, a := range n.others {
		if a.Name == Incomplete {
			text, _ := stringOf(a)
			_ = json.Unmarshal([]byte(text), &incomplete) // a client can write it: what is no such map counts for nothing
			continue
		}
		annotations.Set(a.Name, a)
	}
	delete(incomplete, from)
	found, lost := losses(room(annotations))
	if len(found) > 0 && lost == nil {
		key, err := c.Keys.signing(c.ctx)
		if err != nil {
			return err
		}
		if places := c.fit(annotations, found, key); len(places) > 0 {
			incomplete[from] = places
			c.incomplete(fmt.Errorf("%s cannot hold all of %s, and its annotations have no room for the rest; lost are %s", c.to.Name, from, text(places)))
		}
	}
	if err := c.ctx.Err(); err != nil {
		return err
	}
	if lost != nil {
		lost = fmt.Errorf("the way back, which shows what %s cannot hold, failed: %s", c.to.Name, bounded(lost.Error()))
		incomplete[from] = []string{lost.Error()}
		c.incomplete(lost)
	}
	if mark := text(incomplete); len(incomplete) > 0 && len(Incomplete)+len(mark) <= room(annotations) {
		annotations.Set(Incomplete, quoted(mark))
	}
	if len(annotations.Items) > 0 {
		metadata.Set("annotations", annotations)
	}
	return nil
}

// size returns the number of bytes of a loss's annotation.
func (e *entry) size() int {
	return len(Prefix) + nameLength + keyNameLength + signatureLength + len("..") + len(e.text)
}

// fit adds the annotations of losses. It returns the places of those for which there is no room.
func (c *conversion) fit(annotations *tree, losses []entry, key namedKey) (places []string) {
	left, reserved, shed := roomBeside(annotations, losses), 0, 0
	if left < 0 {
		reserved = len(Incomplete) + (maxNamed+1)*longestNamed
	}
	order := make([]int, len(losses))
	for i := range order {
		order[i] = i
	}
	slices.SortStableFunc(order, func(i, j int) int { return cmp.Compare(losses[j].size(), losses[i].size()) })
	for _, i := range order {
		if left >= reserved {
			name, value := c.signed(&losses[i], key)
			annotations.Set(name, quoted(value))
			continue
		}
		left += losses[i].size()
		if shed++; shed <= maxNamed {
			places = append(places, fmt.Sprintf("%.*s", longestNamed, strings.Join(losses[i].Path, "")))
		}
	}
	if shed > maxNamed {
		places = append(places, fmt.Sprintf("and %d more", shed-maxNamed))
	}
	return places
}

// room returns the number of bytes that an object's annotations can still take.
func room(annotations *tree) int {
	left := maxAnnotated
	for _, a := range annotations.Items {
		text, _ := stringOf(a)
		left -= len(a.Name) + len(text)
	}
	return left
}

// roomBeside returns the number of bytes that the annotations of all losses leave. It is negative if they do not fit.
func roomBeside(annotations *tree, losses []entry) int {
	left := room(annotations)
	for i := range losses {
		left -= losses[i].size()
	}
	return left
}

func quoted(s string) *tree { return jsontext.TreeOf(jsontext.AppendString(nil, s)) }
