package record

import (
	"encoding/base64"
	"net/url"
	"strconv"
	"strings"
)

// This file finds values in a text, in the spellings that programs use for them.

const (
	// leastRun is the length of the shortest text in base64 that can hold a value, in characters.
	leastRun = (leastValue*4 + 2) / 3

	// mostNested bounds how many times a value may be in base64, as in the base64 of a Secret's data.
	mostNested = 2
)

// scrubbed returns a text without the values. It finds them in their known spellings, escaped for URLs, in base64
// with other text, and as lists of bytes. Values that overlap share one placeholder.
func (v *values) scrubbed(s string) string {
	if v.spelt == nil || len(s) < leastValue {
		return s
	}
	for _, find := range []func(string) []edit{v.encoded, v.literally, v.listed} {
		for _, space := range []string{"+", ""} { // "+" first, because a plus is a character of base64, too
			plain, at := fromURL(s, space)
			edits := find(plain)
			for i, e := range edits {
				edits[i].span = span{at[e.start], at[e.end]}
			}
			s = string(text(s).edited(edits))
		}
		s = string(text(s).edited(find(s)))
	}
	return s
}

// literally finds the known spellings.
func (v *values) literally(s string) (edits []edit) {
	done := 0
	for i := 0; i+leastValue <= len(s); i++ {
		if !v.first[s[i]] {
			continue
		}
		longest, by := "", ""
		for spelt, placeholder := range v.spelt[s[i:i+leastValue]] {
			if len(spelt) > len(longest) && strings.HasPrefix(s[i:], spelt) {
				longest, by = spelt, placeholder
			}
		}
		end := i + len(longest)
		switch {
		case longest == "":
		case i >= done:
			edits = append(edits, edit{span{i, end}, by})
		case end > done: // it extends the last one
			edits[len(edits)-1].end = end
		}
		done = max(done, end)
	}
	return edits
}

// fromURL returns a text without the escapes of URLs, and for each byte its position in s. If space is given, a plus
// stands for a space. The result is empty for a text without escapes, or, if space is given, without a plus.
func fromURL(s, space string) (plain string, at []int) {
	if space == "" && !strings.Contains(s, "%") || !strings.Contains(s, space) {
		return "", nil
	}
	var b strings.Builder
	for i := 0; i < len(s); {
		at = append(at, i)
		if i+3 <= len(s) && s[i] == '%' {
			if c, err := url.PathUnescape(s[i : i+3]); err == nil {
				b.WriteString(c)
				i += 3
				continue
			}
		}
		if space != "" && s[i] == space[0] {
			b.WriteByte(' ')
		} else {
			b.WriteByte(s[i])
		}
		i++
	}
	return b.String(), append(at, len(s))
}

// encoded finds texts in base64, of either alphabet, that hold a value, and encodes them again without it.
func (v *values) encoded(s string) []edit { return v.encodedWithin(s, mostNested) }

func (v *values) encodedWithin(s string, nested int) (edits []edit) {
	for i := 0; nested > 0 && i < len(s); i++ {
		run, end := base64At(s, i)
		if len(run) >= leastRun {
			if by := v.encodedAgain(run, s[end-1] == '=', nested-1); by != "" {
				if strings.ContainsAny(s[i:end], "-_") {
					by = forURLs.Replace(by)
				}
				edits = append(edits, edit{span{i, end}, by})
			}
		}
		i = max(i, end-1)
	}
	return edits
}

// encodedAgain returns the characters of base64 for the text in run, without the values in it; empty if there are
// none. A word in front of such a text can consist of characters of base64, too. So the text can begin at any of the
// first four characters.
func (v *values) encodedAgain(run []byte, padded bool, nested int) string {
	for skip := range 4 {
		part := run[skip:]
		if len(part)%4 == 1 {
			part = part[:len(part)-1]
		}
		decoded, err := base64.RawStdEncoding.AppendDecode(nil, part)
		if err != nil {
			continue
		}
		plain := string(text(decoded).edited(v.encodedWithin(string(decoded), nested)))
		plain = string(text(plain).edited(v.literally(plain)))
		if plain == string(decoded) {
			continue
		}
		encoding := base64.StdEncoding
		if !padded && len(part)%4 != 0 {
			encoding = base64.RawStdEncoding
		}
		return string(run[:skip]) + encoding.EncodeToString([]byte(plain))
	}
	return ""
}

// standard maps the characters of both base64 alphabets to the standard one.
var standard = func() (all [256]byte) {
	for _, alphabet := range []string{"+/", "-_"} {
		for i, c := range []byte("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789" + alphabet) {
			all[c] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/"[i]
		}
	}
	return all
}()

// base64At returns the characters of base64 at a position, in the standard alphabet and without padding, and where
// they end. The characters are nil if they are too few to hold a value. They may be broken into lines.
func base64At(s string, i int) (run []byte, end int) {
	for end = i; end < len(s) && (standard[s[end]] != 0 || end > i && (s[end] == '\n' || s[end] == '\r')); {
		end++
	}
	if end-i < leastRun {
		return nil, end
	}
	run = make([]byte, 0, end-i)
	for _, c := range []byte(s[i:end]) {
		if standard[c] != 0 {
			run = append(run, standard[c])
		}
	}
	for end < len(s) && s[end] == '=' {
		end++
	}
	return run, end
}

// listed finds values as lists of bytes, in the form of numbers that fmt and JSON write.
func (v *values) listed(s string) (edits []edit) {
	for i := 0; i < len(s); i++ {
		plain, between, end := bytesAt(s, i)
		if found := v.literally(string(plain)); len(found) > 0 {
			edits = append(edits, edit{span{i, end}, asBytes(text(plain).edited(found), between)})
		}
		i = max(i, end-1)
	}
	return edits
}

// bytesAt reads the list of bytes that begins at a position. It returns the bytes, the separator between the first
// two, and the end of the list, or of a number that is no byte.
func bytesAt[T string | text](s T, i int) (plain []byte, between string, end int) {
	for next := i; ; {
		n, digits := 0, next
		for digits < len(s) && s[digits] >= '0' && s[digits] <= '9' {
			n = min(n*10+int(s[digits]-'0'), 1000)
			digits++
		}
		if digits == next || n > 255 {
			if len(plain) == 0 {
				end = digits
			}
			return plain, between, end
		}
		plain, end, next = append(plain, byte(n)), digits, digits
		for next < len(s) && (s[next] == ',' || s[next] == ' ' || s[next] == '\n') {
			next++
		}
		if next == end {
			return plain, between, end
		}
		if len(plain) == 1 {
			between = string(s[end:next])
		}
	}
}

// asBytes returns a text as a list of its bytes.
func asBytes(plain []byte, between string) string {
	numbers := make([]string, 0, len(plain))
	for _, b := range plain {
		numbers = append(numbers, strconv.Itoa(int(b)))
	}
	return strings.Join(numbers, between)
}
