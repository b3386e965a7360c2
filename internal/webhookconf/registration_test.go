package webhookconf_test

// What one version of a program registers beside what is registered already, and the digest by which versions differ.

import (
	"encoding/json"
	"slices"
	"strings"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"code.cloudfoundry.org/eirinix/internal/webhookconf"
)

var _ = Describe("A registration", func() {
	waits := func(s *webhookconf.Step) { s.Waits = true }
	// unserved is what is known of a step whose kind the cluster does not serve.
	unserved := func(s *webhookconf.Step) { s.Kind, s.Rules = schema.GroupVersionKind{}, nil }

	// register returns what these steps declare. Its version is the digest of what is declared without a cluster: there,
	// no step waits and each kind is known.
	register := func(steps []webhookconf.Step, absent ...webhookconf.Step) webhookconf.Registration {
		declared := slices.Clone(steps)
		for i := range declared {
			declared[i].Waits = false
		}
		o := urlOptions()
		o.CABundle = nil
		r := webhookconf.Registration{Options: o, Steps: append(declared, absent...)}
		r.Version = webhookconf.Digest(r.Desired(nil, nil))
		r.Steps = steps
		for _, s := range absent {
			unserved(&s)
			r.Unserved = append(r.Unserved, s)
		}
		return r
	}
	steps := func(all ...webhookconf.Step) []webhookconf.Step { return all }
	names := func(d webhookconf.Desired) (all []string) {
		for _, e := range d.Entries {
			all = append(all, e.StepNames()...)
		}
		return all
	}

	// holding returns a cluster in which these steps are registered, of the version.
	holding := func(ctx SpecContext, version string, all ...webhookconf.Step) *cluster {
		GinkgoHelper()
		c, d := newCluster(), desired(urlOptions(), all...)
		d.Version = version
		for _, conf := range webhookconf.Configurations(c, urlOptions(), owner) {
			put(ctx, conf, trusting(d, pem(0)))
		}
		return c
	}
	found := func(ctx SpecContext, c *cluster) []webhookconf.Found {
		GinkgoHelper()
		var all []webhookconf.Found
		for _, conf := range webhookconf.Configurations(c, urlOptions(), owner) {
			all = append(all, get(ctx, conf))
		}
		return all
	}
	annotated := func(c *cluster, text string) {
		GinkgoHelper()
		tree := c.tree()
		annotations := tree.GetAnnotations()
		delete(annotations, webhookconf.StepsAnnotation)
		if text != "" {
			annotations[webhookconf.StepsAnnotation] = text
		}
		tree.SetAnnotations(annotations)
		c.replace(tree)
	}
	path := func(s webhookconf.Step) string { return webhookconf.Group(steps(s))[0].Path }

	const intact = "intact"
	b := step("b", isolated)
	configMaps := []change{rules(rule("", "v1", "configmaps", "CREATE")), kind("", "v1", "ConfigMap")}
	DescribeTable("registers a step that waits",
		func(ctx SpecContext, expected string, declared, standing []webhookconf.Step, annotation string) {
			c, r := holding(ctx, "other", standing...), register(declared)
			if annotation != intact {
				annotated(c, annotation)
			}
			all := found(ctx, c)
			Expect(names(r.Desired(all, nil))).To(Equal(strings.Fields(expected)))
			Expect(names(r.Seen(all).Desired(nil, nil))).To(Equal(strings.Fields(expected)), "what was in force comes back after it was deleted")
			Expect(names(r.Desired(nil, nil))).To(Equal([]string{"b"}), "the registration itself is not changed")
		},
		Entry("not where nothing stands", "b", steps(step("a", waits), b), nil, intact),
		Entry("not where others stand", "b", steps(step("a", waits), b), steps(b), intact),
		Entry("where it is in force", "a b", steps(step("a", waits), b), steps(step("a"), b), intact),
		Entry("where it is in force with other settings, at another path", "a b", steps(step("a", waits), b), steps(step("a", isolated)), intact),
		Entry("where it is in force beside one that waits and is not", "a b", steps(step("a", waits), step("c", waits), step("b")), steps(step("a")), intact),
		Entry("not where its path is that of another step alone", "b", steps(step("a", waits), step("b")), steps(step("b")), intact),
		Entry("not where a step of its name is for another kind", "b", steps(step("a", waits), b), steps(step("a", configMaps...)), intact),
		Entry("not where a validating step of its name is in force", "b", steps(step("a", waits), b), steps(step("a", validating)), intact),
		Entry("where it validates and is in force", "a b", steps(step("a", validating, waits), b), steps(step("a", validating)), intact),
		Entry("where a build without our annotation has registered its path", "a b", steps(step("a", waits), b), steps(step("x")), ""),
		Entry("where such a build has written another version since, beside the annotation", "a b", steps(step("a", waits), b), steps(step("x")), `{"version":"earlier","steps":{}}`),
		Entry("not where such a build has registered other paths", "b", steps(step("a", waits), b), steps(b), "garbage"),
	)

	Describe("of a step whose kind the cluster does not serve", func() {
		shop := func(changes ...change) webhookconf.Step {
			return step("shop", append([]change{rules(rule("example.org", "v1", "shops", "CREATE")), kind("example.org", "v1", "Shop"), conditions(condition("yes", "true"))}, changes...)...)
		}
		webhookOf := func(c *cluster, s webhookconf.Step) map[string]any {
			GinkgoHelper()
			for _, w := range c.tree().Object["webhooks"].([]any) {
				if w := w.(map[string]any); w["name"] == urlOptions().WebhookName(webhookconf.Group(steps(s))[0].Name) {
					return w
				}
			}
			return nil
		}
		DescribeTable("keeps its webhook as it is", func(ctx SpecContext, annotation string) {
			c, r := holding(ctx, "other", shop(), b), register(steps(b), shop())
			if annotation != intact {
				annotated(c, annotation)
			}
			tree := c.tree() // an edit, and a field of a later API
			for _, w := range tree.Object["webhooks"].([]any) {
				w.(map[string]any)["timeoutSeconds"], w.(map[string]any)["later"] = int64(3), "x"
			}
			c.replace(tree)
			before := webhookOf(c, shop())
			for _, bundle := range []string{pem(0, 1), pem(1)} {
				d := r.Desired(found(ctx, c), nil)
				after, _ := put(ctx, mutatingIn(c), trusting(&d, bundle))
				Expect(after.Version).To(Equal(r.Version))
				Expect(after.Intact(r.Desired(found(ctx, c), nil))).To(BeTrue())
				now := webhookOf(c, shop())
				for _, w := range []map[string]any{before, now} {
					unstructured.RemoveNestedField(w, "clientConfig", "caBundle")
				}
				Expect(json.Marshal(now)).To(MatchJSON(marshal(before)))
			}
			Expect(c.bundles()).To(HaveEach(pem(1)))
		},
			Entry("where this library has registered it", intact),
			Entry("where a build without our annotation has registered it", ""),
		)

		It("adds no webhook for it, and keeps none of the other configuration or of another name", func(ctx SpecContext) {
			r, other := register(steps(b), shop()), shop()
			other.Name = "shop-2"
			for _, standing := range []webhookconf.Step{b, shop(validating), other} {
				d := r.Desired(found(ctx, holding(ctx, "other", standing)), nil)
				Expect(names(d)).To(Equal([]string{"b"}))
				Expect(d.Kept).To(BeEmpty())
			}
		})

		It("lets its webhook go once it is declared no more", func(ctx SpecContext) {
			c := holding(ctx, "other", shop(), b)
			annotated(c, "") // so it is not known which steps it calls
			d := register(steps(b)).Desired(found(ctx, c), nil)
			put(ctx, mutatingIn(c), webhookconf.Change{Entries: &d})
			Expect(c.names()).To(Equal([]string{urlOptions().WebhookName("b")}))
		})
	})

	It("keeps a webhook while another live version declares one of its steps", func(ctx SpecContext) {
		c := holding(ctx, "other", step("gone"), b)
		key := step("gone").Key()
		r := register(steps(b))
		d := r.Desired(found(ctx, c), func(k string) bool { return k == key })
		Expect(d.Kept).To(Equal(map[string][]string{path(step("gone")): {key}}))
		put(ctx, mutatingIn(c), webhookconf.Change{Entries: &d})
		Expect(c.names()).To(HaveLen(2))
		Expect(r.Desired(found(ctx, c), func(k string) bool { return k == key }).Kept).To(Equal(d.Kept), "also once it is of our version")

		d = r.Desired(found(ctx, c), func(string) bool { return false })
		put(ctx, mutatingIn(c), webhookconf.Change{Entries: &d})
		Expect(c.names()).To(Equal([]string{urlOptions().WebhookName("b")}))
	})

	Describe("with a canary", func() {
		canary := webhookconf.Group(steps(step("canary", isolated, dry)))[0]
		canary.Path, canary.Steps = "/canary", nil
		with := func(r webhookconf.Registration) webhookconf.Registration {
			r.Canary, r.Prefix = &canary, "/prefix"
			r.Conversions = []webhookconf.Entry{{Name: "c", Path: "/convert/c", Converts: "c", Steps: steps(webhookconf.VersionStep("v1", "c"))}}
			return r
		}
		entries := func(r webhookconf.Registration) (all []string) {
			for _, e := range r.Desired(nil, nil).Entries {
				all = append(all, e.Name+" "+e.Path)
			}
			return all
		}

		It("registers it beside steps, with the prefix before all paths but the canary's, which has it", func() {
			Expect(entries(with(register(steps(b))))).To(Equal([]string{"b /prefix/mutate/b", "canary /canary", "c /prefix/convert/c"}))
		})

		It("does not register it alone, nor beside conversions", func() {
			Expect(entries(with(register(steps(step("b", waits)))))).To(Equal([]string{"c /prefix/convert/c"}))
		})

		It("records every registered step, none that waits, and no canary", func() {
			Expect(with(register(steps(step("a"), step("b", isolated, waits)))).Desired(nil, nil).Registered()).To(Equal(map[string][]string{
				"/prefix" + path(step("a")): {"a@v1/Pod"}, "/prefix/convert/c": {"v1.c"},
			}))
		})

		It("finds a step in force at a path with the prefix", func(ctx SpecContext) {
			c, r := newCluster(), with(register(steps(step("a"))))
			d := r.Desired(nil, nil)
			put(ctx, mutatingIn(c), webhookconf.Change{Entries: &d})
			annotated(c, "")
			Expect(names(with(register(steps(step("a", waits)))).Desired(found(ctx, c), nil))).To(Equal([]string{"a", "v1.c"}))
		})
	})

	It("is of one version, whatever waits and whatever the cluster serves", func(ctx SpecContext) {
		shop := step("shop", rules(rule("example.org", "v1", "shops", "CREATE")), kind("example.org", "v1", "Shop"))
		all := register(steps(step("a"), shop))
		waiting := register(steps(step("a", waits), shop))
		absent := register(steps(step("a")), shop)
		Expect(waiting.Version).To(Equal(all.Version))
		Expect(absent.Version).To(Equal(all.Version))
		Expect(register(steps(step("a"))).Version).NotTo(Equal(all.Version))
		for _, r := range []webhookconf.Registration{all, waiting, absent} {
			Expect(r.Desired(nil, nil).Version).To(Equal(all.Version))
		}
		Expect(waiting.Desired(found(ctx, holding(ctx, all.Version, step("a"), shop)), nil)).To(Equal(all.Desired(nil, nil)), "what is in force is registered as if it did not wait")
	})

	DescribeTable("says which version stands", func(ctx SpecContext, expected string, mutating, validatingStep []webhookconf.Step, emptied bool) {
		first := holding(ctx, "one", mutating...)
		if emptied {
			first.tamper(func(m *admissionregistrationv1.MutatingWebhookConfiguration) { m.Webhooks = nil })
		}
		Expect(webhookconf.Standing(append(found(ctx, first), found(ctx, holding(ctx, "two", validatingStep...))...))).To(Equal(expected))
	},
		Entry("none, where nothing stands", "", nil, nil, false),
		Entry("that of the mutating one", "one", steps(step("a")), steps(step("v", validating)), false),
		Entry("that of the validating one, beside a mutating one without entries", "two", steps(step("a")), steps(step("v", validating)), true),
	)

	DescribeTable("identifies a step", func(expected bool, key string, s webhookconf.Step) {
		Expect(s.Is(key)).To(Equal(expected))
	},
		Entry("by its key", true, "a@v1/Pod", step("a")),
		Entry("not by its name alone", false, "a", step("a")),
		Entry("not by another kind", false, "a@v1/ConfigMap", step("a")),
		Entry("by any kind where its own is unknown", true, "a@v1/ConfigMap", step("a", unserved)),
		Entry("by its name where it is for any kind", true, "a", step("a", unserved)),
		Entry("not by the beginning of a name", false, "ab@v1/Pod", step("a", unserved)),
	)
})

