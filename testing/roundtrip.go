package eirinixtest

// This file implements CheckRoundTrip, which converts random objects to another version and back.

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"code.cloudfoundry.org/eirinix/internal/apiserver"
	"code.cloudfoundry.org/eirinix/internal/convert"
)

const reversible = "reversible"

const (
	roundTripObjects = 10_000
	roundTripSeed    = 1
	roundTripBatch   = 250 // objects in one ConversionReview
)

// RoundTripOptions changes the objects of CheckRoundTrip. The zero value is right for Go types without constraints.
type RoundTripOptions struct {
	// Objects is the number of random objects of each version, for each other version. The default is 10,000. Seed
	// selects them. The default is 1, so they are the same in every run.
	Objects int
	Seed    uint64

	// Fill holds functions of sigs.k8s.io/randfill, func(*T, randfill.Continue), each of which fills values of one
	// type. Give one for each type of which only some values make sense. A function for unstructured.Unstructured gets a
	// copy of a sample, and changes it.
	Fill []any

	// Samples are objects of any version, in the forms that Request allows. They are converted before the random ones.
	// An unstructured version needs them, or a definition: its random objects are samples with parts left out or changed,
	// and with members added that the schema has.
	Samples []any

	// Definitions are the CustomResourceDefinitions of Conversions, in the forms that Request allows: as a Go value, or
	// as JSON or YAML in a []byte or string. With one, only objects count that the schema of their version allows. Random
	// values that it refuses are replaced by others. Defaults are set, and unknown members go, also after a conversion.
	// Objects that are refused nevertheless, for example by a rule of CEL, are left out, and the test's log says why. The
	// check fails if less than a tenth of the random objects of a version remains, and if a sample is refused.
	Definitions []any
}

// CheckRoundTrip fails if an object is not the same after a Conversion to another version and back. It converts random
// objects of the Hub to each spoke and back, and objects of each spoke to the Hub and back, with the handler that
// answers the API server. It also fails if a conversion panics, returns an error, or changes metadata that it must not
// change. If a Conversion is Lossy, only a second round trip must change nothing more.
//
// The annotation of a Conversion restores most of what its functions lose. CheckRoundTrip returns what they lose
// without it, sorted, for a test that forbids losses or lists the known ones:
//
//	Expect(h.CheckRoundTrip()).To(ConsistOf("CronJob v1 -> v1beta1 -> v1: spec.timeZone"))
func (h *Harness) CheckRoundTrip(options ...func(*RoundTripOptions)) (losses []string) {
	h.t.Helper()
	losses, err := h.roundTrip(options)
	h.report(err)
	return losses
}

func (h *Harness) roundTrip(options []func(*RoundTripOptions)) ([]string, error) {
	defer h.log.mute()()
	o := RoundTripOptions{Objects: roundTripObjects, Seed: roundTripSeed}
	for _, f := range options {
		f(&o)
	}
	if len(h.conversions) == 0 {
		return nil, errors.New("eirinixtest: there is no Conversion to check; give one to NewHarness, or a Manager that has one")
	}
	filler, err := newRoundTripFiller(o)
	if err != nil {
		return nil, err
	}
	samples, err := h.samples(o.Samples)
	if err != nil {
		return nil, err
	}
	definitions, err := h.definitions(o.Definitions)
	if err != nil {
		return nil, err
	}
	var losses []string
	for _, c := range h.conversions {
		versions, err := h.roundTripVersions(c, samples, definitions[c.CRD])
		if err != nil {
			return nil, err
		}
		for _, spoke := range versions[1:] {
			for _, way := range [][2]roundTripVersion{{versions[0], spoke}, {spoke, versions[0]}} {
				t := &roundTrip{conversion: c, filler: filler, from: way[0], to: way[1], lost: map[string]bool{}}
				if err := t.check(o.Objects); err != nil {
					return nil, err
				}
				if t.refused.objects > 0 {
					h.t.Logf("eirinixtest: %s was checked without %d of %d random objects, which the schema refuses:%s", t.way(), t.refused.objects, o.Objects, &t.refused)
				}
				losses = append(losses, t.losses()...)
			}
		}
	}
	slices.Sort(losses)
	return losses, nil
}

