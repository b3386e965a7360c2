package eirinixtest

// This file compares objects after a round trip, shrinks an object that fails, and reports it.

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"code.cloudfoundry.org/eirinix/internal/apiserver"
	"code.cloudfoundry.org/eirinix/internal/lograte"
)

// difference is a place at which two objects differ. An absent value is nil.
type difference struct {
	path    []any // names of members, and indexes of items
	was, is any
}

// differences compares two objects of the version, except for the annotation of the library. As in the library, null
// is the same as absent, and an empty list where there was nothing is no difference. A Go type can also add the zero
// values of its fields.
func (v roundTripVersion) differences(was, is apiserver.Document) []difference {
	a, b := treeOf(was), treeOf(is)
	if reflect.DeepEqual(a, b) {
		return nil
	}
	dropNote(a)
	dropNote(b)
	return slices.DeleteFunc(compareTrees(nil, a, b), func(d difference) bool {
		return v.typ != nil && d.was == nil && isZero(d.is)
	})
}

// isZero reports whether a value is what a Go type makes of nothing.
func isZero(v any) bool {
	switch v := v.(type) {
	case map[string]any:
		for _, member := range v {
			if !isZero(member) {
				return false
			}
		}
		return true
	case []any:
		return len(v) == 0
	case json.Number:
		return v == "0"
	}
	return v == nil || v == "" || v == false
}

// treeOf decodes an object with its numbers as they are written.
func treeOf(d apiserver.Document) (tree map[string]any) {
	decoder := json.NewDecoder(bytes.NewReader(d.Raw))
	decoder.UseNumber()
	_ = decoder.Decode(&tree) // it is an object, or no member of it is found
	return tree
}

func compareTrees(path []any, was, is any) (all []difference) {
	at := func(step any) []any { return append(slices.Clone(path), step) }
	switch a := was.(type) {
	case map[string]any:
		if b, ok := is.(map[string]any); ok {
			for _, key := range slices.Sorted(maps.Keys(a)) {
				all = append(all, compareTrees(at(key), a[key], b[key])...)
			}
			for _, key := range slices.Sorted(maps.Keys(b)) {
				if _, there := a[key]; !there {
					all = append(all, compareTrees(at(key), nil, b[key])...)
				}
			}
			return all
		}
	case []any:
		if b, ok := is.([]any); ok && len(a) == len(b) {
			for i := range a {
				all = append(all, compareTrees(at(i), a[i], b[i])...)
			}
			return all
		}
	case nil:
		if list, ok := is.([]any); ok && len(list) == 0 {
			return nil
		}
	}
	if reflect.DeepEqual(was, is) {
		return nil
	}
	return []difference{{path, was, is}}
}

// pathOf formats a path: spec.rules[2].note.
func pathOf(path []any) string {
	var b strings.Builder
	for _, step := range path {
		if i, ok := step.(int); ok {
			fmt.Fprintf(&b, "[%d]", i)
			continue
		}
		if b.Len() > 0 {
			b.WriteByte('.')
		}
		fmt.Fprint(&b, step)
	}
	return b.String()
}

// maxPaths bounds the paths in a message.
const maxPaths = 10

func pathsOf(all []difference) string {
	var paths []string
	for _, d := range all[:min(len(all), maxPaths)] {
		paths = append(paths, pathOf(d.path))
	}
	if more := len(all) - maxPaths; more > 0 {
		paths = append(paths, fmt.Sprintf("and %d more", more))
	}
	return strings.Join(paths, ", ")
}

// valuesOf shows the values at each path.
func valuesOf(all []difference) string {
	var b strings.Builder
	for _, d := range all[:min(len(all), maxPaths)] {
		fmt.Fprintf(&b, "%s: %s became %s\n", pathOf(d.path), valueOf(d.was), valueOf(d.is))
	}
	return b.String()
}

func valueOf(v any) string {
	if v == nil {
		return "absent"
	}
	text, err := json.Marshal(v)
	if err != nil {
		return fmt.Sprint(v)
	}
	return lograte.Brief(string(text), 200)
}

// same reports whether two failures have the same reason.
func (f *roundTripFailure) same(other *roundTripFailure) bool {
	switch {
	case other == nil:
		return false
	case f.err != nil || other.err != nil:
		return f.err != nil && other.err != nil && f.err.Error() == other.err.Error()
	}
	return len(f.changed) > 0 == (len(other.changed) > 0) && f.pruned == other.pruned
}

