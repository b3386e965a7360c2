package eirinixtest

import (
	"context"
	"errors"
	"fmt"
	"time"

	admissionv1 "k8s.io/api/admission/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/uuid"
	"k8s.io/apiserver/pkg/admission"
	"k8s.io/apiserver/pkg/authentication/user"
)

// requestTimeout is what an API server gives a request with all its calls.
const requestTimeout = 34 * time.Second

// generatedSuffix ends the names that are generated. A test wants to see the same every time.
const generatedSuffix = "x7k2p"

// resolved is a request with everything that follows from its objects.
type resolved struct {
	Request
	at                place
	object, oldObject document
	options           runtime.Object
}

// admissionRun is one request on its way through the webhooks.
type admissionRun struct {
	h *Harness
	*resolved
	current document // as the mutating webhooks have left the object
	trace   *trace
	says    sayings
	calls   []WebhookCall
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
	q, err := h.resolve(r)
	if err != nil {
		return nil, err
	}
	timeout := r.Timeout
	if timeout <= 0 {
		timeout = requestTimeout
	}
	ctx, cancel := context.WithTimeout(context.Background(), timeout)
	defer cancel()
	a := &admissionRun{h: h, resolved: q, current: q.object, trace: &trace{}}
	return a.result(a.admit(ctx))
}

// resolve does what an API server does before it calls anybody.
func (h *Harness) resolve(r Request) (*resolved, error) {
	q := &resolved{Request: r}
	var err error
	if q.object, err = h.read(r.Object); err != nil {
		return nil, err
	}
	if q.oldObject, err = h.read(r.OldObject); err != nil {
		return nil, err
	}
	main := q.object
	if main.absent() {
		main = q.oldObject
	}
	switch {
	case main.absent():
		return nil, errors.New("the request has neither Object nor OldObject")
	case r.Operation == admissionv1.Update && (q.object.absent() || q.oldObject.absent()):
		return nil, errors.New("an update has both OldObject and Object")
	}
	for _, d := range []document{q.object, q.oldObject} {
		if _, err := d.typed(); err != nil {
			return nil, err
		}
	}
	if q.Resource.Empty() {
		if q.at, err = h.placeOf(main.kind); err != nil {
			return nil, err
		}
		q.Resource = q.at.resource
	} else if kind, err := h.mapper().KindFor(q.Resource); err == nil {
		if q.at, err = h.placeOf(kind); err != nil {
			return nil, err
		}
	} else {
		q.at = place{resource: q.Resource, namespaced: q.Namespace != ""}
	}
	q.complete(h, main)
	return q, nil
}

// complete fills in what follows from the object, and the metadata that an API server takes into its own hands.
func (q *resolved) complete(h *Harness, main document) {
	u := main.unstructured()
	if q.Namespace == "" || !q.at.namespaced {
		q.Namespace = h.namespaceOf(q.at, u)
	}
	if q.Name == "" {
		q.Name = u.GetName()
	}
	// What is sent to a subresource may be no object, as PodExecOptions are none.
	own := func(d document) document {
		if _, isObject := d.unstructured().Object["metadata"]; !isObject {
			return d
		}
		return d.with(func(u *unstructured.Unstructured) {
			if q.at.namespaced {
				u.SetNamespace(q.Namespace)
			}
			if q.Operation == admissionv1.Create && q.Subresource == "" {
				for _, field := range []string{"uid", "creationTimestamp", "deletionTimestamp", "deletionGracePeriodSeconds", "selfLink"} {
					unstructured.RemoveNestedField(u.Object, "metadata", field)
				}
			}
		})
	}
	q.object, q.oldObject = own(q.object), own(q.oldObject)
	if q.Resource.Resource == "namespaces" && q.Resource.Group == "" {
		q.Namespace = q.Name // a request for a namespace carries its name as the namespace
	}
	if q.User.Name == "" {
		q.User = user.DefaultInfo{Name: "kubernetes-admin", Groups: []string{user.SystemPrivilegedGroup, user.AllAuthenticated}}
	}
	var dryRun []string
	if q.DryRun {
		dryRun = []string{metav1.DryRunAll}
	}
	typeOf := func(kind string) metav1.TypeMeta {
		return metav1.TypeMeta{APIVersion: "meta.k8s.io/v1", Kind: kind}
	}
	switch q.Operation {
	case admissionv1.Create:
		q.options = &metav1.CreateOptions{TypeMeta: typeOf("CreateOptions"), DryRun: dryRun}
	case admissionv1.Update:
		q.options = &metav1.UpdateOptions{TypeMeta: typeOf("UpdateOptions"), DryRun: dryRun}
	case admissionv1.Delete:
		q.options = &metav1.DeleteOptions{TypeMeta: typeOf("DeleteOptions"), DryRun: dryRun}
	}
}