// conversion is a Conversion of a program under test.
type conversion struct {
	apiserver.Conversion
	handler http.Handler
}

// convert sends the objects in one ConversionReview.
func (c conversion) convert(kind schema.GroupVersionKind, objects []apiserver.Document) ([]apiserver.Document, error) {
	raw := make([][]byte, len(objects))
	for i := range objects {
		raw[i] = objects[i].Raw
	}
	converted, err := c.Convert(context.Background(), c.handler, kind.GroupVersion().String(), raw...)
	if err != nil {
		return nil, err
	}
	all := make([]apiserver.Document, len(converted))
	for i := range converted {
		all[i] = apiserver.NewDocument(kind, converted[i].Raw)
	}
	return all, nil
}

// roundTrip is the check of one version with one other version.
type roundTrip struct {
	conversion
	filler *roundTripFiller
	from   roundTripVersion
	to     roundTripVersion
	lost   map[string]bool // paths that the functions lose
	pruned string          // what the last failure has dropped from converted objects

	refused refusals // of random objects
}

// way is the round trip in the words of messages.
func (t *roundTrip) way() string {
	from := t.from.kind
	return fmt.Sprintf("%s %s -> %s -> %s", from.Kind, from.Version, t.to.kind.Version, from.Version)
}

// check converts the samples and the random objects.
func (t *roundTrip) check(random int) error {
	count := random + len(t.from.samples)
	for start := 0; start < count; start += roundTripBatch {
		var batch []apiserver.Document
		var indexes []int
		for i := start; i < min(start+roundTripBatch, count); i++ {
			d, err := t.filler.object(t.from, i)
			if err != nil {
				return err
			}
			d, errs := t.from.admit(d)
			switch {
			case len(errs) == 0:
				batch, indexes = append(batch, d), append(indexes, i)
			case i < len(t.from.samples):
				return fmt.Errorf("eirinixtest: the schema of %s refuses sample %d of its version in RoundTripOptions.Samples: %w; change the sample", t.from.kind, i+1, errs.ToAggregate())
			default:
				t.refused.add(errs)
			}
		}
		if t.failure(batch) == nil {
			continue
		}
		for i, d := range batch {
			if f := t.failure([]apiserver.Document{d}); f != nil {
				return t.violation(indexes[i], d, f)
			}
		}
		return fmt.Errorf("eirinixtest: %s fails for objects %d to %d together, and for none of them alone: %w; the functions depend on earlier calls, so keep no state in them",
			t.way(), indexes[0], indexes[len(indexes)-1], t.failure(batch).error())
	}
	if 10*(random-t.refused.objects) < random {
		return t.tooFew(random)
	}
	return nil
}

// roundTripFailure is the reason why an object fails the check.
type roundTripFailure struct {
	err       error        // of the conversion
	changed   []difference // after the round trip
	different []difference // between the first round trip and the second
	pruned    string       // what no schema has, although a conversion wrote it
}

func (f *roundTripFailure) error() error {
	if f == nil {
		return errors.New("it does not fail again")
	}
	if f.err != nil {
		return f.err
	}
	return errors.New(pathsOf(append(f.changed, f.different...)))
}

