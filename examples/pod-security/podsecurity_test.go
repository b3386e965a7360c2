package main

// These tests run against a real API server whose own plugin PodSecurity is off.

import (
	"context"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	nodev1 "k8s.io/api/node/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/pod-security-admission/api"
	upstream "k8s.io/pod-security-admission/test"

	"code.cloudfoundry.org/eirinix"
	eirinixtest "code.cloudfoundry.org/eirinix/testing"
)

// auditPolicy logs the annotations of all requests for pods.
const auditPolicy = `{"apiVersion":"audit.k8s.io/v1","kind":"Policy","omitStages":["RequestReceived"],
"rules":[{"level":"Metadata","resources":[{"group":"","resources":["pods"]}]},{"level":"None"}]}`

// served is an API server whose pods the example checks.
type served struct {
	*eirinixtest.ControlPlane
	audit    string // its audit log
	warnings *warnings
	client   kubernetes.Interface
}

func serve(t *testing.T, exempt exemptions) served {
	t.Helper()
	g, dir := NewWithT(t), t.TempDir()
	s := served{audit: filepath.Join(dir, "audit.log"), warnings: &warnings{}}
	rules := filepath.Join(dir, "policy.json")
	g.Expect(os.WriteFile(rules, []byte(auditPolicy), 0o600)).To(Succeed())
	s.ControlPlane = eirinixtest.StartControlPlane(t, func(o *eirinixtest.ControlPlaneOptions) {
		o.APIServerArgs = []string{"--disable-admission-plugins=PodSecurity", "--audit-policy-file=" + rules, "--audit-log-path=" + s.audit}
	})
	p := &podSecurity{exempt: exempt}
	g.Expect(p.configure([3]string{"privileged", "privileged", "privileged"})).To(Succeed())
	x := eirinix.NewManager(eirinix.ManagerOptions{RestConfig: s.Config(), OperatorFingerprint: "pod-security", WebhookNamespace: "kube-public", Host: "127.0.0.1", ListenAddress: "127.0.0.1:0"})
	for _, step := range p.steps() {
		g.Expect(x.AddExtension(step)).To(Succeed())
	}
	var err error
	p.cluster, err = follow(t.Context(), s.Config())
	g.Expect(err).NotTo(HaveOccurred())
	eirinixtest.StartManager(t, x)
	config := s.Config()
	config.WarningHandler = s.warnings
	s.client, err = kubernetes.NewForConfig(config)
	g.Expect(err).NotTo(HaveOccurred())
	return s
}

// warnings are those that a client has received since they were last taken.
type warnings struct {
	mu  sync.Mutex
	all []string
}

func (w *warnings) HandleWarningHeader(_ int, _, text string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.all = append(w.all, text)
}

func (w *warnings) take() []string {
	w.mu.Lock()
	defer w.mu.Unlock()
	defer func() { w.all = nil }()
	return w.all
}

// counted counts requests that create something.
type counted struct {
	http.RoundTripper
	n *atomic.Int64
}

func (c counted) RoundTrip(r *http.Request) (*http.Response, error) {
	if r.Method == http.MethodPost && r.URL.Query().Has("dryRun") {
		c.n.Add(1)
	}
	return c.RoundTripper.RoundTrip(r)
}

// TestUpstream runs the tests that Kubernetes has for its own plugin, as they are.
func TestUpstream(t *testing.T) {
	s := serve(t, exemptions{})
	var fixtures atomic.Int64
	config := rest.CopyConfig(s.Config())
	config.QPS = -1
	config.Wrap(func(next http.RoundTripper) http.RoundTripper { return counted{next, &fixtures} })
	upstream.Run(t, upstream.Options{ClientConfig: config})
	NewWithT(t).Expect(fixtures.Load()).To(BeNumerically(">=", 3000), "fixtures of pods and Deployments were sent")
}

