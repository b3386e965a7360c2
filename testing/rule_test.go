package eirinixtest_test

// This file specifies Validation.Rule: which updates of objects that are older than a rule it admits.

import (
	"context"
	"slices"
	"strings"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"code.cloudfoundry.org/eirinix"
	. "code.cloudfoundry.org/eirinix/internal/spectest"
	eirinixtest "code.cloudfoundry.org/eirinix/testing"
)

// noLatest wants a version of each image, and an owner in the annotations.
func noLatest(_ context.Context, _ *eirinix.Call, p *appsv1.Deployment) error {
	var faults field.ErrorList
	for i, c := range p.Spec.Template.Spec.Containers {
		if strings.HasSuffix(c.Image, ":latest") {
			faults = append(faults, field.Invalid(field.NewPath("spec", "template", "spec", "containers").Index(i).Child("image"), c.Image, "names no version"))
		}
	}
	if p.Annotations["owner"] == "" {
		faults = append(faults, field.Required(field.NewPath("metadata", "annotations").Key("owner"), "name an owner"))
	}
	return eirinix.Invalid(faults)
}

// withImages is a Deployment with a container of each "name=image", owned by a team.
func withImages(all ...string) *appsv1.Deployment {
	p := &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Name: "p", Namespace: "default", Annotations: map[string]string{"owner": "team"}}}
	p.Spec.Selector = &metav1.LabelSelector{MatchLabels: map[string]string{"app": "p"}}
	p.Spec.Template.Labels = p.Spec.Selector.MatchLabels
	for _, one := range all {
		name, image, _ := strings.Cut(one, "=")
		p.Spec.Template.Spec.Containers = append(p.Spec.Template.Spec.Containers, corev1.Container{Name: name, Image: image})
	}
	return p
}

func tiered(p *appsv1.Deployment) *appsv1.Deployment {
	metav1.SetMetaDataLabel(&p.ObjectMeta, "tier", "1")
	return p
}

func ownerless(p *appsv1.Deployment) *appsv1.Deployment {
	p.Annotations = nil
	return p
}

// raw is a Deployment whose first container has a member that its Go type does not know.
func raw(p *appsv1.Deployment, value string) *unstructured.Unstructured {
	GinkgoHelper()
	o := &unstructured.Unstructured{Object: Must(runtime.DefaultUnstructuredConverter.ToUnstructured(p))}
	o.SetAPIVersion("apps/v1")
	o.SetKind("Deployment")
	containers, _, err := unstructured.NestedFieldNoCopy(o.Object, "spec", "template", "spec", "containers")
	Expect(err).NotTo(HaveOccurred())
	containers.([]any)[0].(map[string]any)["unknown"] = value
	return o
}

