package eirinix_test

import (
	"context"
	"fmt"
	"strings"
	"sync/atomic"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	appsv1 "k8s.io/api/apps/v1"
	autoscalingv1 "k8s.io/api/autoscaling/v1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/client-go/rest"

	"code.cloudfoundry.org/eirinix"
	. "code.cloudfoundry.org/eirinix/internal/spectest"
)

// serveSteps runs a Manager with these steps in the namespace.
func serveSteps(ctx context.Context, namespace string, steps ...any) *eirinix.ExtensionManager {
	GinkgoHelper()
	m := eirinix.NewManager(urlOptions(namespace))
	for _, s := range steps {
		Expect(m.AddExtension(s)).To(Succeed())
	}
	runManager(ctx, m)
	return m
}

// warnings collects the warnings of the API server.
type warnings struct{ seen []string }

func (w *warnings) HandleWarningHeader(_ int, _, text string) { w.seen = append(w.seen, text) }

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

		d, err := clients().AppsV1().Deployments(namespace).Create(ctx, NewDeployment("web"), metav1.CreateOptions{})
		Expect(err).NotTo(HaveOccurred())
		Expect(d.Annotations).To(HaveKeyWithValue("operation", "CREATE"))
		d, err = clients().AppsV1().Deployments(namespace).Patch(ctx, "web", types.MergePatchType, []byte(`{"spec":{"replicas":2}}`), metav1.PatchOptions{})
		Expect(err).NotTo(HaveOccurred())
		Expect(d.Annotations).To(HaveKeyWithValue("operation", "UPDATE"))
	}, SpecTimeout(2*patience))

	It("sees the result of the ones before, in one call and one entry", Label("S6"), func(ctx SpecContext) {
		m := serveSteps(ctx, namespace, stage(1), stage(2), stage(3))
		Expect(configuration(ctx, m).Webhooks).To(HaveLen(2), "theirs, and the canary's")
		c, err := clients().CoreV1().ConfigMaps(namespace).Create(ctx, newConfigMap("staged", map[string]string{"mutation-start": "yes"}), metav1.CreateOptions{})
		Expect(err).NotTo(HaveOccurred())
		Expect(c.Data).To(Equal(map[string]string{
			"mutation-start": "yes", "mutation-stage-1": "yes", "mutation-stage-2": "yes", "mutation-stage-3": "yes",
		}))
	}, SpecTimeout(2*patience))

	It("has its additions defaulted by the API server", Label("S7"), func(ctx SpecContext) {
		serveSteps(ctx, namespace, eirinix.Mutation[*corev1.Pod]{Apply: func(_ context.Context, c *eirinix.Call, p *corev1.Pod) error {
			if c.Operation == "CREATE" {
				p.Spec.InitContainers = append(p.Spec.InitContainers, corev1.Container{Name: "setup", Image: "setup:1"})
			}
			return nil
		}})
		p, err := createPod(ctx, namespace, NewPod("pod", nil))
		Expect(err).NotTo(HaveOccurred())
		Expect(p.Spec.InitContainers).To(ConsistOf(HaveField("TerminationMessagePolicy", corev1.TerminationMessageReadFile)))
	}, SpecTimeout(2*patience))

	It("works on objects without Go type", func(ctx SpecContext) {
		serveSteps(ctx, namespace, eirinix.Mutation[*unstructured.Unstructured]{
			ID: "untyped",
			Settings: eirinix.Settings{Rules: []admissionregistrationv1.RuleWithOperations{{
				Operations: []admissionregistrationv1.OperationType{admissionregistrationv1.Create},
				Rule:       admissionregistrationv1.Rule{APIGroups: []string{""}, APIVersions: []string{"v1"}, Resources: []string{"services", "configmaps"}},
			}}},
			Apply: func(_ context.Context, _ *eirinix.Call, u *unstructured.Unstructured) error {
				u.SetAnnotations(map[string]string{"kind": u.GetKind()})
				return nil
			},
		})
		c, err := clients().CoreV1().ConfigMaps(namespace).Create(ctx, newConfigMap("untyped", nil), metav1.CreateOptions{})
		Expect(err).NotTo(HaveOccurred())
		Expect(c.Annotations).To(HaveKeyWithValue("kind", "ConfigMap"))
	}, SpecTimeout(2*patience))

	It("sees a dry run, and warns the user", func(ctx SpecContext) {
		serveSteps(ctx, namespace, eirinix.Mutation[*corev1.ConfigMap]{Apply: func(_ context.Context, c *eirinix.Call, m *corev1.ConfigMap) error {
			c.Warn("dry run: %t", *c.DryRun)
			c.Annotate("seen", "yes")
			return nil
		}})
		w := &warnings{}
		config := rest.CopyConfig(controlPlane().Config())
		config.WarningHandler = w
		_, err := Clients(config).CoreV1().ConfigMaps(namespace).Create(ctx, newConfigMap("dry", nil), metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
		Expect(err).NotTo(HaveOccurred())
		Expect(w.seen).To(Equal([]string{"dry run: true"}))
	}, SpecTimeout(2*patience))

	It("is called only where its matchConditions hold", Label("S22"), func(ctx SpecContext) {
		step := stage(1)
		step.Settings.Conditions = []admissionregistrationv1.MatchCondition{{Name: "not-skip-me", Expression: "object.metadata.name != 'skip-me'"}}
		serveSteps(ctx, namespace, step)
		for name, expected := range map[string]OmegaMatcher{"skip-me": Not(HaveKey("mutation-stage-1")), "change-me": HaveKey("mutation-stage-1")} {
			c, err := clients().CoreV1().ConfigMaps(namespace).Create(ctx, newConfigMap(name, map[string]string{"mutation-start": "yes"}), metav1.CreateOptions{})
			Expect(err).NotTo(HaveOccurred())
			Expect(c.Data).To(expected)
		}
	}, SpecTimeout(2*patience))

	It("is given objects of its own selector only, beside one with another selector", func(ctx SpecContext) {
		picky, other := stage(1), stage(2)
		picky.Settings.Objects = &metav1.LabelSelector{MatchLabels: map[string]string{"stage": "one"}}
		other.Settings.Objects = &metav1.LabelSelector{MatchLabels: map[string]string{"stage": "two"}}
		m := serveSteps(ctx, namespace, picky, other)
		Expect(configuration(ctx, m).Webhooks).To(HaveLen(3), "one each, and the canary's")
		for label, expected := range map[string]OmegaMatcher{
			"one":   And(HaveKey("mutation-stage-1"), Not(HaveKey("mutation-stage-2"))),
			"two":   Not(HaveKey("mutation-stage-1")),
			"three": Not(HaveKey("mutation-stage-1")),
		} {
			c := newConfigMap("labelled-"+label, map[string]string{"mutation-start": "yes"})
			c.Labels = map[string]string{"stage": label}
			c, err := clients().CoreV1().ConfigMaps(namespace).Create(ctx, c, metav1.CreateOptions{})
			Expect(err).NotTo(HaveOccurred())
			Expect(c.Data).To(expected, label)
		}
	}, SpecTimeout(2*patience))

	DescribeTable("may be slower than its timeout, and failurePolicy decides",
		func(ctx SpecContext, policy admissionregistrationv1.FailurePolicyType, outcome OmegaMatcher) {
			step := stage(1)
			step.Settings.Timeout, step.Settings.FailurePolicy = time.Second, policy
			step.Apply = func(ctx context.Context, _ *eirinix.Call, _ *corev1.ConfigMap) error {
				<-ctx.Done()
				return ctx.Err()
			}
			serveSteps(ctx, namespace, step)
			// The answer is due 50 ms before the API server gives up, which a busy machine can miss.
			Eventually(func() error {
				_, err := clients().CoreV1().ConfigMaps(namespace).Create(ctx, newConfigMap("slow", nil), metav1.CreateOptions{})
				return err
			}).WithContext(ctx).WithTimeout(patience).Should(outcome)
		},
		Entry("Fail", Label("S13"), admissionregistrationv1.Fail, MatchError(And(ContainSubstring("timeout=1s"), ContainSubstring(`\"stage-1\"`))), SpecTimeout(2*patience)),
		Entry("Ignore", Label("S13"), admissionregistrationv1.Ignore, BeNil(), SpecTimeout(2*patience)),
	)
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

	It("guards Namespaces, whatever namespace the other steps are for", func(ctx SpecContext) {
		guarded := newNamespace(ctx)
		m := serveSteps(ctx, namespace, eirinix.Validation[*corev1.Namespace]{ID: "guard", Delete: func(_ context.Context, _ *eirinix.Call, ns *corev1.Namespace) error {
			if ns.Name == guarded {
				return eirinix.Deny("%s stays", ns.Name)
			}
			return nil
		}})
		err := clients().CoreV1().Namespaces().Delete(ctx, guarded, metav1.DeleteOptions{})
		Expect(err).To(MatchError(ContainSubstring(guarded + " stays")))
		Expect(m.Unregister(ctx)).To(Succeed())
	}, SpecTimeout(2*patience))

	It("is named in denials, beside the domain of the program", func(ctx SpecContext) {
		o := urlOptions(namespace)
		o.Domain = "admission.example.org"
		m := eirinix.NewManager(o)
		for _, id := range []string{"first", "second"} {
			Expect(m.AddExtension(eirinix.Validation[*corev1.ConfigMap]{ID: id, Create: func(_ context.Context, _ *eirinix.Call, c *corev1.ConfigMap) error {
				if c.Data["against"] == id {
					return eirinix.Deny("not today")
				}
				return nil
			}})).To(Succeed())
		}
		runManager(ctx, m)
		_, err := clients().CoreV1().ConfigMaps(namespace).Create(ctx, newConfigMap("a", map[string]string{"against": "second"}), metav1.CreateOptions{})
		Expect(err).To(MatchError(MatchRegexp(`admission webhook "configmaps-[0-9a-f]{8}\.%s\.admission\.example\.org" denied the request: second: not today`, namespace)))
		report := m.Diagnose(ctx)
		Expect(report.Err()).To(Succeed())
		Expect(report.Findings).To(ContainElement(HaveField("Message", ContainSubstring("first, second share one call"))))
	}, SpecTimeout(2*patience))

	It("joins the findings of several of them", Label("S2"), func(ctx SpecContext) {
		deny := func(id, message string) eirinix.Validation[*corev1.Pod] {
			return eirinix.Validation[*corev1.Pod]{ID: id, Create: func(context.Context, *eirinix.Call, *corev1.Pod) error {
				return eirinix.Deny("%s", message)
			}}
		}
		serveSteps(ctx, namespace, deny("containers", "the container is bad"), deny("labels", "the label is bad"))
		_, err := createPod(ctx, namespace, NewPod("pod", nil))
		Expect(err).To(MatchError(And(ContainSubstring("the container is bad"), ContainSubstring("the label is bad"))))
	}, SpecTimeout(2*patience))

	It("sees the result of the mutations of the same Manager", func(ctx SpecContext) {
		serveSteps(ctx, namespace, stage(1), eirinix.Validation[*corev1.ConfigMap]{Create: func(_ context.Context, _ *eirinix.Call, c *corev1.ConfigMap) error {
			return eirinix.Deny("%v", c.Data)
		}})
		_, err := clients().CoreV1().ConfigMaps(namespace).Create(ctx, newConfigMap("seen", map[string]string{"mutation-start": "yes"}), metav1.CreateOptions{})
		Expect(err).To(MatchError(ContainSubstring("mutation-stage-1:yes")))
	}, SpecTimeout(2*patience))
})

