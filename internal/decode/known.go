package decode

// This file tells which members of a text a Go type knows.

import (
	"reflect"
	"slices"

	"code.cloudfoundry.org/eirinix/internal/jsontext"
)

// Known is the part of a JSON value that a Go type knows. The zero value knows everything, as a tree of maps does.
type Known struct{ p *plan }

// KnownTo returns the members that a type knows.
func KnownTo(t reflect.Type) Known { return Known{planFor(t)} }

// target returns the plan behind pointers.
func (k Known) target() *plan {
	p := k.p
	for range maxPointers {
		if p == nil || p.elem == nil || p.typ.Kind() != reflect.Pointer {
			break
		}
		p = p.elem
	}
	return p
}

// Member returns the knowledge of a member's value, and reports whether the member is known. A type that reads its own
// JSON knows every member.
func (k Known) Member(name string) (Known, bool) {
	p := k.target()
	switch {
	case p == nil || p.shape == shapeUnmarshaler:
		return Known{}, true
	case p.typ.Kind() == reflect.Struct && len(p.heads) > 0:
		if f := p.field([]byte(name)); f != nil {
			return Known{f.plan}, true
		}
		return Known{}, false
	case p.typ.Kind() == reflect.Map:
		return Known{p.elem}, true
	}
	return Known{}, true
}

// Item returns the knowledge of the items of a list.
func (k Known) Item() Known {
	if p := k.target(); p != nil && p.typ.Kind() == reflect.Slice {
		return Known{p.elem}
	}
	return Known{}
}

// All reports whether the type knows every member of a text, at every depth. False can also mean that a member occurs
// twice, or that the text is not well-formed.
func (k Known) All(raw []byte, except ...string) bool {
	d := decoder{raw: raw, deepest: maxNesting}
	return d.knows(k, jsontext.SkipSpace(raw, 0), except) >= 0
}

func (d *decoder) knows(k Known, i int, except []string) int {
	opening := d.at(i)
	if k.target() == nil || opening != '{' && opening != '[' {
		return d.skip(i)
	}
	i, more := d.first(i, opening)
	for more {
		inner := k.Item()
		if opening == '{' {
			var name []byte
			var known bool
			name, i = d.member(i)
			if except != nil && slices.Contains(except, string(name)) {
				inner = Known{}
			} else if inner, known = k.Member(string(name)); !known {
				return -1
			}
		}
		i = d.knows(inner, i, nil)
		i, more = d.next(i, opening+2)
	}
	return i
}