var _ = Describe("A Rule", func() {
	update := func(rule func(context.Context, *eirinix.Call, *appsv1.Deployment) error, before, after any) *eirinixtest.Result {
		GinkgoHelper()
		v := eirinix.Validation[*appsv1.Deployment]{ID: "rule", Rule: rule}
		return eirinixtest.NewHarness(GinkgoTB(), v).Update(before, after)
	}
	stillViolates := And(eirinixtest.BeAllowed(), eirinixtest.HaveWarned("it still violates, as before this change: "))

	It("judges each object that is created, and no object that is deleted", func() {
		h := eirinixtest.NewHarness(GinkgoTB(), eirinix.Validation[*appsv1.Deployment]{ID: "rule", Rule: noLatest})
		Expect(h.Create(withImages("a=app:latest"))).To(eirinixtest.BeDenied().WithMessage("names no version"))
		Expect(h.Create(withImages("a=app:1"))).To(eirinixtest.BeAllowed())
		Expect(h.Delete(withImages("a=app:latest"))).To(And(eirinixtest.BeAllowed(), HaveField("Calls", BeEmpty())))
	})

	DescribeTable("admits an update that leaves an old violation as it was:", func(before, after any) {
		Expect(update(noLatest, before, after)).To(And(stillViolates, HaveField("Steps", HaveLen(1))), "it ran on the new object")
	},
		Entry("a label", withImages("a=app:latest"), tiered(withImages("a=app:latest"))),
		Entry("an edit elsewhere", withImages("a=app:latest", "b=b:1"), withImages("a=app:latest", "b=b:2")),
		Entry("items in another order", withImages("a=app:latest", "b=b:1"), withImages("b=b:1", "a=app:latest")),
		Entry("an item before it", withImages("a=app:latest"), withImages("new=n:1", "a=app:latest")),
		Entry("one of two that is mended", withImages("a=app:latest", "b=b:latest"), withImages("a=app:latest", "b=b:2")),
		Entry("a member that is missing, as before", ownerless(withImages("a=app:1")), tiered(ownerless(withImages("a=app:2")))),
	)

	DescribeTable("refuses a violation that is new, or touched:", func(before, after any, message string) {
		Expect(update(noLatest, before, after)).To(eirinixtest.BeDenied().WithMessage(message))
	},
		Entry("a violation", withImages("a=app:1"), withImages("a=app:latest"), `"app:latest"`),
		Entry("another one beside an old one", withImages("a=app:latest", "b=b:1"), withImages("a=app:latest", "b=b:latest"), `"b:latest"`),
		Entry("one that moves to another item", withImages("a=app:latest", "b=app:1"), withImages("a=app:1", "b=app:latest"), "containers[1]"),
		Entry("an item that violates like an old one", withImages("a=app:latest"), withImages("a=app:latest", "b=app:latest"), "containers[1]"),
		Entry("a value that changes and still violates", withImages("a=app:latest"), withImages("a=other:latest"), `"other:latest"`),
		Entry("a member that is taken away", withImages("a=app:1"), ownerless(withImages("a=app:1")), "name an owner"),
	)

	It("compares also members that the Go type does not know", func() {
		pinned := func(_ context.Context, _ *eirinix.Call, p *appsv1.Deployment) error {
			return eirinix.Invalid(field.ErrorList{field.Invalid(field.NewPath("spec", "template", "spec", "containers").Index(0), p.Spec.Template.Spec.Containers[0].Name, "is bad")})
		}
		Expect(update(pinned, raw(withImages("a=app:1"), "x"), raw(tiered(withImages("a=app:1")), "x"))).To(stillViolates)
		Expect(update(pinned, raw(withImages("a=app:1"), "x"), raw(withImages("a=app:1"), "y"))).To(eirinixtest.BeDenied())
	})

	It("compares all but metadata and status where a denial names no field", func() {
		small := func(_ context.Context, c *eirinix.Call, p *appsv1.Deployment) error {
			c.Warn("judged")
			return eirinix.Deny("%d containers", len(p.Spec.Template.Spec.Containers))
		}
		Expect(update(small, withImages("a=app:1"), tiered(withImages("a=app:1")))).To(And(stillViolates, HaveField("Warnings", HaveLen(2))), "of the new object alone")
		Expect(update(small, withImages("a=app:1"), withImages("a=app:2"))).To(eirinixtest.BeDenied())
		Expect(update(small, withImages("a=app:1"), withImages("a=app:1", "b=b:1"))).To(eirinixtest.BeDenied())
	})

	It("finds in the request the object that it judges", func() {
		unknown := func(_ context.Context, c *eirinix.Call, p *appsv1.Deployment) error {
			if strings.Contains(string(c.Object.Raw), `"unknown":"strict"`) && p.Labels["tier"] == "" {
				return eirinix.Invalid(field.ErrorList{field.Required(field.NewPath("metadata", "labels").Key("tier"), "name one")})
			}
			return nil
		}
		Expect(update(unknown, raw(withImages("a=app:1"), "lax"), raw(withImages("a=app:1"), "strict"))).To(eirinixtest.BeDenied())
		Expect(update(unknown, raw(withImages("a=app:1"), "strict"), raw(withImages("a=app:2"), "strict"))).To(stillViolates)
	})

	It("judges both objects for the user who sends the update", func() {
		admins := func(_ context.Context, c *eirinix.Call, p *appsv1.Deployment) error {
			if p.Spec.Paused && !slices.Contains(c.UserInfo.Groups, "admins") {
				return eirinix.Invalid(field.ErrorList{field.Forbidden(field.NewPath("spec", "paused"), "is for admins")})
			}
			return nil
		}
		paused := func(is bool) *appsv1.Deployment {
			d := withImages("a=app:1")
			d.Spec.Paused = is
			return d
		}
		h := eirinixtest.NewHarness(GinkgoTB(), eirinix.Validation[*appsv1.Deployment]{ID: "rule", Settings: eirinix.Settings{DependsOnUser: true}, Rule: admins})
		admin, tenant := eirinixtest.AsUser("ann", "admins"), eirinixtest.AsUser("tom")
		Expect(h.Update(paused(false), paused(true), admin)).To(And(eirinixtest.BeAllowed(), HaveField("Warnings", BeEmpty())))
		Expect(h.Update(paused(false), paused(true), tenant)).To(eirinixtest.BeDenied())
		Expect(h.Update(paused(true), tiered(paused(true)), tenant)).To(stillViolates)
		Expect(h.Update(paused(true), paused(false), tenant)).To(eirinixtest.BeAllowed())
	})

	It("refuses where it cannot judge the old object, also under Ignore, and where it names a field that is none", func() {
		for _, fails := range []func(*appsv1.Deployment) error{
			func(*appsv1.Deployment) error { panic("old") },
			func(*appsv1.Deployment) error { return context.Canceled },
		} {
			v := eirinix.Validation[*appsv1.Deployment]{ID: "rule", Settings: eirinix.Settings{FailurePolicy: "Ignore"}, Rule: func(_ context.Context, _ *eirinix.Call, p *appsv1.Deployment) error {
				if p.Labels["tier"] == "" {
					return fails(p)
				}
				return eirinix.Deny("no")
			}}
			Expect(eirinixtest.NewHarness(GinkgoTB(), v).Update(withImages("a=app:1"), tiered(withImages("a=app:1")))).To(eirinixtest.BeDenied())
		}
		for _, path := range []string{"", "spec.template.spec.containers", "spec.template.spec.containers[7].image", "spec.template.spec.containers[x]", "spec.template.spec.containers[-1]", "spec.unknown[-1]", "spec.template.spec.containrs", "spec.template..spec", "spec.template.spec.containers[0", "spec.template.spec.containers.0"} {
			named := func(_ context.Context, _ *eirinix.Call, p *appsv1.Deployment) error {
				return eirinix.Invalid(field.ErrorList{{Type: field.ErrorTypeInvalid, Field: path, Detail: "is bad"}})
			}
			Expect(update(named, withImages("a=app:1"), tiered(withImages("a=app:2")))).To(eirinixtest.BeDenied(), path)
		}
	})

	It("is not deceived by a Rule that changes its object", func() {
		changes := func(_ context.Context, _ *eirinix.Call, p *appsv1.Deployment) error {
			p.Spec.Template.Spec.Containers[0].Image = "same"
			return eirinix.Invalid(field.ErrorList{field.Invalid(field.NewPath("spec", "template", "spec", "containers").Index(0).Child("image"), "same", "is bad")})
		}
		Expect(update(changes, withImages("a=app:1"), withImages("a=app:2"))).To(eirinixtest.BeDenied())
	})

	It("runs beside Update, and both are heard", func() {
		v := eirinix.Validation[*appsv1.Deployment]{ID: "rule", Rule: noLatest, Update: func(_ context.Context, _ *eirinix.Call, o, n *appsv1.Deployment) error {
			if o.Labels["tier"] != n.Labels["tier"] {
				return eirinix.Deny("the tier is fixed")
			}
			return nil
		}}
		h := eirinixtest.NewHarness(GinkgoTB(), v)
		Expect(h.Update(withImages("a=app:1"), withImages("a=app:2"))).To(eirinixtest.BeAllowed())
		Expect(h.Update(withImages("a=app:1"), tiered(withImages("a=app:2")))).To(eirinixtest.BeDenied().WithMessage("the tier is fixed"))
		Expect(h.Update(withImages("a=app:1"), tiered(withImages("a=app:latest")))).
			To(And(eirinixtest.BeDenied().WithMessage("the tier is fixed; "), eirinixtest.BeDenied().WithMessage("names no version")))
		Expect(h.Create(withImages("a=app:latest"))).To(eirinixtest.BeDenied())
	})
})

