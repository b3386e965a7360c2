package admit

// This file reads plain JSON in place, without decoding it.

import "code.cloudfoundry.org/eirinix/internal/jsontext"

// maxNesting is how deep JSON can nest before a cursor leaves it to the decoder. The decoder's own bound is ten times
// that.
const maxNesting = 1000

// A cursor reads JSON from front to back, value by value. Text that is not plain makes it odd. That is a syntax error,
// a type that the reader did not ask for, or a duplicate member. An escape or invalid UTF-8 in a name or string is not
// plain, either. From then on, the cursor returns nothing, and the caller uses the decoder instead.
type cursor struct {
	text []byte
	at   int
	odd  bool
}

func (c *cursor) giveUp() {
	c.odd, c.at = true, len(c.text)
}

// peek skips white space and returns the first byte of the next token, or 0 at the end.
func (c *cursor) peek() byte {
	if c.at < len(c.text) && c.text[c.at] <= ' ' {
		c.at = jsontext.SkipSpace(c.text, c.at)
	}
	if c.at < len(c.text) {
		return c.text[c.at]
	}
	return 0
}

// null reports whether null comes next, and reads it.
func (c *cursor) null() bool {
	if c.peek() == 'n' && jsontext.SkipLiteral(c.text, c.at) > 0 {
		c.at += len("null")
		return true
	}
	return false
}

// enter reads the opening bracket of an object or array, and reports whether a member or item follows. If none does, it
// also reads the closing bracket. null counts as empty.
func (c *cursor) enter(bracket byte) bool {
	if c.peek() != bracket {
		if !c.null() {
			c.giveUp()
		}
		return false
	}
	c.at++
	if c.peek() == bracket+2 {
		c.at++
		return false
	}
	return !c.odd
}

// more reads the comma after a member or an item and returns true, or it reads the closing bracket and returns false.
func (c *cursor) more(bracket byte) bool {
	switch c.peek() {
	case ',':
		c.at++
		return true
	case bracket + 2:
		c.at++
		return false
	}
	c.giveUp()
	return false
}

// name reads the name of a member and the colon.
func (c *cursor) name() []byte {
	name := c.plain()
	if c.peek() != ':' {
		c.giveUp()
		return nil
	}
	c.at++
	return name
}

// plain reads a string without escapes, which decodes to its own bytes.
func (c *cursor) plain() []byte {
	c.peek()
	text, plain, end := jsontext.Text(c.text, c.at)
	if !plain {
		c.giveUp()
		return nil
	}
	c.at = end
	return text
}

// value reads a value of any type and returns its text.
func (c *cursor) value() []byte {
	c.peek()
	start := c.at
	end := jsontext.SkipValue(c.text, start, maxNesting)
	if end < 0 {
		c.giveUp()
		return nil
	}
	c.at = end
	return c.text[start:end:end]
}
