package patch

// This file writes strings, and JSON from other encoders, as encoding/json does.

import (
	"bytes"
	"encoding/json"
	"unicode/utf8"
)

// appendCompact appends JSON from another encoder, in the spelling of encoding/json.
func appendCompact(dst, text []byte) ([]byte, error) {
	var compact bytes.Buffer
	if err := json.Compact(&compact, text); err != nil {
		return dst, err
	}
	return appendEscaped(dst, compact.Bytes()), nil
}

// appendEscaped appends JSON and escapes the characters that HTML treats specially, which occur only in strings.
func appendEscaped(dst, text []byte) []byte {
	from := 0
	for i := 0; i < len(text); i++ {
		switch c := text[i]; {
		case c == '<' || c == '>' || c == '&':
			dst = append(dst, text[from:i]...)
			dst = append(dst, '\\', 'u', '0', '0', hex[c>>4], hex[c&15])
			from = i + 1
		case c == 0xe2 && i+2 < len(text) && text[i+1] == 0x80 && text[i+2]&^1 == 0xa8:
			dst = append(dst, text[from:i]...)
			dst = append(dst, '\\', 'u', '2', '0', '2', hex[text[i+2]&15])
			from = i + 3
		}
	}
	return append(dst, text[from:]...)
}

const hex = "0123456789abcdef"

// appendString appends a JSON string as encoding/json writes it, HTML escaped.
func appendString[T string | []byte](dst []byte, s T) []byte {
	dst = append(dst, '"')
	from := 0
	for i := 0; i < len(s); {
		c := s[i]
		if c >= ' ' && c < utf8.RuneSelf && c != '"' && c != '\\' && c != '<' && c != '>' && c != '&' {
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
