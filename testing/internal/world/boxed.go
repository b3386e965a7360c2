package world

// This file reckons what the steps about boxes must do in one call, as their documentation says, and compares the answer.

import (
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"
	"time"

	admissionv1 "k8s.io/api/admission/v1"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"code.cloudfoundry.org/eirinix"
	"code.cloudfoundry.org/eirinix/internal/webhookconf"
)

// path is the path of a webhook.
func (h hook) path() string {
	_, at := webhookconf.TargetOf(h.ClientConfig)
	return at
}

// wants reports whether a step sees a request whose object is as earlier steps have left it. A request is settled if it leaves
// nothing to judge.
func (s boxStep) wants(a ask, now *unstructured.Unstructured, settled bool) bool {
	return slices.Contains(s.Operations, admissionregistrationv1.OperationType(a.operation)) && s.kind.Kind == a.kind.Kind && (s.EveryUpdate || !settled) &&
		(selectsObject(s.Objects, now) || selectsObject(s.Objects, a.old))
}

// settled reports whether an update changes nothing but the resourceVersion.
func (a ask) settled() bool {
	if a.operation != admissionv1.Update {
		return false
	}
	was, is := a.old.DeepCopy(), a.object.DeepCopy()
	was.SetResourceVersion("")
	is.SetResourceVersion("")
	return reflect.DeepEqual(was.Object, is.Object)
}

// reckoning is the result that a call must have.
type reckoning struct {
	object   *unstructured.Unstructured
	said     []string        // the warnings, or their beginnings
	would    map[string]int  // the reports in the audit log, by their beginnings
	denied   []string        // steps
	failed   map[string]bool // steps whose failure is that of the call
	perhaps  bool            // a step takes all the time of the call, so that the steps behind it may not run
	attempts int
	ignored  int
}

// reckons runs the steps of a call on a copy of its object.
func reckons(of []boxStep, a ask, ill, settled bool) reckoning {
	r := reckoning{would: map[string]int{}, failed: map[string]bool{}}
	if a.object != nil {
		r.object = a.object.DeepCopy()
	}
	rounds, lenient := 1, true
	for _, s := range of {
		if s.Reinvoke == admissionregistrationv1.IfNeededReinvocationPolicy {
			rounds = 2
		}
		lenient = lenient && !s.fails()
	}
	ran, seen := make([]bool, len(of)), make([]*unstructured.Unstructured, len(of))
	for round := range rounds {
		for i, s := range of {
			if !s.wants(a, r.object, settled) || round > 0 && (!ran[i] || reflect.DeepEqual(seen[i], r.object)) {
				continue
			}
			r.attempts++
			r.runs(s, a, ill)
			ran[i] = true
			if r.object != nil {
				seen[i] = r.object.DeepCopy()
			}
			if subject := r.subject(a); s.isTo(subject, hang) != "" && s.Timeout == 0 && !(ill && s.form != treeForm) {
				later := slices.ContainsFunc(of[i+1:], func(o boxStep) bool {
					return o.Timeout > 0 && slices.Contains(o.Operations, admissionregistrationv1.OperationType(a.operation)) && (o.EveryUpdate || !settled)
				})
				r.perhaps = r.perhaps || !later && (s.fails() || lenient)
			}
			if !s.judges && (len(r.denied) > 0 || len(r.failed) > 0) {
				return r
			}
		}
	}
	if lenient && r.attempts > 0 && r.ignored == r.attempts {
		r.failed[""] = true
	}
	return r
}

// subject is the object that a step looks at.
func (r *reckoning) subject(a ask) *unstructured.Unstructured {
	if r.object == nil {
		return a.old
	}
	return r.object
}

