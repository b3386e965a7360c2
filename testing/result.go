package eirinixtest

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"gomodules.xyz/jsonpatch/v2"
	admissionv1 "k8s.io/api/admission/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"code.cloudfoundry.org/eirinix/internal/apiserver"
	"code.cloudfoundry.org/eirinix/internal/diff"
)

// Result is what became of a request. It is the caller's own, and does not change.
type Result struct {
	// Allowed tells that the object goes on its way.
	Allowed bool

	// Err is what the user is told where not: an API status, in the API server's words.
	Err error

	// Denial is the refusal by a step. It is nil where the object was let in, and where Err is a failure instead.
	Denial *Denial

	// Object is what the mutating webhooks have made of the object, as far as they came: of the scheme's Go type, or
	// unstructured where there is none. It is nil for DELETE. JSON has what the type does not know, too.
	Object runtime.Object
	JSON   json.RawMessage

	// Warnings are what the user sees on the terminal.
	Warnings []string

	// AuditAnnotations are those of the webhooks, by webhook name, slash and key, as in the API server's audit log.
	AuditAnnotations map[string]string

	// Patch is every operation of every call, in order: what the webhooks have done to the object.
	Patch []jsonpatch.Operation

	// Calls are the calls of webhooks in the order in which they began, and Steps the steps that ran in them.
	Calls []WebhookCall
	Steps []StepRun

	outcome *apiserver.Outcome
	h       *Harness
}

// Denial is a refusal as the step meant it.
type Denial struct {
	Webhook string // the name of the entry
	Code    int32
	Reason  metav1.StatusReason
	Message string // without what the API server puts in front
	Details *metav1.StatusDetails
}

// WebhookCall is one call of one webhook.
type WebhookCall struct {
	Configuration, Webhook string
	Round                  int // 0, or 1 for a reinvocation
	Request                *admissionv1.AdmissionRequest
	Response               *admissionv1.AdmissionResponse // nil where Err is a failure
	Err                    error                          // why the call failed, or the denial
	Ignored                bool                           // it failed, and failurePolicy Ignore let that pass
	Changed                bool                           // it changed the object
	Took                   time.Duration
}

// StepRun is one run of one step. Where a chain of steps shares a call, each has a run of its own.
type StepRun struct {
	Step    string // its name
	Webhook string
	Round   int
	Took    time.Duration
	Err     error  // what it returned: a denial or a failure
	Panic   any    // what it panicked with
	Stack   []byte // where
	Running bool   // it was still running when the answer came
}

// newResult makes the outcome of a request public.
func (h *Harness) newResult(o *apiserver.Outcome) *Result {
	r := &Result{
		Allowed: o.Allowed(), Err: o.Err, Denial: (*Denial)(o.Denial), Object: o.Object, JSON: o.After.Raw, Warnings: o.Warnings,
		AuditAnnotations: o.AuditAnnotations, Patch: o.Patch, outcome: o, h: h,
	}
	for _, c := range o.Calls {
		r.Calls = append(r.Calls, WebhookCall(c))
	}
	for _, s := range o.Steps {
		r.Steps = append(r.Steps, StepRun(s))
	}
	return r
}

// As gives the result's object as a Go value. The test fails where the request was not allowed, or where the object
// is no T.
func As[T runtime.Object](r *Result) T {
	r.h.t.Helper()
	var none T
	if !r.Allowed {
		r.h.t.Fatalf("eirinixtest: there is no %T, because the request was not allowed: %v", none, r.Err)
		return none
	}
	object, ok := r.Object.(T)
	if !ok {
		r.h.t.Fatalf("eirinixtest: the object is a %T, not a %T", r.Object, none)
		return none
	}
	return object
}

// Diff is what has become of the object that was sent, as a diff of YAML; empty where nothing has.
func (r *Result) Diff() string {
	return diff.Unified("sent", r.before().YAML(), "admitted", r.after().YAML())
}

func (r *Result) before() apiserver.Document { return r.outcome.Before }
func (r *Result) after() apiserver.Document  { return r.outcome.After }

// Ran tells whether a step ran. Steps that share a call are told apart.
func (r *Result) Ran(step string) bool {
	for _, s := range r.Steps {
		if s.Step == step {
			return true
		}
	}
	return false
}

// Failure is why the request was not allowed although no step refused it, or nil.
func (r *Result) Failure() error {
	if r.Allowed || r.Denial != nil {
		return nil
	}
	return r.Err
}

// String is the result for messages of tests.
func (r *Result) String() string {
	var b strings.Builder
	switch {
	case r.Denial != nil:
		fmt.Fprintf(&b, "denied with %d %s: %s\n", r.Denial.Code, r.Denial.Reason, r.Denial.Message)
	case !r.Allowed:
		fmt.Fprintf(&b, "failed: %v\n", r.Err)
	case len(r.Calls) == 0:
		b.WriteString("allowed, and no webhook was called\n")
		for _, p := range r.outcome.Passed {
			fmt.Fprintf(&b, "not called: %s, because %s\n", p.Webhook, p.Why)
		}
	default:
		b.WriteString("allowed\n")
	}
	for _, c := range r.Calls {
		if c.Ignored {
			fmt.Fprintf(&b, "ignored: %v\n", c.Err)
		}
	}
	for _, w := range r.Warnings {
		fmt.Fprintf(&b, "warning: %s\n", w)
	}
	for _, key := range slices.Sorted(maps.Keys(r.AuditAnnotations)) {
		fmt.Fprintf(&b, "audit: %s=%s\n", key, r.AuditAnnotations[key])
	}
	for _, s := range r.Steps {
		fmt.Fprintf(&b, "ran: %s%s\n", s.Step, s.outcome())
	}
	if d := r.Diff(); d != "" {
		b.WriteString(d)
	} else if r.Allowed {
		b.WriteString("the object is unchanged\n")
	}
	return b.String()
}

func (s StepRun) outcome() string {
	switch {
	case s.Panic != nil:
		return fmt.Sprintf(", which panicked: %v", s.Panic)
	case s.Running:
		return ", which was still running when the answer came"
	case s.Err != nil:
		return ": " + s.Err.Error()
	}
	return ""
}
