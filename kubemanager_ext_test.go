package eirinix_test

// This file specifies a Manager beside a controller-runtime manager: that of the program, or the one that it makes itself, for
// Reconcilers as well. It specifies Watchers, too.

import (
	"context"
	"crypto/tls"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/config"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/webhook"

	"code.cloudfoundry.org/eirinix"
	. "code.cloudfoundry.org/eirinix/internal/spectest"
)

var _ = Describe("A program with a controller-runtime manager of its own", Label("api-server"), func() {
	var namespace string
	var options eirinix.ManagerOptions
	BeforeEach(func(ctx SpecContext) {
		namespace = newNamespace(ctx)
		options = urlOptions(namespace)
		options.RestConfig = nil
	})
	kubeManager := func(server webhook.Server) manager.Manager {
		GinkgoHelper()
		return Must(manager.New(controlPlane().Config(), manager.Options{
			Metrics: metricsserver.Options{BindAddress: "0"}, Controller: config.Controller{SkipNameValidation: new(true)}, WebhookServer: server,
		}))
	}
	add := func(o eirinix.ManagerOptions, steps ...any) *eirinix.ExtensionManager {
		GinkgoHelper()
		m := managerWith(o, steps...)
		DeferCleanup(func(ctx context.Context) {
			err := clients().AdmissionregistrationV1().MutatingWebhookConfigurations().Delete(ctx, configurationName(m), metav1.DeleteOptions{})
			Expect(client.IgnoreNotFound(err)).To(Succeed())
		})
		return m
	}
	// start runs f until the spec ends.
	start := func(f func(context.Context) error) (stop func(), ended chan error) {
		ctx, cancel := context.WithCancel(context.Background())
		ended = make(chan error, 1)
		done := make(chan struct{})
		go func() { defer close(done); ended <- f(ctx) }()
		DeferCleanup(func() { cancel(); <-done })
		return cancel, ended
	}

	It("is joined by Run when it runs already", func(ctx SpecContext) {
		options.KubeManager = kubeManager(nil)
		stop, ended := start(options.KubeManager.Start)
		Eventually(options.KubeManager.Elected()).WithTimeout(patience).Should(BeClosed())
		m := add(options)
		Expect(m.AddExtension(addEnv{})).To(Succeed(), "until Run")
		_, left := start(m.Run)
		Eventually(m.Ready()).WithTimeout(patience).Should(BeClosed())
		Expect(createPod(ctx, namespace, NewPod("pod", nil))).To(beMutated())
		stop()
		Eventually(ended).WithTimeout(patience).Should(Receive(BeNil()))
		Eventually(left).WithTimeout(patience).Should(Receive(BeNil()), "it ends with the manager that it is a part of")
	}, SpecTimeout(3*patience))

	It("has its own webhook server serve, if that has certificates", func(ctx SpecContext) {
		dir, elsewhere := GinkgoT().TempDir(), newIssuer()
		issued := elsewhere.issue()
		write(dir, map[string][]byte{"server.crt": issued["tls.crt"], "server.key": issued["tls.key"], "ca.crt": issued["ca.crt"]})
		server := webhook.NewServer(webhook.Options{Host: "127.0.0.1", Port: int(FreePort()), CertDir: dir, CertName: "server.crt", KeyName: "server.key"})
		options.KubeManager, options.ListenAddress = kubeManager(server), ""
		m := add(options, addEnv{})
		options.KubeManager.GetWebhookServer().Register("/theirs", http.NotFoundHandler())
		start(options.KubeManager.Start)
		Eventually(m.Ready()).WithTimeout(patience).Should(BeClosed())
		Expect(m.Addr().String()).To(HavePrefix("127.0.0.1:"))
		Expect(createPod(ctx, namespace, NewPod("pod", nil))).To(beMutated())
		Expect(configuration(ctx, m).Webhooks[0].ClientConfig.CABundle).To(Equal(elsewhere.CertificatePEM))
	}, SpecTimeout(4*patience))

	It("has a server of ours serve with its TLSOpts, and at its address", func(ctx SpecContext) {
		server, inherited := webhook.Options{Host: "127.0.0.1", Port: int(FreePort())}, &atomic.Bool{}
		server.TLSOpts = []func(*tls.Config){func(c *tls.Config) { c.MinVersion = tls.VersionTLS13 }}
		options.KubeManager, options.ListenAddress = kubeManager(webhook.NewServer(server)), ""
		options.TLS = func(c *tls.Config) { inherited.Store(c.MinVersion == tls.VersionTLS13) }
		m := add(options, addEnv{})
		start(options.KubeManager.Start)
		Eventually(m.Ready()).WithTimeout(patience).Should(BeClosed())
		Expect(inherited.Load()).To(BeTrue(), "TLS is applied to the result")
		Expect(m.Addr().String()).To(Equal(fmt.Sprint("127.0.0.1:", server.Port)))
		Expect(*configuration(ctx, m).Webhooks[0].ClientConfig.URL).To(HavePrefix(fmt.Sprintf("https://127.0.0.1:%d/", server.Port)))
		Expect(createPod(ctx, namespace, NewPod("pod", nil))).To(beMutated())
		refusesTLS12(m)
	}, SpecTimeout(2*patience))

	DescribeTable("gives a server of ours this address to listen on:", func(server webhook.Options, given, expected string) {
		options.KubeManager, options.ListenAddress = kubeManager(webhook.NewServer(server)), given
		m := addEnvManager(options)
		Expect(m.GetManagerOptions().ListenAddress).To(Equal(expected))
		m.SetManagerOptions(options)
		Expect(m.GetManagerOptions().ListenAddress).To(Equal(expected))
		Expect(m.Validate()).To(Succeed())
	},
		Entry("Host and Port", webhook.Options{Host: "127.0.0.1", Port: 9876}, "", "127.0.0.1:9876"),
		Entry("Port alone", webhook.Options{Port: 9876}, "", ":9876"),
		Entry("Host alone, and the default port", webhook.Options{Host: "::1"}, "", "[::1]:9443"),
		Entry("none, so that of the Manager stays", webhook.Options{}, "", ""),
		Entry("ListenAddress first", webhook.Options{Port: 9876}, ":8443", ":8443"),
		Entry("none where the program has switched it off", webhook.Options{Host: "127.0.0.1", Port: -1}, "", ""),
	)

	It("cannot have what a server of ours does not keep", func() {
		options.KubeManager = kubeManager(webhook.NewServer(webhook.Options{
			ClientCAName: "callers.crt", TLSOpts: []func(*tls.Config){func(c *tls.Config) { c.MinVersion, c.ClientAuth = tls.VersionTLS10, tls.RequireAnyClientCert }},
		}))
		options.TLS = func(c *tls.Config) { c.MaxVersion = tls.VersionTLS11 }
		m := addEnvManager(options)
		err := m.Validate()
		Expect(err).To(MatchError(And(
			ContainSubstring("eirinix: ManagerOptions.KubeManager has a webhook server whose TLSOpts sets MinVersion to TLS 1.0; raise it"),
			ContainSubstring("eirinix: ManagerOptions.KubeManager has a webhook server whose TLSOpts sets ClientAuth"),
			ContainSubstring("eirinix: ManagerOptions.TLS sets MaxVersion to TLS 1.1"),
			MatchRegexp(`with ClientCAName, .* set ClientCA.File to "/.*/k8s-webhook-server/serving-certs/callers.crt"`))))
		Expect(strings.Split(err.Error(), "\n")).To(HaveLen(4), "each once")
	})

	It("has its own webhook server serve, if that has handlers, whose certificates may come later", func(ctx SpecContext) {
		dir := GinkgoT().TempDir()
		GinkgoT().Setenv("TMPDIR", dir)
		server := webhook.NewServer(webhook.Options{Host: "127.0.0.1", Port: int(FreePort())})
		options.KubeManager, options.ListenAddress = kubeManager(server), ""
		server.Register("/before-"+namespace, http.NotFoundHandler())
		m := add(options, addEnv{})
		Expect(m.Validate()).To(Succeed())
		dir = filepath.Join(dir, "k8s-webhook-server", "serving-certs")
		Expect(os.MkdirAll(dir, 0o700)).To(Succeed())
		write(dir, newIssuer().issue())
		start(options.KubeManager.Start)
		Eventually(m.Ready()).WithTimeout(patience).Should(BeClosed())
		Expect(m.Addr().String()).To(Equal(fmt.Sprint("127.0.0.1:", server.(*webhook.DefaultServer).Options.Port)))
		Expect(createPod(ctx, namespace, NewPod("pod", nil))).To(beMutated())
	}, SpecTimeout(2*patience))

	It("ends the start with the handlers that a server of ours does not serve", func(ctx SpecContext) {
		options.KubeManager = kubeManager(nil)
		m := add(options, addEnv{})
		options.KubeManager.GetWebhookServer().Register("/after-"+namespace, http.NotFoundHandler())
		hooks := builder.WebhookManagedBy(options.KubeManager, &corev1.Pod{}).WithDefaulterCustomPath("/built-" + namespace)
		Expect(hooks.WithDefaulter(labelled{}).Complete()).To(Succeed())
		_, ended := start(options.KubeManager.Start)
		Eventually(ended).WithTimeout(patience).Should(Receive(MatchError(ContainSubstring(
			"does not serve /after-" + namespace + ", /built-" + namespace + "; add them with AddExtension, or register them before NewManager"))))
		Expect(m.Ready()).NotTo(BeClosed())
	}, SpecTimeout(2*patience))

	It("says what does not apply when it runs already", func() {
		options.KubeManager = kubeManager(nil)
		start(options.KubeManager.Start)
		Eventually(options.KubeManager.Elected()).WithTimeout(patience).Should(BeClosed())
		logger, logs := Observed()
		options.Logger = logger
		eirinix.NewManager(options)
		Expect(logs.FilterMessageSnippet("TLSOpts, Host and Port of its webhook server do not apply").Len()).To(Equal(1))
	})

	It("starts and stops the Managers that it has, which may be several, with a fingerprint each", func(ctx SpecContext) {
		mgr := kubeManager(nil)
		var managers []*eirinix.ExtensionManager
		for _, key := range []string{"one", "two"} {
			o := options
			o.KubeManager, o.OperatorFingerprint = mgr, namespace+"-"+key
			managers = append(managers, add(o, eirinix.Mutation[*corev1.Pod]{ID: key, Apply: func(_ context.Context, _ *eirinix.Call, pod *corev1.Pod) error {
				metav1.SetMetaDataLabel(&pod.ObjectMeta, key, "yes")
				return nil
			}}))
		}
		stop, ended := start(mgr.Start)
		for _, m := range managers {
			Expect(m.GetKubeManager()).To(BeIdenticalTo(mgr))
			Eventually(m.Ready()).WithTimeout(patience).Should(BeClosed())
		}
		Expect(createPod(ctx, namespace, NewPod("pod", nil))).To(HaveField("Labels", Equal(map[string]string{"one": "yes", "two": "yes"})))
		stop()
		Eventually(ended).WithTimeout(patience).Should(Receive(BeNil()))
		Expect(managers[0].Run(ctx)).To(MatchError(ContainSubstring("was started before")))
	}, SpecTimeout(3*patience))

	It("gets an error for options without a meaning there", func() {
		options.KubeManager = kubeManager(webhook.NewServer(webhook.Options{CertDir: GinkgoT().TempDir()}))
		options.RestConfig, options.MetricsBindAddress = controlPlane().Config(), ":8080"
		options.ClientCA = eirinix.ClientCA{PEM: []byte("x")}
		options.TLS = func(c *tls.Config) { c.MinVersion = tls.VersionTLS13 }
		m := addEnvManager(options)
		Expect(m.Validate()).To(MatchError(And(
			ContainSubstring("KubeManager is set, and RestConfig or KubeConfig too"), ContainSubstring("set them on the KubeManager"),
			ContainSubstring("set ClientCAName on that"), ContainSubstring("TLS is set, but the KubeManager's webhook server"), ContainSubstring("set its TLSOpts"), ContainSubstring("ListenAddress is \"127.0.0.1:0\", but the KubeManager's"))))
	})

	It("is not served from where RegisterExtensions is all that is wanted", func(ctx SpecContext) {
		options.KubeManager, options.Port = kubeManager(nil), FreePort()
		m := add(options, addEnv{})
		Expect(m.RegisterExtensions()).To(Succeed())
		start(options.KubeManager.Start)
		Eventually(options.KubeManager.Elected()).WithTimeout(patience).Should(BeClosed())
		Consistently(m.Addr, time.Second).Should(BeNil())
	}, SpecTimeout(2*patience))
})

