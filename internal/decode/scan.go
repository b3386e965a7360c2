package decode

// This file reads strings, and moves between the parts of a text.

import (
	"strings"

	"code.cloudfoundry.org/eirinix/internal/jsontext"
)

// string reads a string.
func (d *decoder) string(i int) (s string, end int) {
	text, plain, end := jsontext.Text(d.raw, i)
	if !plain {
		d.made += int64(len(text) | 7)
		return jsontext.Unquote(text), end
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

// member reads the name of a member and goes to its value.
func (d *decoder) member(i int) (name []byte, next int) {
	name, plain, end := jsontext.Text(d.raw, i)
	if !plain {
		name = []byte(jsontext.Unquote(name))
	}
	return name, jsontext.Colon(d.raw, end)
}

// name is member for names that are kept.
func (d *decoder) name(i int) (name string, next int) {
	name, i = d.string(i)
	return name, jsontext.Colon(d.raw, i)
}

// at returns the byte at i. If i is out of range, it returns 0, which occurs nowhere in JSON.
func (d *decoder) at(i int) byte {
	if uint(i) < uint(len(d.raw)) {
		return d.raw[i]
	}
	return 0
}

// first goes from an opening bracket to the first item, or past the closing bracket if there is no item.
func (d *decoder) first(i int, opening byte) (next int, more bool) {
	next, more = jsontext.First(d.raw, i, opening)
	if !more {
		return next, false
	}
	if d.open++; d.open > d.deepest {
		return -1, false
	}
	if d.doc != nil {
		d.doc.Open(i)
	}
	return next, true
}

// next goes from the end of an item to the next one, or past the closing bracket.
func (d *decoder) next(i int, closing byte) (next int, more bool) {
	if i, more = jsontext.Next(d.raw, i, closing); !more {
		if d.open--; d.doc != nil {
			d.doc.Close(i)
		}
	}
	return i, more
}

// literal moves past a number, true, false or null.
func (d *decoder) literal(i int) int { return jsontext.SkipLiteral(d.raw, i) }

// skip moves past any well-formed value.
func (d *decoder) skip(i int) int { return jsontext.SkipValue(d.raw, i, d.deepest-d.open) }

// countItems returns the number of items from the one at i to the end of the list, or -1 if the text is malformed.
func (d *decoder) countItems(i int) (n int) {
	for more := true; more; n++ {
		i, more = jsontext.Next(d.raw, d.skip(i), ']')
	}
	if i < 0 {
		return -1
	}
	return n
}
