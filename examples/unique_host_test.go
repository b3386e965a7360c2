package examples_test

import (
	"context"
	"slices"
	"sync"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	crclient "sigs.k8s.io/controller-runtime/pkg/client"

	"code.cloudfoundry.org/eirinix"
	"code.cloudfoundry.org/eirinix/examples/internal/programs"
	"code.cloudfoundry.org/eirinix/examples/unique-host/hosts"
)

func newIngress(namespace, name string, hosts ...string) *networkingv1.Ingress {
	i := &networkingv1.Ingress{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}}
	i.Spec.DefaultBackend = &networkingv1.IngressBackend{Service: &networkingv1.IngressServiceBackend{Name: "shop", Port: networkingv1.ServiceBackendPort{Number: 80}}}
	for _, host := range hosts {
		i.Spec.Rules = append(i.Spec.Rules, networkingv1.IngressRule{Host: host})
	}
	return i
}

// runStep runs a step for a namespace until the end of the spec.
func runStep(ctx context.Context, namespace string, step any) {
	GinkgoHelper()
	m := eirinix.NewManager(eirinix.ManagerOptions{
		Namespace: namespace, Host: "127.0.0.1", ListenAddress: "127.0.0.1:0", OperatorFingerprint: namespace,
		RestConfig: plane.Config(), Logger: quiet(), UnregisterOnStop: true,
	})
	Expect(m.AddExtension(step)).To(Succeed())
	run(ctx, m)
}

