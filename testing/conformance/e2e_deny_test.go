package conformance_test

import (
	"context"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"code.cloudfoundry.org/eirinix"
)

// These values must not occur in an object, as in the project's own suite.
const (
	unwantedKey   = "webhook-e2e-test"
	unwantedValue = "webhook-disallow"
	hangValue     = "wait-forever"

	unwantedContainer = "the pod contains unwanted container name"
	unwantedLabel     = "the pod contains unwanted label"
	unwantedData      = "the configmap contains unwanted key and value"
)

func unwanted() map[string]string { return map[string]string{unwantedKey: unwantedValue} }

// denyPods refuses pods for two reasons, in a step each, and hangs on request.
func denyPods(settings eirinix.Settings) []any {
	end := make(chan struct{})
	DeferCleanup(func() { close(end) })
	containers := func(_ context.Context, _ *eirinix.Call, p *corev1.Pod) error {
		if p.Spec.Containers[0].Name == unwantedValue {
			return eirinix.Deny(unwantedContainer)
		}
		return nil
	}
	labels := func(_ context.Context, _ *eirinix.Call, p *corev1.Pod) error {
		switch p.Labels[unwantedKey] {
		case unwantedValue:
			return eirinix.Deny(unwantedLabel)
		case hangValue:
			<-end // whatever the context says
		}
		return nil
	}
	return []any{
		eirinix.Validation[*corev1.Pod]{ID: "containers", Settings: settings, Create: containers},
		eirinix.Validation[*corev1.Pod]{ID: "labels", Settings: settings, Create: labels},
	}
}

// denyConfigMaps refuses config maps with unwanted data, and their deletion while they say so.
func denyConfigMaps(settings eirinix.Settings) eirinix.Validation[*corev1.ConfigMap] {
	check := func(c *corev1.ConfigMap) error {
		if c.Data[unwantedKey] == unwantedValue {
			return eirinix.Deny(unwantedData)
		}
		return nil
	}
	return eirinix.Validation[*corev1.ConfigMap]{
		Settings: settings,
		Create:   func(_ context.Context, _ *eirinix.Call, c *corev1.ConfigMap) error { return check(c) },
		Update:   func(_ context.Context, _ *eirinix.Call, _, c *corev1.ConfigMap) error { return check(c) },
		Delete: func(_ context.Context, _ *eirinix.Call, c *corev1.ConfigMap) error {
			if c.Data["nondeletable"] == "yes" {
				return eirinix.Deny("the configmap is nondeletable")
			}
			return nil
		},
	}
}

// createNamespace makes a namespace that belongs to the spec of another, with one label more.
func createNamespace(ctx context.Context, of, key, value string) string {
	GinkgoHelper()
	ns, err := clients().CoreV1().Namespaces().Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{
		GenerateName: "conformance-", Labels: map[string]string{"spec": of, key: value},
	}}, metav1.CreateOptions{})
	Expect(err).NotTo(HaveOccurred())
	return ns.Name
}

