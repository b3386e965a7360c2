package conformance_test

import (
	"context"
	"fmt"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"

	"code.cloudfoundry.org/eirinix"
	. "code.cloudfoundry.org/eirinix/internal/spectest"

	"go.uber.org/zap"
)

// mode is how the API server reaches the webhook. It is also the label of the specs that run in it.
type mode string

const (
	urlMode     mode = "URL"     // a loopback URL: one transport per CA, HTTP/2 where the server offers it
	serviceMode mode = "Service" // a Service, as in production: one transport per hook, HTTP/1.1
)

var modes = []mode{urlMode, serviceMode}

// eachMode makes the specs of body once for each mode.
func eachMode(body func(mode mode)) {
	for _, m := range modes {
		Context("through a "+string(m), Label(string(m)), func() { body(m) })
	}
}

func clients() kubernetes.Interface { return Clients(controlPlane().Config()) }

func dynamicClients() dynamic.Interface {
	GinkgoHelper()
	c, err := dynamic.NewForConfig(controlPlane().Config())
	Expect(err).NotTo(HaveOccurred())
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

// serve runs a Manager with these steps until the spec ends. It returns once the API server is seen to call it:
// for that each of its configurations ends with the entry of a marker, see marker_test.go. A second Manager in a
// namespace needs another OperatorFingerprint; change, which may be nil, can give it one.
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
	c, err := clients().AdmissionregistrationV1().MutatingWebhookConfigurations().Get(ctx, name, metav1.GetOptions{})
	Expect(err).NotTo(HaveOccurred())
	return c
}

func validatingConfiguration(ctx context.Context, m *eirinix.ExtensionManager) *admissionregistrationv1.ValidatingWebhookConfiguration {
	GinkgoHelper()
	name := m.GetManagerOptions().OperatorFingerprint + "-validating-hook"
	c, err := clients().AdmissionregistrationV1().ValidatingWebhookConfigurations().Get(ctx, name, metav1.GetOptions{})
	Expect(err).NotTo(HaveOccurred())
	return c
}

func newConfigMap(name string, data map[string]string) *corev1.ConfigMap {
	return &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: name}, Data: data}
}

func createConfigMap(ctx context.Context, namespace string, c *corev1.ConfigMap) (*corev1.ConfigMap, error) {
	return clients().CoreV1().ConfigMaps(namespace).Create(ctx, c, metav1.CreateOptions{})
}

func newPod(name string) *corev1.Pod {
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "app", Image: "app:1"}}},
	}
}

func createPod(ctx context.Context, namespace string, pod *corev1.Pod) (*corev1.Pod, error) {
	return clients().CoreV1().Pods(namespace).Create(ctx, pod, metav1.CreateOptions{})
}
