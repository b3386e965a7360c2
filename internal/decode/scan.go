package decode

// This file scans JSON text: strings, numbers, literals, brackets and white space.

import (
	"encoding/binary"
	"math/bits"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf16"
	"unicode/utf8"
)

// string reads a string.
func (d *decoder) string(i int) (s string, end int) {
	text, plain, end := d.quoted(i)
	if !plain {
		d.made += int64(len(text))
		return unquote(text), end
	}
	if len(text) > d.kept.Cap()-d.kept.Len() {
		if len(text) > longString {
			d.made += int64(len(text))
			return string(text), end
		}
		d.kept = strings.Builder{}
		d.kept.Grow(max(len(text), min(keptTogether, (len(d.raw)-i)/2)))
		d.made += int64(d.kept.Cap())
	}
	start := d.kept.Len()
	d.kept.Write(text)
	return d.kept.String()[start:], end
}

// quoted returns the text between quotes. plain reports whether it decodes to itself: it has no escapes and is valid
// UTF-8.
func (d *decoder) quoted(i int) (text []byte, plain bool, end int) {
	if d.at(i) != '"' {
		return nil, true, -1
	}
	i++
	end, ascii := plainText(d.raw, i)
	if d.at(end) == '"' {
		text = d.raw[i:end]
		return text, ascii || utf8.Valid(text), end + 1
	}
	if end = d.skipText(end); end < 0 {
		return nil, true, -1
	}
	return d.raw[i : end-1], false, end
}

// unquote decodes the well-formed text between quotes. Invalid UTF-8 and unpaired surrogates become U+FFFD.
func unquote(text []byte) string {
	var b strings.Builder
	b.Grow(len(text))
	for {
		n, ascii := plainText(text, 0)
		if plain := text[:n]; ascii || utf8.Valid(plain) {
			b.Write(plain)
		} else {
			for _, r := range string(plain) {
				b.WriteRune(r)
			}
		}
		if text = text[n:]; len(text) == 0 {
			return b.String()
		}
		if r := codeUnit(text); r >= 0 {
			text = text[6:]
			if utf16.IsSurrogate(r) {
				if r = utf16.DecodeRune(r, codeUnit(text)); r != unicode.ReplacementChar {
					text = text[6:]
				}
			}
			b.WriteRune(r)
			continue
		}
		c := text[1]
		if n := strings.IndexByte("bfnrt", c); n >= 0 {
			c = "\b\f\n\r\t"[n]
		}
		b.WriteByte(c)
		text = text[2:]
	}
}

// codeUnit returns the code unit of the \uXXXX that a text begins with, or -1 if it begins otherwise.
func codeUnit(text []byte) rune {
	if len(text) < 6 || text[0] != '\\' || text[1] != 'u' {
		return -1
	}
	n, err := strconv.ParseUint(string(text[2:6]), 16, 16)
	if err != nil {
		return -1
	}
	return rune(n)
}

// at returns the byte at i. If i is out of range, it returns 0, which occurs nowhere in JSON.
func (d *decoder) at(i int) byte {
	if uint(i) < uint(len(d.raw)) {
		return d.raw[i]
	}
	return 0
}

func (d *decoder) space(i int) int {
	for c := d.at(i); c == ' ' || c == '\n' || c == '\t' || c == '\r'; c = d.at(i) {
		i++
	}
	return i
}

// word moves past true, false or null.
func (d *decoder) word(i int) int {
	word := "null"
	switch d.at(i) {
	case 't':
		word = "true"
	case 'f':
		word = "false"
	}
	if end := i + len(word); i >= 0 && end <= len(d.raw) && string(d.raw[i:end]) == word {
		return end
	}
	return -1
}

// first goes from an opening bracket to the first item, or past the closing bracket if there is no item.
func (d *decoder) first(i int, opening byte) (next int, more bool) {
	if d.at(i) != opening {
		return -1, false
	}
	if i = d.space(i + 1); d.at(i) == opening+2 { // in ASCII, '{'+2 is '}' and '['+2 is ']'
		return i + 1, false
	}
	if d.open++; d.open > d.deepest {
		return -1, false
	}
	return i, true
}