var _ = Describe("A validating webhook", func() {
	eachMode(func(mode mode) {
		var namespace string
		BeforeEach(func(ctx SpecContext) { namespace = newNamespace(ctx) })

		It("refuses pods, for all reasons at once", Label("S2"), func(ctx SpecContext) {
			serve(ctx, mode, namespace, nil, denyPods(eirinix.Settings{})...)
			pod := newPod("disallowed-pod")
			pod.Labels, pod.Spec.Containers[0].Name = unwanted(), unwantedValue
			_, err := createPod(ctx, namespace, pod)
			Expect(err).To(And(Satisfy(apierrors.IsForbidden),
				MatchError(And(ContainSubstring(unwantedContainer), ContainSubstring(unwantedLabel)))))
			_, err = createPod(ctx, namespace, newPod("allowed-pod"))
			Expect(err).NotTo(HaveOccurred())
		}, SpecTimeout(2*patience))

		It("keeps a pod out when it hangs", Label("S2"), func(ctx SpecContext) {
			serve(ctx, mode, namespace, nil, denyPods(eirinix.Settings{Timeout: time.Second})...)
			pod := newPod("hanging-pod")
			pod.Labels = map[string]string{unwantedKey: hangValue}
			_, err := createPod(ctx, namespace, pod)
			Expect(err).To(MatchError(And(ContainSubstring("webhook"), ContainSubstring("deadline"))))
			_, err = clients().CoreV1().Pods(namespace).Get(ctx, pod.Name, metav1.GetOptions{})
			Expect(err).To(Satisfy(apierrors.IsNotFound))
		}, SpecTimeout(2*patience))

		It("refuses config maps, however they are written", Label("S2"), func(ctx SpecContext) {
			serve(ctx, mode, namespace, nil, denyConfigMaps(eirinix.Settings{}))
			denied := And(Satisfy(apierrors.IsForbidden), MatchError(ContainSubstring(unwantedData)))
			_, err := createConfigMap(ctx, namespace, newConfigMap("disallowed", unwanted()))
			Expect(err).To(denied, "create")

			maps := clients().CoreV1().ConfigMaps(namespace)
			c, err := createConfigMap(ctx, namespace, newConfigMap("allowed", map[string]string{"admit": "this", "nondeletable": "yes"}))
			Expect(err).NotTo(HaveOccurred())
			c.Data[unwantedKey] = unwantedValue
			_, err = maps.Update(ctx, c, metav1.UpdateOptions{})
			Expect(err).To(denied, "PUT")
			_, err = maps.Patch(ctx, "allowed", types.StrategicMergePatchType, []byte(`{"data":{"`+unwantedKey+`":"`+unwantedValue+`"}}`), metav1.PatchOptions{})
			Expect(err).To(denied, "strategic merge patch")

			Expect(maps.Delete(ctx, "allowed", metav1.DeleteOptions{})).To(MatchError(ContainSubstring("nondeletable")))
			_, err = maps.Patch(ctx, "allowed", types.MergePatchType, []byte(`{"data":{"nondeletable":"no"}}`), metav1.PatchOptions{})
			Expect(err).NotTo(HaveOccurred())
			Expect(maps.Delete(ctx, "allowed", metav1.DeleteOptions{})).To(Succeed())
		}, SpecTimeout(2*patience))

		It("is not called for a namespace that its selector leaves out", Label("S2"), func(ctx SpecContext) {
			serve(ctx, mode, namespace, nil, denyConfigMaps(eirinix.Settings{Namespaces: &metav1.LabelSelector{
				MatchLabels:      map[string]string{"spec": namespace},
				MatchExpressions: []metav1.LabelSelectorRequirement{{Key: "skip", Operator: metav1.LabelSelectorOpNotIn, Values: []string{"yes"}}},
			}}))
			_, err := createConfigMap(ctx, createNamespace(ctx, namespace, "skip", "no"), newConfigMap("disallowed", unwanted()))
			Expect(err).To(MatchError(ContainSubstring(unwantedData)))
			_, err = createConfigMap(ctx, createNamespace(ctx, namespace, "skip", "yes"), newConfigMap("disallowed", unwanted()))
			Expect(err).NotTo(HaveOccurred())
		}, SpecTimeout(2*patience))

		It("that cannot be reached has no effect under Ignore", Label("S2"), func(ctx SpecContext) {
			m := serve(ctx, mode, namespace, nil, denyConfigMaps(eirinix.Settings{}))
			elsewhere := newNamespace(ctx)
			f := foreignTo(ctx, m, validating, namespace, elsewhere)
			f.Webhook.ClientConfig = unreachable(mode, m)
			f.mustCreate(ctx)
			create := func(name string) error {
				_, err := createConfigMap(ctx, elsewhere, newConfigMap(name, unwanted()))
				return err
			}
			// Under Fail, to see that the API server knows it.
			Eventually(create).WithArguments("fail").Should(Satisfy(apierrors.IsInternalError))
			f.patch(ctx, `[{"op":"replace","path":"/webhooks/0/failurePolicy","value":"Ignore"}]`)
			Eventually(create).WithArguments("ignore").Should(Succeed())
		}, SpecTimeout(2*patience))

		// Admission comes before the pod's node is looked for, so the pod need not run.
		It("refuses to attach to a container that it protects", Label("S3"), func(ctx SpecContext) {
			serve(ctx, mode, namespace, nil, eirinix.Subresource[*corev1.PodAttachOptions]{
				Resource: corev1.SchemeGroupVersion.WithResource("pods"), Subresource: "attach",
				Settings: eirinix.Settings{Operations: []admissionregistrationv1.OperationType{admissionregistrationv1.Connect}},
				Check: func(_ context.Context, c *eirinix.Call, _, o *corev1.PodAttachOptions) error {
					if o.Stdin && o.Container == "container1" {
						return eirinix.Deny("attaching to pod %q is not allowed", c.Name)
					}
					return nil
				},
			})
			pod := newPod("to-be-attached-pod")
			pod.Spec.Containers[0].Name = "container1"
			_, err := createPod(ctx, namespace, pod)
			Expect(err).NotTo(HaveOccurred())
			attach := func(stdin string) error {
				return clients().CoreV1().RESTClient().Get().Namespace(namespace).Resource("pods").Name(pod.Name).SubResource("attach").
					Param("container", "container1").Param("stdin", stdin).Param("stdout", "true").Do(ctx).Error()
			}
			Expect(attach("true")).To(MatchError(ContainSubstring(`attaching to pod "to-be-attached-pod" is not allowed`)))
			Expect(attach("false")).To(MatchError(ContainSubstring("does not have a host assigned")), "admitted, and then there is no node")
		}, SpecTimeout(2*patience))
	})
})

// unreachable is a webhook like those of m, but without a server.
func unreachable(mode mode, m *eirinix.ExtensionManager) admissionregistrationv1.WebhookClientConfig {
	if mode == urlMode {
		return admissionregistrationv1.WebhookClientConfig{URL: new("https://127.0.0.1:1/configmaps")}
	}
	return admissionregistrationv1.WebhookClientConfig{Service: &admissionregistrationv1.ServiceReference{
		Namespace: m.GetManagerOptions().WebhookNamespace, Name: "missing", Path: new("/configmaps"),
	}}
}
