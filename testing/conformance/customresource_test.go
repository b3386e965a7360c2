package conformance_test

// This file plays custom resources: with a Go type and without, while another version is stored, and their conversions with
// the garbage collector.

import (
	"context"
	"fmt"
	"strings"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"code.cloudfoundry.org/eirinix"
	"code.cloudfoundry.org/eirinix/conversion"
	. "code.cloudfoundry.org/eirinix/internal/spectest"
	eirinixtest "code.cloudfoundry.org/eirinix/testing"
)

var definitions = schema.GroupVersionResource{Group: "apiextensions.k8s.io", Version: "v1", Resource: "customresourcedefinitions"}

// crd is a CustomResourceDefinition with a group of its own. The API server takes seconds to serve a new one, so specs
// share them: their objects stay within their namespaces.
type crd struct{ group string }

func crdOf(name string) crd { return crd{group: name + ".example.org"} }

// installed records the shared definitions that exist.
var installed = map[crd]bool{}

func (c crd) name() string { return "gadgets." + c.group }

func (c crd) resource(version string) schema.GroupVersionResource {
	return schema.GroupVersionResource{Group: c.group, Version: version, Resource: "gadgets"}
}

func (c crd) kind(version string) schema.GroupVersionKind {
	return schema.GroupVersionKind{Group: c.group, Version: version, Kind: "Gadget"}
}

// crdVersion is a version that is served, with any data.
func crdVersion(name string, storage bool) map[string]any {
	data := map[string]any{"type": "object", "x-kubernetes-preserve-unknown-fields": true}
	return map[string]any{
		"name": name, "served": true, "storage": storage,
		"schema": map[string]any{"openAPIV3Schema": map[string]any{
			"type": "object", "properties": map[string]any{"data": data, "dummy": map[string]any{"type": "string"}},
		}},
	}
}

// definition is the object that defines c.
func (c crd) definition(versions ...map[string]any) *unstructured.Unstructured {
	all := make([]any, 0, len(versions))
	for _, v := range versions {
		all = append(all, v)
	}
	return &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
		"metadata": map[string]any{"name": c.name()},
		"spec": map[string]any{
			"group": c.group, "scope": "Namespaced", "versions": all,
			"names": map[string]any{"plural": "gadgets", "singular": "gadget", "kind": "Gadget", "listKind": "GadgetList"},
		},
	}}
}

// install makes the definition, if no spec has yet, and waits until its versions are served. It stays.
func (c crd) install(ctx context.Context, versions ...map[string]any) {
	GinkgoHelper()
	if installed[c] {
		return
	}
	_, err := dynamicClients().Resource(definitions).Create(ctx, c.definition(versions...), metav1.CreateOptions{})
	Expect(err).NotTo(HaveOccurred())
	for _, v := range versions {
		name := v["name"].(string)
		Eventually(func() error {
			_, err := c.objects(metav1.NamespaceDefault, name).List(ctx, metav1.ListOptions{})
			return err
		}).WithContext(ctx).Should(Succeed())
		// A Manager does not know a kind that discovery does not list.
		Eventually(func() error {
			_, err := clients().Discovery().ServerResourcesForGroupVersion(c.group + "/" + name)
			return err
		}).WithContext(ctx).Should(Succeed())
	}
	installed[c] = true
}

func (c crd) objects(namespace, version string) dynamic.ResourceInterface {
	return dynamicClients().Resource(c.resource(version)).Namespace(namespace)
}

// object is an object of c, yet to be written.
func (c crd) object(version, name string, data map[string]string) *unstructured.Unstructured {
	u := &unstructured.Unstructured{Object: map[string]any{}}
	u.SetGroupVersionKind(c.kind(version))
	u.SetName(name)
	Expect(unstructured.SetNestedStringMap(u.Object, data, "data")).To(Succeed())
	return u
}

// dataIs matches an object of a crd that has this data.
func dataIs(expected map[string]string) OmegaMatcher {
	return WithTransform(func(u *unstructured.Unstructured) (map[string]string, error) {
		data, _, err := unstructured.NestedStringMap(u.Object, "data")
		return data, err
	}, Equal(expected))
}

// gadget is the Go type of a crd. It knows nothing of the field dummy.
type gadget struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	Data map[string]string `json:"data,omitempty"`
}

