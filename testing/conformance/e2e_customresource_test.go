package conformance_test

import (
	"context"
	"fmt"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"code.cloudfoundry.org/eirinix"
)

const (
	created = admissionregistrationv1.Create
	updated = admissionregistrationv1.Update
	deleted = admissionregistrationv1.Delete
)

// stageOf is a Mutation of a crd's objects, in a webhook entry of its own.
func (c crd) stageOf(form form, n int, operations ...admissionregistrationv1.OperationType) any {
	settings := eirinix.Settings{Isolated: true, Rules: rules(c.group, "v1", "gadgets", operations...)}
	id := fmt.Sprintf("stage-%d", n)
	if form == goType {
		return eirinix.Mutation[*gadget]{ID: id, Settings: settings, Apply: func(_ context.Context, _ *eirinix.Call, g *gadget) error {
			passStage(g.Data, n)
			return nil
		}}
	}
	return eirinix.Mutation[*unstructured.Unstructured]{ID: id, Settings: settings, Apply: func(_ context.Context, _ *eirinix.Call, u *unstructured.Unstructured) error {
		data, _, err := unstructured.NestedStringMap(u.Object, "data")
		if err != nil {
			return err
		}
		passStage(data, n)
		return unstructured.SetNestedStringMap(u.Object, data, "data")
	}}
}

// denyObjects refuses objects with unwanted data, and the deletion of those that say so.
func denyObjects[T client.Object](settings eirinix.Settings, dataOf func(T) map[string]string) eirinix.Validation[T] {
	check := func(obj T) error {
		if dataOf(obj)[unwantedKey] == unwantedValue {
			return eirinix.Deny("the custom resource contains unwanted data")
		}
		return nil
	}
	return eirinix.Validation[T]{
		Settings: settings,
		Create:   func(_ context.Context, _ *eirinix.Call, obj T) error { return check(obj) },
		Update:   func(_ context.Context, _ *eirinix.Call, _, obj T) error { return check(obj) },
		Delete: func(_ context.Context, _ *eirinix.Call, obj T) error {
			if dataOf(obj)[unwantedKey] == "webhook-nondeletable" {
				return eirinix.Deny("the custom resource cannot be deleted")
			}
			return nil
		},
	}
}

// withScheme makes the Go type known to a Manager.
func (c crd) withScheme(o *eirinix.ManagerOptions) { o.Scheme = c.scheme() }

// plainCRD has one version, with any data.
func plainCRD(ctx context.Context) crd {
	GinkgoHelper()
	c := crdOf("plain")
	c.install(ctx, crdVersion("v1", true))
	return c
}

// store makes the version of that index the one that is stored, in place of the other.
func (c crd) store(ctx context.Context, index, instead int) {
	GinkgoHelper()
	_, err := dynamicClients().Resource(definitions).Patch(ctx, c.name(), types.JSONPatchType, fmt.Appendf(nil, `[
		{"op":"replace","path":"/spec/versions/%d/storage","value":false},
		{"op":"replace","path":"/spec/versions/%d/storage","value":true}]`, instead, index), metav1.PatchOptions{})
	Expect(err).NotTo(HaveOccurred())
}

func (c crd) denyOf(form form) any {
	if form == goType {
		return denyObjects(eirinix.Settings{}, func(g *gadget) map[string]string { return g.Data })
	}
	return denyObjects(eirinix.Settings{Rules: rules(c.group, "v1", "gadgets", created, updated, deleted)}, func(u *unstructured.Unstructured) map[string]string {
		data, _, _ := unstructured.NestedStringMap(u.Object, "data")
		return data
	})
}