var _ = Describe("CheckUpdatable", func() {
	classic := func(settings eirinix.Settings, rule func(context.Context, *eirinix.Call, *appsv1.Deployment) error) any {
		return eirinix.Validation[*appsv1.Deployment]{
			ID: "rule", Settings: settings, Create: rule,
			Update: func(ctx context.Context, c *eirinix.Call, _, p *appsv1.Deployment) error { return rule(ctx, c, p) },
		}
	}
	ruled := func(settings eirinix.Settings, rule func(context.Context, *eirinix.Call, *appsv1.Deployment) error) any {
		return eirinix.Validation[*appsv1.Deployment]{ID: "rule", Settings: settings, Rule: rule}
	}
	finalized := func() *appsv1.Deployment {
		d := withImages("a=app:latest")
		d.Finalizers = []string{"example.org/first", "example.org/second"}
		return d
	}
	every := eirinix.Settings{EveryUpdate: true}
	plain := func(context.Context, *eirinix.Call, *appsv1.Deployment) error { return eirinix.Deny("never") }

	It("passes a Rule, and so does CheckProperties of an object that it refuses", func() {
		for _, step := range []any{ruled(eirinix.Settings{}, noLatest), ruled(every, noLatest), ruled(every, plain)} {
			h := eirinixtest.NewHarness(GinkgoTB(), step, unhurried)
			h.CheckUpdatable(finalized())
			h.CheckProperties(finalized())
		}
	})

	DescribeTable("names what a rule refuses", func(step any, named ...string) {
		for _, check := range []check{(*eirinixtest.Harness).CheckUpdatable, (*eirinixtest.Harness).CheckProperties} {
			failure := failureOf(func(t *fakeTest) { check(eirinixtest.NewHarness(t, step, unhurried), finalized()) })
			Expect(failure).To(And(HavePrefix("eirinixtest: not updatable: "), ContainSubstring("judge the object in Validation.Rule")))
			for _, update := range []string{
				"a label is added", "an annotation is added", "it is stored anew", "its status is written", "another field of its spec changes",
				"finalizer example.org/first is removed", "finalizer example.org/second is removed",
			} {
				Expect(strings.Contains(failure, update)).To(Equal(slices.Contains(named, update)), update)
			}
		}
	},
		Entry("on every update", classic(every, noLatest), "a label is added", "an annotation is added", "it is stored anew",
			"another field of its spec changes", "finalizer example.org/first is removed", "finalizer example.org/second is removed"),
		Entry("on the updates that it sees", classic(eirinix.Settings{}, noLatest), "a label is added", "an annotation is added", "another field of its spec changes"),
		Entry("without a field", classic(eirinix.Settings{}, plain), "a label is added", "an annotation is added"),
		Entry("of the status, too", classic(eirinix.Settings{Rules: []admissionregistrationv1.RuleWithOperations{{
			Operations: ops("CREATE", "UPDATE"), Rule: admissionregistrationv1.Rule{APIGroups: []string{"apps"}, APIVersions: []string{"v1"}, Resources: []string{"deployments", "deployments/status"}},
		}}}, plain), "a label is added", "an annotation is added", "its status is written"),
	)

	It("wants an object that is refused", func() {
		failure := failureOf(func(t *fakeTest) {
			eirinixtest.NewHarness(t, ruled(eirinix.Settings{}, noLatest)).CheckUpdatable(withImages("a=app:1"))
		})
		Expect(failure).To(ContainSubstring("no step refuses the creation of this object"))
	})
})