func (g *gadget) DeepCopyObject() runtime.Object {
	c := &gadget{TypeMeta: g.TypeMeta, ObjectMeta: *g.ObjectMeta.DeepCopy()}
	if g.Data != nil {
		c.Data = map[string]string{}
	}
	for k, v := range g.Data {
		c.Data[k] = v
	}
	return c
}

// withScheme makes gadget known to a Manager, as version v1 of c.
func (c crd) withScheme(o *eirinix.ManagerOptions) {
	GinkgoHelper()
	o.Scheme = runtime.NewScheme()
	Expect(clientgoscheme.AddToScheme(o.Scheme)).To(Succeed())
	o.Scheme.AddKnownTypeWithName(c.kind("v1"), &gadget{})
	metav1.AddToGroupVersion(o.Scheme, c.kind("v1").GroupVersion())
}

// stages is the data that has passed the first n stages.
func stages(n int) map[string]string {
	data := map[string]string{"stage-0": "yes"}
	for i := range n {
		data[fmt.Sprintf("stage-%d", i+1)] = "yes"
	}
	return data
}

// passStage adds the key of stage n to data that has the key before it.
func passStage(data map[string]string, n int) {
	if data[fmt.Sprintf("stage-%d", n-1)] == "yes" {
		data[fmt.Sprintf("stage-%d", n)] = "yes"
	}
}

// stageOf makes the mutations for a crd, of a type whose data one function reads and the other writes.
func stageOf[T client.Object](data func(T) map[string]string, put func(T, map[string]string) error) func(c crd, n int) any {
	return func(c crd, n int) any {
		return eirinix.Mutation[T]{
			ID: fmt.Sprintf("stage-%d", n), Settings: eirinix.Settings{Isolated: true, Rules: ruleFor(c.group, "v1", []string{"gadgets"}, created, updated)},
			Apply: func(_ context.Context, _ *eirinix.Call, obj T) error {
				d := data(obj)
				passStage(d, n)
				return put(obj, d)
			},
		}
	}
}

var _ = Describe("S11 A step for custom resources", Label("S11"), func() {
	eachMode(func(mode mode) {
		DescribeTable("changes them in stages while another version becomes the one that is stored", func(ctx SpecContext, stage func(c crd, n int) any) {
			namespace, c := newNamespace(ctx), crdOf("versions")
			c.install(ctx, crdVersion("v1", true), crdVersion("v2", false))
			serve(ctx, mode, namespace, c.withScheme, stage(c, 1), stage(c, 2))
			_, err := c.objects(namespace, "v1").Create(ctx, c.object("v1", "staged", stages(0)), metav1.CreateOptions{})
			Expect(err).NotTo(HaveOccurred())
			store := func(ctx context.Context, index, instead int) {
				_, err := dynamicClients().Resource(definitions).Patch(ctx, c.name(), types.JSONPatchType, fmt.Appendf(nil, `[
					{"op":"replace","path":"/spec/versions/%d/storage","value":false},
					{"op":"replace","path":"/spec/versions/%d/storage","value":true}]`, instead, index), metav1.PatchOptions{})
				Expect(err).NotTo(HaveOccurred())
			}
			DeferCleanup(store, 0, 1)
			store(ctx, 1, 0)

			By("making the steps put back, by v1, the keys that v2 takes away")
			after, err := c.objects(namespace, "v2").Patch(ctx, "staged", types.JSONPatchType, []byte(`[
				{"op":"add","path":"/dummy","value":"test"},
				{"op":"remove","path":"/data/stage-1"},
				{"op":"remove","path":"/data/stage-2"}]`), metav1.PatchOptions{})
			Expect(err).NotTo(HaveOccurred())
			Expect(after.GetAPIVersion()).To(Equal(c.group + "/v2"))
			Expect(after).To(dataIs(stages(2)))
			Expect(c.objects(namespace, "v1").Get(ctx, "staged", metav1.GetOptions{})).
				To(And(dataIs(stages(2)), HaveField("Object", HaveKeyWithValue("dummy", "test"))), "the Go type does not know dummy")
		},
			Entry("as a Go type", stageOf(
				func(g *gadget) map[string]string { return g.Data },
				func(g *gadget, data map[string]string) error { g.Data = data; return nil },
			), SpecTimeout(2*patience)),
			Entry("as *unstructured.Unstructured", stageOf(
				func(u *unstructured.Unstructured) map[string]string {
					data, _, _ := unstructured.NestedStringMap(u.Object, "data")
					return data
				},
				func(u *unstructured.Unstructured, data map[string]string) error {
					return unstructured.SetNestedStringMap(u.Object, data, "data")
				},
			), SpecTimeout(2*patience)),
		)
	})
})

