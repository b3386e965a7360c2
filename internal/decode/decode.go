// Package decode reads JSON into API types: the very result of sigs.k8s.io/json, in a fraction of the time.
//
// What is to be known of a Go type is found out once and kept as a plan; the text is then gone over once, with
// the plan in hand. Whatever is out of the ordinary (malformed text, a value that does not fit its field, a
// member that comes twice, a type with rules of its own) is not dealt with here at all: the target is emptied,
// and sigs.k8s.io/json does the whole of it again. So the rare results and every error are its own, and it can
// stand in for this package at any time.
package decode

import (
	"cmp"
	"encoding"
	"encoding/base64"
	"encoding/binary"
	"encoding/json"
	"math/bits"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"
	"unicode"
	"unicode/utf16"
	"unicode/utf8"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	kjson "sigs.k8s.io/json"
)

// Into reads JSON into obj, a pointer to an API type, exactly as sigs.k8s.io/json's
// UnmarshalCaseSensitivePreserveInts does, whose errors it returns. It is fast if what obj points to is zero, as
// behind new(T); to anything else it adds, at the other's speed.
//
// The object keeps nothing of raw. Its strings share memory in small groups, so one that is kept may keep alive
// some 4 KB of others. An UnmarshalJSON may see the same value twice, the second time with a fresh receiver.
// Into is safe for concurrent use.
func Into(raw []byte, obj any) error {
	if fast(raw, obj) {
		return nil
	}
	return kjson.UnmarshalCaseSensitivePreserveInts(raw, obj)
}

// fast is Into as long as nothing is out of the ordinary. If something is, it leaves the target as it was.
func fast(raw []byte, obj any) bool {
	v := reflect.ValueOf(obj)
	if v.Kind() != reflect.Pointer || v.IsNil() || !v.Elem().IsZero() {
		return false
	}
	v = v.Elem()
	d := decoder{raw: raw}
	if i := d.value(planFor(v.Type()), v, d.space(0)); i >= 0 && d.space(i) == len(raw) {
		return true
	}
	v.SetZero()
	return false
}

const (
	// maxNesting is how deep lists and objects may nest before sigs.k8s.io/json takes over, whose own bound is 10000.
	maxNesting = 500

	// Strings are not worth an allocation each: as many as fit into keptTogether bytes share one, save those
	// beyond longString.
	keptTogether = 4096
	longString   = 512
)

// A decoder is one text on its way into one object. Its methods read what stands at i, into a value that is
// zero, and return where it ends, or -1 to give up, which also is what they make of an i of -1.
type decoder struct {
	raw  []byte
	open int             // how many lists and objects there are around i
	kept strings.Builder // the latest strings of the object
}

// value reads any value into one of the plan's type.
func (d *decoder) value(p *plan, v reflect.Value, i int) int {
	c := d.at(i)
	if c == 'n' && p.shape < shapeUnmarshaler {
		return d.word(i) // which does nothing to scalars; what may be nil is nil
	}
	switch p.shape {
	case shapeString:
		s, end := d.string(i)
		v.SetString(s)
		return end
	case shapeBool:
		v.SetBool(c == 't')
		return d.word(i)
	case shapeInt, shapeUint, shapeFloat:
		return d.number(p, v, i)
	case shapeUnmarshaler:
		end := d.skip(i)
		if end < 0 || v.Addr().Interface().(json.Unmarshaler).UnmarshalJSON(d.raw[i:end:end]) != nil {
			return -1
		}
		return end
	case shapeTime:
		// What its UnmarshalJSON does, without another decoder for the string.
		s, end := d.string(i)
		t, err := time.Parse(time.RFC3339, s)
		if err != nil {
			return -1
		}
		v.Addr().Interface().(*metav1.Time).Time = t.Local()
		return end
	case shapePointer:
		target := reflect.New(p.typ.Elem())
		v.Set(target)
		return d.value(p.elem, target.Elem(), i)
	case shapeInterface:
		a, end := d.any(i)
		if end >= 0 {
			v.Set(reflect.ValueOf(a)) // not null, so not nil
		}
		return end
	case shapeStruct:
		return d.members(p, v, i)
	case shapeMap:
		return d.entries(p, v, i)
	case shapeList:
		return d.items(p, v, i)
	case shapeBytes:
		s, end := d.string(i)
		content, err := base64.StdEncoding.DecodeString(s)
		if err != nil {
			return -1
		}
		v.SetBytes(content)
		return end
	}
	return -1 // shapeForeign
}

