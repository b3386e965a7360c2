package apiserver

// This file takes a request through admission: the mutating webhooks, checks of the registry, the validating
// webhooks.

import (
	"cmp"
	"context"
	"encoding/base64"
	"errors"
	"time"

	admissionv1 "k8s.io/api/admission/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apiserver/pkg/admission"
	"k8s.io/apiserver/pkg/authentication/user"
)

// requestTimeout is the time that an API server allows for a request with all its calls.
const requestTimeout = 34 * time.Second

// generatedSuffix ends generated names. It is constant, so that tests see the same name every time.
const generatedSuffix = "x7k2p"

// resolved is a request with everything that follows from its objects.
type resolved struct {
	Request
	at                Place
	object, oldObject Document
	options           runtime.Object
}

// admissionRun is one request's pass through the webhooks.
type admissionRun struct {
	s *Server
	*resolved
	current  Document // the object as the mutating webhooks have left it, in the version of the request
	ahead    Document // the same in another version in which it was patched last, until it is converted back
	trace    *Trace
	feedback feedback
	calls    []WebhookCall
	passed   []Pass
}

// Send sends a request through admission. It returns an error if the request itself is invalid: its object cannot be
// read, or the plural of its kind is unknown (UnknownKindError). It also returns one if the resulting object cannot
// be decoded.
func (s *Server) Send(ctx context.Context, r Request) (*Outcome, error) {
	q, err := s.resolve(r)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, cmp.Or(max(r.Timeout, 0), requestTimeout))
	defer cancel()
	a := &admissionRun{s: s, resolved: q, current: q.object, trace: &Trace{}}
	return a.outcome(a.admit(ctx))
}

// resolve prepares a request as an API server does before it calls any webhook.
func (s *Server) resolve(r Request) (*resolved, error) {
	q := &resolved{Request: r}
	var err error
	if q.object, err = s.Read(r.Object); err != nil {
		return nil, err
	}
	if q.oldObject, err = s.Read(r.OldObject); err != nil {
		return nil, err
	}
	main := q.main()
	switch {
	case main.Absent():
		return nil, errors.New("the request has neither Object nor OldObject")
	case r.Operation == admissionv1.Update && (q.object.Absent() || q.oldObject.Absent()):
		return nil, errors.New("an update needs both OldObject and Object")
	}
	if _, _, err := bothTyped(q.object, q.oldObject); err != nil {
		return nil, err
	}
	if q.Resource.Empty() {
		if q.at, err = s.PlaceOf(main.Kind); err != nil {
			return nil, err
		}
		q.Resource = q.at.Resource
	} else if kind, err := s.mapper().KindFor(q.Resource); err == nil {
		if q.at, err = s.PlaceOf(kind); err != nil {
			return nil, err
		}
	} else {
		q.at = Place{Resource: q.Resource, Namespaced: q.Namespace != ""}
	}
	q.complete(s, main)
	return q, nil
}

// main returns the object that the request is about: the new one, else the old one.
func (q *resolved) main() Document {
	if q.object.Absent() {
		return q.oldObject
	}
	return q.object
}

// complete sets the values that follow from the object, and the metadata that an API server controls.
func (q *resolved) complete(s *Server, main Document) {
	u := main.Unstructured()
	if q.Namespace == "" || !q.at.Namespaced {
		q.Namespace = s.NamespaceOf(q.at, u)
	}
	if q.Name == "" {
		q.Name = u.GetName()
	}
	own := func(d Document) Document {
		_, isObject := d.Unstructured().Object["metadata"]
		if d.Absent() || q.Subresource != "" && !isObject { // such as PodExecOptions, which have no metadata
			return d
		}
		return d.With(func(u *unstructured.Unstructured) {
			foldStringData(u)
			if q.Subresource == "token" && u.GetName() == "" {
				u.SetName(q.Name) // a TokenRequest gets the name of its ServiceAccount
			}
			if q.at.Namespaced {
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

// admit takes the request through all webhooks and checks. Its error is the one that the user gets.
func (a *admissionRun) admit(ctx context.Context) error {
	if err := a.mutate(ctx); err != nil {
		return err
	}
	if err := a.checkNamespace(); err != nil {
		return err
	}
	if err := a.checkImmutable(); err != nil {
		return err
	}
	return a.validate(ctx, a.stored())
}

// attributes returns the request in the form that the API server's matchers use.
func (a *admissionRun) attributes(object, oldObject Document) (admission.Attributes, error) {
	typed, typedOld, err := bothTyped(object, oldObject)
	if err != nil {
		return nil, err
	}
	return admission.NewAttributesRecord(typed, typedOld, a.main().Kind, a.Namespace, a.Name, a.Resource, a.Subresource,
		admission.Operation(a.Operation), a.options, a.DryRun, &a.User), nil
}

// mutate calls the mutating webhooks one after another, then once more those that are due for reinvocation.
func (a *admissionRun) mutate(ctx context.Context) error {
	reinvocable, due := map[string]bool{}, map[string]bool{}
	for round := range 2 {
		err := a.mutateRound(ctx, round, reinvocable, due)
		if back := a.convertBack(ctx); err == nil {
			err = back
		}
		if err != nil || len(due) == 0 {
			return err
		}
	}
	return nil
}

// mutateRound calls the mutating webhooks. reinvocable and due hold the ids of those that may be and must be called again.
func (a *admissionRun) mutateRound(ctx context.Context, round int, reinvocable, due map[string]bool) error {
	for _, w := range a.s.webhooks {
		if w.validating || round == 1 && !due[w.id()] {
			continue // a webhook that the object did not match in the first round is skipped, too
		}
		invocation, err := a.match(ctx, w, a.latest())
		if err != nil {
			return err
		}
		if invocation == nil {
			continue
		}
		changed, err := a.callMutating(ctx, w, invocation, a.admissionRequest(invocation), round)
		if changed { // every earlier webhook with reinvocationPolicy IfNeeded is due
			for id := range reinvocable {
				due[id] = true
			}
		}
		if p := w.ReinvocationPolicy; p != nil && *p == "IfNeeded" {
			reinvocable[w.id()] = true
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// checkNamespace refuses an object that was moved to another namespace, as the registry would.
func (a *admissionRun) checkNamespace() error {
	if a.Operation != admissionv1.Create || !a.at.Namespaced || a.Subresource != "" || a.current.Absent() {
		return nil
	}
	if a.current.Unstructured().GetNamespace() != a.Namespace {
		return apierrors.NewBadRequest("the namespace of the provided object does not match the namespace sent on the request")
	}
	return nil
}

// foldStringData merges the stringData of a Secret into its data, as an API server does when it decodes one. No
// webhook ever sees stringData.
func foldStringData(u *unstructured.Unstructured) {
	if u.GroupVersionKind() != corev1.SchemeGroupVersion.WithKind("Secret") {
		return
	}
	texts, ok, err := unstructured.NestedStringMap(u.Object, "stringData")
	if !ok || err != nil {
		return
	}
	unstructured.RemoveNestedField(u.Object, "stringData")
	data, isMap := u.Object["data"].(map[string]any)
	if !isMap {
		data = map[string]any{}
	}
	for key, text := range texts {
		data[key] = base64.StdEncoding.EncodeToString([]byte(text))
	}
	if len(data) > 0 {
		u.Object["data"] = data
	}
}
