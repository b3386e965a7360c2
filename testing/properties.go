package eirinixtest

import (
	"errors"
	"fmt"
	"strings"

	admissionv1 "k8s.io/api/admission/v1"
)

// A property is a promise that every admission handler makes, known or not. Each Check method tests one, and fails
// the test with what went wrong, the proof, and what to change in the handler.
//
// The object they take is an example: one that the handler changes, best with everything in it that the handler
// looks at. It is sent as CREATE, UPDATE and DELETE, as far as steps are registered for these. For other requests,
// give a Request instead. A check in which no step ran fails, as it would prove nothing.

// violation is a broken promise.
type violation struct {
	property string
	what     string // happened, in a sentence
	proof    string // shown below; may be empty
	remedy   string
}

func (v *violation) Error() string {
	text := fmt.Sprintf("eirinixtest: not %s: %s", v.property, v.what)
	if v.proof != "" {
		text += "\n" + indented(v.proof)
	}
	return text + "\nWhat to change: " + v.remedy
}

// CheckProperties is all the checks in one call: CheckIdempotent, CheckLossless, CheckDeterministic, CheckDeadline,
// CheckDryRun, CheckRaceFree and CheckTotal. It goes on after one has failed, and takes some seconds;
// of handlers that are not deterministic it does not look for races.
func (h *Harness) CheckProperties(object any, options ...RequestOption) {
	h.t.Helper()
	var broken []string
	check := func(property func(any, []RequestOption) error) (kept bool) {
		err := property(object, options)
		if err != nil {
			broken = append(broken, err.Error())
		}
		return err == nil
	}
	check(h.idempotent)
	check(h.lossless)
	if check(h.deterministic) { // else what is different at the same time is no race
		check(h.raceFree)
	}
	check(h.deadline)
	check(h.dryRun)
	check(h.total)
	if len(broken) > 0 {
		h.t.Fatalf("%s", strings.Join(broken, "\n\n"))
	}
}

// CheckIdempotent fails where a handler that sees its own work again changes it once more: run twice, run again after
// another webhook has changed the object (reinvocation), run for an update that changes nothing. It also fails where a
// handler has the API server refuse an update of an object that is older than the handler's registration.
func (h *Harness) CheckIdempotent(object any, options ...RequestOption) {
	h.t.Helper()
	h.report(h.idempotent(object, options))
}

// CheckLossless fails where a handler loses fields that its Go types do not know: a field of a newer Kubernetes, or of
// a custom resource; or where it loses labels and annotations of others. They are planted in the object, unknown fields in
// every part of it, and looked for afterwards.
func (h *Harness) CheckLossless(object any, options ...RequestOption) {
	h.t.Helper()
	h.report(h.lossless(object, options))
}

// CheckDeterministic fails where the same request is answered differently: now and again, and a second later.
func (h *Harness) CheckDeterministic(object any, options ...RequestOption) {
	h.t.Helper()
	h.report(h.deterministic(object, options))
}

// CheckDeadline fails where a handler goes on when its context has ended. Requests get a timeout of a fifth of a
// second, and meanwhile the API behind the Manager's connection answers nothing.
func (h *Harness) CheckDeadline(object any, options ...RequestOption) {
	h.t.Helper()
	h.report(h.deadline(object, options))
}

// CheckDryRun fails where a handler writes to the API in a dry run, or writes to it at all while its SideEffects say
// None. It sees what goes through the Manager's connection and through clients of Harness.API.
func (h *Harness) CheckDryRun(object any, options ...RequestOption) {
	h.t.Helper()
	h.report(h.dryRun(object, options))
}

// CheckRaceFree fails where requests at the same time get into each other's way: it compares what becomes of many
// objects at once with what becomes of each alone. Run it with go test -race, which sees more.
func (h *Harness) CheckRaceFree(object any, options ...RequestOption) {
	h.t.Helper()
	h.report(h.raceFree(object, options))
}

// CheckTotal fails where a handler panics: on the object with any part left out, and on many random objects of
// its kind, which are the same each time. It keeps name, namespace and labels.
func (h *Harness) CheckTotal(object any, options ...RequestOption) {
	h.t.Helper()
	h.report(h.total(object, options))
}

func (h *Harness) report(err error) {
	h.t.Helper()
	if err != nil {
		h.t.Fatalf("%v", err)
	}
}

// requests makes requests of an example: those for which steps run.
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

var errNothingRan = errors.New("eirinixtest: no step ran for this object, so that nothing was checked: give an object that the rules, selectors and conditions of a step match")

func (h *Harness) candidates(object any, options []RequestOption) []Request {
	all := []Request{
		{Operation: admissionv1.Create, Object: object},
		{Operation: admissionv1.Update, Object: object, OldObject: object},
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

// admitted sends a request that must be allowed for anything to be checked.
func (h *Harness) admitted(property string, r Request) (*Result, error) {
	result, err := h.send(r)
	if err != nil {
		return nil, fmt.Errorf("eirinixtest: %w", err)
	}
	if !result.Allowed {
		return nil, fmt.Errorf("eirinixtest: whether it is %s cannot be told from an object that is not allowed; give another one:\n%s", property, indented(result.String()))
	}
	return result, nil
}
