package conformance_test

import (
	"context"
	"strings"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"

	"code.cloudfoundry.org/eirinix"
	. "code.cloudfoundry.org/eirinix/internal/spectest"
)

// These facts were observed on the wire beside the numbered scenarios, next to S34.
var _ = Describe("S34 The API server's handling of requests", Label("S34"), func() {
	const create, update, connect, remove = admissionregistrationv1.Create, admissionregistrationv1.Update, admissionregistrationv1.Connect, admissionregistrationv1.Delete

	var (
		namespace string
		calls     *callLog
	)
	BeforeEach(func(ctx SpecContext) { namespace, calls = newNamespace(ctx), &callLog{} })

	eachMode(func(mode mode) {
		It("drops a status that a mutation adds on create, and a spec that it changes with the status", func(ctx SpecContext) {
			serve(ctx, mode, namespace, nil, eirinix.Mutation[*appsv1.Deployment]{
				ID:       "overreaching",
				Settings: eirinix.Settings{Rules: ruleFor("apps", "v1", []string{"deployments", "deployments/status"}, create, update)},
				Apply: func(_ context.Context, c *eirinix.Call, d *appsv1.Deployment) error {
					calls.add(string(c.Operation), c.SubResource)
					metav1.SetMetaDataAnnotation(&d.ObjectMeta, "by", "overreaching")
					if c.SubResource == "status" {
						d.Spec.Replicas = new(int32(7))
					} else {
						d.Status.ObservedGeneration = 7
					}
					return nil
				},
			})
			d, err := clients().AppsV1().Deployments(namespace).Create(ctx, NewDeployment("web"), metav1.CreateOptions{})
			Expect(err).NotTo(HaveOccurred())
			Expect(d.Status.ObservedGeneration).To(BeZero())
			Expect(d.Annotations).To(HaveKey("by"), "the rest of the patch is in")

			d.Status.Replicas = 1
			d, err = clients().AppsV1().Deployments(namespace).UpdateStatus(ctx, d, metav1.UpdateOptions{})
			Expect(err).NotTo(HaveOccurred())
			Expect(d.Status.Replicas).To(BeEquivalentTo(1))
			Expect(d.Spec.Replicas).To(HaveValue(BeEquivalentTo(1)))
			Expect(calls.list()).To(Equal([]string{"CREATE ", "UPDATE status"}))
		}, SpecTimeout(2*patience))

		It("calls a rule for pods/* for plain pods too", func(ctx SpecContext) {
			serve(ctx, mode, namespace, nil, eirinix.Mutation[*unstructured.Unstructured]{
				ID:       "stars",
				Settings: eirinix.Settings{Rules: ruleFor("", "v1", []string{"pods/*"}, create, update)},
				Apply: func(_ context.Context, c *eirinix.Call, u *unstructured.Unstructured) error {
					calls.add(string(c.Operation), "pods/"+c.SubResource, u.GetKind())
					return nil
				},
			})
			p, err := createPod(ctx, namespace, newPod("star"))
			Expect(err).NotTo(HaveOccurred())
			p.Status.Message = "shines"
			_, err = clients().CoreV1().Pods(namespace).UpdateStatus(ctx, p, metav1.UpdateOptions{})
			Expect(err).NotTo(HaveOccurred())
			Expect(calls.list()).To(Equal([]string{"CREATE pods/ Pod", "UPDATE pods/status Pod"}))
		}, SpecTimeout(2*patience))

		It("asks about an eviction, and not about the deletion that it is", func(ctx SpecContext) {
			pods := corev1.SchemeGroupVersion.WithResource("pods")
			serve(ctx, mode, namespace, nil,
				eirinix.Subresource[*policyv1.Eviction]{
					Resource: pods, Subresource: "eviction", Settings: eirinix.Settings{Operations: []admissionregistrationv1.OperationType{create}},
					Check: func(_ context.Context, c *eirinix.Call, _, e *policyv1.Eviction) error {
						calls.add(string(c.Operation), "pods/eviction", e.Name)
						return nil
					},
				},
				eirinix.Validation[*corev1.Pod]{Delete: func(_ context.Context, c *eirinix.Call, p *corev1.Pod) error {
					calls.add(string(c.Operation), "pods", p.Name)
					return nil
				}})
			_, err := createPod(ctx, namespace, newPod("evicted"))
			Expect(err).NotTo(HaveOccurred())
			Expect(clients().PolicyV1().Evictions(namespace).Evict(ctx, &policyv1.Eviction{ObjectMeta: metav1.ObjectMeta{Name: "evicted", Namespace: namespace}})).To(Succeed())
			_, err = clients().CoreV1().Pods(namespace).Get(ctx, "evicted", metav1.GetOptions{})
			Expect(err).To(Satisfy(apierrors.IsNotFound))
			Expect(calls.list()).To(Equal([]string{"CREATE pods/eviction evicted"}))
		}, SpecTimeout(2*patience))

		It("sends a generated name to validations, and none to mutations", func(ctx SpecContext) {
			note := func(kind string) func(context.Context, *eirinix.Call, *corev1.Pod) error {
				return func(_ context.Context, c *eirinix.Call, p *corev1.Pod) error {
					calls.add(kind, "<"+p.GenerateName+">", "<"+p.Name+">", "<"+c.Name+">", "<"+c.Namespace+">", "<"+p.Namespace+">")
					return nil
				}
			}
			serve(ctx, mode, namespace, nil,
				eirinix.Mutation[*corev1.Pod]{Apply: note("mutating")}, eirinix.Validation[*corev1.Pod]{Create: note("validating")})
			p := newPod("")
			p.GenerateName = "made-"
			p, err := createPod(ctx, namespace, p)
			Expect(err).NotTo(HaveOccurred())
			Expect(p.Name).To(HavePrefix("made-"))
			Expect(calls.list()).To(Equal([]string{
				"mutating <made-> <> <> <" + namespace + "> <" + namespace + ">",
				"validating <made-> <" + p.Name + "> <" + p.Name + "> <" + namespace + "> <" + namespace + ">",
			}))
		}, SpecTimeout(2*patience))

		It("sends status updates to the subresource's step, old and new, and obeys it", func(ctx SpecContext) {
			serve(ctx, mode, namespace, nil,
				eirinix.Subresource[*appsv1.Deployment]{
					Resource: appsv1.SchemeGroupVersion.WithResource("deployments"), Subresource: "status", Settings: eirinix.Settings{Operations: []admissionregistrationv1.OperationType{update}},
					Check: func(_ context.Context, _ *eirinix.Call, old, now *appsv1.Deployment) error {
						calls.add("deployments/status", now.Name)
						if now.Status.Replicas > old.Status.Replicas+1 {
							return eirinix.Deny("from %d to %d is too fast", old.Status.Replicas, now.Status.Replicas)
						}
						return nil
					},
				},
				eirinix.Subresource[*corev1.Pod]{
					Resource: corev1.SchemeGroupVersion.WithResource("pods"), Subresource: "status", Settings: eirinix.Settings{Operations: []admissionregistrationv1.OperationType{update}},
					Check: func(_ context.Context, _ *eirinix.Call, old, now *corev1.Pod) error {
						calls.add("pods/status", string(old.Status.Phase), "to", string(now.Status.Phase))
						if now.Status.Phase == corev1.PodFailed {
							return eirinix.Deny("failure is not an option")
						}
						return nil
					},
				})
			d, err := clients().AppsV1().Deployments(namespace).Create(ctx, NewDeployment("web"), metav1.CreateOptions{})
			Expect(err).NotTo(HaveOccurred())
			d.Status.Replicas = 2
			_, err = clients().AppsV1().Deployments(namespace).UpdateStatus(ctx, d, metav1.UpdateOptions{})
			Expect(err).To(MatchError(ContainSubstring("from 0 to 2 is too fast")))
			_, err = clients().AppsV1().Deployments(namespace).Patch(ctx, "web", types.MergePatchType, []byte(`{"status":{"replicas":1}}`), metav1.PatchOptions{}, "status")
			Expect(err).NotTo(HaveOccurred())
			_, err = clients().AppsV1().Deployments(namespace).Patch(ctx, "web", types.MergePatchType, []byte(`{"spec":{"replicas":3}}`), metav1.PatchOptions{})
			Expect(err).NotTo(HaveOccurred(), "not the subresource's business")

			p, err := createPod(ctx, namespace, newPod("pod"))
			Expect(err).NotTo(HaveOccurred())
			p.Status.Phase = corev1.PodRunning
			p, err = clients().CoreV1().Pods(namespace).UpdateStatus(ctx, p, metav1.UpdateOptions{})
			Expect(err).NotTo(HaveOccurred())
			p.Status.Phase = corev1.PodFailed
			_, err = clients().CoreV1().Pods(namespace).UpdateStatus(ctx, p, metav1.UpdateOptions{})
			Expect(err).To(MatchError(ContainSubstring("failure is not an option")))
			Expect(calls.list()).To(Equal([]string{"deployments/status web", "deployments/status web", "pods/status Pending to Running", "pods/status Running to Failed"}))
		}, SpecTimeout(2*patience))

		It("asks about attach and proxy before it connects", func(ctx SpecContext) {
			serve(ctx, mode, namespace, nil,
				eirinix.Subresource[*corev1.PodAttachOptions]{
					Resource: corev1.SchemeGroupVersion.WithResource("pods"), Subresource: "attach", Settings: eirinix.Settings{Operations: []admissionregistrationv1.OperationType{connect}},
					Check: func(_ context.Context, c *eirinix.Call, old, o *corev1.PodAttachOptions) error {
						if old != nil || len(c.Options.Raw) > 0 && string(c.Options.Raw) != "null" {
							return eirinix.Deny("oldObject or options where there are none")
						}
						return eirinix.Deny("attaching to %s of %s, stdin %t", o.Container, c.Name, o.Stdin)
					},
				},
				eirinix.Subresource[*corev1.ServiceProxyOptions]{
					Resource: corev1.SchemeGroupVersion.WithResource("services"), Subresource: "proxy", Settings: eirinix.Settings{Operations: []admissionregistrationv1.OperationType{connect}},
					Check: func(_ context.Context, c *eirinix.Call, _, o *corev1.ServiceProxyOptions) error {
						return eirinix.Deny("proxying to %s of %s", o.Path, c.Name)
					},
				})
			_, err := createPod(ctx, namespace, newPod("pod"))
			Expect(err).NotTo(HaveOccurred())
			_, err = clients().CoreV1().Services(namespace).Create(ctx, &corev1.Service{
				ObjectMeta: metav1.ObjectMeta{Name: "service"},
				Spec:       corev1.ServiceSpec{Ports: []corev1.ServicePort{{Port: 80}}, Selector: map[string]string{"no": "body"}},
			}, metav1.CreateOptions{})
			Expect(err).NotTo(HaveOccurred())
			for _, verb := range []string{"GET", "POST"} {
				err = clients().CoreV1().RESTClient().Verb(verb).Namespace(namespace).Resource("pods").Name("pod").SubResource("attach").
					Param("container", "app").Param("stdin", "true").Do(ctx).Error()
				Expect(err).To(And(Satisfy(apierrors.IsForbidden), MatchError(ContainSubstring("attaching to app of pod, stdin true"))), verb)
			}
			for _, verb := range []string{"GET", "POST", "PUT", "DELETE"} {
				err = clients().CoreV1().RESTClient().Verb(verb).Namespace(namespace).Resource("services").Name("service").SubResource("proxy").
					Suffix("some/where").Do(ctx).Error()
				Expect(err).To(And(Satisfy(apierrors.IsForbidden), MatchError(ContainSubstring("some/where of service"))), verb)
			}
		}, SpecTimeout(2*patience))

		It("calls once for each object of a collection that is deleted, without a name", func(ctx SpecContext) {
			serve(ctx, mode, namespace, nil, eirinix.Validation[*corev1.ConfigMap]{
				Settings: eirinix.Settings{Rules: ruleFor("", "v1", []string{"configmaps"}, remove)},
				Delete: func(_ context.Context, c *eirinix.Call, m *corev1.ConfigMap) error {
					calls.add("<"+c.Name+">", m.Name)
					if strings.HasPrefix(m.Name, "kept") {
						return eirinix.Deny("%s is kept", m.Name)
					}
					return nil
				},
			})
			for _, name := range []string{"a", "b", "c"} {
				m := newConfigMap(name, nil)
				m.Labels = map[string]string{"collected": "yes"}
				_, err := createConfigMap(ctx, namespace, m)
				Expect(err).NotTo(HaveOccurred())
			}
			maps := clients().CoreV1().ConfigMaps(namespace)
			Expect(maps.DeleteCollection(ctx, metav1.DeleteOptions{}, metav1.ListOptions{LabelSelector: "collected"})).To(Succeed())
			Expect(calls.take()).To(ConsistOf("<> a", "<> b", "<> c"))

			m := newConfigMap("kept", nil)
			m.Labels = map[string]string{"collected": "yes"}
			_, err := createConfigMap(ctx, namespace, m)
			Expect(err).NotTo(HaveOccurred())
			Expect(maps.DeleteCollection(ctx, metav1.DeleteOptions{}, metav1.ListOptions{LabelSelector: "collected"})).To(MatchError(ContainSubstring("kept is kept")))
		}, SpecTimeout(2*patience))
	})
})
