package eirinixtest

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	admissionv1 "k8s.io/api/admission/v1"
)

// This file defines the Check methods. Each tests a property that every admission handler must have. A failure reports
// the violation, the evidence, and the change that the handler needs.
//
// The object that they take is an example. The handler should change it, and it should contain every field that the
// handler reads. It is sent as CREATE, UPDATE and DELETE if steps are registered for these. For other requests, pass a
// Request instead. A check fails if no step ran, because it would prove nothing.

// violation is the error for a property that does not hold.
type violation struct {
	property string
	what     string // the violation, in a sentence
	proof    string // evidence shown below; can be empty
	remedy   string
}

func (v *violation) Error() string {
	text := fmt.Sprintf("eirinixtest: not %s: %s", v.property, v.what)
	if v.proof != "" {
		text += "\n" + indented(v.proof)
	}
	return text + "\nWhat to change: " + v.remedy
}

// CheckProperties runs all checks: CheckDeadline, CheckIdempotent, CheckLossless, CheckDeterministic, CheckRaceFree,
// CheckDryRun, CheckTotal, and CheckReads for steps with Settings.Reads. If a step refuses the creation of the object, it
// runs CheckUpdatable in place of CheckIdempotent and CheckLossless. It takes a second or two, and continues after a
// failed check. Each failure is reported with t.Errorf when it is found. In ginkgo, whose Errorf ends the spec, it is
// logged then, and the spec fails at the end.
//
// A check that would prove nothing is skipped, and the log says why: CheckTotal and CheckReads of a step that is late, and
// CheckRaceFree of one that is not deterministic. HarnessOptions.CheckTime bounds the whole; if that is used up, the test
// fails with the names of the properties that were not checked, or not in full.
func (h *Harness) CheckProperties(object any, options ...RequestOption) {
	h.t.Helper()
	limited, end := h.limited()
	defer end()
	var failures, unchecked []string
	nothingRan := false
	fail := func(failure string) {
		h.t.Helper()
		if failures = append(failures, failure); endsSpec(h.t) {
			h.t.Logf("%s", failure)
			return
		}
		h.t.Errorf("%s", failure)
	}
	check := func(property string, holds propertyCheck) (kept bool) {
		h.t.Helper()
		began := limited.ctx.Err() == nil
		switch err := holds(limited, object, options); {
		case errors.Is(err, errTimeUsed) && began:
			unchecked = append(unchecked, property+" (in part)")
		case errors.Is(err, errTimeUsed):
			unchecked = append(unchecked, property)
		case errors.Is(err, errNothingRan):
			nothingRan = true
		case err != nil && !errors.Is(err, errNothingRead):
			fail(err.Error())
			return false
		}
		return true
	}
	inTime := check(onTime, (*Harness).deadline)
	if nothingRan {
		h.t.Fatalf("%v", errNothingRan)
		return
	}
	if denial, err := limited.violates(object, options); err == nil && denial != nil {
		h.t.Logf("eirinixtest: not checked: %s, %s. A step refuses the object, so it is an example of one that is older than the rule.", idempotent, lossless)
		check(updatable, (*Harness).updatable)
	} else {
		check(idempotent, (*Harness).idempotent)
		check(lossless, (*Harness).lossless)
	}
	if check(deterministic, (*Harness).deterministic) {
		check(raceFree, (*Harness).raceFree)
	} else {
		h.t.Logf("eirinixtest: not checked: %s. The step is not %s, so a difference between concurrent requests proves nothing.", raceFree, deterministic)
	}
	check(dryRunProof, (*Harness).dryRun)
	if inTime {
		check(total, (*Harness).total)
		check(prepared, (*Harness).reads)
	} else {
		h.t.Logf("eirinixtest: not checked: %s, %s. The step is not %s, and these checks call it hundreds of times.", total, prepared, onTime)
	}
	if len(unchecked) > 0 {
		fail(h.timeUsed(unchecked...).Error())
	}
	if len(failures) > 0 && endsSpec(h.t) {
		h.t.Fatalf("%s", strings.Join(failures, "\n\n"))
	}
}

// endsSpec reports whether Errorf of a TB does not return, as in ginkgo.
func endsSpec(t TB) bool {
	_, ginkgo := t.(interface{ GinkgoRecover() })
	return ginkgo
}

// propertyCheck looks for a violation of a property.
type propertyCheck = func(h *Harness, object any, options []RequestOption) error

// defaultCheckTime is enough for a step that answers at once, on a machine that is twenty times as slow as ours.
const defaultCheckTime = 25 * time.Second

// errTimeUsed ends a check when its time is used up, or that of a call which it needs.
var errTimeUsed = errors.New("eirinixtest: the time is used up")

// limited returns a Harness that sends requests until HarnessOptions.CheckTime is used up.
func (h *Harness) limited() (limited *Harness, end context.CancelFunc) {
	c := *h
	c.ctx, end = context.WithTimeoutCause(h.ctx, cmp.Or(h.opts.CheckTime, defaultCheckTime), errTimeUsed)
	return &c, end
}

func (h *Harness) timeUsed(unchecked ...string) error {
	return fmt.Errorf("eirinixtest: not checked, because the answers came too late: %s. Let the step answer sooner, or raise HarnessOptions.CheckTime, which is %s",
		strings.Join(unchecked, ", "), cmp.Or(h.opts.CheckTime, defaultCheckTime))
}

// CheckIdempotent fails if a handler changes its own result when it sees it again. It runs the handler twice, runs it
// again after another webhook has changed the object (reinvocation), and runs it for an update of an annotation.
// The check also fails if the handler makes the API server refuse an update of an object from before the handler's
// registration.
func (h *Harness) CheckIdempotent(object any, options ...RequestOption) {
	h.t.Helper()
	h.check(idempotent, (*Harness).idempotent, object, options)
}

