package jsontext

// This file reads and writes strings.

import (
	"bytes"
	"encoding/binary"
	"math/bits"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf16"
	"unicode/utf8"
)

// skipString moves past the string whose opening quote is at i.
func skipString(text []byte, i int) int {
	if uint(i) < uint(len(text)) && text[i] == '"' { // not at, so that the call is inlined
		return skipText(text, i+1)
	}
	return -1
}

// skipText moves past the rest of a string and its closing quote. Each turn looks at sixteen bytes without a branch,
// and most strings fit into them.
func skipText(text []byte, i int) int {
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

func isHex(c byte) bool {
	return '0' <= c && c <= '9' || 'a' <= c && c <= 'f' || 'A' <= c && c <= 'F'
}

// Text reads the string whose opening quote is at i. It returns the bytes between the quotes and the index behind the
// closing one. plain reports whether the bytes decode to themselves: they hold no escape and are valid UTF-8. The
// bytes of any other string are for Unquote.
func Text(text []byte, i int) (inside []byte, plain bool, end int) {
	if at(text, i) != '"' {
		return nil, false, -1
	}
	i++
	var seen uint64 // only the highest bit of each byte matters
	for end = i; end+8 <= len(text); end += 8 {
		eight := binary.LittleEndian.Uint64(text[end:])
		if found := marks(eight); found != 0 {
			seen |= eight & (found&-found - 1) // the bytes in front of the mark
			end += bits.TrailingZeros64(found) / 8
			break
		}
		seen |= eight
	}
	for end < len(text) && text[end] >= ' ' && text[end] != '"' && text[end] != '\\' {
		seen |= uint64(text[end])
		end++
	}
	if end < len(text) && text[end] == '"' {
		inside = text[i:end]
		return inside, seen&high == 0 || utf8.Valid(inside), end + 1
	}
	if end = skipText(text, end); end < 0 {
		return nil, false, -1
	}
	return text[i : end-1], false, end
}

// Unquote decodes the well-formed bytes between two quotes. Invalid UTF-8 and unpaired surrogates become U+FFFD, as in
// encoding/json.
func Unquote(inside []byte) string {
	var b strings.Builder
	b.Grow(len(inside))
	for {
		n := bytes.IndexByte(inside, '\\')
		if n < 0 {
			n = len(inside)
		}
		if plain := inside[:n]; utf8.Valid(plain) {
			b.Write(plain)
		} else {
			for _, r := range string(plain) {
				b.WriteRune(r)
			}
		}
		if inside = inside[n:]; len(inside) == 0 {
			return b.String()
		}
		if r := codeUnit(inside); r >= 0 {
			inside = inside[6:]
			if utf16.IsSurrogate(r) {
				if r = utf16.DecodeRune(r, codeUnit(inside)); r != unicode.ReplacementChar {
					inside = inside[6:]
				}
			}
			b.WriteRune(r)
			continue
		}
		c := inside[1]
		if n := strings.IndexByte("bfnrt", c); n >= 0 {
			c = "\b\f\n\r\t"[n]
		}
		b.WriteByte(c)
		inside = inside[2:]
	}
}

// codeUnit returns the code unit of the \uXXXX that a well-formed text begins with, or -1 if it begins otherwise.
func codeUnit(text []byte) rune {
	if len(text) < 6 || text[0] != '\\' || text[1] != 'u' {
		return -1
	}
	n, _ := strconv.ParseUint(string(text[2:6]), 16, 16)
	return rune(n)
}

const (
	each = 0x0101010101010101 // times a byte: eight of that byte
	high = 0x80 * each        // the highest bit of each byte
)

// marks marks the first of eight bytes that is a quote, a backslash or a control character. The lowest bit that is set
// is the highest bit of that byte. The bits above it mean nothing.
func marks(eight uint64) uint64 {
	quotes := eight ^ 0x02*each // moves the quote next to the control characters, so that one comparison finds both
	escapes := eight ^ '\\'*each
	return ((quotes-0x21*each)&^quotes | (escapes-each)&^escapes) & high
}

// isPlain are the bytes that AppendString writes as they are.
var isPlain = func() (all [256]bool) {
	for c := ' '; c < utf8.RuneSelf; c++ {
		all[c] = !strings.ContainsRune(`"\<>&`, c)
	}
	return all
}()

const hex = "0123456789abcdef"

// AppendString appends a JSON string as encoding/json writes it, HTML escaped.
func AppendString[T string | []byte](dst []byte, s T) []byte {
	dst = append(dst, '"')
	from := 0
	for i := 0; i < len(s); {
		c := s[i]
		if isPlain[c] {
			i++
			continue
		}
		if c < utf8.RuneSelf {
			dst = append(dst, s[from:i]...)
			dst = append(dst, '\\')
			switch c {
			case '\\', '"':
				dst = append(dst, c)
			case '\b':
				dst = append(dst, 'b')
			case '\f':
				dst = append(dst, 'f')
			case '\n':
				dst = append(dst, 'n')
			case '\r':
				dst = append(dst, 'r')
			case '\t':
				dst = append(dst, 't')
			default:
				dst = append(dst, 'u', '0', '0', hex[c>>4], hex[c&15])
			}
			i++
			from = i
			continue
		}
		r, size := utf8.DecodeRuneInString(string(s[i:min(i+utf8.UTFMax, len(s))]))
		switch {
		case r == utf8.RuneError && size == 1:
			dst = append(append(dst, s[from:i]...), `\ufffd`...)
			from = i + size
		case r == '\u2028' || r == '\u2029':
			dst = append(append(dst, s[from:i]...), `\u202`...)
			dst = append(dst, hex[r&15])
			from = i + size
		}
		i += size
	}
	return append(append(dst, s[from:]...), '"')
}