// runs runs a step.
func (r *reckoning) runs(s boxStep, a ask, ill bool) {
	before := r.object
	if before != nil {
		before = before.DeepCopy()
	}
	sees := r.subject(a)
	mode, watches := s.watches(a)
	saw, to := s.saw(sees), s.isTo(sees, deny, invalid, badRequest, elsewhereForbidden, fail, panics, hang)
	misfit := ill && s.form != treeForm
	switch {
	case misfit && s.fails():
		to, saw = deny, ""
	case misfit:
		to = fail
	case !s.judges && s.form == byHandForm:
		notes := maps.Clone(r.object.GetAnnotations())
		notes[marks+s.name] = fmt.Sprint(stamped(r.object) + 1)
		r.object.SetAnnotations(notes)
	case !s.judges && s.form != silentForm:
		s.changes(r.object)
	case !s.judges && to == "":
		saw = ""
	}
	failed := slices.Contains([]string{elsewhereForbidden, fail, panics, hang}, to)
	denies := to != "" && !failed
	changed := !reflect.DeepEqual(before, r.object)
	if watches || failed || denies {
		r.object = before
	}
	if failed {
		if s.fails() {
			r.failed[s.name] = true
		} else {
			r.ignored++
		}
		return
	}
	if mode != eirinix.ModeAudit && saw != "" {
		r.said = append(r.said, saw)
	}
	would := ""
	switch {
	case denies && !watches:
		r.denied = append(r.denied, s.name)
	case denies:
		would = "deny"
	case changed && watches:
		would = "change"
	}
	if would != "" && mode == eirinix.ModeWarn {
		r.said = append(r.said, fmt.Sprintf("step %q would %s this: ", s.name, would))
	} else if would != "" {
		r.would["would-"+would+" "+s.name] = 1 // a second run of a step tells it again
	}
}

// packedWell compares an answer about a box with the reckoning. The caller holds mu.
func (w *World) packedWell(s *apiServer, one said, of []boxStep, ill bool, began time.Time) {
	is := func(format string, args ...any) {
		var names []string
		for _, s := range of {
			names = append(names, fmt.Sprintf("%+v", s))
		}
		text, _ := one.subject().MarshalJSON()
		w.breaks("%s: the answer of %s to the %s of a box %s: %.1500s (steps: %s)", s.name, one.Name, one.operation, fmt.Sprintf(format, args...), text, strings.Join(names, "; "))
	}
	settled := one.settled()
	want := reckons(of, one.ask, ill, settled)
	switch {
	case one.failed != nil:
		if len(want.failed) == 0 && !want.perhaps && w.reachable(began) && !w.troubledSince(began, rough, slow, spoiled, evicted, apart, unread) {
			is("is a failure, and no step of it fails: %v", one.failed)
		}
		return
	case want.perhaps:
		return
	case len(want.failed) > 0 && (one.mutating || len(want.denied) == 0):
		is("is none, because %v fail", slices.Collect(maps.Keys(want.failed)))
		return
	}
	r := one.response
	if r.Allowed != (len(want.denied) == 0) {
		is("says allowed: %t, and is to be denied by %v (%v)", r.Allowed, want.denied, r.Result)
		return
	}
	for _, step := range want.denied {
		if r.Result == nil || !ill && !strings.Contains(r.Result.Message, step+" denies") {
			is("does not say that step %s denies it: %v", step, r.Result)
		}
	}
	if len(r.Warnings) != len(want.said) || !slices.EqualFunc(r.Warnings, want.said, strings.HasPrefix) {
		is("warns %q, and was to warn %q", r.Warnings, want.said)
	}
	would := map[string]int{}
	for key, value := range r.AuditAnnotations {
		if i := strings.LastIndex(key, "would-"); i >= 0 {
			step, _, _ := strings.Cut(value, ":")
			would[key[i:]+" "+step] = 1
		}
	}
	if !maps.Equal(would, want.would) {
		is("reports %v in the audit log, and was to report %v", would, want.would)
	}
	if !r.Allowed || one.object == nil {
		return
	}
	got := one.object
	if len(r.Patch) > 0 {
		var err error
		if got, err = patched(one.object, r.Patch); err != nil {
			is("has a patch that does not apply: %v", err)
			return
		}
	}
	plain := func(o *unstructured.Unstructured) map[string]any {
		text, err := o.MarshalJSON()
		again := &unstructured.Unstructured{}
		if err != nil || again.UnmarshalJSON(text) != nil {
			return nil
		}
		return again.Object
	}
	if got, want := plain(got), plain(want.object); !reflect.DeepEqual(got, want) {
		is("makes of it %.1500v, and was to make %.1500v (patch: %s)", got, want, r.Patch)
	}
	if must := slices.ContainsFunc(of, func(s boxStep) bool { return s.fails() }); one.ignores() == must && !w.excused(spoiled, began) {
		is("is one of a webhook whose failures are ignored (%t), and a step has Fail (%t)", one.ignores(), must)
	}
	if one.operation != admissionv1.Connect && !settled && !w.excused(spoiled, began) && !slices.ContainsFunc(of, func(s boxStep) bool { return s.wants(one.ask, one.object, settled) }) {
		is("is one that no step wants")
	}
}
