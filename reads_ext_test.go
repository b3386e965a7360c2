package eirinix_test

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/client-go/rest"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"

	"code.cloudfoundry.org/eirinix"
	"code.cloudfoundry.org/eirinix/audit"
	"code.cloudfoundry.org/eirinix/diagnosis"
	. "code.cloudfoundry.org/eirinix/internal/spectest"
)

// looksAt refuses pods unless the ConfigMap "gate" of the namespace says "open".
func looksAt(namespace string, read eirinix.Read) eirinix.Validation[*corev1.Pod] {
	read.Object, read.Namespaces, read.Fields = &corev1.ConfigMap{}, []string{namespace}, fields.OneTermEqualSelector("metadata.name", "gate")
	return eirinix.Validation[*corev1.Pod]{
		ID: "gate", Settings: eirinix.Settings{Reads: []eirinix.Read{read}},
		Create: func(ctx context.Context, c *eirinix.Call, _ *corev1.Pod) error {
			var gate corev1.ConfigMap
			if err := c.Reader().Get(ctx, client.ObjectKey{Namespace: namespace, Name: "gate"}, &gate); client.IgnoreNotFound(err) != nil {
				return err
			} else if gate.Data["gate"] != "open" {
				return eirinix.Deny("the gate is %q", gate.Data["gate"])
			}
			return nil
		},
	}
}

func setGate(ctx context.Context, namespace, value string) {
	GinkgoHelper()
	gate := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "gate"}, Data: map[string]string{"gate": value}}
	_, err := clients().CoreV1().ConfigMaps(namespace).Update(ctx, gate, metav1.UpdateOptions{})
	if err != nil {
		_, err = clients().CoreV1().ConfigMaps(namespace).Create(ctx, gate, metav1.CreateOptions{})
	}
	Expect(err).NotTo(HaveOccurred())
}