func (d *decoder) number(p *plan, v reflect.Value, i int) int {
	end := d.skipNumber(i)
	if end < 0 {
		return -1
	}
	var err error
	switch number := d.raw[i:end]; p.shape {
	case shapeInt:
		var n int64
		n, err = strconv.ParseInt(string(number), 10, p.bits)
		v.SetInt(n)
	case shapeUint:
		var n uint64
		n, err = strconv.ParseUint(string(number), 10, p.bits)
		v.SetUint(n)
	default:
		var n float64
		n, err = strconv.ParseFloat(string(number), p.bits)
		v.SetFloat(n)
	}
	if err != nil {
		return -1
	}
	return end
}

// members reads a struct.
func (d *decoder) members(p *plan, v reflect.Value, i int) int {
	var seen [maxFields / 64]uint64
	i, more := d.first(i, '{')
	for more {
		name, plain, end := d.quoted(i)
		if !plain {
			name = []byte(unquote(name))
		}
		i = d.colon(end)
		if f := p.field(name); f == nil {
			i = d.skip(i)
		} else {
			// A second value would be read into the first one, by rules that nobody relies on.
			word, bit := &seen[f.number/64], uint64(1)<<(f.number%64)
			if *word&bit != 0 {
				return -1
			}
			*word |= bit
			at := v.Field(f.index[0])
			for _, x := range f.index[1:] {
				if at.Kind() == reflect.Pointer {
					if at.IsNil() {
						at.Set(reflect.New(at.Type().Elem()))
					}
					at = at.Elem()
				}
				at = at.Field(x)
			}
			i = d.value(f.plan, at, i)
		}
		i, more = d.next(i, '}')
	}
	return i
}

// entries reads a map. Of entries of the same name, the last one counts.
func (d *decoder) entries(p *plan, v reflect.Value, i int) int {
	switch m := v.Addr().Interface().(type) {
	case *map[string]string:
		*m, i = d.stringMap(i)
		return i
	case *map[string]any:
		*m, i = d.anyMap(i)
		return i
	}
	m, key := reflect.MakeMap(p.typ), reflect.New(p.typ.Key()).Elem()
	elem := reflect.New(p.typ.Elem()).Elem()
	i, more := d.first(i, '{')
	for more {
		var name string
		name, i = d.name(i)
		key.SetString(name)
		elem.SetZero()
		i = d.value(p.elem, elem, i)
		m.SetMapIndex(key, elem)
		i, more = d.next(i, '}')
	}
	v.Set(m)
	return i
}

func (d *decoder) stringMap(i int) (map[string]string, int) {
	m := map[string]string{}
	i, more := d.first(i, '{')
	for more {
		var name, s string
		if name, i = d.name(i); d.at(i) == 'n' {
			i = d.word(i)
		} else {
			s, i = d.string(i)
		}
		m[name] = s
		i, more = d.next(i, '}')
	}
	return m, i
}

// items reads a list. How many they are is known at the end only: until then, they stand in one that is used
// again and again. Like any list that grows, this one moves its items about, so none may keep its own address.
func (d *decoder) items(p *plan, v reflect.Value, i int) int {
	i, more := d.first(i, '[')
	if !more {
		v.Set(reflect.MakeSlice(p.typ, 0, 0))
		return i
	}
	list, ok := p.spare.Get().(*reflect.Value)
	if !ok {
		fresh := reflect.New(p.typ).Elem()
		list = &fresh
	}
	n := 0
	for ; more; n++ {
		if n == list.Cap() {
			list.Grow(1) // which doubles
		}
		list.SetLen(n + 1)
		i = d.value(p.elem, list.Index(n), i)
		i, more = d.next(i, ']')
	}
	v.Grow(n)
	v.SetLen(n)
	reflect.Copy(v, *list)
	list.Clear()
	list.SetLen(0)
	p.spare.Put(list)
	return i
}

// any reads what no Go type is given for. Numbers become int64 if they are written so and fit, else float64.
func (d *decoder) any(i int) (any, int) {
	switch d.at(i) {
	case '"':
		return anyOf(d.string(i))
	case '{':
		return anyOf(d.anyMap(i))
	case '[':
		return anyOf(d.anyList(i))
	case 't', 'f':
		return d.at(i) == 't', d.word(i)
	case 'n':
		return nil, d.word(i)
	}
	end := d.skipNumber(i)
	if end < 0 {
		return nil, -1
	}
	if n, err := strconv.ParseInt(string(d.raw[i:end]), 10, 64); err == nil {
		return n, end
	}
	n, err := strconv.ParseFloat(string(d.raw[i:end]), 64)
	if err != nil {
		return nil, -1
	}
	return n, end
}

func anyOf[T any](a T, end int) (any, int) { return a, end }

func (d *decoder) anyMap(i int) (map[string]any, int) {
	m := map[string]any{}
	i, more := d.first(i, '{')
	for more {
		var name string
		name, i = d.name(i)
		m[name], i = d.any(i)
		i, more = d.next(i, '}')
	}
	return m, i
}