// failure returns the first failure among the objects, or nil. It records what the functions lose.
func (t *roundTrip) failure(objects []apiserver.Document) *roundTripFailure {
	t.pruned = ""
	there, back, err := t.thereAndBack(objects)
	if err != nil {
		return &roundTripFailure{err: err}
	}
	var noted, notedFrom, again []apiserver.Document
	for i := range objects {
		changed := t.from.differences(objects[i], back[i])
		switch {
		case t.Lossy:
			t.record(changed)
			again = append(again, back[i])
		case len(changed) > 0:
			return &roundTripFailure{changed: changed, pruned: t.pruned}
		}
		if d, found := withoutNote(there[i]); found && !t.Lossy {
			noted, notedFrom = append(noted, d), append(notedFrom, objects[i])
		}
		if _, found := withoutNote(back[i]); found && !t.Lossy {
			again = append(again, back[i])
		}
	}
	if err := t.compareWithoutNotes(notedFrom, noted); err != nil {
		return &roundTripFailure{err: err}
	}
	_, second, err := t.thereAndBack(again)
	if err != nil {
		return &roundTripFailure{err: err}
	}
	for i := range again {
		if different := t.from.differences(again[i], second[i]); len(different) > 0 {
			return &roundTripFailure{different: different, pruned: t.pruned}
		}
	}
	return nil
}

func (t *roundTrip) thereAndBack(objects []apiserver.Document) (there, back []apiserver.Document, err error) {
	if len(objects) == 0 {
		return nil, nil, nil
	}
	if there, err = t.convertTo(t.to, objects); err != nil {
		return nil, nil, err
	}
	back, err = t.convertTo(t.from, there)
	return there, back, err
}

// convertTo converts to a version of the Conversion, and removes what the schema of that does not have.
func (t *roundTrip) convertTo(v roundTripVersion, objects []apiserver.Document) ([]apiserver.Document, error) {
	all, err := t.convert(v.kind, objects)
	for i := range all {
		var paths []string
		if all[i], paths = v.prune(all[i]); len(paths) > 0 {
			t.pruned = fmt.Sprintf("the schema of %s has no %s", v.kind.Version, strings.Join(paths, ", "))
		}
		if v.kind == t.from.kind {
			all[i] = v.withDefaults(all[i])
		}
	}
	return all, err
}

// compareWithoutNotes records what is lost if the annotation of the library does not restore it.
func (t *roundTrip) compareWithoutNotes(objects, there []apiserver.Document) error {
	if len(objects) == 0 {
		return nil
	}
	back, err := t.convertTo(t.from, there)
	if err != nil {
		return err
	}
	for i := range objects {
		t.record(t.from.differences(objects[i], back[i]))
	}
	return nil
}

func (t *roundTrip) record(all []difference) {
	for _, d := range all {
		t.lost[t.from.pattern(d.path)] = true
	}
}

// losses returns the lost paths. A path inside of another lost one is left out.
func (t *roundTrip) losses() (all []string) {
	for path := range t.lost {
		if !t.isInsideLost(path) {
			all = append(all, t.way()+": "+path)
		}
	}
	return all
}

func (t *roundTrip) isInsideLost(path string) bool {
	for i := range path {
		if (path[i] == '.' || path[i] == '[') && t.lost[path[:i]] {
			return true
		}
	}
	return false
}

// withoutNote returns the object without the annotations of the library, and reports whether it had some.
func withoutNote(d apiserver.Document) (apiserver.Document, bool) {
	if !bytes.Contains(d.Raw, []byte(convert.Prefix)) {
		return d, false
	}
	had := false
	without := d.With(func(u *unstructured.Unstructured) { had = dropNote(u.Object) })
	if !had {
		return d, false
	}
	return without, true
}

// dropNote removes the annotations of the library from a tree, and reports whether there were some.
func dropNote(tree map[string]any) (had bool) {
	metadata, _ := tree["metadata"].(map[string]any)
	annotations, _ := metadata["annotations"].(map[string]any)
	maps.DeleteFunc(annotations, func(name string, _ any) bool {
		drop := strings.HasPrefix(name, convert.Prefix)
		had = had || drop
		return drop
	})
	if annotations != nil && len(annotations) == 0 {
		delete(metadata, "annotations")
	}
	return had
}
