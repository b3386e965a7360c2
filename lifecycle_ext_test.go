package eirinix_test

// This file specifies what a program does for pods while it runs, and how it starts and stops beside an API server.

import (
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"github.com/onsi/gomega/gbytes"
	"github.com/onsi/gomega/gexec"
	"github.com/onsi/gomega/gleak"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"

	"code.cloudfoundry.org/eirinix"
	. "code.cloudfoundry.org/eirinix/internal/spectest"
	eirinixtest "code.cloudfoundry.org/eirinix/testing"
)

var _ = Describe("A pod on its way into a cluster", Label("api-server"), func() {
	var namespace string
	BeforeEach(func(ctx SpecContext) { namespace = newNamespace(ctx) })

	It("comes out changed, in URL mode on a free port, and in no other namespace", func(ctx SpecContext) {
		m := addEnvManager(urlOptions(namespace))
		runManager(ctx, m)

		Expect(createPod(ctx, namespace, NewPod("pod", nil))).To(beMutated())
		Expect(*configuration(ctx, m).Webhooks[0].ClientConfig.URL).
			To(HavePrefix("https://" + m.Addr().String() + "/mutate/pods-"))
		Expect(createPod(ctx, newNamespace(ctx), NewPod("pod", nil))).NotTo(beMutated())
	}, SpecTimeout(2*patience))

	It("comes out changed by a host with an IPv6 address", func(ctx SpecContext) {
		l, err := net.Listen("tcp", "[::1]:0")
		if err != nil {
			Skip(fmt.Sprintf("this machine has no IPv6: %v", err))
		}
		Expect(l.Close()).To(Succeed())
		o := urlOptions(namespace)
		o.Host, o.ListenAddress = "[::1]", "[::1]:0"
		runManager(ctx, addEnvManager(o))
		Expect(createPod(ctx, namespace, NewPod("pod", nil))).To(beMutated())
	}, SpecTimeout(2*patience))

	It("is refused where an extension denies it, also under Ignore", func(ctx SpecContext) {
		o := urlOptions(namespace)
		o.FailurePolicy = new(admissionregistrationv1.Ignore)
		runManager(ctx, managerOf(o, handleFunc{name: "judge", handle: func(context.Context, eirinix.Manager, *corev1.Pod, admission.Request) admission.Response {
			return admission.Denied("too big")
		}}))
		_, err := createPod(ctx, namespace, NewPod("pod", nil))
		Expect(err).To(And(Satisfy(apierrors.IsForbidden), MatchError(ContainSubstring("too big"))))
	}, SpecTimeout(2*patience))
})