func (d *decoder) anyList(i int) ([]any, int) {
	list := []any{}
	i, more := d.first(i, '[')
	for more {
		var a any
		a, i = d.any(i)
		list = append(list, a)
		i, more = d.next(i, ']')
	}
	return list, i
}

// string reads a string.
func (d *decoder) string(i int) (s string, end int) {
	text, plain, end := d.quoted(i)
	if !plain {
		return unquote(text), end
	}
	if len(text) > d.kept.Cap()-d.kept.Len() {
		if len(text) > longString {
			return string(text), end
		}
		d.kept = strings.Builder{}
		d.kept.Grow(max(len(text), min(keptTogether, (len(d.raw)-i)/2)))
	}
	start := d.kept.Len()
	d.kept.Write(text)
	return d.kept.String()[start:], end
}

// quoted returns what stands between quotes, and whether it means itself.
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

// unquote is the meaning of what stands between quotes and is well-formed. What is not Unicode becomes U+FFFD.
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

// codeUnit reads the \uXXXX that a text begins with; -1 when it does not.
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

// at is the byte at i; 0, which stands nowhere in JSON, if there is none.
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

// word goes over true, false or null.
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

// first goes from an opening bracket to the first item, or behind the closing one if there is none.
func (d *decoder) first(i int, opening byte) (next int, more bool) {
	if d.at(i) != opening {
		return -1, false
	}
	if i = d.space(i + 1); d.at(i) == opening+2 { // in ASCII, '{'+2 is '}' and '['+2 is ']'
		return i + 1, false
	}
	if d.open++; d.open > maxNesting {
		return -1, false
	}
	return i, true
}

// next goes from behind an item to the next one, or behind the closing bracket.
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

// name reads the name of a member, and goes to its value.
func (d *decoder) name(i int) (name string, next int) {
	name, i = d.string(i)
	return name, d.colon(i)
}

// colon goes from behind a name to the value.
func (d *decoder) colon(i int) int {
	if i = d.space(i); d.at(i) != ':' {
		return -1
	}
	return d.space(i + 1)
}

// skip goes over any well-formed value.
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

// skipText goes on over the text of a string and its closing quote.
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

