package inforce_test

// This file starts the control plane, and holds what looks at a rule all the time: the clients that create objects, and the
// watch of its entry.

import (
	"context"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	. "code.cloudfoundry.org/eirinix/internal/spectest"
	eirinixtest "code.cloudfoundry.org/eirinix/testing"
)

// patience bounds the time that a slow machine may take. A spec that passes does not wait for it.
const patience = 2 * time.Minute

func TestMain(m *testing.M) { os.Exit(eirinixtest.Main(m)) }

func TestInForce(t *testing.T) {
	RegisterFailHandler(Fail)
	SetDefaultEventuallyTimeout(patience)
	EnforceDefaultTimeoutsWhenUsingContexts()
	SetDefaultEventuallyPollingInterval(10 * time.Millisecond)
	RunSpecs(t, "In force", Label(APIServer))
}

var (
	plane   *eirinixtest.ControlPlane
	clients kubernetes.Interface // of a cluster administrator
	objects dynamic.Interface    // the same, for custom kinds
)

var _ = BeforeSuite(func() {
	plane = eirinixtest.StartControlPlane(GinkgoTB(), eirinixtest.Shared)
	config := unlimited(plane.Config())
	clients, objects = Clients(config), Must(dynamic.NewForConfig(config))
})

// unlimited lets a client send as fast as it can.
func unlimited(config *rest.Config) *rest.Config {
	config.QPS = -1
	return config
}

var definitions = schema.GroupVersionResource{Group: "apiextensions.k8s.io", Version: "v1", Resource: "customresourcedefinitions"}

// shops is the custom kind of a spec.
type shops struct{ group string }

func (s shops) resource() schema.GroupVersionResource {
	return schema.GroupVersionResource{Group: s.group, Version: "v1", Resource: "shops"}
}

// empty returns an object of the kind.
func (s shops) empty(kind string) *unstructured.Unstructured {
	u := &unstructured.Unstructured{}
	u.SetGroupVersionKind(schema.GroupVersionKind{Group: s.group, Version: "v1", Kind: kind})
	return u
}

// define has the cluster serve the kind, at the latest until the spec ends.
func (s shops) define(ctx context.Context) {
	GinkgoHelper()
	Must(objects.Resource(definitions).Create(ctx, &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
		"metadata": map[string]any{"name": "shops." + s.group},
		"spec": map[string]any{
			"group": s.group, "scope": "Namespaced",
			"names": map[string]any{"kind": "Shop", "plural": "shops", "singular": "shop", "listKind": "ShopList"},
			"versions": []any{map[string]any{
				"name": "v1", "served": true, "storage": true,
				"schema": map[string]any{"openAPIV3Schema": map[string]any{"type": "object", "x-kubernetes-preserve-unknown-fields": true}},
			}},
		},
	}}, metav1.CreateOptions{}))
	DeferCleanup(func(ctx context.Context) {
		Expect(client.IgnoreNotFound(objects.Resource(definitions).Delete(ctx, "shops."+s.group, metav1.DeleteOptions{}))).To(Succeed())
	})
}

// serve is define, and waits until the cluster serves the kind.
func (s shops) serve(ctx context.Context) {
	GinkgoHelper()
	s.define(ctx)
	Eventually(s.served).WithContext(ctx).Should(BeTrue())
}

// remove deletes the definition, and waits until the cluster does not serve the kind.
func (s shops) remove(ctx context.Context) {
	GinkgoHelper()
	Expect(objects.Resource(definitions).Delete(ctx, "shops."+s.group, metav1.DeleteOptions{})).To(Succeed())
	Eventually(func() bool {
		_, err := objects.Resource(definitions).Get(ctx, "shops."+s.group, metav1.GetOptions{})
		return apierrors.IsNotFound(err)
	}).WithContext(ctx).Should(BeTrue())
	Eventually(s.served).WithContext(ctx).Should(BeFalse())
}

// served reports whether discovery lists the kind.
func (s shops) served() (bool, error) {
	list, err := clients.Discovery().ServerResourcesForGroupVersion(s.group + "/v1")
	if apierrors.IsNotFound(err) {
		return false, nil
	}
	return err == nil && len(list.APIResources) > 0, err
}

const (
	// pace is the time between two creates of one client, if the machine can keep up.
	pace = 40 * time.Millisecond

	// crowd is the number of clients that create objects of a rule. Each has one create in flight, which can take long.
	crowd = 4
)

// The outcomes of a create.
const (
	admitted = "admitted"
	refused  = "refused by the rule"
	failed   = "refused by a failure"
	away     = "of a kind that is not served"
)