var _ = Describe("The digest of a version", func() {
	digest := func(o webhookconf.Options, steps ...webhookconf.Step) string {
		return webhookconf.Digest(webhookconf.Desired{Options: o, Entries: webhookconf.Group(steps)})
	}
	many := &metav1.LabelSelector{MatchLabels: map[string]string{"a": "1", "b": "2", "c": "3", "d": "4", "e": "5"}}
	shadow := func(s *webhookconf.Step) { s.Shadow = true }

	It("is the same in each version of this library, and at each run: an upgrade of it alone is no rollout", func() {
		for range 20 {
			Expect(digest(serviceOptions(), step("a"), step("b", isolated, objects(many.DeepCopy()), conditions(condition("yes", "true"))), step("v", validating))).
				To(Equal("5fa5b2de89e462a0fe873900aabcbd99"))
		}
		Expect(digest(serviceOptions())).To(Equal("8035265d15b5d31a15786ffabb62f60a"))
	})

	It("depends neither on the caBundle, nor on the owner, nor on the version, and leaves them alone", func() {
		o := serviceOptions()
		o.CABundle, o.OwnedBy = []byte("another"), webhookconf.OwnedByNamespace(&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "cf", UID: "ns"}})
		d := webhookconf.Desired{Options: o, Entries: webhookconf.Group([]webhookconf.Step{step("a")}), Version: "x"}
		Expect(webhookconf.Digest(d)).To(Equal(digest(serviceOptions(), step("a"))))
		Expect(d.Options).To(Equal(o))
	})

	It("distinguishes the options, the steps and their order, each setting, and the paths", func() {
		a, b := step("a"), step("b")
		all := map[string]string{"": digest(serviceOptions(), a, b), "one step less": digest(serviceOptions(), a), "another order": digest(serviceOptions(), b, a), "another name": digest(serviceOptions(), a, step("c"))}
		for name, change := range map[string]func(*webhookconf.Options){
			"another port":        func(o *webhookconf.Options) { o.Target.Port++ },
			"another Service":     func(o *webhookconf.Options) { o.Target.Service = "x" },
			"a URL":               func(o *webhookconf.Options) { *o = urlOptions() },
			"another namespace":   func(o *webhookconf.Options) { o.Namespace = "x" },
			"another fingerprint": func(o *webhookconf.Options) { o.Fingerprint = "x" },
		} {
			o := serviceOptions()
			change(&o)
			all[name] = digest(o, a, b)
		}
		for name, c := range settingChanges {
			all[name] = digest(serviceOptions(), a, step("b", c))
		}
		all["a shadow"] = digest(serviceOptions(), a, step("b", ignore, shadow))
		all["validating"] = digest(serviceOptions(), a, step("b", validating))
		all["another kind"] = digest(serviceOptions(), a, step("b", kind("", "v1", "Other")))
		d := *desired(serviceOptions(), a, b)
		d.Entries[0].Path = "/prefix" + d.Entries[0].Path
		all["another path"] = webhookconf.Digest(d)
		canary := d.Entries[0]
		canary.Name, canary.Path, canary.Steps = "canary", "/canary", nil
		d.Entries = append(d.Entries, canary)
		all["a canary, which has no steps"] = webhookconf.Digest(d)

		by := map[string]string{}
		for name, digest := range all {
			Expect(by).NotTo(HaveKey(digest), name)
			by[digest] = name
		}
	})
})
