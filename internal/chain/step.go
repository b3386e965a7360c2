package chain

// This file defines the steps of a chain, and decides whether a step's error is a denial or a failure.

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	admissionv1 "k8s.io/api/admission/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"

	"code.cloudfoundry.org/eirinix/internal/decode"
)

// A Step decides on the requests of one extension. Steps that share an entry form a Chain. Either Run or Handle is set.
type Step struct {
	Name    string
	Mode    Mode          // the zero Mode is ModeDeny; without meaning if Choose is set
	Ignore  bool          // its failurePolicy is Ignore: when it fails, its changes are undone and the chain goes on
	Lenient bool          // it fails on an object that does not decode as it arrived; else that is denied
	Timeout time.Duration // of one run; 0 means the time that is left of the call's
	Share   time.Duration // of the call's time, which steps without a Timeout share; for the metrics
	Matcher *Matcher      // selects requests from those that its entry gets; nil selects all

	// EveryUpdate lets the step see the requests that change nothing it could judge; see settled.Is.
	EveryUpdate bool

	// Choose returns the mode for a request. Its error is a failure of the step. nil means Mode.
	Choose func(context.Context, *admissionv1.AdmissionRequest) (Mode, error)

	// Run gets objects that New made. If Mutates is true, it changes newObj in place, and oldObj is nil. Otherwise it
	// decides on both, and each is nil if the request lacks it.
	New     func() runtime.Object
	Run     RunFunc
	Mutates bool

	// Rule judges one object that New made, beside Run or instead of it: that of a CREATE, and the new one of an UPDATE.
	// If it refuses the latter, it judges the old one too, and what that violated already does not count.
	Rule RuleFunc

	// Handle makes its own patch, as EiriniX's extensions do. If it handles pods, Pods finds the pod of its request and
	// makes the patch.
	Handle HandleFunc
	Pods   *Pods
}

// RunFunc is a step that gets objects of a Go type.
type RunFunc func(ctx context.Context, c *Call, oldObj, newObj runtime.Object) error

// RuleFunc is a step that judges one object, whatever it was before.
type RuleFunc func(ctx context.Context, c *Call, obj runtime.Object) error

// HandleFunc is a step that makes its own patch. It can return a raw Response in any of the forms that users write. The
// chain interprets all of them.
type HandleFunc func(context.Context, admission.Request) admission.Response

// Call holds the request for a step, and collects the step's warnings and audit annotations. Its methods are safe
// for concurrent use. They also work on nil, for the unit tests of steps.
type Call struct {
	Request *admissionv1.AdmissionRequest // as it arrived; shared between steps, so read-only

	shared *shared // by the steps of a request; nil for a Call of its own

	mu   sync.Mutex
	said feedback
}

// feedback holds warnings and audit annotations.
type feedback struct {
	warnings []string
	audit    map[string]string
}

// shared is a value that the steps of a request share.
type shared struct {
	once  sync.Once
	value any
}

// Shared returns a value that all steps of the request share. The first call makes it.
func (c *Call) Shared(first func() any) any {
	if c == nil || c.shared == nil {
		return first()
	}
	c.shared.once.Do(func() { c.shared.value = first() })
	return c.shared.value
}

