package record

import "fmt"

// This file removes the values from the other texts of a call: the rest of the request, and the response.

// A place decides which strings of a value stay. They stay because the call could not be replayed without them, or
// because they are only names.
type place int

const (
	anywhere place = iota // names of members stay
	free                  // nothing stays
	atReview
	atRequest
	atObject
	atMetadata
	atManagedFields
)

// below returns the place of a member's value, or reports that the member stays as it is.
func (p place) below(t text, m member) (_ place, stays bool) {
	isWord := t.kind(m.value) == '"'
	switch p {
	case atReview:
		if t.is(m.name, "request") {
			return atRequest, false
		}
		return atObject, isWord && t.is(m.name, "kind", "apiVersion")
	case atRequest:
		return atObject, t.is(m.name, "uid", "kind", "resource", "subResource", "requestKind", "requestResource", "requestSubResource", "name", "namespace", "operation")
	case atObject:
		if t.is(m.name, "metadata") {
			return atMetadata, false
		}
		return atObject, isWord && t.is(m.name, "kind", "apiVersion")
	case atMetadata:
		switch {
		case t.is(m.name, "labels", "annotations"):
			return free, false
		case t.is(m.name, "managedFields"):
			return atManagedFields, false
		}
		return atObject, isWord && t.is(m.name, "name", "generateName", "namespace", "uid", "resourceVersion", "selfLink", "creationTimestamp", "deletionTimestamp")
	case atManagedFields:
		if t.is(m.name, "fieldsV1") {
			return free, false
		}
		return atManagedFields, isWord && t.is(m.name, "apiVersion", "operation", "time", "fieldsType")
	}
	return p, false
}

// scrubber collects the edits that remove the values from a text.
type scrubber struct {
	*values
	text  text
	edits []edit
	notes []string
}

// scrubRequest removes the values from a review to which the rules have been applied. It also returns their places.
func (v *values) scrubRequest(review text) (_ text, notes []string) {
	if v.spelt == nil {
		return review, nil
	}
	s := &scrubber{values: v, text: review}
	s.value(review.all().start, atReview)
	return review.edited(s.edits), s.notes
}

// value scrubs the value that begins at a position. It returns the end of the value.
func (s *scrubber) value(at int, where place) (end int) {
	t := s.text
	switch t[at] {
	case '"':
		end = t.skip(at)
		s.word(span{at, end}, s.scrubbed(t.word(span{at, end})))
		return end
	case '[':
		i, more := t.enter(span{at, at}, '[')
		if _, _, end := bytesAt(t, i); more && t[t.skipSpace(end)] == ']' {
			s.bytes(span{i, end})
		}
		for more {
			i, more = t.next(s.value(i, where))
		}
		return i + 1
	case '{':
		i, more := t.enter(span{at, at}, '{')
		for more {
			i, more = t.next(s.member(i, where))
		}
		return i + 1
	}
	return t.skip(at)
}

// member scrubs the member whose name begins at a position. It returns the end of the member.
func (s *scrubber) member(at int, where place) (end int) {
	t, known := s.text, len(s.edits)
	name := span{at, t.skip(at)}
	value := t.skipSpace(t.skipSpace(name.end) + len(":"))
	if where == free {
		s.word(name, s.scrubbed(t.word(name)))
	}
	below, stays := where.below(t, member{name, span{value, value + 1}})
	if stays {
		return t.skip(value)
	}
	end = s.value(value, below)
	switch {
	case len(s.edits) == known:
	case where == atRequest:
		s.notes = append(s.notes, fmt.Sprintf("request.%s (repeated a secret)", brief(t.word(name))))
	case where == atReview && below != atRequest:
		s.notes = append(s.notes, brief(t.word(name))+" (repeated a secret)")
	}
	return end
}

// word replaces the contents of a string.
func (s *scrubber) word(at span, word string) {
	if word != s.text.word(at) {
		by, _ := encode(word) // a string can always be encoded
		s.edits = append(s.edits, edit{span: at, by: string(by)})
	}
}

// bytes scrubs an array of numbers that are bytes.
func (s *scrubber) bytes(at span) {
	list := text(s.text.at(at))
	if edits := s.listed(string(list)); len(edits) > 0 {
		s.edits = append(s.edits, edit{span: at, by: string(list.edited(edits))})
	}
}
