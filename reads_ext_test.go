package eirinix_test

// This file specifies what steps read beside the object of a request: as the objects and the connection change, in audits, and
// at a start at which they cannot be listed yet.

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync/atomic"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime"
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

// setGate writes what the ConfigMap "gate" says.
func setGate(ctx context.Context, namespace, value string) {
	GinkgoHelper()
	gate := newConfigMap("gate", map[string]string{"gate": value})
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

// waitForPods tries pods until one ends so.
func waitForPods(ctx context.Context, namespace string, outcome OmegaMatcher) {
	GinkgoHelper()
	Eventually(tryPod).WithContext(ctx).WithArguments(namespace).WithTimeout(2 * patience).Should(outcome)
}

// refused matches the error of a request that was refused with this text.
func refused(text string) OmegaMatcher { return MatchError(ContainSubstring(text)) }

// readsOf is a connection of which those requests that a step's reads make can be cut.
type readsOf struct {
	outage
	counted atomic.Int64
}

func newReadsOf() *readsOf {
	return &readsOf{outage: outage{bodies: map[io.Closer]bool{}}}
}

func (r *readsOf) pass(req *http.Request, next http.RoundTripper) (*http.Response, error) {
	if !strings.Contains(req.URL.Path, "/configmaps") || req.Method != http.MethodGet {
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
		watched := newReadsOf()
		o := urlOptions(namespace)
		o.RestConfig = between(watched.pass)
		runManager(ctx, managerWith(o, looksAt(namespace, eirinix.Read{})))
		Expect(tryPod(ctx, namespace)).To(Succeed())
		before := watched.counted.Load()
		for range 10 {
			Expect(tryPod(ctx, namespace)).To(Succeed())
		}
		Expect(watched.counted.Load()).To(Equal(before), "requests for ConfigMaps in 10 calls")
		setGate(ctx, namespace, "shut")
		waitForPods(ctx, namespace, refused(`the gate is "shut"`))
		Expect(clients().CoreV1().ConfigMaps(namespace).Delete(ctx, "gate", metav1.DeleteOptions{})).To(Succeed())
		waitForPods(ctx, namespace, refused(`the gate is ""`))
	}, SpecTimeout(5*patience))

	It("fails once the watch is broken for longer than MaxStale, says so once, and works again with the watch", func(ctx SpecContext) {
		setGate(ctx, namespace, "open")
		watched := newReadsOf()
		o := urlOptions(namespace)
		o.RestConfig = between(watched.pass)
		logger, logs := Observed()
		o.Logger = logger
		m := managerWith(o, looksAt(namespace, eirinix.Within(time.Second, eirinix.Read{})))
		runManager(ctx, m)
		Expect(tryPod(ctx, namespace)).To(Succeed())
		Expect(m.Diagnose(ctx).Findings).NotTo(ContainElement(HaveField("Code", diagnosis.ReadsNotListed)))

		watched.begin()
		stale := MatchError(And(ContainSubstring("failed calling webhook"), ContainSubstring("ConfigMap in namespace "+namespace+" with fields metadata.name=gate are known as they were"),
			ContainSubstring("the step allows 1s (Read.MaxStale)")))
		waitForPods(ctx, namespace, stale)
		Expect(tryPod(ctx, namespace)).To(stale)
		Expect(logs.FilterMessageSnippet("are too old").All()).To(HaveLen(1))
		finding, ok := m.Diagnose(ctx).Find(diagnosis.ReadsNotListed)
		Expect(ok).To(BeTrue())
		Expect(finding.Message).To(And(ContainSubstring("is broken for"), HaveSuffix("fail: gate")))

		watched.end()
		waitForPods(ctx, namespace, Succeed())
		Expect(logs.FilterMessageSnippet("up to date again").All()).To(HaveLen(1))
		Expect(m.Diagnose(ctx).Findings).NotTo(ContainElement(HaveField("Code", diagnosis.ReadsNotListed)))
	}, SpecTimeout(5*patience))

	It("is served by the half of a split deployment that does not register, and fails there for lack of rights", func(ctx SpecContext) {
		setGate(ctx, namespace, "open")
		o := urlOptions(namespace)
		o.Port, o.ListenAddress = FreePort(), ""
		o.RegisterWebHook = new(false)
		looks := looksAt(namespace, eirinix.Read{})
		Expect(managerWith(o, looks).RegisterExtensions()).To(Succeed())
		o.RestConfig = userWith(ctx, namespace, []rbacv1.PolicyRule{
			{APIGroups: []string{""}, Resources: []string{"secrets"}, Verbs: []string{"get"}, ResourceNames: []string{namespace + "-setupcertificate"}},
		}, nil)
		runManager(ctx, managerWith(o, looks))
		waitForPods(ctx, namespace, refused("cannot be listed"))
		userWith(ctx, namespace, []rbacv1.PolicyRule{{APIGroups: []string{""}, Resources: []string{"configmaps"}, Verbs: []string{"list", "watch"}}}, nil)
		waitForPods(ctx, namespace, Succeed())
	}, SpecTimeout(6*patience))

	It("is read in an audit as in a call, whether the Manager runs or not, and unknown without the right", func(ctx SpecContext) {
		setGate(ctx, namespace, "shut")
		Must(createPod(ctx, namespace, NewPod("old", nil)))
		watched := newReadsOf()
		o := urlOptions(namespace)
		o.RestConfig = between(watched.pass)
		m := managerWith(o, looksAt(namespace, eirinix.Read{}))
		audited := func() (all []audit.Finding) {
			GinkgoHelper()
			Must(audit.Run(ctx, m, audit.Options{Namespace: namespace, Finding: func(f audit.Finding) error { all = append(all, f); return nil }}))
			return all
		}
		denied := ConsistOf(says("gate", audit.Denied, "old", `the gate is "shut"`))
		Expect(audited()).To(denied)
		setGate(ctx, namespace, "open")
		Expect(audited()).To(BeEmpty())
		setGate(ctx, namespace, "shut")
		runManager(ctx, m)
		before := watched.counted.Load()
		Expect(audited()).To(denied)
		Expect(watched.counted.Load()).To(Equal(before), "the Manager has the objects already")

		o.RestConfig = userWith(ctx, namespace, []rbacv1.PolicyRule{{APIGroups: []string{""}, Resources: []string{"pods"}, Verbs: []string{"list"}}}, nil)
		found, _, err := auditOf(ctx, o, audit.Options{Namespace: namespace}, looksAt(namespace, eirinix.Read{}))
		Expect(err).To(MatchError(ContainSubstring("the audit is not complete")))
		Expect(found).To(ConsistOf(says("gate", audit.Unknown, "", "ConfigMap in namespace "+namespace)))
	}, SpecTimeout(4*patience))

	It("is watched once for all steps that declare the same, in every form", func(ctx SpecContext) {
		setGate(ctx, namespace, "open")
		watched := newReadsOf()
		o := urlOptions(namespace)
		o.RestConfig = between(watched.pass)
		var steps []any
		metadata := &metav1.PartialObjectMetadata{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "ConfigMap"}}
		tree := &unstructured.Unstructured{}
		tree.SetAPIVersion("v1")
		tree.SetKind("ConfigMap")
		answers := make(chan string, 10)
		add := func(id string, object client.Object, keep func(client.Object)) {
			looks := looksAt(namespace, eirinix.Read{Transform: keep})
			looks.ID, looks.Settings.Reads[0].Object = id, object
			looks.Create = func(ctx context.Context, c *eirinix.Call, _ *corev1.Pod) error {
				o := object.DeepCopyObject().(client.Object)
				err := c.Reader().Get(ctx, client.ObjectKey{Namespace: namespace, Name: "gate"}, o)
				data := Must(runtime.DefaultUnstructuredConverter.ToUnstructured(o))["data"]
				answers <- fmt.Sprintf("%s %s %v %d %v", id, o.GetName(), data, len(o.GetManagedFields()), err)
				return nil
			}
			steps = append(steps, looks)
		}
		add("one", &corev1.ConfigMap{}, nil)
		add("two", &corev1.ConfigMap{}, nil)
		add("kept", &corev1.ConfigMap{}, func(o client.Object) { o.(*corev1.ConfigMap).Data = map[string]string{"gate": "kept"} })
		add("tree", tree, nil)
		add("meta", metadata, nil)
		runManager(ctx, managerWith(o, steps...))
		Expect(watched.counted.Load()).To(BeEquivalentTo(6), "a list and a watch of typed, unstructured and metadata")
		Expect(tryPod(ctx, namespace)).To(Succeed())
		close(answers)
		var all []string
		for a := range answers {
			all = append(all, a)
		}
		const open = " gate map[gate:open] 0 <nil>"
		Expect(all).To(ConsistOf("one"+open, "two"+open, "kept gate map[gate:kept] 0 <nil>", "tree"+open, "meta gate <nil> 0 <nil>"))
	}, SpecTimeout(3*patience))

	It("sees one moment of them in all steps of a call", func(ctx SpecContext) {
		setGate(ctx, namespace, "before")
		seen := make(chan string, 100)
		var begun atomic.Bool
		step := func(id string) any {
			looks := looksAt(namespace, eirinix.Read{})
			looks.ID = id
			looks.Create = func(ctx context.Context, c *eirinix.Call, pod *corev1.Pod) error {
				var gate corev1.ConfigMap
				if err := c.Reader().Get(ctx, client.ObjectKey{Namespace: namespace, Name: "gate"}, &gate); err != nil {
					return err
				}
				if id == "first" && begun.CompareAndSwap(false, true) { // later calls see the next value while this one goes on
					defer GinkgoRecover()
					setGate(ctx, namespace, "after")
					waitForPods(ctx, namespace, refused("first: after"))
					for len(seen) > 0 {
						<-seen
					}
				}
				seen <- gate.Data["gate"]
				return eirinix.Deny("%s", gate.Data["gate"])
			}
			return looks
		}
		runManager(ctx, managerWith(urlOptions(namespace), step("first"), step("second")))
		Expect(tryPod(ctx, namespace)).To(MatchError(And(ContainSubstring("first: before"), ContainSubstring("second: before"))))
	}, SpecTimeout(3*patience))

	It("looks at objects that the cache of a KubeManager leaves out", func(ctx SpecContext) {
		setGate(ctx, namespace, "open")
		o := urlOptions(namespace)
		o.RestConfig, o.KubeManager = nil, Must(ctrl.NewManager(controlPlane().Config(), ctrl.Options{
			Metrics: metricsserver.Options{BindAddress: "0"}, Cache: cache.Options{DefaultNamespaces: map[string]cache.Config{"default": {}}},
		}))
		runManager(ctx, managerWith(o, looksAt(namespace, eirinix.Read{})))
		Expect(tryPod(ctx, namespace)).To(Succeed())
		setGate(ctx, namespace, "shut")
		waitForPods(ctx, namespace, refused(`the gate is "shut"`))
	}, SpecTimeout(4*patience))
})

