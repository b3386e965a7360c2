package conformance_test

import (
	"context"
	"fmt"
	"strings"
	"sync/atomic"

	"code.cloudfoundry.org/eirinix/conversion"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"

	"code.cloudfoundry.org/eirinix"
	. "code.cloudfoundry.org/eirinix/internal/spectest"
	eirinixtest "code.cloudfoundry.org/eirinix/testing"
)

// conversion converts the objects of c: data.hostPort of v1 is data.host and data.port of v2. It counts those to v1.
func (c crd) conversion(toV1 *atomic.Int64) conversion.Of[*unstructured.Unstructured] {
	edit := func(edit func(data map[string]string) error) func(context.Context, *unstructured.Unstructured) (*unstructured.Unstructured, error) {
		return func(_ context.Context, u *unstructured.Unstructured) (*unstructured.Unstructured, error) {
			data, _, err := unstructured.NestedStringMap(u.Object, "data")
			if err == nil {
				err = edit(data)
			}
			if err == nil {
				err = unstructured.SetNestedStringMap(u.Object, data, "data")
			}
			return u, err
		}
	}
	return conversion.Of[*unstructured.Unstructured]{
		CRD: c.name(), Version: "v1",
		Spokes: []conversion.Spoke[*unstructured.Unstructured]{conversion.NewSpoke("v2",
			edit(func(data map[string]string) error {
				toV1.Add(1)
				data["hostPort"] = data["host"] + ":" + data["port"]
				delete(data, "host")
				delete(data, "port")
				return nil
			}),
			edit(func(data map[string]string) error {
				host, port, ok := strings.Cut(data["hostPort"], ":")
				if !ok {
					return fmt.Errorf("hostPort %q has no port", data["hostPort"])
				}
				data["host"], data["port"] = host, port
				delete(data, "hostPort")
				return nil
			}),
		)},
	}
}

// inVersion is the data of the gadgets of these specs.
func inVersion(version, host string) map[string]string {
	if version == "v1" {
		return map[string]string{"hostPort": host + ":80"}
	}
	return map[string]string{"host": host, "port": "80"}
}

var _ = Describe("A conversion webhook", func() {
	eachMode(func(mode mode) {
		var (
			namespace string
			c         crd
			toV1      *atomic.Int64
		)
		BeforeEach(func(ctx SpecContext) {
			namespace = newNamespace(ctx)
			c, toV1 = crdOf(namespace), &atomic.Int64{}
			DeferCleanup(c.remove)
			c.install(ctx, crdVersion("v1", true), crdVersion("v2", false))
			m := eirinix.NewManager(optionsFor(ctx, mode, namespace))
			Expect(m.AddExtension(c.conversion(toV1))).To(Succeed())
			start(ctx, m)
			awaitConversion(ctx, c.objects(namespace, "v2"), c.object("v1", "first", inVersion("v1", "first")), c.objects(namespace, "v1"))
		})

		It("converts an object to another version", Label("S35"), func(ctx SpecContext) {
			Expect(c.objects(namespace, "v2").Get(ctx, "first", metav1.GetOptions{})).To(dataIs(inVersion("v2", "first")))
			_, err := c.objects(namespace, "v2").Create(ctx, c.object("v2", "second", inVersion("v2", "second")), metav1.CreateOptions{})
			Expect(err).NotTo(HaveOccurred())
			Expect(c.objects(namespace, "v1").Get(ctx, "second", metav1.GetOptions{})).To(dataIs(inVersion("v1", "second")))
		}, SpecTimeout(2*patience))

		It("converts lists of objects that are stored in different versions", Label("S36"), func(ctx SpecContext) {
			c.store(ctx, 1, 0)
			objects := 1
			Eventually(func(g Gomega) {
				name := fmt.Sprint("later-", objects)
				_, err := c.objects(namespace, "v1").Create(ctx, c.object("v1", name, inVersion("v1", name)), metav1.CreateOptions{})
				g.Expect(err).NotTo(HaveOccurred())
				objects++
				before := toV1.Load()
				g.Expect(c.objects(namespace, "v1").Get(ctx, name, metav1.GetOptions{})).To(dataIs(inVersion("v1", name)))
				g.Expect(toV1.Load()).To(BeNumerically(">", before), "the API server has not observed the change yet, and has stored v1")
			}).WithContext(ctx).Should(Succeed())
			for _, version := range []string{"v1", "v2"} {
				all, err := c.objects(namespace, version).List(ctx, metav1.ListOptions{})
				Expect(err).NotTo(HaveOccurred())
				Expect(all.Items).To(HaveLen(objects))
				for i := range all.Items {
					Expect(all.Items[i].GetAPIVersion()).To(Equal(c.group + "/" + version))
					Expect(&all.Items[i]).To(dataIs(inVersion(version, all.Items[i].GetName())))
				}
			}
		}, SpecTimeout(2*patience))
	})

	It("serves the garbage collector, which reads the preferred version", Label("S37"), func(ctx SpecContext) {
		c := crdOf("collected")
		plane, in := c.onPlaneOfItsOwn(ctx, eirinixtest.ControlPlaneOptions{ControllerManager: true})
		typed := Must(kubernetes.NewForConfig(plane.Config()))
		awaitConversion(ctx, in("v2"), c.object("v1", "owner", inVersion("v1", "owner")), in("v1"))

		owner, err := in("v2").Get(ctx, "owner", metav1.GetOptions{})
		Expect(err).NotTo(HaveOccurred())
		owned := metav1.ObjectMeta{Name: "owned", Namespace: metav1.NamespaceDefault, OwnerReferences: []metav1.OwnerReference{
			{APIVersion: owner.GetAPIVersion(), Kind: owner.GetKind(), Name: owner.GetName(), UID: owner.GetUID()},
		}}
		_, err = typed.CoreV1().ConfigMaps(owned.Namespace).Create(ctx, &corev1.ConfigMap{ObjectMeta: owned}, metav1.CreateOptions{})
		Expect(err).NotTo(HaveOccurred())
		dependent := c.object("v1", "owned", inVersion("v1", "owned"))
		dependent.SetOwnerReferences(owned.OwnerReferences)
		_, err = in("v1").Create(ctx, dependent, metav1.CreateOptions{})
		Expect(err).NotTo(HaveOccurred())

		Expect(in("v1").Delete(ctx, "owner", metav1.DeleteOptions{})).To(Succeed())
		gone := func(get func() error) {
			GinkgoHelper()
			// The garbage collector looks for new kinds every 30 s.
			Eventually(get).WithContext(ctx).WithTimeout(4 * patience).Should(Satisfy(apierrors.IsNotFound))
		}
		gone(func() error { _, err := in("v2").Get(ctx, "owned", metav1.GetOptions{}); return err })
		gone(func() error {
			_, err := typed.CoreV1().ConfigMaps(owned.Namespace).Get(ctx, owned.Name, metav1.GetOptions{})
			return err
		})
	}, SpecTimeout(8*patience))
})