// shrink returns the smallest object found that fails for the same reason.
func (t *roundTrip) shrink(d apiserver.Document, f *roundTripFailure) (apiserver.Document, *roundTripFailure) {
	lost := t.lost
	t.lost = map[string]bool{} // shrunk objects are no random ones
	defer func() { t.lost = lost }()
	for tries := shrinkTries; tries > 0; {
		smaller := d
		for _, path := range partsOf(d.Unstructured().Object, nil, isIdentity) {
			if tries--; tries < 0 {
				break
			}
			candidate, refused := t.from.admit(d.With(func(u *unstructured.Unstructured) { leaveOut(u.Object, path) }))
			if len(refused) > 0 || bytes.Equal(candidate.Raw, d.Raw) {
				continue // it has the default again
			}
			if again := t.failure([]apiserver.Document{candidate}); f.same(again) {
				smaller, f = candidate, again
				break
			}
		}
		if bytes.Equal(smaller.Raw, d.Raw) {
			break
		}
		d = smaller
	}
	return d, f
}

// isIdentity reports whether a path is part of the identity of an object, which messages show.
func isIdentity(path string) bool {
	return kept[path] && path != "metadata.labels" && path != "metadata.generateName"
}

// violation reports an object that fails.
func (t *roundTrip) violation(index int, d apiserver.Document, f *roundTripFailure) error {
	name := fmt.Sprintf("random object %d, seed %d", index-len(t.from.samples), t.filler.Seed)
	if index < len(t.from.samples) {
		name = fmt.Sprintf("sample %d of its version", index+1)
	}
	small, f := t.shrink(d, f)
	v := &violation{property: reversible}
	if small.YAML() != d.YAML() {
		name += ", without the parts that do not matter"
	}
	v.proof = name + ":\n" + indented(small.YAML())
	switch {
	case f.err != nil:
		v.what = fmt.Sprintf("%s fails: %v", t.way(), f.err)
		v.remedy = t.remedyOf(f.err)
	case len(f.changed) > 0:
		v.what = fmt.Sprintf("%s changes %s", t.way(), pathsOf(f.changed))
		v.proof = valuesOf(f.changed) + v.proof
		v.remedy = "make the functions depend on their argument alone, since the library restores what equal calls lose: use neither the time, nor random values, nor the order of a map, nor state."
	default:
		v.what = fmt.Sprintf("a second round trip %s changes %s again", t.way(), pathsOf(f.different))
		v.proof = valuesOf(f.different) + v.proof
		v.remedy = "convert a result back to what it was made of: values that grow or move with each conversion pile up in the stored object." + t.orRefused()
	}
	if f.pruned != "" {
		v.remedy = f.pruned + ", so that the API server drops what the conversion writes there: add it to the definition, or write it elsewhere."
	}
	return v
}

// orRefused says what to do if the API server never stores such an object.
func (t *roundTrip) orRefused() string {
	if t.from.schema != nil {
		return " Or refuse such objects: the schema in RoundTripOptions.Definitions allows this one."
	}
	return " If the schema refuses such an object, give the definition in RoundTripOptions.Definitions, or valid values in RoundTripOptions.Fill."
}

// tooFew reports that the schema refuses almost all objects.
func (t *roundTrip) tooFew(random int) error {
	fill := "func(u *unstructured.Unstructured, c randfill.Continue) { /* set valid values in u.Object */ }"
	if t.from.typ != nil {
		fill = fmt.Sprintf("func(v *%s, c randfill.Continue) { c.FillNoCustom(v); /* set valid values in v */ }", t.from.typ)
	}
	return fmt.Errorf("eirinixtest: the schema of %s refuses %d of %d random objects, so that too few are left to check. The most frequent reasons:%s\nWhat to change: fill these places with valid values, or give more valid samples. In the options of CheckRoundTrip:\n  o.Fill = append(o.Fill, %s)",
		t.from.kind, t.refused.objects, random, &t.refused, fill)
}

// remedyOf returns the remedy for an error of a conversion.
func (t *roundTrip) remedyOf(err error) string {
	switch text := err.Error(); {
	case strings.Contains(text, "panicked"):
		return "ask before you use: pointers and maps may be nil, and lists may be empty, because objects that were stored before today's schema are converted too." + t.orRefused()
	case strings.Contains(text, "it changed metadata."):
		return "copy ObjectMeta as a whole, and change no more of it than labels and annotations: the API server refuses the rest."
	case strings.Contains(text, "cannot be read as"):
		return "give samples that the Go type can read, or let the schema refuse what it cannot." + t.orRefused()
	}
	return "convert what there is, with a lossy result in place of an error, since one object that fails makes every list of its kind fail." + t.orRefused()
}
