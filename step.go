package eirinix

// This file declares the typed steps, Mutation, Validation and Subresource, and the Settings of a step.

import (
	"cmp"
	"context"
	"fmt"
	"net/http"
	"reflect"
	"time"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"

	"code.cloudfoundry.org/eirinix/internal/chain"
	"code.cloudfoundry.org/eirinix/internal/reads"
	"code.cloudfoundry.org/eirinix/internal/stepname"
	"code.cloudfoundry.org/eirinix/internal/webhookconf"
)

// Call is the request that a typed step receives along with the object. Its methods are safe for concurrent use. The
// Raw members of the Request are shared between steps and must not be changed. A Call that a unit test constructs works
// too, but its warnings and audit annotations are discarded.
type Call struct {
	admission.Request
	Manager Manager

	feedback *chain.Call // collects warnings and audit annotations
	reads    reads.Turn
}

// Warn shows a warning on the terminal of the user who made the request, whether the object is admitted or not. Once
// the warnings of a response exceed 4096 characters in total, the API server truncates each to 256.
func (c *Call) Warn(format string, args ...any) { c.feedback.Warn(fmt.Sprintf(format, args...)) }

// Annotate adds an annotation to the API server's audit log. The key must be a qualified name without a prefix. If two
// steps of a call use the same key, the later step's key is prefixed with the name of the step.
func (c *Call) Annotate(key, value string) { c.feedback.Annotate(key, value) }

// Mutation changes objects of one kind during admission. It is called on CREATE and UPDATE, for Pods and Jobs only on
// CREATE, unless Settings.Operations or Settings.Rules say otherwise. T is a pointer to a type of the Manager's scheme,
// or *unstructured.Unstructured with Rules.
//
// Apply changes the object in place, and the library makes the patch. It runs concurrently on many goroutines and can
// see the same object again (reinvocation), so it must be idempotent. In a dry run (Call.DryRun) it must have no side
// effects. The context ends shortly before the API server gives up. Once Apply has returned, the object is the library's:
// the step must neither keep it nor write to it, which can crash the process.
//
// Apply refuses the object by returning an error of Deny or Invalid. An API status of 400, 403 or 422 refuses it too if
// its details name this object or none (apierrors.NewInvalid). Every other error is a failure, and failurePolicy
// decides about the object. That includes any other API status that the step's own client received.
type Mutation[T client.Object] struct {
	ID       string // the name of the step; derived from the kind if empty
	Settings Settings
	Apply    func(ctx context.Context, c *Call, obj T) error
}

// Validation accepts or refuses objects of one kind. Its callbacks return nil or an error, like Mutation's Apply. An
// operation without a callback is not registered. On DELETE, obj is the object that is about to be deleted.
//
// Rule judges an object as it is, on CREATE and UPDATE. An update that it refuses is admitted with a warning if the old
// object violated the same, and the update leaves the values in question as they were: an object that is older than the
// rule can still be labelled, and edited elsewhere. For a denial of Invalid, these are the values at its fields, with items
// of lists paired as in a patch; for another denial, all but metadata and status. Rule beside Create or Update runs in
// addition, and the denials are joined. Update is for transitions.
type Validation[T client.Object] struct {
	ID       string
	Settings Settings
	Rule     func(ctx context.Context, c *Call, obj T) error
	Create   func(ctx context.Context, c *Call, obj T) error
	Update   func(ctx context.Context, c *Call, oldObj, newObj T) error
	Delete   func(ctx context.Context, c *Call, obj T) error
}

// Subresource accepts or refuses operations on a subresource: exec and attach of pods, proxy of services (CONNECT),
// eviction (CREATE), scale, status. T is the kind of the request's object: PodExecOptions, Eviction, Scale. oldObj or
// newObj is nil if the request does not carry it.
//
// Settings.Operations can be empty for the subresources of built-in kinds, for status and for scale. Validate reports a name, an
// operation or a T that the API server never sends for the subresource.
type Subresource[T runtime.Object] struct {
	ID          string
	Resource    schema.GroupVersionResource // pods, apps/v1 deployments
	Subresource string                      // exec, eviction, scale
	Settings    Settings
	Check       func(ctx context.Context, c *Call, oldObj, newObj T) error
}

// Deny returns an error that refuses the object with 403 Forbidden and this message.
func Deny(format string, args ...any) error {
	return &apierrors.StatusError{ErrStatus: metav1.Status{
		Status: metav1.StatusFailure, Code: http.StatusForbidden, Reason: metav1.StatusReasonForbidden,
		Message: fmt.Sprintf(format, args...),
	}}
}

