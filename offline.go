package eirinix

// This file builds the handler and the webhook configurations of a Manager without a cluster.

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"runtime/debug"
	"strings"

	"github.com/go-logr/logr"
	admissionv1 "k8s.io/api/admission/v1"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/apiutil"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"

	"code.cloudfoundry.org/eirinix/internal/admit"
	"code.cloudfoundry.org/eirinix/internal/chain"
	"code.cloudfoundry.org/eirinix/internal/list"
	"code.cloudfoundry.org/eirinix/internal/modes"
	"code.cloudfoundry.org/eirinix/internal/resources"
	"code.cloudfoundry.org/eirinix/internal/webhookconf"
)

// offlineHost replaces a missing Host in the URLs of webhooks. It cannot be resolved.
const offlineHost = "webhook.invalid"

// Offline holds the handler that a Manager serves and the configurations that it registers. It is for code that plays
// the part of the API server: tests, previews, checks in a pipeline. The caller owns the configurations and can change
// them.
type Offline struct {
	// Handler answers AdmissionReviews on the paths of the webhooks' URLs or Service references, as the started Manager
	// does, and ConversionReviews on /convert/ with the name of the definition. It is safe for concurrent use.
	Handler http.Handler

	// Mutating and Validating have every field set that an API server fills in, but no caBundle. The entry that
	// Diagnose uses is missing too. Each is nil if there is no step of its kind.
	Mutating   *admissionregistrationv1.MutatingWebhookConfiguration
	Validating *admissionregistrationv1.ValidatingWebhookConfiguration

	// Reads are what the steps look at, by the name of the step, as Settings.Reads declares it.
	Reads map[string][]Read

	// Conversions are those that were added. Handler answers their ConversionReviews.
	Conversions []OfflineConversion

	// Scheme and Mapper are those that the rules were derived with. The Mapper knows all versions of Conversions.
	Scheme *runtime.Scheme
	Mapper meta.RESTMapper
}

// OfflineConversion describes a Conversion that was added.
type OfflineConversion struct {
	CRD   string // the name of the CustomResourceDefinition
	Path  string // of its ConversionReviews
	Lossy bool

	// Versions holds an empty object of each version, with its apiVersion. The Hub is the first. The kind of an object
	// is set if its version has a Go type. Otherwise it is an *unstructured.Unstructured.
	Versions []runtime.Object
}

