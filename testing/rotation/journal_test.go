package rotation_test

import (
	"context"
	"sync"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes"

	"code.cloudfoundry.org/eirinix/internal/ca"
)

// journal notes every write of the Secret and of the configurations, by anybody.
type journal struct {
	mu     sync.Mutex
	writes map[string]int // by the kind of object
	most   int            // CAs that stood in one caBundle
}

// The kinds of objects in a journal.
const (
	secretKind     = "Secret"
	mutatingKind   = "MutatingWebhookConfiguration"
	validatingKind = "ValidatingWebhookConfiguration"
)

// keepJournal watches until the spec ends.
func (d *deployment) keepJournal(ctx context.Context, clients kubernetes.Interface) *journal {
	GinkgoHelper()
	j := &journal{writes: map[string]int{}}
	watching, stop := context.WithCancel(context.WithoutCancel(ctx))
	DeferCleanup(stop)
	hooks := clients.AdmissionregistrationV1()
	for kind, start := range map[string]func(metav1.ListOptions) (watch.Interface, error){
		secretKind: func(o metav1.ListOptions) (watch.Interface, error) {
			o.FieldSelector = fields.OneTermEqualSelector(metav1.ObjectNameField, d.secret()).String()
			return clients.CoreV1().Secrets(d.namespace).Watch(watching, o)
		},
		mutatingKind: func(o metav1.ListOptions) (watch.Interface, error) {
			o.FieldSelector = fields.OneTermEqualSelector(metav1.ObjectNameField, d.mutating()).String()
			return hooks.MutatingWebhookConfigurations().Watch(watching, o)
		},
		validatingKind: func(o metav1.ListOptions) (watch.Interface, error) {
			o.FieldSelector = fields.OneTermEqualSelector(metav1.ObjectNameField, d.validating()).String()
			return hooks.ValidatingWebhookConfigurations().Watch(watching, o)
		},
	} {
		// The API server ends a watch after half an hour at the earliest, unless it is told otherwise.
		w, err := start(metav1.ListOptions{TimeoutSeconds: new(int64(4 * 60 * 60))})
		Expect(err).NotTo(HaveOccurred())
		first := <-w.ResultChan() // what is there already
		Expect(first.Type).To(Equal(watch.Added), kind)
		go func() {
			for event := range w.ResultChan() {
				j.note(kind, event.Object)
			}
		}()
		DeferCleanup(w.Stop)
	}
	return j
}

func (j *journal) note(kind string, object runtime.Object) {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.writes[kind]++
	switch c := object.(type) {
	case *admissionregistrationv1.MutatingWebhookConfiguration:
		for _, w := range c.Webhooks {
			j.most = max(j.most, len(ca.SplitBundle(w.ClientConfig.CABundle)))
		}
	case *admissionregistrationv1.ValidatingWebhookConfiguration:
		for _, w := range c.Webhooks {
			j.most = max(j.most, len(ca.SplitBundle(w.ClientConfig.CABundle)))
		}
	}
}

// written is how often an object of that kind was written so far.
func (j *journal) written(kind string) int {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.writes[kind]
}

// all is how often anything was written so far.
func (j *journal) all() int {
	return j.written(secretKind) + j.written(mutatingKind) + j.written(validatingKind)
}

// mostTrusted is how many CAs stood in one caBundle, at most.
func (j *journal) mostTrusted() int {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.most
}
