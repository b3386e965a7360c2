package decode

// This file turns Go types into the plans that the decoder follows.

import (
	"cmp"
	"encoding"
	"encoding/json"
	"math/bits"
	"reflect"
	"slices"
	"strings"
	"sync"
	"unicode"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// A shape is the kind of JSON value that a Go type is decoded from.
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
	shapeUnmarshaler // has UnmarshalJSON, which is called for null, too
	shapeForeign     // left to sigs.k8s.io/json
)

// A plan holds everything that decoding needs to know about a Go type. It is published only when it is complete.
type plan struct {
	typ   reflect.Type
	shape shape
	bits  int       // size of numbers
	elem  *plan     // of pointers, lists and maps
	size  int64     // bytes of a pointer's target, of a list's item, or of a map entry's key and value
	spare sync.Pool // of lists: empty lists that have capacity, as *reflect.Value

	// In a struct of shapeForeign, several fields can have the same name.
	fields []field  // of structs
	heads  []*field // the first field for each hash of a name
}

// A field is a struct field that a member of a JSON object is read into. It can be in an embedded struct.
type field struct {
	name   string
	index  []int // indexes of the embedded structs around it, then its own
	beside int64 // bytes of the embedded pointers' targets on the way to it
	number int
	next   *field // the next field with the same hash
	plan   *plan
}

// maxFields is the largest number of fields in a struct that the decoder has bits for.
const maxFields = 128

func (p *plan) field(name []byte) *field {
	for f := p.heads[hash(name)&uint(len(p.heads)-1)]; f != nil; f = f.next {
		if f.name == string(name) {
			return f
		}
	}
	return nil
}

// hash distinguishes most names of one struct by their length and three of their bytes.
func hash[T string | []byte](name T) uint {
	n := uint(len(name))
	if n == 0 {
		return 0
	}
	return n + uint(name[0])*5 + uint(name[n/2])*17 + uint(name[n-1])*3
}

var (
	plans sync.Map // reflect.Type -> *plan; at most one for each type of the program

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
	// The plans are published only when all are complete, because types can refer to themselves.
	for t, p := range b {
		plans.LoadOrStore(t, p)
	}
	return p
}

// A planner holds the plans that are being built.
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
		case t.Name() != "": // an unnamed type inherits the method, which is then called only behind a pointer
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
	case kind == reflect.Pointer:
		p.elem, p.size = b.plan(t.Elem()), rounded(int64(t.Elem().Size()))
		if t.Elem().Kind() != reflect.Pointer { // a pointer type can point to itself
			p.shape = shapePointer
		}
	case kind == reflect.Slice && t.Elem().Kind() == reflect.Uint8:
		p.shape = shapeBytes
	case kind == reflect.Slice:
		p.shape, p.elem, p.size = shapeList, b.plan(t.Elem()), rounded(int64(t.Elem().Size()))
	case kind == reflect.Array:
		p.elem = b.plan(t.Elem())
	case kind == reflect.Map:
		p.elem, p.size = b.plan(t.Elem()), int64(t.Key().Size()+t.Elem().Size()+7)&^7
		if t.Key().Kind() == reflect.String && !reflect.PointerTo(t.Key()).Implements(textUnmarshalerType) {
			p.shape = shapeMap
		}
	case kind == reflect.Struct:
		if b.collect(p, t, nil, 0) && len(p.fields) <= maxFields {
			p.shape = shapeStruct
		}
		slices.SortStableFunc(p.fields, func(x, y field) int { return len(y.index) - len(x.index) }) // so that chains begin with those that hide others
		p.heads = make([]*field, 1<<bits.Len(uint(4*len(p.fields))))
		for n := range p.fields {
			f := &p.fields[n]
			head := &p.heads[hash(f.name)&uint(len(p.heads)-1)]
			f.number, f.next, *head = n, *head, f
		}
	}
	return p
}

// collect adds the fields of a struct, and of the structs embedded in it, to a plan. It returns false for features that
// API types do not use, such as names that hide each other.
func (b planner) collect(p *plan, t reflect.Type, around []int, beside int64) (plain bool) {
	if len(around) > 10 {
		return false // an embedded struct that embeds itself
	}
	plain = true
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
				plain = false // encoding/json can write to it, but only under special rules
			}
			inside := beside
			if embedded != sf.Type {
				inside += int64(embedded.Size())
			}
			plain = b.collect(p, embedded, index, inside) && plain
		case !sf.IsExported():
		default:
			if strings.ContainsFunc(name, unusual) || slices.Contains(strings.Split(options, ","), "string") {
				plain = false
				p.fields = append(p.fields, field{name: sf.Name, index: index, plan: b.plan(sf.Type), beside: beside})
			}
			name = cmp.Or(name, sf.Name)
			if slices.ContainsFunc(p.fields, func(f field) bool { return f.name == name }) {
				plain = false
			}
			p.fields = append(p.fields, field{name: name, index: index, plan: b.plan(sf.Type), beside: beside})
		}
	}
	return plain
}

// unusual reports whether encoding/json might not accept a character as part of a name.
func unusual(c rune) bool {
	return !unicode.IsLetter(c) && !unicode.IsDigit(c) && !strings.ContainsRune("-_$./", c)
}