// tryPod creates a pod with a generated name in a dry run.
func tryPod(ctx context.Context, namespace string) error {
	pod := NewPod("", nil)
	pod.GenerateName = "pod-"
	_, err := clients().CoreV1().Pods(namespace).Create(ctx, pod, metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
	return err
}

// readsOf is a connection of which those requests that a step's reads make can be cut.
type readsOf struct {
	outage
	part    string // of the path
	counted atomic.Int64
}

func newReadsOf(part string) *readsOf {
	return &readsOf{outage: outage{bodies: map[io.Closer]bool{}}, part: part}
}

func (r *readsOf) pass(req *http.Request, next http.RoundTripper) (*http.Response, error) {
	if !strings.Contains(req.URL.Path, r.part) || req.Method != http.MethodGet {
		return next.RoundTrip(req)
	}
	r.counted.Add(1)
	return r.outage.pass(req, next)
}

var _ = Describe("A step that looks at other objects", Label("api-server"), func() {
	var namespace string
	BeforeEach(func(ctx SpecContext) { namespace = newNamespace(ctx) })

	It("sees them from the first call on, as they change, and asks the API server for nothing", func(ctx SpecContext) {
		setGate(ctx, namespace, "open")
		watched := newReadsOf("/configmaps")
		o := urlOptions(namespace)
		o.RestConfig = between(watched.pass)
		m := eirinix.NewManager(o)
		Expect(m.AddExtension(looksAt(namespace, eirinix.Read{}))).To(Succeed())
		runManager(ctx, m)
		Expect(tryPod(ctx, namespace)).To(Succeed())
		before := watched.counted.Load()
		for range 50 {
			Expect(tryPod(ctx, namespace)).To(Succeed())
		}
		Expect(watched.counted.Load()).To(Equal(before), "requests for ConfigMaps in 50 calls")
		setGate(ctx, namespace, "shut")
		Eventually(tryPod).WithContext(ctx).WithArguments(namespace).WithTimeout(patience).Should(MatchError(ContainSubstring(`the gate is "shut"`)))
		Expect(clients().CoreV1().ConfigMaps(namespace).Delete(ctx, "gate", metav1.DeleteOptions{})).To(Succeed())
		Eventually(tryPod).WithContext(ctx).WithArguments(namespace).WithTimeout(patience).Should(MatchError(ContainSubstring(`the gate is ""`)))
	}, SpecTimeout(3*patience))

	It("fails once the watch is broken for longer than MaxStale, says so once, and works again with the watch", func(ctx SpecContext) {
		setGate(ctx, namespace, "open")
		watched := newReadsOf("/configmaps")
		o := urlOptions(namespace)
		o.RestConfig = between(watched.pass)
		logger, logs := Observed()
		o.Logger = logger
		m := eirinix.NewManager(o)
		Expect(m.AddExtension(looksAt(namespace, eirinix.Within(time.Second, eirinix.Read{})))).To(Succeed())
		tolerant := looksAt(namespace, eirinix.Read{MaxStale: eirinix.AnyAge})
		tolerant.ID = "tolerant"
		tolerated := make(chan error, 1)
		check := tolerant.Create
		tolerant.Create = func(ctx context.Context, c *eirinix.Call, pod *corev1.Pod) error {
			err := check(ctx, c, pod)
			select {
			case tolerated <- err:
			default:
			}
			return err
		}
		Expect(m.AddExtension(tolerant)).To(Succeed())
		runManager(ctx, m)
		Expect(tryPod(ctx, namespace)).To(Succeed())
		Expect(m.Diagnose(ctx).Findings).NotTo(ContainElement(HaveField("Code", diagnosis.ReadsNotListed)))

		watched.begin()
		stale := SatisfyAll(ContainSubstring("failed calling webhook"), ContainSubstring("ConfigMap in namespace "+namespace+" with fields metadata.name=gate are known as they were"),
			ContainSubstring("the step allows 1s (Read.MaxStale)"))
		Eventually(tryPod).WithContext(ctx).WithArguments(namespace).WithTimeout(patience).Should(MatchError(stale))
		for len(tolerated) > 0 {
			<-tolerated
		}
		Expect(tryPod(ctx, namespace)).To(MatchError(stale))
		Expect(tolerated).To(Receive(BeNil()), "the other step does not mind")
		Expect(logs.FilterMessageSnippet("are too old").Len()).To(Equal(1))
		finding, ok := m.Diagnose(ctx).Find(diagnosis.ReadsNotListed)
		Expect(ok).To(BeTrue())
		Expect(finding.Message).To(SatisfyAll(ContainSubstring("is broken for"), HaveSuffix("fail: gate")))

		watched.end()
		Eventually(tryPod).WithContext(ctx).WithArguments(namespace).WithTimeout(patience).Should(Succeed())
		Expect(logs.FilterMessageSnippet("up to date again").Len()).To(Equal(1))
		Expect(m.Diagnose(ctx).Findings).NotTo(ContainElement(HaveField("Code", diagnosis.ReadsNotListed)))
	}, SpecTimeout(5*patience))

	It("notices a connection that has died without a word", func(ctx SpecContext) {
		GinkgoT().Setenv("HTTP2_READ_IDLE_TIMEOUT_SECONDS", "1") // in place of 30 s and 15 s
		GinkgoT().Setenv("HTTP2_PING_TIMEOUT_SECONDS", "1")
		setGate(ctx, namespace, "open")
		line := newLine(controlPlane().Config())
		o := urlOptions(namespace)
		o.RestConfig = line.config()
		o.RestConfig.NextProtos = []string{"h2"} // makes a transport of its own, with these times
		m := eirinix.NewManager(o)
		Expect(m.AddExtension(looksAt(namespace, eirinix.Within(time.Second, eirinix.Read{})))).To(Succeed())
		runManager(ctx, m)
		Expect(tryPod(ctx, namespace)).To(Succeed())
		line.freeze()
		Eventually(tryPod).WithContext(ctx).WithArguments(namespace).WithTimeout(2 * patience).Should(MatchError(ContainSubstring("Read.MaxStale")))
		line.thaw()
		Eventually(tryPod).WithContext(ctx).WithArguments(namespace).WithTimeout(2 * patience).Should(Succeed())
	}, SpecTimeout(5*patience))

	It("is held back while the program may not list them, and alone", func(ctx SpecContext) {
		role, clusterRole := documentedRules(namespace, namespace)
		clusterRole = append(clusterRole, rbacv1.PolicyRule{
			APIGroups: []string{"admissionregistration.k8s.io"}, Resources: []string{"validatingwebhookconfigurations"},
			Verbs: []string{"create", "get", "list", "watch", "update"},
		})
		watched := newReadsOf("/configmaps")
		o := urlOptions(namespace)
		o.RestConfig = userWith(ctx, namespace, role, clusterRole)
		o.RestConfig.Wrap(func(next http.RoundTripper) http.RoundTripper {
			return roundTrip(func(r *http.Request) (*http.Response, error) { return watched.pass(r, next) })
		})
		logger, logs := Observed()
		o.Logger = logger
		m := eirinix.NewManager(o)
		Expect(m.AddExtension(addEnv{})).To(Succeed())
		Expect(m.AddExtension(looksAt(namespace, eirinix.Within(time.Second, eirinix.Read{})))).To(Succeed())
		runManager(ctx, m)
		Expect(createPod(ctx, namespace, NewPod("pod", nil))).To(beMutated(), "without a gate")
		Expect(logs.FilterMessageSnippet("cannot be listed").Len()).To(Equal(1))
		Expect(certificateMetrics(namespace)).To(SatisfyAll(HaveKeyWithValue("eirinix_registration_waiting reads", 1.), HaveKeyWithValue("eirinix_registration_waiting kind", 0.)))
		finding, ok := m.Diagnose(ctx).Find(diagnosis.ReadsNotListed)
		Expect(ok).To(BeTrue())
		Expect(finding).To(SatisfyAll(HaveField("Message", ContainSubstring("have never been listed")), HaveField("Evidence", ContainSubstring("forbidden"))))
		missing := logs.FilterMessageSnippet("rights are missing").All()
		Expect(missing).To(HaveLen(1))
		Expect(missing[0].ContextMap()["manifest"]).To(SatisfyAll(ContainSubstring("- gate"), ContainSubstring("namespace: "+namespace)))

		grant := &rbacv1.Role{
			ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "gate"},
			Rules:      []rbacv1.PolicyRule{{APIGroups: []string{""}, Resources: []string{"configmaps"}, ResourceNames: []string{"gate"}, Verbs: []string{"get", "list", "watch"}}},
		}
		_, err := clients().RbacV1().Roles(namespace).Create(ctx, grant, metav1.CreateOptions{})
		Expect(err).NotTo(HaveOccurred())
		_, err = clients().RbacV1().RoleBindings(namespace).Create(ctx, &rbacv1.RoleBinding{
			ObjectMeta: metav1.ObjectMeta{Name: "gate"}, RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: "gate"},
			Subjects: []rbacv1.Subject{{Kind: rbacv1.UserKind, Name: "user-" + namespace, APIGroup: rbacv1.GroupName}},
		}, metav1.CreateOptions{})
		Expect(err).NotTo(HaveOccurred())
		Eventually(tryPod).WithContext(ctx).WithArguments(namespace).WithTimeout(2 * patience).Should(MatchError(ContainSubstring(`the gate is ""`)))

		Eventually(func() float64 { return certificateMetrics(namespace)["eirinix_registration_waiting reads"] }).WithContext(ctx).WithTimeout(patience).Should(BeZero())

		By("taking the right away, which shows when the next watch begins")
		Expect(clients().RbacV1().RoleBindings(namespace).Delete(ctx, "gate", metav1.DeleteOptions{})).To(Succeed())
		Eventually(func() error { // until the API server knows
			watched.begin()
			watched.end()
			return tryPod(ctx, namespace)
		}).WithContext(ctx).WithTimeout(2 * patience).Should(MatchError(SatisfyAll(ContainSubstring("Read.MaxStale"), ContainSubstring("forbidden"))))
		_, err = clients().RbacV1().RoleBindings(namespace).Create(ctx, &rbacv1.RoleBinding{
			ObjectMeta: metav1.ObjectMeta{Name: "gate"}, RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: "gate"},
			Subjects: []rbacv1.Subject{{Kind: rbacv1.UserKind, Name: "user-" + namespace, APIGroup: rbacv1.GroupName}},
		}, metav1.CreateOptions{})
		Expect(err).NotTo(HaveOccurred())
		Eventually(tryPod).WithContext(ctx).WithArguments(namespace).WithTimeout(2 * patience).Should(MatchError(ContainSubstring(`the gate is ""`)))
	}, SpecTimeout(10*patience))

	It("is held back until the cluster serves their kind", func(ctx SpecContext) {
		group := namespace + ".example.org"
		closed := &unstructured.Unstructured{}
		closed.SetAPIVersion(group + "/v1")
		closed.SetKind("Shop")
		m := eirinix.NewManager(urlOptions(namespace))
		Expect(m.AddExtension(eirinix.Validation[*corev1.Pod]{
			ID: "shops", Settings: eirinix.Settings{Reads: []eirinix.Read{{Object: closed}}},
			Create: func(ctx context.Context, c *eirinix.Call, _ *corev1.Pod) error {
				shops := &unstructured.UnstructuredList{}
				shops.SetAPIVersion(group + "/v1")
				shops.SetKind("ShopList")
				if err := c.Reader().List(ctx, shops); err != nil {
					return err
				}
				return eirinix.Deny("%d shops", len(shops.Items))
			},
		})).To(Succeed())
		Expect(m.AddExtension(addEnv{})).To(Succeed())
		runManager(ctx, m)
		Expect(createPod(ctx, namespace, NewPod("pod", nil))).To(beMutated())

		c := anyClient()
		Expect(c.Create(ctx, definition(group))).To(Succeed())
		DeferCleanup(func(ctx SpecContext) { Expect(c.Delete(ctx, definition(group))).To(Succeed()) })
		Eventually(tryPod).WithContext(ctx).WithArguments(namespace).WithTimeout(2 * patience).Should(MatchError(ContainSubstring("0 shops")))
		Eventually(c.Create).WithContext(ctx).WithArguments(newShop(group, namespace, "corner")).WithTimeout(patience).Should(Succeed())
		Eventually(tryPod).WithContext(ctx).WithArguments(namespace).WithTimeout(patience).Should(MatchError(ContainSubstring("1 shops")))
	}, SpecTimeout(5*patience))

	It("is served by the half of a split deployment that does not register, and fails there for lack of rights", func(ctx SpecContext) {
		setGate(ctx, namespace, "open")
		o := urlOptions(namespace)
		o.Port, o.ListenAddress = FreePort(), ""
		o.RegisterWebHook = new(false)
		registering := eirinix.NewManager(o)
		Expect(registering.AddExtension(looksAt(namespace, eirinix.Read{}))).To(Succeed())
		Expect(registering.RegisterExtensions()).To(Succeed())
		secret := rbacv1.PolicyRule{APIGroups: []string{""}, Resources: []string{"secrets"}, Verbs: []string{"get"}, ResourceNames: []string{namespace + "-setupcertificate"}}
		for _, has := range []bool{false, true} {
			o.RestConfig = controlPlane().Config()
			if !has {
				o.RestConfig = userWith(ctx, namespace, []rbacv1.PolicyRule{secret}, nil)
			}
			serving := eirinix.NewManager(o)
			Expect(serving.AddExtension(looksAt(namespace, eirinix.Read{}))).To(Succeed())
			done := startManager(ctx, serving)
			Eventually(serving.Ready()).WithContext(ctx).WithTimeout(patience).Should(BeClosed())
			if has {
				Eventually(tryPod).WithContext(ctx).WithArguments(namespace).WithTimeout(patience).Should(Succeed())
			} else {
				Eventually(tryPod).WithContext(ctx).WithArguments(namespace).WithTimeout(patience).Should(MatchError(ContainSubstring("cannot be listed")))
			}
			serving.Stop()
			Eventually(done).WithContext(ctx).WithTimeout(patience).Should(Receive(BeNil()))
		}
	}, SpecTimeout(5*patience))

	It("is not ready before all objects are there, while the API server is on the way to answer", func(ctx SpecContext) {
		setGate(ctx, namespace, "open")
		answer := make(chan struct{})
		o := urlOptions(namespace)
		o.RestConfig = between(func(r *http.Request, next http.RoundTripper) (*http.Response, error) {
			if strings.Contains(r.URL.Path, "/configmaps") {
				select {
				case <-answer:
				case <-r.Context().Done():
				}
			}
			return next.RoundTrip(r)
		})
		logger, logs := Observed()
		o.Logger = logger
		m := eirinix.NewManager(o)
		Expect(m.AddExtension(looksAt(namespace, eirinix.Read{}))).To(Succeed())
		startManager(ctx, m)
		Eventually(func() int { return logs.FilterMessageSnippet("cannot be listed").Len() }).WithContext(ctx).WithTimeout(patience).Should(BeNumerically(">", 0))
		Expect(m.Ready()).NotTo(BeClosed())
		Expect(m.Addr()).NotTo(BeNil(), "the port is open")
		close(answer)
		Eventually(m.Ready()).WithContext(ctx).WithTimeout(patience).Should(BeClosed())
		Expect(tryPod(ctx, namespace)).To(Succeed())
		Expect(logs.FilterMessageSnippet("a step waits").Len()).To(BeZero())
	}, SpecTimeout(3*patience))

	It("sees all of many in its first call", func(ctx SpecContext) {
		const many = 600 // more than a page of a list
		group, creating := errgroup.WithContext(ctx)
		group.SetLimit(8)
		for n := range many {
			group.Go(func() error {
				_, err := clients().CoreV1().Secrets(namespace).Create(creating, &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("many-%d", n)}}, metav1.CreateOptions{})
				return err
			})
		}
		Expect(group.Wait()).To(Succeed())
		seen := make(chan int, 1)
		o := urlOptions(namespace)
		o.WebhookNamespace = metav1.NamespaceDefault // for the certificate Secret
		m := eirinix.NewManager(o)
		Expect(m.AddExtension(eirinix.Validation[*corev1.Pod]{
			ID: "counts", Settings: eirinix.Settings{Reads: []eirinix.Read{{Object: &corev1.Secret{}, Namespaces: []string{namespace}}}},
			Create: func(ctx context.Context, c *eirinix.Call, _ *corev1.Pod) error {
				var all corev1.SecretList
				err := c.Reader().List(ctx, &all)
				select {
				case seen <- len(all.Items):
				default:
				}
				return err
			},
		})).To(Succeed())
		runManager(ctx, m)
		Expect(tryPod(ctx, namespace)).To(Succeed())
		Expect(seen).To(Receive(Equal(many)))
	}, SpecTimeout(5*patience))

	It("sees one moment of them in all steps of a call", func(ctx SpecContext) {
		setGate(ctx, namespace, "0")
		var mu sync.Mutex
		seen := map[string]int{}
		times := func(v string) int {
			mu.Lock()
			defer mu.Unlock()
			return seen[v]
		}
		var within atomic.Bool
		m := eirinix.NewManager(urlOptions(namespace))
		value := func(ctx context.Context, c *eirinix.Call) (string, error) {
			var all corev1.ConfigMapList
			if err := c.Reader().List(ctx, &all, client.InNamespace(namespace)); err != nil || len(all.Items) != 1 {
				return "", fmt.Errorf("%d objects: %w", len(all.Items), err)
			}
			var one corev1.ConfigMap
			err := c.Reader().Get(ctx, client.ObjectKeyFromObject(&all.Items[0]), &one)
			if one.Data["gate"] != all.Items[0].Data["gate"] {
				err = fmt.Errorf("%s and %s in one call", one.Data, all.Items[0].Data)
			}
			return one.Data["gate"], err
		}
		reads := looksAt(namespace, eirinix.Read{}).Settings.Reads
		for _, id := range []string{"first", "second"} {
			Expect(m.AddExtension(eirinix.Validation[*corev1.Pod]{
				ID: id, Settings: eirinix.Settings{Reads: reads},
				Create: func(ctx context.Context, c *eirinix.Call, pod *corev1.Pod) error {
					defer GinkgoRecover()
					v, err := value(ctx, c)
					mu.Lock()
					seen[v]++
					mu.Unlock()
					if id == "first" && within.CompareAndSwap(false, true) { // other calls see the next value while this one goes on
						defer within.Store(false)
						setGate(ctx, namespace, v+"0")
						Eventually(func() int { _ = tryPod(ctx, namespace); return times(v + "0") }).WithContext(ctx).Should(BeNumerically(">", 0))
					}
					return err
				},
			})).To(Succeed())
		}
		runManager(ctx, m)
		for range 5 {
			Expect(tryPod(ctx, namespace)).To(Succeed())
		}
		mu.Lock()
		defer mu.Unlock()
		for v, steps := range seen {
			Expect(steps%2).To(BeZero(), "%q was seen by %d steps: %v", v, steps, seen)
		}
	}, SpecTimeout(3*patience))
})

