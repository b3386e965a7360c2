package record

// This file redacts the patch of a response.

import (
	"encoding/base64"
	"encoding/json"
	"slices"
	"strings"
)

// redactPatch redacts the values that the patch of a response writes to places with rules, and the Secrets that it
// writes anywhere. It adds them to secrets, and returns the response to be written. A malformed patch is an error
// only if there are rules or Secrets.
func redactPatch(response []byte, rules []*rule, secrets *values) (redacted []byte, notes []string, err error) {
	t := text(response)
	if t == nil {
		return nil, nil, nil
	}
	var edits []edit
	for m := range t.members(t.all()) {
		if !t.isPatch(m) {
			continue
		}
		plain, err := base64.StdEncoding.DecodeString(t.word(m.value))
		if t.kind(m.value) != '"' || err != nil || !json.Valid(plain) {
			if len(rules) == 0 {
				continue
			}
			return nil, nil, failed(notRedacted, "the patch of the response is not JSON in base64, so that nothing can be taken out of it")
		}
		d := &redaction{text: plain}
		if err := d.redactOperations(rules); err != nil && (len(rules) > 0 || len(d.said) > 0 || len(d.hiding) > 0) {
			return nil, nil, err
		}
		secrets.add(d)
		if len(d.edits) > 0 {
			notes = []string{"response.patch"}
			edits = append(edits, edit{span: m.value, by: `"` + base64.StdEncoding.EncodeToString(d.text.edited(d.edits)) + `"`})
		}
	}
	return t.edited(edits), notes, nil
}

// isPatch reports whether a member of a response is its patch, and is not empty.
func (t text) isPatch(m member) bool {
	return t.is(m.name, "patch") && !t.isNull(m.value) && string(t.at(m.value)) != `""`
}

// redactOperations redacts the values that a patch writes. It removes operations on members that are removed from the
// object, so that the other operations still apply.
func (d *redaction) redactOperations(rules []*rule) error {
	t := d.text
	d.look(t.all().start, false)
	d.lookWhereto()
	if t.isNull(t.all()) {
		return nil // a nil list of operations
	}
	if t.kind(t.all()) != '[' {
		return failed(notRedacted, "the patch of the response is no list of operations, so that nothing can be taken out of it")
	}
	if d.saysSecret() || len(d.hiding) > 0 || t.copiesSecret() {
		rules = withRule(slices.Clip(rules), copiesRule)
	}
	if len(d.hiding) > 0 {
		rules = append(slices.Clip(rules), annotationsRule(d.hiding))
	}
	list := removals{to: &d.edits}
	for operation := range t.elements(t.all()) {
		if t.kind(operation) != '{' {
			return failed(notRedacted, "the patch of the response holds what is no operation, so that nothing can be taken out of it")
		}
		list.next(operation.start)
		there, gone := d.whereto(operation, rules)
		if gone {
			list.remove(operation)
			continue
		}
		for m := range t.members(operation) {
			if t.is(m.name, "value") {
				d.apply(m.value.start, there)
			}
		}
		list.keep(operation.end)
	}
	return nil
}

// lookWhereto finds the Secrets that operations write directly into annotations, which only the paths of the
// operations show.
func (d *redaction) lookWhereto() {
	t := d.text
	for operation := range t.elements(t.all()) {
		for p := range t.members(operation) {
			if !t.is(p.name, "path") {
				continue
			}
			parts := append([]string{""}, strings.Split(t.word(p.value), "/")...)
			name, parent := unescaped(parts[len(parts)-1]), unescaped(parts[len(parts)-2])
			for m := range t.members(operation) {
				switch {
				case !t.is(m.name, "value"):
				case strings.EqualFold(name, "annotations"):
					d.look(m.value.start, true)
				case strings.EqualFold(parent, "annotations"):
					d.annotation(name, t.word(m.value))
				}
			}
		}
	}
}

// copiesSecret reports whether an operation writes a copy that holds a Secret directly into an annotation.
func (t text) copiesSecret() bool {
	for operation := range t.elements(t.all()) {
		copies, secret := false, false
		for m := range t.members(operation) {
			switch {
			case t.is(m.name, "path"):
				_, annotation := follow(t.word(m.value), []*rule{copiesRule})
				copies = copies || annotation
			case t.is(m.name, "value"):
				secret = secret || t.kind(m.value) == '"' && holdsSecret(t.word(m.value))
			}
		}
		if copies && secret {
			return true
		}
	}
	return false
}

// whereto returns the rules for the value of an operation, or reports that its target is removed. A member can occur
// twice, so all occurrences are followed.
func (d *redaction) whereto(operation span, rules []*rule) (there []*rule, gone bool) {
	t := d.text
	for m := range t.members(operation) {
		if !t.is(m.name, "path", "from") {
			continue
		}
		at, gone := follow(t.word(m.value), rules)
		if gone {
			return nil, true
		}
		if t.is(m.name, "path") {
			for _, r := range at {
				there = withRule(there, r)
			}
		}
	}
	return there, false
}

// follow returns the rules for the target of a patch's path, or reports that the target is removed. It ignores the
// part before the first slash, as every program that applies patches does.
func follow(path string, rules []*rule) (there []*rule, gone bool) {
	for _, part := range strings.Split(path, "/")[1:] {
		part = unescaped(part)
		var below []*rule
		for _, r := range rules {
			if r.drops != nil && r.drops(part) {
				return nil, true
			}
			below = withRule(below, r.of(part))
		}
		rules = below
	}
	return rules, false
}

// unescaped returns the member name that a part of a path means.
func unescaped(part string) string { return strings.NewReplacer("~1", "/", "~0", "~").Replace(part) }
