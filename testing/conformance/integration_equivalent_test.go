package conformance_test

// This file plays custom resources, two versions of one kind, and a resource that is never stored.

import (
	"context"
	"fmt"
	"strings"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	authenticationv1 "k8s.io/api/authentication/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"

	"code.cloudfoundry.org/eirinix"
)

var definitions = schema.GroupVersionResource{Group: "apiextensions.k8s.io", Version: "v1", Resource: "customresourcedefinitions"}

// crd is a CustomResourceDefinition with a group of its own.
type crd struct{ group string }

func crdOf(name string) crd { return crd{group: name + ".example.org"} }

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

// install makes the definition, and waits until its versions are served. It stays.
func (c crd) install(ctx context.Context, versions ...map[string]any) {
	GinkgoHelper()
	all := make([]any, 0, len(versions))
	for _, v := range versions {
		all = append(all, v)
	}
	_, err := dynamicClients().Resource(definitions).Create(ctx, &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
		"metadata": map[string]any{"name": c.name()},
		"spec": map[string]any{
			"group": c.group, "scope": "Namespaced", "versions": all,
			"names": map[string]any{"plural": "gadgets", "singular": "gadget", "kind": "Gadget", "listKind": "GadgetList"},
		},
	}}, metav1.CreateOptions{})
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

// stage makes one mutation of the objects of a crd.
func stage(c crd, n int) any {
	return eirinix.Mutation[*gadget]{
		ID: fmt.Sprintf("stage-%d", n), Settings: eirinix.Settings{Isolated: true, Rules: ruleFor(c.group, "v1", []string{"gadgets"}, created, updated)},
		Apply: func(_ context.Context, _ *eirinix.Call, g *gadget) error {
			passStage(g.Data, n)
			return nil
		},
	}
}

var _ = Describe("S11 A step for custom resources", Label("S11"), func() {
	It("changes them in stages while another version becomes the one that is stored", func(ctx SpecContext) {
		namespace, c := newNamespace(ctx), crdOf("versions")
		c.install(ctx, crdVersion("v1", true), crdVersion("v2", false))
		serve(ctx, urlMode, namespace, c.withScheme, stage(c, 1), stage(c, 2))
		_, err := c.objects(namespace, "v1").Create(ctx, c.object("v1", "staged", stages(0)), metav1.CreateOptions{})
		Expect(err).NotTo(HaveOccurred())
		_, err = dynamicClients().Resource(definitions).Patch(ctx, c.name(), types.JSONPatchType, []byte(`[
			{"op":"replace","path":"/spec/versions/0/storage","value":false},
			{"op":"replace","path":"/spec/versions/1/storage","value":true}]`), metav1.PatchOptions{})
		Expect(err).NotTo(HaveOccurred())

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
	}, SpecTimeout(2*patience))
})

