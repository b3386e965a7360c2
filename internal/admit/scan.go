package admit

import (
	"encoding/binary"
	"math/bits"
)

// maxNesting is how deep JSON may nest before the scanner leaves it to the decoder, whose own bound is ten
// times that.
const maxNesting = 1000

// skipValue returns where the JSON value ends that begins at i, or -1 when it is not well-formed by RFC 8259
// (as the decoder has it: the encoding of text is not looked at) or nests deeper than nesting.
//
// It is where most of the time of a request goes that nobody wants, so it reads names and strings in one
// place, eight bytes at a time, and keeps what is open as bits of a word.
func skipValue(text []byte, i, nesting int) int {
	var objects uint64 // for everything that is open, innermost in the lowest bit: is it an object?
	open := 0          // how many are
	name := false      // the name of a member comes next
next:
	for i < len(text) {
		switch c := text[i]; c {
		case ' ', '\n', '\t', '\r':
			i++
			continue
		case '"':
			if i = skipString(text, i+1); i < 0 {
				return -1
			}
			if name {
				if i >= len(text) || text[i] != ':' {
					if i = skipSpace(text, i); i >= len(text) || text[i] != ':' {
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
			if i = skipSpace(text, i+1); i < len(text) && text[i] == c+2 { // in ASCII, two before its counterpart
				i++
				break
			}
			if open == min(nesting, 64) {
				if open == nesting {
					return -1
				}
				// Deeper than a word has bits: another call reads this value.
				if i = skipValue(text, start, nesting-open); i < 0 {
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
			if i = skipLiteral(text, i); i < 0 {
				return -1
			}
		}
		// A value has ended: it is the last, or a comma or closing brackets follow.
		for open > 0 {
			if i >= len(text) {
				return -1
			}
			c := text[i]
			if c <= ' ' {
				if i = skipSpace(text, i); i >= len(text) {
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

// skipString returns where the string ends whose text begins at i, or -1. Most strings fit into the sixteen
// bytes that it looks at in a turn without a branch.
func skipString(text []byte, i int) int {
	for {
		var c byte
		if i+16 <= len(text) {
			sixteen := text[i : i+16 : i+16]
			low := marks(binary.LittleEndian.Uint64(sixteen))
			high := marks(binary.LittleEndian.Uint64(sixteen[8:]))
			if low|high == 0 {
				i += 16
				continue
			}
			n := bits.TrailingZeros64(low) / 8
			if low == 0 {
				n = 8 + bits.TrailingZeros64(high)/8
			}
			i += n
			c = sixteen[n&15]
		} else {
			if i >= len(text) {
				return -1
			}
			if c = text[i]; c >= ' ' && c != '"' && c != '\\' {
				i++
				continue
			}
		}
		if c == '"' {
			return i + 1
		}
		if c != '\\' || i+1 >= len(text) {
			return -1 // a control character, or the end
		}
		switch text[i+1] {
		case '"', '\\', '/', 'b', 'f', 'n', 'r', 't':
			i += 2
		case 'u':
			if i+6 > len(text) || !isHex(text[i+2]) || !isHex(text[i+3]) || !isHex(text[i+4]) || !isHex(text[i+5]) {
				return -1
			}
			i += 6
		default:
			return -1
		}
	}
}

// plainText returns where the closing quote stands of the string whose text begins at i, or -1 when an escape,
// a control character or the end comes first; and whether all of the text is ASCII.
func plainText(text []byte, i int) (end int, ascii bool) {
	var all uint64 // the highest bits of everything that was seen
	for i+8 <= len(text) {
		eight := binary.LittleEndian.Uint64(text[i:])
		n := bits.TrailingZeros64(marks(eight)) &^ 7 // 64 when there are none
		all |= eight & (1<<n - 1)
		i += n / 8
		if n < 64 {
			break
		}
	}
	for i < len(text) && text[i] >= ' ' && text[i] != '"' && text[i] != '\\' {
		all |= uint64(text[i])
		i++
	}
	if i >= len(text) || text[i] != '"' {
		return -1, false
	}
	return i, all&0x8080808080808080 == 0
}

// marks sets the highest bit of the first of eight bytes that does not simply belong to a string's text: a
// quote, a backslash or a control character. Bits above that one mean nothing.
func marks(eight uint64) uint64 {
	const all = 0x0101010101010101
	quotes := eight ^ 0x02*all // which moves the quote next to the control characters: one comparison finds both
	escapes := eight ^ '\\'*all
	return ((quotes-0x21*all)&^quotes | (escapes-all)&^escapes) & (0x80 * all)
}

func isHex(c byte) bool {
	return '0' <= c && c <= '9' || 'a' <= c && c <= 'f' || 'A' <= c && c <= 'F'
}

func skipSpace(text []byte, i int) int {
	for i < len(text) && (text[i] == ' ' || text[i] == '\n' || text[i] == '\t' || text[i] == '\r') {
		i++
	}
	return i
}

// skipLiteral returns where the number, true, false or null at i ends, or -1.
func skipLiteral(text []byte, i int) int {
	for _, word := range [...]string{"true", "false", "null"} {
		if text[i] == word[0] {
			if len(text)-i < len(word) || string(text[i:i+len(word)]) != word {
				return -1
			}
			return i + len(word)
		}
	}
	if text[i] == '-' {
		i++
	}
	// A zero stands alone.
	if i < len(text) && text[i] == '0' {
		i++
	} else if i = skipDigits(text, i); i < 0 {
		return -1
	}
	if i < len(text) && text[i] == '.' {
		if i = skipDigits(text, i+1); i < 0 {
			return -1
		}
	}
	if i < len(text) && (text[i] == 'e' || text[i] == 'E') {
		i++
		if i < len(text) && (text[i] == '+' || text[i] == '-') {
			i++
		}
		i = skipDigits(text, i)
	}
	return i
}

// skipDigits returns where the digits at i end, or -1 when there are none.
func skipDigits(text []byte, i int) int {
	start := i
	for i < len(text) && '0' <= text[i] && text[i] <= '9' {
		i++
	}
	if i == start {
		return -1
	}
	return i
}
