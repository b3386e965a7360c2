package webhookconf_test

import (
	"encoding/json"
	"slices"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
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

	DescribeTable("registers a step that waits",
		func(ctx SpecContext, expected []string, r webhookconf.Registration, standing func(SpecContext) *cluster) {
			all := found(ctx, standing(ctx))
			Expect(names(r.Desired(all, nil))).To(Equal(expected))
			Expect(names(r.Seen(all).Desired(nil, nil))).To(Equal(expected), "what was in force comes back after it was deleted")
			Expect(names(r.Desired(nil, nil))).To(Equal([]string{"b"}), "the registration itself is not changed")
		},
		Entry("not where nothing stands", []string{"b"}, register(steps(step("a", waits), step("b", isolated))),
			func(SpecContext) *cluster { return newCluster() }),
		Entry("not where others stand", []string{"b"}, register(steps(step("a", waits), step("b", isolated))),
			func(ctx SpecContext) *cluster { return holding(ctx, "other", step("b", isolated)) }),
		Entry("where it is in force", []string{"a", "b"}, register(steps(step("a", waits), step("b", isolated))),
			func(ctx SpecContext) *cluster { return holding(ctx, "other", step("a"), step("b", isolated)) }),
		Entry("where it is in force with other settings, at another path", []string{"a", "b"}, register(steps(step("a", waits), step("b", isolated))),
			func(ctx SpecContext) *cluster { return holding(ctx, "other", step("a", isolated)) }),
		Entry("where it is in force beside one that waits and is not", []string{"a", "b"}, register(steps(step("a", waits), step("c", waits), step("b"))),
			func(ctx SpecContext) *cluster { return holding(ctx, "other", step("a")) }),
		Entry("not where its path is that of another step alone", []string{"b"}, register(steps(step("a", waits), step("b"))),
			func(ctx SpecContext) *cluster { return holding(ctx, "other", step("b")) }),
		Entry("not where a step of its name is for another kind", []string{"b"}, register(steps(step("a", waits), step("b", isolated))),
			func(ctx SpecContext) *cluster {
				return holding(ctx, "other", step("a", rules(rule("", "v1", "configmaps", "CREATE")), kind("", "v1", "ConfigMap")))
			}),
		Entry("not where a validating step of its name is in force", []string{"b"}, register(steps(step("a", waits), step("b", isolated))),
			func(ctx SpecContext) *cluster { return holding(ctx, "other", step("a", validating)) }),
		Entry("where it validates and is in force", []string{"a", "b"}, register(steps(step("a", validating, waits), step("b", isolated))),
			func(ctx SpecContext) *cluster { return holding(ctx, "other", step("a", validating)) }),
		Entry("where a build without our annotation has registered its path", []string{"a", "b"}, register(steps(step("a", waits), step("b", isolated))),
			func(ctx SpecContext) *cluster {
				c := holding(ctx, "other", step("x"))
				annotated(c, "")
				return c
			}),
		Entry("where such a build has written another version since, beside the annotation", []string{"a", "b"}, register(steps(step("a", waits), step("b", isolated))),
			func(ctx SpecContext) *cluster {
				c := holding(ctx, "other", step("x"))
				annotated(c, `{"version":"earlier","steps":{}}`)
				return c
			}),
		Entry("not where such a build has registered other paths", []string{"b"}, register(steps(step("a", waits), step("b", isolated))),
			func(ctx SpecContext) *cluster {
				c := holding(ctx, "other", step("b", isolated))
				annotated(c, "garbage")
				return c
			}),
	)

	It("passes nothing for an order, which knows no configuration", func() {
		Expect(names(register(steps(step("a", waits), step("b"))).Desired(nil, nil))).To(Equal([]string{"b"}))
	})

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
		// kept registers r on what stands, twice, and expects the webhook of the step to stay as it is.
		kept := func(ctx SpecContext, c *cluster, r webhookconf.Registration, s webhookconf.Step) {
			GinkgoHelper()
			tree := c.tree() // an edit, and a field of a later API
			for _, w := range tree.Object["webhooks"].([]any) {
				w.(map[string]any)["timeoutSeconds"], w.(map[string]any)["later"] = int64(3), "x"
			}
			c.replace(tree)
			before := webhookOf(c, s)
			Expect(before).NotTo(BeNil())
			for _, bundle := range []string{pem(0, 1), pem(1)} {
				d := r.Desired(found(ctx, c), nil)
				after, _ := put(ctx, mutatingIn(c), trusting(&d, bundle))
				Expect(after.Version).To(Equal(r.Version))
				d = r.Desired(found(ctx, c), nil)
				Expect(after.Intact(d)).To(BeTrue())
				now := webhookOf(c, s)
				Expect(now).NotTo(BeNil())
				for _, w := range []map[string]any{before, now} {
					unstructured.RemoveNestedField(w, "clientConfig", "caBundle")
				}
				Expect(json.Marshal(now)).To(MatchJSON(marshal(before)))
			}
			Expect(c.bundles()).To(HaveEach(pem(1)))
		}

		It("keeps its webhook as it is", func(ctx SpecContext) {
			kept(ctx, holding(ctx, "other", shop(), step("b", isolated)), register(steps(step("b", isolated)), shop()), shop())
		})

		It("keeps its webhook where a build without our annotation has registered it", func(ctx SpecContext) {
			c := holding(ctx, "other", shop(), step("b", isolated))
			annotated(c, "")
			kept(ctx, c, register(steps(step("b", isolated)), shop()), shop())
		})

		It("adds no webhook for it", func(ctx SpecContext) {
			r := register(steps(step("b", isolated)), shop())
			d := r.Desired(found(ctx, holding(ctx, "other", step("b", isolated))), nil)
			Expect(names(d)).To(Equal([]string{"b"}))
			Expect(d.Kept).To(BeEmpty())
		})

		It("keeps no webhook of the other configuration, and none of another name", func(ctx SpecContext) {
			r := register(steps(step("b", isolated)), shop())
			Expect(r.Desired(found(ctx, holding(ctx, "other", shop(validating))), nil).Kept).To(BeEmpty())
			shops := shop()
			shops.Name = "shop-2"
			Expect(r.Desired(found(ctx, holding(ctx, "other", shops)), nil).Kept).To(BeEmpty())
		})

		It("lets its webhook go once it is declared no more", func(ctx SpecContext) {
			c := holding(ctx, "other", shop(), step("b", isolated))
			d := register(steps(step("b", isolated))).Desired(found(ctx, c), nil)
			put(ctx, mutatingIn(c), webhookconf.Change{Entries: &d})
			Expect(c.names()).To(Equal([]string{urlOptions().WebhookName("b")}))
		})
	})

	It("keeps a webhook while another live version declares one of its steps", func(ctx SpecContext) {
		c := holding(ctx, "other", step("gone"), step("b", isolated))
		key := step("gone").Key()
		r := register(steps(step("b", isolated)))
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
			Expect(entries(with(register(steps(step("b", isolated)))))).To(Equal([]string{"b /prefix/mutate/b", "canary /canary", "c /prefix/convert/c"}))
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

	DescribeTable("says which version stands",
		func(ctx SpecContext, expected string, standing ...func(SpecContext) *cluster) {
			var all []webhookconf.Found
			for _, s := range standing {
				all = append(all, found(ctx, s(ctx))...)
			}
			Expect(webhookconf.Standing(all)).To(Equal(expected))
		},
		Entry("none, of no configuration", ""),
		Entry("none, where nothing stands", "", func(SpecContext) *cluster { return newCluster() }),
		Entry("none, of an empty one", "", func(ctx SpecContext) *cluster {
			c := holding(ctx, "one", step("a"))
			c.tamper(blankAll)
			return c
		}),
		Entry("that of the mutating one", "one", func(ctx SpecContext) *cluster { return holding(ctx, "one", step("a")) },
			func(ctx SpecContext) *cluster { return holding(ctx, "two", step("v", validating)) }),
		Entry("that of the validating one, beside a mutating one without entries", "two", func(ctx SpecContext) *cluster {
			c := holding(ctx, "one", step("a"))
			c.tamper(blankAll)
			return c
		}, func(ctx SpecContext) *cluster { return holding(ctx, "two", step("v", validating)) }),
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
