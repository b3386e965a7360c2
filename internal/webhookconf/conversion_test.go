package webhookconf_test

// The conversion webhook of a CustomResourceDefinition, which belongs to its user: only the webhook and our annotations
// are written.

import (
	"encoding/base64"
	"encoding/json"
	"errors"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	clienttesting "k8s.io/client-go/testing"

	. "code.cloudfoundry.org/eirinix/internal/spectest"
	"code.cloudfoundry.org/eirinix/internal/webhookconf"
)

var definitions = schema.GroupVersionResource{Group: webhookconf.CRD.Group, Version: "v1", Resource: webhookconf.CRD.Resource}

// converting is the registration of a Conversion, of a version.
func converting(crd, version string) *webhookconf.Desired {
	return &webhookconf.Desired{
		Options: serviceOptions(), Version: version,
		Entries: []webhookconf.Entry{{Name: crd, Path: "/convert/" + crd, Converts: crd}, webhookconf.Group([]webhookconf.Step{step("a")})[0]},
	}
}

// registeredConversion is spec.conversion as it is registered, in JSON.
func registeredConversion(crd, bundle string) string {
	return `{"strategy": "Webhook", "webhook": {"conversionReviewVersions": ["v1", "v1beta1"], "clientConfig": {
		"caBundle": "` + base64.StdEncoding.EncodeToString([]byte(bundle)) + `", "service": {"namespace": "cf", "name": "logger", "path": "/convert/` + crd + `", "port": 443}}}}`
}