// admit takes the request through all webhooks. Its error is what the user is told.
func (a *admissionRun) admit(ctx context.Context) error {
	if err := a.mutate(ctx); err != nil {
		return err
	}
	if err := a.checkNamespace(); err != nil {
		return err
	}
	return a.validate(ctx, a.stored())
}

// attributes is the request as the API server's matchers look at it.
func (a *admissionRun) attributes(object, oldObject document) (admission.Attributes, error) {
	kind := a.object.kind
	if a.object.absent() {
		kind = a.oldObject.kind
	}
	typed, err := object.typed()
	if err != nil {
		return nil, err
	}
	typedOld, err := oldObject.typed()
	if err != nil {
		return nil, err
	}
	return admission.NewAttributesRecord(typed, typedOld, kind, a.Namespace, a.Name, a.Resource, a.Subresource,
		admission.Operation(a.Operation), a.options, a.DryRun, &a.User), nil
}

// mutate calls the mutating webhooks, one after another, and once more those that are due for it.
func (a *admissionRun) mutate(ctx context.Context) error {
	reinvocable, due := map[string]bool{}, map[string]bool{}
	for round := range 2 {
		for _, w := range a.h.mutating {
			if round == 1 && !due[w.id()] {
				continue // also one that did not match the object the first time
			}
			invocation, err := a.match(ctx, w, a.current)
			if err != nil {
				return err
			}
			if invocation == nil {
				continue
			}
			changed, err := a.callMutating(ctx, w, invocation, round)
			if changed { // all that were called before, and want to know
				for id := range reinvocable {
					due[id] = true
				}
				clear(reinvocable)
			}
			if p := w.ReinvocationPolicy; p != nil && *p == "IfNeeded" {
				reinvocable[w.id()] = true
			}
			if err != nil {
				return err
			}
		}
		if len(due) == 0 {
			return nil
		}
	}
	return nil
}

// checkNamespace refuses what the registry would: an object that was moved to another namespace.
func (a *admissionRun) checkNamespace() error {
	if a.Operation != admissionv1.Create || !a.at.namespaced || a.Subresource != "" || a.current.absent() {
		return nil
	}
	if a.current.unstructured().GetNamespace() != a.Namespace {
		return apierrors.NewBadRequest("the namespace of the provided object does not match the namespace sent on the request")
	}
	return nil
}

// stored is the object as validating webhooks see it: with the metadata that it gets when it is stored.
func (a *admissionRun) stored() document {
	if a.Operation != admissionv1.Create || a.Subresource != "" || a.current.absent() {
		return a.current
	}
	return a.current.with(func(u *unstructured.Unstructured) {
		if u.GetName() == "" && u.GetGenerateName() != "" {
			u.SetName(u.GetGenerateName() + generatedSuffix)
		}
		u.SetUID(types.UID(uuid.NewUUID()))
		u.SetCreationTimestamp(metav1.Now())
	})
}

// result puts together what the request came to.
func (a *admissionRun) result(denied error) (*Result, error) {
	r := &Result{
		h: a.h, Allowed: denied == nil, Err: denied, Warnings: a.says.shown(), AuditAnnotations: a.says.audit,
		Calls: a.calls, Steps: a.trace.snapshot(), trace: a.trace, before: a.object, after: a.current,
	}
	for _, c := range a.calls {
		if c.Response != nil && c.Err == nil {
			operations, err := operationsOf(c.Response.Patch)
			if err != nil {
				return nil, err
			}
			r.Patch = append(r.Patch, operations...)
		}
	}
	if rejected, ok := errors.AsType[*rejection](denied); ok {
		r.Err, r.Denial = rejected.StatusError, &rejected.meant
	}
	if a.current.absent() {
		return r, nil
	}
	r.JSON = a.current.raw
	var err error
	if r.Object, err = a.current.in(a.h.scheme()); err != nil {
		return nil, fmt.Errorf("what the webhooks have made of the object: %w", err)
	}
	return r, nil
}
