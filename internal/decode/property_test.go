package decode

// This file compares the decoders on random objects, and on any bytes.

import (
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"reflect"
	"strings"
	"testing"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/intstr"
	kjson "sigs.k8s.io/json"

	"code.cloudfoundry.org/eirinix/internal/jsontext"
)

// both decodes with Into and with sigs.k8s.io/json.
func both(raw []byte, mine, theirs any) (err, want error) {
	return Into(raw, mine), kjson.UnmarshalCaseSensitivePreserveInts(raw, theirs)
}

// fill makes a random value that can be marshalled and read again.
func fill(r *rand.Rand, v reflect.Value, depth int) {
	if depth > 12 || !v.CanSet() || depth > 3 && r.IntN(depth) > 2 {
		return
	}
	switch x := v.Addr().Interface().(type) {
	case *resource.Quantity:
		*x = resource.MustParse([]string{"0", "1", "100m", "1.5", "512Mi", "1e3", "-3k", "0.5Gi"}[r.IntN(8)])
		return
	case *metav1.Time:
		*x = metav1.Unix(r.Int64N(4e9), 0)
		return
	case *metav1.MicroTime:
		*x = metav1.MicroTime{Time: time.UnixMicro(r.Int64N(4e15))}
		return
	case *intstr.IntOrString:
		if *x = intstr.FromInt32(r.Int32()); r.IntN(2) == 0 {
			*x = intstr.FromString(randomString(r))
		}
		return
	case *metav1.FieldsV1:
		x.SetRawBytes([]byte(`{"f:spec":{"k:{\"name\":\"a\"}":{".":{}}}}`))
		return
	case *runtime.RawExtension:
		x.Raw = []byte(`{"kind":"Any","list":[1,2.5,"x"]}`)
		return
	}
	if t := v.Type(); t.Name() == "JSON" && t.Kind() == reflect.Struct { // apiextensionsv1
		v.Field(0).SetBytes([]byte(`{"default":[1,null]}`))
		return
	}
	switch v.Kind() {
	case reflect.Bool:
		v.SetBool(r.IntN(2) == 0)
	case reflect.Int, reflect.Int8, reflect.Int16, reflect.Int32, reflect.Int64:
		v.SetInt(int64(r.Uint64()) >> r.IntN(64))
	case reflect.Uint, reflect.Uint8, reflect.Uint16, reflect.Uint32, reflect.Uint64:
		v.SetUint(r.Uint64() >> r.IntN(64))
	case reflect.Float32, reflect.Float64:
		v.SetFloat(float64(float32(r.NormFloat64())))
	case reflect.String:
		v.SetString(randomString(r))
	case reflect.Pointer:
		if r.IntN(3) > 0 {
			v.Set(reflect.New(v.Type().Elem()))
			fill(r, v.Elem(), depth+1)
		}
	case reflect.Slice:
		if n := r.IntN(6); n > 0 {
			v.Set(reflect.MakeSlice(v.Type(), n-1, n-1))
			for i := range v.Len() {
				fill(r, v.Index(i), depth+1)
			}
		}
	case reflect.Map:
		v.Set(reflect.MakeMap(v.Type()))
		for range r.IntN(4) {
			key, elem := reflect.New(v.Type().Key()).Elem(), reflect.New(v.Type().Elem()).Elem()
			fill(r, key, depth)
			fill(r, elem, depth+1)
			v.SetMapIndex(key, elem)
		}
	case reflect.Struct:
		for i := range v.NumField() {
			fill(r, v.Field(i), depth+1)
		}
	}
}

func randomString(r *rand.Rand) string {
	pieces := []string{"a", "Z9", "name", "/", "-", "é", "日本", "😀", "\n", "\"", "\\", "<&>", " ", "\u2028", "\x01", "some longer text without anything in it "}
	var s string
	for range r.IntN(6) {
		s += pieces[r.IntN(len(pieces))]
	}
	return s
}

