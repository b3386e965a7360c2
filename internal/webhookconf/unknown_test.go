package webhookconf_test

// An API server that is later than our Go types has fields that these do not know. A real one of today drops them.

import (
	"encoding/base64"
	"encoding/json"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"code.cloudfoundry.org/eirinix/internal/webhookconf"
)

var _ = Describe("A field that our Go types do not know", func() {
	type object = map[string]any

	// later gives every level of the first webhook such a field, and the configuration too.
	later := func(tree *unstructured.Unstructured) {
		tree.Object["later"] = object{"of": "the configuration"}
		w := tree.Object["webhooks"].([]any)[0].(object)
		w["later"] = []any{"of the webhook"}
		w["clientConfig"].(object)["later"] = "of the address"
		w["clientConfig"].(object)["service"].(object)["later"] = "of the Service"
		w["namespaceSelector"].(object)["later"] = "of the selector"
		w["rules"].([]any)[0].(object)["later"] = int64(3)
	}
	// without returns the tree without what each write changes.
	without := func(tree *unstructured.Unstructured) string {
		tree = tree.DeepCopy()
		unstructured.RemoveNestedField(tree.Object, "metadata")
		for _, w := range tree.Object["webhooks"].([]any) {
			unstructured.RemoveNestedField(w.(object), "clientConfig", "caBundle")
		}
		return string(marshal(tree.Object))
	}
	first := func(tree *unstructured.Unstructured) object {
		return tree.Object["webhooks"].([]any)[0].(object)
	}
	a := func(changes ...change) *webhookconf.Desired {
		return desired(serviceOptions(), step("a", append(changes, isolated)...), step("b", isolated))
	}

	DescribeTable("stays",
		func(ctx SpecContext, harm func(object), change webhookconf.Change, changed func(object)) {
			c := newCluster()
			registers(ctx, mutatingIn(c), a(), pem(0))
			tree := c.tree()
			later(tree)
			expected := tree.DeepCopy()
			changed(first(expected))
			harm(first(tree))
			c.replace(tree)

			found, outcome := put(ctx, mutatingIn(c), change)
			Expect(outcome).To(Equal(webhookconf.Updated))
			Expect(without(c.tree())).To(MatchJSON(without(expected)))
			if change.Entries != nil {
				Expect(found.Intact(*change.Entries)).To(BeTrue())
			}
			_, outcome = put(ctx, mutatingIn(c), change)
			Expect(outcome).To(Equal(webhookconf.Unchanged))
		},
		Entry("in a repair", func(w object) { w["failurePolicy"], w["timeoutSeconds"] = "Ignore", int64(1) }, webhookconf.Change{Entries: a()}, func(object) {}),
		Entry("in a repair of the address", func(w object) { w["clientConfig"].(object)["service"].(object)["name"] = "elsewhere" }, webhookconf.Change{Entries: a()}, func(object) {}),
		Entry("in a rotation", func(object) {}, webhookconf.Change{Bundle: []byte(pem(1))}, func(object) {}),
		Entry("in a rotation that mends an emptied caBundle", func(w object) { delete(w["clientConfig"].(object), "caBundle") }, webhookconf.Change{Bundle: []byte(pem(0))}, func(object) {}),
		Entry("in a rollout", func(object) {}, webhookconf.Change{Entries: a(exact, ignore, objects(labels1("a", "1")))}, func(w object) {
			w["matchPolicy"], w["failurePolicy"], w["objectSelector"] = "Exact", "Ignore", object{"matchLabels": object{"a": "1"}}
		}),
	)

	It("does not keep the field of a rule that is replaced", func(ctx SpecContext) {
		c := newCluster()
		registers(ctx, mutatingIn(c), a(), pem(0))
		tree := c.tree()
		later(tree)
		c.replace(tree)
		registers(ctx, mutatingIn(c), a(updates), pem(0))
		Expect(first(c.tree())["rules"].([]any)[0]).NotTo(HaveKey("later"))
		Expect(first(c.tree())).To(HaveKey("later"))
	})

	It("is no difference", func(ctx SpecContext) {
		c := newCluster()
		registers(ctx, mutatingIn(c), a(), pem(0))
		tree := c.tree()
		later(tree)
		c.replace(tree)
		Expect(get(ctx, mutatingIn(c)).Intact(*a())).To(BeTrue())
		Expect(registers(ctx, mutatingIn(c), a(), pem(0))).To(Equal(webhookconf.Unchanged))
	})

	It("stays in a validating configuration", func(ctx SpecContext) {
		c, d := newCluster(), desired(serviceOptions(), step("a", validating, isolated))
		_, v := both(c, urlOptions())
		registers(ctx, v, d, pem(0))
		resource := mutatingResource
		resource.Resource = webhookconf.Validating.Resource
		read := func() *unstructured.Unstructured {
			GinkgoHelper()
			found, err := c.Resource(resource).Get(ctx, v.Name(), metav1.GetOptions{})
			Expect(err).NotTo(HaveOccurred())
			return found
		}
		tree := read()
		later(tree)
		expected := tree.DeepCopy()
		first(tree)["failurePolicy"] = "Ignore"
		_, err := c.Resource(resource).Update(ctx, tree, metav1.UpdateOptions{})
		Expect(err).NotTo(HaveOccurred())
		Expect(registers(ctx, v, d, pem(1))).To(Equal(webhookconf.Updated))
		Expect(without(read())).To(MatchJSON(without(expected)))
		Expect(registers(ctx, v, d, pem(1))).To(Equal(webhookconf.Unchanged))
	})

	It("stays in a CustomResourceDefinition, and is no difference", func(ctx SpecContext) {
		const name = "things.example.com"
		crd := &unstructured.Unstructured{}
		Expect(json.Unmarshal([]byte(`{
			"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition", "later": "of the definition",
			"metadata": {"name": "`+name+`", "resourceVersion": "7", "uid": "u", "annotations": {"note": "do not touch"}},
			"spec": {"group": "example.com", "later": "of the spec", "conversion": {
				"strategy": "Webhook", "later": "of the conversion", "webhook": {
					"later": "of the webhook", "conversionReviewVersions": ["v1"],
					"clientConfig": {"later": "of the address", "url": "https://elsewhere.example.com"}}}}}`), crd)).To(Succeed())
		c := newCluster(crd)
		conf := webhookconf.Conversions(c, []string{name}, owner)[0]
		d := &webhookconf.Desired{Options: serviceOptions(), Version: "one", Entries: []webhookconf.Entry{{Name: name, Path: "/convert/" + name, Converts: name}}}
		for _, bundle := range []string{pem(0), pem(1)} {
			found, outcome := put(ctx, conf, trusting(d, bundle))
			Expect(outcome).To(Equal(webhookconf.Updated))
			Expect(found.Intact(*d)).To(BeTrue())
			_, outcome = put(ctx, conf, trusting(d, bundle))
			Expect(outcome).To(Equal(webhookconf.Unchanged))

			resource := schema.GroupVersionResource{Group: webhookconf.CRD.Group, Version: "v1", Resource: webhookconf.CRD.Resource}
			stored, err := c.Resource(resource).Get(ctx, name, metav1.GetOptions{})
			Expect(err).NotTo(HaveOccurred())
			Expect(stored.GetAnnotations()).To(HaveKeyWithValue("note", "do not touch"))
			unstructured.RemoveNestedField(stored.Object, "metadata")
			Expect(marshal(stored.Object)).To(MatchJSON(`{
				"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition", "later": "of the definition",
				"spec": {"group": "example.com", "later": "of the spec", "conversion": {
					"strategy": "Webhook", "later": "of the conversion", "webhook": {
						"later": "of the webhook", "conversionReviewVersions": ["v1", "v1beta1"],
						"clientConfig": {"later": "of the address", "caBundle": "` + base64.StdEncoding.EncodeToString([]byte(bundle)) + `",
							"service": {"namespace": "cf", "name": "logger", "path": "/convert/` + name + `", "port": 443}}}}}}`))
		}
		d.Version = "two"
		_, outcome := put(ctx, conf, webhookconf.Change{Entries: d})
		Expect(outcome).To(Equal(webhookconf.Updated))
	})
})