// Warn adds a warning for the user's terminal.
func (c *Call) Warn(message string) {
	if c == nil {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.said.warnings = append(c.said.warnings, message)
}

// Annotate adds an annotation to the API server's audit log.
func (c *Call) Annotate(key, value string) {
	if c == nil {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.said.audit == nil {
		c.said.audit = map[string]string{}
	}
	c.said.audit[key] = value
}

// take returns the feedback so far, and clears it. A step that was left behind can add more, but that is ignored.
func (c *Call) take() feedback {
	c.mu.Lock()
	defer c.mu.Unlock()
	said := c.said
	c.said = feedback{}
	return said
}

// These are codes of a metav1.Status.
const (
	codeBadRequest    = 400
	codeForbidden     = 403
	codeUnprocessable = 422
	codeInternalError = 500
)

// denial is a verdict: the object is refused, regardless of failurePolicy.
type denial struct {
	status metav1.Status
	step   string // that denied; set at last
}

func (d *denial) Error() string { return d.status.Message }

// asDenial returns the verdict in the tree of a step's error, if any: a denial, or an API status for which isVerdict is
// true. name is used for the message if the step gave none.
func asDenial(name string, req *admissionv1.AdmissionRequest, err error) (*denial, bool) {
	if d, ok := err.(*denial); ok { //nolint:errorlint // the loop below unwraps
		return d, true
	}
	if status, ok := err.(apierrors.APIStatus); ok && isVerdict(req, status.Status()) { //nolint:errorlint // as above
		return &denial{status: fitStatus(name, status.Status())}, true
	}
	var inner []error
	switch wrapper := err.(type) { //nolint:errorlint // as above
	case interface{ Unwrap() error }:
		inner = []error{wrapper.Unwrap()}
	case interface{ Unwrap() []error }:
		inner = wrapper.Unwrap()
	}
	for _, err := range inner {
		if d, ok := asDenial(name, req, err); ok {
			return d, true
		}
	}
	return nil, false
}

// misread returns the result of a step whose object cannot be read. Unless the step is lenient, an object is denied that did not fit the
// step's type when it arrived, because its author can mend that. Otherwise, the step has failed.
func (r *run) misread(i int, newObject func() runtime.Object, err error) error {
	if !r.steps[i].Lenient && errors.Is(err, ErrUnreadable) && !errors.Is(err, decode.ErrTooLarge) {
		if misfit := decode.Misfit(r.request.Object.Raw, newObject()); misfit != nil {
			return &denial{status: apierrors.NewBadRequest(brief(misfit.Error())).ErrStatus}
		}
	}
	return err
}

// isVerdict reports whether an API status is about the object under review. Any other status answers a request of the
// step's own: the step was throttled, or its account lacks a right.
func isVerdict(req *admissionv1.AdmissionRequest, s metav1.Status) bool {
	switch s.Code {
	case codeBadRequest, codeForbidden, codeUnprocessable:
	default:
		return false
	}
	d := s.Details
	if d == nil {
		return true
	}
	if d.Name == "" && s.Code == codeForbidden && d.Kind != "" && req.Name != "" {
		return false // an error about the right to list a kind, or to create it, has no name
	}
	return isOfKind(req, d.Group, d.Kind) && (d.Name == "" || d.Name == req.Name || isNamed(req, d.Name))
}

// isOfKind reports whether a status names the kind of the object under review or its resource. Validators name the kind
// (Pod), and the API server names the resource (pods).
func isOfKind(req *admissionv1.AdmissionRequest, group, kind string) bool {
	kind, _, _ = strings.Cut(kind, "/") // pods/exec
	is := func(k *metav1.GroupVersionKind, r *metav1.GroupVersionResource) bool {
		if k == nil || r == nil || group != "" && group != k.Group && group != r.Group {
			return false
		}
		plural, singular := meta.UnsafeGuessKindToResource(schema.GroupVersionKind{Kind: kind})
		return kind == "" || kind == k.Kind || kind == r.Resource ||
			plural.Resource == r.Resource || singular.Resource == r.Resource
	}
	return is(&req.Kind, &req.Resource) || is(req.RequestKind, req.RequestResource)
}

// isNamed reports whether name is the name or the generateName of the object under review. The request does not always
// carry them.
func isNamed(req *admissionv1.AdmissionRequest, name string) bool {
	for _, raw := range [][]byte{req.Object.Raw, req.OldObject.Raw} {
		var object metav1.PartialObjectMetadata
		if decode.Into(raw, &object) == nil && (name == object.Name || name == object.GenerateName) {
			return true
		}
	}
	return false
}

// fitStatus adapts a status so that the API server shows it as intended. The API server replaces codes below 400, and
// it shows only the message.
func fitStatus(name string, s metav1.Status) metav1.Status {
	s = *s.DeepCopy()
	s.Status = metav1.StatusFailure
	if s.Code < codeBadRequest {
		s.Code = codeForbidden
	}
	if s.Message == "" {
		if s.Message = string(s.Reason); s.Message == "" {
			s.Message = fmt.Sprintf("denied by step %q", name)
		}
	}
	return s
}

// stepError is the failure of a step, or of a change that several steps made together.
type stepError struct {
	steps []string
	err   error
}

func failureOf(err error, steps ...string) *stepError { return &stepError{steps, err} }

func (e *stepError) Error() string {
	if len(e.steps) == 1 {
		return fmt.Sprintf("step %q failed: %v", e.steps[0], e.err)
	}
	return fmt.Sprintf("one of the extensions %q failed: %v", e.steps, e.err)
}
func (e *stepError) Unwrap() error { return e.err }
