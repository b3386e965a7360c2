package eirinixtest

// This file defines the requests that a Harness sends.

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

// Request is a user's request to the API server. Objects are Go objects of the scheme, unstructured objects, or JSON
// or YAML as []byte or string. JSON and YAML keep fields that the Go types do not know. A Go object that is not
// unstructured gets its apiVersion and kind from the scheme.
type Request struct {
	Operation admissionv1.Operation
	Object    any // nil for DELETE; the options, such as PodExecOptions, for CONNECT
	OldObject any // for UPDATE and DELETE

	// Resource, Subresource, Namespace and Name are the parts of the URL. If they are not set, they follow from the
	// object. An object without a namespace is in the Manager's Namespace, or else in "default".
	Resource        schema.GroupVersionResource
	Subresource     string
	Namespace, Name string

	User   user.DefaultInfo // default kubernetes-admin of the group system:masters
	DryRun bool

	// Timeout bounds the request with all its webhook calls. 0 means 34 s, as in an API server.
	Timeout time.Duration

	// WebhookTimeout overrides the timeoutSeconds of every webhook for this request. 0 keeps each webhook's own.
	WebhookTimeout time.Duration
}

// RequestOption changes a request before it is sent.
type RequestOption func(*Request)

// AsUser sends the request as another user, who is also a member of system:authenticated.
func AsUser(name string, groups ...string) RequestOption {
	return func(r *Request) {
		r.User = user.DefaultInfo{Name: name, Groups: append(append([]string{}, groups...), user.AllAuthenticated)}
	}
}

// DryRun makes the request a dry run.
func DryRun() RequestOption { return func(r *Request) { r.DryRun = true } }

// InNamespace sends the request in this namespace.
func InNamespace(name string) RequestOption { return func(r *Request) { r.Namespace = name } }

// Timeout bounds the request, as kubectl's --request-timeout does.
func Timeout(d time.Duration) RequestOption { return func(r *Request) { r.Timeout = d } }

// WebhookTimeout overrides the timeoutSeconds of every webhook. The timeout need not be in whole seconds.
func WebhookTimeout(d time.Duration) RequestOption { return func(r *Request) { r.WebhookTimeout = d } }

// Create sends a CREATE request for an object.
func (h *Harness) Create(object any, options ...RequestOption) *Result {
	h.t.Helper()
	return h.Send(Request{Operation: admissionv1.Create, Object: object}, options...)
}

// Update sends an UPDATE request for an object.
func (h *Harness) Update(oldObject, object any, options ...RequestOption) *Result {
	h.t.Helper()
	return h.Send(Request{Operation: admissionv1.Update, OldObject: oldObject, Object: object}, options...)
}

// UpdateStatus sends an UPDATE request for the subresource status of an object.
func (h *Harness) UpdateStatus(oldObject, object any, options ...RequestOption) *Result {
	h.t.Helper()
	return h.Send(Request{Operation: admissionv1.Update, OldObject: oldObject, Object: object, Subresource: "status"}, options...)
}

// Delete sends a DELETE request for an object. The review carries the object as the old one.
func (h *Harness) Delete(object any, options ...RequestOption) *Result {
	h.t.Helper()
	return h.Send(Request{Operation: admissionv1.Delete, OldObject: object}, options...)
}

// Finalize plays the deletion of an object with finalizers: a DELETE, and then the UPDATEs by which the finalizers go, one
// after the other. An object without finalizers is deleted in the foreground, as if it owned others. The result is the first
// one that is not allowed, or else the last.
func (h *Harness) Finalize(object any, options ...RequestOption) *Result {
	h.t.Helper()
	result := h.Delete(object, options...)
	if d, err := h.server.Read(object); err == nil {
		for _, f := range apiserver.Finalizing(d) {
			if result == nil || !result.Allowed {
				break
			}
			result = h.Update(f.Old, f.New, options...)
		}
	}
	return result
}

// Connect sends a CONNECT request to a subresource (exec, attach, portforward, proxy) of an object. The review carries
// the options of the subresource, such as &corev1.PodExecOptions{}.
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

// Scale sends an UPDATE of the subresource scale with this number of replicas. The workload is a Deployment, or any
// other object with spec.replicas.
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
		now = 1 // the default
	}
	r.Operation, r.OldObject, r.Object = admissionv1.Update, scale(int32(now)), scale(replicas)
	return h.Send(r, options...)
}

// Send sends a request through admission. The test fails if the request is invalid: if its object cannot be read, or
// if the plural of its kind is unknown.
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
	return h.sendIn(h.ctx, r)
}

func (h *Harness) sendIn(ctx context.Context, r Request) (*Result, error) {
	outcome, err := h.server.Send(ctx, apiserver.Request(r))
	if h.ctx.Err() != nil {
		return nil, context.Cause(h.ctx) // an answer that was cut off proves nothing
	}
	if err != nil {
		return nil, withRemedy(err)
	}
	return h.newResult(outcome), nil
}

// withRemedy adds the remedy in the test to the error for an invalid request.
func withRemedy(err error) error {
	if _, unknown := errors.AsType[*apiserver.UnknownKindError](err); unknown {
		return fmt.Errorf("%w; name it in HarnessOptions.Resources", err)
	}
	return err
}

// below creates a request for a subresource, whose objects are of another kind than the parent object.
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