// labelled is a defaulter of controller-runtime.
type labelled struct{}

func (labelled) Default(context.Context, *corev1.Pod) error { return nil }

var _ = Describe("The controller-runtime manager of a running Manager", Label("api-server"), func() {
	It("is started by who asks for it first, also while it runs, and ends with it", func(ctx SpecContext) {
		namespace := newNamespace(ctx)
		m := managerWith(urlOptions(namespace), handleFunc{name: "asks", handle: func(ctx context.Context, m eirinix.Manager, pod *corev1.Pod, req webhook.AdmissionRequest) webhook.AdmissionResponse {
			var secrets corev1.SecretList
			if err := m.GetKubeManager().GetClient().List(ctx, &secrets, client.InNamespace(req.Namespace)); err != nil {
				return webhook.Errored(http.StatusInternalServerError, err)
			}
			metav1.SetMetaDataLabel(&pod.ObjectMeta, "secrets", fmt.Sprint(len(secrets.Items)))
			return m.PatchFromPod(req, pod)
		}})
		runManager(ctx, m)
		Expect(createPod(ctx, namespace, NewPod("pod", nil))).To(HaveField("Labels", HaveKeyWithValue("secrets", "1")), "from its cache, which has been filled")
		running, ended := make(chan struct{}), make(chan struct{})
		Expect(m.GetKubeManager().Add(manager.RunnableFunc(func(ctx context.Context) error {
			close(running)
			<-ctx.Done()
			close(ended)
			return nil
		}))).To(Succeed())
		Eventually(running).WithTimeout(patience).Should(BeClosed())
		m.Stop()
		Eventually(ended).WithTimeout(patience).Should(BeClosed())
		Expect(m.GetKubeManager()).NotTo(BeNil(), "and does not wait")
	}, SpecTimeout(3*patience))
})

