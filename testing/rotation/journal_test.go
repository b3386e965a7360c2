package rotation_test

import (
	"context"
	"encoding/json"
	"slices"
	"strconv"
	"sync"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes"

	"code.cloudfoundry.org/eirinix/internal/ca"
	"code.cloudfoundry.org/eirinix/internal/webhookconf"
)

// journal notes every write of the Secret, of the configurations and of the Lease, by any client.
type journal struct {
	mu     sync.Mutex
	writes map[string]int       // by the kind of object
	held   map[string][]holding // the content of a configuration after each write, and at first
	most   int                  // CAs that stood in one caBundle
}

// holding is the content of a configuration beside its caBundles.
type holding struct{ version, webhooks string }

// The kinds of objects in a journal.
const (
	secretKind     = "Secret"
	mutatingKind   = "MutatingWebhookConfiguration"
	validatingKind = "ValidatingWebhookConfiguration"
	leaseKind      = "Lease"
)

// keepJournal watches until the spec ends.
func (d *deployment) keepJournal(ctx context.Context, clients kubernetes.Interface) *journal {
	GinkgoHelper()
	j := &journal{writes: map[string]int{}, held: map[string][]holding{}}
	watching, stop := context.WithCancel(context.WithoutCancel(ctx))
	DeferCleanup(stop)
	hooks, secrets, leases := clients.AdmissionregistrationV1(), clients.CoreV1().Secrets(d.namespace), clients.CoordinationV1().Leases(d.namespace)
	for kind, k := range map[string]struct {
		name  string
		get   func(string) (runtime.Object, error)
		watch func(metav1.ListOptions) (watch.Interface, error)
	}{
		secretKind: {
			d.secret(),
			func(name string) (runtime.Object, error) { return secrets.Get(ctx, name, metav1.GetOptions{}) },
			func(o metav1.ListOptions) (watch.Interface, error) { return secrets.Watch(watching, o) },
		},
		mutatingKind: {
			d.mutating(),
			func(name string) (runtime.Object, error) {
				return hooks.MutatingWebhookConfigurations().Get(ctx, name, metav1.GetOptions{})
			},
			func(o metav1.ListOptions) (watch.Interface, error) {
				return hooks.MutatingWebhookConfigurations().Watch(watching, o)
			},
		},
		validatingKind: {
			d.validating(),
			func(name string) (runtime.Object, error) {
				return hooks.ValidatingWebhookConfigurations().Get(ctx, name, metav1.GetOptions{})
			},
			func(o metav1.ListOptions) (watch.Interface, error) {
				return hooks.ValidatingWebhookConfigurations().Watch(watching, o)
			},
		},
		leaseKind: {
			d.lease(),
			func(name string) (runtime.Object, error) { return leases.Get(ctx, name, metav1.GetOptions{}) },
			func(o metav1.ListOptions) (watch.Interface, error) { return leases.Watch(watching, o) },
		},
	} {
		// The API server ends a watch after half an hour at the earliest, unless it is told otherwise.
		o := metav1.ListOptions{
			FieldSelector: fields.OneTermEqualSelector(metav1.ObjectNameField, k.name).String(), TimeoutSeconds: new(int64(4 * 60 * 60)),
		}
		last := revision(ctx, clients)
		object, err := k.get(k.name)
		switch {
		case err == nil:
			j.note(kind, object, 0)
			// An API server that has just started knows no older revision than the one that it found.
			written, err := strconv.Atoi(object.(metav1.Object).GetResourceVersion())
			Expect(err).NotTo(HaveOccurred())
			o.ResourceVersion = strconv.Itoa(max(last, written))
		default:
			Expect(apierrors.IsNotFound(err)).To(BeTrue(), "%v", err)
		}
		w, err := k.watch(o)
		Expect(err).NotTo(HaveOccurred())
		go func() {
			for event := range w.ResultChan() {
				if event.Type != watch.Error { // the end of the watch
					j.note(kind, event.Object, 1)
				}
			}
		}()
		DeferCleanup(w.Stop)
	}
	return j
}

// revision is the last revision of the cluster's state.
func revision(ctx context.Context, clients kubernetes.Interface) int {
	GinkgoHelper()
	all, err := clients.CoreV1().ConfigMaps("default").List(ctx, metav1.ListOptions{})
	Expect(err).NotTo(HaveOccurred())
	n, err := strconv.Atoi(all.ResourceVersion)
	Expect(err).NotTo(HaveOccurred())
	return n
}

// note records an object after so many writes of it.
func (j *journal) note(kind string, object runtime.Object, writes int) {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.writes[kind] += writes
	j.hold(kind, object)
}

// hold records the content of a configuration.
func (j *journal) hold(kind string, object runtime.Object) {
	var h holding
	trusts := func(config *admissionregistrationv1.WebhookClientConfig) {
		j.most = max(j.most, len(ca.SplitBundle(config.CABundle)))
		config.CABundle = nil
	}
	var webhooks any
	switch c := object.DeepCopyObject().(type) {
	case *admissionregistrationv1.MutatingWebhookConfiguration:
		for n := range c.Webhooks {
			trusts(&c.Webhooks[n].ClientConfig)
		}
		h.version, webhooks = c.Annotations[webhookconf.VersionAnnotation], c.Webhooks
	case *admissionregistrationv1.ValidatingWebhookConfiguration:
		for n := range c.Webhooks {
			trusts(&c.Webhooks[n].ClientConfig)
		}
		h.version, webhooks = c.Annotations[webhookconf.VersionAnnotation], c.Webhooks
	default:
		return
	}
	text, err := json.Marshal(webhooks)
	if err != nil {
		text = []byte(err.Error())
	}
	h.webhooks = string(text)
	j.held[kind] = append(j.held[kind], h)
}

// written is how often an object of that kind was written so far.
func (j *journal) written(kind string) int {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.writes[kind]
}

// all is how often anything was written so far, but for the Lease.
func (j *journal) all() int {
	return j.written(secretKind) + j.written(mutatingKind) + j.written(validatingKind)
}

// registrations is how often a configuration was written so far.
func (j *journal) registrations() int { return j.written(mutatingKind) + j.written(validatingKind) }

// changes returns the contents of a configuration in order, beside its caBundles. The first is the content when the journal
// began.
func (j *journal) changes(kind string) []holding {
	j.mu.Lock()
	defer j.mu.Unlock()
	return slices.Compact(slices.Clone(j.held[kind]))
}

// versions are the versions of the program that were registered, one after the other.
func (j *journal) versions(kind string) (all []string) {
	for _, h := range j.changes(kind) {
		all = append(all, h.version)
	}
	return all
}

// maxTrusted is how many CAs stood in one caBundle, at most.
func (j *journal) maxTrusted() int {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.most
}
