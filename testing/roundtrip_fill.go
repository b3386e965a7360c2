package eirinixtest

// This file makes the random objects of CheckRoundTrip.

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"reflect"
	"slices"
	"strings"
	"time"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/intstr"
	"sigs.k8s.io/controller-runtime/pkg/client/apiutil"
	"sigs.k8s.io/randfill"

	"code.cloudfoundry.org/eirinix/internal/apiserver"
)

// roundTripVersion is a version of a Conversion.
type roundTripVersion struct {
	kind    schema.GroupVersionKind
	typ     reflect.Type // the Go type; nil for unstructured objects
	samples []apiserver.Document
	schema  *roundTripSchema // nil without a definition
}

// samples reads the samples.
func (h *Harness) samples(given []any) ([]apiserver.Document, error) {
	all := make([]apiserver.Document, 0, len(given))
	for i, sample := range given {
		d, err := h.server.Read(sample)
		if err == nil && d.Absent() {
			err = errors.New("it is nil")
		}
		if err != nil {
			return nil, fmt.Errorf("eirinixtest: RoundTripOptions.Samples[%d]: %w", i, err)
		}
		all = append(all, d)
	}
	return all, nil
}

// roundTripVersions returns the versions of a Conversion, the Hub first. All have the kind that the Go types or the
// samples name.
func (h *Harness) roundTripVersions(c conversion, samples []apiserver.Document, crd *apiextensionsv1.CustomResourceDefinition) ([]roundTripVersion, error) {
	versions := make([]roundTripVersion, len(c.Versions))
	kind, group := "", c.CRD[strings.IndexByte(c.CRD, '.')+1:]
	if crd != nil {
		kind = crd.Spec.Names.Kind
	}
	for _, object := range c.Versions {
		if k := object.GetObjectKind().GroupVersionKind().Kind; kind == "" {
			kind = k
		}
		if known, err := apiutil.GVKForObject(object, h.server.Scheme); err == nil && known.Group == group {
			kind = known.Kind
			break
		}
	}
	for i, object := range c.Versions {
		v := &versions[i]
		if v.kind = object.GetObjectKind().GroupVersionKind(); !isUnstructured(object) {
			v.typ = reflect.TypeOf(object).Elem()
		}
		for _, d := range samples {
			if d.Kind.GroupVersion() == v.kind.GroupVersion() && (kind == "" || kind == d.Kind.Kind) {
				v.samples, kind = append(v.samples, d), d.Kind.Kind
			}
		}
		if crd != nil {
			var err error
			if v.schema, err = newRoundTripSchema(crd, v.kind.Version); err != nil {
				return nil, err
			}
		}
		if v.typ == nil && len(v.samples) == 0 && crd == nil {
			return nil, fmt.Errorf("eirinixtest: there is nothing to make objects of %s of %s from, because the version has no Go type; give objects of it in RoundTripOptions.Samples, or the definition in RoundTripOptions.Definitions", v.kind.GroupVersion(), c.CRD)
		}
	}
	for i := range versions {
		versions[i].kind.Kind = kind
	}
	return versions, nil
}

func isUnstructured(object runtime.Object) bool {
	_, ok := object.(*unstructured.Unstructured)
	return ok
}

// pattern formats a path without the indexes of lists and the keys of maps: spec.rules[].note, metadata.labels.*.
func (v roundTripVersion) pattern(path []any) string {
	var b strings.Builder
	t := v.typ
	for i, step := range path {
		for t != nil && t.Kind() == reflect.Pointer {
			t = t.Elem()
		}
		key, isMember := step.(string)
		switch {
		case !isMember:
			b.WriteString("[]")
			if t != nil && t.Kind() == reflect.Slice {
				t = t.Elem()
			} else {
				t = nil
			}
			continue
		case t != nil && t.Kind() == reflect.Map, i == 2 && path[0] == "metadata" && slices.Contains(othersMembers, pathOf(path[1:2])):
			b.WriteString(".*")
		case i == 0:
			b.WriteString(key)
		default:
			b.WriteString("." + key)
		}
		t = memberType(t, key)
	}
	return b.String()
}

// roundTripFiller makes objects. Each depends on the seed and its index alone.
type roundTripFiller struct {
	RoundTripOptions
	fill        *randfill.Filler
	source      *source
	changesTree bool // a function of the user changes samples
}

