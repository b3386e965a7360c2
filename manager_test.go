package eirinix

// This file specifies what a Manager does without a cluster, and how it finds one.

import (
	"context"
	"crypto/fips140"
	"errors"
	"net/http"
	"net/http/httptest"
	"testing"
	"testing/synctest"
	"time"

	. "github.com/onsi/ginkgo/v2/dsl/core"
	. "github.com/onsi/ginkgo/v2/dsl/decorators"
	. "github.com/onsi/ginkgo/v2/dsl/table"
	. "github.com/onsi/gomega"
	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
	"go.uber.org/zap/zaptest/observer"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/watch"
	corev1client "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"

	"code.cloudfoundry.org/eirinix/internal/controller"
	. "code.cloudfoundry.org/eirinix/internal/spectest"
)

// fakeManager is a fake from the tests of a program that was written for EiriniX. It must go on compiling as it stands.
type fakeManager struct{}

func (fakeManager) AddExtension(any) error      { return nil }
func (fakeManager) AddReconciler(Reconciler)    {}
func (fakeManager) AddWatcher(Watcher)          {}
func (fakeManager) ListExtensions() []Extension { return nil }

func (fakeManager) ListReconcilers() []Reconciler { return nil }

func (fakeManager) Start() error { return nil }
func (fakeManager) Stop()        {}
func (fakeManager) Watch() error { return nil }

func (fakeManager) RegisterExtensions() error                                          { return nil }
func (fakeManager) PatchFromPod(admission.Request, *corev1.Pod) (r admission.Response) { return r }
func (fakeManager) GetContext() context.Context                                        { return nil }

func (fakeManager) GetKubeClient() (corev1client.CoreV1Interface, error) { return nil, nil }

func (fakeManager) GetKubeConnection() (*rest.Config, error) { return nil, nil }

func (fakeManager) GetKubeManager() manager.Manager { return nil }

func (fakeManager) GetLogger() *zap.SugaredLogger         { return nil }
func (fakeManager) GetManagerOptions() (o ManagerOptions) { return o }
func (fakeManager) SetManagerOptions(ManagerOptions)      {}

var _ Manager = fakeManager{}

