package eirinixtest

// This file implements CheckDeterministic and CheckRaceFree, which compare the answers to equal requests.

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"code.cloudfoundry.org/eirinix/internal/diff"
)

const (
	deterministic = "deterministic"
	raceFree      = "race-free"
)

const (
	repetitions  = 16 // enough for the iteration order of a map to differ
	parallel     = 8  // goroutines that send requests
	variants     = 16 // objects that each of them sends
	variantLabel = "eirinixtest.example/variant"
)

// answer returns the parts that must be the same for equal requests: verdict, object, warnings and audit annotations.
func (r *Result) answer() string {
	var b strings.Builder
	switch {
	case r.Denial != nil:
		fmt.Fprintf(&b, "# denied with %d %s: %s\n", r.Denial.Code, r.Denial.Reason, r.Denial.Message)
	case !r.Allowed:
		b.WriteString("# failed\n") // without the message, which can hold times and addresses
	}
	for _, w := range r.Warnings {
		fmt.Fprintf(&b, "# warning: %s\n", w)
	}
	for _, key := range slices.Sorted(maps.Keys(r.AuditAnnotations)) {
		fmt.Fprintf(&b, "# audit: %s=%s\n", key, r.AuditAnnotations[key])
	}
	return b.String() + r.after().YAML()
}

func (h *Harness) deterministic(object any, options []RequestOption) error {
	defer h.log.mute()()
	requests, err := h.requests(object, options)
	if err != nil {
		return err
	}
	firsts := make([]*Result, len(requests))
	compare := func(i int, when string) error {
		result, err := h.send(requests[i])
		if err != nil {
			return fmt.Errorf("eirinixtest: %w", err)
		}
		if firsts[i] == nil {
			firsts[i] = result
			return nil
		}
		if diff := diff.Unified("first", firsts[i].answer(), when, result.answer()); diff != "" {
			return &violation{
				property: deterministic, what: fmt.Sprintf("the same %s was answered differently %s (%s)", requests[i].Operation, when, stepsOf(result)), proof: diff,
				remedy: "do not go through maps in their own order where that shows in the result (sort the keys), and put neither random values nor the time into objects; what must be unique can be derived from the object's name, namespace or UID.",
			}
		}
		return nil
	}
	for i := range requests {
		for range repetitions {
			if err := compare(i, "a moment later"); err != nil {
				return err
			}
		}
	}
	awaitNextSecond()
	for i := range requests {
		if err := compare(i, "a second later"); err != nil {
			return err
		}
	}
	return nil
}

// awaitNextSecond waits until the next second. Times in objects have no fractions of one.
func awaitNextSecond() {
	next := time.Now().Truncate(time.Second).Add(time.Second)
	timer := time.NewTimer(time.Until(next) + time.Millisecond)
	defer timer.Stop()
	<-timer.C
}

func (h *Harness) raceFree(object any, options []RequestOption) error {
	defer h.log.mute()()
	requests, err := h.requests(object, options)
	if err != nil {
		return err
	}
	for _, r := range requests {
		if err := h.raceFreeFor(r); err != nil {
			return err
		}
	}
	return nil
}

func (h *Harness) raceFreeFor(r Request) error {
	all, alone := make([]Request, variants), make([]*Result, variants)
	for i := range all {
		var err error
		if all[i], err = h.variant(r, i); err != nil {
			return err
		}
		if alone[i], err = h.send(all[i]); err != nil {
			return fmt.Errorf("eirinixtest: %w", err)
		}
	}
	together := make([]*Result, variants*parallel)
	errs := make([]error, parallel)
	var senders sync.WaitGroup
	start := make(chan struct{})
	for sender := range parallel {
		senders.Go(func() {
			<-start
			for k := range variants {
				i := (k + sender*variants/parallel) % variants // different objects at the same time
				if together[sender*variants+i], errs[sender] = h.send(all[i]); errs[sender] != nil {
					return
				}
			}
		})
	}
	close(start)
	senders.Wait()
	for _, err := range errs {
		if err != nil {
			return fmt.Errorf("eirinixtest: %w", err)
		}
	}
	for i, result := range together {
		if diff := diff.Unified("alone", alone[i%variants].answer(), "beside others", result.answer()); diff != "" {
			return &violation{
				property: raceFree, what: fmt.Sprintf("concurrent requests influenced each other (%s)", stepsOf(result)), proof: diff,
				remedy: "a handler runs on many goroutines: keep what belongs to one request in local variables and not in fields or package variables, and guard shared data with a mutex. go test -race finds the place.",
			}
		}
	}
	return nil
}

// variant returns the request for another object, with a name and an annotation that depend on i.
func (h *Harness) variant(r Request, i int) (Request, error) {
	change := func(object any) (any, error) {
		d, err := h.server.Read(object)
		if err != nil || d.Absent() {
			return nil, err
		}
		if d.Unstructured().Object["metadata"] == nil {
			return d, nil
		}
		return d.With(func(u *unstructured.Unstructured) {
			if u.GetName() != "" {
				u.SetName(fmt.Sprintf("%s-%d", u.GetName(), i))
			}
			annotations := u.GetAnnotations()
			if annotations == nil {
				annotations = map[string]string{}
			}
			annotations[variantLabel] = fmt.Sprint(i)
			u.SetAnnotations(annotations)
		}), nil
	}
	var err error
	if r.Object, err = change(r.Object); err == nil {
		r.OldObject, err = change(r.OldObject)
	}
	if err != nil {
		return r, fmt.Errorf("eirinixtest: %w", err)
	}
	return r, nil
}