// source is the source of randomness of package randfill.
type source struct{ *rand.PCG }

func (s source) Int63() int64 { return int64(s.Uint64() >> 1) } //nolint:gosec // the highest bit is zero
func (s source) Seed(int64)   {}

func newRoundTripFiller(o RoundTripOptions) (f *roundTripFiller, err error) {
	f = &roundTripFiller{RoundTripOptions: o, source: &source{rand.NewPCG(o.Seed, 0)}}
	f.fill = randfill.New().NilChance(.4).NumElements(0, 2).MaxDepth(deepest).RandSource(f.source)
	defer func() {
		if r := recover(); r != nil {
			err = fmt.Errorf("eirinixtest: RoundTripOptions.Fill: %v; give functions of the form func(*T, randfill.Continue)", r)
		}
	}()
	all := append(fillFuncs(), o.Fill...)
	for _, given := range all {
		f.fill.Funcs(given) // checks its type
		if reflect.TypeOf(given).In(0).Kind() == reflect.Pointer {
			f.fill.Funcs(orNil(given))
		}
	}
	for _, given := range all {
		f.fill.Funcs(given) // one for pointers to pointers replaces the one of orNil
	}
	for _, given := range o.Fill {
		f.changesTree = f.changesTree || reflect.TypeOf(given).In(0) == reflect.TypeFor[*unstructured.Unstructured]()
	}
	return f, nil
}

// orNil returns a function for pointers to the values of another function. Package randfill would call that for every
// pointer, so that none would be nil.
func orNil(of any) any {
	f := reflect.ValueOf(of)
	in := []reflect.Type{reflect.PointerTo(f.Type().In(0)), f.Type().In(1)}
	return reflect.MakeFunc(reflect.FuncOf(in, nil, false), func(args []reflect.Value) []reflect.Value {
		pointer := args[0].Elem()
		c := args[1].Interface().(randfill.Continue)
		if c.Intn(5) < 2 {
			pointer.SetZero()
			return nil
		}
		pointer.Set(reflect.New(pointer.Type().Elem()))
		f.Call([]reflect.Value{pointer, args[1]})
		return nil
	}).Interface()
}

// object returns the object of this index. The samples come first.
func (f *roundTripFiller) object(v roundTripVersion, index int) (apiserver.Document, error) {
	if index < len(v.samples) {
		return v.samples[index], nil
	}
	index -= len(v.samples)
	f.source.PCG.Seed(f.RoundTripOptions.Seed, uint64(index)) //nolint:gosec // an index is not negative
	var d apiserver.Document
	var err error
	switch {
	case v.typ != nil:
		if d, err = f.filled(v, index); err != nil {
			err = fmt.Errorf("eirinixtest: a random object of %s cannot be made: %w; give a function in RoundTripOptions.Fill for the type that the error names, func(*T, randfill.Continue)", v.kind, err)
		}
	case len(v.samples) > 0:
		d, err = f.varied(v.samples[index%len(v.samples)])
	default:
		raw := fmt.Sprintf(`{"apiVersion":%q,"kind":%q,"metadata":{"name":"object-%d","namespace":"default"}}`, v.kind.GroupVersion(), v.kind.Kind, index)
		d, err = f.varied(apiserver.NewDocument(v.kind, []byte(raw)))
	}
	if err != nil || v.schema == nil {
		return d, err
	}
	fit := fitter{rand.New(f.source), v.typ == nil && !f.changesTree} //nolint:gosec // a test wants the same every time
	d = d.With(func(u *unstructured.Unstructured) { fit.fit(v.schema.Structural, u.Object) })
	if v.typ != nil {
		if held, err := v.held(d.Raw); err == nil { // else the conversion says that the schema allows too much
			return held, nil
		}
	}
	return d, nil
}

// held returns what the Go type holds of an object. It leaves out empty members, for example.
func (v roundTripVersion) held(raw []byte) (apiserver.Document, error) {
	object := reflect.New(v.typ).Interface()
	if err := json.Unmarshal(raw, object); err != nil {
		return apiserver.Document{}, err
	}
	raw, err := json.Marshal(object)
	return apiserver.NewDocument(v.kind, raw), err
}

