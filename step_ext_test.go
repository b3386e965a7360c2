package eirinix_test

// This file specifies the three kinds of steps as an API server calls them, and the recording of its calls.

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	appsv1 "k8s.io/api/apps/v1"
	autoscalingv1 "k8s.io/api/autoscaling/v1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"code.cloudfoundry.org/eirinix"
	. "code.cloudfoundry.org/eirinix/internal/spectest"
	"code.cloudfoundry.org/eirinix/preview"
	"code.cloudfoundry.org/eirinix/recording"
	eirinixtest "code.cloudfoundry.org/eirinix/testing"
)

// managerWith returns a Manager with these extensions.
func managerWith(o eirinix.ManagerOptions, added ...any) *eirinix.ExtensionManager {
	GinkgoHelper()
	m := eirinix.NewManager(o)
	for _, a := range added {
		Expect(m.AddExtension(a)).To(Succeed())
	}
	return m
}

// serveSteps runs a Manager with these steps in the namespace.
func serveSteps(ctx context.Context, namespace string, steps ...any) *eirinix.ExtensionManager {
	GinkgoHelper()
	m := managerWith(urlOptions(namespace), steps...)
	runManager(ctx, m)
	return m
}

func newConfigMap(name string, data map[string]string) *corev1.ConfigMap {
	return &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: name}, Data: data}
}

// stage adds the key mutation-stage-n to the data of config maps that have the key before it.
func stage(n int) eirinix.Mutation[*corev1.ConfigMap] {
	before := "mutation-start"
	if n > 1 {
		before = fmt.Sprintf("mutation-stage-%d", n-1)
	}
	return eirinix.Mutation[*corev1.ConfigMap]{ID: fmt.Sprintf("stage-%d", n), Apply: func(_ context.Context, _ *eirinix.Call, c *corev1.ConfigMap) error {
		if c.Data[before] == "yes" {
			c.Data[fmt.Sprintf("mutation-stage-%d", n)] = "yes"
		}
		return nil
	}}
}

var _ = Describe("A Mutation", Label("api-server"), func() {
	var namespace string
	BeforeEach(func(ctx SpecContext) { namespace = newNamespace(ctx) })

	It("changes objects of its kind in place, as the cluster calls it, on CREATE and UPDATE", func(ctx SpecContext) {
		m := serveSteps(ctx, namespace, eirinix.Mutation[*appsv1.Deployment]{Apply: func(_ context.Context, c *eirinix.Call, d *appsv1.Deployment) error {
			metav1.SetMetaDataAnnotation(&d.ObjectMeta, "operation", string(c.Operation))
			return nil
		}})
		rule := configuration(ctx, m).Webhooks[0].Rules[0]
		Expect(rule.APIGroups).To(Equal([]string{"apps"}))
		Expect(rule.Resources).To(Equal([]string{"deployments"}))
		Expect(rule.Operations).To(ConsistOf(admissionregistrationv1.Create, admissionregistrationv1.Update))

		of := clients().AppsV1().Deployments(namespace)
		Expect(of.Create(ctx, NewDeployment("web"), metav1.CreateOptions{})).To(HaveField("Annotations", HaveKeyWithValue("operation", "CREATE")))
		Expect(of.Patch(ctx, "web", types.MergePatchType, []byte(`{"spec":{"replicas":2}}`), metav1.PatchOptions{})).To(HaveField("Annotations", HaveKeyWithValue("operation", "UPDATE")))
	}, SpecTimeout(2*patience))

	It("sees the result of the ones before, in one call and one entry, and a Validation sees that of all", Label("S6"), func(ctx SpecContext) {
		seen := make(chan map[string]string, 1)
		m := serveSteps(ctx, namespace, checks("sees", eirinix.Settings{}, func(_ *eirinix.Call, c *corev1.ConfigMap) error {
			seen <- c.Data
			return nil
		}), stage(1), stage(2), stage(3))
		Expect(configuration(ctx, m).Webhooks).To(HaveLen(2), "theirs, and the canary's")
		Must(clients().CoreV1().ConfigMaps(namespace).Create(ctx, newConfigMap("staged", map[string]string{"mutation-start": "yes"}), metav1.CreateOptions{}))
		Expect(seen).To(Receive(Equal(map[string]string{
			"mutation-start": "yes", "mutation-stage-1": "yes", "mutation-stage-2": "yes", "mutation-stage-3": "yes",
		})))
	}, SpecTimeout(2*patience))

	It("sees a dry run, and warns the user", func(ctx SpecContext) {
		serveSteps(ctx, namespace, eirinix.Mutation[*corev1.ConfigMap]{Apply: func(_ context.Context, c *eirinix.Call, m *corev1.ConfigMap) error {
			c.Warn("dry run: %t", *c.DryRun)
			c.Annotate("seen", "yes")
			return nil
		}})
		api, warnings := hearing()
		Must(api.CoreV1().ConfigMaps(namespace).Create(ctx, newConfigMap("dry", nil), metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}}))
		Expect(warnings.take()).To(Equal([]string{"dry run: true"}))
	}, SpecTimeout(2*patience))
})

