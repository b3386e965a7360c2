// Package jsontype works out how encoding/json writes a Go type, and how sigs.k8s.io/json reads it, once per type.
package jsontype

import (
	"encoding"
	"encoding/json"
	"math/bits"
	"reflect"
	"strconv"
	"sync"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

// A Shape is the form that a Go type has in JSON.
type Shape uint8

const (
	Bool Shape = iota
	Int
	Uint
	Float
	String
	Bytes // base64
	Struct
	Map
	List
	Array
	Pointer
	Interface
	Number       // json.Number
	Time         // metav1.Time, when it is read
	Unstructured // the value is the tree inside
	JSON         // what its own methods make of it: MarshalJSON, or UnmarshalJSON, which is called for null, too
	Text         // the same with MarshalText
	Unsupported  // JSON cannot hold it; when it is read, it is left to sigs.k8s.io/json
)

// MaxFields is the largest number of fields in a struct that is read without sigs.k8s.io/json.
const MaxFields = 128

// A Type holds everything that reading and writing need to know about a Go type. It never changes once Of has returned
// it.
type Type struct {
	Go            reflect.Type
	Writes, Reads Shape
	Kind          Shape // without regard to its methods
	Quoted        bool  // a number, bool or string inside a JSON string
	ofPointers    bool  // only the pointer marshals itself

	Elem   *Type                               // of pointers, lists, arrays and maps
	Fields []Field                             // of structs, sorted by name
	Key    func(reflect.Value) (string, error) // the name of the member for the key of a map
	Size   int64                               // bytes of a pointer's target, of a list's item, or of a map entry's key and value
	Spare  sync.Pool                           // of lists, for those who read them

	heads    []*Field // the first field for each hash of a name
	embedded [][]int  // the indices of embedded structs that hold fields
}

var (
	types sync.Map // reflect.Type -> *Type; at most one for each type of the program

	marshaler       = reflect.TypeFor[json.Marshaler]()
	unmarshaler     = reflect.TypeFor[json.Unmarshaler]()
	textMarshaler   = reflect.TypeFor[encoding.TextMarshaler]()
	textUnmarshaler = reflect.TypeFor[encoding.TextUnmarshaler]()
)

// Of returns what there is to know about a Go type.
func Of(t reflect.Type) *Type {
	if known, ok := types.Load(t); ok {
		return known.(*Type)
	}
	b := builder{}
	of := b.of(t)
	// They are published only now: types can refer to themselves, and no other goroutine must see half of one.
	for t, of := range b {
		types.LoadOrStore(t, of)
	}
	return of
}

// A builder holds the types that are not complete yet.
type builder map[reflect.Type]*Type

func (b builder) of(t reflect.Type) *Type {
	if known, ok := b[t]; ok {
		return known
	}
	if known, ok := types.Load(t); ok {
		return known.(*Type)
	}
	of := &Type{Go: t}
	b[t] = of
	of.Kind = b.kind(of, t)
	of.Writes = of.writes(t)
	of.Reads = of.reads(t)
	return of
}

// kind fills in what the kind of a type decides.
func (b builder) kind(of *Type, t reflect.Type) Shape {
	switch t.Kind() {
	case reflect.Bool:
		return Bool
	case reflect.Int, reflect.Int8, reflect.Int16, reflect.Int32, reflect.Int64:
		return Int
	case reflect.Uint, reflect.Uint8, reflect.Uint16, reflect.Uint32, reflect.Uint64, reflect.Uintptr:
		return Uint
	case reflect.Float32, reflect.Float64:
		return Float
	case reflect.String:
		if t == reflect.TypeFor[json.Number]() {
			return Number
		}
		return String
	case reflect.Interface:
		return Interface
	case reflect.Struct:
		b.fields(of)
		return Struct
	case reflect.Array:
		of.Elem = b.of(t.Elem())
		return Array
	case reflect.Pointer:
		of.Elem, of.Size = b.of(t.Elem()), Rounded(int64(t.Elem().Size()))
		return Pointer
	case reflect.Slice:
		of.Elem, of.Size = b.of(t.Elem()), Rounded(int64(t.Elem().Size()))
		if t.Elem().Kind() == reflect.Uint8 && of.Elem.Writes == Uint {
			return Bytes
		}
		return List
	case reflect.Map:
		of.Elem, of.Size = b.of(t.Elem()), int64(t.Key().Size()+t.Elem().Size()+7)&^7
		if of.Key = keyOf(t.Key()); of.Key != nil {
			return Map
		}
	}
	return Unsupported
}

// Rounded returns the bytes that Go allocates for n bytes: the sizes of its blocks are at most an eighth apart.
func Rounded(n int64) int64 { return (n + n/8 + 7) &^ 7 }

func keyOf(t reflect.Type) func(reflect.Value) (string, error) {
	switch {
	case t.Kind() == reflect.String:
		return func(v reflect.Value) (string, error) { return v.String(), nil }
	case t.Implements(textMarshaler):
		return func(v reflect.Value) (string, error) {
			if v.Kind() == reflect.Pointer && v.IsNil() {
				return "", nil
			}
			text, err := v.Interface().(encoding.TextMarshaler).MarshalText()
			return string(text), err
		}
	case t.Kind() >= reflect.Int && t.Kind() <= reflect.Int64:
		return func(v reflect.Value) (string, error) { return strconv.FormatInt(v.Int(), 10), nil }
	case t.Kind() >= reflect.Uint && t.Kind() <= reflect.Uintptr:
		return func(v reflect.Value) (string, error) { return strconv.FormatUint(v.Uint(), 10), nil }
	}
	return nil
}

func (of *Type) writes(t reflect.Type) Shape {
	pointer := reflect.PointerTo(t)
	switch {
	case t == reflect.TypeFor[unstructured.Unstructured]():
		return Unstructured
	case of.Kind == Pointer: // the element has all its methods, and an address
		return Pointer
	case t.Implements(marshaler), pointer.Implements(marshaler):
		of.ofPointers = !t.Implements(marshaler)
		return JSON
	case t.Implements(textMarshaler), pointer.Implements(textMarshaler):
		of.ofPointers = !t.Implements(textMarshaler)
		return Text
	}
	return of.Kind
}

func (of *Type) reads(t reflect.Type) Shape {
	pointer := reflect.PointerTo(t)
	var readable bool
	switch {
	case t == reflect.TypeFor[metav1.Time]():
		return Time
	case pointer.Implements(unmarshaler):
		if t.Name() != "" { // an unnamed type inherits the method, which is then called only behind a pointer
			return JSON
		}
	case pointer.Implements(textUnmarshaler):
	case t.Kind() == reflect.Slice && t.Elem().Kind() == reflect.Uint8:
		return Bytes
	case of.Kind == Interface:
		readable = t.NumMethod() == 0
	case of.Kind == Pointer:
		readable = t.Elem().Kind() != reflect.Pointer // a pointer type can point to itself
	case of.Kind == Map:
		readable = t.Key().Kind() == reflect.String && !reflect.PointerTo(t.Key()).Implements(textUnmarshaler)
	case of.Kind == Struct:
		readable = len(of.Fields) <= MaxFields
		for i := range of.Fields {
			readable = readable && of.Fields[i].plain
		}
	default:
		readable = of.Kind != Number && of.Kind != Array
	}
	if !readable {
		return Unsupported
	}
	return of.Kind
}

// On returns the shape of this particular value. encoding/json ignores a method of pointers if the value has no address
// (map elements), and so does this package.
func (of *Type) On(v reflect.Value) Shape {
	if of.ofPointers && !v.CanAddr() {
		return of.Kind
	}
	return of.Writes
}

// inQuotes returns the type of a field with the "string" option, which has no effect on values that marshal themselves.
func (of *Type) inQuotes() *Type {
	quoted := &Type{Go: of.Go, Kind: of.Kind, Writes: of.Writes, Reads: Unsupported, Elem: of.Elem, Size: of.Size}
	switch of.Writes {
	case Bool, Int, Uint, Float, String, Number:
		quoted.Quoted = true
	case Pointer:
		quoted.Elem = of.Elem.inQuotes()
	default:
		return of
	}
	return quoted
}

// Field returns the field that has this name in JSON, or nil.
func (of *Type) Field(name []byte) *Field {
	if len(of.heads) == 0 {
		return nil
	}
	for f := of.heads[hash(name)&uint(len(of.heads)-1)]; f != nil; f = f.next {
		if f.Name == string(name) {
			return f
		}
	}
	return nil
}

// hash distinguishes most names of one struct by their length and three of their bytes.
func hash(name []byte) uint {
	n := uint(len(name))
	if n == 0 {
		return 0
	}
	return n + uint(name[0])*5 + uint(name[n/2])*17 + uint(name[n-1])*3
}

// index makes the fields known by their names.
func (of *Type) index() {
	of.heads = make([]*Field, 1<<bits.Len(uint(4*len(of.Fields))))
	for n := range of.Fields {
		f := &of.Fields[n]
		head := &of.heads[hash([]byte(f.Name))&uint(len(of.heads)-1)]
		f.Number, f.next, *head = n, *head, f
	}
}