// counting refuses pods, with the number of shops in a version.
func counting(group, version string) eirinix.Validation[*corev1.Pod] {
	shops := &unstructured.Unstructured{}
	shops.SetAPIVersion(group + "/" + version)
	shops.SetKind("Shop")
	return eirinix.Validation[*corev1.Pod]{
		ID: "counting", Settings: eirinix.Settings{Reads: []eirinix.Read{eirinix.Within(time.Second, eirinix.Read{Object: shops})}},
		Create: func(ctx context.Context, c *eirinix.Call, _ *corev1.Pod) error {
			list := &unstructured.UnstructuredList{}
			list.SetAPIVersion(group + "/" + version)
			list.SetKind("ShopList")
			if err := c.Reader().List(ctx, list); err != nil {
				return err
			}
			return eirinix.Deny("%d shops", len(list.Items))
		},
	}
}

var _ = Describe("A start whose reads fail", Label("api-server"), func() {
	var namespace string
	BeforeEach(func(ctx SpecContext) { namespace = newNamespace(ctx) })

	It("holds back its own steps, says why, and is ready with all others", func(ctx SpecContext) {
		const reason = "slow down"
		setGate(ctx, namespace, "open")
		var mended atomic.Bool
		o := urlOptions(namespace)
		o.RestConfig = between(func(r *http.Request, next http.RoundTripper) (*http.Response, error) {
			if !mended.Load() && r.Method == http.MethodGet && strings.Contains(r.URL.Path, "/configmaps") {
				response, err := answered(r, apierrors.NewTooManyRequestsError(reason))
				response.Header.Set("Retry-After", "60")
				return response, err
			}
			return next.RoundTrip(r)
		})
		logger, logs := Observed()
		o.Logger = logger
		m := managerWith(o, addEnv{}, looksAt(namespace, eirinix.Read{}))
		runManager(ctx, m)
		Expect(logs.FilterMessageSnippet("cannot be listed; the steps wait").All()).To(ContainElement(HaveField("ContextMap()", HaveKeyWithValue("reason", ContainSubstring(reason)))))
		finding, found := m.Diagnose(ctx).Find(diagnosis.ReadsNotListed)
		Expect(found).To(BeTrue())
		Expect(finding.Evidence).To(ContainSubstring(reason))
		Expect(tryPod(ctx, namespace)).To(Succeed(), "the gate is not in force")
		Expect(createPod(ctx, namespace, NewPod("pod", nil))).To(beMutated())
		setGate(ctx, namespace, "shut")
		mended.Store(true)
		waitForPods(ctx, namespace, refused(`the gate is "shut"`))
	}, SpecTimeout(6*patience))

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
		m := managerWith(o, looksAt(namespace, eirinix.Read{}))
		startManager(ctx, m)
		Eventually(logs.FilterMessageSnippet).WithArguments("cannot be listed").WithContext(ctx).WithTimeout(patience).ShouldNot(HaveField("Len()", 0))
		Expect(m.Ready()).NotTo(BeClosed())
		Expect(m.Addr()).NotTo(BeNil(), "the port is open")
		close(answer)
		Eventually(m.Ready()).WithContext(ctx).WithTimeout(patience).Should(BeClosed())
		Expect(tryPod(ctx, namespace)).To(Succeed())
		Expect(logs.FilterMessageSnippet("a step waits").All()).To(BeEmpty())
	}, SpecTimeout(3*patience))

	It("holds back a step that requires an object which is missing, and tells so", func(ctx SpecContext) {
		o := urlOptions(namespace)
		logger, logs := Observed()
		o.Logger = logger
		m := managerWith(o, looksAt(namespace, eirinix.Read{Required: true}))
		runManager(ctx, m)
		Expect(tryPod(ctx, namespace)).To(Succeed(), "the gate is not in force")
		told := func() []diagnosis.Finding { return m.Diagnose(ctx).Findings }
		missing := ContainElement(And(HaveField("Code", diagnosis.ReadsNotListed), HaveField("Message", ContainSubstring("there is no object of those of which steps require one"))))
		Expect(told()).To(missing)
		Expect(certificateMetrics(namespace)).To(HaveKeyWithValue("eirinix_registration_waiting reads", 1.))
		Expect(logs.FilterMessageSnippet("an object is missing that steps require").All()).To(HaveLen(1))
		setGate(ctx, namespace, "shut")
		waitForPods(ctx, namespace, refused(`the gate is "shut"`))
		Expect(told()).NotTo(missing)
		Expect(clients().CoreV1().ConfigMaps(namespace).Delete(ctx, "gate", metav1.DeleteOptions{})).To(Succeed())
		waitForPods(ctx, namespace, MatchError(And(ContainSubstring("there is no ConfigMap in namespace "+namespace), ContainSubstring("create it"))))
		Expect(told()).To(missing)
		setGate(ctx, namespace, "open")
		waitForPods(ctx, namespace, Succeed())
	}, SpecTimeout(6*patience))

	It("does not lock itself out if it reads a kind in a version that it converts to", func(ctx SpecContext) {
		group := namespace + ".example.com"
		cluster := anyClient()
		Expect(cluster.Create(ctx, twoVersions(group))).To(Succeed())
		DeferCleanup(cluster.Delete, twoVersions(group))
		stored := newShop(group, namespace, "corner")
		stored.Object["price"] = "12 EUR"
		Eventually(func() error { return cluster.Create(ctx, stored.DeepCopy()) }).WithContext(ctx).WithTimeout(patience).Should(Succeed())
		DeferCleanup(func(ctx SpecContext) { // without its conversion, it could not be deleted with the definition
			crd := definition(group)
			Expect(cluster.Patch(ctx, crd, client.RawPatch("application/merge-patch+json", []byte(`{"spec":{"conversion":{"strategy":"None","webhook":null}}}`)))).To(Succeed())
		})
		port := FreePort()
		for range 2 { // the second one finds its conversion registered, and down
			o := urlOptions(namespace)
			o.ListenAddress, o.Port = "", port
			m := managerWith(o, shopConversion(group), counting(group, "v1beta1"))
			done := startManager(ctx, m)
			Eventually(m.Ready()).WithContext(ctx).WithTimeout(2 * patience).Should(BeClosed())
			waitForPods(ctx, namespace, refused("1 shops"))
			m.Stop()
			Eventually(done).WithContext(ctx).WithTimeout(patience).Should(Receive(BeNil()))
			older := newShop(group, namespace, "corner")
			older.SetAPIVersion(group + "/v1beta1")
			Expect(cluster.Get(ctx, client.ObjectKeyFromObject(older), older)).To(MatchError(ContainSubstring("conversion webhook")))
		}
	}, SpecTimeout(8*patience))

	It("is watched for a short time over HTTP/1.1, where nothing notices a dead connection", func(ctx SpecContext) {
		setGate(ctx, namespace, "open")
		lasts := make(chan string, 10)
		o := urlOptions(namespace)
		o.RestConfig = between(func(r *http.Request, next http.RoundTripper) (*http.Response, error) {
			if strings.Contains(r.URL.Path, "/configmaps") && r.URL.Query().Get("watch") != "" {
				lasts <- r.URL.Query().Get("timeoutSeconds")
			}
			return next.RoundTrip(r)
		})
		o.RestConfig.NextProtos = []string{"http/1.1"}
		runManager(ctx, managerWith(o, looksAt(namespace, eirinix.Read{})))
		Eventually(lasts).WithContext(ctx).Should(Receive(Equal("25")))
	}, SpecTimeout(4*patience))
})
