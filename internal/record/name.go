package record

// This file makes the names of recordings.

import (
	"regexp"
	"strings"
	"time"

	admissionv1 "k8s.io/api/admission/v1"
)

const (
	extension = ".json"
	stamp     = "20060102t150405.000000000z" // in UTC, so that names sort by time
)

var ours = regexp.MustCompile(`^[0-9]{8}t[0-9]{6}\.[0-9]{9}z(-[a-z0-9.-]*)?\.json$`)

// isOurs reports whether a file has the name of a recording.
func isOurs(name string) bool { return ours.MatchString(name) }

// fileName returns the name of a recording. It holds only a-z, 0-9, dots and dashes, and fits into the 255 bytes that
// file systems allow.
func fileName(received time.Time, about string) string {
	return received.UTC().Format(stamp) + about + extension
}

// about describes the call in a file's name: -<operation>-<resource>[.<subresource>]-<namespace>-<name>-<uid>,
// without the parts that the request lacks. Every part is untrusted input.
func about(req *admissionv1.AdmissionRequest) string {
	resource := req.Resource.Resource
	if req.SubResource != "" {
		resource += "." + req.SubResource
	}
	name := req.Name
	if name == "" {
		name = generateName(req)
	}
	var b strings.Builder
	for _, part := range []struct {
		word string
		most int
	}{{string(req.Operation), 10}, {resource, 50}, {req.Namespace, 63}, {name, 63}, {string(req.UID), 8}} {
		if part.word != "" {
			b.WriteByte('-')
			b.WriteString(clean(part.word, part.most))
		}
	}
	return b.String()
}

// clean lowercases a word, replaces characters that a file's name may not hold with dashes, and truncates the word to
// most bytes.
func clean(word string, most int) string {
	word = strings.Map(func(c rune) rune {
		switch {
		case 'A' <= c && c <= 'Z':
			return c - 'A' + 'a'
		case 'a' <= c && c <= 'z', '0' <= c && c <= '9', c == '.', c == '-':
			return c
		}
		return '-'
	}, word[:min(len(word), 4*most)])
	return word[:min(len(word), most)]
}

// generateName returns the generateName of the object, with the dash at its end.
func generateName(req *admissionv1.AdmissionRequest) string {
	t := text(req.Object.Raw)
	if len(t) == 0 {
		return ""
	}
	for m := range t.members(t.all()) {
		if t.word(m.name) != "metadata" {
			continue
		}
		for n := range t.members(m.value) {
			if t.word(n.name) == "generateName" {
				return t.word(n.value)
			}
		}
	}
	return ""
}
