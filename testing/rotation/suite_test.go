package rotation_test

import (
	"context"
	"os"
	"slices"
	"strconv"
	"sync"
	"testing"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"code.cloudfoundry.org/eirinix/internal/ca"
	. "code.cloudfoundry.org/eirinix/internal/spectest"
	"code.cloudfoundry.org/eirinix/internal/webhookconf"
	"code.cloudfoundry.org/eirinix/testing/internal/controlplane"
	"code.cloudfoundry.org/eirinix/testing/internal/load"
)

const patience = load.Patience

func TestRotation(t *testing.T) {
	RegisterFailHandler(Fail)
	SetDefaultEventuallyTimeout(patience)
	SetDefaultEventuallyPollingInterval(100 * time.Millisecond)
	RunSpecs(t, "Rotation", Label("api-server"))
}

// rotations is EIRINIX_ROTATIONS, or the usual number.
func rotations(usually int) int {
	if text := os.Getenv("EIRINIX_ROTATIONS"); text != "" {
		return Must(strconv.Atoi(text))
	}
	return usually
}

// The cluster, and its API servers on one etcd. Each has its own view of webhook configurations.
var (
	plane   *controlplane.Plane
	servers []*controlplane.APIServer
)

var _ = BeforeSuite(func(ctx SpecContext) {
	plane = Must(controlplane.New(ctx, controlplane.Options{Progress: GinkgoWriter}))
	DeferCleanup(plane.Stop)
	servers = []*controlplane.APIServer{plane.APIServer(), Must(plane.AddAPIServer(ctx))}
})

// clientsOf returns a client of one API server.
func clientsOf(server int) kubernetes.Interface {
	GinkgoHelper()
	return Clients(servers[server].Config())
}

// journal notes every write of the Secret, of the configurations and of the Lease, by any client.
type journal struct {
	mu       sync.Mutex
	writes   map[string]int      // by the kind of object
	versions map[string][]string // that a configuration was registered with, one after the other
	most     int                 // CAs that stood in one caBundle
}

// The kinds of objects in a journal.
const (
	secretKind     = "Secret"
	mutatingKind   = "MutatingWebhookConfiguration"
	validatingKind = "ValidatingWebhookConfiguration"
	leaseKind      = "Lease"
)

// keepJournal watches until the spec ends.
func (d *deployment) keepJournal(ctx context.Context) *journal {
	GinkgoHelper()
	j := &journal{writes: map[string]int{}, versions: map[string][]string{}}
	watching, stop := context.WithCancel(context.WithoutCancel(ctx))
	DeferCleanup(stop)
	c := Must(client.NewWithWatch(servers[0].Config(), client.Options{}))
	for kind, of := range map[string]struct {
		name, namespace string
		list            client.ObjectList
	}{
		secretKind:     {d.secret(), d.namespace, &corev1.SecretList{}},
		mutatingKind:   {d.mutating(), "", &admissionregistrationv1.MutatingWebhookConfigurationList{}},
		validatingKind: {d.validating(), "", &admissionregistrationv1.ValidatingWebhookConfigurationList{}},
		leaseKind:      {d.lease(), d.namespace, &coordinationv1.LeaseList{}},
	} {
		o := &client.ListOptions{Namespace: of.namespace, FieldSelector: fields.OneTermEqualSelector(metav1.ObjectNameField, of.name)}
		Expect(c.List(ctx, of.list, o)).To(Succeed())
		Expect(meta.EachListItem(of.list, func(object runtime.Object) error {
			j.note(kind, object, 0)
			return nil
		})).To(Succeed())
		// The API server ends a watch after half an hour at the earliest, unless it is told otherwise.
		o.Raw = &metav1.ListOptions{ResourceVersion: of.list.GetResourceVersion(), TimeoutSeconds: new(int64(4 * 60 * 60))}
		w := Must(c.Watch(watching, of.list, o))
		DeferCleanup(w.Stop)
		go func() {
			for event := range w.ResultChan() {
				if event.Type != watch.Error { // the end of the watch
					j.note(kind, event.Object, 1)
				}
			}
		}()
	}
	return j
}

// note records an object after so many writes of it.
func (j *journal) note(kind string, object runtime.Object, writes int) {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.writes[kind] += writes
	registered := func(o client.Object, bundle []byte) {
		j.most = max(j.most, len(ca.SplitBundle(bundle)))
		j.versions[kind] = slices.Compact(append(j.versions[kind], o.GetAnnotations()[webhookconf.VersionAnnotation]))
	}
	switch o := object.(type) {
	case *admissionregistrationv1.MutatingWebhookConfiguration:
		for _, w := range o.Webhooks {
			registered(o, w.ClientConfig.CABundle)
		}
	case *admissionregistrationv1.ValidatingWebhookConfiguration:
		for _, w := range o.Webhooks {
			registered(o, w.ClientConfig.CABundle)
		}
	}
}

// written is how often objects of these kinds were written so far.
func (j *journal) written(kinds ...string) (n int) {
	j.mu.Lock()
	defer j.mu.Unlock()
	for _, kind := range kinds {
		n += j.writes[kind]
	}
	return n
}

// registrations are the versions that a configuration was registered with.
func (j *journal) registrations(kind string) []string {
	j.mu.Lock()
	defer j.mu.Unlock()
	return slices.Clone(j.versions[kind])
}

// expectRegistered waits until both configurations hold a version.
func (j *journal) expectRegistered(ctx context.Context, version string) {
	GinkgoHelper()
	for _, kind := range []string{mutatingKind, validatingKind} {
		Eventually(j.registrations).WithArguments(kind).WithContext(ctx).WithPolling(5*time.Millisecond).
			Should(WithTransform(func(all []string) string { return all[len(all)-1] }, Equal(version)), kind)
	}
}