// OfflineOptions replaces the information that a cluster provides. The zero value is right for built-in kinds, and for
// kinds of the scheme that are namespaced and have a regular plural.
type OfflineOptions struct {
	// Resources are the kinds that the scheme does not hold, that have an irregular plural or that are cluster-scoped.
	Resources []OfflineResource

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

// OfflineResource describes how a cluster serves a kind.
type OfflineResource struct {
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

// errGoexit is the outcome of a step that neither returned nor panicked.
var errGoexit = errors.New("it ended its goroutine (runtime.Goexit, which t.FailNow calls too)")

// Offline returns the handler and the configurations that Start would serve and register. It needs no certificates,
// network or cluster. The options and extensions must be as valid as for Start, but Host can be empty. The steps
// receive this Manager. Extensions that are added later are not included. Offline can be called any number of times,
// also before Start.
//
// A step in ModeShadow runs before the answer, as in ModeAudit, so that its results can be seen.
func (m *ExtensionManager) Offline(o OfflineOptions) (*Offline, error) {
	s := m.given()
	if err := s.validate(false, nil); err != nil {
		return nil, err
	}
	r := newResolver(s.options, resources.Cluster{Mapper: o.Mapper})
	if o.Mapper == nil {
		given := list.Of(o.Resources, func(k OfflineResource) resources.Resource { return resources.Resource(k) })
		r.cluster.Mapper = s.offlineMapper(r.scheme, given)
	}
	var err error
	if r.modes, err = s.offlineModes(o); err != nil {
		return nil, err
	}
	all, err := r.all(s.steps)
	if err == nil && len(all.waiting) > 0 {
		w := all.waiting[0]
		err = fmt.Errorf("eirinix: step %q: %w; without a cluster, name the kind in OfflineOptions.Resources", w.name, w.why)
	}
	if err != nil {
		return nil, err
	}
	declared, err := r.newReads(s.steps, logr.Discard(), nil)
	if err != nil {
		return nil, err
	}
	chains, err := m.chains(all, nil, r.modes, offlineReads{declared, r.scheme, o.Objects})
	if err != nil {
		return nil, prefixed(err)
	}
	handler := &admit.Handler{MaxBytes: cmp.Or(s.options.MaxRequestBytes, defaultMaxRequestBytes), Log: m.logr(), Others: m.hooks}
	for path, entry := range chains {
		for i := range entry.Steps {
			step := &entry.Steps[i]
			if step.Mode == chain.ModeShadow {
				step.Mode = chain.ModeAudit
			}
			if choose := step.Choose; choose != nil {
				step.Choose = func(ctx context.Context, req *admissionv1.AdmissionRequest) (chain.Mode, error) {
					mode, err := choose(ctx, req)
					return min(mode, chain.ModeAudit), err // and not ModeShadow, which is the greatest
				}
			}
			if o.Observe != nil {
				observe(step, o.Observe)
			}
		}
		handler.Serve(path, entry)
	}
	m.serveConversions(handler, s.conversions, offlineKeys(), nil)
	offline := &Offline{Handler: m.tapped(handler), Scheme: r.scheme, Mapper: r.cluster.Mapper, Reads: map[string][]Read{}}
	for _, d := range s.steps {
		if len(d.settings.Reads) > 0 {
			offline.Reads[d.name] = d.settings.Reads
		}
	}
	offline.Conversions = list.Of(s.conversions, conversionOf.offline)
	webhooks := s.options.offlineWebhooks()
	offline.Mutating = webhookconf.Typed[admissionregistrationv1.MutatingWebhookConfiguration](webhooks, webhookconf.Mutating, all.entries)
	offline.Validating = webhookconf.Typed[admissionregistrationv1.ValidatingWebhookConfiguration](webhooks, webhookconf.Validating, all.entries)
	return offline, nil
}

// offlineModes returns the modes that the given ConfigMap puts in force, or nil without one.
func (s setup) offlineModes(o OfflineOptions) (*modes.Modes, error) {
	if o.Modes == nil || s.options.ModesConfigMap == "" {
		return nil, nil
	}
	made := s.newModes(o.Modes.Namespace, logr.Discard())
	made.Labels = func(ctx context.Context, namespace string) (labels.Set, error) {
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
	made.Set(o.Modes)
	if _, problems := made.Describe(); len(problems) > 0 {
		return nil, fmt.Errorf("eirinix: ConfigMap %s of ManagerOptions.ModesConfigMap: %s", made.ConfigMap, strings.Join(problems, "; "))
	}
	return made, nil
}

// offlineWebhooks returns the options of the configurations. A Host is not required.
func (o ManagerOptions) offlineWebhooks() webhookconf.Options {
	options := o.webhookOptions(o.port())
	if !o.serviceMode() {
		options.Target.Host = cmp.Or(options.Target.Host, offlineHost)
	}
	return options
}

// observe makes begin and the function that it returns run around every call of the step.
func observe(s *chain.Step, begin func(context.Context, string) func(StepEnd)) {
	watched := func(ctx context.Context, run func() StepEnd) {
		ended := begin(ctx, s.Name)
		end := StepEnd{Err: errGoexit}
		defer func() {
			if r := recover(); r != nil {
				ended(StepEnd{Panic: r, Stack: debug.Stack()})
				panic(r) //nolint:forbidigo // it is the step's, and the chain answers for it
			}
			ended(end)
		}()
		end = run()
	}
	if handle := s.Handle; handle != nil {
		s.Handle = func(ctx context.Context, req admission.Request) (resp admission.Response) {
			watched(ctx, func() StepEnd {
				resp = handle(ctx, req)
				return StepEnd{Response: &resp}
			})
			return resp
		}
	}
	if run := s.Run; run != nil {
		s.Run = func(ctx context.Context, c *chain.Call, oldObj, newObj runtime.Object) (err error) {
			watched(ctx, func() StepEnd {
				err = run(ctx, c, oldObj, newObj)
				return StepEnd{Err: err}
			})
			return err
		}
	}
}

// offlineMapper returns a RESTMapper of the kinds of the scheme, of those that are given, and of the conversions. It
// needs no cluster.
func (s setup) offlineMapper(scheme *runtime.Scheme, given []resources.Resource) meta.RESTMapper {
	for _, c := range s.conversions {
		given = append(given, c.resources(given, scheme)...)
	}
	return resources.NewMapper(scheme, given)
}
