package eirinixtest

// This file fills API objects with random values, for CheckTotal.

import (
	"encoding/json"
	"math"
	"math/rand/v2"
	"reflect"
	"time"

	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/intstr"
)

// filler fills Go values at random, more sparsely with increasing depth. Every optional field is left out some of the
// time.
type filler struct{ *rand.Rand }

// deepest is the nesting depth at which filling stops, because some API types are recursive.
const deepest = 10

// words are the strings in random objects. Some are strings a handler might look for, others are strings it might not
// expect.
var words = []string{"", "a", "app", "true", "IfNotPresent", "example.org/image:1", "example.org/key", "0", "-", "ünïcode ☃", "with \"quotes\" & <tags>", "a/b/c", "key=value,other"}

func fillRandomly(random *rand.Rand, object runtime.Object) {
	filler{random}.fill(reflect.ValueOf(object).Elem(), 0)
}

func (f filler) absent(depth int) bool { return depth >= deepest || f.IntN(10) < 3+depth/2 }

func (f filler) fill(v reflect.Value, depth int) {
	if f.fillSpecial(v) {
		return
	}
	switch v.Kind() {
	case reflect.Pointer:
		if !f.absent(depth) {
			v.Set(reflect.New(v.Type().Elem()))
			f.fill(v.Elem(), depth+1)
		}
	case reflect.Struct:
		for i := range v.NumField() {
			if field := v.Type().Field(i); field.IsExported() && !(field.Anonymous && field.Type == reflect.TypeFor[metav1.TypeMeta]()) {
				f.fill(v.Field(i), depth+1)
			}
		}
	case reflect.Slice:
		if f.absent(depth) {
			return
		}
		v.Set(reflect.MakeSlice(v.Type(), f.IntN(3), 3))
		for i := range v.Len() {
			f.fill(v.Index(i), depth+1)
		}
	case reflect.Map:
		if f.absent(depth) || v.Type().Key().Kind() != reflect.String {
			return
		}
		v.Set(reflect.MakeMap(v.Type()))
		for range f.IntN(3) {
			key, value := reflect.New(v.Type().Key()).Elem(), reflect.New(v.Type().Elem()).Elem()
			f.fill(key, depth+1)
			f.fill(value, depth+1)
			v.SetMapIndex(key, value)
		}
	case reflect.String:
		v.SetString(words[f.IntN(len(words))])
	case reflect.Bool:
		v.SetBool(f.IntN(2) == 0)
	case reflect.Int, reflect.Int8, reflect.Int16, reflect.Int32, reflect.Int64:
		v.SetInt([]int64{0, 1, -1, 8080, math.MaxInt32}[f.IntN(5)])
	case reflect.Uint, reflect.Uint8, reflect.Uint16, reflect.Uint32, reflect.Uint64:
		v.SetUint(uint64(f.IntN(100)))
	case reflect.Float32, reflect.Float64:
		v.SetFloat(float64(f.IntN(100)) / 4)
	}
}

// fillSpecial fills types whose JSON differs from that of their fields. It returns false for other types.
func (f filler) fillSpecial(v reflect.Value) bool {
	var special any
	switch v.Interface().(type) {
	case metav1.Time:
		special = metav1.Unix(int64(f.IntN(2_000_000_000)), 0)
	case metav1.MicroTime:
		special = metav1.NewMicroTime(time.Unix(int64(f.IntN(2_000_000_000)), 0))
	case metav1.Duration:
		special = metav1.Duration{Duration: time.Duration(f.IntN(1000)) * time.Second}
	case metav1.FieldsV1, metav1.ManagedFieldsEntry:
		return true // only the API server reads them
	case resource.Quantity:
		special = resource.MustParse([]string{"0", "1", "250m", "1Gi", "-1"}[f.IntN(5)])
	case intstr.IntOrString:
		special = []intstr.IntOrString{intstr.FromInt32(80), intstr.FromString("http"), {}}[f.IntN(3)]
	case runtime.RawExtension:
		special = runtime.RawExtension{Raw: []byte(`{"any":"thing"}`)}
	default:
		// Third-party types with custom JSON are left empty, because the input that they accept is unknown.
		return v.Kind() != reflect.Pointer && v.CanAddr() && v.Addr().Type().Implements(reflect.TypeFor[json.Unmarshaler]())
	}
	v.Set(reflect.ValueOf(special))
	return true
}
