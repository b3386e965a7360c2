package admit

// This file reads plain JSON in place, without decoding it.

import "code.cloudfoundry.org/eirinix/internal/jsontext"

// A cursor reads JSON from front to back, value by value. It fails at a syntax error, at a type that the reader did not
// ask for, and where the reader says so.
type cursor struct{ jsontext.Reader }

func cursorOf(text []byte) cursor { return cursor{jsontext.Reader{Text: text}} }

// member enters an object, goes to the value of the member with this name, and returns true. If there is no such
// member, it goes past the object and returns false.
func (c *cursor) member(name string) bool {
	for more := c.Enter('{'); more; more = c.More('{') {
		if string(c.Name()) == name {
			return !c.Failed()
		}
		c.Value()
	}
	return false
}
