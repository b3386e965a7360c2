package record

import (
	"bytes"
	"compress/gzip"
	"encoding/base64"
	"encoding/json"
	"io"
	"strings"
)

// Tools keep a copy of the whole object in an annotation. Where an object holds a Secret, or its copy does, which may be
// that of an earlier state, no copy is kept.

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
		d.look(t.all().start)
		return len(d.said) > 0
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
	if bytes.HasPrefix(plain, []byte("\x1f\x8b")) {
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