// eventLog is a Watcher that records its events, as "TYPE name".
type eventLog struct {
	mu   sync.Mutex
	seen []string
}

func (l *eventLog) Handle(_ eirinix.Manager, e watch.Event) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.seen = append(l.seen, string(e.Type)+" "+e.Object.(*corev1.Pod).Name)
}

func (l *eventLog) Seen() []string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return append([]string{}, l.seen...)
}

var _ = Describe("A Watcher", Label("api-server"), func() {
	var (
		namespace string
		events    *eventLog
	)
	BeforeEach(func(ctx SpecContext) { namespace, events = newNamespace(ctx), &eventLog{} })

	It("does not keep a Manager that cannot start", func(ctx SpecContext) {
		o := urlOptions(namespace)
		o.ListenAddress = "192.0.2.1:1" // for documentation: no machine has that address
		m := addEnvManager(o)
		Expect(m.AddExtension(events)).To(Succeed())
		Eventually(startManager(ctx, m)).WithTimeout(patience).Should(Receive(MatchError(ContainSubstring("cannot listen"))))
	}, SpecTimeout(2*patience))

	// watching runs Watch alone, until the spec ends.
	watching := func(o eirinix.ManagerOptions) (*eirinix.ExtensionManager, <-chan error) {
		m := eirinix.NewManager(o)
		Expect(m.AddExtension(events)).To(Succeed())
		done := make(chan error, 1)
		ended := make(chan struct{})
		go func() { defer close(ended); done <- m.Watch() }()
		DeferCleanup(func() { m.Stop(); Eventually(ended).WithTimeout(patience).Should(BeClosed()) })
		return m, done
	}
	// options need no Host: a program that only watches is never called.
	options := func() eirinix.ManagerOptions {
		return eirinix.ManagerOptions{Namespace: namespace, RestConfig: controlPlane().Config()}
	}
	create := func(ctx context.Context, namespace, name string, labels map[string]string) {
		GinkgoHelper()
		Must(createPod(ctx, namespace, NewPod(name, labels)))
	}
	// begun waits until the watch is under way: a pod made before would be no event.
	begun := func(ctx context.Context) {
		i := 0
		Eventually(func(g Gomega) {
			i++
			create(ctx, namespace, "probe-"+string(rune('a'+i)), map[string]string{eirinix.LabelSourceType: "APP"})
			g.Eventually(events.Seen).WithTimeout(patience / 60).ShouldNot(BeEmpty())
		}).WithContext(ctx).WithTimeout(patience).Should(Succeed())
	}

	It("receives the events of pods from now on, in one namespace, until Stop", func(ctx SpecContext) {
		create(ctx, namespace, "old", nil)
		m, done := watching(options())
		begun(ctx)
		create(ctx, namespace, "new", nil)
		create(ctx, newNamespace(ctx), "elsewhere", nil)
		Expect(clients().CoreV1().Pods(namespace).Delete(ctx, "new", metav1.DeleteOptions{GracePeriodSeconds: new(int64(0))})).To(Succeed())
		create(ctx, namespace, "last", nil)
		Eventually(events.Seen).WithContext(ctx).Should(ContainElement("ADDED last"))
		Expect(events.Seen()).To(ContainElements("ADDED new", "DELETED new"))
		Expect(events.Seen()).NotTo(ContainElement(HaveSuffix("old")))
		Expect(events.Seen()).NotTo(ContainElement(HaveSuffix("elsewhere")))
		m.Stop()
		Eventually(done).WithContext(ctx).Should(Receive(BeNil()))
	}, SpecTimeout(2*patience))

	It("receives events of applications only with FilterEiriniApps", func(ctx SpecContext) {
		o := options()
		o.FilterEiriniApps = new(true)
		watching(o)
		begun(ctx)
		create(ctx, namespace, "task", nil)
		create(ctx, namespace, "app", map[string]string{eirinix.LabelSourceType: "APP"})
		Eventually(events.Seen).WithContext(ctx).Should(ContainElement("ADDED app"))
		Expect(events.Seen()).NotTo(ContainElement(HaveSuffix("task")))
	}, SpecTimeout(2*patience))

	It("receives every event once beside an extension, and may change the object of an event", func(ctx SpecContext) {
		m := addEnvManager(urlOptions(namespace))
		m.AddWatcher(events)
		go func() { _ = m.Watch() }()
		runManager(ctx, m)
		begun(ctx)
		Expect(createPod(ctx, namespace, NewPod("once", nil))).To(beMutated())
		create(ctx, namespace, "last", nil)
		Eventually(events.Seen).WithContext(ctx).Should(ContainElement("ADDED last"))
		Expect(slices.DeleteFunc(events.Seen(), func(e string) bool { return e != "ADDED once" })).To(HaveLen(1))
	}, SpecTimeout(2*patience))

	It("may lack the right to watch, which the error of Watch then names", func(ctx SpecContext) {
		o := options()
		o.RestConfig = Must(controlPlane().User("blind-" + namespace))
		_, done := watching(o)
		Eventually(done).WithContext(ctx).WithTimeout(patience).Should(Receive(MatchError(ContainSubstring("needs list and watch on pods"))))
	}, SpecTimeout(2*patience))
})

