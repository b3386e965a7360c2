package eirinixtest

import (
	"context"
	"errors"
	"fmt"
	"time"

	admissionv1 "k8s.io/api/admission/v1"
	autoscalingv1 "k8s.io/api/autoscaling/v1"
	policyv1 "k8s.io/api/policy/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/authentication/user"

	"code.cloudfoundry.org/eirinix/internal/apiserver"
)

// Request is what a user asks of the API server. Objects are Go objects of the scheme, unstructured ones, or JSON or
// YAML as []byte or string, in which nothing is lost that the Go types do not know. A Go object that is not
// unstructured gets its apiVersion and kind from the scheme.
type Request struct {
	Operation admissionv1.Operation
	Object    any // nil for DELETE; the options, such as PodExecOptions, for CONNECT
	OldObject any // for UPDATE and DELETE

	// Resource, Subresource, Namespace and Name are what stands in the URL. Left out, they follow from the object:
	// an object without namespace lies in the Manager's Namespace, else in "default".
	Resource        schema.GroupVersionResource
	Subresource     string
	Namespace, Name string

	User   user.DefaultInfo // default kubernetes-admin of the group system:masters
	DryRun bool

	// Timeout bounds the request with all its calls. 0 means 34 s, as in an API server.
	Timeout time.Duration

	// WebhookTimeout is the timeoutSeconds of every webhook, for this request. 0 leaves each its own.
	WebhookTimeout time.Duration
}

// A RequestOption changes a request before it is sent.
type RequestOption func(*Request)

// AsUser sends the request as somebody else.
func AsUser(name string, groups ...string) RequestOption {
	return func(r *Request) {
		r.User = user.DefaultInfo{Name: name, Groups: append(append([]string{}, groups...), user.AllAuthenticated)}
	}
}

// DryRun makes the request a dry run.
func DryRun() RequestOption { return func(r *Request) { r.DryRun = true } }

// InNamespace sends the request for objects of this namespace.
func InNamespace(name string) RequestOption { return func(r *Request) { r.Namespace = name } }

// Timeout bounds the request, as kubectl's --request-timeout does.
func Timeout(d time.Duration) RequestOption { return func(r *Request) { r.Timeout = d } }

// WebhookTimeout overrides the timeoutSeconds of every webhook; it need not be whole seconds.
func WebhookTimeout(d time.Duration) RequestOption { return func(r *Request) { r.WebhookTimeout = d } }

// Create sends the creation of an object.
func (h *Harness) Create(object any, options ...RequestOption) *Result {
	h.t.Helper()
	return h.Send(Request{Operation: admissionv1.Create, Object: object}, options...)
}

// Update sends the update of an object.
func (h *Harness) Update(oldObject, object any, options ...RequestOption) *Result {
	h.t.Helper()
	return h.Send(Request{Operation: admissionv1.Update, OldObject: oldObject, Object: object}, options...)
}

// UpdateStatus sends the update of an object's status: the subresource of that name.
func (h *Harness) UpdateStatus(oldObject, object any, options ...RequestOption) *Result {
	h.t.Helper()
	return h.Send(Request{Operation: admissionv1.Update, OldObject: oldObject, Object: object, Subresource: "status"}, options...)
}

// Delete sends the deletion of an object. A review of it carries the object as the old one.
func (h *Harness) Delete(object any, options ...RequestOption) *Result {
	h.t.Helper()
	return h.Send(Request{Operation: admissionv1.Delete, OldObject: object}, options...)
}

// Connect sends a CONNECT to a subresource (exec, attach, portforward, proxy) of an object. What the review carries
// are its options, such as &corev1.PodExecOptions{}.
func (h *Harness) Connect(object any, subresource string, connectOptions runtime.Object, options ...RequestOption) *Result {
	h.t.Helper()
	r, ok := h.below(object, subresource)
	if !ok {
		return nil
	}
	r.Operation, r.Object = admissionv1.Connect, connectOptions
	return h.Send(r, options...)
}

// Evict sends the eviction of a pod.
func (h *Harness) Evict(pod any, options ...RequestOption) *Result {
	h.t.Helper()
	r, ok := h.below(pod, "eviction")
	if !ok {
		return nil
	}
	eviction := &policyv1.Eviction{}
	eviction.Name, eviction.Namespace = r.Name, r.Namespace
	r.Operation, r.Object = admissionv1.Create, eviction
	return h.Send(r, options...)
}

// Scale sends the scaling of a Deployment or whatever else has spec.replicas to that many.
func (h *Harness) Scale(workload any, replicas int32, options ...RequestOption) *Result {
	h.t.Helper()
	r, ok := h.below(workload, "scale")
	if !ok {
		return nil
	}
	d, err := h.server.Read(workload)
	if err != nil {
		h.t.Fatalf("eirinixtest: Scale: %v", err)
		return nil
	}
	u := d.Unstructured()
	scale := func(replicas int32) *autoscalingv1.Scale {
		s := &autoscalingv1.Scale{Spec: autoscalingv1.ScaleSpec{Replicas: replicas}}
		s.Name, s.Namespace, s.UID, s.ResourceVersion = r.Name, r.Namespace, u.GetUID(), u.GetResourceVersion()
		return s
	}
	now, found, _ := unstructured.NestedInt64(u.Object, "spec", "replicas")
	if !found {
		now = 1 // as it is defaulted
	}
	r.Operation, r.OldObject, r.Object = admissionv1.Update, scale(int32(now)), scale(replicas)
	return h.Send(r, options...)
}

// Send sends a request through admission. The test fails where the request itself makes no sense: where its object
// cannot be read, or nothing tells the plural of its kind.
func (h *Harness) Send(r Request, options ...RequestOption) *Result {
	h.t.Helper()
	result, err := h.send(r, options...)
	if err != nil {
		h.t.Fatalf("eirinixtest: %s: %v", r.Operation, err)
		return nil
	}
	return result
}

func (h *Harness) send(r Request, options ...RequestOption) (*Result, error) {
	for _, o := range options {
		o(&r)
	}
	outcome, err := h.server.Send(context.Background(), apiserver.Request(r))
	if err != nil {
		return nil, withRemedy(err)
	}
	return h.newResult(outcome), nil
}

// withRemedy says what a test can do about a request that makes no sense.
func withRemedy(err error) error {
	if _, unknown := errors.AsType[*apiserver.UnknownKindError](err); unknown {
		return fmt.Errorf("%w; name it in HarnessOptions.Resources", err)
	}
	return err
}

// below begins a request for a subresource, whose objects are of another kind than what it belongs to.
func (h *Harness) below(object any, subresource string) (Request, bool) {
	h.t.Helper()
	d, err := h.server.Read(object)
	if err == nil {
		var at apiserver.Place
		if at, err = h.server.PlaceOf(d.Kind); err == nil {
			u := d.Unstructured()
			return Request{Resource: at.Resource, Subresource: subresource, Name: u.GetName(), Namespace: h.server.NamespaceOf(at, u)}, true
		}
	}
	h.t.Fatalf("eirinixtest: %v", withRemedy(err))
	return Request{}, false
}
