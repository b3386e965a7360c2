package conformance_test

// This file runs Managers that the suite's API server calls, and keeps the calls of their steps.

import (
	"context"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"sync"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"go.uber.org/zap"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"

	"code.cloudfoundry.org/eirinix"
	. "code.cloudfoundry.org/eirinix/internal/spectest"
)

// mode is how the API server reaches the webhook.
type mode int

const (
	urlMode     mode = iota // a loopback URL: one transport per CA, HTTP/2 where the server offers it
	serviceMode             // a Service, as in production: one transport per hook, HTTP/1.1
)

func clients() kubernetes.Interface { return Clients(controlPlane().Config()) }

func dynamicClients() dynamic.Interface {
	GinkgoHelper()
	c := Must(dynamic.NewForConfig(controlPlane().Config()))
	return c
}

// newNamespace makes a namespace of the spec's own, which is also its fingerprint. It stays: no controller finalizes
// namespaces without a controller manager.
func newNamespace(ctx context.Context) string {
	GinkgoHelper()
	return NewNamespace(ctx, clients(), map[string]string{"conformance": "yes"}).Name
}

// optionsFor returns the options of a Manager that is called in this mode for this namespace alone. In Service mode
// it makes the Service: the API server resolves one of type ExternalName itself.
func optionsFor(ctx context.Context, mode mode, namespace string) eirinix.ManagerOptions {
	GinkgoHelper()
	o := eirinix.ManagerOptions{
		Namespace:           namespace,
		OperatorFingerprint: namespace,
		Host:                "127.0.0.1",
		RestConfig:          controlPlane().Config(),
		Logger:              zap.New(Log()).Sugar(),
		DrainDelay:          -1,
	}
	// A Manager that starts has the API server call it for a ConfigMap in its own namespace. Here that is not the one
	// whose objects are sent, or now and then a spec's steps would be called once more.
	o.WebhookNamespace = namespace + "-hooks"
	makeNamespace(ctx, o.WebhookNamespace)
	if mode == urlMode {
		o.ListenAddress = "127.0.0.1:0"
		return o
	}
	o.ServiceName, o.Port = "hooks", FreePort()
	makeService(ctx, o.WebhookNamespace, o.ServiceName)
	return o
}

// makeNamespace makes a namespace unless there is one.
func makeNamespace(ctx context.Context, name string) {
	GinkgoHelper()
	_, err := clients().CoreV1().Namespaces().Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}}, metav1.CreateOptions{})
	Expect(err).To(Or(BeNil(), Satisfy(apierrors.IsAlreadyExists)))
}

// makeService makes a Service that leads to this machine unless there is one: Managers that follow one another, or
// stand side by side, share it, and differ in their ports.
func makeService(ctx context.Context, namespace, name string) {
	GinkgoHelper()
	_, err := clients().CoreV1().Services(namespace).Create(ctx, &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec:       corev1.ServiceSpec{Type: corev1.ServiceTypeExternalName, ExternalName: "localhost"},
	}, metav1.CreateOptions{})
	Expect(err).To(Or(BeNil(), Satisfy(apierrors.IsAlreadyExists)))
}

// serve runs a Manager with these steps until the spec ends. It returns once the API server is seen to call it: for that
// each of its configurations ends with the entry of a marker. change may be nil.
func serve(ctx context.Context, mode mode, namespace string, change func(*eirinix.ManagerOptions), steps ...any) *eirinix.ExtensionManager {
	GinkgoHelper()
	o := optionsFor(ctx, mode, namespace)
	if change != nil {
		change(&o)
	}
	m := eirinix.NewManager(o)
	for _, s := range steps {
		Expect(m.AddExtension(s)).To(Succeed())
	}
	markers := markersFor(o.OperatorFingerprint, steps)
	for _, marker := range markers {
		Expect(m.AddExtension(marker.step)).To(Succeed())
	}
	start(ctx, m)
	for _, marker := range markers {
		marker.await(ctx)
	}
	return m
}

// start runs m until the spec ends, and waits until it is ready. Its configurations go with it.
func start(ctx context.Context, m *eirinix.ExtensionManager) {
	GinkgoHelper()
	var failure error // of Run, once ended is closed
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		failure = m.Run(context.WithoutCancel(ctx))
	}()
	DeferCleanup(func(ctx context.Context) {
		m.Stop()
		Eventually(ended).WithContext(ctx).WithTimeout(patience).Should(BeClosed())
		Expect(failure).NotTo(HaveOccurred())
		hooks, fingerprint := clients().AdmissionregistrationV1(), m.GetManagerOptions().OperatorFingerprint
		for _, err := range []error{
			hooks.MutatingWebhookConfigurations().Delete(ctx, fingerprint+"-mutating-hook", metav1.DeleteOptions{}),
			hooks.ValidatingWebhookConfigurations().Delete(ctx, fingerprint+"-validating-hook", metav1.DeleteOptions{}),
		} {
			Expect(err).To(Or(BeNil(), Satisfy(apierrors.IsNotFound)))
		}
	})
	Eventually(func() error {
		select {
		case <-m.Ready():
			return nil
		case <-ended:
			return StopTrying(fmt.Sprintf("Run returned before Ready: %v", failure))
		default:
			return fmt.Errorf("not ready yet")
		}
	}).WithContext(ctx).WithTimeout(patience).Should(Succeed())
}

func mutatingConfiguration(ctx context.Context, m *eirinix.ExtensionManager) *admissionregistrationv1.MutatingWebhookConfiguration {
	GinkgoHelper()
	name := m.GetManagerOptions().OperatorFingerprint + "-mutating-hook"
	c := Must(clients().AdmissionregistrationV1().MutatingWebhookConfigurations().Get(ctx, name, metav1.GetOptions{}))
	return c
}

