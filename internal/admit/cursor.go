package admit

// This file reads plain JSON in place, without decoding it.

import "code.cloudfoundry.org/eirinix/internal/jsontext"

// A cursor reads JSON from front to back, value by value. It fails at a syntax error, at a type that the reader did not
// ask for, and where the reader says so.
type cursor struct{ jsontext.Reader }

func cursorOf(text []byte) cursor { return cursor{jsontext.Reader{Text: text}} }
