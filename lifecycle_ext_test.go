package eirinix_test

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httputil"
	"net/url"
	"os"
	"path/filepath"
	"sync/atomic"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"github.com/onsi/gomega/gleak"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"

	"code.cloudfoundry.org/eirinix"
	. "code.cloudfoundry.org/eirinix/internal/spectest"
)

var _ = Describe("The life of a Manager", Label("api-server"), func() {
	var namespace string
	BeforeEach(func(ctx SpecContext) { namespace = newNamespace(ctx) })

	newManager := func(o eirinix.ManagerOptions, extensions ...any) *eirinix.ExtensionManager {
		m := eirinix.NewManager(o)
		for _, e := range extensions {
			Expect(m.AddExtension(e)).To(Succeed())
		}
		return m
	}

	It("finishes the call in flight when it is stopped, and its context lives", func(ctx SpecContext) {
		arrived, release := make(chan struct{}), make(chan struct{})
		m := newManager(urlOptions(namespace), handleFunc{name: "slow", handle: func(ctx context.Context, m eirinix.Manager, pod *corev1.Pod, req admission.Request) admission.Response {
			close(arrived)
			<-release
			Expect(ctx.Err()).NotTo(HaveOccurred())
			Expect(m.GetContext().Err()).NotTo(HaveOccurred())
			return addEnv{}.Handle(ctx, m, pod, req)
		}})
		runManager(ctx, m)
		created := make(chan any, 1)
		go func() {
			defer GinkgoRecover()
			pod, err := createPod(ctx, namespace, NewPod("pod", nil))
			Expect(err).NotTo(HaveOccurred())
			created <- pod
		}()
		Eventually(arrived).WithContext(ctx).Should(BeClosed())
		m.Stop()
		Eventually(func() error { // the port is closed to newcomers
			conn, err := net.Dial("tcp", m.Addr().String())
			if err == nil {
				err = conn.Close()
				return err
			}
			return err
		}).WithContext(ctx).Should(HaveOccurred())
		close(release)
		Eventually(created).WithContext(ctx).Should(Receive(beMutated()))
	}, SpecTimeout(2*patience))

	It("goes on serving for DrainDelay, while it reports that it is not ready", func(ctx SpecContext) {
		o := urlOptions(namespace)
		o.DrainDelay = patience
		m := newManager(o, addEnv{})
		done := make(chan error, 1)
		go func() { done <- m.Run(ctx) }()
		Eventually(m.Ready()).WithContext(ctx).Should(BeClosed())
		Expect(health(m, "/readyz")).To(Equal(http.StatusOK))
		m.Stop()
		Eventually(health).WithArguments(m, "/readyz").Should(Equal(http.StatusServiceUnavailable))
		Expect(health(m, "/healthz")).To(Equal(http.StatusOK))
		Expect(createPod(ctx, namespace, NewPod("pod", nil))).To(beMutated())
		Consistently(done, "200ms").ShouldNot(Receive())
	}, SpecTimeout(2*patience))

	It("leaves no goroutine behind", func(ctx SpecContext) {
		before := gleak.Goroutines()
		m := newManager(urlOptions(namespace), addEnv{})
		done := startManager(ctx, m)
		Eventually(m.Ready()).WithContext(ctx).WithTimeout(patience).Should(BeClosed())
		m.Stop()
		Eventually(done).WithContext(ctx).WithTimeout(patience).Should(Receive(BeNil()))
		Expect(m.GetContext().Err()).To(HaveOccurred())
		// Idle connections to the API server belong to client-go, which shares them.
		Eventually(gleak.Goroutines).WithTimeout(patience).ShouldNot(gleak.HaveLeaked(before,
			gleak.IgnoringInBacktrace("net/http.(*persistConn)"), gleak.IgnoringInBacktrace("golang.org/x/net/http2"),
			gleak.IgnoringInBacktrace("net/http.(*http2"), gleak.IgnoringInBacktrace("internal/http2")))
	}, SpecTimeout(3*patience))

	It("waits for an API server that is not up yet, and logs this", func(ctx SpecContext) {
		target, err := url.Parse(controlPlane().Config().Host)
		Expect(err).NotTo(HaveOccurred())
		transport, err := rest.TransportFor(controlPlane().Config())
		Expect(err).NotTo(HaveOccurred())
		port := FreePort()
		logger, logs := Observed()
		o := urlOptions(namespace)
		o.Logger = logger
		o.RestConfig = &rest.Config{Host: (&url.URL{Scheme: "http", Host: net.JoinHostPort("127.0.0.1", fmt.Sprint(port))}).String()}
		m := newManager(o, addEnv{})
		startManager(ctx, m)
		Eventually(func() int { return logs.FilterMessageSnippet("does not answer yet").Len() }).
			WithTimeout(patience).Should(BeNumerically(">=", 2))

		l, err := net.Listen("tcp", net.JoinHostPort("127.0.0.1", fmt.Sprint(port)))
		Expect(err).NotTo(HaveOccurred())
		proxy := &http.Server{Handler: &httputil.ReverseProxy{
			Rewrite:   func(r *httputil.ProxyRequest) { r.SetURL(target) },
			Transport: transport,
		}, ReadHeaderTimeout: patience}
		go func() { _ = proxy.Serve(l) }()
		DeferCleanup(proxy.Close)
		Eventually(m.Ready()).WithContext(ctx).WithTimeout(patience).Should(BeClosed())
	}, SpecTimeout(3*patience))

	It("can be stopped while it waits for the API server", func(ctx SpecContext) {
		o := urlOptions(namespace)
		logger, logs := Observed()
		o.Logger, o.RestConfig = logger, &rest.Config{Host: "https://" + net.JoinHostPort("127.0.0.1", fmt.Sprint(FreePort()))}
		m := newManager(o, addEnv{})
		stopped, cancel := context.WithCancelCause(ctx)
		done := make(chan error, 1)
		go func() { done <- m.Run(stopped) }()
		Eventually(func() int { return logs.FilterMessageSnippet("does not answer yet").Len() }).
			WithTimeout(patience).Should(BeNumerically(">", 0))
		cancel(errors.New("terminated"))
		Eventually(done).WithTimeout(patience).Should(Receive(BeNil()))
	}, SpecTimeout(2*patience))

	It("names the port that is taken, and the remedy", func(ctx SpecContext) {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		Expect(err).NotTo(HaveOccurred())
		defer l.Close()
		o := urlOptions(namespace)
		o.ListenAddress = l.Addr().String()
		Expect(newManager(o, addEnv{}).Run(ctx)).To(MatchError(And(
			HavePrefix("eirinix: cannot listen on "+l.Addr().String()), ContainSubstring("ListenAddress"))))
	}, SpecTimeout(patience))

	It("names the kubeconfig that is missing", func(ctx SpecContext) {
		o := urlOptions(namespace)
		o.RestConfig, o.KubeConfig = nil, filepath.Join(GinkgoT().TempDir(), "nothing")
		Expect(newManager(o, addEnv{}).Run(ctx)).To(And(MatchError(ContainSubstring(o.KubeConfig)), MatchError(os.ErrNotExist)))
	}, SpecTimeout(patience))

	It("names the right that is missing", func(ctx SpecContext) {
		powerless, err := controlPlane().User("powerless-" + namespace)
		Expect(err).NotTo(HaveOccurred())
		o := urlOptions(namespace)
		o.RestConfig = powerless
		Expect(newManager(o, addEnv{}).Run(ctx)).To(MatchError(And(
			ContainSubstring("certificate Secret "+namespace+"/"), ContainSubstring("get, create, update on secrets"))))
	}, SpecTimeout(patience))

	It("can be stopped twice, before Start, and from a handler", func(ctx SpecContext) {
		m := newManager(urlOptions(namespace), addEnv{})
		m.Stop()
		m.Stop()
		Expect(m.Run(ctx)).To(Succeed())
		Expect(m.Run(ctx)).To(MatchError(ContainSubstring("make a new one")))

		var calls atomic.Int32
		m = newManager(urlOptions(namespace), handleFunc{name: "last", handle: func(ctx context.Context, m eirinix.Manager, pod *corev1.Pod, req admission.Request) admission.Response {
			calls.Add(1)
			m.Stop()
			return addEnv{}.Handle(ctx, m, pod, req)
		}})
		done := startManager(ctx, m)
		Eventually(m.Ready()).WithContext(ctx).WithTimeout(patience).Should(BeClosed())
		Expect(createPod(ctx, namespace, NewPod("pod", nil))).To(beMutated())
		Eventually(done).WithTimeout(patience).Should(Receive(BeNil()))
		Expect(calls.Load()).To(BeEquivalentTo(1))
	}, SpecTimeout(2*patience))

	It("ends with the context of its options, and with that of Run", func(ctx SpecContext) {
		ofOptions, cancel := context.WithCancel(ctx)
		o := urlOptions(namespace)
		o.Context = &ofOptions
		m := newManager(o, addEnv{})
		done := startManager(ctx, m)
		Eventually(m.Ready()).WithTimeout(patience).Should(BeClosed())
		cancel()
		Eventually(done).WithTimeout(patience).Should(Receive(BeNil()))

		ofRun, cancelRun := context.WithCancel(ctx)
		m = newManager(urlOptions(namespace), addEnv{})
		result := make(chan error, 1)
		go func() { result <- m.Run(ofRun) }()
		Eventually(m.Ready()).WithTimeout(patience).Should(BeClosed())
		cancelRun()
		Eventually(result).WithTimeout(patience).Should(Receive(BeNil()))
	}, SpecTimeout(3*patience))
})

// health asks the webhook's own port, as the kubelet would.
func health(m *eirinix.ExtensionManager, path string) int { return healthOf(m.Addr().String(), path) }

func healthOf(address, path string) int {
	client := &http.Client{Timeout: 5 * time.Second, Transport: &http.Transport{
		TLSClientConfig:   &tls.Config{InsecureSkipVerify: true},
		DisableKeepAlives: true,
	}}
	resp, err := client.Get("https://" + address + path)
	if err != nil {
		return 0
	}
	defer resp.Body.Close()
	_, _ = io.Copy(io.Discard, resp.Body)
	return resp.StatusCode
}
