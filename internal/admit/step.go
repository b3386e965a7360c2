package admit

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"time"

	admissionv1 "k8s.io/api/admission/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"code.cloudfoundry.org/eirinix/internal/decode"
)

// A Step decides on the requests of one extension. Steps that share an entry form a Chain. Exactly one of
// Handle, Mutate and Check is set.
type Step struct {
	Name    string
	Ignore  bool          // its failurePolicy is Ignore: when it fails, what it did is undone and the chain goes on
	Timeout time.Duration // of one run; 0 means what is left of the call's
	Matcher *Matcher      // which requests it wants of those that its entry gets; nil means all

	// Handle is a step that makes its own patch, as EiriniX's extensions do. Where it is about pods, Pods finds the pod
	// of the request that it is given, and makes the patch.
	Handle HandleFunc
	Pods   *Pods

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

// asDenial returns the verdict in a step's error, if there is one in its tree: a denial, or an API status that isVerdict.
// name stands in for a message that the step did not give.
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

// isVerdict reports whether an API status speaks of the object under review. Any other one is an answer to a request of
// the step's own: that it was throttled, or that its account lacks a right.
func isVerdict(req *admissionv1.AdmissionRequest, s metav1.Status) bool {
	switch s.Code {
	case http.StatusBadRequest, http.StatusForbidden, http.StatusUnprocessableEntity:
	default:
		return false
	}
	d := s.Details
	if d == nil {
		return true
	}
	if d.Name == "" && s.Code == http.StatusForbidden && d.Kind != "" && req.Name != "" {
		return false // who may not list a kind, or create objects of it, is told so without a name
	}
	return isOfKind(req, d.Group, d.Kind) && (d.Name == "" || d.Name == req.Name || isNamed(req, d.Name))
}

// isOfKind reports whether a status names the kind of the object under review, as validators do (Pod), or its resource, as
// the API server does (pods).
func isOfKind(req *admissionv1.AdmissionRequest, group, kind string) bool {
	kind, _, _ = strings.Cut(kind, "/") // pods/exec
	is := func(k *metav1.GroupVersionKind, r *metav1.GroupVersionResource) bool {
		if k == nil || r == nil || group != "" && group != k.Group && group != r.Group {
			return false
		}
		plural, singular := meta.UnsafeGuessKindToResource(schema.GroupVersionKind{Kind: kind})
		return kind == "" || kind == k.Kind || kind == r.Resource || plural.Resource == r.Resource || singular.Resource == r.Resource
	}
	return is(&req.Kind, &req.Resource) || is(req.RequestKind, req.RequestResource)
}

// isNamed reports whether the object under review has a name, or the beginning of one, that the request does not carry.
func isNamed(req *admissionv1.AdmissionRequest, name string) bool {
	for _, raw := range [][]byte{req.Object.Raw, req.OldObject.Raw} {
		var object metav1.PartialObjectMetadata
		if decode.Into(raw, &object) == nil && (name == object.Name || name == object.GenerateName) {
			return true
		}
	}
	return false
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