var _ = Describe("Manager", func() {
	It("can be made without options, and then returns defaults", func() {
		m := NewManager(ManagerOptions{})
		Expect(m.GetContext()).NotTo(BeNil())
		Expect(m.GetContext().Err()).NotTo(HaveOccurred())
		Expect(m.GetLogger()).NotTo(BeNil())
		Expect(m.Addr()).To(BeNil())
		Expect(m.Ready()).NotTo(BeClosed())
	})

	It("has a context that is there also when the option points at nil, and ends with Stop", func() {
		o := validOptions()
		o.Context = new(context.Context)
		m := NewManager(o)
		ctx := m.GetContext()
		Expect(ctx.Err()).NotTo(HaveOccurred())
		m.Stop()
		Expect(ctx.Done()).To(BeClosed())
	})

	Describe("SetManagerOptions", func() {
		It("may come late: defaults are filled in again, and the logger stays where none is given", func() {
			m := NewManager(validOptions())
			logger := m.GetLogger()
			m.SetManagerOptions(ManagerOptions{Namespace: "cf"})
			Expect(m.GetManagerOptions()).To(And(HaveField("Namespace", "cf"), HaveField("OperatorFingerprint", "eirini-x"), HaveField("FailurePolicy", Not(BeNil()))))
			Expect(m.GetLogger()).To(BeIdenticalTo(logger))
			other := zap.NewNop().Sugar()
			m.SetManagerOptions(ManagerOptions{Logger: other})
			Expect(m.GetLogger()).To(BeIdenticalTo(other))
		})

		DescribeTable("changes the fingerprint, and the name of the Secret", func(given, name string) {
			o := validOptions()
			o.SetupCertificateName = given
			m := NewManager(o)
			o = m.GetManagerOptions()
			o.OperatorFingerprint = "mine"
			m.SetManagerOptions(o)
			Expect(m.GetManagerOptions().SetupCertificateName).To(Equal(name))
		},
			Entry("which follows from it", "", "mine-setupcertificate"),
			Entry("unless the program chose it", "certificate", "certificate"),
		)

		It("takes another context, from which that of the Manager derives, and leaves it alone where it stays", func() {
			type key struct{}
			m := NewManager(validOptions())
			parent, cancel := context.WithCancel(context.WithValue(context.Background(), key{}, "mine"))
			DeferCleanup(cancel)
			o := m.GetManagerOptions()
			o.Context = &parent
			m.SetManagerOptions(o)
			ctx := m.GetContext()
			Expect(ctx.Value(key{})).To(Equal("mine"))
			o.Namespace = "cf"
			m.SetManagerOptions(o)
			Expect(m.GetContext()).To(BeIdenticalTo(ctx))
			Expect(ctx.Err()).NotTo(HaveOccurred())
			cancel()
			Expect(ctx.Done()).To(BeClosed())
		})

		It("does not undo a Stop", func() {
			m := NewManager(validOptions())
			m.Stop()
			m.SetManagerOptions(ManagerOptions{Context: new(context.Background())})
			Expect(m.GetContext().Err()).To(HaveOccurred())
		})

		It("gives up a connection to another cluster", func() {
			o := validOptions()
			o.RestConfig = &rest.Config{Host: "https://one.example.org"}
			m := NewManager(o)
			Expect(m.GetKubeConnection()).To(HaveField("Host", "https://one.example.org"))
			o.RestConfig = &rest.Config{Host: "https://two.example.org"}
			m.SetManagerOptions(o)
			Expect(m.GetKubeConnection()).To(HaveField("Host", "https://two.example.org"))
		})
	})

	DescribeTable("returns at once, and once, where Stop came before and twice:", func(ctx SpecContext, start func(context.Context, *ExtensionManager) error) {
		m := NewManager(validOptions())
		Expect(m.AddExtension(valueExtension{})).To(Succeed())
		m.Stop()
		m.Stop()
		Expect(start(ctx, m)).To(Succeed())
		Expect(m.Ready()).NotTo(BeClosed())
		m.Stop()
		Expect(start(ctx, m)).To(MatchError(And(HavePrefix("eirinix: "), ContainSubstring("started before"), ContainSubstring("make a new one"))))
	},
		Entry("Start", func(_ context.Context, m *ExtensionManager) error { return m.Start() }),
		Entry("Run", func(ctx context.Context, m *ExtensionManager) error { return m.Run(ctx) }),
	)

	It("waits for an API server that is not there, until Stop", func(ctx SpecContext) {
		away := httptest.NewTLSServer(nil)
		away.Close()
		o := validOptions()
		o.RestConfig = &rest.Config{Host: away.URL}
		m := NewManager(o)
		Expect(m.AddExtension(valueExtension{})).To(Succeed())
		ended := make(chan error, 1)
		go func() { ended <- m.Run(ctx) }()
		Eventually(m.readiness.Check).Should(MatchError(ContainSubstring("waiting for the API server")))
		Expect(ended).NotTo(Receive())
		Expect(m.GetContext().Err()).NotTo(HaveOccurred())
		m.Stop()
		Eventually(ended).Should(Receive(BeNil()))
	})

	It("lets a readyz check pass that asks a KubeManager's server which it has switched off", func() {
		kube := Must(manager.New(&rest.Config{Host: "https://192.0.2.1"}, manager.Options{Metrics: metricsserver.Options{BindAddress: "0"}}))
		check := kube.GetWebhookServer().StartedChecker()
		Expect(check(nil)).To(MatchError(ContainSubstring("not been started")))
		o := validOptions()
		o.KubeManager = kube
		NewManager(o)
		Expect(check(nil)).To(Succeed())
	})

	It("has not run when its options were refused", func(ctx SpecContext) {
		m := NewManager(ManagerOptions{})
		Expect(m.Run(ctx)).To(MatchError(ContainSubstring("Host is empty")))
		m.SetManagerOptions(validOptions())
		m.Stop()
		Expect(m.Run(ctx)).To(Succeed())
	})
})