// touch is a Reconciler that annotates every pod it sees.
type touch struct{ manager eirinix.Manager }

func (t *touch) Reconcile(ctx context.Context, req reconcile.Request) (reconcile.Result, error) {
	c := t.manager.GetKubeManager().GetClient()
	pod := &corev1.Pod{}
	if err := c.Get(ctx, req.NamespacedName, pod); err != nil {
		return reconcile.Result{}, client.IgnoreNotFound(err)
	}
	patch := client.RawPatch(types.MergePatchType, []byte(`{"metadata":{"annotations":{"touched":"yes"}}}`))
	return reconcile.Result{}, c.Patch(ctx, pod, patch)
}

func (t *touch) Register(m eirinix.Manager) error {
	t.manager = m
	return ctrl.NewControllerManagedBy(m.GetKubeManager()).Named("touch").For(&corev1.Pod{}).Complete(t)
}

var _ = Describe("A Reconciler", Label("api-server"), func() {
	It("runs beside extensions, within the namespace of the options", func(ctx SpecContext) {
		namespace, other := newNamespace(ctx), newNamespace(ctx)
		m := addEnvManager(urlOptions(namespace))
		Expect(m.AddExtension(&touch{})).To(Succeed())
		runManager(ctx, m)

		outside := Must(createPod(ctx, other, NewPod("pod", nil)))
		Expect(createPod(ctx, namespace, NewPod("pod", nil))).To(beMutated())
		Eventually(func() (*corev1.Pod, error) {
			return clients().CoreV1().Pods(namespace).Get(ctx, "pod", metav1.GetOptions{})
		}).WithContext(ctx).WithTimeout(patience).Should(HaveField("Annotations", HaveKeyWithValue("touched", "yes")))
		Expect(clients().CoreV1().Pods(other).Get(ctx, "pod", metav1.GetOptions{})).
			To(HaveField("ResourceVersion", outside.ResourceVersion))
	}, SpecTimeout(2*patience))
})
