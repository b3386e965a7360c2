package eirinix

// This file declares the kinds of extensions: Extension, Watcher and Reconciler.

import (
	"context"
	"fmt"
	"reflect"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/watch"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"

	"code.cloudfoundry.org/eirinix/internal/stepname"
)

// The labels that Cloud Foundry's Eirini sets on the pods of an application. ManagerOptions.FilterEiriniApps selects
// pods whose LabelSourceType is "APP".
const (
	LabelGUID        = "cloudfoundry.org/guid"
	LabelVersion     = "cloudfoundry.org/version"
	LabelAppGUID     = "cloudfoundry.org/app_guid"
	LabelProcessType = "cloudfoundry.org/process_type"
	LabelSourceType  = "cloudfoundry.org/source_type"
)

// sourceTypeApp is the value of LabelSourceType on an application's pod.
const sourceTypeApp = "APP"

// An Extension admits, changes or denies one pod during admission. It is EiriniX's form of a step: a new program is
// shorter with a Mutation or a Validation.
//
// Handle runs concurrently on many goroutines and can see the same pod again (reinvocation), so it must be idempotent.
// In a dry run (req.DryRun) it must have no side effects. pod is Handle's own copy, and is nil if the request carries
// none. Pods created by a controller, such as a Deployment's, often have no name yet: use req.Namespace, and expect an
// empty pod.Name.
//
// To admit the pod unchanged, return admission.Allowed or the zero Response. To change it, return Manager.PatchFromPod
// of a changed copy. To deny it, return admission.Denied. A panic, a missed deadline and admission.Errored with a code
// of 500 or more are failures, and failurePolicy decides about the pod. The context ends shortly before the API server
// gives up, and carries a logr.Logger (logf.FromContext).
//
// Extensions are registered for the CREATE of pods. On UPDATE the API server refuses nearly every change to a pod's
// spec, and with it the user's own edit.
type Extension interface {
	Handle(context.Context, Manager, *corev1.Pod, admission.Request) admission.Response
}

// A Watcher receives the events of the pods that the options select (Namespace, FilterEiriniApps).
//
// Handle is called for ADDED, MODIFIED and DELETED, one event at a time and in order. event.Object is a *corev1.Pod
// that all watchers share, so copy it before changing it. After a gap, when the API server was unreachable or its
// history too short, the events are derived from the difference. No relevant event is lost then, but several changes of
// one pod can arrive as one.
type Watcher interface {
	Handle(Manager, watch.Event)
}

// A Reconciler is a controller that runs alongside the extensions.
//
// Register is called once, when the Manager starts. It builds the controller on Manager.GetKubeManager() and passes it
// the Reconciler. Caches are limited to ManagerOptions.Namespace if that is set.
type Reconciler interface {
	Reconcile(context.Context, reconcile.Request) (reconcile.Result, error)
	Register(Manager) error
}

// Named is implemented by an extension that chooses its own stable name. The name becomes the path, part of the name of
// the entry in the webhook configuration, and the name in messages. Without it, the name is derived from the Go type.
//
// The name must be unique within a Manager, and is converted to a DNS label. Keep it when the Go type is renamed, and
// the webhook configuration does not change.
type Named interface{ Name() string }

// ContextFreeReconciler is EiriniX's original Reconciler, whose Reconcile takes no context. AddExtension accepts it. In
// Register, pass AdaptReconciler(r) to controller-runtime.
type ContextFreeReconciler interface {
	Reconcile(reconcile.Request) (reconcile.Result, error)
	Register(Manager) error
}

// AdaptReconciler converts a ContextFreeReconciler to a Reconciler. The context of a request is dropped. Such a
// reconciler uses Manager.GetContext instead, which ends when the Manager stops.
func AdaptReconciler(r ContextFreeReconciler) Reconciler { return contextFree{r} }

type contextFree struct{ ContextFreeReconciler }

func (c contextFree) Reconcile(_ context.Context, req reconcile.Request) (reconcile.Result, error) {
	return c.ContextFreeReconciler.Reconcile(req)
}

// notAnExtension returns the error for a value that is no extension. It says which methods v lacks. The usual reason is
// that they have pointer receivers.
func notAnExtension(v any) error {
	remedy := "it needs Handle(context.Context, eirinix.Manager, *corev1.Pod, admission.Request) admission.Response, " +
		"or Handle(eirinix.Manager, watch.Event), or Reconcile and Register"
	pointer := reflect.PointerTo(reflect.TypeOf(v))
	for _, t := range []reflect.Type{
		reflect.TypeFor[Extension](), reflect.TypeFor[Watcher](), reflect.TypeFor[Reconciler](), reflect.TypeFor[ContextFreeReconciler](),
	} {
		if pointer.Implements(t) {
			remedy = fmt.Sprintf("its methods are on the pointer, add &%T{}", v)
		}
	}
	return fmt.Errorf("eirinix: AddExtension got %T, which is no Extension, Mutation, Validation, Subresource, conversion.Of, Watcher or Reconciler; %s", v, remedy)
}

// defineExtension returns the step of an Extension. It is registered for the creation of pods, unless the Extension is
// Configured otherwise.
func defineExtension(e Extension) (definition, error) {
	d := definition{extension: e, operations: []admissionregistrationv1.OperationType{admissionregistrationv1.Create}}
	if c, ok := e.(Configured); ok {
		d.settings = c.Settings()
	}
	if n, ok := e.(Named); ok {
		d.chosen = true
		if d.name = stepname.Clean(n.Name()); d.name == "" {
			return definition{}, fmt.Errorf("eirinix: step %T has the name %q, which holds no letter or digit; Name must give a DNS label", e, n.Name())
		}
		return d, nil
	}
	if d.name = stepname.Clean(stepname.OfType(e)); d.name == "" {
		d.name = "extension"
	}
	return d, nil
}

// rename makes the name of a step unique. taken reports whether a name is in use. A name that the user chose must be
// free. A name derived from the Go type gets a number, so that two values of one type can be added.
func (d *definition) rename(taken func(string) bool) error {
	if d.chosen && taken(d.name) {
		return fmt.Errorf("eirinix: step %q is already added; names become webhook paths and must be unique", d.name)
	}
	d.name = stepname.Unique(d.name, taken)
	return nil
}

// isNil reports whether v is nil or holds a nil pointer, func, map, slice, channel or interface.
func isNil(v any) bool {
	if v == nil {
		return true
	}
	switch r := reflect.ValueOf(v); r.Kind() {
	case reflect.Pointer, reflect.Func, reflect.Map, reflect.Slice, reflect.Chan, reflect.Interface:
		return r.IsNil()
	}
	return false
}