// filled returns a random object of the Go type.
func (f *roundTripFiller) filled(v roundTripVersion, index int) (_ apiserver.Document, err error) {
	defer func() {
		if r := recover(); r != nil {
			err = fmt.Errorf("%v", r)
		}
	}()
	object := reflect.New(v.typ).Interface().(runtime.Object)
	f.fill.Fill(object)
	object.GetObjectKind().SetGroupVersionKind(v.kind)
	m, err := meta.Accessor(object)
	if err != nil {
		return apiserver.Document{}, err
	}
	m.SetName(fmt.Sprintf("object-%d", index))
	m.SetNamespace("default")
	raw, err := json.Marshal(object)
	if err != nil {
		return apiserver.Document{}, err
	}
	return v.held(raw) // the JSON can hold less than the object in memory
}

// varied returns a sample with parts left out or changed.
func (f *roundTripFiller) varied(sample apiserver.Document) (d apiserver.Document, err error) {
	defer func() {
		if r := recover(); r != nil {
			err = fmt.Errorf("eirinixtest: the function for unstructured.Unstructured in RoundTripOptions.Fill panicked: %v", r)
		}
	}()
	return sample.With(func(u *unstructured.Unstructured) {
		if f.changesTree {
			f.fill.Fill(u)
			return
		}
		vary(rand.New(f.source), u.Object, "") //nolint:gosec // a test wants the same every time
	}), nil
}

// vary leaves out parts of a tree, and replaces values by others of the same type.
func vary(random *rand.Rand, tree any, at string) any {
	switch tree := tree.(type) {
	case map[string]any:
		for _, name := range slices.Sorted(maps.Keys(tree)) {
			inside := strings.TrimPrefix(at+"."+name, ".")
			switch free := !kept[inside]; {
			case free && random.IntN(8) == 0:
				delete(tree, name)
			case free || inside == "metadata":
				tree[name] = vary(random, tree[name], inside)
			}
		}
	case []any:
		var items []any
		for _, item := range tree {
			for range random.IntN(5) / 2 { // none, one or two times
				items = append(items, vary(random, runtime.DeepCopyJSONValue(item), at+"[]"))
			}
		}
		return items
	case string:
		if random.IntN(4) == 0 {
			return words[random.IntN(len(words))]
		}
	case bool:
		return random.IntN(2) == 0
	case int64:
		return []int64{tree, 0, 1, -1, 8080, 1 << 40}[random.IntN(6)]
	case float64:
		return []float64{tree, 0, 1.5, -1e9}[random.IntN(4)]
	}
	return tree
}

// fillFuncs fill types whose JSON differs from that of their fields, and strings.
func fillFuncs() []any {
	return []any{
		func(s *string, c randfill.Continue) {
			if *s = words[c.Intn(len(words))]; c.Intn(3) == 0 {
				*s = c.String(12)
			}
		},
		func(*metav1.TypeMeta, randfill.Continue) {},
		func(j *metav1.ObjectMeta, c randfill.Continue) {
			c.FillNoCustom(j)
			j.SelfLink, j.ManagedFields = "", nil //nolint:staticcheck // deprecated, and never set
			j.ResourceVersion = fmt.Sprint(c.Uint64() >> 1)
		},
		func(j *metav1.Time, c randfill.Continue) { *j = metav1.Unix(c.Int63n(2_000_000_000), 0) },
		func(j *metav1.MicroTime, c randfill.Continue) {
			*j = metav1.NewMicroTime(time.Unix(c.Int63n(2_000_000_000), 0))
		},
		func(j *metav1.Duration, c randfill.Continue) {
			j.Duration = time.Duration(c.Intn(100_000)) * time.Second
		},
		func(*metav1.FieldsV1, randfill.Continue) {},
		func(j *resource.Quantity, c randfill.Continue) {
			*j = resource.MustParse([]string{"0", "1", "250m", "1Gi", "-1"}[c.Intn(5)])
		},
		func(j *intstr.IntOrString, c randfill.Continue) {
			*j = []intstr.IntOrString{intstr.FromInt32(80), intstr.FromString("http"), {}}[c.Intn(3)]
		},
		func(j *runtime.RawExtension, _ randfill.Continue) { j.Raw = []byte(`{"any":"thing"}`) },
		func(j *apiextensionsv1.JSON, c randfill.Continue) {
			j.Raw = [][]byte{[]byte(`{"any":"thing"}`), []byte(`[1,"a"]`), []byte(`"text"`), []byte(`7`)}[c.Intn(4)]
		},
	}
}