// plainText returns where the first byte at or after i stands that is more than a character of a string: a
// quote, a backslash or a control character; or else the end. And whether all before it is ASCII.
func plainText(raw []byte, i int) (end int, ascii bool) {
	const all = 0x0101010101010101
	var seen uint64
	for i+8 <= len(raw) {
		eight := binary.LittleEndian.Uint64(raw[i:])
		quotes := eight ^ 0x02*all // which moves the quote next to the control characters: one comparison finds both
		escapes := eight ^ '\\'*all
		// The highest bit of the first byte that is not plain; bits above that one mean nothing.
		marks := ((quotes-0x21*all)&^quotes | (escapes-all)&^escapes) & (0x80 * all)
		seen |= eight & (marks&-marks - 1) // the bytes before that one, or all
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

// skipNumber goes over a number as JSON writes them.
func (d *decoder) skipNumber(i int) int {
	if d.at(i) == '-' {
		i++
	}
	if d.at(i) == '0' {
		i++ // which stands alone
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

// skipDigits goes over one digit or more.
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

// A shape is what a Go type asks of JSON.
type shape uint8

const (
	shapeBool shape = iota
	shapeInt
	shapeUint
	shapeFloat
	shapeString
	shapePointer
	shapeInterface // any
	shapeStruct
	shapeMap
	shapeBytes // base64
	shapeList
	shapeTime        // metav1.Time
	shapeUnmarshaler // UnmarshalJSON, which is told of null, too
	shapeForeign     // for sigs.k8s.io/json to deal with
)

// A plan is all that is to be known of a Go type. Nobody sees it before it is complete.
type plan struct {
	typ   reflect.Type
	shape shape
	bits  int       // of numbers
	elem  *plan     // of pointers, lists and maps
	spare sync.Pool // of lists: empty ones that have room for items, as *reflect.Value

	fields []field  // of structs
	heads  []*field // the first field of each hash of a name
}

// A field is a member of the JSON object that a struct is read from. It may stand in an embedded struct.
type field struct {
	name   string
	index  []int // its index, behind those of the embedded structs around it
	number int
	next   *field // the next one of the same hash
	plan   *plan
}

// maxFields is how many fields of a struct there are bits for.
const maxFields = 128

func (p *plan) field(name []byte) *field {
	for f := p.heads[hash(name)&uint(len(p.heads)-1)]; f != nil; f = f.next {
		if f.name == string(name) {
			return f
		}
	}
	return nil
}

// hash tells most names of one struct apart by their length and three of their bytes.
func hash[T string | []byte](name T) uint {
	n := uint(len(name))
	if n == 0 {
		return 0
	}
	return n + uint(name[0])*5 + uint(name[n/2])*17 + uint(name[n-1])*3
}

var (
	plans sync.Map // reflect.Type -> *plan; no more of them than the program has types

	unmarshalerType     = reflect.TypeFor[json.Unmarshaler]()
	textUnmarshalerType = reflect.TypeFor[encoding.TextUnmarshaler]()
	numberType          = reflect.TypeFor[json.Number]()
	timeType            = reflect.TypeFor[metav1.Time]()
)

func planFor(t reflect.Type) *plan {
	if p, ok := plans.Load(t); ok {
		return p.(*plan)
	}
	b := planner{}
	p := b.plan(t)
	// Published only now: types may refer to themselves.
	for t, p := range b {
		plans.LoadOrStore(t, p)
	}
	return p
}

// A planner holds the plans that are being made.
type planner map[reflect.Type]*plan

func (b planner) plan(t reflect.Type) *plan {
	if p, ok := b[t]; ok {
		return p
	}
	if p, ok := plans.Load(t); ok {
		return p.(*plan)
	}
	p := &plan{typ: t, shape: shapeForeign}
	b[t] = p
	switch pointer, kind := reflect.PointerTo(t), t.Kind(); {
	case pointer.Implements(unmarshalerType):
		switch {
		case t == timeType:
			p.shape = shapeTime
		case t.Name() != "": // else it has it from a type embedded in it, and it counts only behind a pointer
			p.shape = shapeUnmarshaler
		}
	case pointer.Implements(textUnmarshalerType) || t == numberType:
	case kind == reflect.Bool:
		p.shape = shapeBool
	case kind >= reflect.Int && kind <= reflect.Int64:
		p.shape, p.bits = shapeInt, t.Bits()
	case kind >= reflect.Uint && kind <= reflect.Uintptr:
		p.shape, p.bits = shapeUint, t.Bits()
	case kind == reflect.Float32 || kind == reflect.Float64:
		p.shape, p.bits = shapeFloat, t.Bits()
	case kind == reflect.String:
		p.shape = shapeString
	case kind == reflect.Interface && t.NumMethod() == 0:
		p.shape = shapeInterface
	case kind == reflect.Pointer && t.Elem().Kind() != reflect.Pointer: // which might be itself
		p.shape, p.elem = shapePointer, b.plan(t.Elem())
	case kind == reflect.Slice && t.Elem().Kind() == reflect.Uint8:
		p.shape = shapeBytes
	case kind == reflect.Slice:
		p.shape, p.elem = shapeList, b.plan(t.Elem())
	case kind == reflect.Map && t.Key().Kind() == reflect.String && !reflect.PointerTo(t.Key()).Implements(textUnmarshalerType):
		p.shape, p.elem = shapeMap, b.plan(t.Elem())
	case kind == reflect.Struct:
		if !b.collect(p, t, nil) || len(p.fields) > maxFields {
			break
		}
		p.shape = shapeStruct
		p.heads = make([]*field, 1<<bits.Len(uint(4*len(p.fields))))
		for n := range p.fields {
			f := &p.fields[n]
			head := &p.heads[hash(f.name)&uint(len(p.heads)-1)]
			f.number, f.next, *head = n, *head, f
		}
	}
	return p
}

// collect adds the fields of a struct, and of those embedded in it, to a plan. It gives up on what API types
// do not do, such as names that hide each other.
func (b planner) collect(p *plan, t reflect.Type, around []int) bool {
	if len(around) > 10 {
		return false // an embedded struct that embeds itself
	}
	for i := range t.NumField() {
		sf := t.Field(i)
		tag := sf.Tag.Get("json")
		name, options, _ := strings.Cut(tag, ",")
		embedded := sf.Type
		if embedded.Kind() == reflect.Pointer {
			embedded = embedded.Elem()
		}
		index := append(slices.Clone(around), i)
		switch {
		case tag == "-":
		case sf.Anonymous && embedded.Kind() == reflect.Struct && (name == "" || !sf.IsExported()):
			if name != "" || !sf.IsExported() && embedded != sf.Type {
				return false // there are ways to write it, but rules of when
			}
			if !b.collect(p, embedded, index) {
				return false
			}
		case !sf.IsExported():
		case strings.ContainsFunc(name, unusual) || slices.Contains(strings.Split(options, ","), "string"):
			return false
		default:
			name = cmp.Or(name, sf.Name)
			if slices.ContainsFunc(p.fields, func(f field) bool { return f.name == name }) {
				return false
			}
			p.fields = append(p.fields, field{name: name, index: index, plan: b.plan(sf.Type)})
		}
	}
	return true
}

// unusual tells of a character that it may not be one that encoding/json takes for part of a name.
func unusual(c rune) bool {
	return !unicode.IsLetter(c) && !unicode.IsDigit(c) && !strings.ContainsRune("-_$./", c)
}
