package eirinix

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"runtime/debug"
	"slices"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"

	"code.cloudfoundry.org/eirinix/internal/admit"
	"code.cloudfoundry.org/eirinix/internal/resources"
	"code.cloudfoundry.org/eirinix/internal/webhookconf"
)

// offlineHost stands in the URLs of webhooks for the Host that the options leave out. Nobody can call it.
const offlineHost = "webhook.invalid"

// Offline is what a Manager would serve and what it would register, for those who play the API server's part
// themselves: tests, previews, checks in a pipeline. The configurations are the caller's own.
type Offline struct {
	// Handler answers AdmissionReviews on the paths of the webhooks' URLs or Service references, as the started
	// Manager does. It is safe for concurrent use.
	Handler http.Handler

	// Mutating and Validating hold every field that an API server would fill in, but no caBundle, and not the entry
	// by which Diagnose finds its way. Either is nil where there is no step of its kind.
	Mutating   *admissionregistrationv1.MutatingWebhookConfiguration
	Validating *admissionregistrationv1.ValidatingWebhookConfiguration

	// Scheme and Mapper know the kinds that the rules were derived with.
	Scheme *runtime.Scheme
	Mapper meta.RESTMapper
}

// OfflineOptions says what a cluster would have told. The zero value is right for built-in kinds, and for kinds of
// the scheme that are namespaced and have a regular plural.
type OfflineOptions struct {
	// Resources are kinds that the scheme does not hold, or that have an irregular plural or no namespace.
	Resources []OfflineResource

	// Mapper is to be used instead of one made from the scheme and Resources.
	Mapper meta.RESTMapper

	// Observe is called when a step begins, on the step's goroutine and with its context, which holds the values
	// of the HTTP request's; what it returns is called on the same goroutine when the step ends. Either may
	// outlast the answer, where a step ignores its deadline. It must be safe for concurrent use.
	Observe func(ctx context.Context, step string) (ended func(StepEnd))
}

// OfflineResource is a kind as a cluster serves it.
type OfflineResource struct {
	Kind          schema.GroupVersionKind
	Resource      string // the plural, as in URLs and rules; left out, the kind's regular plural in lower case
	ClusterScoped bool   // its objects belong to no namespace
}

// StepEnd is how a step ended: with an error, which is nil for one that has nothing against the object; with a
// Response, for an Extension; or with a panic.
type StepEnd struct {
	Err      error
	Response *admission.Response
	Panic    any    // what it panicked with; nil for none
	Stack    []byte // where it panicked
}

// errGoexit is the end of a step that neither returned nor panicked.
var errGoexit = errors.New("it ended its goroutine (runtime.Goexit, which t.FailNow calls too)")

// Offline gives what Start would serve and register, without certificates, network or cluster. Options and
// extensions must be as valid as for Start, but for the Host, which nobody calls. The steps are handed this
// Manager; what is added later is not seen. Call it as often as you like, also before Start.
func (m *ExtensionManager) Offline(o OfflineOptions) (*Offline, error) {
	m.mu.Lock()
	options, definitions := m.options, slices.Clone(m.steps)
	err := errors.Join(options.validate(false), errors.Join(m.addErrors...), checkSteps(options, definitions))
	m.mu.Unlock()
	if err != nil {
		return nil, err
	}
	r := newResolver(options, resources.Cluster{Mapper: o.Mapper})
	if o.Mapper == nil {
		given := make([]resources.Resource, 0, len(o.Resources))
		for _, k := range o.Resources {
			given = append(given, resources.Resource(k))
		}
		r.cluster.Mapper = resources.NewMapper(r.scheme, given)
	}
	all, err := r.all(definitions)
	if err == nil && len(all.waiting) > 0 {
		w := all.waiting[0]
		err = fmt.Errorf("eirinix: extension %q: %w; without a cluster, OfflineOptions.Resources must tell what the scheme does not", w.name, w.why)
	}
	if err != nil {
		return nil, err
	}
	chains, err := m.chains(all, nil)
	if err != nil {
		return nil, prefixed(err)
	}
	handler := &admit.Handler{MaxBytes: cmp.Or(options.MaxRequestBytes, defaultMaxRequestBytes), Log: m.logr(), Others: m.hooks}
	for path, chain := range chains {
		if o.Observe != nil {
			for i := range chain.Steps {
				observe(&chain.Steps[i], o.Observe)
			}
		}
		handler.Serve(path, chain)
	}
	offline := &Offline{Handler: m.recorded(handler), Scheme: r.scheme, Mapper: r.cluster.Mapper}
	offline.configure(options, all.entries)
	return offline, nil
}

func (o *Offline) configure(options ManagerOptions, entries []webhookconf.Entry) {
	registered := options.webhookOptions(options.port())
	if !options.serviceMode() && registered.Target.Host == "" {
		registered.Target.Host = offlineHost
	}
	version := admissionregistrationv1.SchemeGroupVersion.String()
	if kind, webhooks := webhookconf.Mutating, webhookconf.Mutating.Build(registered, entries); len(webhooks) > 0 {
		o.Mutating = &admissionregistrationv1.MutatingWebhookConfiguration{
			TypeMeta:   metav1.TypeMeta{APIVersion: version, Kind: kind.Name},
			ObjectMeta: metav1.ObjectMeta{Name: kind.ConfigurationName(options.OperatorFingerprint)}, Webhooks: webhooks,
		}
	}
	if kind, webhooks := webhookconf.Validating, webhookconf.Validating.Build(registered, entries); len(webhooks) > 0 {
		o.Validating = &admissionregistrationv1.ValidatingWebhookConfiguration{
			TypeMeta:   metav1.TypeMeta{APIVersion: version, Kind: kind.Name},
			ObjectMeta: metav1.ObjectMeta{Name: kind.ConfigurationName(options.OperatorFingerprint)}, Webhooks: webhooks,
		}
	}
}

// observe has every run of the step told.
func observe(s *admit.Step, begin func(context.Context, string) func(StepEnd)) {
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
	if mutate := s.Mutate; mutate != nil {
		s.Mutate = func(ctx context.Context, x *admit.Exchange, obj runtime.Object) (err error) {
			watched(ctx, func() StepEnd {
				err = mutate(ctx, x, obj)
				return StepEnd{Err: err}
			})
			return err
		}
	}
	if check := s.Check; check != nil {
		s.Check = func(ctx context.Context, x *admit.Exchange, oldObj, newObj runtime.Object) (err error) {
			watched(ctx, func() StepEnd {
				err = check(ctx, x, oldObj, newObj)
				return StepEnd{Err: err}
			})
			return err
		}
	}
}
