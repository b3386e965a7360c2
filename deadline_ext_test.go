package eirinix_test

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"net"
	"net/http"
	"strings"
	"sync/atomic"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/rest"

	"code.cloudfoundry.org/eirinix"
	. "code.cloudfoundry.org/eirinix/internal/spectest"
	eirinixtest "code.cloudfoundry.org/eirinix/testing"
)

// between is a connection whose requests pass f on their way to the API server.
func between(f func(r *http.Request, next http.RoundTripper) (*http.Response, error)) *rest.Config {
	config := controlPlane().Config()
	config.Wrap(func(next http.RoundTripper) http.RoundTripper {
		return roundTrip(func(r *http.Request) (*http.Response, error) { return f(r, next) })
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

// isRead is true of a request for one object, and not of a watch or a list.
func isRead(r *http.Request, name string) bool {
	return r.Method == http.MethodGet && strings.HasSuffix(r.URL.Path, "/"+name)
}

var _ = Describe("An API server that misbehaves", Label("api-server"), func() {
	var namespace string
	BeforeEach(func(ctx SpecContext) { namespace = newNamespace(ctx) })

	manager := func(o eirinix.ManagerOptions) *eirinix.ExtensionManager {
		GinkgoHelper()
		m := addEnvManager(o)
		return m
	}
	emptyBundle := func(ctx context.Context, m *eirinix.ExtensionManager) {
		GinkgoHelper()
		c := configuration(ctx, m)
		c.Webhooks[0].ClientConfig.CABundle = nil
		_, err := clients().AdmissionregistrationV1().MutatingWebhookConfigurations().Update(ctx, c, metav1.UpdateOptions{})
		Expect(err).NotTo(HaveOccurred())
	}
	healed := func(ctx context.Context, m *eirinix.ExtensionManager) {
		GinkgoHelper()
		Eventually(func() []byte { return configuration(ctx, m).Webhooks[0].ClientConfig.CABundle }).
			WithContext(ctx).WithTimeout(2 * patience).ShouldNot(BeEmpty())
	}

	It("is not believed when one answer has an odd Date", func(ctx SpecContext) {
		var odd atomic.Int32
		o := urlOptions(namespace)
		o.RestConfig = between(func(r *http.Request, next http.RoundTripper) (*http.Response, error) {
			resp, err := next.RoundTrip(r)
			// The last answer before the serving certificate is signed.
			if err == nil && r.Method == http.MethodPost && strings.HasSuffix(r.URL.Path, "/secrets") && odd.Add(1) == 1 {
				resp.Header.Set("Date", time.Now().Add(6*time.Hour).UTC().Format(http.TimeFormat))
			}
			return resp, err
		})
		m := manager(o)
		runManager(ctx, m)
		Expect(odd.Load()).To(BeEquivalentTo(1))
		Expect(createPod(ctx, namespace, NewPod("pod", nil))).To(beMutated())
	}, SpecTimeout(2*patience))

	It("holds up neither a stop nor a registration when it accepts and never answers", func(ctx SpecContext) {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		Expect(err).NotTo(HaveOccurred())
		var accepted atomic.Int32
		go func() {
			for conn, err := l.Accept(); err == nil; conn, err = l.Accept() {
				accepted.Add(1)
				defer conn.Close()
			}
		}()
		DeferCleanup(l.Close)
		o := urlOptions(namespace)
		o.RestConfig = &rest.Config{Host: "http://" + l.Addr().String()}

		registered := make(chan error, 1)
		registers := o
		registers.Port = 8443
		go func() { registered <- manager(registers).RegisterExtensions() }()

		stopped, stop := context.WithCancel(ctx)
		defer stop()
		done := make(chan error, 1)
		go func() { done <- manager(o).Run(stopped) }()
		Eventually(accepted.Load).WithTimeout(patience).Should(BeNumerically(">=", 2))
		stop()
		Eventually(done).WithTimeout(10 * time.Second).Should(Receive(BeNil()))
		Eventually(registered).WithTimeout(patience).Should(Receive(MatchError(ContainSubstring("within"))))
	}, SpecTimeout(3*patience))

	It("holds up no repair when it never answers one request", func(ctx SpecContext) {
		var hang atomic.Bool
		hung := make(chan struct{})
		o := urlOptions(namespace)
		o.RestConfig = between(func(r *http.Request, next http.RoundTripper) (*http.Response, error) {
			if isRead(r, namespace+"-mutating-hook") && hang.CompareAndSwap(true, false) {
				close(hung)
				<-r.Context().Done()
				return nil, r.Context().Err()
			}
			return next.RoundTrip(r)
		})
		m := manager(o)
		runManager(ctx, m)
		hang.Store(true)
		emptyBundle(ctx, m)
		Eventually(hung).WithTimeout(patience).Should(BeClosed())
		healed(ctx, m)
	}, SpecTimeout(4*patience))

	It("holds up no repair when it asks for an hour's patience", func(ctx SpecContext) {
		var refuse atomic.Bool
		o := urlOptions(namespace)
		o.RestConfig = between(func(r *http.Request, next http.RoundTripper) (*http.Response, error) {
			if isRead(r, namespace+"-mutating-hook") && refuse.CompareAndSwap(true, false) {
				resp, err := answered(r, apierrors.NewTooManyRequests("later", 3600))
				resp.Header.Set("Retry-After", "3600")
				return resp, err
			}
			return next.RoundTrip(r)
		})
		m := manager(o)
		runManager(ctx, m)
		refuse.Store(true)
		emptyBundle(ctx, m)
		healed(ctx, m)
		Expect(refuse.Load()).To(BeFalse())
	}, SpecTimeout(4*patience))

	It("ends neither a start nor a rotation by conflicts and single failures", func(ctx SpecContext) {
		hooks := clients().AdmissionregistrationV1().MutatingWebhookConfigurations()
		_, err := hooks.Create(ctx, &admissionregistrationv1.MutatingWebhookConfiguration{ObjectMeta: metav1.ObjectMeta{Name: namespace + "-mutating-hook"}}, metav1.CreateOptions{})
		Expect(err).NotTo(HaveOccurred())
		var conflicts, failures atomic.Int32
		conflicts.Store(4)
		due := func(left *atomic.Int32) bool { return left.Add(-1) >= 0 }
		o := urlOptions(namespace)
		o.RestConfig = between(func(r *http.Request, next http.RoundTripper) (*http.Response, error) {
			ofSecret := strings.HasSuffix(r.URL.Path, "/"+namespace+"-setupcertificate")
			switch {
			case r.Method == http.MethodPut && strings.HasSuffix(r.URL.Path, "/"+namespace+"-mutating-hook") && due(&conflicts):
				return answered(r, apierrors.NewConflict(schema.GroupResource{Resource: "mutatingwebhookconfigurations"}, namespace, errors.New("modified")))
			case ofSecret && due(&failures):
				return answered(r, apierrors.NewServiceUnavailable("starting"))
			}
			return next.RoundTrip(r)
		})
		m := manager(o)
		eirinixtest.SetLifetimes(m, eirinixtest.Lifetimes{Retain: 2 * time.Second})
		runManager(ctx, m)
		Expect(conflicts.Load()).To(BeNumerically("<", 0))

		tool := manager(o)
		eirinixtest.SetLifetimes(tool, eirinixtest.Lifetimes{Retain: 2 * time.Second})
		for _, process := range []*eirinix.ExtensionManager{m, tool} {
			failures.Store(1)
			Expect(process.RotateCA(ctx, eirinix.RotateOptions{})).To(Succeed())
			Expect(failures.Load()).To(BeNumerically("<", 0))
		}
	}, SpecTimeout(3*patience))
})