// CheckLossless fails if a handler loses fields that its Go types do not know, such as fields of a newer Kubernetes or
// of a custom resource. It also fails if the handler loses labels or annotations that others have set. The check adds
// unknown fields to every part of the object, and a label and an annotation, and compares them afterwards.
func (h *Harness) CheckLossless(object any, options ...RequestOption) {
	h.t.Helper()
	h.check(lossless, (*Harness).lossless, object, options)
}

// CheckDeterministic fails if equal requests get different answers, immediately or a second later.
func (h *Harness) CheckDeterministic(object any, options ...RequestOption) {
	h.t.Helper()
	h.check(deterministic, (*Harness).deterministic, object, options)
}

// CheckDeadline fails if a handler continues after its context has ended. Requests get a timeout of 200 ms, and
// meanwhile the API behind the Manager's connection does not answer.
func (h *Harness) CheckDeadline(object any, options ...RequestOption) {
	h.t.Helper()
	h.check(onTime, (*Harness).deadline, object, options)
}

// CheckDryRun fails if a handler writes to the API during a dry run. It also fails if a handler with SideEffects None
// writes at all. The check observes requests through the Manager's connection and through clients of Harness.API.
func (h *Harness) CheckDryRun(object any, options ...RequestOption) {
	h.t.Helper()
	h.check(dryRunProof, (*Harness).dryRun, object, options)
}

// CheckRaceFree fails if concurrent requests affect each other. It sends many objects concurrently and compares each
// result with the result of the same object alone. Run it with go test -race, which detects more.
func (h *Harness) CheckRaceFree(object any, options ...RequestOption) {
	h.t.Helper()
	h.check(raceFree, (*Harness).raceFree, object, options)
}

// CheckTotal fails if a handler panics, or does not end when its time is over. It sends the object with each part left out in turn, and many random objects
// of its kind, which are the same in every run. Name, namespace and labels are kept.
func (h *Harness) CheckTotal(object any, options ...RequestOption) {
	h.t.Helper()
	h.check(total, (*Harness).total, object, options)
}

// CheckReads fails if a step is not prepared for the loss of the objects that it declares in Settings.Reads. For each
// declaration it sends the object again while there is no such object, while the objects have never been listed, and
// while they are older than Read.MaxStale. A step must not panic then. While it lacks objects that are Required, it must
// deny or fail at CREATE, and in one request at least. The other objects stay as they are.
func (h *Harness) CheckReads(object any, options ...RequestOption) {
	h.t.Helper()
	h.check(prepared, (*Harness).reads, object, options)
}

// CheckUpdatable fails if a rule freezes an object that violates it, such as one that is older than the rule. The object is
// one whose creation a step refuses. The check sends what must remain possible: a label, an annotation, a write of its
// status, a write that changes nothing, as a storage migration sends it, and the removal of its finalizers while it is being
// deleted. If the denial names fields (Invalid), it changes another field of spec, too.
func (h *Harness) CheckUpdatable(violating any, options ...RequestOption) {
	h.t.Helper()
	h.check(updatable, (*Harness).updatable, violating, options)
}

func (h *Harness) check(property string, holds propertyCheck, object any, options []RequestOption) {
	h.t.Helper()
	limited, end := h.limited()
	defer end()
	err := holds(limited, object, options)
	if errors.Is(err, errTimeUsed) {
		err = h.timeUsed(property + " (in part)")
	}
	h.report(err)
}

func (h *Harness) report(err error) {
	h.t.Helper()
	if err != nil {
		h.t.Fatalf("%v", err)
	}
}

// requests turns an example into requests, and returns those for which steps run.
func (h *Harness) requests(object any, options []RequestOption) ([]Request, error) {
	var all []Request
	for _, r := range h.candidates(object, options) {
		result, err := h.send(r)
		if err != nil {
			return nil, fmt.Errorf("eirinixtest: %w", err)
		}
		if len(result.Steps) > 0 {
			all = append(all, r)
		}
	}
	if len(all) == 0 {
		return nil, errNothingRan
	}
	return all, nil
}

var errNothingRan = errors.New("eirinixtest: no step ran for this object, so that nothing was checked: give an object that the rules, selectors and conditions of a step match, or for a Subresource a Request")

func (h *Harness) candidates(object any, options []RequestOption) []Request {
	all := []Request{
		{Operation: admissionv1.Create, Object: object},
		{Operation: admissionv1.Update, Object: object, OldObject: h.earlier(object)},
		{Operation: admissionv1.Delete, OldObject: object},
	}
	if r, ok := object.(Request); ok {
		all = []Request{r}
	}
	for i := range all {
		for _, o := range options {
			o(&all[i])
		}
	}
	return all
}

// earlier returns the object before an update that changes an annotation, because steps do not see one that changes
// nothing. An object that cannot be read stays as it is, and the request fails.
func (h *Harness) earlier(object any) any {
	d, err := h.server.Read(object)
	if err != nil || d.Absent() {
		return object
	}
	return touched(d)
}

// admitted sends a request that must be allowed for the check to be meaningful.
func (h *Harness) admitted(property string, r Request) (*Result, error) {
	result, err := h.send(r)
	if err != nil {
		return nil, fmt.Errorf("eirinixtest: %w", err)
	}
	if slices.ContainsFunc(result.Steps, func(s StepRun) bool { return s.Running || errors.Is(s.Err, context.DeadlineExceeded) }) {
		return nil, errTimeUsed
	}
	if !result.Allowed {
		return nil, fmt.Errorf("eirinixtest: whether it is %s cannot be checked with an object that is not allowed; give another one:\n%s", property, indented(result.String()))
	}
	return result, nil
}
