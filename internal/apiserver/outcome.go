package apiserver

// This file holds a request and its outcome, with the warnings and audit annotations of webhooks.

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"
	"unicode/utf8"

	"gomodules.xyz/jsonpatch/v2"
	admissionv1 "k8s.io/api/admission/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	utilnet "k8s.io/apimachinery/pkg/util/net"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apiserver/pkg/authentication/user"
)

// Outcome is the result of a request. The caller owns it, and it does not change.
type Outcome struct {
	Err    error   // the API status that the user gets if the request is refused; else nil
	Denial *Denial // the refusal by a step; nil if Err is a failure instead

	Before, After Document       // the object as it was sent, and as the mutating webhooks have left it
	Object        runtime.Object // After, of the scheme's Go type or unstructured; nil for none

	Warnings         []string          // as they reach the user's terminal
	AuditAnnotations map[string]string // by webhook name, slash and key
	Patch            []jsonpatch.Operation
	Calls            []WebhookCall // in the order in which they began
	Steps            []StepRun     // all that ran in these calls
	Passed           []Pass        // webhooks that were not called, once for each time they were considered
	Trace            *Trace
}

// Allowed reports whether the request is admitted.
func (o *Outcome) Allowed() bool { return o.Err == nil }

// Denial is a refusal in the words of the step.
type Denial struct {
	Webhook string // the name of the entry
	Code    int32
	Reason  metav1.StatusReason
	Message string // without the prefix that the API server adds
	Details *metav1.StatusDetails
}

// WebhookCall is one call of one webhook.
type WebhookCall struct {
	Configuration, Webhook string
	Round                  int // 0, or 1 for a reinvocation
	Request                *admissionv1.AdmissionRequest
	Response               *admissionv1.AdmissionResponse // nil if Err is a failure
	Err                    error                          // why the call failed, or the denial
	Ignored                bool                           // it failed, and failurePolicy Ignore excused the failure
	Changed                bool                           // it changed the object
	Took                   time.Duration
}

// StepRun is one run of one step. If a chain of steps shares a call, each step has its own run.
type StepRun struct {
	Step    string // its name
	Webhook string
	Round   int
	Took    time.Duration
	Err     error  // the error that it returned: a denial or a failure
	Panic   any    // the value of its panic
	Stack   []byte // the stack of its panic
	Running bool   // it was still running when the response came
}

// Pass is a webhook that was not called, with the reason.
type Pass struct {
	Webhook, Why string
	Rules        bool // its rules do not match such requests
	Namespace    bool // its namespaceSelector leaves the namespace out
}

// outcome assembles the result of the request. refused is the error that the user gets.
func (a *admissionRun) outcome(refused error) (*Outcome, error) {
	o := &Outcome{
		Err: refused, Warnings: a.feedback.visibleWarnings(), AuditAnnotations: a.feedback.audit,
		Calls: a.calls, Steps: a.trace.snapshot(), Passed: a.passed, Trace: a.trace, Before: a.object, After: a.current,
	}
	for _, c := range a.calls {
		if c.Response != nil && c.Err == nil && len(c.Response.Patch) > 0 {
			var operations []jsonpatch.Operation
			if err := json.Unmarshal(c.Response.Patch, &operations); err != nil {
				return nil, fmt.Errorf("the patch in a response cannot be read: %w", err)
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
	if o.Object, err = a.current.In(a.s.Scheme); err != nil && refused == nil {
		return nil, fmt.Errorf("the object after the mutating webhooks: %w", err)
	}
	return o, nil
}

// Request is a user's request to the API server. Objects are Go objects of the scheme, unstructured ones, Documents,
// or JSON or YAML as []byte or string. JSON and YAML keep fields that the Go types do not know. A Go object that is
// not unstructured gets its apiVersion and kind from the scheme. Request has the fields of eirinixtest.Request.
type Request struct {
	Operation admissionv1.Operation
	Object    any // nil for DELETE; the options, such as PodExecOptions, for CONNECT
	OldObject any // for UPDATE and DELETE

	// Resource, Subresource, Namespace and Name are the parts of the URL. If they are empty, they follow from the
	// object.
	Resource        schema.GroupVersionResource
	Subresource     string
	Namespace, Name string

	User           user.DefaultInfo // default: kubernetes-admin of the group system:masters
	DryRun         bool
	Timeout        time.Duration // for the request with all its calls; 0 means 34 s
	WebhookTimeout time.Duration // replaces every timeoutSeconds; 0 keeps them
}

// These are the limits of an API server for Warning headers. If all warnings together exceed maxWarningRunes, each
// one is truncated to maxCutWarningRunes.
const (
	maxWarningRunes    = 4096
	maxCutWarningRunes = 256
)

// feedback are the warnings and audit annotations in the responses of webhooks. Validating webhooks are called
// concurrently, so it is safe for concurrent use until the request is done.
type feedback struct {
	mu       sync.Mutex
	warnings []string
	audit    map[string]string
}

// add adds the warnings and audit annotations of a response, under the rules of an API server. Each warning is kept
// once. An audit annotation is kept if its key is a qualified name, and if it is the first of that name.
func (s *feedback) add(webhook string, resp *admissionv1.AdmissionResponse) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, w := range resp.Warnings {
		if w != "" && !slices.Contains(s.warnings, w) {
			s.warnings = append(s.warnings, w)
		}
	}
	for key, value := range resp.AuditAnnotations {
		key = webhook + "/" + key
		if _, taken := s.audit[key]; taken || strings.Count(key, "/") != 1 || len(validation.IsQualifiedName(key)) > 0 {
			continue
		}
		if s.audit == nil {
			s.audit = map[string]string{}
		}
		s.audit[key] = value
	}
}

// visibleWarnings returns the warnings as they reach the user's terminal. They are truncated if they are too long, and those
// that a header cannot hold are left out.
func (s *feedback) visibleWarnings() []string {
	total := 0
	for _, w := range s.warnings {
		total += utf8.RuneCountInString(w)
	}
	var shown []string
	written := 0
	for _, w := range s.warnings {
		if total > maxWarningRunes {
			if written >= maxWarningRunes {
				break
			}
			w = string([]rune(w)[:min(utf8.RuneCountInString(w), maxCutWarningRunes)])
		}
		if _, err := utilnet.NewWarningHeader(299, "", w); err != nil {
			continue
		}
		written += utf8.RuneCountInString(w)
		shown = append(shown, w)
	}
	return shown
}
