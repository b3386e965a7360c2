package record

import (
	"bytes"
	"compress/gzip"
	"encoding/base64"
	"encoding/json"
	"io"
	"slices"
	"strings"
)

// Tools keep a copy of the whole object in an annotation. Where an object holds a Secret, or its copy does, which may be
// that of an earlier state, no copy is kept. Of annotations with other names, those are not kept that hold a Secret.

// copiesRule is for a request that holds something secret, wherever it stands: the copies may be those of any object
// around it, or of the old one.
var copiesRule = func() *rule {
	r := &rule{drops: isCopy}
	r.others = r
	return r
}()

// marksOfCopies are parts of the names of such annotations: kubectl's, and those of kapp, kopf, Rancher and Banzai Cloud's
// operators.
var marksOfCopies = []string{"last-applied", "last-handled-configuration", "kapp.k14s.io/original", "objectset.rio.cattle.io/applied"}

// isCopy tells whether tools keep a copy of the object in an annotation. In managedFields, where names begin with f:,
// they keep none.
func isCopy(annotation string) bool {
	annotation = strings.ToLower(annotation)
	if strings.HasPrefix(annotation, "f:") {
		return false
	}
	for _, mark := range marksOfCopies {
		if strings.Contains(annotation, mark) {
			return true
		}
	}
	return false
}

// isCopy is the same for a name in a text. Most names are none, which is seen at once.
func (t text) isCopy(name span) bool {
	return name.end-name.start > len(marksOfCopies[0]) && bytes.ContainsAny(t.at(name), `-/\`) && isCopy(t.word(name))
}

// annotationsRule is for a request in which annotations with these names hold a Secret: they go from all objects.
func annotationsRule(names []string) *rule {
	r := &rule{names: []string{"annotations"}, below: []*rule{{drops: func(name string) bool { return slices.Contains(names, name) }}}}
	r.others = r
	return r
}

// annotation looks for a Secret in the text of an annotation.
func (d *redaction) annotation(name, text string) {
	if hidden := secretsIn(text); hidden != nil {
		d.hidden, d.hiding = append(d.hidden, hidden), append(d.hiding, name)
	}
}

// secretsIn finds the Secrets and tokens, with something to take out, in a text that is JSON or JSON in base64, which may be
// packed. It is nil where there are none.
func secretsIn(copied string) *redaction {
	t := text(strings.TrimSpace(copied))
	if len(t) == 0 {
		return nil
	}
	if !json.Valid(t) {
		plain, ok := fromBase64(string(t))
		if ok && bytes.HasPrefix(plain, gzipped) {
			plain, ok = unpacked(plain)
		}
		if !ok {
			return nil
		}
		return secretsIn(string(plain))
	}
	if t.kind(t.all()) == '"' {
		return secretsIn(t.word(t.all()))
	}
	d := &redaction{text: t}
	d.look(t.all().start, false)
	d.apply(t.all().start, nil)
	if len(d.edits)+len(d.hidden) == 0 {
		return nil
	}
	return d
}

var gzipped = []byte("\x1f\x8b")

// mostUnpacked bounds what a copy is unpacked to. An object takes up to 3 MB.
const mostUnpacked = 16 << 20

// holdsSecret tells whether a copy is of something that holds a Secret or the like, or may be. It may be packed.
func holdsSecret(copied string) bool {
	t := text(strings.TrimSpace(copied))
	if json.Valid(t) {
		if t.kind(t.all()) == '"' {
			return holdsSecret(t.word(t.all()))
		}
		d := &redaction{text: t}
		d.look(t.all().start, false)
		return d.saysSecret() || len(d.hidden) > 0
	}
	lower := strings.ToLower(copied)
	for _, mention := range []string{"secret", "tokenreview", "tokenrequest"} {
		if strings.Contains(lower, mention) {
			return true
		}
	}
	plain, ok := fromBase64(string(t))
	if !ok {
		return false
	}
	if bytes.HasPrefix(plain, gzipped) {
		if plain, ok = unpacked(plain); !ok {
			return true
		}
	}
	return holdsSecret(string(plain))
}

// fromBase64 decodes a text that is in base64, with padding or without; an empty one is not.
func fromBase64(s string) (plain []byte, ok bool) {
	plain, err := base64.RawStdEncoding.DecodeString(strings.TrimRight(s, "="))
	return plain, err == nil && len(plain) > 0
}

func unpacked(packed []byte) (plain []byte, ok bool) {
	r, err := gzip.NewReader(bytes.NewReader(packed))
	if err != nil {
		return nil, false
	}
	plain, err = io.ReadAll(io.LimitReader(r, mostUnpacked+1))
	return plain, err == nil && len(plain) <= mostUnpacked
}
