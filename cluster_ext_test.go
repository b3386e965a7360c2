package eirinix_test

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"

	"code.cloudfoundry.org/eirinix"
	. "code.cloudfoundry.org/eirinix/internal/spectest"
	eirinixtest "code.cloudfoundry.org/eirinix/testing"
)

// This file holds the fixtures of the specs with an API server: the control plane, and a program with one extension.

// patience bounds the time that a slow machine may take. A spec that passes does not wait for it.
const patience = 2 * time.Minute

// started is one control plane for the whole suite.
var started *eirinixtest.ControlPlane

var _ = BeforeSuite(func() {
	if !RunsAPIServer() {
		return // the fast half, while typing
	}
	started = eirinixtest.StartControlPlane(GinkgoTB(), eirinixtest.Shared)
})

func controlPlane() *eirinixtest.ControlPlane { return started }

func clients() kubernetes.Interface { return Clients(controlPlane().Config()) }

// newNamespace returns a namespace of the spec's own, which is also its fingerprint.
func newNamespace(ctx context.Context) string {
	GinkgoHelper()
	return NewNamespace(ctx, clients(), nil).Name
}

// urlOptions are options for URL mode on a free port of loopback.
func urlOptions(namespace string) eirinix.ManagerOptions {
	logger, _ := Observed()
	return eirinix.ManagerOptions{
		Namespace:           namespace,
		Host:                "127.0.0.1",
		ListenAddress:       "127.0.0.1:0",
		OperatorFingerprint: namespace,
		RestConfig:          controlPlane().Config(),
		Logger:              logger,
	}
}

// between is a connection whose requests pass f on their way to the API server.
func between(f func(r *http.Request, next http.RoundTripper) (*http.Response, error)) *rest.Config {
	config := controlPlane().Config()
	config.Wrap(func(next http.RoundTripper) http.RoundTripper {
		return RoundTrip(func(r *http.Request) (*http.Response, error) { return f(r, next) })
	})
	return config
}

// answered is an answer that the API server gives to a request that it does not carry out.
func answered(r *http.Request, err *apierrors.StatusError) (*http.Response, error) {
	status := err.Status()
	status.APIVersion, status.Kind = "v1", "Status"
	text, failed := json.Marshal(status)
	return &http.Response{
		StatusCode: int(err.Status().Code), Header: http.Header{"Content-Type": {"application/json"}},
		Body: io.NopCloser(strings.NewReader(string(text))), Request: r,
	}, failed
}

// runManager runs m until the spec ends and waits until it is ready.
func runManager(ctx context.Context, m *eirinix.ExtensionManager) {
	done := startManager(ctx, m)
	EventuallyWithOffset(1, func(g Gomega) {
		select {
		case err := <-done:
			StopTrying(fmt.Sprintf("Run returned before Ready: %v", err)).Now()
		default:
		}
		g.Expect(m.Ready()).To(BeClosed())
	}).WithContext(ctx).WithTimeout(patience).Should(Succeed())
}

// startManager runs m until the spec ends; the channel receives the result of Run.
func startManager(ctx context.Context, m *eirinix.ExtensionManager) <-chan error {
	done, result := make(chan struct{}), make(chan error, 1)
	go func() {
		defer GinkgoRecover()
		defer close(done)
		result <- m.Run(context.WithoutCancel(ctx))
	}()
	DeferCleanup(func(ctx context.Context) {
		m.Stop()
		Eventually(done).WithContext(ctx).WithTimeout(patience).Should(BeClosed())
		fingerprint, hooks := m.GetManagerOptions().OperatorFingerprint, clients().AdmissionregistrationV1()
		err := hooks.MutatingWebhookConfigurations().Delete(ctx, fingerprint+"-mutating-hook", metav1.DeleteOptions{})
		Expect(client.IgnoreNotFound(err)).To(Succeed())
		err = hooks.ValidatingWebhookConfigurations().Delete(ctx, fingerprint+"-validating-hook", metav1.DeleteOptions{})
		Expect(client.IgnoreNotFound(err)).To(Succeed())
	})
	return result
}

func configurationName(m *eirinix.ExtensionManager) string {
	return m.GetManagerOptions().OperatorFingerprint + "-mutating-hook"
}

func configuration(ctx context.Context, m *eirinix.ExtensionManager) *admissionregistrationv1.MutatingWebhookConfiguration {
	GinkgoHelper()
	return Must(clients().AdmissionregistrationV1().MutatingWebhookConfigurations().Get(ctx, configurationName(m), metav1.GetOptions{}))
}

func createPod(ctx context.Context, namespace string, pod *corev1.Pod) (*corev1.Pod, error) {
	return clients().CoreV1().Pods(namespace).Create(ctx, pod, metav1.CreateOptions{})
}

// mutated is the variable that addEnv adds to a pod.
const mutated = "EIRINIX"

// addEnv is the extension of most specs: one environment variable in every container.
type addEnv struct{}

func (addEnv) Handle(_ context.Context, m eirinix.Manager, pod *corev1.Pod, req admission.Request) admission.Response {
	pod = pod.DeepCopy()
	for i := range pod.Spec.Containers {
		c := &pod.Spec.Containers[i]
		c.Env = append(c.Env, corev1.EnvVar{Name: mutated, Value: "was here"})
	}
	return m.PatchFromPod(req, pod)
}

// addEnvManager returns a Manager with the extension addEnv.
func addEnvManager(options eirinix.ManagerOptions) *eirinix.ExtensionManager {
	GinkgoHelper()
	return managerWith(options, addEnv{})
}

// handleFunc is an extension made of a function, with a name.
type handleFunc struct {
	name   string
	handle func(context.Context, eirinix.Manager, *corev1.Pod, admission.Request) admission.Response
}

func (h handleFunc) Name() string { return h.name }
func (h handleFunc) Handle(ctx context.Context, m eirinix.Manager, pod *corev1.Pod, req admission.Request) admission.Response {
	return h.handle(ctx, m, pod, req)
}

func beMutated() OmegaMatcher {
	return WithTransform(func(p *corev1.Pod) []corev1.EnvVar { return p.Spec.Containers[0].Env },
		ContainElement(HaveField("Name", mutated)))
}

func TestEirinix(t *testing.T) {
	RegisterFailHandler(Fail)
	SetDefaultEventuallyTimeout(30 * time.Second)              // of a busy machine
	SetDefaultEventuallyPollingInterval(50 * time.Millisecond) // most questions are to an API server
	RunSpecs(t, "eirinix")
}
