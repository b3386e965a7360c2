package eirinixtest

// This file implements CheckTotal, which looks for objects on which a handler panics.

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"code.cloudfoundry.org/eirinix/internal/apiserver"
)

const total = "total"

const (
	randomObjects = 100
	shrinkTries   = 400
	maxLines      = 20 // of an object for which a step is late

	// totalTimeout is the webhook timeout while panics are looked for. A step that is late for one of the objects would
	// otherwise use up the time of the check.
	totalTimeout = time.Second
)

func (h *Harness) total(object any, options []RequestOption) error {
	defer h.log.mute()()
	requests, err := h.requests(object, options)
	if err != nil {
		return err
	}
	for _, r := range requests {
		example, other, err := h.example(r)
		if err != nil {
			return err
		}
		for _, smaller := range withoutParts(example) {
			if v, err := h.panics(r, smaller, other); err != nil {
				return err
			} else if v != nil {
				return h.panicked(r, smaller, other, v, "on the example with a part left out")
			}
		}
		random := rand.New(rand.NewPCG(1, 2)) //nolint:gosec // a test wants the same every time
		for i := range randomObjects {
			fuzzed, ok := h.fuzz(random, example)
			if !ok {
				break // the kind has no Go type to fill
			}
			if v, err := h.panics(r, fuzzed, other); err != nil {
				return err
			} else if v != nil {
				return h.panicked(r, fuzzed, other, v, fmt.Sprintf("on random object %d", i))
			}
		}
	}
	return nil
}

// example returns the object of a request that is to be varied, and the other object of an update.
func (h *Harness) example(r Request) (example, other apiserver.Document, err error) {
	object, err := h.server.Read(r.Object)
	if err != nil {
		return object, other, fmt.Errorf("eirinixtest: %w", err)
	}
	old, err := h.server.Read(r.OldObject)
	if err != nil {
		return object, other, fmt.Errorf("eirinixtest: %w", err)
	}
	if object.Absent() {
		return old, other, nil
	}
	return object, old, nil
}

// panics returns the run of a step that panics on an object, or nil. In an update, the object is also tried as the old
// one. The error is that of a step that is late.
func (h *Harness) panics(r Request, object, other apiserver.Document) (*StepRun, error) {
	r.WebhookTimeout = cmp.Or(r.WebhookTimeout, totalTimeout)
	tries := []Request{r}
	if r.Object == nil {
		tries[0].OldObject = object
	} else {
		tries[0].Object = object
		if !other.Absent() {
			turned := r
			turned.Object, turned.OldObject = other, object
			same := r // for a Pod, for example, the API server sends nothing else
			same.Object, same.OldObject = object, touched(object)
			tries = append(tries, turned, same)
		}
	}
	for _, try := range tries {
		result, err := h.send(try)
		if errors.Is(err, errTimeUsed) {
			return nil, err
		}
		if err != nil {
			continue // no API server would have sent the request
		}
		for _, s := range result.Steps {
			if s.Panic != nil {
				return &s, nil
			}
		}
		if err := late(result, try, object); err != nil {
			return nil, err
		}
	}
	return nil, nil
}

// beginning returns the first lines of an object, which can have thousands.
func beginning(object apiserver.Document) string {
	lines := strings.SplitAfter(object.YAML(), "\n")
	if len(lines) <= maxLines {
		return strings.Join(lines, "")
	}
	return fmt.Sprintf("%s... and %d more lines", strings.Join(lines[:maxLines], ""), len(lines)-maxLines)
}

// panicked reports a panic, with the smallest object found that still causes it.
func (h *Harness) panicked(r Request, object, other apiserver.Document, run *StepRun, when string) error {
	for tries := shrinkTries; tries > 0; {
		smaller := object
		for _, candidate := range withoutParts(object) {
			if tries--; tries < 0 {
				break
			}
			if again, _ := h.panics(r, candidate, other); again != nil && fmt.Sprint(again.Panic) == fmt.Sprint(run.Panic) {
				smaller, run = candidate, again
				break
			}
		}
		if bytes.Equal(smaller.Raw, object.Raw) {
			break
		}
		object = smaller
	}
	proof := object.YAML()
	if at := panicPlace(run.Stack); at != "" {
		proof = "at " + at + "\n" + proof
	}
	return &violation{
		property: total, what: fmt.Sprintf("step %s panicked %s, %s: %v", run.Step, when, r.Operation, run.Panic), proof: proof,
		remedy: "ask before you use: pointers and maps of an object may be nil, lists may be empty, and names may be missing, because mutating webhooks see objects before the API server has validated them.",
	}
}