var _ = Describe("A Validation", Label("api-server"), func() {
	var namespace string
	BeforeEach(func(ctx SpecContext) { namespace = newNamespace(ctx) })

	It("accepts and refuses with the code and causes of its error, on CREATE, UPDATE and DELETE", Label("S2", "S4"), func(ctx SpecContext) {
		m := serveSteps(ctx, namespace, eirinix.Validation[*corev1.ConfigMap]{
			Create: func(_ context.Context, _ *eirinix.Call, c *corev1.ConfigMap) error {
				if c.Data["e"] == "bad" {
					return eirinix.Invalid(field.ErrorList{field.Invalid(field.NewPath("data", "e"), "bad", "must be good")})
				}
				return nil
			},
			Update: func(_ context.Context, _ *eirinix.Call, old, now *corev1.ConfigMap) error {
				if old.Data["e"] != now.Data["e"] {
					return eirinix.Deny("e is %q and stays so", old.Data["e"])
				}
				return nil
			},
			Delete: func(_ context.Context, _ *eirinix.Call, c *corev1.ConfigMap) error {
				if c.Data["keep"] == "yes" {
					return apierrors.NewForbidden(corev1.Resource("configmaps"), c.Name, fmt.Errorf("nondeletable"))
				}
				return nil
			},
		})
		maps := clients().CoreV1().ConfigMaps(namespace)
		_, err := maps.Create(ctx, newConfigMap("a", map[string]string{"e": "bad"}), metav1.CreateOptions{})
		Expect(apierrors.IsInvalid(err)).To(BeTrue(), "%v", err)
		Expect(apierrors.HasStatusCause(err, metav1.CauseTypeFieldValueInvalid)).To(BeTrue(), "%v", err)
		_, err = maps.Create(ctx, newConfigMap("a", map[string]string{"e": "good", "keep": "yes"}), metav1.CreateOptions{})
		Expect(err).NotTo(HaveOccurred())
		_, err = maps.Patch(ctx, "a", types.MergePatchType, []byte(`{"data":{"e":"other"}}`), metav1.PatchOptions{})
		Expect(apierrors.IsForbidden(err)).To(BeTrue(), "%v", err)
		Expect(err).To(MatchError(ContainSubstring(`e is "good" and stays so`)))
		Expect(apierrors.IsForbidden(maps.Delete(ctx, "a", metav1.DeleteOptions{}))).To(BeTrue())
		_, err = maps.Patch(ctx, "a", types.MergePatchType, []byte(`{"data":{"keep":"no"}}`), metav1.PatchOptions{})
		Expect(err).NotTo(HaveOccurred())
		Expect(maps.Delete(ctx, "a", metav1.DeleteOptions{})).To(Succeed())

		_, err = clients().AdmissionregistrationV1().MutatingWebhookConfigurations().Get(ctx, configurationName(m), metav1.GetOptions{})
		Expect(apierrors.IsNotFound(err)).To(BeTrue(), "nothing mutates")
	}, SpecTimeout(2*patience))

	It("is named in denials, beside the domain of the program", func(ctx SpecContext) {
		o := urlOptions(namespace)
		o.Domain = "admission.example.org"
		admits := checks("first", eirinix.Settings{}, func(*eirinix.Call, *corev1.ConfigMap) error { return nil })
		m := managerWith(o, admits, denies("second", eirinix.Settings{}))
		runManager(ctx, m)
		_, err := clients().CoreV1().ConfigMaps(namespace).Create(ctx, newConfigMap("a", nil), metav1.CreateOptions{})
		Expect(err).To(MatchError(MatchRegexp(`admission webhook "configmaps-[0-9a-f]{8}\.%s\.admission\.example\.org" denied the request: second: no`, namespace)))
		report := m.Diagnose(ctx)
		Expect(report.Err()).To(Succeed())
		Expect(report.Findings).To(ContainElement(HaveField("Message", ContainSubstring("first, second share one call"))))
	}, SpecTimeout(2*patience))
})

