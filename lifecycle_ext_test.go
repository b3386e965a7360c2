package eirinix_test

// This file specifies what a program does for pods while it runs, how it starts and stops beside an API server, how it looks after
// its configuration, and what a diagnosis finds of it. Each finding is in internal/diagnose.

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"strings"
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
	"code.cloudfoundry.org/eirinix/diagnosis"
	"code.cloudfoundry.org/eirinix/internal/diagnose"
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

	It("is refused where an extension denies it, also under Ignore", func(ctx SpecContext) {
		o := urlOptions(namespace)
		o.FailurePolicy = new(admissionregistrationv1.Ignore)
		runManager(ctx, managerWith(o, handleFunc{name: "judge", handle: func(context.Context, eirinix.Manager, *corev1.Pod, admission.Request) admission.Response {
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
		m := managerWith(urlOptions(namespace), handleFunc{name: "slow", handle: func(ctx context.Context, m eirinix.Manager, pod *corev1.Pod, req admission.Request) admission.Response {
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
			pod := Must(createPod(ctx, namespace, NewPod("pod", nil)))
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
})

// health asks the webhook's own port, as the kubelet would.
func health(m *eirinix.ExtensionManager, path string) int { return healthOf(m.Addr().String(), path) }

func healthOf(address, path string) int {
	client := &http.Client{Timeout: 5 * time.Second, Transport: &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}, DisableKeepAlives: true}}
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
		session = Must(gexec.Start(program, GinkgoWriter, GinkgoWriter))
		DeferCleanup(func(ctx context.Context) {
			session.Kill().Wait(patience)
			_ = clients().AdmissionregistrationV1().MutatingWebhookConfigurations().Delete(ctx, namespace+"-mutating-hook", metav1.DeleteOptions{})
		})
		Eventually(session).WithContext(ctx).WithTimeout(patience).Should(gbytes.Say(`ready (\S+)\n`))
		Must(fmt.Sscanf(string(session.Out.Contents()), "ready %s", &address))
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

var _ = Describe("The configuration of a program", Label("api-server"), func() {
	var namespace string
	BeforeEach(func(ctx SpecContext) { namespace = newNamespace(ctx) })

	run := func(ctx SpecContext, o eirinix.ManagerOptions) *eirinix.ExtensionManager {
		GinkgoHelper()
		m := addEnvManager(o)
		runManager(ctx, m)
		return m
	}
	get := func(ctx context.Context) error {
		_, err := clients().AdmissionregistrationV1().MutatingWebhookConfigurations().Get(ctx, namespace+"-mutating-hook", metav1.GetOptions{})
		return err
	}

	It("is owned by the namespace that the program lives in, though the API server does not answer for a moment", func(ctx SpecContext) {
		o := urlOptions(namespace)
		var asked atomic.Int32
		o.RestConfig = between(func(r *http.Request, next http.RoundTripper) (*http.Response, error) {
			if strings.HasSuffix(r.URL.Path, "/api/v1/namespaces/"+namespace) && asked.Add(1) == 1 {
				return answered(r, apierrors.NewServiceUnavailable("for a moment"))
			}
			return next.RoundTrip(r)
		})
		m := run(ctx, o)
		Expect(asked.Load()).To(BeNumerically(">", 1))
		Expect(configuration(ctx, m).OwnerReferences).To(ConsistOf(And(HaveField("Kind", "Namespace"), HaveField("Name", namespace))))
	}, SpecTimeout(2*patience))

	It("is looked after again when it could not be removed", func(ctx SpecContext) {
		o := urlOptions(namespace)
		var refuse atomic.Bool
		o.RestConfig = between(func(r *http.Request, next http.RoundTripper) (*http.Response, error) {
			if refuse.Load() && r.Method == http.MethodDelete {
				return nil, errors.New("no way")
			}
			return next.RoundTrip(r)
		})
		m := run(ctx, o)
		refuse.Store(true)
		Expect(m.Unregister(ctx)).NotTo(Succeed())
		c := configuration(ctx, m)
		healthy := c.DeepCopy().Webhooks
		c.Webhooks[0].ClientConfig.CABundle = nil
		Must(clients().AdmissionregistrationV1().MutatingWebhookConfigurations().Update(ctx, c, metav1.UpdateOptions{}))
		Eventually(func() any { return configuration(ctx, m).Webhooks }).WithTimeout(patience).Should(Equal(healthy))
	}, SpecTimeout(2*patience))

	It("stays the cluster's while that runs, and is a laptop's seconds after that has stopped", func(ctx SpecContext) {
		cluster := run(ctx, urlOptions(namespace))
		before := configuration(ctx, cluster)
		Expect(before.OwnerReferences).To(ConsistOf(And(HaveField("Kind", "Namespace"), HaveField("Name", namespace))))
		laptop := func() *eirinix.ExtensionManager {
			o := urlOptions(namespace)
			o.UnregisterOnStop = true
			return addEnvManager(o)
		}
		m := laptop()
		var refused error
		Eventually(startManager(ctx, m)).WithTimeout(patience).Should(Receive(&refused))
		Expect(refused).To(MatchError(And(ContainSubstring("https://"+cluster.Addr().String()), ContainSubstring("https://"+m.Addr().String()), ContainSubstring("OperatorFingerprint"))))
		Expect(m.Ready()).NotTo(BeClosed())
		Expect(configuration(ctx, cluster)).To(Equal(before), "nothing of it is touched")
		Expect(createPod(ctx, namespace, NewPod("first", nil))).To(beMutated())

		cluster.Stop()
		m = laptop()
		runManager(ctx, m)
		Expect(*configuration(ctx, m).Webhooks[0].ClientConfig.URL).To(HavePrefix("https://" + m.Addr().String() + "/"))
		Expect(createPod(ctx, namespace, NewPod("second", nil))).To(beMutated())
		m.Stop()
		Eventually(get).WithContext(ctx).WithTimeout(patience).Should(Satisfy(apierrors.IsNotFound))
	}, SpecTimeout(3*patience))

	It("is healed when it was edited or deleted", func(ctx SpecContext) {
		m := run(ctx, urlOptions(namespace))
		hooks := clients().AdmissionregistrationV1().MutatingWebhookConfigurations()
		before := configuration(ctx, m)
		edited := before.DeepCopy()
		edited.Webhooks[0].FailurePolicy, edited.Webhooks[0].NamespaceSelector = new(admissionregistrationv1.Ignore), &metav1.LabelSelector{}
		Must(hooks.Update(ctx, edited, metav1.UpdateOptions{}))
		Eventually(func() any { return configuration(ctx, m).Webhooks }).WithTimeout(patience).Should(Equal(before.Webhooks))
		Expect(hooks.Delete(ctx, before.Name, metav1.DeleteOptions{})).To(Succeed())
		Eventually(get).WithContext(ctx).WithTimeout(patience).Should(Succeed())
	}, SpecTimeout(2*patience))

	It("has a metric and an Event that name the tool which applies its own copy again and again", func(ctx SpecContext) {
		run(ctx, urlOptions(namespace))
		hooks := clients().AdmissionregistrationV1().MutatingWebhookConfigurations()
		undo := func() error {
			c, err := hooks.Get(ctx, namespace+"-mutating-hook", metav1.GetOptions{})
			if err != nil || *c.Webhooks[0].FailurePolicy == admissionregistrationv1.Ignore {
				return err
			}
			c.Webhooks[0].FailurePolicy = new(admissionregistrationv1.Ignore)
			_, err = hooks.Update(ctx, c, metav1.UpdateOptions{FieldManager: "gitops"})
			if apierrors.IsConflict(err) {
				return nil
			}
			return err
		}
		contested := "eirinix_registration_contested " + namespace + "-mutating-hook MutatingWebhookConfiguration"
		Eventually(func(g Gomega) {
			g.Expect(undo()).To(Succeed())
			g.Expect(certificateMetrics(namespace)).To(HaveKeyWithValue(contested, BeNumerically(">", 5)))
		}).WithPolling(50 * time.Millisecond).WithTimeout(patience).Should(Succeed())
		Eventually(func(g Gomega) {
			events, err := clients().CoreV1().Events(namespace).List(ctx, metav1.ListOptions{})
			g.Expect(err).NotTo(HaveOccurred())
			g.Expect(events.Items).To(ContainElement(And(HaveField("Reason", "RegistrationContested"), HaveField("Message", ContainSubstring(`edited or deleted by "gitops"`)))))
		}).WithTimeout(patience).Should(Succeed())
	}, SpecTimeout(3*patience))
})

var _ = Describe("A Manager that diagnoses its deployment", Label("api-server"), func() {
	var namespace string
	var options eirinix.ManagerOptions
	BeforeEach(func(ctx SpecContext) {
		namespace = newNamespace(ctx)
		options = urlOptions(namespace)
	})

	It("finds no problem, from within and from elsewhere, leaves nothing behind, and asks no step about its own question", func(ctx SpecContext) {
		logger, logs := Observed()
		options.Logger = logger
		var asked atomic.Int64
		counts := eirinix.Mutation[*corev1.ConfigMap]{ID: "counts", Apply: func(context.Context, *eirinix.Call, *corev1.ConfigMap) error {
			asked.Add(1)
			return nil
		}}
		healthy := func(report eirinix.Report) {
			GinkgoHelper()
			Expect(report.Err()).NotTo(HaveOccurred())
			_, well := report.Find(diagnosis.Healthy)
			Expect(well).To(BeTrue(), "%s", report)
		}
		m := managerWith(options, addEnv{}, counts)
		runManager(ctx, m)
		began := time.Now().Unix()
		healthy(m.Diagnose(ctx))
		Eventually(func() int { return logs.FilterMessage("the API server calls this program").Len() }).WithTimeout(patience).Should(Equal(1))
		for _, line := range logs.All() {
			Expect(line.ContextMap()).NotTo(ContainElement(Equal("")), line.Message)
			Expect(fmt.Sprint(line.ContextMap())).NotTo(ContainSubstring("call RegisterExtensions"), "%s: it is about to do that itself", line.Message)
		}
		Expect(certificateMetrics(namespace)).To(HaveKeyWithValue("eirinix_canary_last_success_timestamp_seconds", BeNumerically(">=", began)))
		maps := clients().CoreV1().ConfigMaps(namespace)
		Expect(Must(maps.List(ctx, metav1.ListOptions{})).Items).NotTo(ContainElement(HaveField("Name", HavePrefix(diagnose.CanaryName))))
		Expect(asked.Load()).To(BeZero())
		Must(maps.Create(ctx, newConfigMap("one", nil), metav1.CreateOptions{}))
		Expect(asked.Load()).To(BeEquivalentTo(1))

		options.Port = int32(portOf(m))
		healthy(managerWith(options, addEnv{}, counts).Diagnose(ctx))
		Expect(m.Ready()).To(BeClosed())
	}, SpecTimeout(3*patience))

	It("prints the missing rights as a manifest when it lacks rights", func(ctx SpecContext) {
		config := Must(controlPlane().User("powerless-" + namespace))
		logger, logs := Observed()
		options.Logger, options.RestConfig = logger, config
		err := addEnvManager(options).Run(ctx)
		Expect(err).To(MatchError(And(
			ContainSubstring("needs get, create, update on secrets"),
			ContainSubstring("Grant the missing rights with kubectl apply -f -"),
			ContainSubstring("kind: ClusterRole\n"), ContainSubstring("kind: RoleBinding\n"), ContainSubstring("name: powerless-"+namespace))))
		Expect(logs.FilterMessageSnippet("rights are missing").Len()).To(Equal(1))
		options.Port = 8443
		Expect(addEnvManager(options).RegisterExtensions()).To(MatchError(ContainSubstring("Grant the missing rights with kubectl apply -f -")))
	}, SpecTimeout(patience))

	It("has a name that no extension may have", func() {
		m := eirinix.NewManager(options)
		Expect(m.AddExtension(handleFunc{name: diagnose.CanaryName, handle: addEnv{}.Handle})).To(Succeed())
		Expect(m.Validate()).To(MatchError(ContainSubstring("has the name of the webhook that Diagnose calls")))
	})
})

// portOf is the port that a Manager listens on.
func portOf(m *eirinix.ExtensionManager) int { return m.Addr().(*net.TCPAddr).Port }