var _ = Describe("The conversion webhook of a CustomResourceDefinition", func() {
	const name = "things.example.com"
	var (
		c    *cluster
		conf webhookconf.Configuration
	)
	// define creates a definition with this spec.conversion and these versions, of which the first is stored.
	define := func(conversion string, versions ...string) {
		GinkgoHelper()
		var all []any
		for _, v := range versions {
			all = append(all, map[string]any{"name": v, "served": true})
		}
		crd := &unstructured.Unstructured{}
		Expect(json.Unmarshal([]byte(`{
			"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition", "later": "of the definition",
			"metadata": {"name": "`+name+`", "resourceVersion": "7", "uid": "u", "annotations": {"note": "do not touch"}},
			"spec": {"group": "example.com", "later": "of the spec", "versions": `+string(marshal(all))+`, "conversion": `+conversion+`},
			"status": {"storedVersions": ["v1"]}}`), crd)).To(Succeed())
		c = newCluster(crd)
		conf = webhookconf.Conversions(c, []string{name}, owner)[0]
	}
	stored := func(ctx SpecContext) *unstructured.Unstructured {
		GinkgoHelper()
		return Must(c.Resource(definitions).Get(ctx, name, metav1.GetOptions{}))
	}
	conversion := func(ctx SpecContext) string {
		GinkgoHelper()
		found, _, _ := unstructured.NestedFieldNoCopy(stored(ctx).Object, "spec", "conversion")
		return string(marshal(found))
	}

	It("is registered, trusted and registered again beside the fields of the user and those that our Go types do not know", func(ctx SpecContext) {
		define(`{"strategy": "Webhook", "later": "of the conversion", "webhook": {"later": "of the webhook", "conversionReviewVersions": ["v1"],
			"clientConfig": {"later": "of the address", "url": "https://elsewhere.example.com", "caBundle": "`+base64.StdEncoding.EncodeToString([]byte(pem(2)))+`"}}}`, "v1", "v2")
		d, before := converting(name, "one"), stored(ctx)
		found := get(ctx, conf)
		Expect(found).To(And(HaveField("Exists", true), HaveField("Bundles", BeEmpty()), HaveField("Version", "")), "it is not ours yet")
		Expect(found.Intact(*d)).To(BeFalse())
		Expect(found.Missing(*d)).To(ConsistOf(name))
		_, outcome := put(ctx, conf, webhookconf.Change{Bundle: []byte(pem(0)), Unneeded: map[string]time.Time{}})
		Expect(outcome).To(Equal(webhookconf.Unchanged), "a rotation alone does not take it over")

		for _, change := range []webhookconf.Change{trusting(d, pem(0)), {Bundle: []byte(pem(1))}} {
			found, outcome = put(ctx, conf, change)
			Expect(outcome).To(Equal(webhookconf.Updated))
			Expect(found).To(And(HaveField("Bundles", Equal([][]byte{change.Bundle})), HaveField("Version", "one")))
			Expect(found.Intact(*d)).To(BeTrue())
			Expect(found.Missing(*d)).To(BeEmpty())
			_, outcome = put(ctx, conf, change)
			Expect(outcome).To(Equal(webhookconf.Unchanged))
			expected := members(registeredConversion(name, string(change.Bundle)))
			expected["later"], expected["webhook"].(map[string]any)["later"] = "of the conversion", "of the webhook"
			expected["webhook"].(map[string]any)["clientConfig"].(map[string]any)["later"] = "of the address"
			Expect(conversion(ctx)).To(MatchJSON(marshal(expected)))
		}
		Expect(c.Actions()).To(ContainElement(HaveField("GetPatch()", ContainSubstring(`"resourceVersion":"7"`))), "a writer that was too slow has a conflict")
		after := stored(ctx)
		Expect(after.GetAnnotations()).To(And(HaveKeyWithValue("note", "do not touch"), HaveKeyWithValue(webhookconf.OwnerAnnotation, owner)))
		for _, crd := range []*unstructured.Unstructured{before, after} {
			unstructured.RemoveNestedField(crd.Object, "spec", "conversion")
			unstructured.RemoveNestedField(crd.Object, "metadata")
		}
		Expect(after).To(Equal(before))

		_, outcome = put(ctx, conf, webhookconf.Change{Entries: converting(name, "two")})
		Expect(outcome).To(Equal(webhookconf.Updated))
		found, outcome = put(ctx, conf, webhookconf.Change{Entries: converting("others.example.com", "three")})
		Expect(outcome).To(Equal(webhookconf.Unchanged), "a program without this Conversion leaves it")
		Expect(found.Version).To(Equal("two"))
	})

	It("belongs to one deployment", func(ctx SpecContext) {
		define(`{"strategy": "None"}`, "v1")
		put(ctx, conf, trusting(converting(name, "one"), pem(0)))
		other := webhookconf.Conversions(c, []string{name}, otherOwner)[0]
		_, err := other.Get(ctx)
		Expect(err).To(MatchError(ContainSubstring("belongs to the deployment whose certificate Secret is " + owner)))
		_, err = other.Delete(ctx, nil)
		elsewhere, ok := errors.AsType[*webhookconf.OwnedElsewhereError](err)
		Expect(ok).To(BeTrue(), "%v", err)
		Expect(elsewhere.Owner).To(Equal(owner))
		c.PrependReactor("patch", "*", func(clienttesting.Action) (bool, runtime.Object, error) { return true, nil, forbidden() })
		_, _, err = conf.Put(ctx, get(ctx, conf), trusting(converting(name, "two"), pem(0)))
		Expect(err).To(MatchError(ContainSubstring("(needs get and patch on customresourcedefinitions.apiextensions.k8s.io in a ClusterRole)")))
	})

	It("waits for a definition that does not exist", func(ctx SpecContext) {
		define(`{}`)
		conf, d := webhookconf.Conversions(c, []string{"absent.example.com"}, owner)[0], converting("absent.example.com", "one")
		found := get(ctx, conf)
		Expect(found.Exists).To(BeFalse())
		Expect(found.Intact(*d)).To(BeTrue(), "there is nothing to write yet")
		Expect(found.Missing(*d)).To(BeEmpty())
		_, outcome := put(ctx, conf, trusting(d, pem(0)))
		Expect(outcome).To(Equal(webhookconf.Absent))
		Expect(conf.Delete(ctx, nil)).To(Equal(webhookconf.Absent))
		Expect(conf.Creates()).To(BeFalse())
		Expect(c.writes()).To(BeEmpty())
	})

	It("goes where one version is left, and stays where two need it", func(ctx SpecContext) {
		define(`{"strategy": "None"}`, "v1", "v2")
		Expect(conf.Delete(ctx, nil)).To(Equal(webhookconf.Absent), "it is not ours")
		put(ctx, conf, trusting(converting(name, "one"), pem(0)))
		_, err := conf.Delete(ctx, nil)
		Expect(err).To(MatchError(And(ContainSubstring("serves or stores v1, v2"), ContainSubstring("first serve one version alone"))))

		crd := stored(ctx)
		Expect(unstructured.SetNestedSlice(crd.Object, []any{map[string]any{"name": "v1", "served": true}, map[string]any{"name": "v2", "served": false}}, "spec", "versions")).To(Succeed())
		Must(c.Resource(definitions).Update(ctx, crd, metav1.UpdateOptions{}))
		Expect(conf.Delete(ctx, nil)).To(Equal(webhookconf.Deleted))
		Expect(conversion(ctx)).To(MatchJSON(`{"strategy": "None"}`))
		Expect(stored(ctx).GetAnnotations()).To(Equal(map[string]string{"note": "do not touch"}))
		Expect(conf.Delete(ctx, nil)).To(Equal(webhookconf.Absent))
	})
})

func members(text string) (all map[string]any) {
	GinkgoHelper()
	Expect(json.Unmarshal([]byte(text), &all)).To(Succeed())
	return all
}
