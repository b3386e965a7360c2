// Package offline shows what a Manager serves and registers, without a cluster. It is for code that plays the part of the
// API server: tests, previews, checks in a pipeline.
//
//	program, err := offline.Of(x, offline.Options{})
package offline

import (
	"context"
	"net/http"

	admissionv1 "k8s.io/api/admission/v1"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/apiutil"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"

	"code.cloudfoundry.org/eirinix"
	"code.cloudfoundry.org/eirinix/internal/admit"
	"code.cloudfoundry.org/eirinix/internal/chain"
	"code.cloudfoundry.org/eirinix/internal/list"
	"code.cloudfoundry.org/eirinix/internal/mapper"
	"code.cloudfoundry.org/eirinix/internal/reads"
	"code.cloudfoundry.org/eirinix/internal/resources"
	"code.cloudfoundry.org/eirinix/internal/seam"
	"code.cloudfoundry.org/eirinix/internal/snapshots"
	"code.cloudfoundry.org/eirinix/internal/typedconf"
	"code.cloudfoundry.org/eirinix/internal/webhookconf"
)

// Program is what a Manager serves and registers. The caller owns the configurations and can change them.
type Program struct {
	// Handler answers AdmissionReviews on the paths of the webhooks' URLs or Service references, as the started Manager
	// does, and ConversionReviews on /convert/ with the name of the definition. It is safe for concurrent use.
	Handler http.Handler

	// Mutating and Validating have every field set that an API server fills in, but no caBundle. The entry that
	// Diagnose uses is missing too. Each is nil if there is no step of its kind.
	Mutating   *admissionregistrationv1.MutatingWebhookConfiguration
	Validating *admissionregistrationv1.ValidatingWebhookConfiguration

	// Reads are what the steps look at, by the name of the step, as Settings.Reads declares it.
	Reads map[string][]eirinix.Read

	// Conversions are those that were added. Handler answers their ConversionReviews.
	Conversions []Conversion

	// Scheme and Mapper are those that the rules were derived with. The Mapper knows all versions of Conversions.
	Scheme *runtime.Scheme
	Mapper meta.RESTMapper
}

// Conversion describes a conversion.Of that was added.
type Conversion struct {
	CRD   string // the name of the CustomResourceDefinition
	Path  string // of its ConversionReviews
	Lossy bool

	// Versions holds an empty object of each version, with its apiVersion. The Hub is the first. The kind of an object
	// is set if its version has a Go type. Otherwise it is an *unstructured.Unstructured.
	Versions []runtime.Object
}

// Options replaces the information that a cluster provides. The zero value is right for built-in kinds, and for
// kinds of the scheme that are namespaced and have a regular plural.
type Options struct {
	// Resources are the kinds that the scheme does not hold, that have an irregular plural or that are cluster-scoped.
	Resources []Resource

	// Mapper replaces the one that is made from the scheme and Resources.
	Mapper meta.RESTMapper

	// Observe is called when a step begins, on the step's goroutine and with its context, which holds the values of the
	// HTTP request's context. The function that it returns is called on the same goroutine when the step ends. If a
	// step ignores its deadline, both can run after the response has been sent. Observe must be safe for concurrent
	// use.
	Observe func(ctx context.Context, step string) (ended func(StepEnd))

	// Modes is the ConfigMap of ManagerOptions.ModesConfigMap. nil means that the modes are the program's own. Its lines about labels
	// find the Namespaces among Objects.
	Modes *corev1.ConfigMap

	// Objects returns the objects of the cluster that the steps' Reads select from. It is called once for each call that
	// reads, with a context that holds the values of the HTTP request's. Its error fails what the steps read. Objects
	// are of the Manager's scheme, or unstructured. nil means that there are none.
	Objects func(ctx context.Context) ([]client.Object, error)
}

// Resource describes how a cluster serves a kind.
type Resource struct {
	Kind          schema.GroupVersionKind
	Resource      string // the plural, as in URLs and rules; default: the kind's regular plural in lower case
	ClusterScoped bool   // its objects are in no namespace
}

// StepEnd is the outcome of a step: an error, which is nil if the step accepts the object; a Response, for an
// Extension; or a panic.
type StepEnd struct {
	Err      error
	Response *admission.Response
	Panic    any    // the value it panicked with; nil if it did not panic
	Stack    []byte // the stack of the panic
}

