package world

// This file reckons what the steps about boxes must do in one call, as their documentation says, and compares the answer.

import (
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"
	"time"

	admissionv1 "k8s.io/api/admission/v1"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
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
	for _, o := range []*unstructured.Unstructured{was, is} {
		o.SetResourceVersion("")
		o.SetManagedFields(nil)
	}
	return reflect.DeepEqual(was.Object, is.Object)
}

// reckoning is the result that a call must have.
type reckoning struct {
	object   *unstructured.Unstructured
	said     []string        // the warnings, or their beginnings
	would    map[string]int  // the reports in the audit log, by their beginnings
	denied   []string        // steps
	statuses []metav1.Status // of the denials: the codes and the reasons
	failed   map[string]bool // steps whose failure is that of the call
	perhaps  bool            // a step takes all the time of the call, so that the steps behind it may not run
	attempts int
	ignored  int
	touched  bool // a step has changed the object
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
		lenient = lenient && s.FailurePolicy != admissionregistrationv1.Fail
	}
	ran, seen := make([]bool, len(of)), make([]*unstructured.Unstructured, len(of))
	for round := range rounds {
		for i, s := range of {
			if s.Mode == eirinix.ModeShadow || !s.wants(a, r.object, settled) || round > 0 && (!ran[i] || reflect.DeepEqual(seen[i], r.object)) {
				continue
			}
			r.perhaps = r.perhaps || round > 0 && seen[i] != nil && r.object != nil && difference("", seen[i].Object, r.object.Object) == "" // a null may be a change
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
	saw, to := s.saw(sees), s.isTo(sees, deny, invalid, lacks, badRequest, elsewhereForbidden, fail, panics, hang)
	misfit := ill && s.form != treeForm
	if to == "" && s.isUnfit(sees) {
		to = fail
	}
	switch {
	case misfit && s.fails():
		to, saw = deny, ""
	case misfit:
		to = fail
	case !s.judges && (s.form == byHandForm || s.addsMore()):
		r.object = s.changed(r.object)
	case !s.judges && s.form != silentForm:
		s.changes(r.object)
	case !s.judges && to == "":
		saw = ""
	}
	failed := slices.Contains([]string{elsewhereForbidden, fail, panics, hang}, to)
	denies := to != "" && !failed
	excused := denies && !misfit && s.excuses(a, to)
	denies = denies && !excused
	changed := !reflect.DeepEqual(before, r.object)
	r.perhaps = r.perhaps || changed && watches && difference("", before.Object, r.object.Object) == "" // it may tell of that, or not
	if watches || failed || denies {
		r.object = before
	} else {
		r.touched = r.touched || changed
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
	if mode != eirinix.ModeAudit && excused {
		r.said = append(r.said, "it still violates, as before this change: ")
	}
	would := ""
	switch {
	case denies && !watches:
		r.denied, r.statuses = append(r.denied, s.name), append(r.statuses, s.status(to, misfit))
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

// status is the code and the reason with which a step denies.
func (s boxStep) status(to string, misfit bool) metav1.Status {
	switch {
	case misfit:
		return refusals[badRequest]
	case s.form >= patchedForm:
		return refusals[deny]
	}
	return refusals[to]
}

// excuses reports whether a Rule admits an update although it refuses the new object: the old one violated the same, and the update
// leaves those things alone.
func (s boxStep) excuses(a ask, to string) bool {
	if !s.rule || a.operation != admissionv1.Update {
		return false
	}
	was := s.isTo(a.old, deny, invalid, lacks, badRequest)
	if to == lacks {
		before, had := a.old.GetLabels()[ownerLabel]
		now, has := a.object.GetLabels()[ownerLabel]
		return was == lacks && had == has && before == now
	}
	rest := func(o *unstructured.Unstructured) any {
		members := maps.Clone(o.Object)
		delete(members, "metadata")
		delete(members, "status")
		return jsonOf(members)
	}
	plain := func(of string) bool { return of == deny || of == badRequest }
	return plain(was) && plain(to) && reflect.DeepEqual(rest(a.old), rest(a.object))
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
		w.look() // the last replica may have gone meanwhile
		shares := slices.ContainsFunc(of, func(b boxStep) bool { return one.object != nil && b.order(one.object) == dawdles }) &&
			slices.ContainsFunc(w.processes, func(p *process) bool { return p.generation != w.generation }) // with a step that another version calls by the same webhook
		if len(want.failed) == 0 && !want.perhaps && !shares && w.reachable(began) && !w.troubledSince(began, rough, slow, spoiled, evicted, apart, unread) {
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
	if len(want.denied) > 0 && (r.Result == nil || r.Result.Code != want.statuses[0].Code || r.Result.Reason != want.statuses[0].Reason) {
		is("says %v, and was to say %d %s", r.Result, want.statuses[0].Code, want.statuses[0].Reason)
		return
	}
	if ill && len(want.denied) > 0 && !strings.Contains(r.Result.Message, "spec.containers[0].image cannot be read: ") && !strings.Contains(r.Result.Message, " denies") {
		is("does not say where the value is that cannot be read: %v", r.Result)
	}
	for _, step := range want.denied {
		if r.Result == nil || !ill && !strings.Contains(r.Result.Message, step+" denies") || len(of) > 1 && !strings.Contains(r.Result.Message, step+": ") {
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
	if !w.excused(spoiled, began) {
		if wrong := registeredWell(one.hook, of); wrong != "" {
			is("is one of a webhook that %s", wrong)
		}
		if i := slices.IndexFunc(of, func(s boxStep) bool { return s.leavesOut(one.ask) }); i >= 0 {
			is("is one to a call that step %s leaves out", of[i].name)
		}
	}
	w.tasks.Go(func() { w.shadowsWell(one, of, want.object, want.denied, ill, settled) })
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
	if differs := difference("", plain(got), plain(want.object)); differs != "" {
		is("makes another object of it than it was to make: %s (patch: %.2000s)", differs, r.Patch)
	}
	if len(r.Patch) > 0 && !want.touched {
		is("has a patch, and no step changes it: %s", r.Patch)
	}
	for _, text := range append(slices.Collect(maps.Values(r.AuditAnnotations)), r.Warnings...) {
		if told, _, _ := strings.Cut(text, " this: "); strings.HasPrefix(told, "step ") && strings.Contains(text, " of "+boxed) {
			is("tells a value: %s", text)
		}
	}
	if must := slices.ContainsFunc(of, func(s boxStep) bool { return s.fails() }); one.ignores() == must && !w.excused(spoiled, began) {
		is("is one of a webhook whose failures are ignored (%t), and a step has Fail (%t)", one.ignores(), must)
	}
	if one.operation != admissionv1.Connect && !settled && !w.excused(spoiled, began) && !slices.ContainsFunc(of, func(s boxStep) bool { return s.wants(one.ask, one.object, settled) }) {
		is("is one that no step wants")
	}
}

// registeredWell returns how a webhook differs from the declarations of its steps, or "".
func registeredWell(h hook, of []boxStep) string {
	var own, share time.Duration
	for _, s := range of {
		if own += s.Timeout; s.Timeout == 0 {
			share = 5 * time.Second
		}
		if want := cmp.Or(s.MatchPolicy, admissionregistrationv1.Equivalent); h.MatchPolicy == nil || *h.MatchPolicy != want {
			return fmt.Sprintf("has another MatchPolicy than %s, which is that of step %s", want, s.name)
		}
		if want := cmp.Or(s.SideEffects, admissionregistrationv1.SideEffectClassNone); h.SideEffects == nil || *h.SideEffects != want {
			return fmt.Sprintf("has other SideEffects than %s, which are those of step %s", want, s.name)
		}
	}
	for _, s := range of {
		if want := cmp.Or(s.Reinvoke, admissionregistrationv1.NeverReinvocationPolicy); h.mutating && h.reinvokes != want {
			return fmt.Sprintf("has another ReinvocationPolicy than %s, which is that of step %s", want, s.name)
		}
	}
	if h.TimeoutSeconds == nil || time.Duration(*h.TimeoutSeconds)*time.Second != own+share {
		return fmt.Sprintf("has another timeout than %s, which its steps have together", own+share)
	}
	return ""
}

// isNone reports whether a value is null, or an object without members: a change that several steps of a call undo leaves either.
func isNone(v any) bool {
	members, ok := v.(map[string]any)
	return v == nil || ok && len(members) == 0
}

// difference returns the first difference of two trees, or "".
func difference(at string, is, want any) string {
	switch was := want.(type) {
	case map[string]any:
		now, ok := is.(map[string]any)
		if !ok {
			break
		}
		all := maps.Clone(was)
		maps.Copy(all, now)
		for _, name := range slices.Sorted(maps.Keys(all)) {
			a, b := now[name], was[name]
			if isNone(a) && isNone(b) {
				continue
			}
			if (a == nil) != (b == nil) {
				return fmt.Sprintf("%s/%s is %.300s, and was to be %.300s", at, name, fmt.Sprint(a), fmt.Sprint(b))
			}
			if text := difference(at+"/"+name, a, b); text != "" {
				return text
			}
		}
		return ""
	case []any:
		now, ok := is.([]any)
		if !ok || len(now) != len(was) {
			break
		}
		for i := range was {
			if text := difference(fmt.Sprint(at, "/", i), now[i], was[i]); text != "" {
				return text
			}
		}
		return ""
	}
	if reflect.DeepEqual(is, want) {
		return ""
	}
	return fmt.Sprintf("%s is %.300s, and was to be %.300s", at, fmt.Sprint(is), fmt.Sprint(want))
}

// jsonOf is a value as JSON has it.
func jsonOf(v any) (tree any) {
	text, err := json.Marshal(v)
	if err == nil {
		err = json.Unmarshal(text, &tree)
	}
	if err != nil {
		return err.Error()
	}
	return tree
}
