// Package seam shows the packages beside the root what a Manager holds. The root sets Of. There is one struct and one
// function, so that a feature beside the root sees no more of it than stands here.
package seam

import (
	"context"
	"errors"
	"net/http"
	"path"
	"sync"
	"sync/atomic"
	"time"

	"github.com/go-logr/logr"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/dynamic"
	corev1client "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/rest"

	"code.cloudfoundry.org/eirinix/diagnosis"
	"code.cloudfoundry.org/eirinix/internal/chain"
	"code.cloudfoundry.org/eirinix/internal/diagnose"
	"code.cloudfoundry.org/eirinix/internal/modes"
	"code.cloudfoundry.org/eirinix/internal/reads"
	"code.cloudfoundry.org/eirinix/internal/resources"
	"code.cloudfoundry.org/eirinix/internal/rights"
	"code.cloudfoundry.org/eirinix/internal/serving"
	"code.cloudfoundry.org/eirinix/internal/webhookconf"
)

// Of returns what an *eirinix.ExtensionManager holds. It returns an error if there is none.
var Of func(manager any) (Program, error)

// Program is what a Manager holds, started or not. Its functions are safe for concurrent use.
type Program struct {
	Fingerprint string
	Names       []string // of the steps, and the CustomResourceDefinitions of the Conversions
	Log         logr.Logger

	// Validate returns all errors in the options and the steps.
	Validate func() error

	// Config returns the connection that the program was given. Copy it before a change: the Manager shares it.
	Config func() (*rest.Config, error)

	// Resolve finds out what the steps that asks selects mean in the cluster. If they read, it waits until that is listed.
	// The Manager follows it in running until ctx ends.
	Resolve func(ctx context.Context, asks func(name string) bool, running *sync.WaitGroup) (Resolved, error)

	// Tap wraps the calls that are answered from now on, except those of a diagnosis, until release is called. There is one
	// Tap at a time. It calls open when there is no other.
	Tap func(open func(release func()) (Tap, error)) error

	// Deployment returns what the objects of a deployment depend on. It asks no cluster. Its error is about what the steps
	// read. All other fields are valid then.
	Deployment func(NewMapper) (Deployment, error)

	// SetLifetimes changes the lifetimes of certificates for a test, before the Manager runs. SetNetwork changes where it
	// listens, and how often it makes a pass when nothing happens.
	SetLifetimes func(Lifetimes)
	SetNetwork   func(n serving.Network, resync time.Duration)

	// Offline returns what the program would serve and register in a World.
	Offline func(World) (Offline, error)
}

// Lifetimes are those of the certificates that a Manager issues. Zero means the default.
type Lifetimes struct {
	Leaf   time.Duration // of serving certificates; default 7 days, renewed after two thirds of it
	Retain time.Duration // how long a replaced CA stays trusted; default Leaf and a tenth of it
}

// Tap sees the calls that a Manager answers.
type Tap struct {
	Wrap func(http.Handler) http.Handler // is called for each call
	End  func(context.Context) error     // is called when Run ends, if the Tap was not released before
}

// Resolved is a program beside a cluster. No call of the API server reaches it.
type Resolved struct {
	Steps []Step

	Config    *rest.Config // of the library's own requests
	Discovery discovery.DiscoveryInterfaces
	Dynamic   dynamic.Interface
	Modes     *modes.Modes // in force
	Notes     []string     // what could not be found out, with its remedy

	// Owner returns a reference to the program's namespace, or nil if that must not be read.
	Owner func(context.Context) (*metav1.OwnerReference, error)
}

// Step is a step or a Conversion, as it would be registered and served.
type Step struct {
	Name  string
	Waits error // why it has no registration: its kind is not served, or what it reads is not listed; the other fields are then empty

	Registered webhookconf.Step
	Served     chain.Step
	Webhook    admissionregistrationv1.MutatingWebhook // as if the step had one alone; validating steps have one of this type, too

	Converts *Conversion // the fields above are then empty
}

// A Converter is a conversion.Of that a program adds to a Manager.
type Converter interface {
	Define() (Conversion, error)
}

// Conversion is what a Manager serves and registers of a Converter. Its functions are safe for concurrent use.
type Conversion struct {
	CRD      string // the name of the CustomResourceDefinition
	Lossy    bool
	Versions []runtime.Object // an empty object of each, with its apiVersion and, if a Go type says it, its kind; the Hub is the first

	// Resources returns the resources of those versions that are not given.
	Resources func(given []resources.Resource, scheme *runtime.Scheme) []resources.Resource

	// NewKeys returns the keys that all Conversions of a program share. The Secret holds them. Without a cluster, secrets is
	// nil, and the key is always the same.
	NewKeys func(secrets corev1client.SecretsGetter, secret types.NamespacedName, makes bool, log logr.Logger) Keys

	// Answer returns the function that answers ConversionReviews.
	Answer func(Serving) Answer

	// Stored is for a diagnosis.
	Stored func(context.Context, diagnose.Definition, []string, rest.Interface) ([]diagnosis.Finding, error)

	// RoundTrip converts an object to another version and back. lost are JSON pointers to what that changes. noRoom reports
	// that the annotations of the object do not hold all of it.
	RoundTrip func(ctx context.Context, object []byte, from, to string) (lost []string, noRoom bool, err error)
}

