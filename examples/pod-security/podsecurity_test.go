package main

// These tests run against a real API server whose own plugin PodSecurity is off.

import (
	"context"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	appsv1 "k8s.io/api/apps/v1"
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
	dir := t.TempDir()
	rules, log := filepath.Join(dir, "policy.json"), filepath.Join(dir, "audit.log")
	if err := os.WriteFile(rules, []byte(auditPolicy), 0o600); err != nil {
		t.Fatal(err)
	}
	plane := eirinixtest.StartControlPlane(t, func(o *eirinixtest.ControlPlaneOptions) {
		o.APIServerArgs = []string{"--disable-admission-plugins=PodSecurity", "--audit-policy-file=" + rules, "--audit-log-path=" + log}
	})
	p := &podSecurity{exempt: exempt}
	if err := p.configure([3]string{"privileged", "privileged", "privileged"}); err != nil {
		t.Fatal(err)
	}
	x := eirinix.NewManager(eirinix.ManagerOptions{
		RestConfig: plane.Config(), OperatorFingerprint: "pod-security", WebhookNamespace: "kube-public", Host: "127.0.0.1", ListenAddress: "127.0.0.1:0",
	})
	for _, step := range p.steps() {
		if err := x.AddExtension(step); err != nil {
			t.Fatal(err)
		}
	}
	var err error
	if p.cluster, err = follow(t.Context(), plane.Config()); err != nil {
		t.Fatal(err)
	}
	eirinixtest.StartManager(t, x)
	s := served{ControlPlane: plane, audit: log, warnings: &warnings{}}
	config := plane.Config()
	config.WarningHandler = s.warnings
	if s.client, err = kubernetes.NewForConfig(config); err != nil {
		t.Fatal(err)
	}
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
	version, err := s.client.Discovery().ServerVersion()
	if err != nil {
		t.Fatal(err)
	}
	upstream.Run(t, upstream.Options{ClientConfig: config})
	t.Logf("Kubernetes %s: %d fixtures of pods and Deployments were sent", version.GitVersion, fixtures.Load())
	if fixtures.Load() < 3000 {
		t.Error("these are not all fixtures")
	}
}

func (s served) namespace(t *testing.T, name string, labels map[string]string) {
	t.Helper()
	_, err := s.client.CoreV1().Namespaces().Create(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: labels}}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
}

func level(enforce string) map[string]string {
	return map[string]string{api.EnforceLevelLabel: enforce}
}

func podOf(name string, edits ...func(*corev1.Pod)) *corev1.Pod {
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "app", Image: "registry.example.org/app"}}},
	}
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

func wantError(t *testing.T, err error, text string) {
	t.Helper()
	if err == nil || !strings.Contains(err.Error(), text) {
		t.Errorf("got the error %v, and not %q", err, text)
	}
}

func want(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Error(err)
	}
}

func wantWarnings(t *testing.T, s served, expected ...string) {
	t.Helper()
	if got := s.warnings.take(); !slices.Equal(got, expected) {
		t.Errorf("got the warnings %q, and not %q", got, expected)
	}
}

const violatesHostNetwork = `violates PodSecurity "baseline:latest": host namespaces (hostNetwork=true)`

// TestModes plays what upstream's tests leave out: updates, ephemeral containers, and the audit log.
func TestModes(t *testing.T) {
	s := serve(t, exemptions{})
	ctx := t.Context()
	s.namespace(t, "enforced", level("baseline"))
	err := s.create(ctx, s.client, "enforced", podOf("bad", hostNetwork))
	wantError(t, err, `pods "bad" is forbidden: `+violatesHostNetwork)
	s.inAudit(t, "bad", "enforce-policy", "baseline:latest")

	s.namespace(t, "watched", map[string]string{api.AuditLevelLabel: "baseline", api.WarnLevelLabel: "restricted"})
	s.warnings.take()
	want(t, s.create(ctx, s.client, "watched", podOf("watched", hostNetwork)))
	if got := s.warnings.take(); len(got) != 1 || !strings.HasPrefix(got[0], `would violate PodSecurity "restricted:latest": `) {
		t.Errorf("got the warnings %q", got)
	}
	s.inAudit(t, "watched", "audit-violations", `would violate PodSecurity \"baseline:latest\": host namespaces (hostNetwork=true)`)

	t.Run("an update is checked if an image changes", func(t *testing.T) {
		ns, err := s.client.CoreV1().Namespaces().Get(ctx, "watched", metav1.GetOptions{})
		want(t, err)
		ns.Labels[api.EnforceLevelLabel] = "baseline"
		_, err = s.client.CoreV1().Namespaces().Update(ctx, ns, metav1.UpdateOptions{})
		want(t, err)
		change := func(edit func(*corev1.Pod)) error {
			pod, err := s.client.CoreV1().Pods("watched").Get(ctx, "watched", metav1.GetOptions{})
			if err != nil {
				return err
			}
			edit(pod)
			_, err = s.client.CoreV1().Pods("watched").Update(ctx, pod, metav1.UpdateOptions{})
			return err
		}
		want(t, change(func(pod *corev1.Pod) { pod.Labels = map[string]string{"a": "b"} }))
		eventually(t, func() error {
			err := change(func(pod *corev1.Pod) { pod.Spec.Containers[0].Image += ":next" })
			if err == nil {
				return fmt.Errorf("the new image was accepted")
			}
			if !strings.Contains(err.Error(), violatesHostNetwork) {
				return err
			}
			return nil
		})
		pod, err := s.client.CoreV1().Pods("watched").Get(ctx, "watched", metav1.GetOptions{})
		want(t, err)
		pod.Spec.EphemeralContainers = append(pod.Spec.EphemeralContainers, corev1.EphemeralContainer{EphemeralContainerCommon: corev1.EphemeralContainerCommon{Name: "debug", Image: "busybox"}})
		_, err = s.client.CoreV1().Pods("watched").UpdateEphemeralContainers(ctx, "watched", pod, metav1.UpdateOptions{})
		wantError(t, err, violatesHostNetwork)
	})

	t.Run("a Deployment gets a warning", func(t *testing.T) {
		s.warnings.take()
		labels := map[string]string{"app": "a"}
		pod := podOf("a", hostNetwork)
		_, err := s.client.AppsV1().Deployments("enforced").Create(ctx, &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Name: "a"}, Spec: appsv1.DeploymentSpec{
			Selector: &metav1.LabelSelector{MatchLabels: labels}, Template: corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: labels}, Spec: pod.Spec},
		}}, metav1.CreateOptions{})
		want(t, err)
		wantWarnings(t, s, `would violate PodSecurity "baseline:latest": host namespaces (hostNetwork=true)`)
	})
}