// Of returns the handler and the configurations that Start would serve and register. It needs no certificates, network or
// cluster. The options and extensions must be as valid as for Start, but Host can be empty. The steps receive this
// Manager. Extensions that are added later are not included. Of can be called any number of times, also before Start.
//
// A step in ModeShadow runs before the answer, as in ModeAudit, so that its results can be seen.
func Of(m *eirinix.ExtensionManager, o Options) (*Program, error) {
	p, err := seam.Of(m)
	if err != nil {
		return nil, err
	}
	program := &Program{Reads: map[string][]eirinix.Read{}}
	newMapper := mapper.New
	if o.Mapper != nil {
		newMapper = func(*runtime.Scheme, []resources.Resource) meta.RESTMapper { return o.Mapper }
	}
	made, err := p.Offline(seam.World{
		NewMapper: newMapper, Resources: list.Of(o.Resources, func(r Resource) resources.Resource { return resources.Resource(r) }),
		Modes: o.Modes, Labels: o.labelsOf,
		Reads: func(declared *reads.Set, scheme *runtime.Scheme) seam.Reading {
			return snapshots.Source{Set: declared, Scheme: scheme, Objects: o.Objects}
		},
	})
	if err != nil {
		return nil, err
	}
	for step, declared := range made.Reads {
		program.Reads[step] = declared.([]eirinix.Read)
	}
	handler := &admit.Handler{MaxBytes: made.MaxRequestBytes, Log: p.Log, Others: made.Others}
	for path, entry := range made.Chains {
		for i := range entry.Steps {
			seen(&entry.Steps[i])
			if o.Observe != nil {
				observe(&entry.Steps[i], o.Observe)
			}
		}
		handler.Serve(path, entry)
	}
	program.convert(handler, made.Conversions)
	program.Handler, program.Scheme, program.Mapper = made.Tapped(handler), made.Scheme, made.Mapper
	program.Mutating = typedconf.Of[admissionregistrationv1.MutatingWebhookConfiguration](made.Webhooks, webhookconf.Mutating, made.Entries)
	program.Validating = typedconf.Of[admissionregistrationv1.ValidatingWebhookConfiguration](made.Webhooks, webhookconf.Validating, made.Entries)
	return program, nil
}

// seen makes a step in ModeShadow run before the answer.
func seen(step *chain.Step) {
	step.Mode = min(step.Mode, chain.ModeAudit) // ModeShadow is the greatest
	if choose := step.Choose; choose != nil {
		step.Choose = func(ctx context.Context, req *admissionv1.AdmissionRequest) (chain.Mode, error) {
			mode, err := choose(ctx, req)
			return min(mode, chain.ModeAudit), err
		}
	}
}

// convert serves the conversions.
func (p *Program) convert(handler *admit.Handler, conversions []seam.Conversion) {
	served, keys := map[string]admit.Conversion{}, seam.Keys(nil)
	for _, c := range conversions {
		if keys == nil {
			keys = c.NewKeys(nil, types.NamespacedName{}, false, handler.Log)
		}
		path := admit.ConvertPrefix + c.CRD
		served[path] = admit.Conversion{Name: c.CRD, Answer: c.Answer(seam.Serving{
			Keys: keys, Counts: handler.Counts().Conversion(c.CRD), Log: handler.Log.WithValues("customResourceDefinition", c.CRD),
		})}
		p.Conversions = append(p.Conversions, Conversion{CRD: c.CRD, Path: path, Lossy: c.Lossy, Versions: list.Of(c.Versions, runtime.Object.DeepCopyObject)})
	}
	handler.Convert(served)
}

// labelsOf returns the labels of a namespace, which stands among Objects.
func (o Options) labelsOf(ctx context.Context, namespace string) (labels.Set, error) {
	if o.Objects == nil {
		return nil, nil
	}
	objects, err := o.Objects(ctx)
	for _, object := range objects {
		if kind, _ := apiutil.GVKForObject(object, clientgoscheme.Scheme); kind == corev1.SchemeGroupVersion.WithKind("Namespace") && object.GetName() == namespace {
			return object.GetLabels(), nil
		}
	}
	return nil, err
}