// conversion converts the objects of c: data.hostPort of v1 is data.host and data.port of v2.
func (c crd) conversion() conversion.Of[*unstructured.Unstructured] {
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

var _ = Describe("S37 A conversion webhook", Label("S37"), func() {
	It("serves the garbage collector, which reads the preferred version", func(ctx SpecContext) {
		c := crdOf("collected")
		plane, err := eirinixtest.NewControlPlane(ctx, eirinixtest.ControlPlaneOptions{ControllerManager: true, Progress: GinkgoWriter})
		Expect(err).NotTo(HaveOccurred())
		DeferCleanup(plane.Stop)
		typed, all := Must(kubernetes.NewForConfig(plane.Config())), Must(dynamic.NewForConfig(plane.Config()))
		in := func(version string) dynamic.ResourceInterface {
			return all.Resource(c.resource(version)).Namespace(metav1.NamespaceDefault)
		}
		_, err = all.Resource(definitions).Create(ctx, c.definition(crdVersion("v1", true), crdVersion("v2", false)), metav1.CreateOptions{})
		Expect(err).NotTo(HaveOccurred())
		m := eirinix.NewManager(eirinix.ManagerOptions{
			Namespace: metav1.NamespaceDefault, WebhookNamespace: metav1.NamespaceDefault, Host: "127.0.0.1", ListenAddress: "127.0.0.1:0",
			RestConfig: plane.Config(), DrainDelay: -1,
		})
		Expect(m.AddExtension(c.conversion())).To(Succeed())
		start(ctx, m)

		By("reading the owner in the other version, once the API server acts on the definition")
		var owner *unstructured.Unstructured
		Eventually(func(g Gomega) {
			_, err := in("v1").Create(ctx, c.object("v1", "owner", map[string]string{"hostPort": "a:80"}), metav1.CreateOptions{})
			g.Expect(err).To(Or(Not(HaveOccurred()), Satisfy(apierrors.IsAlreadyExists)))
			owner, err = in("v2").Get(ctx, "owner", metav1.GetOptions{})
			g.Expect(err).NotTo(HaveOccurred())
			g.Expect(owner).To(dataIs(map[string]string{"host": "a", "port": "80"}))
		}).WithContext(ctx).Should(Succeed())
		owned := metav1.ObjectMeta{Name: "owned", Namespace: metav1.NamespaceDefault, OwnerReferences: []metav1.OwnerReference{
			{APIVersion: owner.GetAPIVersion(), Kind: owner.GetKind(), Name: owner.GetName(), UID: owner.GetUID()},
		}}
		maps := typed.CoreV1().ConfigMaps(owned.Namespace)
		_, err = maps.Create(ctx, &corev1.ConfigMap{ObjectMeta: owned}, metav1.CreateOptions{})
		Expect(err).NotTo(HaveOccurred())
		dependent := c.object("v1", "owned", map[string]string{"hostPort": "b:80"})
		dependent.SetOwnerReferences(owned.OwnerReferences)
		_, err = in("v1").Create(ctx, dependent, metav1.CreateOptions{})
		Expect(err).NotTo(HaveOccurred())

		Expect(in("v1").Delete(ctx, "owner", metav1.DeleteOptions{})).To(Succeed())
		Eventually(func(g Gomega) { // the garbage collector looks for new kinds every 30 s
			_, err := in("v2").Get(ctx, "owned", metav1.GetOptions{})
			g.Expect(err).To(Satisfy(apierrors.IsNotFound))
			_, err = maps.Get(ctx, owned.Name, metav1.GetOptions{})
			g.Expect(err).To(Satisfy(apierrors.IsNotFound))
		}).WithContext(ctx).WithTimeout(4 * patience).Should(Succeed())
	}, SpecTimeout(8*patience))
})