func newConfigMap(name string, data map[string]string) *corev1.ConfigMap {
	return &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: name}, Data: data}
}

func createConfigMap(ctx context.Context, namespace string, c *corev1.ConfigMap) (*corev1.ConfigMap, error) {
	return clients().CoreV1().ConfigMaps(namespace).Create(ctx, c, metav1.CreateOptions{})
}

func createPod(ctx context.Context, namespace string, pod *corev1.Pod) (*corev1.Pod, error) {
	return clients().CoreV1().Pods(namespace).Create(ctx, pod, metav1.CreateOptions{})
}

// A marker shows that the API server acts on a configuration, which it announces nowhere: it refuses every config
// map with its label in a namespace where nothing else is done, so a dry run there shows whether it is called.
type marker struct {
	fingerprint, kind string // kind: mutating or validating; each has an informer of its own
	step              any
}

// markerNamespace belongs to the markers alone.
const markerNamespace = "conformance-markers"

const markerLabel = "conformance-marker"

// markersFor returns a marker for each configuration that the steps will be in.
func markersFor(fingerprint string, steps []any) []marker {
	var markers []marker
	needed := map[bool]bool{}
	for _, s := range steps {
		needed[validates(s)] = true
	}
	if needed[false] {
		m := marker{fingerprint: fingerprint, kind: "mutating"}
		m.step = eirinix.Mutation[*corev1.ConfigMap]{ID: "marker-mutating", Settings: m.settings(), Apply: func(context.Context, *eirinix.Call, *corev1.ConfigMap) error {
			return m.refusal()
		}}
		markers = append(markers, m)
	}
	if needed[true] {
		m := marker{fingerprint: fingerprint, kind: "validating"}
		m.step = eirinix.Validation[*corev1.ConfigMap]{ID: "marker-validating", Settings: m.settings(), Create: func(context.Context, *eirinix.Call, *corev1.ConfigMap) error {
			return m.refusal()
		}}
		markers = append(markers, m)
	}
	return markers
}

// validates reports whether a step goes into the validating configuration.
func validates(step any) bool {
	name := reflect.TypeOf(step).Name()
	return strings.HasPrefix(name, "Validation[") || strings.HasPrefix(name, "Subresource[")
}

func (m marker) label() map[string]string {
	return map[string]string{markerLabel: m.fingerprint + "." + m.kind}
}

func (m marker) refusal() error { return eirinix.Deny("%s marker of %s", m.kind, m.fingerprint) }

func (m marker) settings() eirinix.Settings {
	return eirinix.Settings{
		Isolated:   true,
		Namespaces: &metav1.LabelSelector{MatchLabels: map[string]string{corev1.LabelMetadataName: markerNamespace}},
		Objects:    &metav1.LabelSelector{MatchLabels: m.label()},
		Rules:      ruleFor("", "v1", []string{"configmaps"}, created),
	}
}

// called reports whether the API server calls the marker now.
func (m marker) called(ctx context.Context) bool {
	_, err := clients().CoreV1().ConfigMaps(markerNamespace).Create(ctx, &corev1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{Name: "probe", Labels: m.label()},
	}, metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
	return err != nil && strings.Contains(err.Error(), m.refusal().Error())
}

func (m marker) await(ctx context.Context) {
	GinkgoHelper()
	Eventually(m.called).WithArguments(ctx).WithContext(ctx).WithPolling(pollMarker).Should(BeTrue(), "the API server never called the %s marker of %s", m.kind, m.fingerprint)
}

// A callLog keeps the calls of steps. It is safe for concurrent use.
type callLog struct {
	mu    sync.Mutex
	calls []string
}

func (t *callLog) add(call ...string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.calls = append(t.calls, strings.Join(call, " "))
}

func (t *callLog) list() []string {
	t.mu.Lock()
	defer t.mu.Unlock()
	return slices.Clone(t.calls)
}

// take returns the calls since the last time.
func (t *callLog) take() []string {
	t.mu.Lock()
	defer t.mu.Unlock()
	calls := t.calls
	t.calls = nil
	return calls
}

// counts returns the number of calls of each kind.
func (t *callLog) counts() map[string]int {
	counts := map[string]int{}
	for _, c := range t.list() {
		counts[c]++
	}
	return counts
}

// overheard collects the warnings that a client is sent.
type overheard struct{ callLog }

func (o *overheard) HandleWarningHeader(_ int, _, text string) { o.add(text) }

// ruleFor is a rule for resources of one group and version; a resource may have a subresource behind a slash.
func ruleFor(group, version string, resources []string, operations ...admissionregistrationv1.OperationType) []admissionregistrationv1.RuleWithOperations {
	return []admissionregistrationv1.RuleWithOperations{{
		Operations: operations,
		Rule:       admissionregistrationv1.Rule{APIGroups: []string{group}, APIVersions: []string{version}, Resources: resources},
	}}
}

// rawStep is an Extension that answers with a Response of its own making, for rules of its own.
type rawStep struct {
	name     string
	settings eirinix.Settings
	handle   func(admission.Request) admission.Response
}

func (s rawStep) Name() string               { return s.name }
func (s rawStep) Settings() eirinix.Settings { return s.settings }
func (s rawStep) Handle(_ context.Context, _ eirinix.Manager, _ *corev1.Pod, req admission.Request) admission.Response {
	return s.handle(req)
}

const (
	created = admissionregistrationv1.Create
	updated = admissionregistrationv1.Update
	deleted = admissionregistrationv1.Delete
)