var _ = Describe("The life of a Manager", Label("api-server"), func() {
	var namespace string
	BeforeEach(func(ctx SpecContext) { namespace = newNamespace(ctx) })

	It("finishes the call in flight when it is stopped, also from within that, and its context lives", func(ctx SpecContext) {
		arrived, release := make(chan struct{}), make(chan struct{})
		m := managerOf(urlOptions(namespace), handleFunc{name: "slow", handle: func(ctx context.Context, m eirinix.Manager, pod *corev1.Pod, req admission.Request) admission.Response {
			m.Stop()
			close(arrived)
			<-release
			Expect(ctx.Err()).NotTo(HaveOccurred())
			Expect(m.GetContext().Err()).NotTo(HaveOccurred())
			return addEnv{}.Handle(ctx, m, pod, req)
		}})
		done := startManager(ctx, m)
		Eventually(m.Ready()).WithContext(ctx).Should(BeClosed())
		created := make(chan any, 1)
		go func() {
			defer GinkgoRecover()
			pod, err := createPod(ctx, namespace, NewPod("pod", nil))
			Expect(err).NotTo(HaveOccurred())
			created <- pod
		}()
		Eventually(arrived).WithContext(ctx).Should(BeClosed())
		Eventually(health).WithArguments(m, "/healthz").WithContext(ctx).Should(BeZero(), "the port is closed to newcomers")
		close(release)
		Eventually(created).WithContext(ctx).Should(Receive(beMutated()))
		Eventually(done).WithContext(ctx).Should(Receive(BeNil()))
	}, SpecTimeout(2*patience))

	It("leaves no goroutine behind", func(ctx SpecContext) {
		before := gleak.Goroutines()
		m := addEnvManager(urlOptions(namespace))
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

	It("waits for an API server that is not up yet, and makes up for the changes that it missed during an outage", func(ctx SpecContext) {
		api := &outage{bodies: map[io.Closer]bool{}}
		api.begin()
		logger, logs := Observed()
		o := urlOptions(namespace)
		o.Logger, o.RestConfig = logger, between(api.pass)
		m := addEnvManager(o)
		startManager(ctx, m)
		Eventually(func() int { return logs.FilterMessageSnippet("does not answer yet").Len() }).
			WithTimeout(patience).Should(BeNumerically(">=", 2))
		api.end()
		Eventually(m.Ready()).WithTimeout(patience).Should(BeClosed())

		before := api.refused.Load()
		api.begin()
		c := configuration(ctx, m)
		c.Webhooks[0].ClientConfig.CABundle = nil
		Must(clients().AdmissionregistrationV1().MutatingWebhookConfigurations().Update(ctx, c, metav1.UpdateOptions{}))
		Eventually(api.refused.Load).WithTimeout(patience).Should(BeNumerically(">", before))
		api.end()
		Eventually(func() []byte { return configuration(ctx, m).Webhooks[0].ClientConfig.CABundle }).WithTimeout(2 * patience).ShouldNot(BeEmpty())
		Expect(createPod(ctx, namespace, NewPod("pod", nil))).To(beMutated())
	}, SpecTimeout(6*patience))
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

// outage is a connection that can be cut.
type outage struct {
	mu      sync.Mutex
	down    bool
	refused atomic.Int32
	bodies  map[io.Closer]bool
}

func (o *outage) pass(r *http.Request, next http.RoundTripper) (*http.Response, error) {
	o.mu.Lock()
	down := o.down
	o.mu.Unlock()
	if down {
		o.refused.Add(1)
		return nil, syscall.ECONNREFUSED
	}
	resp, err := next.RoundTrip(r)
	if err != nil {
		return nil, err
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	o.bodies[resp.Body] = true
	return resp, nil
}

// begin cuts open watches too.
func (o *outage) begin() {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.down = true
	for body := range o.bodies {
		_ = body.Close()
	}
}

func (o *outage) end() {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.down = false
}

// Signals end a process, so the specs about them run this test binary once more as a program that uses the
// library the way its users do.
const programNamespace = "EIRINIX_SPEC_NAMESPACE"

func TestMain(m *testing.M) {
	namespace := os.Getenv(programNamespace)
	if namespace == "" {
		os.Exit(eirinixtest.Main(m))
	}
	x := eirinix.NewManager(eirinix.ManagerOptions{
		Namespace: namespace, OperatorFingerprint: namespace,
		Host: "127.0.0.1", ListenAddress: "127.0.0.1:0",
		KubeConfig: os.Getenv("EIRINIX_SPEC_KUBECONFIG"),
		DrainDelay: time.Second,
	})
	if err := x.AddExtension(addEnv{}); err != nil {
		panic(err)
	}
	go func() {
		<-x.Ready()
		fmt.Println("ready", x.Addr())
	}()
	if err := x.Start(); err != nil {
		fmt.Println(err)
		os.Exit(1)
	}
	fmt.Println("drained")
}

var _ = Describe("A program that calls Start", Label("api-server"), func() {
	start := func(ctx SpecContext) (session *gexec.Session, address string) {
		namespace := newNamespace(ctx)
		program := exec.Command(os.Args[0])
		program.Env = append(os.Environ(), programNamespace+"="+namespace, "EIRINIX_SPEC_KUBECONFIG="+controlPlane().Kubeconfig())
		session, err := gexec.Start(program, GinkgoWriter, GinkgoWriter)
		Expect(err).NotTo(HaveOccurred())
		DeferCleanup(func(ctx context.Context) {
			session.Kill().Wait(patience)
			_ = clients().AdmissionregistrationV1().MutatingWebhookConfigurations().Delete(ctx, namespace+"-mutating-hook", metav1.DeleteOptions{})
		})
		Eventually(session).WithContext(ctx).WithTimeout(patience).Should(gbytes.Say(`ready (\S+)\n`))
		_, err = fmt.Sscanf(string(session.Out.Contents()), "ready %s", &address)
		Expect(err).NotTo(HaveOccurred())
		return session, address
	}

	It("drains on SIGTERM and exits with 0", func(ctx SpecContext) {
		program, address := start(ctx)
		program.Terminate()
		Eventually(healthOf).WithArguments(address, "/readyz").Should(Equal(http.StatusServiceUnavailable))
		Eventually(program).WithTimeout(patience).Should(gexec.Exit(0))
		Expect(string(program.Out.Contents())).To(ContainSubstring("drained"))
	}, SpecTimeout(2*patience))

	It("exits at once on a second signal, with an error", func(ctx SpecContext) {
		program, address := start(ctx)
		program.Terminate()
		Eventually(healthOf).WithArguments(address, "/readyz").Should(Equal(http.StatusServiceUnavailable))
		program.Signal(syscall.SIGINT)
		Eventually(program).WithTimeout(patience).Should(gexec.Exit(1))
		Expect(string(program.Out.Contents())).To(And(ContainSubstring("second signal"), Not(ContainSubstring("drained"))))
	}, SpecTimeout(2*patience))
})