// line is a connection to an API server that can go silent without being closed.
type line struct {
	target  *rest.Config
	listen  net.Listener
	mu      sync.Mutex
	flowing chan struct{} // closed while bytes pass
}

func newLine(to *rest.Config) *line {
	GinkgoHelper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	Expect(err).NotTo(HaveOccurred())
	l := &line{target: to, listen: listener, flowing: make(chan struct{})}
	close(l.flowing)
	address := Must(url.Parse(to.Host)).Host
	go func() {
		for {
			from, err := listener.Accept()
			if err != nil {
				return
			}
			over, err := net.Dial("tcp", address)
			if err != nil {
				_ = from.Close()
				continue
			}
			go l.pass(from, over)
			go l.pass(over, from)
		}
	}()
	DeferCleanup(func() {
		l.thaw()
		_ = listener.Close()
	})
	return l
}

func (l *line) pass(from, to net.Conn) {
	defer func() { _, _ = from.Close(), to.Close() }()
	buffer := make([]byte, 32<<10)
	for {
		n, err := from.Read(buffer)
		l.mu.Lock()
		flowing := l.flowing
		l.mu.Unlock()
		<-flowing
		if _, failed := to.Write(buffer[:n]); failed != nil || err != nil {
			return
		}
	}
}

func (l *line) freeze() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.flowing = make(chan struct{})
}

