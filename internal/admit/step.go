package admit

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"sync"
	"time"

	admissionv1 "k8s.io/api/admission/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
)

// A Step decides on the requests of one extension. Steps that share an entry form a Chain. Exactly one of
// Handle, Mutate and Check is set.
type Step struct {
	Name    string
	Ignore  bool          // its failurePolicy is Ignore: when it fails, what it did is undone and the chain goes on
	Timeout time.Duration // of one run; 0 means what is left of the call's
	Matcher *Matcher      // which requests it wants of those that its entry gets; nil means all

	// Handle is a step that makes its own patch, as EiriniX's extensions do.
	Handle HandleFunc

	// Mutate changes an object in place; Check looks at the old and the new one, of which the request may
	// lack either (nil). Both are given objects that New made.
	New    func() runtime.Object
	Mutate func(ctx context.Context, x *Exchange, obj runtime.Object) error
	Check  func(ctx context.Context, x *Exchange, oldObj, newObj runtime.Object) error
}

// Exchange is what a step sees of a call, and what it says beside its verdict. Its methods are safe for
// concurrent use, and work on nil, for the unit tests of steps.
type Exchange struct {
	Request *admissionv1.AdmissionRequest // as it arrived; shared between steps: read it only

	mu       sync.Mutex
	warnings []string
	audit    map[string]string
}

// Warn adds a warning for the user's terminal.
func (x *Exchange) Warn(message string) {
	if x == nil {
		return
	}
	x.mu.Lock()
	defer x.mu.Unlock()
	x.warnings = append(x.warnings, message)
}

// Audit adds an annotation to the API server's audit log.
func (x *Exchange) Audit(key, value string) {
	if x == nil {
		return
	}
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.audit == nil {
		x.audit = map[string]string{}
	}
	x.audit[key] = value
}

// said takes what was said so far. A step that was left behind may go on speaking; nobody listens.
func (x *Exchange) said() (warnings []string, audit map[string]string) {
	x.mu.Lock()
	defer x.mu.Unlock()
	warnings, audit = x.warnings, x.audit
	x.warnings, x.audit = nil, nil
	return warnings, audit
}

// denial is a verdict: the object is refused, whatever failurePolicy says.
type denial struct{ status metav1.Status }

func (d *denial) Error() string { return d.status.Message }

// asDenial tells a denial from a failure: an API status below 500 is one. name stands in for a message that
// the step did not give.
func asDenial(name string, err error) (*denial, bool) {
	if d, ok := errors.AsType[*denial](err); ok {
		return d, true
	}
	var status apierrors.APIStatus // no error type itself, so AsType does not take it
	if !errors.As(err, &status) || status.Status().Code >= http.StatusInternalServerError {
		return nil, false
	}
	return &denial{status: fitStatus(name, status.Status())}, true
}

// fitStatus makes of a status what the API server shows as meant: it replaces codes below 400, and shows the
// message alone.
func fitStatus(name string, s metav1.Status) metav1.Status {
	s = *s.DeepCopy()
	s.Status = metav1.StatusFailure
	if s.Code < http.StatusBadRequest {
		s.Code = http.StatusForbidden
	}
	if s.Message == "" {
		if s.Message = string(s.Reason); s.Message == "" {
			s.Message = fmt.Sprintf("denied by extension %q", name)
		}
	}
	return s
}
