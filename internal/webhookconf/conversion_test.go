package webhookconf_test

import (
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/util/retry"
	"sigs.k8s.io/controller-runtime/pkg/client"

	. "code.cloudfoundry.org/eirinix/internal/spectest"
	"code.cloudfoundry.org/eirinix/internal/webhookconf"
)

var _ = Describe("The conversion webhook of a CustomResourceDefinition", Label("api-server"), Ordered, func() {
	var (
		dynamics dynamic.Interface
		cluster  client.Client
		name     string // of the definition
		conf     webhookconf.Configuration
	)

	BeforeAll(func() {
		config := controlPlane().config
		dynamics = Must(dynamic.NewForConfig(config))
		cluster = Must(client.New(config, client.Options{}))
	})

	conversionOf := func(crd string) webhookconf.Configuration {
		return webhookconf.Conversions(dynamics, []string{crd}, owner)[0]
	}

	// define creates a definition that serves these versions. The first one is stored.
	define := func(ctx context.Context, versions ...string) *unstructured.Unstructured {
		GinkgoHelper()
		group := fmt.Sprintf("g%d.example.com", time.Now().UnixNano())
		name = "things." + group
		var all []any
		for i, v := range versions {
			all = append(all, map[string]any{
				"name": v, "served": true, "storage": i == 0,
				"schema": map[string]any{"openAPIV3Schema": map[string]any{"type": "object", "x-kubernetes-preserve-unknown-fields": true}},
			})
		}
		crd := &unstructured.Unstructured{Object: map[string]any{
			"metadata": map[string]any{"name": name, "labels": map[string]any{"of": "its-user"}},
			"spec": map[string]any{
				"group": group, "scope": "Namespaced", "versions": all,
				"names": map[string]any{"plural": "things", "singular": "thing", "kind": "Thing", "listKind": "ThingList"},
			},
		}}
		crd.SetAPIVersion("apiextensions.k8s.io/v1")
		crd.SetKind(webhookconf.CRD.Name)
		Expect(cluster.Create(ctx, crd)).To(Succeed())
		DeferCleanup(cluster.Delete, crd)
		conf = conversionOf(name)
		Eventually(func(g Gomega) { // the API server writes the status
			g.Expect(cluster.Get(ctx, client.ObjectKeyFromObject(crd), crd)).To(Succeed())
			stored, _, _ := unstructured.NestedStringSlice(crd.Object, "status", "storedVersions")
			g.Expect(stored).NotTo(BeEmpty())
			conditions, _, _ := unstructured.NestedSlice(crd.Object, "status", "conditions")
			g.Expect(conditions).To(HaveLen(2))
		}).WithTimeout(30 * time.Second).Should(Succeed())
		return crd
	}
	version := func(digest string) webhookconf.Change {
		return webhookconf.Change{
			Bundle: []byte(pem(0)),
			Entries: &webhookconf.Desired{
				Options: serviceOptions(), Version: digest,
				Entries: []webhookconf.Entry{{Name: name, Path: "/convert/" + name, Converts: name}},
			},
		}
	}
	read := func(ctx context.Context) *unstructured.Unstructured {
		GinkgoHelper()
		crd := conf.Object().(*unstructured.Unstructured)
		Expect(cluster.Get(ctx, client.ObjectKey{Name: name}, crd)).To(Succeed())
		return crd
	}

	// update is a write of another client. The API server writes the status meanwhile.
	update := func(ctx context.Context, change func(*unstructured.Unstructured)) {
		GinkgoHelper()
		Expect(retry.RetryOnConflict(retry.DefaultBackoff, func() error {
			crd := read(ctx)
			change(crd)
			return cluster.Update(ctx, crd, client.FieldOwner("another"))
		})).To(Succeed())
	}

	It("is written once, beside the fields of the user, and read back", func(ctx SpecContext) {
		before := define(ctx, "v1", "v2")
		found := Must(conf.Get(ctx))
		change := version("one")
		Expect(found.Intact(*change.Entries)).To(BeFalse())
		Expect(found.Missing(*change.Entries)).To(ConsistOf(name))
		Expect(found.Bundles).To(BeEmpty())

		found, outcome, err := register(ctx, conf, func(webhookconf.Found) webhookconf.Change { return change })
		Expect(err).NotTo(HaveOccurred())
		Expect(outcome).To(Equal(webhookconf.Updated))
		Expect(found.Bundles).To(Equal([][]byte{change.Bundle}))
		Expect(found.Version).To(Equal("one"))
		Expect(found.Intact(*change.Entries)).To(BeTrue())
		Expect(found.Missing(*change.Entries)).To(BeEmpty())

		after := read(ctx)
		o := serviceOptions().Target
		Expect(after.Object["spec"].(map[string]any)["conversion"]).To(Equal(map[string]any{
			"strategy": "Webhook",
			"webhook": map[string]any{
				"conversionReviewVersions": []any{"v1", "v1beta1"},
				"clientConfig": map[string]any{
					"caBundle": base64.StdEncoding.EncodeToString(change.Bundle),
					"service":  map[string]any{"namespace": o.Namespace, "name": o.Service, "path": "/convert/" + name, "port": int64(o.Port)},
				},
			},
		}))
		unstructured.RemoveNestedField(before.Object, "spec", "conversion")
		unstructured.RemoveNestedField(after.Object, "spec", "conversion")
		Expect(after.Object["spec"]).To(Equal(before.Object["spec"]))
		Expect(after.GetLabels()).To(Equal(before.GetLabels()))

		again, outcome, err := conf.Put(ctx, Must(conf.Get(ctx)), change)
		Expect(err).NotTo(HaveOccurred())
		Expect(outcome).To(Equal(webhookconf.Unchanged))
		Expect(again.ResourceVersion).To(Equal(found.ResourceVersion))
	})

	It("gets another caBundle and keeps everything else", func(ctx SpecContext) {
		define(ctx, "v1", "v2")
		change := version("one")
		_, _, err := register(ctx, conf, func(webhookconf.Found) webhookconf.Change { return change })
		Expect(err).NotTo(HaveOccurred())
		since := map[string]time.Time{}
		found, outcome, err := register(ctx, conf, func(webhookconf.Found) webhookconf.Change {
			return webhookconf.Change{Bundle: []byte(pem(1)), Unneeded: since}
		})
		Expect(err).NotTo(HaveOccurred())
		Expect(outcome).To(Equal(webhookconf.Updated))
		Expect(found.Bundles).To(Equal([][]byte{[]byte(pem(1))}))
		Expect(found.Intact(*change.Entries)).To(BeTrue(), "the address and the version stay")
	})

	It("is taken over from another client, such as an injector", func(ctx SpecContext) {
		define(ctx, "v1", "v2")
		update(ctx, func(crd *unstructured.Unstructured) {
			Expect(unstructured.SetNestedMap(crd.Object, map[string]any{
				"strategy": "Webhook",
				"webhook": map[string]any{
					"conversionReviewVersions": []any{"v1"},
					"clientConfig":             map[string]any{"url": "https://elsewhere.example.com/convert", "caBundle": base64.StdEncoding.EncodeToString([]byte(pem(2)))},
				},
			}, "spec", "conversion")).To(Succeed())
		})
		found := Must(conf.Get(ctx))
		Expect(found.Bundles).To(BeEmpty(), "it is not ours yet")
		_, outcome, err := conf.Put(ctx, found, webhookconf.Change{Bundle: []byte(pem(0))})
		Expect(err).NotTo(HaveOccurred())
		Expect(outcome).To(Equal(webhookconf.Unchanged), "a rotation alone does not take it over")

		change := version("one")
		found, outcome, err = register(ctx, conf, func(webhookconf.Found) webhookconf.Change { return change })
		Expect(err).NotTo(HaveOccurred())
		Expect(outcome).To(Equal(webhookconf.Updated))
		Expect(found.Intact(*change.Entries)).To(BeTrue())
		_, url, _ := unstructured.NestedString(read(ctx).Object, "spec", "conversion", "webhook", "clientConfig", "url")
		Expect(url).To(BeFalse())
	})

	It("loses a race instead of reverting the write of a faster client", func(ctx SpecContext) {
		define(ctx, "v1", "v2")
		found := Must(conf.Get(ctx))
		update(ctx, func(crd *unstructured.Unstructured) { crd.SetLabels(map[string]string{"of": "another-write"}) })
		_, _, err := conf.Put(ctx, found, version("one"))
		Expect(apierrors.IsConflict(err)).To(BeTrue(), "%v", err)
	})

	It("belongs to one deployment", func(ctx SpecContext) {
		define(ctx, "v1", "v2")
		_, _, err := register(ctx, conf, func(webhookconf.Found) webhookconf.Change { return version("one") })
		Expect(err).NotTo(HaveOccurred())
		other := webhookconf.Conversions(dynamics, []string{name}, "other/secret")[0]
		_, err = other.Get(ctx)
		Expect(err).To(MatchError(ContainSubstring("belongs to the deployment whose certificate Secret is " + owner)))
		_, err = other.Delete(ctx)
		elsewhere, ok := errors.AsType[*webhookconf.OwnedElsewhereError](err)
		Expect(ok).To(BeTrue(), "%v", err)
		Expect(elsewhere.Owner).To(Equal(owner))
	})

	It("waits for a definition that does not exist", func(ctx SpecContext) {
		name = "absent.example.com"
		conf = conversionOf(name)
		found := Must(conf.Get(ctx))
		change := version("one")
		Expect(found.Exists).To(BeFalse())
		Expect(found.Intact(*change.Entries)).To(BeTrue(), "there is nothing to write yet")
		_, outcome, err := conf.Put(ctx, found, change)
		Expect(err).NotTo(HaveOccurred())
		Expect(outcome).To(Equal(webhookconf.Absent))
		Expect(Must(conf.Delete(ctx))).To(Equal(webhookconf.Absent))
		Expect(conf.Creates()).To(BeFalse())
	})

	It("goes where one version is left, and stays where two need it", func(ctx SpecContext) {
		define(ctx, "v1", "v2")
		_, _, err := register(ctx, conf, func(webhookconf.Found) webhookconf.Change { return version("one") })
		Expect(err).NotTo(HaveOccurred())
		_, err = conf.Delete(ctx)
		Expect(err).To(MatchError(And(ContainSubstring("serves or stores v1, v2"), ContainSubstring("first serve one version alone"))))

		update(ctx, func(crd *unstructured.Unstructured) {
			versions, _, _ := unstructured.NestedSlice(crd.Object, "spec", "versions")
			versions[1].(map[string]any)["served"] = false
			Expect(unstructured.SetNestedSlice(crd.Object, versions, "spec", "versions")).To(Succeed())
		})
		Expect(Must(conf.Delete(ctx))).To(Equal(webhookconf.Deleted))
		after := read(ctx)
		Expect(after.Object["spec"].(map[string]any)["conversion"]).To(Equal(map[string]any{"strategy": "None"}))
		Expect(after.GetAnnotations()).To(BeEmpty())
		Expect(Must(conf.Delete(ctx))).To(Equal(webhookconf.Absent))
	})
})