// Invalid returns an error that refuses the object in the same way as the API server's own validation: with 422 and a
// cause for each field. It returns nil for an empty list.
func Invalid(list field.ErrorList) error {
	if len(list) == 0 {
		return nil
	}
	details := &metav1.StatusDetails{}
	for _, e := range list {
		details.Causes = append(details.Causes, metav1.StatusCause{Type: metav1.CauseType(e.Type), Message: e.ErrorBody(), Field: e.Field})
	}
	return &apierrors.StatusError{ErrStatus: metav1.Status{
		Status: metav1.StatusFailure, Code: http.StatusUnprocessableEntity, Reason: metav1.StatusReasonInvalid,
		Message: list.ToAggregate().Error(), Details: details,
	}}
}

// typed is a Mutation, Validation or Subresource of any T.
type typed interface {
	define() (definition, error)
}

// definition is a step as the program defines it, before its resource is looked up in the cluster.
type definition struct {
	name       string // a DNS label, unique within the Manager
	chosen     bool   // the user chose the name
	settings   Settings
	validating bool
	object     reflect.Type                            // T without its pointer; nil for an Extension, which is for pods
	operations []admissionregistrationv1.OperationType // empty: the operations that the kind allows
	resource   schema.GroupVersionResource             // of a Subresource
	subpath    string                                  // of a Subresource
	run        func(ctx context.Context, c *Call, oldObj, newObj runtime.Object) error
	rule       func(ctx context.Context, c *Call, obj runtime.Object) error // of a Validation, beside run or instead of it
	compares   bool                                                         // a Validation with Update
	extension  Extension                                                    // instead of run
}

func (d definition) mutates() bool { return !d.validating }

func (d *definition) newObject() runtime.Object {
	return reflect.New(d.object).Interface().(runtime.Object)
}

// elementOf returns the struct type that T points to.
func elementOf[T runtime.Object](what string) (reflect.Type, error) {
	t := reflect.TypeFor[T]()
	if t.Kind() != reflect.Pointer || t.Elem().Kind() != reflect.Struct {
		return nil, fmt.Errorf("eirinix: %s[%s]: T must be a pointer to an API type, such as *corev1.Pod", what, t)
	}
	return t.Elem(), nil
}

func (s Mutation[T]) define() (definition, error) {
	object, err := elementOf[T]("Mutation")
	if err != nil {
		return definition{}, err
	}
	if s.Apply == nil {
		return definition{}, fmt.Errorf("eirinix: Mutation[%s] %s has no Apply; set it to the function that changes the object", reflect.TypeFor[T](), stepname.Quoted(s.ID))
	}
	return definition{
		name: stepname.OfStep(s.ID, object.Name(), "mutation"), chosen: s.ID != "", settings: s.Settings, object: object,
		run: func(ctx context.Context, c *Call, _, newObj runtime.Object) error {
			return s.Apply(ctx, c, newObj.(T))
		},
	}, nil
}

func (s Validation[T]) define() (definition, error) {
	object, err := elementOf[T]("Validation")
	if err != nil {
		return definition{}, err
	}
	d := definition{name: stepname.OfStep(s.ID, object.Name(), "validation"), chosen: s.ID != "", settings: s.Settings, validating: true, object: object, compares: s.Update != nil}
	if s.Create != nil || s.Rule != nil {
		d.operations = append(d.operations, admissionregistrationv1.Create)
	}
	if s.Update != nil || s.Rule != nil {
		d.operations = append(d.operations, admissionregistrationv1.Update)
	}
	if s.Delete != nil {
		d.operations = append(d.operations, admissionregistrationv1.Delete)
	}
	if len(d.operations) == 0 {
		return definition{}, fmt.Errorf("eirinix: Validation[%s] %s has no callback; set Rule, Create, Update or Delete", reflect.TypeFor[T](), stepname.Quoted(s.ID))
	}
	if s.Create != nil || s.Update != nil || s.Delete != nil {
		d.run = s.run
	}
	if s.Rule != nil {
		d.rule = func(ctx context.Context, c *Call, obj runtime.Object) error { return s.Rule(ctx, c, obj.(T)) }
	}
	return d, nil
}

// run calls the callback of the operation. If Settings.Rules registered an operation without a callback, the object
// is accepted.
func (s Validation[T]) run(ctx context.Context, c *Call, oldObj, newObj runtime.Object) error {
	switch operation := admissionregistrationv1.OperationType(c.Operation); {
	case operation == admissionregistrationv1.Create && s.Create != nil:
		return s.Create(ctx, c, as[T](newObj))
	case operation == admissionregistrationv1.Update && s.Update != nil:
		return s.Update(ctx, c, as[T](oldObj), as[T](newObj))
	case operation == admissionregistrationv1.Delete && s.Delete != nil:
		return s.Delete(ctx, c, as[T](oldObj))
	}
	return nil
}

