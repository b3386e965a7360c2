package decode

// This file tells which members of a text a Go type knows.

import "reflect"

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
