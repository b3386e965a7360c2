package conformance_test

import (
	"context"
	"fmt"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
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

// crdVersion is a version that is served; its data has the properties, or any where there are none.
func crdVersion(name string, storage bool, properties ...string) map[string]any {
	data := map[string]any{"type": "object", "x-kubernetes-preserve-unknown-fields": true}
	if len(properties) > 0 {
		known := map[string]any{}
		for _, p := range properties {
			known[p] = map[string]any{"type": "string"}
		}
		data = map[string]any{"type": "object", "properties": known}
	}
	return map[string]any{
		"name": name, "served": true, "storage": storage,
		"schema": map[string]any{"openAPIV3Schema": map[string]any{
			"type": "object", "properties": map[string]any{"data": data, "dummy": map[string]any{"type": "string"}},
		}},
	}
}

// definition is the object that defines c.
func (c crd) definition(labels map[string]string, versions ...map[string]any) *unstructured.Unstructured {
	all := make([]any, 0, len(versions))
	for _, v := range versions {
		all = append(all, v)
	}
	u := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
		"metadata": map[string]any{"name": c.name()},
		"spec": map[string]any{
			"group": c.group, "scope": "Namespaced", "versions": all,
			"names": map[string]any{"plural": "gadgets", "singular": "gadget", "kind": "Gadget", "listKind": "GadgetList"},
		},
	}}
	u.SetLabels(labels)
	return u
}

// install makes the definition, if no spec has yet, and waits until its versions are served. It stays.
func (c crd) install(ctx context.Context, versions ...map[string]any) {
	GinkgoHelper()
	if installed[c] {
		return
	}
	_, err := dynamicClients().Resource(definitions).Create(ctx, c.definition(nil, versions...), metav1.CreateOptions{})
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

func (c crd) remove(ctx context.Context) error {
	err := dynamicClients().Resource(definitions).Delete(ctx, c.name(), metav1.DeleteOptions{})
	if apierrors.IsNotFound(err) {
		return nil
	}
	return err
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

// scheme knows gadget as version v1 of c, beside the built-in types.
func (c crd) scheme() *runtime.Scheme {
	GinkgoHelper()
	s := runtime.NewScheme()
	Expect(clientgoscheme.AddToScheme(s)).To(Succeed())
	s.AddKnownTypeWithName(c.kind("v1"), &gadget{})
	metav1.AddToGroupVersion(s, c.kind("v1").GroupVersion())
	return s
}

// form is the T of the steps for a crd: a Go type or none.
type form string

const (
	goType form = "as a Go type"
	noType form = "as *unstructured.Unstructured"
)

// eachForm makes the entries of a table that are the same for both forms.
func eachForm() []TableEntry {
	return []TableEntry{
		Entry(fmt.Sprint(goType), goType, SpecTimeout(2*patience)),
		Entry(fmt.Sprint(noType), noType, SpecTimeout(2*patience)),
	}
}