// panicPlace returns the line of code that panicked, from the stack.
func panicPlace(stack []byte) string {
	lines := strings.Split(string(stack), "\n")
	at := -1
	for i, line := range lines {
		if strings.HasPrefix(line, "panic(") { // the panicking function follows
			at = i + 2
		}
	}
	for i := at; at >= 0 && i+1 < len(lines); i += 2 {
		if strings.HasPrefix(lines[i], "runtime.") { // the runtime's frames for a nil pointer
			continue
		}
		place, _, _ := strings.Cut(strings.TrimSpace(lines[i+1]), " +0x")
		return place
	}
	return ""
}

// withoutParts returns the object with each of its parts left out in turn, the outer parts first. Items of lists are
// left out one by one. The parts in kept are never left out.
func withoutParts(d apiserver.Document) []apiserver.Document {
	var all []apiserver.Document
	for _, path := range partsOf(d.Unstructured().Object, nil, func(path string) bool { return kept[path] }) {
		all = append(all, d.With(func(u *unstructured.Unstructured) { leaveOut(u.Object, path) }))
	}
	return all
}

// kept are the parts that an API server requires, or by which the request was matched.
var kept = map[string]bool{
	"apiVersion": true, "kind": true, "metadata": true, "metadata.name": true, "metadata.namespace": true, "metadata.generateName": true, "metadata.labels": true,
}

// partsOf returns the paths of all parts, outer ones first, without those that are kept.
func partsOf(tree any, path []any, isKept func(path string) bool) [][]any {
	var here, below [][]any
	add := func(step, part any) {
		at := append(append([]any(nil), path...), step)
		if !isKept(pathText(at)) {
			here = append(here, at)
		}
		if !isKept(pathText(at)) || pathText(at) == "metadata" {
			below = append(below, partsOf(part, at, isKept)...)
		}
	}
	switch tree := tree.(type) {
	case map[string]any:
		for _, key := range slices.Sorted(maps.Keys(tree)) {
			add(key, tree[key])
		}
	case []any:
		for i, item := range tree {
			add(i, item)
		}
	}
	return append(here, below...)
}

func pathText(path []any) string {
	words := make([]string, 0, len(path))
	for _, step := range path {
		words = append(words, fmt.Sprint(step))
	}
	return strings.Join(words, ".")
}

func leaveOut(tree any, path []any) any {
	switch tree := tree.(type) {
	case map[string]any:
		key := path[0].(string)
		if len(path) == 1 {
			delete(tree, key)
		} else {
			tree[key] = leaveOut(tree[key], path[1:])
		}
		return tree
	case []any:
		i := path[0].(int)
		if len(path) == 1 {
			return append(append([]any{}, tree[:i]...), tree[i+1:]...)
		}
		tree[i] = leaveOut(tree[i], path[1:])
		return tree
	}
	return tree
}

// fuzz makes a random object of the example's kind, with the example's name, namespace and labels. It returns false if
// the kind has no Go type.
func (h *Harness) fuzz(random *rand.Rand, example apiserver.Document) (apiserver.Document, bool) {
	object, err := example.In(h.server.Scheme)
	if err != nil {
		return apiserver.Document{}, false
	}
	if _, untyped := object.(*unstructured.Unstructured); untyped {
		return apiserver.Document{}, false
	}
	fresh, err := h.server.Scheme.New(example.Kind)
	if err != nil {
		return apiserver.Document{}, false
	}
	fillRandomly(random, fresh)
	fresh.GetObjectKind().SetGroupVersionKind(example.Kind)
	raw, err := json.Marshal(fresh)
	if err != nil {
		return apiserver.Document{}, true
	}
	d := apiserver.NewDocument(example.Kind, raw)
	as := example.Unstructured()
	if as.Object["metadata"] == nil {
		return d, true
	}
	return d.With(func(u *unstructured.Unstructured) {
		u.SetName(as.GetName())
		u.SetGenerateName(as.GetGenerateName())
		u.SetNamespace(as.GetNamespace())
		if labels := as.GetLabels(); labels != nil {
			u.SetLabels(labels)
		}
	}), true
}