// TestNamespaces changes the standard of a namespace that has pods.
func TestNamespaces(t *testing.T) {
	s := serve(t, exemptions{})
	ctx := t.Context()
	s.namespace(t, "a", nil)
	_, err := s.client.CoreV1().Namespaces().Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "wrong", Labels: level("strict")}}, metav1.CreateOptions{})
	wantError(t, err, `metadata.labels[pod-security.kubernetes.io/enforce]: Invalid value: "strict": must be one of privileged, baseline, restricted`)
	owned := func(pod *corev1.Pod) {
		pod.OwnerReferences = []metav1.OwnerReference{{APIVersion: "apps/v1", Kind: "ReplicaSet", Name: "r", UID: "r", Controller: new(true)}}
	}
	for _, pod := range []*corev1.Pod{podOf("p1", hostNetwork, owned), podOf("p2", hostNetwork, owned), podOf("p3", hostNetwork), podOf("good")} {
		want(t, s.create(ctx, s.client, "a", pod))
	}
	s.warnings.take()
	enforce := func(level string) error {
		ns, err := s.client.CoreV1().Namespaces().Get(ctx, "a", metav1.GetOptions{})
		if err != nil {
			return err
		}
		ns.Labels[api.EnforceLevelLabel] = level
		_, err = s.client.CoreV1().Namespaces().Update(ctx, ns, metav1.UpdateOptions{})
		return err
	}
	want(t, enforce("baseline"))
	wantWarnings(t, s, `existing pods in namespace "a" violate the new PodSecurity enforce level "baseline:latest"`, "p1 (and 2 other pods): host namespaces")
	want(t, enforce("privileged"))
	wantWarnings(t, s)
	wantError(t, enforce("strict"), "must be one of privileged, baseline, restricted")
}

// TestExemptions creates pods that no standard applies to.
func TestExemptions(t *testing.T) {
	s := serve(t, exemptions{users: []string{"jane"}, namespaces: []string{"free"}, runtimeClasses: []string{"sandboxed"}})
	ctx := t.Context()
	s.namespace(t, "enforced", level("baseline"))
	s.warnings.take()
	s.namespace(t, "free", level("baseline"))
	wantWarnings(t, s, `namespace "free" is exempt from Pod Security, and the policy (enforce=baseline:latest) will be ignored`)
	want(t, s.create(ctx, s.client, "free", podOf("in-free", hostNetwork)))
	s.inAudit(t, "in-free", "exempt", "namespace")

	_, err := s.client.NodeV1().RuntimeClasses().Create(ctx, &nodev1.RuntimeClass{ObjectMeta: metav1.ObjectMeta{Name: "sandboxed"}, Handler: "sandboxed"}, metav1.CreateOptions{})
	want(t, err)
	eventually(t, func() error { // the API server looks the class up in a cache
		return s.create(ctx, s.client, "enforced", podOf("classed", hostNetwork, func(pod *corev1.Pod) { pod.Spec.RuntimeClassName = new("sandboxed") }))
	})
	s.inAudit(t, "classed", "exempt", "runtimeClass")

	config, err := s.User("jane", "system:masters")
	want(t, err)
	jane, err := kubernetes.NewForConfig(config)
	want(t, err)
	want(t, s.create(ctx, jane, "enforced", podOf("of-jane", hostNetwork)))
	s.inAudit(t, "of-jane", "exempt", "user")
	wantError(t, s.create(ctx, s.client, "enforced", podOf("of-others", hostNetwork)), violatesHostNetwork)
}

// inAudit waits for the annotation in the audit log, in a line about the pod.
func (s served) inAudit(t *testing.T, pod, key, value string) {
	t.Helper()
	eventually(t, func() error {
		text, err := os.ReadFile(s.audit)
		if err != nil {
			return err
		}
		for line := range strings.Lines(string(text)) {
			if strings.Contains(line, "/"+key+`":"`+value) && strings.Contains(line, `"name":"`+pod+`"`) {
				return nil
			}
		}
		return fmt.Errorf("the audit log has no %s=%s for pod %s", key, value, pod)
	})
}

func eventually(t *testing.T, check func() error) {
	t.Helper()
	NewWithT(t).Eventually(check).WithTimeout(time.Minute).Should(Succeed())
}