func (s served) namespace(t *testing.T, name string, labels map[string]string) {
	t.Helper()
	_, err := s.client.CoreV1().Namespaces().Create(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: labels}}, metav1.CreateOptions{})
	NewWithT(t).Expect(err).NotTo(HaveOccurred())
}

func level(enforce string) map[string]string {
	return map[string]string{api.EnforceLevelLabel: enforce}
}

func podOf(name string, edits ...func(*corev1.Pod)) *corev1.Pod {
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "app", Image: "registry.example.org/app"}}}}
	for _, edit := range edits {
		edit(pod)
	}
	return pod
}

func hostNetwork(pod *corev1.Pod) { pod.Spec.HostNetwork = true }

func (s served) create(ctx context.Context, client kubernetes.Interface, namespace string, pod *corev1.Pod) error {
	_, err := client.CoreV1().Pods(namespace).Create(ctx, pod, metav1.CreateOptions{})
	return err
}

// relabel changes the level that a namespace enforces.
func (s served) relabel(ctx context.Context, name, enforce string) error {
	ns, err := s.client.CoreV1().Namespaces().Get(ctx, name, metav1.GetOptions{})
	if err != nil {
		return err
	}
	ns.Labels[api.EnforceLevelLabel] = enforce
	_, err = s.client.CoreV1().Namespaces().Update(ctx, ns, metav1.UpdateOptions{})
	return err
}

const (
	violate             = `violate PodSecurity "baseline:latest": host namespaces (hostNetwork=true)`
	violatesHostNetwork = `violates PodSecurity "baseline:latest": host namespaces (hostNetwork=true)`
)

// TestModes plays those cases that upstream's tests leave out: updates, ephemeral containers, a namespace that has pods, and the audit log.
func TestModes(t *testing.T) {
	s := serve(t, exemptions{users: []string{"jane"}, namespaces: []string{"free"}, runtimeClasses: []string{"sandboxed"}})
	g, ctx := NewWithT(t), t.Context()
	s.namespace(t, "enforced", level("baseline"))
	g.Expect(s.create(ctx, s.client, "enforced", podOf("bad", hostNetwork))).To(MatchError(ContainSubstring(`pods "bad" is forbidden: ` + violatesHostNetwork)))
	s.inAudit(t, "bad", "enforce-policy", "baseline:latest")

	s.namespace(t, "watched", map[string]string{api.AuditLevelLabel: "baseline", api.WarnLevelLabel: "restricted"})
	s.warnings.take()
	g.Expect(s.create(ctx, s.client, "watched", podOf("watched", hostNetwork))).To(Succeed())
	g.Expect(s.warnings.take()).To(ConsistOf(HavePrefix(`would violate PodSecurity "restricted:latest": `)))
	s.inAudit(t, "watched", "audit-violations", `would violate PodSecurity \"baseline:latest\": host namespaces (hostNetwork=true)`)

	t.Run("an update is checked if an image changes", func(t *testing.T) {
		g := NewWithT(t)
		pods := s.client.CoreV1().Pods("watched")
		g.Expect(s.relabel(ctx, "watched", "baseline")).To(Succeed())
		change := func(edit func(*corev1.Pod)) error {
			pod, err := pods.Get(ctx, "watched", metav1.GetOptions{})
			if err != nil {
				return err
			}
			edit(pod)
			_, err = pods.Update(ctx, pod, metav1.UpdateOptions{})
			return err
		}
		g.Expect(change(func(pod *corev1.Pod) { pod.Labels = map[string]string{"a": "b"} })).To(Succeed())
		g.Eventually(change).WithTimeout(time.Minute).WithArguments(func(pod *corev1.Pod) { pod.Spec.Containers[0].Image += ":next" }).
			Should(MatchError(ContainSubstring(violatesHostNetwork)))
		pod, err := pods.Get(ctx, "watched", metav1.GetOptions{})
		g.Expect(err).NotTo(HaveOccurred())
		pod.Spec.EphemeralContainers = append(pod.Spec.EphemeralContainers, corev1.EphemeralContainer{EphemeralContainerCommon: corev1.EphemeralContainerCommon{Name: "debug", Image: "busybox"}})
		_, err = pods.UpdateEphemeralContainers(ctx, "watched", pod, metav1.UpdateOptions{})
		g.Expect(err).To(MatchError(ContainSubstring(violatesHostNetwork)))
	})

	t.Run("a namespace with pods gets one warning for each reason", func(t *testing.T) {
		g := NewWithT(t)
		s.namespace(t, "a", nil)
		owned := func(pod *corev1.Pod) {
			pod.OwnerReferences = []metav1.OwnerReference{{APIVersion: "apps/v1", Kind: "ReplicaSet", Name: "r", UID: "r", Controller: new(true)}}
		}
		for _, pod := range []*corev1.Pod{podOf("p1", hostNetwork, owned), podOf("p2", hostNetwork, owned), podOf("p3", hostNetwork), podOf("good")} {
			g.Expect(s.create(ctx, s.client, "a", pod)).To(Succeed())
		}
		s.warnings.take()
		g.Expect(s.relabel(ctx, "a", "baseline")).To(Succeed())
		g.Expect(s.warnings.take()).To(Equal([]string{`existing pods in namespace "a" violate the new PodSecurity enforce level "baseline:latest"`, "p1 (and 2 other pods): host namespaces"}))
		g.Expect(s.relabel(ctx, "a", "privileged")).To(Succeed())
		g.Expect(s.warnings.take()).To(BeEmpty())
		g.Expect(s.relabel(ctx, "a", "strict")).To(MatchError(ContainSubstring(
			`metadata.labels[pod-security.kubernetes.io/enforce]: Invalid value: "strict": must be one of privileged, baseline, restricted`)))
	})

	t.Run("no standard applies to what is exempt", s.exemptions)
}