var _ = DescribeTable("An error that is returned is not logged too:",
	func(call func(*ExtensionManager) error) {
		core, logs := observer.New(zapcore.DebugLevel)
		o := ManagerOptions{Host: "https://nowhere", Logger: zap.New(core).Sugar()}
		m := NewManager(o)
		Expect(m.AddExtension(Mutation[*corev1.Pod]{ID: "a", Apply: func(context.Context, *Call, *corev1.Pod) error { return nil }})).To(Succeed())
		Expect(call(m)).To(MatchError(ContainSubstring("ManagerOptions.Host")))
		Expect(logs.All()).To(BeEmpty())
	},
	Entry("of Start", (*ExtensionManager).Start),
	Entry("of Watch", (*ExtensionManager).Watch),
	Entry("of RegisterExtensions", (*ExtensionManager).RegisterExtensions),
)

var _ = Describe("The log of a Manager", func() {
	It("has no stack of ours", func() {
		core, logs := observer.New(zapcore.DebugLevel)
		m := NewManager(ManagerOptions{Logger: zap.New(core, zap.AddStacktrace(zapcore.ErrorLevel)).Sugar()})
		m.given().log().Error(errors.New("oops"), "failed")
		Expect(logs.All()).To(HaveExactElements(HaveField("Stack", BeEmpty())))
	})

	It("says nothing about the stop of controller-runtime's manager, but for debugging", func(ctx SpecContext) {
		core, logs := observer.New(zapcore.DebugLevel)
		mgr := NewManager(ManagerOptions{RestConfig: &rest.Config{}, Logger: zap.New(core).Sugar()}).GetKubeManager()
		ended, end := context.WithCancel(ctx)
		end()
		Expect(mgr.Start(ended)).To(Succeed())
		mgr.GetLogger().WithValues("a", 1).Info("a line of a reconciler")
		Expect(logs.FilterLevelExact(zapcore.InfoLevel).All()).To(HaveExactElements(HaveField("Message", "a line of a reconciler")))
		Expect(logs.FilterLevelExact(zapcore.DebugLevel).All()).To(ContainElements(HaveField("Message", "Stopping and waiting for caches"), HaveField("Message", HavePrefix("Wait completed"))))
	}, SpecTimeout(time.Minute))
})

var _ = Describe("A Manager that is ready", func() {
	It("ends once the registration of another program stands, and not for other errors", func() {
		m := NewManager(ManagerOptions{Host: "webhook.example.org", Logger: zap.NewNop().Sugar()})
		ready, failed := make(chan struct{}), make(chan error, 1)
		report := m.readiness.Report(m.given().log(), ready, failed)
		report(nil)
		Expect(ready).To(BeClosed())
		report(errors.New("for a moment"))
		Expect(failed).NotTo(Receive())
		for range 2 {
			report(&controller.AnotherProgramError{Theirs: "Service eirinix/other"})
		}
		Expect(failed).To(Receive(MatchError(ContainSubstring("Service eirinix/other"))))
		Expect(failed).NotTo(Receive(), "once")
	})
})

var _ = Describe("Watchers", func() {
	It("go on after one that panics", func() {
		m := NewManager(ManagerOptions{})
		var heard []string
		m.AddWatcher(watcherFunc(func(watch.Event) { panic("oops") }))
		m.AddWatcher(watcherFunc(func(e watch.Event) { heard = append(heard, string(e.Type)) }))
		m.deliver(watch.Event{Type: watch.Added, Object: &corev1.Pod{}})
		Expect(heard).To(Equal([]string{"ADDED"}))
	})
})

type watcherFunc func(watch.Event)

func (f watcherFunc) Handle(_ Manager, e watch.Event) { f(e) }