// Keys sign what conversions keep in annotations.
type Keys interface {
	// Obtain makes or reads the Secret.
	Obtain(context.Context) error
}

// Serving is what a Manager serves a Conversion with.
type Serving struct {
	Keys      Keys     // can be nil if the Conversion is Lossy
	Elsewhere []string // versions that other replicas convert and this one does not
	Counts    ConversionCounts
	Log       logr.Logger
}

// ConversionCounts counts the objects of a Conversion.
type ConversionCounts interface {
	Converted()
	Failed()
	Panicked()
	Ignored()
	Incomplete()
}

// Answer answers a ConversionReview, as admit.Conversion describes it.
type Answer = func(ctx context.Context, review []byte, room func(context.Context, int64) (func(), error)) ([]byte, error)

// Deployment is what a program needs where it is deployed. Defaults are resolved.
type Deployment struct {
	Namespace, Service string // empty if it was not given, and if the program is not called through one
	ServicePort        int32
	Listen             func() (host string, port int, err error) // port 0 is picked later

	Serves, Registers, Reconciles bool
	MaxRequestBytes               int64
	DrainDelay, UnregisterTimeout time.Duration
	Rights                        rights.Rights // without those of an audit

	Webhooks webhookconf.Options                               // of the steps
	Mapper   meta.RESTMapper                                   // of the kinds of the scheme and of the Conversions
	Steps    func(meta.RESTMapper) ([]webhookconf.Step, error) // with a nil RESTMapper, resources are guessed from kinds
}

// NewMapper makes a RESTMapper of the kinds of a scheme and of those that are given.
type NewMapper = func(scheme *runtime.Scheme, given []resources.Resource) meta.RESTMapper

// World stands for a cluster.
type World struct {
	NewMapper NewMapper            // gets Resources and those of the Conversions
	Resources []resources.Resource // of kinds that the scheme does not hold, or that are irregular

	// Modes is the ConfigMap of ManagerOptions.ModesConfigMap; nil puts the program's own modes in force. Labels returns the
	// labels of a namespace for it.
	Modes  *corev1.ConfigMap
	Labels func(ctx context.Context, namespace string) (labels.Set, error)

	// Reads returns where steps read what they declare.
	Reads func(declared *reads.Set, scheme *runtime.Scheme) Reading
}

// Reading is where steps read.
type Reading interface {
	Snapshot(context.Context) *reads.Snapshot // what a call sees
	Waiting(step string) error                // why a step cannot be served yet, or nil
}

// Offline is what a program serves and registers in a World.
type Offline struct {
	Chains      map[string]chain.Config // by path
	Conversions []Conversion
	Others      *http.ServeMux // of the program itself
	Reads       map[string]any // the []eirinix.Read of each step that has some, not copied

	Entries  []webhookconf.Entry
	Webhooks webhookconf.Options // of the Entries

	Scheme          *runtime.Scheme
	Mapper          meta.RESTMapper
	MaxRequestBytes int64
	Tapped          func(http.Handler) http.Handler // gives calls to a Tap, too
}

// tapTimeout bounds End.
const tapTimeout = 5 * time.Second

// Taps holds the Tap of a program. It is safe for concurrent use.
type Taps struct {
	taken atomic.Bool         // a Tap was requested and has not been released
	tap   atomic.Pointer[Tap] // nil while there is none
}

// Start is Program.Tap.
func (t *Taps) Start(open func(release func()) (Tap, error)) error {
	if !t.taken.CompareAndSwap(false, true) {
		return errors.New("eirinix: another recording is in progress; stop it first")
	}
	tap, err := open(func() {
		t.tap.Store(nil)
		t.taken.Store(false)
	})
	if err != nil {
		t.taken.Store(false)
		return err
	}
	t.tap.Store(&tap)
	return nil
}

// End ends a Tap that has not been released.
func (t *Taps) End(log logr.Logger) {
	tap := t.tap.Load()
	if tap == nil {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), tapTimeout)
	defer cancel()
	if err := tap.End(ctx); err != nil {
		log.Error(err, "the recording is not whole")
	}
}

// Wrap gives the calls of a handler to a Tap, except those of which the path ends with a name.
func (t *Taps) Wrap(handler http.Handler, except string) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if tap := t.tap.Load(); tap != nil && path.Base(r.URL.Path) != except {
			tap.Wrap(handler).ServeHTTP(w, r)
			return
		}
		handler.ServeHTTP(w, r)
	})
}
