package record

// This file finds the secrets in a text and redacts them.

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// mostNoted bounds the list of redacted places.
const mostNoted = 50

// redaction collects the edits for the secrets in a text, and their places. It passes over the text twice. The first
// pass finds the objects that declare themselves to be Secrets or the like, at any depth. The kind can be anywhere in
// such an object. The second pass applies the rules.
type redaction struct {
	text text
	said map[int][]*rule // rules that objects declare for themselves, by where the object begins

	hiding []string     // the names of annotations that hold a Secret
	hidden []*redaction // those Secrets

	edits []edit
	path  []step
	notes []string
}

// step is one step of the path to a value: the name of a member, or the position in an array.
type step struct {
	name span // end is 0 for an element
	at   int
}

// redactRequest redacts the secrets in a review. It also removes members that a request must not have: the response
// and our own member. With keep it only removes those members. It returns the rules for the objects, by which the
// patch must be redacted, too.
func (d *redaction) redactRequest(review span, keep bool) []*rule {
	top := []*rule{bareRule}
	var rules []*rule
	if !keep {
		top = append(top, userRule)
		for m := range d.text.members(review) {
			if d.text.is(m.name, "request") {
				rules = d.rulesSaid(m.value, rules)
			}
		}
		for _, r := range rules {
			top = append(top, inRequest([]string{"object", "oldObject"}, r))
		}
		d.look(review.start, false)
		for _, own := range d.said {
			for _, r := range own {
				rules = withRule(rules, r)
			}
		}
		if holdSecret(rules) || len(d.hiding) > 0 {
			rules, top = withRule(rules, copiesRule), append(top, copiesRule)
		}
		if len(d.hiding) > 0 {
			r := annotationsRule(d.hiding)
			rules, top = append(rules, r), append(top, r)
		}
	}
	d.apply(review.start, top)
	return rules
}

// holdSecret reports whether rules are for objects of which an annotation can hold a copy with a secret. Such a copy
// holds no extras of a user, because the API server sets them.
func holdSecret(rules []*rule) bool {
	return slices.ContainsFunc(rules, func(r *rule) bool { return r != extrasRule })
}

// saysSecret reports whether an object declares itself to be a Secret or the like.
func (d *redaction) saysSecret() bool {
	for _, own := range d.said {
		if holdSecret(own) {
			return true
		}
	}
	return false
}

func withRule(rules []*rule, r *rule) []*rule {
	if r == nil || slices.Contains(rules, r) {
		return rules
	}
	return append(rules, r)
}

// rulesSaid adds the rules for the kinds and resources that the request names. A member can occur twice, or in
// another case. Any occurrence makes the object a Secret.
func (d *redaction) rulesSaid(request span, rules []*rule) []*rule {
	t := d.text
	for m := range t.members(request) {
		switch {
		case t.is(m.name, "kind", "requestKind"):
			for k := range t.members(m.value) {
				if t.is(k.name, "kind") {
					rules = withRule(rules, t.ruleForKind(k.value))
				}
			}
		case t.is(m.name, "resource", "requestResource"):
			for k := range t.members(m.value) {
				if t.is(k.name, "resource") {
					rules = withRule(rules, t.ruleForResource(k.value))
				}
			}
		case t.is(m.name, "subResource", "requestSubResource") && t.is(m.value, "token"):
			rules = withRule(rules, tokenRule)
		}
	}
	return rules
}

// look finds the objects that declare themselves to be Secrets or the like: the object itself, and those of a List or
// a template. It also finds the annotations that hold a Secret, or a copy of one. It returns the end of the value.
func (d *redaction) look(at int, annotations bool) (end int) {
	t := d.text
	switch t[at] {
	case '{':
		i, more := t.enter(span{at, at}, '{')
		for more {
			name := span{i, t.skip(i)}
			i = t.skipSpace(t.skipSpace(name.end) + len(":"))
			if t[i] == '"' {
				if r := t.ruleFor(member{name, span{i, t.skip(i)}}); r != nil {
					if d.said == nil {
						d.said = map[int][]*rule{}
					}
					d.said[at] = withRule(d.said[at], r)
				}
				if annotations {
					d.annotation(t.word(name), t.word(span{i, t.skip(i)}))
				}
			}
			i, more = t.next(d.look(i, t.is(name, "annotations")))
		}
		return i + 1
	case '[':
		i, more := t.enter(span{at, at}, '[')
		for more {
			i, more = t.next(d.look(i, false))
		}
		return i + 1
	}
	return t.skip(at)
}