// onPlaneOfItsOwn starts a control plane with c, and a Manager that converts its objects. It returns the objects of a version.
func (c crd) onPlaneOfItsOwn(ctx context.Context, o eirinixtest.ControlPlaneOptions) (*eirinixtest.ControlPlane, func(version string) dynamic.ResourceInterface) {
	GinkgoHelper()
	o.Progress = GinkgoWriter
	plane, err := eirinixtest.NewControlPlane(ctx, o)
	Expect(err).NotTo(HaveOccurred())
	DeferCleanup(plane.Stop)
	all := Must(dynamic.NewForConfig(plane.Config()))
	_, err = all.Resource(definitions).Create(ctx, c.definition(nil, crdVersion("v1", true), crdVersion("v2", false)), metav1.CreateOptions{})
	Expect(err).NotTo(HaveOccurred())
	m := eirinix.NewManager(eirinix.ManagerOptions{
		Namespace: metav1.NamespaceDefault, WebhookNamespace: metav1.NamespaceDefault, Host: "127.0.0.1", ListenAddress: "127.0.0.1:0",
		RestConfig: plane.Config(), DrainDelay: -1,
	})
	Expect(m.AddExtension(c.conversion(&atomic.Int64{}))).To(Succeed())
	start(ctx, m)
	return plane, func(version string) dynamic.ResourceInterface {
		return all.Resource(c.resource(version)).Namespace(metav1.NamespaceDefault)
	}
}

// awaitConversion creates an object and waits until it can be read in another version.
func awaitConversion(ctx context.Context, read dynamic.ResourceInterface, o *unstructured.Unstructured, created dynamic.ResourceInterface) {
	GinkgoHelper()
	Eventually(func() error {
		_, err := created.Create(ctx, o, metav1.CreateOptions{})
		return err
	}).WithContext(ctx).Should(Or(Succeed(), Satisfy(apierrors.IsAlreadyExists)))
	Eventually(func(g Gomega) {
		u, err := read.Get(ctx, o.GetName(), metav1.GetOptions{})
		g.Expect(err).NotTo(HaveOccurred())
		g.Expect(u).To(dataIs(inVersion("v2", o.GetName())))
	}).WithContext(ctx).Should(Succeed())
}