func (s served) exemptions(t *testing.T) {
	g, ctx := NewWithT(t), t.Context()
	s.warnings.take()
	s.namespace(t, "free", level("baseline"))
	g.Expect(s.warnings.take()).To(Equal([]string{`namespace "free" is exempt from Pod Security, and the policy (enforce=baseline:latest) will be ignored`}))
	g.Expect(s.create(ctx, s.client, "free", podOf("in-free", hostNetwork))).To(Succeed())
	s.inAudit(t, "in-free", "exempt", "namespace")

	_, err := s.client.NodeV1().RuntimeClasses().Create(ctx, &nodev1.RuntimeClass{ObjectMeta: metav1.ObjectMeta{Name: "sandboxed"}, Handler: "sandboxed"}, metav1.CreateOptions{})
	g.Expect(err).NotTo(HaveOccurred())
	g.Eventually(func() error { // the API server looks the class up in a cache
		return s.create(ctx, s.client, "enforced", podOf("classed", hostNetwork, func(pod *corev1.Pod) { pod.Spec.RuntimeClassName = new("sandboxed") }))
	}).WithTimeout(time.Minute).Should(Succeed())
	s.inAudit(t, "classed", "exempt", "runtimeClass")

	config, err := s.User("jane", "system:masters")
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(s.create(ctx, kubernetes.NewForConfigOrDie(config), "enforced", podOf("of-jane", hostNetwork))).To(Succeed())
	s.inAudit(t, "of-jane", "exempt", "user")
	g.Expect(s.create(ctx, s.client, "enforced", podOf("of-others", hostNetwork))).To(MatchError(ContainSubstring(violatesHostNetwork)))
}

// inAudit waits for the annotation in the audit log, in a line about the pod.
func (s served) inAudit(t *testing.T, pod, key, value string) {
	t.Helper()
	NewWithT(t).Eventually(func() ([]string, error) {
		text, err := os.ReadFile(s.audit)
		return strings.Split(string(text), "\n"), err
	}).WithTimeout(time.Minute).Should(ContainElement(And(ContainSubstring("/"+key+`":"`+value), ContainSubstring(`"name":"`+pod+`"`))))
}