func (s Subresource[T]) define() (definition, error) {
	object, err := elementOf[T]("Subresource")
	if err != nil {
		return definition{}, err
	}
	what := fmt.Sprintf("eirinix: Subresource[%s] %s", reflect.TypeFor[T](), stepname.Quoted(s.ID))
	switch {
	case s.Check == nil:
		return definition{}, fmt.Errorf("%s has no Check; set it to the function that decides", what)
	case s.Resource.Resource == "" || s.Resource.Version == "":
		return definition{}, fmt.Errorf("%s has no Resource; give version and plural, such as corev1.SchemeGroupVersion.WithResource(\"pods\")", what)
	case s.Subresource == "":
		return definition{}, fmt.Errorf("%s has no Subresource; give its name, such as \"exec\"", what)
	}
	id := cmp.Or(s.ID, s.Resource.Resource+"-"+s.Subresource)
	return definition{
		name: stepname.OfStep(id, object.Name(), ""), chosen: s.ID != "", settings: s.Settings, validating: true, object: object,
		resource: s.Resource, subpath: s.Subresource,
		run: func(ctx context.Context, c *Call, oldObj, newObj runtime.Object) error {
			return s.Check(ctx, c, as[T](oldObj), as[T](newObj))
		},
	}, nil
}

// as converts obj to T. An object that the request does not carry becomes a nil T, not an interface that holds a nil.
func as[T runtime.Object](obj runtime.Object) T {
	if obj == nil {
		var none T
		return none
	}
	return obj.(T)
}

// Settings configures the registration of a step. The zero value inherits from ManagerOptions and the defaults below.
// Validate reports settings that the API server would refuse, with the same reason, except for the expressions in
// Conditions.
//
// Steps of the same kind share one webhook entry if their Objects, Namespaces, Conditions, MatchPolicy, SideEffects,
// Reinvoke and EveryUpdate are equal. They cost the API server only one call, and run in the order in which they were added. While the
// program is down, such an entry refuses exactly those objects that its steps would refuse if each had its own entry.
type Settings struct {
	// Operations are the operations that the step is called for. "*" means all operations that are possible for it.
	// Only one of Operations and Rules can be set, because Rules have operations of their own.
	//
	// Empty means, for a Validation, the operations that have a callback, of which Rule has two; for an Extension, CREATE; for a Mutation,
	// CREATE and UPDATE. A Mutation of Pods or Jobs is called only for CREATE. On UPDATE the API server would refuse a
	// change to an immutable field, and with it the user's own edit.
	Operations []admissionregistrationv1.OperationType

	// Rules select the requests that are sent. Empty means the kind of T, under its resource name in the cluster, and
	// Operations.
	//
	// A wildcard among the resources selects namespaced resources only. It excludes the resources that a cluster needs
	// to start and recover. These are Leases, access reviews, tokens of ServiceAccounts and the Service of the API
	// servers. To receive them, name them.
	Rules []admissionregistrationv1.RuleWithOperations

	// Namespaces selects objects by the labels of their namespace. Empty means ManagerOptions.Namespace, else all
	// namespaces except the cluster's own.
	//
	// It does not apply to cluster-scoped objects, other than Namespaces, which are selected by their own labels. A
	// step for Namespaces does not inherit ManagerOptions.Namespace. It sees the cluster's own namespaces and the
	// webhook's only if this selects them by the label kubernetes.io/metadata.name.
	Namespaces *metav1.LabelSelector

	// Objects selects objects by the labels of their old or new version.
	Objects *metav1.LabelSelector

	// Conditions are CEL expressions that must all be true. The API server compiles and evaluates them. If one does not
	// compile, Start and RegisterExtensions fail with the API server's message. A Harness and a preview refuse it too.
	Conditions []admissionregistrationv1.MatchCondition

	// FailurePolicy decides about the object if the step fails. Empty means ManagerOptions.FailurePolicy.
	FailurePolicy admissionregistrationv1.FailurePolicyType

	// MatchPolicy decides whether a rule also selects requests for the same object in another API version. Empty means
	// Equivalent.
	MatchPolicy admissionregistrationv1.MatchPolicyType

	// Timeout is the time limit of the step, in whole seconds from 1 to 30. The timeout of a shared call is the sum of
	// its steps' timeouts. Steps whose sum exceeds 30 s do not share a call; if they are mutating ones with Ignore
	// for the same objects, Validate refuses them, because the API server has no more time for a request. Zero means
	// the time that the other steps of the call leave, and half of it for a step with Ignore beside steps with Fail. For
	// all of its steps without a Timeout together, a call's timeout has 5 s more.
	Timeout time.Duration

	// Reinvoke decides whether the step sees an object again after a later step or webhook has changed it. Empty means
	// Never.
	Reinvoke admissionregistrationv1.ReinvocationPolicyType

	// SideEffects must be None (the default), or NoneOnDryRun if the step has side effects, but none in a dry run.
	SideEffects admissionregistrationv1.SideEffectClass

	// Isolated gives the step its own webhook entry, even if it could share one.
	Isolated bool

	// AllowClusterCritical acknowledges that the step can stop the cluster. It allows kube-system, the webhook's own
	// namespace, and */* with failurePolicy Fail.
	AllowClusterCritical bool

	// EveryUpdate lets the step see requests that leave it nothing to judge, too. Without it, the step sees neither the
	// UPDATE of an object that is being deleted if that changes only status and, in metadata, finalizers, ownerReferences and
	// what the API server writes there, nor the DELETE of such an object. The API server leaves these out itself, also while
	// the program is down. Neither does the step see an UPDATE that changes nothing but managedFields. So an object that
	// violates a rule can go, and be stored anew. Set EveryUpdate for a step that guards finalizers. A step sees all requests
	// for a subresource.
	EveryUpdate bool

	// Owned decides which objects with an owner a mutating step leaves alone. Empty means OwnedAuto. A step that only
	// validates sees all objects.
	Owned OwnedPolicy

	// Mode decides about the effect of the step's results. Empty means ModeDeny. A change of the mode writes nothing to
	// the webhook configuration, except a change from or to ModeShadow.
	Mode Mode

	// FixedMode makes an entry for this step in the ConfigMap of ManagerOptions.ModesConfigMap an error, so that the mode can be
	// changed only in the program.
	FixedMode bool

	// DependsOnUser declares that the result depends on the user who sends the request. An audit has no user, and does not
	// ask the step.
	DependsOnUser bool

	// Reads declares what the step looks at beside the object of the request, for Call.Reader. A step is registered once
	// all of its Reads have been listed, and what they require is there. While the cluster does not serve one of the kinds,
	// or the program may not list it, the step is held back, and the rest of the program is served.
	Reads []Read
}