func outcomeOf(err error) string {
	switch {
	case err == nil:
		return admitted
	case strings.Contains(err.Error(), refusal):
		return refused
	case apierrors.IsNotFound(err):
		return away
	}
	return failed
}

// traffic creates objects, and counts the outcomes.
type traffic struct {
	create  func(context.Context) error
	clients int
	stop    chan struct{}
	all     sync.WaitGroup

	mu     sync.Mutex
	counts map[string]int
	sample map[string]string // the last error of each outcome
}

// startTraffic has clients create objects until the spec ends.
func startTraffic(ctx context.Context, clients int, create func(context.Context) error) *traffic {
	l := &traffic{create: create, clients: clients, stop: make(chan struct{}), counts: map[string]int{}, sample: map[string]string{}}
	ctx = context.WithoutCancel(ctx)
	for range clients {
		l.all.Go(func() {
			ticker := time.NewTicker(pace)
			defer ticker.Stop()
			for {
				select {
				case <-l.stop:
					return
				case <-ticker.C:
					l.send(ctx)
				}
			}
		})
	}
	DeferCleanup(func() { close(l.stop); l.all.Wait() })
	return l
}

func (l *traffic) send(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	err := l.create(ctx)
	l.mu.Lock()
	defer l.mu.Unlock()
	l.counts[outcomeOf(err)]++
	l.sample[outcomeOf(err)] = fmt.Sprint(err)
}

// of returns the number of creates with an outcome.
func (l *traffic) of(outcome string) int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.counts[outcome]
}

// besides returns an error of each other outcome.
func (l *traffic) besides(outcome string) map[string]string {
	l.mu.Lock()
	defer l.mu.Unlock()
	others := maps.Clone(l.sample)
	delete(others, outcome)
	return others
}

// more waits for n creates that begin from now on.
func (l *traffic) more(ctx context.Context, n int) {
	GinkgoHelper()
	total := func() (n int) {
		l.mu.Lock()
		defer l.mu.Unlock()
		for _, count := range l.counts {
			n += count
		}
		return n
	}
	before := total()
	Eventually(total).WithContext(ctx).Should(BeNumerically(">=", before+l.clients+n))
}

// next waits for a create with this outcome that begins from now on.
func (l *traffic) next(ctx context.Context, outcome string) {
	GinkgoHelper()
	before := l.of(outcome)
	Eventually(l.of).WithContext(ctx).WithArguments(outcome).Should(BeNumerically(">", before+l.clients), func() string { return fmt.Sprint(l.besides(outcome)) })
}

// journal notes each state of the validating configuration.
type journal struct {
	resource string

	mu      sync.Mutex
	without []string // the states in which the entry was not in force
}

// keepJournal watches the entry of a resource until the spec ends. It stands already.
func (p *program) keepJournal(ctx context.Context, resource string) *journal {
	GinkgoHelper()
	j := &journal{resource: resource}
	hooks := clients.AdmissionregistrationV1().ValidatingWebhookConfigurations()
	c := Must(hooks.Get(ctx, p.validating(), metav1.GetOptions{}))
	j.look(c)
	w := Must(hooks.Watch(context.WithoutCancel(ctx), metav1.ListOptions{
		FieldSelector: fields.OneTermEqualSelector(metav1.ObjectNameField, p.validating()).String(), ResourceVersion: c.ResourceVersion,
	}))
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		for event := range w.ResultChan() {
			j.note(event)
		}
	}()
	DeferCleanup(func() { w.Stop(); <-ended })
	return j
}

func (j *journal) note(event watch.Event) {
	j.mu.Lock()
	defer j.mu.Unlock()
	c, ok := event.Object.(*admissionregistrationv1.ValidatingWebhookConfiguration)
	switch {
	case !ok:
		j.without = append(j.without, fmt.Sprintf("the watch ended: %v", event.Object))
	case event.Type == watch.Deleted:
		j.without = append(j.without, "the configuration was deleted")
	default:
		j.look(c)
	}
}

// look sees that the entry is in force.
func (j *journal) look(c *admissionregistrationv1.ValidatingWebhookConfiguration) {
	e := entryOf(c, j.resource)
	switch {
	case e == nil:
		j.without = append(j.without, "no entry for "+j.resource)
	case e.FailurePolicy == nil || *e.FailurePolicy != admissionregistrationv1.Fail:
		j.without = append(j.without, fmt.Sprintf("failurePolicy %v", e.FailurePolicy))
	case len(e.ClientConfig.CABundle) == 0:
		j.without = append(j.without, "no caBundle")
	}
}

// seen returns the states in which the entry was not in force.
func (j *journal) seen() []string {
	j.mu.Lock()
	defer j.mu.Unlock()
	return slices.Clone(j.without)
}