// randomText is the JSON of a random object.
func randomText(r *rand.Rand, t reflect.Type) []byte {
	for {
		v := reflect.New(t)
		fill(r, v.Elem(), 0)
		if raw, err := json.Marshal(v.Interface()); err == nil {
			return raw
		}
	}
}

// spoil changes a text at a few random places.
func spoil(r *rand.Rand, raw []byte) []byte {
	const likely = "{}[]\",:\\ \n0123456789-+.eEtrufalsn\x00\x1f\x7f\x80\xc3\xff"
	raw = append([]byte(nil), raw...)
	for range 1 + r.IntN(3) {
		if len(raw) == 0 {
			return raw
		}
		i := r.IntN(len(raw))
		switch c := likely[r.IntN(len(likely))]; r.IntN(6) {
		case 0:
			raw[i] = byte(r.IntN(256))
		case 1:
			raw[i] = c
		case 2:
			raw = append(raw[:i], raw[i+1:]...)
		case 3:
			raw = append(raw[:i], append([]byte{c}, raw[i:]...)...)
		case 4:
			j := i + r.IntN(len(raw)-i)
			raw = append(raw[:j:j], raw[i:]...) // a stretch twice
		case 5:
			raw = raw[:i]
		}
	}
	return raw
}

// spans are where the values of a well-formed text stand.
func spans(raw []byte) (found [][2]int) {
	for i := range raw {
		d := &decoder{Reader: jsontext.Reader{Text: raw, At: i}, deepest: maxNesting}
		d.skip()
		if end := d.At; end > 0 && json.Valid(raw[i:end]) {
			found = append(found, [2]int{i, end})
		}
	}
	return found
}

var _ = Describe("Into, with random objects", func() {
	It("reads them as sigs.k8s.io/json does, and when they are spoilt", func() {
		seed := uint64(GinkgoRandomSeed())
		r := rand.New(rand.NewPCG(seed, 0))
		for round := range 4 {
			for _, t := range apiTypes {
				raw := randomText(r, t)
				Expect(disagreement(raw, t)).To(BeEmpty(), "seed %d, round %d", seed, round)
				Expect(disagreement(raw, reflect.TypeFor[map[string]any]())).To(BeEmpty(), "seed %d, round %d", seed, round)
				for range 6 {
					Expect(disagreement(spoil(r, raw), t)).To(BeEmpty(), "seed %d, round %d", seed, round)
				}
			}
		}
	})

	It("reads them with any value in the place of another", func() {
		seed := uint64(GinkgoRandomSeed())
		r := rand.New(rand.NewPCG(seed, 1))
		for round := range 2 {
			for _, t := range apiTypes {
				raw := randomText(r, t)
				if len(raw) > 20000 {
					continue
				}
				all := spans(raw)
				for range 60 {
					at := all[r.IntN(len(all))]
					text := string(raw[:at[0]]) + values[r.IntN(len(values))] + string(raw[at[1]:])
					Expect(disagreement([]byte(text), t)).To(BeEmpty(), "seed %d, round %d", seed, round)
				}
			}
		}
	})
})

// FuzzInto reads any bytes into types of every kind with both decoders: errors and results must be the same.
func FuzzInto(f *testing.F) {
	targets := []reflect.Type{
		reflect.TypeFor[corev1.Pod](), reflect.TypeFor[appsv1.Deployment](), crdType, reflect.TypeFor[map[string]any](),
		reflect.TypeFor[scalars](), reflect.TypeFor[pointers](), reflect.TypeFor[lists](), reflect.TypeFor[maps](),
		reflect.TypeFor[embedding](), reflect.TypeFor[quoting](), reflect.TypeFor[naming](), reflect.TypeFor[methods](),
		reflect.TypeFor[interfaces](), reflect.TypeFor[tree](), reflect.TypeFor[hiding](), reflect.TypeFor[diamond](), sameTags,
	}
	r := rand.New(rand.NewPCG(3, 4))
	for _, t := range append(targets[:3:3], oddTypes[:10]...) {
		if t != reflect.TypeFor[scalars]() {
			for _, name := range names(t) {
				f.Add([]byte(`{"` + name + `":` + values[r.IntN(len(values))] + `}`))
			}
		}
	}
	for _, t := range apiTypes {
		for range 3 {
			if raw := randomText(r, t); len(raw) < 4000 {
				f.Add(raw)
			}
		}
	}
	for _, v := range values {
		f.Add([]byte(v))
	}
	f.Fuzz(func(t *testing.T, raw []byte) {
		if len(raw) > 1<<12 {
			t.Skip("long texts only repeat themselves")
		}
		for _, target := range targets {
			if d := disagreement(raw, target); d != "" {
				t.Fatal(d)
			}
		}
	})
}

