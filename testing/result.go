package eirinixtest

// This file defines Result, the outcome of a request to a Harness.

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

// Result is the outcome of a request. It belongs to the caller, and the Harness does not change it.
type Result struct {
	// Allowed reports whether the request was admitted.
	Allowed bool

	// Err is the error that the user sees if the request was not admitted: an API status, in the API server's words.
	Err error

	// Denial is the refusal by a step. It is nil if the request was admitted, and if Err is a failure instead.
	Denial *Denial

	// Object is the object as the mutating webhooks have left it, as far as they were called. It is of the scheme's Go
	// type, or unstructured if the scheme has none. It is nil for DELETE. JSON also has the fields that the type does
	// not know.
	Object runtime.Object
	JSON   json.RawMessage

	// Warnings are the warnings that the user sees in the terminal.
	Warnings []string

	// AuditAnnotations are the webhooks' audit annotations. As in the API server's audit log, a key is the webhook's
	// name, a slash and the annotation's key.
	AuditAnnotations map[string]string

	// Patch holds the operations of all calls, in order: all changes that the webhooks have made to the object.
	Patch []jsonpatch.Operation

	// Calls are the webhook calls in the order in which they began. Steps are the steps that ran in them.
	Calls []WebhookCall
	Steps []StepRun

	outcome *apiserver.Outcome
	h       *Harness
}

// Denial is a refusal as the step returned it.
type Denial struct {
	Webhook string // the name of the entry in the webhook configuration
	Code    int32
	Reason  metav1.StatusReason
	Message string // without the API server's prefix
	Details *metav1.StatusDetails
}

// WebhookCall is one call of one webhook.
type WebhookCall struct {
	Configuration, Webhook string
	Round                  int // 0, or 1 for a reinvocation
	Request                *admissionv1.AdmissionRequest
	Response               *admissionv1.AdmissionResponse // nil if Err is a failure
	Err                    error                          // the failure of the call, or the denial
	Ignored                bool                           // it failed, and failurePolicy Ignore let the request pass
	Changed                bool                           // it changed the object
	Took                   time.Duration
}

// StepRun is one run of one step. If the steps of a chain share a call, each has its own run.
type StepRun struct {
	Step    string // its name
	Webhook string
	Round   int
	Took    time.Duration
	Err     error  // the returned error: a denial or a failure
	Panic   any    // the value of the panic
	Stack   []byte // the stack of the panic
	Running bool   // it was still running when the answer was sent
}

// newResult converts the outcome of a request into a Result.
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

// As returns the result's object as a Go value. The test fails if the request was not allowed, or if the object is not
// a T.
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

// Diff returns the difference between the sent and the admitted object, as a diff of YAML. It is empty if the object
// is unchanged.
func (r *Result) Diff() string {
	return diff.Unified("sent", r.before().YAML(), "admitted", r.after().YAML())
}

func (r *Result) before() apiserver.Document { return r.outcome.Before }
func (r *Result) after() apiserver.Document  { return r.outcome.After }

// Ran reports whether a step ran. Each step is reported separately, also if it shares a call with other steps.
func (r *Result) Ran(step string) bool {
	for _, s := range r.Steps {
		if s.Step == step {
			return true
		}
	}
	return false
}

// Failure returns the reason why the request was not allowed although no step refused it, or nil.
func (r *Result) Failure() error {
	if r.Allowed || r.Denial != nil {
		return nil
	}
	return r.Err
}

// String formats the result for test messages.
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