var _ = Describe("S30 Two versions of one kind", Label("S30"), func() {
	// seen records two versions of a call: the one that the step registered for, and the one that the user sent.
	seen := func(calls *callLog, step string, c *eirinix.Call, apiVersion string) {
		calls.add(step, "sees", apiVersion, "as", c.Kind.Version+"/"+c.Resource.Version, "sent", c.RequestKind.Version+"/"+c.RequestResource.Version)
	}

	DescribeTable("custom, and steps without Go type", func(ctx SpecContext, policy admissionregistrationv1.MatchPolicyType, expected func(group, sent string) []string) {
		namespace, calls := newNamespace(ctx), &callLog{}
		c := crdOf(strings.ToLower(string(policy)))
		c.install(ctx, crdVersion("v1", true), crdVersion("v2", false))
		var steps []any
		for _, version := range []string{"v1", "v2"} {
			settings := eirinix.Settings{MatchPolicy: policy, Rules: ruleFor(c.group, version, []string{"gadgets"}, created, updated)}
			steps = append(steps,
				eirinix.Mutation[*unstructured.Unstructured]{
					ID: "m-" + version, Settings: settings,
					Apply: func(_ context.Context, c *eirinix.Call, u *unstructured.Unstructured) error {
						seen(calls, "m-"+version, c, u.GetAPIVersion())
						return unstructured.SetNestedField(u.Object, "was here", "data", version)
					},
				},
				eirinix.Validation[*unstructured.Unstructured]{
					ID: "v-" + version, Settings: settings,
					Create: func(_ context.Context, c *eirinix.Call, u *unstructured.Unstructured) error {
						seen(calls, "v-"+version, c, u.GetAPIVersion())
						return nil
					},
					Update: func(_ context.Context, c *eirinix.Call, old, now *unstructured.Unstructured) error {
						seen(calls, "v-"+version, c, now.GetAPIVersion())
						if old.GetAPIVersion() != now.GetAPIVersion() {
							return fmt.Errorf("old is %s, new is %s", old.GetAPIVersion(), now.GetAPIVersion())
						}
						return nil
					},
				})
		}
		serve(ctx, serviceMode, namespace, nil, steps...)
		for _, sent := range []string{"v1", "v2"} {
			objects := c.objects(namespace, sent)
			made, err := objects.Create(ctx, c.object(sent, "of-"+sent, nil), metav1.CreateOptions{})
			Expect(err).NotTo(HaveOccurred())
			all := expected(c.group, sent)
			Expect(calls.take()).To(ConsistOf(all))
			Expect(made.Object["data"]).To(HaveLen(len(all)/2), "each mutation is in the stored object")
			Expect(made.GetAPIVersion()).To(Equal(c.group + "/" + sent))

			made.SetAnnotations(map[string]string{"touched": "yes"})
			_, err = objects.Update(ctx, made, metav1.UpdateOptions{})
			Expect(err).NotTo(HaveOccurred())
			Expect(calls.take()).To(ConsistOf(all))
		}
	},
		Entry("are all called under Equivalent, each with the version it registered for: 4 calls", admissionregistrationv1.Equivalent, func(group, sent string) (all []string) {
			for _, v := range []string{"v1", "v2"} {
				for _, kind := range []string{"m", "v"} {
					all = append(all, fmt.Sprintf("%s-%s sees %s/%s as %s/%s sent %s/%s", kind, v, group, v, v, v, sent, sent))
				}
			}
			return all
		}, SpecTimeout(3*patience)),
		Entry("are called for their own version alone under Exact", admissionregistrationv1.Exact, func(group, sent string) []string {
			return []string{
				fmt.Sprintf("m-%s sees %s/%s as %s/%s sent %s/%s", sent, group, sent, sent, sent, sent, sent),
				fmt.Sprintf("v-%s sees %s/%s as %s/%s sent %s/%s", sent, group, sent, sent, sent, sent, sent),
			}
		}, SpecTimeout(3*patience)),
	)
})

var _ = Describe("S23 A resource", Label("S23"), func() {
	// virtualRelease is the minor release since which the API server calls no webhook for reviews of its callers (feature
	// gate ExcludeAdmissionWebhookVirtualResources, beta).
	const virtualRelease = 37

	It("that is a review, and never stored, is sent before Kubernetes 1.37, and since then a rule that names it gets a warning", func(ctx SpecContext) {
		heard, called := &overheard{}, &callLog{}
		serve(ctx, serviceMode, newNamespace(ctx), func(o *eirinix.ManagerOptions) {
			o.RestConfig = controlPlane().Config()
			o.RestConfig.WarningHandler = heard
		}, eirinix.Validation[*unstructured.Unstructured]{
			ID: "reviews",
			Settings: eirinix.Settings{
				Rules:         ruleFor("authentication.k8s.io", "v1", []string{"selfsubjectreviews"}, created),
				FailurePolicy: admissionregistrationv1.Ignore, AllowClusterCritical: true,
			},
			Create: func(context.Context, *eirinix.Call, *unstructured.Unstructured) error {
				called.add("review")
				return nil
			},
		})
		_, err := clients().AuthenticationV1().SelfSubjectReviews().Create(ctx, &authenticationv1.SelfSubjectReview{}, metav1.CreateOptions{})
		Expect(err).NotTo(HaveOccurred())
		excluded := ContainElement("webhooks[0].rules[0]: selfsubjectreviews.authentication.k8s.io is excluded from admission webhooks; this rule will have no effect")
		if has(virtualRelease) {
			Expect(heard.list()).To(excluded)
			Expect(called.list()).To(BeEmpty())
		} else {
			Expect(heard.list()).NotTo(excluded)
			Expect(called.list()).To(HaveLen(1))
		}
	}, SpecTimeout(2*patience))
})