// registered returns the part of the Settings on which the registration depends.
func (s Settings) registered() webhookconf.Settings {
	return webhookconf.Settings{
		Operations: s.Operations, Rules: s.Rules, Namespaces: s.Namespaces, Objects: s.Objects, Conditions: s.Conditions,
		FailurePolicy: s.FailurePolicy, MatchPolicy: s.MatchPolicy, Timeout: s.Timeout, Reinvoke: s.Reinvoke,
		SideEffects: s.SideEffects, Isolated: s.Isolated, AllowClusterCritical: s.AllowClusterCritical,
		EveryUpdate: s.EveryUpdate, Owned: s.Owned, Mode: s.Mode, FixedMode: s.FixedMode, DependsOnUser: s.DependsOnUser,
	}
}

// Mode decides about the effect of a step's results, so that a new rule can watch before it refuses. A failure is not a
// result: failurePolicy decides on it in every mode.
type Mode = webhookconf.Mode

const (
	// ModeDeny refuses what the step denies, and makes the changes of a mutating step.
	ModeDeny = webhookconf.ModeDeny

	// ModeWarn reports to the user, in a warning, what the step would deny, or the paths that it would change. Later
	// steps see the object without the changes.
	ModeWarn = webhookconf.ModeWarn

	// ModeAudit shows the user nothing. It reports the same in the API server's audit log, in the annotations would-deny
	// and would-change of the webhook. The step's own warnings are dropped.
	ModeAudit = webhookconf.ModeAudit

	// ModeShadow reports the same in the program's log and metrics alone. The step runs after the answer, so that no
	// request waits for it. Its failurePolicy is Ignore. Up to 200 runs wait, with 32 MiB of objects. Further ones are
	// dropped and counted.
	ModeShadow = webhookconf.ModeShadow
)

// OwnedPolicy decides which objects a mutating step leaves alone, because a controller would revert its changes. They
// are counted with the decision skipped_owned.
type OwnedPolicy = webhookconf.OwnedPolicy

const (
	// OwnedAuto leaves alone what a controller of Kubernetes sends of the objects that it makes and compares with what it
	// wants: ReplicaSets of a Deployment, ControllerRevisions of a StatefulSet or DaemonSet, EndpointSlices and Endpoints of
	// a Service, and EndpointSlices of Endpoints. It also leaves alone UPDATEs of those, by any user, that change only their
	// metadata, status and number of replicas, and mirror pods that a kubelet sends. It sees all other objects, with any
	// owner, because every client may write ownerReferences.
	OwnedAuto = webhookconf.OwnedAuto

	// OwnedSkip leaves alone all objects with a controller among their ownerReferences, Pods too. Every client may write
	// those, so it is not for a step that protects something.
	OwnedSkip = webhookconf.OwnedSkip

	// OwnedSee sees all objects. A change to one that a controller compares starts a fight of writes.
	OwnedSee = webhookconf.OwnedSee
)

// Configured is implemented by an Extension that has Settings. An Extension without Settings is registered for the
// CREATE of pods.
type Configured interface{ Settings() Settings }