// next goes from the end of an item to the next one, or past the closing bracket.
func (d *decoder) next(i int, closing byte) (next int, more bool) {
	i = d.space(i)
	switch d.at(i) {
	case ',':
		return d.space(i + 1), true
	case closing:
		d.open--
		return i + 1, false
	}
	return -1, false
}

// name reads the name of a member and goes to its value.
func (d *decoder) name(i int) (name string, next int) {
	name, i = d.string(i)
	return name, d.colon(i)
}

// colon goes from the end of a name to the value.
func (d *decoder) colon(i int) int {
	if i = d.space(i); d.at(i) != ':' {
		return -1
	}
	return d.space(i + 1)
}

// countItems returns the number of items from the one at i to the end of the list, or -1 if the text is malformed.
func (d *decoder) countItems(i int) (n int) {
	open := d.open
	for more := true; more; n++ {
		i = d.skip(i)
		i, more = d.next(i, ']')
	}
	if d.open = open; i < 0 {
		return -1
	}
	return n
}

// skip moves past any well-formed value.
func (d *decoder) skip(i int) int {
	switch c := d.at(i); c {
	case '"':
		return d.skipText(i + 1)
	case '{', '[':
		i, more := d.first(i, c)
		for more {
			if c == '{' {
				if d.at(i) != '"' {
					return -1
				}
				i = d.colon(d.skipText(i + 1))
			}
			i = d.skip(i)
			i, more = d.next(i, c+2)
		}
		return i
	case 't', 'f', 'n':
		return d.word(i)
	}
	return d.skipNumber(i)
}

// skipText moves past the rest of a string and its closing quote.
func (d *decoder) skipText(i int) int {
	for {
		i, _ = plainText(d.raw, i)
		switch d.at(i) {
		case '"':
			return i + 1
		case '\\':
			switch d.at(i + 1) {
			case '"', '\\', '/', 'b', 'f', 'n', 'r', 't':
				i += 2
				continue
			}
			if codeUnit(d.raw[i:]) < 0 {
				return -1
			}
			i += 6
		default: // a control character, or the end
			return -1
		}
	}
}

// plainText returns the index of the first quote, backslash or control character at or after i, or else the end of the
// text. ascii reports whether all bytes before that index are ASCII.
func plainText(raw []byte, i int) (end int, ascii bool) {
	const all = 0x0101010101010101
	var seen uint64
	for i+8 <= len(raw) {
		eight := binary.LittleEndian.Uint64(raw[i:])
		quotes := eight ^ 0x02*all // moves the quote next to the control characters, so that one comparison finds both
		escapes := eight ^ '\\'*all
		// The lowest bit that is set is the highest bit of the first byte that is not plain. The bits above it mean
		// nothing.
		marks := ((quotes-0x21*all)&^quotes | (escapes-all)&^escapes) & (0x80 * all)
		seen |= eight & (marks&-marks - 1) // the bytes before that one, or all eight
		if marks != 0 {
			return i + bits.TrailingZeros64(marks)/8, seen&(0x80*all) == 0
		}
		i += 8
	}
	for i < len(raw) && raw[i] >= ' ' && raw[i] != '"' && raw[i] != '\\' {
		seen |= uint64(raw[i])
		i++
	}
	return i, seen&(0x80*all) == 0
}

// skipNumber moves past a number in JSON syntax.
func (d *decoder) skipNumber(i int) int {
	if d.at(i) == '-' {
		i++
	}
	if d.at(i) == '0' {
		i++ // no digit can follow a leading zero
	} else if i = d.skipDigits(i); i < 0 {
		return -1
	}
	if d.at(i) == '.' {
		if i = d.skipDigits(i + 1); i < 0 {
			return -1
		}
	}
	if d.at(i) == 'e' || d.at(i) == 'E' {
		if i++; d.at(i) == '+' || d.at(i) == '-' {
			i++
		}
		return d.skipDigits(i)
	}
	return i
}

// skipDigits moves past one or more digits.
func (d *decoder) skipDigits(i int) int {
	start := i
	for d.at(i)-'0' <= 9 {
		i++
	}
	if i == start {
		return -1
	}
	return i
}