// ruleFor returns the rule that a member implies for its object; nil if there is none.
func (t text) ruleFor(m member) *rule {
	switch {
	case t.is(m.name, "kind"):
		return t.ruleForKind(m.value)
	case t.isCopy(m.name) && holdsSecret(t.word(m.value)):
		return copiesRule
	}
	return nil
}

// apply applies the rules to the value that begins at a position. It returns the end of the value.
func (d *redaction) apply(at int, rules []*rule) (end int) {
	t := d.text
	for _, r := range rules {
		if r.by == "" || r.into == t[at] {
			continue
		}
		end = t.skip(at)
		if t[at] != 'n' {
			d.note(!r.quiet)
			d.edits = append(d.edits, edit{span: span{at, end}, by: r.by})
		}
		return end
	}
	switch t[at] {
	case '{':
		return d.applyToMembers(at, rules)
	case '[':
		below := make([]*rule, 0, 4)
		for _, r := range rules {
			below = withRule(below, r.others)
		}
		i, more := t.enter(span{at, at}, '[')
		d.noteMembers(at, more, rules)
		for n := 0; more; n++ {
			d.path = append(d.path, step{at: n})
			end = d.apply(i, below)
			d.leave()
			i, more = t.next(end)
		}
		return i + 1
	}
	return t.skip(at)
}

func (d *redaction) applyToMembers(at int, rules []*rule) (end int) {
	t := d.text
	for _, own := range d.said[at] {
		rules = withRule(slices.Clip(rules), own)
	}
	i, more := t.enter(span{at, at}, '{')
	d.noteMembers(at, more, rules)
	list := removals{to: &d.edits}
	var space [4]*rule
	for more {
		name := span{i, t.skip(i)}
		list.next(name.start)
		i = t.skipSpace(t.skipSpace(name.end) + len(":"))
		below, drops := t.under(rules, name, space[:0])
		d.enter(name)
		if drops {
			end = t.skip(i)
			d.note(!slices.Contains(rules, bareRule))
			list.remove(span{name.start, end})
		} else {
			end = d.apply(i, below)
			list.keep(end)
		}
		d.leave()
		i, more = t.next(end)
	}
	return i + 1
}

// noteMembers records once that the members of a value are replaced.
func (d *redaction) noteMembers(at int, some bool, rules []*rule) {
	d.note(some && slices.ContainsFunc(rules, func(r *rule) bool { return r.into != 0 && r.into == d.text[at] }))
}

// under returns the rules for a member, or reports that the member is removed.
func (t text) under(rules []*rule, name span, below []*rule) (_ []*rule, drops bool) {
	if len(rules) == 0 {
		return nil, false
	}
	word := t.word(name)
	for _, r := range rules {
		if r.drops != nil && r.drops(word) {
			return nil, true
		}
		below = withRule(below, r.of(word))
	}
	return below, false
}

func (d *redaction) enter(name span) { d.path = append(d.path, step{name: name}) }
func (d *redaction) leave()          { d.path = d.path[:len(d.path)-1] }

// note records the place that is being redacted.
func (d *redaction) note(worth bool) {
	switch {
	case !worth || len(d.notes) > mostNoted:
	case len(d.notes) == mostNoted:
		d.notes = append(d.notes, "and more")
	default:
		if where := d.where(); !slices.Contains(d.notes, where) {
			d.notes = append(d.notes, where)
		}
	}
}

// where returns the path to the place that is being redacted.
func (d *redaction) where() string {
	var b strings.Builder
	for _, s := range d.path {
		if s.name.end == 0 {
			b.WriteString("[" + strconv.Itoa(s.at) + "]")
			continue
		}
		name := brief(d.text.word(s.name))
		if strings.ContainsAny(name, "./[]\"") {
			fmt.Fprintf(&b, "[%q]", name)
			continue
		}
		if b.Len() > 0 {
			b.WriteByte('.')
		}
		b.WriteString(name)
	}
	return b.String()
}

// brief bounds untrusted text in a list, at the longest name that Kubernetes allows.
func brief(s string) string {
	const most = 253
	if len(s) > most {
		s = s[:most] + "..."
	}
	return strings.ToValidUTF8(s, "?")
}
