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

// This file finds the copies of objects that tools keep in annotations. If an object holds a Secret, or if its copy
// does, which can be of an earlier state, no copy is kept. Annotations with other names are removed only if they hold
// a Secret.

// copiesRule is for a request that holds a secret, at any depth. The copies can be those of any object around it, or
// of the old object.
var copiesRule = func() *rule {
	r := &rule{drops: isCopy}
	r.others = r
	return r
}()

// marksOfCopies are parts of the names of such annotations: those of kubectl, kapp, kopf, Rancher and Banzai Cloud's
// operators.
var marksOfCopies = []string{"last-applied", "last-handled-configuration", "kapp.k14s.io/original", "objectset.rio.cattle.io/applied"}

// isCopy reports whether tools keep a copy of the object in an annotation. Names in managedFields begin with f: and
// hold no copies.
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

// isCopy does the same for a name in a text. A cheap test rules out most names first.
func (t text) isCopy(name span) bool {
	return name.end-name.start > len(marksOfCopies[0]) && bytes.ContainsAny(t.at(name), `-/\`) && isCopy(t.word(name))
}

// annotationsRule is for a request in which annotations with these names hold a Secret. It removes them from all
// objects.
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

// secretsIn finds the Secrets and tokens in a text, if there is something to redact in them. The text is JSON, or
// JSON in base64, which can be compressed with gzip. It returns nil if there are none.
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

// mostUnpacked bounds the size of an unpacked copy. An object takes up to 3 MB.
const mostUnpacked = 16 << 20

// holdsSecret reports whether a copy holds a Secret or the like, or could hold one. The copy can be compressed.
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

// fromBase64 decodes a text that is in base64, with padding or without. It reports false for an empty one.
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
