package apiserver

import (
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"gomodules.xyz/jsonpatch/v2"
	admissionv1 "k8s.io/api/admission/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
)

// Outcome is what became of a request. It is the caller's own, and does not change.
type Outcome struct {
	Err    error   // what the user is told where the object does not go on its way: an API status
	Denial *Denial // the refusal by a step; nil where Err is a failure instead

	Before, After Document       // the object as it was sent, and as the mutating webhooks have left it
	Object        runtime.Object // After, of the scheme's Go type or unstructured; nil for none

	Warnings         []string          // as they reach the user's terminal
	AuditAnnotations map[string]string // by webhook name, slash and key
	Patch            []jsonpatch.Operation
	Calls            []WebhookCall // in the order in which they began
	Steps            []StepRun     // those that ran in them
	Passed           []Pass        // webhooks that were not called, once for each time they were looked at
	Trace            *Trace
}

// Allowed tells that the object goes on its way.
func (o *Outcome) Allowed() bool { return o.Err == nil }

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

// Pass is a webhook that was not called, and why not.
type Pass struct {
	Webhook, Why string
	Rules        bool // it is not there for such requests at all
	Namespace    bool // its namespaceSelector leaves the namespace out
}

// outcome puts together what the request came to.
func (a *admissionRun) outcome(refused error) (*Outcome, error) {
	o := &Outcome{
		Err: refused, Warnings: a.says.shown(), AuditAnnotations: a.says.audit,
		Calls: a.calls, Steps: a.trace.snapshot(), Passed: a.passed, Trace: a.trace, Before: a.object, After: a.current,
	}
	for _, c := range a.calls {
		if c.Response != nil && c.Err == nil {
			operations, err := operationsOf(c.Response.Patch)
			if err != nil {
				return nil, err
			}
			o.Patch = append(o.Patch, operations...)
		}
	}
	if rejected, ok := errors.AsType[*rejection](refused); ok {
		o.Err, o.Denial = rejected.StatusError, &rejected.meant
	}
	if a.current.Absent() {
		return o, nil
	}
	var err error
	if o.Object, err = a.current.In(a.s.Scheme); err != nil {
		return nil, fmt.Errorf("what the webhooks have made of the object: %w", err)
	}
	return o, nil
}

func operationsOf(patch []byte) ([]jsonpatch.Operation, error) {
	if len(patch) == 0 {
		return nil, nil
	}
	var operations []jsonpatch.Operation
	if err := json.Unmarshal(patch, &operations); err != nil {
		return nil, fmt.Errorf("the patch in a response cannot be read: %w", err)
	}
	return operations, nil
}