var _ = Describe("GetKubeConnection", func() {
	var folder string

	BeforeEach(func() { folder = GinkgoT().TempDir() })

	It("comes once, from RestConfig, of which it is a copy", func() {
		o := validOptions()
		o.RestConfig = &rest.Config{Host: "https://rest.example.org"}
		m := NewManager(o)
		got := Must(m.GetKubeConnection())
		Expect(got).To(And(HaveField("Host", o.RestConfig.Host), HaveField("UserAgent", HaveSuffix(" eirinix/eirini-x"))))
		Expect(o.RestConfig).To(Equal(&rest.Config{Host: "https://rest.example.org"}))
		Expect(m.GetKubeConnection()).To(BeIdenticalTo(got))
	})

	It("reports the fault of the file to each caller", func() {
		m := NewManager(ManagerOptions{KubeConfig: "/no/such/file", Logger: zap.NewNop().Sugar()})
		_, err := m.GetKubeConnection()
		Expect(err).To(MatchError(And(HavePrefix(`eirinix: ManagerOptions.KubeConfig "/no/such/file"`), ContainSubstring("give the path of a kubeconfig file"))))
		_, other := m.GetKubeClient()
		Expect(other).To(MatchError(err.Error()))
		Expect(m.GetKubeManager()).To(BeNil())
	})

	It("asks for uncompressed responses in the library's own requests alone", func(ctx SpecContext) {
		accepted := make(chan string, 1)
		server := httptest.NewTLSServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { accepted <- r.Header.Get("Accept-Encoding") }))
		DeferCleanup(server.Close)
		o := validOptions()
		o.RestConfig = &rest.Config{Host: server.URL, TLSClientConfig: rest.TLSClientConfig{Insecure: true}}
		m := NewManager(o)
		_, own, err := m.given().own()
		Expect(err).NotTo(HaveOccurred())
		Expect(own.Discovery().RESTClient().Get().AbsPath("/version").Do(ctx).Error()).To(Succeed())
		Expect(accepted).To(Receive(BeEmpty()))
		users := Must(m.GetKubeClient())
		Expect(users.RESTClient().Get().AbsPath("/version").Do(ctx).Error()).To(Succeed())
		Expect(accepted).To(Receive(Equal("gzip")))
	})

	DescribeTable("decides on the namespace of the Secret:",
		func(change func(*ManagerOptions), pod, contextNamespace, expected string, said int) {
			inPod(pod)
			core, logs := observer.New(zapcore.InfoLevel)
			o := validOptions()
			o.Logger = zap.New(core).Sugar()
			o.KubeConfig = WriteKubeconfig(folder, "given", "https://given.example.org", contextNamespace)
			change(&o)
			m := NewManager(o)
			Must(m.GetKubeConnection())
			Expect(m.given().secretNamespace()).To(Equal(expected))
			Expect(logs.FilterMessageSnippet(`"default"`).Len()).To(Equal(said))
		},
		Entry("WebhookNamespace first", func(o *ManagerOptions) { o.WebhookNamespace, o.Namespace = "hooks", "cf" }, "own", "mine", "hooks", 0),
		Entry("then Namespace", func(o *ManagerOptions) { o.Namespace = "cf" }, "own", "mine", "cf", 0),
		Entry("then that of the pod", func(*ManagerOptions) {}, "own", "mine", "own", 0),
		Entry("then that of the kubeconfig's context", func(*ManagerOptions) {}, "", "mine", "mine", 0),
		Entry("then default, which is logged", func(*ManagerOptions) {}, "", "", "default", 1),
	)
})

// A test in a bubble of synctest needs a *testing.T.
func TestARegistrationEndsInTimeWhenTheAPIServerNeverAnswers(t *testing.T) {
	if fips140.Enabled() {
		t.Skip("with FIPS 140-3, the standard library measures time to get its first entropy, and none passes in a bubble")
	}
	synctest.Test(t, func(t *testing.T) {
		g, began, o := NewWithT(t), time.Now(), validOptions()
		o.RestConfig = &rest.Config{Host: "http://api.invalid", Transport: silent{}}
		m := NewManager(o)
		g.Expect(m.AddExtension(valueExtension{})).To(Succeed())
		g.Expect(m.RegisterExtensions()).To(MatchError(ContainSubstring("not done within 15s")))
		g.Expect(time.Since(began)).To(Equal(registerTimeout))
		m.Stop()
	})
}

// silent is an API server that accepts and never answers.
type silent struct{}

func (silent) RoundTrip(r *http.Request) (*http.Response, error) {
	<-r.Context().Done()
	return nil, context.Cause(r.Context())
}