var _ = Describe("A Subresource", Label("api-server"), func() {
	var namespace string
	BeforeEach(func(ctx SpecContext) { namespace = newNamespace(ctx) })

	It("decides on exec into pods", Label("S3"), func(ctx SpecContext) {
		serveSteps(ctx, namespace, eirinix.Subresource[*corev1.PodExecOptions]{
			Resource: corev1.SchemeGroupVersion.WithResource("pods"), Subresource: "exec",
			Check: func(_ context.Context, _ *eirinix.Call, _, o *corev1.PodExecOptions) error {
				return eirinix.Deny("no %s in here", strings.Join(o.Command, " "))
			},
		})
		_, err := createPod(ctx, namespace, NewPod("pod", nil))
		Expect(err).NotTo(HaveOccurred())
		err = clients().CoreV1().RESTClient().Post().Namespace(namespace).Resource("pods").Name("pod").SubResource("exec").
			Param("command", "sh").Param("stdin", "true").Do(ctx).Error()
		Expect(err).To(MatchError(ContainSubstring("no sh in here")))
	}, SpecTimeout(2*patience))

	It("decides on evictions and scales", func(ctx SpecContext) {
		var evictions atomic.Int32
		serveSteps(ctx, namespace,
			eirinix.Subresource[*policyv1.Eviction]{
				Resource: corev1.SchemeGroupVersion.WithResource("pods"), Subresource: "eviction",
				Check: func(_ context.Context, _ *eirinix.Call, _, e *policyv1.Eviction) error {
					evictions.Add(1)
					return eirinix.Deny("%s stays", e.Name)
				},
			},
			eirinix.Subresource[*autoscalingv1.Scale]{
				Resource: appsv1.SchemeGroupVersion.WithResource("deployments"), Subresource: "scale",
				Check: func(_ context.Context, _ *eirinix.Call, old, now *autoscalingv1.Scale) error {
					return eirinix.Deny("from %d to %d is too much", old.Spec.Replicas, now.Spec.Replicas)
				},
			})
		_, err := createPod(ctx, namespace, NewPod("pod", nil))
		Expect(err).NotTo(HaveOccurred())
		err = clients().PolicyV1().Evictions(namespace).Evict(ctx, &policyv1.Eviction{ObjectMeta: metav1.ObjectMeta{Name: "pod", Namespace: namespace}})
		Expect(err).To(MatchError(ContainSubstring("pod stays")))
		Expect(evictions.Load()).To(BeEquivalentTo(1))
		_, err = clients().AppsV1().Deployments(namespace).Create(ctx, NewDeployment("web"), metav1.CreateOptions{})
		Expect(err).NotTo(HaveOccurred())
		_, err = clients().AppsV1().Deployments(namespace).UpdateScale(ctx, "web", &autoscalingv1.Scale{
			ObjectMeta: metav1.ObjectMeta{Name: "web", Namespace: namespace}, Spec: autoscalingv1.ScaleSpec{Replicas: 100},
		}, metav1.UpdateOptions{})
		Expect(err).To(MatchError(ContainSubstring("from 1 to 100 is too much")))
	}, SpecTimeout(2*patience))
})