var _ = Describe("A dying object", func() {
	It("goes, whatever a step says, unless the step sees every update", func() {
		strict := eirinix.Validation[*appsv1.Deployment]{ID: "strict", Update: func(context.Context, *eirinix.Call, *appsv1.Deployment, *appsv1.Deployment) error {
			return eirinix.Deny("never")
		}}
		held := withImages("a=app:1")
		held.Finalizers = []string{"example.org/first", "example.org/second"}
		for _, d := range []*appsv1.Deployment{held, withImages("a=app:1")} { // the latter in the foreground
			result := eirinixtest.NewHarness(GinkgoTB(), strict).Finalize(d)
			Expect(result).To(eirinixtest.BeAllowed())
			Expect(result.Ran("strict")).To(BeFalse())
			Expect(result.Object).To(HaveField("Finalizers", BeEmpty()))
		}
		strict.Settings.EveryUpdate = true
		result := eirinixtest.NewHarness(GinkgoTB(), strict).Finalize(held)
		Expect(result).To(eirinixtest.BeDenied())
		Expect(result.Object).To(HaveField("Finalizers", ConsistOf("example.org/second")))
	})

	It("does not go if its deletion is refused", func() {
		kept := eirinix.Validation[*appsv1.Deployment]{Delete: func(context.Context, *eirinix.Call, *appsv1.Deployment) error { return eirinix.Deny("kept") }}
		Expect(eirinixtest.NewHarness(GinkgoTB(), kept).Finalize(withImages("a=app:1"))).To(eirinixtest.BeDenied())
	})
})
