// Package jsontext finds where parts of a JSON text end, without decoding them.
//
// Each function reads the text from an index and returns the index behind the part that it has read. It returns -1 if
// that part is not well-formed by RFC 8259. Every index outside the text counts as its end. A caller can therefore
// chain calls and check only the last index. Like encoding/json, no function checks the encoding of strings.
package jsontext

// This file reads values, and the brackets, commas and colons between them.

// SkipValue moves past the value at i, and past white space in front of it. It returns -1 also if lists and objects
// nest deeper than nesting.
//
// A request that no step wants spends most of its time here. SkipValue therefore reads names and strings in one place,
// many bytes at a time, and keeps the open brackets as bits of a word.
func SkipValue(text []byte, i, nesting int) int {
	var objects uint64 // one bit for each open bracket, innermost lowest: is it an object?
	open := 0          // number of open brackets
	name := false      // the name of a member comes next
next:
	for uint(i) < uint(len(text)) {
		switch c := text[i]; c {
		case ' ', '\n', '\t', '\r':
			i++
			continue
		case '"':
			if i = skipText(text, i+1); i < 0 {
				return -1
			}
			if name {
				if i >= len(text) || text[i] != ':' {
					if i = SkipSpace(text, i); i >= len(text) || text[i] != ':' {
						return -1
					}
				}
				name = false
				i++
				continue
			}
		case '{', '[':
			if name {
				return -1
			}
			start := i
			if i = SkipSpace(text, i+1); i < len(text) && text[i] == c+2 { // in ASCII, the closing bracket
				i++
				break
			}
			if open == min(nesting, 64) {
				if open == nesting {
					return -1
				}
				// The word has no more bits, so another call reads this value.
				if i = SkipValue(text, start, nesting-open); i < 0 {
					return -1
				}
				break
			}
			open++
			objects <<= 1
			if c == '{' {
				objects |= 1
				name = true
			}
			continue
		default:
			if name {
				return -1
			}
			if i = SkipLiteral(text, i); i < 0 {
				return -1
			}
		}
		// A value has ended. It is the last one, or a comma or closing brackets follow.
		for open > 0 {
			if i >= len(text) {
				return -1
			}
			c := text[i]
			if c <= ' ' {
				if i = SkipSpace(text, i); i >= len(text) {
					return -1
				}
				c = text[i]
			}
			i++
			isObject := objects&1 == 1
			switch {
			case c == ',':
				name = isObject
				continue next
			case c == '}' && isObject, c == ']' && !isObject:
				objects >>= 1
				open--
			default:
				return -1
			}
		}
		return i
	}
	return -1
}

// First moves from an opening bracket to the first member or item. If there is none, it moves past the closing bracket
// and returns false.
func First(text []byte, i int, opening byte) (next int, more bool) {
	if at(text, i) != opening {
		return -1, false
	}
	if i = SkipSpace(text, i+1); at(text, i) == opening+2 { // in ASCII, the closing bracket
		return i + 1, false
	}
	return i, true
}

// Next moves from the end of a member or item to the next one. If there is none, it moves past the closing bracket and
// returns false.
func Next(text []byte, i int, closing byte) (next int, more bool) {
	i = SkipSpace(text, i)
	switch at(text, i) {
	case ',':
		return SkipSpace(text, i+1), true
	case closing:
		return i + 1, false
	}
	return -1, false
}

// Colon moves from the end of a member's name to its value.
func Colon(text []byte, i int) int {
	if at(text, i) != ':' {
		if i = SkipSpace(text, i); at(text, i) != ':' {
			return -1
		}
	}
	return SkipSpace(text, i+1)
}

// SkipSpace moves past white space.
func SkipSpace(text []byte, i int) int {
	for uint(i) < uint(len(text)) && (text[i] == ' ' || text[i] == '\n' || text[i] == '\t' || text[i] == '\r') {
		i++
	}
	return i
}

// SkipLiteral moves past a number, true, false or null.
func SkipLiteral(text []byte, i int) int {
	switch at(text, i) {
	case 't':
		return skipWord(text, i, "true")
	case 'f':
		return skipWord(text, i, "false")
	case 'n':
		return skipWord(text, i, "null")
	case '-':
		i++
	}
	// No digit can follow a leading zero.
	if at(text, i) == '0' {
		i++
	} else if i = skipDigits(text, i); i < 0 {
		return -1
	}
	if at(text, i) == '.' {
		if i = skipDigits(text, i+1); i < 0 {
			return -1
		}
	}
	if c := at(text, i); c == 'e' || c == 'E' {
		if c = at(text, i+1); c == '+' || c == '-' {
			i++
		}
		return skipDigits(text, i+1)
	}
	return i
}

func skipWord(text []byte, i int, word string) int {
	if end := i + len(word); end <= len(text) && string(text[i:end]) == word {
		return end
	}
	return -1
}

// skipDigits moves past one or more digits.
func skipDigits(text []byte, i int) int {
	start := i
	for at(text, i)-'0' <= 9 {
		i++
	}
	if i == start {
		return -1
	}
	return i
}

// at returns the byte at i. At the end of the text it returns 0, which occurs nowhere in JSON.
func at(text []byte, i int) byte {
	if uint(i) < uint(len(text)) {
		return text[i]
	}
	return 0
}