func TestDecode(t *testing.T) {
	RegisterFailHandler(Fail)
	RunSpecs(t, "Decode")
}

// disagreement reads a text into a type with both decoders, and returns the difference of the outcomes: not at all, or
// the specification is broken.
func disagreement(raw []byte, t reflect.Type) string {
	mine, theirs := reflect.New(t), reflect.New(t)
	before := string(raw)
	err := Into(raw, mine.Interface())
	if errors.Is(err, ErrTooLarge) {
		return "" // the one error of its own
	}
	if string(raw) != before {
		return "the text was changed"
	}
	want := kjson.UnmarshalCaseSensitivePreserveInts(raw, theirs.Interface())
	switch {
	case reflect.TypeOf(err) != reflect.TypeOf(want) || err != nil && err.Error() != want.Error():
		return fmt.Sprintf("%s from %s\n fails with %v\nbut should with %v", t, clip(raw), err, want)
	case !reflect.DeepEqual(mine.Interface(), theirs.Interface()):
		return fmt.Sprintf("%s from %s\n becomes %+v\nbut should %+v", t, clip(raw), mine.Elem().Interface(), theirs.Elem().Interface())
	}
	if d := misplaced(raw, t); d != "" {
		return d
	}
	if strings.Contains(before+t.String(), "Unnamed") || strings.Contains(t.String(), "struct {") || !json.Valid(raw) {
		return "" // sigs.k8s.io/json reads a field of an unnamed type in another way than a value of that type alone
	}
	if misfit := Misfit(raw, theirs.Interface()); (misfit != nil) != (want != nil) {
		return fmt.Sprintf("%s from %s\n has the misfit %v\nbut fails with %v", t, clip(raw), misfit, want)
	}
	return ""
}

// misplaced compares the index that Within records with one that is made by itself.
func misplaced(raw []byte, t reflect.Type) string {
	var doc jsontext.Index
	if _, err := Within(raw, reflect.New(t).Interface(), &doc, nil); err != nil || !doc.IsOf(raw) {
		return ""
	}
	own, root, err := jsontext.NewIndex(raw)
	if err != nil {
		return err.Error()
	}
	nodes := []jsontext.Node{root}
	for len(nodes) > 0 {
		n := nodes[0]
		if nodes = nodes[1:]; n.Kind != '{' && n.Kind != '[' {
			continue
		}
		want, err := own.Parts(n, nil)
		have, failed := doc.Parts(n, nil)
		if err != nil || failed != nil || !reflect.DeepEqual(have, want) {
			return fmt.Sprintf("%s from %s\n has the parts %v (%v)\nand not %v (%v)", t, clip(raw), have, failed, want, err)
		}
		for _, p := range want {
			nodes = append(nodes, p.Node)
		}
	}
	return ""
}

func clip(raw []byte) string {
	if len(raw) > 4000 {
		return fmt.Sprintf("%q... (%d bytes)", raw[:4000], len(raw))
	}
	return fmt.Sprintf("%q", raw)
}

// isFast returns true if the text is read without the help of sigs.k8s.io/json.
func isFast(raw string, t reflect.Type) bool { return fast([]byte(raw), reflect.New(t).Interface()) }

func fast(raw []byte, obj any) bool {
	d := decoder{Reader: jsontext.Reader{Text: raw}, most: MaxMemory, deepest: maxNesting}
	return d.fast(obj)
}
