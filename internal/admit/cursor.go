package admit

import "unicode/utf8"

// A cursor reads JSON from front to back, value by value. What it does not take for plain (a syntax error, a
// type that the reader did not ask for, a name or text with an escape or that is not UTF-8, a member twice)
// makes it odd; from then on it yields nothing, and the caller takes the decoder's road.
type cursor struct {
	text []byte
	at   int
	odd  bool
}

func (c *cursor) giveUp() {
	c.odd, c.at = true, len(c.text)
}

// peek skips space and returns the byte that the next token begins with; 0 at the end.
func (c *cursor) peek() byte {
	if c.at < len(c.text) && c.text[c.at] > ' ' {
		return c.text[c.at]
	}
	c.at = skipSpace(c.text, c.at)
	if c.at < len(c.text) {
		return c.text[c.at]
	}
	return 0
}

// null reads null if that is what comes next.
func (c *cursor) null() bool {
	if c.peek() == 'n' && skipLiteral(c.text, c.at) > 0 {
		c.at += len("null")
		return true
	}
	return false
}

// enter reads the opening bracket of an object or array, and tells whether there is something in it. Of an
// empty one, the closing bracket is read too. null counts as empty.
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

// more reads what stands behind a member or an item: a comma, and true, or the closing bracket.
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
	if c.peek() != '"' {
		c.giveUp()
		return nil
	}
	start := c.at + 1
	end, ascii := plainText(c.text, start)
	if end < 0 || !ascii && !utf8.Valid(c.text[start:end]) {
		c.giveUp()
		return nil
	}
	c.at = end + 1
	return c.text[start:end]
}

// value reads a value of any type and returns it as it stands.
func (c *cursor) value() []byte {
	c.peek()
	start := c.at
	end := skipValue(c.text, start, maxNesting)
	if end < 0 {
		c.giveUp()
		return nil
	}
	c.at = end
	return c.text[start:end:end]
}
