package admit

// This file finds where JSON values end, without decoding them.

import (
	"encoding/binary"
	"math/bits"
)

// maxNesting is how deep JSON can nest before the scanner leaves it to the decoder. The decoder's own bound is ten
// times that.
const maxNesting = 1000

// skipValue returns the end of the JSON value that begins at i. It returns -1 if the value is not well-formed by RFC
// 8259, or nests deeper than nesting. Like the decoder, it does not check the encoding of text.
//
// A request that no step wants spends most of its time here. skipValue therefore reads names and strings in one place,
// eight bytes at a time, and keeps the open brackets as bits of a word.
func skipValue(text []byte, i, nesting int) int {
	var objects uint64 // one bit for each open bracket, innermost lowest: is it an object?
	open := 0          // number of open brackets
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
			if i = skipSpace(text, i+1); i < len(text) && text[i] == c+2 { // in ASCII, the closing bracket
				i++
				break
			}
			if open == min(nesting, 64) {
				if open == nesting {
					return -1
				}
				// The word has no more bits, so another call reads this value.
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
		// A value has ended. It is the last one, or a comma or closing brackets follow.
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

// skipString returns the end of the string whose text begins at i, or -1. Each turn looks at sixteen bytes without a
// branch, and most strings fit into them.
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

// plainText returns the index of the closing quote of the string whose text begins at i. It returns -1 if an escape, a
// control character or the end comes first. ascii reports whether all of the text is ASCII.
func plainText(text []byte, i int) (end int, ascii bool) {
	var all uint64 // all bits that were seen; only the highest of each byte matter
	for i+8 <= len(text) {
		eight := binary.LittleEndian.Uint64(text[i:])
		n := bits.TrailingZeros64(marks(eight)) &^ 7 // 64 if there are none
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

// marks marks the first of eight bytes that is a quote, a backslash or a control character. The lowest bit that is set
// is the highest bit of that byte. The bits above it mean nothing.
func marks(eight uint64) uint64 {
	const all = 0x0101010101010101
	quotes := eight ^ 0x02*all // moves the quote next to the control characters, so that one comparison finds both
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

// skipLiteral returns the end of the number, true, false or null at i, or -1.
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
	// No digit can follow a leading zero.
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

// skipDigits returns the end of the digits at i, or -1 if there are none.
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
