package patch

// This file works out how encoding/json would treat a Go type, once per type.

import (
	"encoding"
	"encoding/json"
	"reflect"
	"sync"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

// A shape is the form that a Go type has in JSON.
type shape uint8

const (
	shapeUnsupported shape = iota // channels, functions: an error if they are ever reached
	shapeBool
	shapeInt
	shapeUint
	shapeFloat
	shapeString
	shapeNumber // json.Number
	shapeBytes
	shapeStruct
	shapeMap
	shapeList
	shapeArray
	shapePointer
	shapeInterface
	shapeMarshaler     // MarshalJSON
	shapeTextMarshaler // MarshalText
	shapeUnstructured  // the value is the tree inside
)

// A plan holds everything that the walk needs to know about a Go type. It never changes once planFor has returned it.
type plan struct {
	typ    reflect.Type
	shape  shape
	elem   *plan   // of pointers, lists, arrays and maps
	fields []field // of structs, sorted by name
	keys   keyNamer
	quoted bool // a number, bool or string inside a JSON string

	embedded [][]int // the indices of embedded structs that hold fields

	// native is set for types of which only the pointer marshals itself. encoding/json ignores such a method if the
	// value has no address (map elements), and so does this package.
	native *plan
}

var (
	plans sync.Map // reflect.Type -> *plan

	marshalerType     = reflect.TypeFor[json.Marshaler]()
	textMarshalerType = reflect.TypeFor[encoding.TextMarshaler]()
	numberType        = reflect.TypeFor[json.Number]()
	unstructuredType  = reflect.TypeFor[unstructured.Unstructured]()
)

func planFor(t reflect.Type) *plan {
	if p, ok := plans.Load(t); ok {
		return p.(*plan)
	}
	b := planner{done: map[reflect.Type]*plan{}}
	p := b.plan(t)
	for _, resolve := range b.later {
		resolve()
	}
	// Plans are published only now: types can refer to themselves, and no other goroutine must see half a plan.
	for t, p := range b.done {
		plans.LoadOrStore(t, p)
	}
	return p
}

type planner struct {
	done  map[reflect.Type]*plan
	later []func()
}

func (b *planner) plan(t reflect.Type) *plan {
	if p, ok := b.done[t]; ok {
		return p
	}
	if p, ok := plans.Load(t); ok {
		return p.(*plan)
	}
	p := &plan{typ: t}
	b.done[t] = p
	if t == unstructuredType {
		p.shape = shapeUnstructured
		p.elem = b.plan(reflect.TypeFor[map[string]any]())
		return p
	}
	switch pointer := reflect.PointerTo(t); {
	case t.Kind() == reflect.Pointer:
		b.fill(p) // the element has all its methods, and an address
	case t.Implements(marshalerType), pointer.Implements(marshalerType):
		b.marshals(p, shapeMarshaler, t.Implements(marshalerType))
	case t.Implements(textMarshalerType), pointer.Implements(textMarshalerType):
		b.marshals(p, shapeTextMarshaler, t.Implements(textMarshalerType))
	default:
		b.fill(p)
	}
	return p
}

// marshals plans a type that marshals itself, also without an address if its values have the method.
func (b *planner) marshals(p *plan, s shape, values bool) {
	if p.shape = s; !values {
		p.native = &plan{typ: p.typ}
		b.fill(p.native)
	}
}

// fill plans a type by its kind, without regard to its methods.
func (b *planner) fill(p *plan) {
	t := p.typ
	switch t.Kind() {
	case reflect.Bool:
		p.shape = shapeBool
	case reflect.Int, reflect.Int8, reflect.Int16, reflect.Int32, reflect.Int64:
		p.shape = shapeInt
	case reflect.Uint, reflect.Uint8, reflect.Uint16, reflect.Uint32, reflect.Uint64, reflect.Uintptr:
		p.shape = shapeUint
	case reflect.Float32, reflect.Float64:
		p.shape = shapeFloat
	case reflect.String:
		p.shape = shapeString
		if t == numberType {
			p.shape = shapeNumber
		}
	case reflect.Interface:
		p.shape = shapeInterface
	case reflect.Pointer:
		p.shape = shapePointer
		p.elem = b.plan(t.Elem())
	case reflect.Slice:
		p.elem = b.plan(t.Elem())
		p.shape = shapeList
		if t.Elem().Kind() == reflect.Uint8 && p.elem.shape == shapeUint {
			p.shape = shapeBytes
		}
	case reflect.Array:
		p.shape = shapeArray
		p.elem = b.plan(t.Elem())
	case reflect.Map:
		p.keys = keyNamerFor(t.Key())
		if p.keys != nil {
			p.shape = shapeMap
		}
		p.elem = b.plan(t.Elem())
	case reflect.Struct:
		p.shape = shapeStruct
		p.fields = b.fields(p)
	}
}

// inQuotes returns the plan of a field with the "string" option, which has no effect on values that marshal
// themselves.
func (p *plan) inQuotes() *plan {
	q := *p
	switch p.shape {
	case shapeBool, shapeInt, shapeUint, shapeFloat, shapeString, shapeNumber:
		q.quoted = true
	case shapePointer:
		q.elem = p.elem.inQuotes()
	}
	return &q
}

// on returns the plan to use for this particular value.
func (p *plan) on(v reflect.Value) *plan {
	if p.native != nil && !v.CanAddr() {
		return p.native
	}
	return p
}