func (l *line) thaw() {
	l.mu.Lock()
	defer l.mu.Unlock()
	select {
	case <-l.flowing:
	default:
		close(l.flowing)
	}
}

func (l *line) config() *rest.Config {
	config := rest.CopyConfig(l.target)
	config.Host = "https://" + l.listen.Addr().String()
	return config
}

var _ = Describe("What a step looks at", Label("api-server"), func() {
	var namespace string
	BeforeEach(func(ctx SpecContext) { namespace = newNamespace(ctx) })

	It("is read in an audit as in a call, whether the Manager runs or not", func(ctx SpecContext) {
		setGate(ctx, namespace, "shut")
		_, err := clients().CoreV1().Pods(namespace).Create(ctx, NewPod("old", nil), metav1.CreateOptions{})
		Expect(err).NotTo(HaveOccurred())
		watched := newReadsOf("/configmaps")
		o := urlOptions(namespace)
		o.RestConfig = between(watched.pass)
		m := eirinix.NewManager(o)
		Expect(m.AddExtension(looksAt(namespace, eirinix.Read{}))).To(Succeed())
		audited := func() (all []string) {
			GinkgoHelper()
			_, err := audit.Run(ctx, m, audit.Options{Namespace: namespace, Finding: func(f audit.Finding) error {
				all = append(all, fmt.Sprintf("%s %s: %s", f.Result, f.Name, f.Message))
				return nil
			}})
			Expect(err).NotTo(HaveOccurred())
			return all
		}
		Expect(audited()).To(ConsistOf(ContainSubstring(`denied old: the gate is "shut"`)))
		setGate(ctx, namespace, "open")
		Expect(audited()).To(BeEmpty())
		setGate(ctx, namespace, "shut")
		runManager(ctx, m)
		before := watched.counted.Load()
		Expect(audited()).To(ConsistOf(ContainSubstring(`denied old: the gate is "shut"`)))
		Expect(watched.counted.Load()).To(Equal(before), "the Manager has the objects already")
	}, SpecTimeout(3*patience))

	It("is unknown in an audit that may not list it", func(ctx SpecContext) {
		role := rbacv1.PolicyRule{APIGroups: []string{""}, Resources: []string{"pods"}, Verbs: []string{"list"}}
		o := urlOptions(namespace)
		o.RestConfig = userWith(ctx, namespace, []rbacv1.PolicyRule{role}, nil)
		m := eirinix.NewManager(o)
		Expect(m.AddExtension(looksAt(namespace, eirinix.Read{}))).To(Succeed())
		var found []audit.Finding
		_, err := audit.Run(ctx, m, audit.Options{Namespace: namespace, Finding: func(f audit.Finding) error {
			found = append(found, f)
			return nil
		}})
		Expect(err).To(MatchError(ContainSubstring("the audit is not complete")))
		Expect(found).To(ConsistOf(SatisfyAll(HaveField("Result", audit.Unknown), HaveField("Message", ContainSubstring("ConfigMap in namespace "+namespace)))))
	}, SpecTimeout(3*patience))

	It("is watched once for all steps that declare the same, in every form", func(ctx SpecContext) {
		setGate(ctx, namespace, "open")
		watched := newReadsOf("/configmaps")
		o := urlOptions(namespace)
		o.RestConfig = between(watched.pass)
		m := eirinix.NewManager(o)
		metadata := &metav1.PartialObjectMetadata{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "ConfigMap"}}
		tree := &unstructured.Unstructured{}
		tree.SetAPIVersion("v1")
		tree.SetKind("ConfigMap")
		answers := make(chan string, 10)
		add := func(id string, object client.Object, keep func(client.Object), show func(context.Context, client.Reader) string) {
			GinkgoHelper()
			Expect(m.AddExtension(eirinix.Validation[*corev1.Pod]{
				ID:       id,
				Settings: eirinix.Settings{Reads: []eirinix.Read{{Object: object, Namespaces: []string{namespace}, Fields: fields.OneTermEqualSelector("metadata.name", "gate"), Transform: keep}}},
				Create: func(ctx context.Context, c *eirinix.Call, _ *corev1.Pod) error {
					answers <- id + " " + show(ctx, c.Reader())
					return nil
				},
			})).To(Succeed())
		}
		key := client.ObjectKey{Namespace: namespace, Name: "gate"}
		whole := func(ctx context.Context, r client.Reader) string {
			var cm corev1.ConfigMap
			err := r.Get(ctx, key, &cm)
			return fmt.Sprint(cm.Data["gate"], len(cm.ManagedFields), err)
		}
		add("one", &corev1.ConfigMap{}, nil, whole)
		add("two", &corev1.ConfigMap{}, nil, whole)
		add("kept", &corev1.ConfigMap{}, func(o client.Object) { o.(*corev1.ConfigMap).Data = map[string]string{"gate": "kept"} }, whole)
		add("tree", tree, nil, func(ctx context.Context, r client.Reader) string {
			o := tree.DeepCopy()
			err := r.Get(ctx, key, o)
			gate, _, _ := unstructured.NestedString(o.Object, "data", "gate")
			return fmt.Sprint(gate, len(o.GetManagedFields()), err)
		})
		add("meta", metadata, nil, func(ctx context.Context, r client.Reader) string {
			o := metadata.DeepCopy()
			err := r.Get(ctx, key, o)
			return fmt.Sprint(o.Name, len(o.ManagedFields), err)
		})
		runManager(ctx, m)
		Expect(watched.counted.Load()).To(BeEquivalentTo(6), "a list and a watch of typed, unstructured and metadata")
		Expect(tryPod(ctx, namespace)).To(Succeed())
		close(answers)
		var all []string
		for a := range answers {
			all = append(all, a)
		}
		Expect(all).To(ConsistOf("one open0 <nil>", "two open0 <nil>", "kept kept0 <nil>", "tree open0 <nil>", "meta gate0 <nil>"))
	}, SpecTimeout(3*patience))
})

var _ = Describe("Inside a KubeManager", Label("api-server"), func() {
	It("a step looks at objects that the KubeManager's cache leaves out", func(ctx SpecContext) {
		namespace := newNamespace(ctx)
		setGate(ctx, namespace, "open")
		mgr, err := ctrl.NewManager(controlPlane().Config(), ctrl.Options{
			Metrics: metricsserver.Options{BindAddress: "0"}, Cache: cache.Options{DefaultNamespaces: map[string]cache.Config{"default": {}}},
		})
		Expect(err).NotTo(HaveOccurred())
		o := urlOptions(namespace)
		o.RestConfig, o.KubeManager = nil, mgr
		m := eirinix.NewManager(o)
		Expect(m.AddExtension(looksAt(namespace, eirinix.Read{}))).To(Succeed())
		runManager(ctx, m)
		Expect(tryPod(ctx, namespace)).To(Succeed())
		setGate(ctx, namespace, "shut")
		Eventually(tryPod).WithContext(ctx).WithArguments(namespace).WithTimeout(patience).Should(MatchError(ContainSubstring(`the gate is "shut"`)))
	}, SpecTimeout(3*patience))
})
