package eirinix

import (
	"context"
	"fmt"
	"net/http"
	"reflect"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"

	"code.cloudfoundry.org/eirinix/internal/admit"
	"code.cloudfoundry.org/eirinix/internal/stepname"
)

// Call is what a typed step sees of a request beside the object. Its methods are safe for concurrent use. The
// Raw members of the Request are shared between steps: read them only. A Call made by hand, in a unit test,
// works too; what it is told goes nowhere.
type Call struct {
	admission.Request
	Manager Manager

	exchange *admit.Exchange
}

// Warn shows a warning on the terminal of the user who made the request, whatever the verdict. The API server
// cuts warnings to 256 characters once they are longer than 4096 together.
func (c *Call) Warn(format string, args ...any) { c.exchange.Warn(fmt.Sprintf(format, args...)) }

// Audit adds an annotation to the API server's audit log, under a key that must be a qualified name without
// prefix. Where two steps of one call use the same key, the later one's gets the step's name in front.
func (c *Call) Audit(key, value string) { c.exchange.Audit(key, value) }

// Mutation changes objects of one kind on their way into the cluster: on CREATE and UPDATE, Pods and Jobs on CREATE alone,
// unless Settings.Operations or Settings.Rules say otherwise. T is a pointer to a type of the Manager's scheme, or *unstructured.Unstructured with Rules.
//
// Apply changes the object in place, and the library makes the patch. It runs on many goroutines and may see
// an object again (reinvocation), so it must be idempotent; in a dry run (Call.DryRun) it must change nothing
// else. An error made by Deny or Invalid refuses the object, and so does an API status of 400, 403 or 422 whose details
// name this object or none (apierrors.NewInvalid); every other error is a failure, which failurePolicy decides, also an
// API status that a client of the step's own was told. The context ends shortly before the API server gives up.
type Mutation[T client.Object] struct {
	ID       string // names the step; made from the kind when left out
	Settings Settings
	Apply    func(ctx context.Context, c *Call, obj T) error
}

// Validation accepts or refuses objects of one kind: by returning nil, or an error as Mutation's Apply does.
// An operation without callback is not registered. On DELETE the object is the one that is about to go.
type Validation[T client.Object] struct {
	ID       string
	Settings Settings
	Create   func(ctx context.Context, c *Call, obj T) error
	Update   func(ctx context.Context, c *Call, oldObj, newObj T) error
	Delete   func(ctx context.Context, c *Call, obj T) error
}

// Subresource accepts or refuses what is done to a subresource: exec and attach of pods, proxy of services
// (CONNECT), eviction (CREATE), scale, status. T is the kind that goes over the wire there: PodExecOptions,
// Eviction, Scale. Either object is nil where the request does not carry it. Operations may be left out for the
// subresources of built-in kinds, for status and for scale; a name, an operation or a T that the API server never sends
// there is an error of Validate.
type Subresource[T runtime.Object] struct {
	ID          string
	Resource    schema.GroupVersionResource // pods, apps/v1 deployments
	Subresource string                      // exec, eviction, scale
	Operations  []admissionregistrationv1.OperationType
	Settings    Settings
	Check       func(ctx context.Context, c *Call, oldObj, newObj T) error
}

// Deny refuses the object, with 403 Forbidden and this message.
func Deny(format string, args ...any) error {
	return &apierrors.StatusError{ErrStatus: metav1.Status{
		Status: metav1.StatusFailure, Code: http.StatusForbidden, Reason: metav1.StatusReasonForbidden,
		Message: fmt.Sprintf(format, args...),
	}}
}

// Invalid refuses the object as the API server refuses one that its own validation finds wrong: 422, with a
// cause for each field. An empty list is no error.
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

// typed is a Mutation, Validation or Subresource, whatever its T.
type typed interface {
	define() (definition, error)
}

// definition is a step before the cluster has been asked what its kind is called there.
type definition struct {
	name       string // a DNS label, unique within the Manager
	chosen     bool   // by the user
	settings   Settings
	validating bool
	object     reflect.Type                            // T without its pointer; nil for an Extension, which is for pods
	operations []admissionregistrationv1.OperationType // empty: those that its kind allows
	resource   schema.GroupVersionResource             // of a Subresource
	subpath    string                                  // of a Subresource
	mutate     func(ctx context.Context, c *Call, obj runtime.Object) error
	check      func(ctx context.Context, c *Call, oldObj, newObj runtime.Object) error
	extension  Extension
}

func (d *definition) newObject() runtime.Object {
	return reflect.New(d.object).Interface().(runtime.Object)
}

// elementOf gives the struct type behind T.
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
		mutate: func(ctx context.Context, c *Call, obj runtime.Object) error {
			return s.Apply(ctx, c, obj.(T))
		},
	}, nil
}

func (s Validation[T]) define() (definition, error) {
	object, err := elementOf[T]("Validation")
	if err != nil {
		return definition{}, err
	}
	d := definition{name: stepname.OfStep(s.ID, object.Name(), "validation"), chosen: s.ID != "", settings: s.Settings, validating: true, object: object}
	if s.Create != nil {
		d.operations = append(d.operations, admissionregistrationv1.Create)
	}
	if s.Update != nil {
		d.operations = append(d.operations, admissionregistrationv1.Update)
	}
	if s.Delete != nil {
		d.operations = append(d.operations, admissionregistrationv1.Delete)
	}
	if len(d.operations) == 0 {
		return definition{}, fmt.Errorf("eirinix: Validation[%s] %s has no callback; set Create, Update or Delete", reflect.TypeFor[T](), stepname.Quoted(s.ID))
	}
	d.check = s.check
	return d, nil
}

// check calls the callback of the operation. One that Settings.Rules registered without a callback passes.
func (s Validation[T]) check(ctx context.Context, c *Call, oldObj, newObj runtime.Object) error {
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
	id := s.ID
	if id == "" {
		id = s.Resource.Resource + "-" + s.Subresource
	}
	return definition{
		name: stepname.OfStep(id, object.Name(), ""), chosen: s.ID != "", settings: s.Settings, validating: true, object: object,
		operations: s.Operations, resource: s.Resource, subpath: s.Subresource,
		check: func(ctx context.Context, c *Call, oldObj, newObj runtime.Object) error {
			return s.Check(ctx, c, as[T](oldObj), as[T](newObj))
		},
	}, nil
}

// as gives a nil T, and no interface around a nil, for an object that the request does not carry.
func as[T runtime.Object](obj runtime.Object) T {
	if obj == nil {
		var none T
		return none
	}
	return obj.(T)
}