var _ = Describe("A Subresource", Label("api-server"), func() {
	var namespace string
	BeforeEach(func(ctx SpecContext) { namespace = newNamespace(ctx) })

	It("decides on exec into pods, and on evictions and scales with the old object and the new one", Label("S3"), func(ctx SpecContext) {
		serveSteps(ctx, namespace,
			eirinix.Subresource[*corev1.PodExecOptions]{
				Resource: corev1.SchemeGroupVersion.WithResource("pods"), Subresource: "exec",
				Check: func(_ context.Context, _ *eirinix.Call, _, o *corev1.PodExecOptions) error {
					return eirinix.Deny("no %s in here", strings.Join(o.Command, " "))
				},
			},
			eirinix.Subresource[*policyv1.Eviction]{
				Resource: corev1.SchemeGroupVersion.WithResource("pods"), Subresource: "eviction",
				Check: func(_ context.Context, _ *eirinix.Call, _, e *policyv1.Eviction) error {
					return eirinix.Deny("%s stays", e.Name)
				},
			},
			eirinix.Subresource[*autoscalingv1.Scale]{
				Resource: appsv1.SchemeGroupVersion.WithResource("deployments"), Subresource: "scale",
				Check: func(_ context.Context, _ *eirinix.Call, old, now *autoscalingv1.Scale) error {
					return eirinix.Deny("from %d to %d is too much", old.Spec.Replicas, now.Spec.Replicas)
				},
			})
		Must(createPod(ctx, namespace, NewPod("pod", nil)))
		err := clients().CoreV1().RESTClient().Post().Namespace(namespace).Resource("pods").Name("pod").SubResource("exec").
			Param("command", "sh").Param("stdin", "true").Do(ctx).Error()
		Expect(err).To(MatchError(ContainSubstring("no sh in here")))
		err = clients().PolicyV1().Evictions(namespace).Evict(ctx, &policyv1.Eviction{ObjectMeta: metav1.ObjectMeta{Name: "pod", Namespace: namespace}})
		Expect(err).To(MatchError(ContainSubstring("pod stays")))
		Must(clients().AppsV1().Deployments(namespace).Create(ctx, NewDeployment("web"), metav1.CreateOptions{}))
		_, err = clients().AppsV1().Deployments(namespace).UpdateScale(ctx, "web", &autoscalingv1.Scale{
			ObjectMeta: metav1.ObjectMeta{Name: "web", Namespace: namespace}, Spec: autoscalingv1.ScaleSpec{Replicas: 100},
		}, metav1.UpdateOptions{})
		Expect(err).To(MatchError(ContainSubstring("from 1 to 100 is too much")))
	}, SpecTimeout(2*patience))
})

// recorded returns the files in a folder of recorded calls.
func recorded(folder string) []string {
	GinkgoHelper()
	return Must(filepath.Glob(filepath.Join(folder, "*.json")))
}

var _ = Describe("A Manager that runs", Label("api-server"), func() {
	It("records the calls of an API server until it is stopped, and can be replayed", func(ctx SpecContext) {
		namespace := newNamespace(ctx)
		options := urlOptions(namespace)
		logger, logs := Observed()
		options.Logger = logger
		setGate(ctx, namespace, "open")
		steps := []any{addEnv{}, looksAt(namespace, eirinix.Read{Required: true})}
		m := managerWith(options, steps...)
		ended := startManager(ctx, m)
		Eventually(m.Ready()).WithTimeout(patience).Should(BeClosed())
		dir, rest := GinkgoT().TempDir(), filepath.Join(GinkgoT().TempDir(), "rest")

		Eventually(func() (*corev1.Pod, error) { return createPod(ctx, namespace, NewPod("before", nil)) }).WithTimeout(patience).Should(beMutated())
		stop := Must(recording.Start(m, recording.Options{Dir: dir}))
		Expect(createPod(ctx, namespace, NewPod("first", nil))).To(beMutated())
		Expect(m.Diagnose(ctx).Err()).NotTo(HaveOccurred()) // whose call is no traffic
		Expect(stop(ctx)).To(Succeed())
		Expect(createPod(ctx, namespace, NewPod("between", nil))).To(beMutated())
		Expect(recorded(dir)).To(And(HaveLen(2), HaveEach(ContainSubstring("-first-"))), "one call of each step")
		Expect(Must(os.Stat(recorded(dir)[0])).Mode().Perm()).To(Equal(os.FileMode(0o600)))

		Must(recording.Start(m, recording.Options{Dir: rest}))
		Expect(createPod(ctx, namespace, NewPod("last", nil))).To(beMutated())
		m.Stop()
		Eventually(ended).WithTimeout(patience).Should(Receive(BeNil()))
		Expect(recorded(rest)).To(And(HaveLen(2), HaveEach(ContainSubstring("-last-"))), "the end of Run loses nothing")
		Expect(logs.FilterMessage("recording ended").All()).To(HaveLen(2), "and leaves no goroutine behind")

		By("replaying them without the cluster, with what the step has read")
		h := eirinixtest.NewHarness(GinkgoTB(), steps...)
		for _, folder := range []string{dir, rest} {
			h.CheckReplay(folder)
			calls := h.Replay(folder)
			Expect(calls).To(And(HaveLen(2), HaveEach(eirinixtest.BeAllowed())))
			Expect(calls[0].Patch).NotTo(BeEmpty())
			Expect(calls[0].Was.Patch).To(Equal(calls[0].Patch))
		}
	}, SpecTimeout(2*patience))

	It("is not previewed: its clients would reach the cluster", func(ctx SpecContext) {
		m := addEnvManager(urlOptions(newNamespace(ctx)))
		runManager(ctx, m)
		err := preview.Command(ctx, m, []string{"-"}, func(o *preview.Options) {
			o.Stdin, o.Stdout = strings.NewReader("{apiVersion: v1, kind: Pod, metadata: {name: a}}"), GinkgoWriter
		})
		Expect(err).To(MatchError("preview: the Manager is already running; use a Manager that has not been started"))
	}, SpecTimeout(2*patience))
})