var _ = Describe("the example unique-host", func() {
	denied := func(message string) OmegaMatcher {
		return And(Satisfy(apierrors.IsForbidden), MatchError(ContainSubstring(message)))
	}

	It("refuses the second Ingress of a host and unknown registries, by the commands of the README", func(ctx SpecContext) {
		r := readmeOf("unique-host")
		unregisterAfterwards("unique-host-example")
		r.start("-host")
		pod := func() error {
			_, err := client.CoreV1().Pods("default").Create(ctx, &corev1.Pod{
				ObjectMeta: metav1.ObjectMeta{GenerateName: "foreign-"},
				Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "foreign", Image: "docker.io/library/busybox"}}},
			}, metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
			return err
		}
		Expect(pod()).To(Succeed(), "the step waits for its ConfigMap before it is registered")
		_, err := r.apply(ctx, "registries.yaml")
		Expect(err).NotTo(HaveOccurred())
		Eventually(pod, programs.Patience).Should(denied("is from no registry that ConfigMap default/registries lists"))
		_, err = r.apply(ctx, "ingress.yaml")
		Expect(err).NotTo(HaveOccurred())
		Eventually(func() error {
			_, err := r.apply(ctx, "copy.yaml")
			return err
		}, programs.Patience).Should(denied("host shop.example.com belongs to Ingress default/shop"))
		registries, err := client.CoreV1().ConfigMaps("default").Get(ctx, "registries", metav1.GetOptions{})
		Expect(err).NotTo(HaveOccurred())
		registries.Data["allowed"] += "\ndocker.io/library/"
		_, err = client.CoreV1().ConfigMaps("default").Update(ctx, registries, metav1.UpdateOptions{})
		Expect(err).NotTo(HaveOccurred())
		Eventually(pod, programs.Patience).Should(Succeed())
		Expect(client.CoreV1().ConfigMaps("default").Delete(ctx, "registries", metav1.DeleteOptions{})).To(Succeed())
		Eventually(pod, programs.Patience).Should(MatchError(ContainSubstring("there is no ConfigMap in namespace default with fields metadata.name=registries")))
	})

	It("runs in a cluster with the rights that it prints", func(ctx SpecContext) {
		r := readmeOf("unique-host")
		unregisterAfterwards("unique-host-example")
		r.deploy(ctx)
		Eventually(func() error { return c.Create(ctx, newIngress("default", "reserved", "reserved.example.com")) }, programs.Patience).Should(Succeed())
		DeferCleanup(func(ctx SpecContext) { Expect(c.Delete(ctx, newIngress("default", "reserved"))).To(Succeed()) })
		reservations, err := client.CoreV1().ConfigMaps("webhooks").List(ctx, metav1.ListOptions{})
		Expect(err).NotTo(HaveOccurred())
		Expect(reservations.Items).To(ContainElement(HaveField("Data", HaveKeyWithValue("host", "reserved.example.com"))))
	})

	Describe("with two API servers", Ordered, func() {
		var (
			namespace string
			servers   []kubernetes.Interface
		)
		BeforeEach(func(ctx SpecContext) { namespace = programs.Namespace(ctx, client) })
		BeforeAll(func(ctx SpecContext) {
			second, err := plane.AddAPIServer(ctx)
			Expect(err).NotTo(HaveOccurred())
			DeferCleanup(second.Stop)
			servers = []kubernetes.Interface{client, kubernetes.NewForConfigOrDie(second.Config())}
		})
		create := func(ctx context.Context, server int, name, host string, dryRun ...string) error {
			_, err := servers[server].NetworkingV1().Ingresses(namespace).Create(ctx, newIngress(namespace, name, host), metav1.CreateOptions{DryRun: dryRun})
			return err
		}
		// serve runs the step. A call for a host waits until the other one has been decided on.
		serve := func(ctx context.Context, step eirinix.Validation[*networkingv1.Ingress]) {
			GinkgoHelper()
			var both sync.WaitGroup
			both.Add(len(servers))
			decide := step.Create
			step.Create = func(ctx context.Context, c *eirinix.Call, ingress *networkingv1.Ingress) error {
				err := decide(ctx, c, ingress)
				if !*c.DryRun {
					both.Done()
					both.Wait() // neither Ingress is stored before both have been decided on
				}
				return err
			}
			Expect(create(ctx, 0, "known", namespace+".known.example.com")).To(Succeed())
			runStep(ctx, namespace, step)
			for server := range servers { // each API server calls the webhook
				Eventually(create, programs.Patience).WithArguments(ctx, server, "copy", namespace+".known.example.com", metav1.DryRunAll).Should(denied("belongs to Ingress"))
			}
		}
		// answers lets each API server create an Ingress with the same host, at the same time.
		answers := func(ctx context.Context) (admitted int, refusals []error) {
			results := make(chan error, 2)
			for server := range servers {
				go func() {
					results <- create(ctx, server, []string{"left", "right"}[server], namespace+".example.com")
				}()
			}
			for range servers {
				if err := <-results; err != nil {
					refusals = append(refusals, err)
				} else {
					admitted++
				}
			}
			return admitted, refusals
		}
		It("admits both of two requests at the same time if the step only looks", func(ctx SpecContext) {
			serve(ctx, hosts.Unique())
			admitted, refusals := answers(ctx)
			Expect(refusals).To(BeEmpty())
			Expect(admitted).To(Equal(2))
		}, SpecTimeout(time.Minute))

		It("admits one of them if it reserves", func(ctx SpecContext) {
			serve(ctx, hosts.Reserved(namespace))
			admitted, refusals := answers(ctx)
			Expect(admitted).To(Equal(1))
			Expect(refusals).To(ConsistOf(denied("host " + namespace + ".example.com is reserved for Ingress " + namespace)))
		}, SpecTimeout(time.Minute))
	})

	Describe("its reservations", func() {
		It("end with their Ingress, are kept by an edit, and are taken over when they are old", func(ctx SpecContext) {
			namespace := programs.Namespace(ctx, client)
			reserved := func(g Gomega) corev1.ConfigMap {
				all, err := client.CoreV1().ConfigMaps(namespace).List(ctx, metav1.ListOptions{})
				g.Expect(err).NotTo(HaveOccurred())
				i := slices.IndexFunc(all.Items, func(m corev1.ConfigMap) bool { return m.Data["host"] == "shop.example.com" })
				g.Expect(i).To(BeNumerically(">=", 0))
				return all.Items[i]
			}
			runStep(ctx, namespace, hosts.Reserved(namespace))
			create := func(name string) error {
				return c.Create(ctx, newIngress(namespace, name, "shop.example.com"))
			}
			Eventually(func(g Gomega) { // the API server calls from the first Ingress with a reservation on
				g.Expect(crclient.IgnoreNotFound(c.Delete(ctx, newIngress(namespace, "first")))).To(Succeed())
				g.Expect(create("first")).To(Succeed())
				g.Expect(reserved(g).Data).To(HaveKeyWithValue("name", "first"))
			}, programs.Patience).Should(Succeed())
			Expect(c.Create(ctx, newIngress(namespace, "tried", "shop.example.com"), crclient.DryRunAll)).To(denied("shop.example.com"))
			old := reserved(Default)
			old.Data["since"] = "2020-01-01T00:00:00Z"
			Expect(c.Update(ctx, &old)).To(Succeed())
			Eventually(create, programs.Patience).WithArguments("second").Should(denied("host shop.example.com belongs to Ingress " + namespace + "/first"))
			Expect(c.Patch(ctx, newIngress(namespace, "first"), crclient.RawPatch("application/merge-patch+json", []byte(`{"metadata":{"labels":{"edited":"true"}}}`)))).To(Succeed())

			Expect(c.Delete(ctx, newIngress(namespace, "first"))).To(Succeed())
			Eventually(create, programs.Patience).WithArguments("second").Should(Succeed(), "old, and without its Ingress")
			Expect(reserved(Default).Data).To(HaveKeyWithValue("name", "second"))
			Expect(c.Delete(ctx, newIngress(namespace, "second"))).To(Succeed())
			Eventually(create, programs.Patience).WithArguments("third").Should(denied("is reserved for Ingress " + namespace + "/second"))
			Expect(create("second")).To(Succeed(), "its own reservation")
		}, SpecTimeout(time.Minute))
	})
})