var _ = Describe("A webhook for custom resources", func() {
	eachMode(func(mode mode) {
		var namespace string
		BeforeEach(func(ctx SpecContext) { namespace = newNamespace(ctx) })

		DescribeTable("refuses their creation, change and deletion", Label("S4"), func(ctx SpecContext, form form) {
			c := plainCRD(ctx)
			serve(ctx, mode, namespace, c.withScheme, c.denyOf(form))
			objects := c.objects(namespace, "v1")
			denied := And(Satisfy(apierrors.IsForbidden), MatchError(ContainSubstring("the custom resource contains unwanted data")))

			_, err := objects.Create(ctx, c.object("v1", "bad", unwanted()), metav1.CreateOptions{})
			Expect(err).To(denied)
			_, err = objects.Create(ctx, c.object("v1", "kept", map[string]string{unwantedKey: "webhook-nondeletable"}), metav1.CreateOptions{})
			Expect(err).NotTo(HaveOccurred())
			_, err = objects.Patch(ctx, "kept", types.MergePatchType, []byte(`{"data":{"`+unwantedKey+`":"`+unwantedValue+`"}}`), metav1.PatchOptions{})
			Expect(err).To(denied)
			Expect(objects.Delete(ctx, "kept", metav1.DeleteOptions{})).To(MatchError(ContainSubstring("the custom resource cannot be deleted")))

			_, err = objects.Patch(ctx, "kept", types.MergePatchType, []byte(`{"data":{"`+unwantedKey+`":"webhook-allow"}}`), metav1.PatchOptions{})
			Expect(err).NotTo(HaveOccurred())
			Expect(objects.Delete(ctx, "kept", metav1.DeleteOptions{})).To(Succeed())
		}, eachForm())

		DescribeTable("changes them in stages", Label("S9"), func(ctx SpecContext, form form) {
			c := plainCRD(ctx)
			serve(ctx, mode, namespace, c.withScheme, c.stageOf(form, 1, created), c.stageOf(form, 2, created))
			Expect(c.objects(namespace, "v1").Create(ctx, c.object("v1", "staged", stages(0)), metav1.CreateOptions{})).To(dataIs(stages(2)))
		}, eachForm())

		DescribeTable("changes them while another version becomes the one that is stored", Label("S11"), func(ctx SpecContext, form form) {
			c := crdOf("versions")
			c.install(ctx, crdVersion("v1", true), crdVersion("v2", false))
			serve(ctx, mode, namespace, c.withScheme, c.stageOf(form, 1, created, updated), c.stageOf(form, 2, created, updated))
			_, err := c.objects(namespace, "v1").Create(ctx, c.object("v1", "staged", stages(0)), metav1.CreateOptions{})
			Expect(err).NotTo(HaveOccurred())

			DeferCleanup(c.store, 0, 1)
			c.store(ctx, 1, 0)

			after, err := c.objects(namespace, "v2").Patch(ctx, "staged", types.JSONPatchType, []byte(`[{"op":"add","path":"/dummy","value":"test"}]`), metav1.PatchOptions{})
			Expect(err).NotTo(HaveOccurred())
			Expect(after.GetAPIVersion()).To(Equal(c.group + "/v2"))
			Expect(after).To(dataIs(stages(2)))
			Expect(after.Object).To(HaveKeyWithValue("dummy", "test"))

			By("making the step put back, by v1, the key that v2 takes away")
			after, err = c.objects(namespace, "v2").Patch(ctx, "staged", types.JSONPatchType, fmt.Appendf(nil, `[
				{"op":"replace","path":"/dummy","value":"again"},
				{"op":"remove","path":"/data/%s"}]`, stageKey(2)), metav1.PatchOptions{})
			Expect(err).NotTo(HaveOccurred())
			Expect(after).To(dataIs(stages(2)))
			Expect(c.objects(namespace, "v1").Get(ctx, "staged", metav1.GetOptions{})).
				To(And(dataIs(stages(2)), HaveField("Object", HaveKeyWithValue("dummy", "again"))), "the Go type does not know dummy")
		}, eachForm())

		DescribeTable("has fields that their schema does not know pruned", Label("S12"), func(ctx SpecContext, form form) {
			c := crdOf("schema")
			c.install(ctx, crdVersion("v1", true, startKey, stageKey(1)))
			serve(ctx, mode, namespace, c.withScheme, c.stageOf(form, 1, created), c.stageOf(form, 2, created))
			Expect(c.objects(namespace, "v1").Create(ctx, c.object("v1", "staged", stages(0)), metav1.CreateOptions{})).To(dataIs(stages(1)))
		}, eachForm())

		It("refuses their definitions, where the label selects them", Label("S10"), func(ctx SpecContext) {
			serve(ctx, mode, namespace, nil, eirinix.Validation[*unstructured.Unstructured]{
				ID: "definitions",
				Settings: eirinix.Settings{
					Rules:   rules(definitions.Group, "*", definitions.Resource, created),
					Objects: &metav1.LabelSelector{MatchLabels: map[string]string{unwantedKey: unwantedValue}},
				},
				Create: func(context.Context, *eirinix.Call, *unstructured.Unstructured) error {
					return eirinix.Deny("the crd contains unwanted label")
				},
			})
			c := crdOf(namespace)
			create := func(labels map[string]string) error {
				_, err := dynamicClients().Resource(definitions).Create(ctx, c.definition(labels, crdVersion("v1", true)), metav1.CreateOptions{})
				return err
			}
			DeferCleanup(c.remove)
			Expect(create(unwanted())).To(MatchError(ContainSubstring("the crd contains unwanted label")))
			Expect(create(map[string]string{unwantedKey: "webhook-allow"})).To(Succeed())
		}, SpecTimeout(2*patience))
	})
})
