package eirinix

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

// The labels that Cloud Foundry's Eirini puts on the pods of an application.
// ManagerOptions.FilterEiriniApps selects pods whose LabelSourceType is "APP".
const (
	LabelGUID        = "cloudfoundry.org/guid"
	LabelVersion     = "cloudfoundry.org/version"
	LabelAppGUID     = "cloudfoundry.org/app_guid"
	LabelProcessType = "cloudfoundry.org/process_type"
	LabelSourceType  = "cloudfoundry.org/source_type"
)

// sourceTypeApp is the value of LabelSourceType that marks an application's pod.
const sourceTypeApp = "APP"

// An Extension decides what happens to one pod on its way into the cluster.
//
// Handle runs on many goroutines and may see a pod again (reinvocation), so it must be idempotent,
// and in a dry run (req.DryRun) it must change nothing else. pod is Handle's own copy; it is nil when
// the request carries none. Two pods of one Deployment have no name yet: use req.Namespace and expect an
// empty pod.Name.
//
// To let the pod through, return admission.Allowed or the zero Response; to change it, return
// Manager.PatchFromPod of a changed copy; to refuse it, return admission.Denied. admission.Errored with
// a code of 500 or more is a failure, as a panic and a missed deadline are: failurePolicy decides then.
// The context ends shortly before the API server gives up, and carries a logr.Logger (logf.FromContext).
//
// Extensions are registered for the CREATE of pods: on UPDATE nearly every change to a pod's spec is refused
// by the API server, and with it the user's own edit.
type Extension interface {
	Handle(context.Context, Manager, *corev1.Pod, admission.Request) admission.Response
}

// A Watcher is told of what happens to the pods that the options select (Namespace, FilterEiriniApps).
//
// Handle is called for ADDED, MODIFIED and DELETED, one event at a time and in order; event.Object is a
// *corev1.Pod that is shared between watchers, so copy it before changing it. After a gap (the API server
// was away, or its history was too short) events are made up from the difference, so none that still
// matters is lost, but several changes of one pod may arrive as one.
type Watcher interface {
	Handle(Manager, watch.Event)
}

// A Reconciler is a controller that runs beside the extensions.
//
// Register is called once, when the Manager starts: build the controller there, on
// Manager.GetKubeManager(), and hand it the Reconciler. Caches are limited to ManagerOptions.Namespace
// where that is set.
type Reconciler interface {
	Reconcile(context.Context, reconcile.Request) (reconcile.Result, error)
	Register(Manager) error
}

// Named gives an extension a stable name: it becomes the path, the name of the entry in the webhook
// configuration and the word in messages. Without it the name is made from the Go type. The name must
// be unique within a Manager and is cleaned to a DNS label; keep it when the type is renamed, and the
// configuration does not change.
type Named interface{ Name() string }

// ContextFreeReconciler is the Reconciler of EiriniX, whose Reconcile takes no context.
// AddExtension accepts it; inside Register, give AdaptReconciler(r) to controller-runtime.
type ContextFreeReconciler interface {
	Reconcile(reconcile.Request) (reconcile.Result, error)
	Register(Manager) error
}

// AdaptReconciler makes a Reconciler of EiriniX's context-free form. The context is dropped: such a
// reconciler takes Manager.GetContext instead, which ends when the Manager stops.
func AdaptReconciler(r ContextFreeReconciler) Reconciler { return contextFree{r} }

type contextFree struct{ ContextFreeReconciler }

func (c contextFree) Reconcile(_ context.Context, req reconcile.Request) (reconcile.Result, error) {
	return c.ContextFreeReconciler.Reconcile(req)
}

// notAnExtension says what v lacks. A value whose methods stand on the pointer is the usual reason.
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
	return fmt.Errorf("eirinix: AddExtension got %T, which is no Extension, Mutation, Validation, Subresource, Watcher or Reconciler; %s", v, remedy)
}

// defineExtension makes the step of an Extension: for the creation of pods, unless it is Configured otherwise.
func defineExtension(e Extension) (definition, error) {
	d := definition{extension: e, operations: []admissionregistrationv1.OperationType{admissionregistrationv1.Create}}
	if c, ok := e.(Configured); ok {
		d.settings = c.Settings()
	}
	if n, ok := e.(Named); ok {
		d.chosen = true
		if d.name = stepname.Clean(n.Name()); d.name == "" {
			return definition{}, fmt.Errorf("eirinix: extension %T has the name %q, which holds no letter or digit; Name must give a DNS label", e, n.Name())
		}
		return d, nil
	}
	if d.name = stepname.Clean(stepname.OfType(e)); d.name == "" {
		d.name = "extension"
	}
	return d, nil
}

// rename makes the name of a step unique. taken tells which names are in use: a name the user chose must be
// free, one made from the Go type gets a number, so that two values of one type can be added.
func (d *definition) rename(taken func(string) bool) error {
	if d.chosen && taken(d.name) {
		return fmt.Errorf("eirinix: extension %q is already added; names become webhook paths and must be unique", d.name)
	}
	d.name = stepname.Unique(d.name, taken)
	return nil
}
