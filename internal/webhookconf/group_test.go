package webhookconf_test

// Which steps share a webhook, and so a call of the API server, and what it is called then.

import (
	"fmt"
	"strings"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation"

	"code.cloudfoundry.org/eirinix/internal/webhookconf"
)

// shared says which steps share an entry, as "a,b c".
func shared(steps ...webhookconf.Step) string {
	var all []string
	for _, e := range webhookconf.Group(steps) {
		all = append(all, strings.Join(e.StepNames(), ","))
	}
	return strings.Join(all, " ")
}

var _ = Describe("Group", func() {
	a := metav1.LabelSelectorRequirement{Key: "a", Operator: metav1.LabelSelectorOpIn, Values: []string{"1"}}
	b := metav1.LabelSelectorRequirement{Key: "b", Operator: metav1.LabelSelectorOpIn, Values: []string{"2", "3"}}
	b32 := metav1.LabelSelectorRequirement{Key: "b", Operator: metav1.LabelSelectorOpIn, Values: []string{"3", "2"}}
	yes := admissionregistrationv1.MatchCondition{Name: "yes", Expression: "true"}
	other := admissionregistrationv1.MatchCondition{Name: "other", Expression: "!false"}

	DescribeTable("lets two steps share an entry",
		func(first, second change) {
			Expect(shared(step("a", first), step("b", second))).To(Equal("a,b"))
			Expect(shared(step("b", second), step("a", first))).To(Equal("b,a"))
		},
		Entry("of the same", none, none),
		Entry("of which one has no reinvocationPolicy, validating", validating, func(s *webhookconf.Step) { s.Validating, s.Reinvoke = true, "" }),
		Entry("whose operations differ", none, updates),
		Entry("whose scopes differ", none, func(s *webhookconf.Step) { s.Rules[0].Scope = new(admissionregistrationv1.NamespacedScope) }),
		Entry("with nil and empty objectSelectors", none, objects(&metav1.LabelSelector{MatchLabels: map[string]string{}})),
		Entry("whose timeouts differ", none, func(s *webhookconf.Step) { s.Timeout = time.Second }),
		Entry("with the same namespaceSelector in other words", namespaces(labels1("a", "1")),
			namespaces(&metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{a}})),
		Entry("with the same namespaceSelector in another order", namespaces(&metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{a, b}}),
			namespaces(&metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{b32, a}})),
		Entry("with nil and empty matchConditions", none, conditions()),
		Entry("with the same matchConditions in another order", conditions(yes, other), conditions(other, yes)),
		Entry("that both are clusterCritical", critical, critical),
		Entry("that both ignore failures, of different operations", ignore, func(s *webhookconf.Step) { ignore(s); updates(s) }),
		Entry("of one subresource", func(s *webhookconf.Step) {
			rules(rule("", "v1", "pods/exec", "CONNECT"))(s)
			kind("", "v1", "PodExecOptions")(s)
		},
			func(s *webhookconf.Step) {
				rules(rule("", "v1", "pods/exec", "*"))(s)
				kind("", "v1", "PodExecOptions")(s)
			}),
	)

	DescribeTable("keeps two steps apart",
		func(first, second change) {
			Expect(shared(step("a", first), step("b", second))).To(Equal("a b"))
			Expect(shared(step("b", second), step("a", first))).To(Equal("b a"))
		},
		Entry("of which one validates", none, validating),
		Entry("that both are isolated", isolated, isolated),
		Entry("of different kinds", none, kind("", "v1", "ConfigMap")),
		Entry("of a resource and its subresource, which are one kind", none, rules(rule("", "v1", "pods/ephemeralcontainers", "UPDATE"))),
		Entry("of which one takes in a subresource too", none, rules(rule("", "v1", "pods,pods/ephemeralcontainers", "CREATE"))),
		Entry("without a kind", kind("", "", ""), kind("", "", "")),
		Entry("with the same wildcard resource", rules(rule("", "v1", "*", "CREATE")), rules(rule("", "v1", "*", "CREATE"))),
		Entry("with the same wildcard version", rules(rule("", "*", "pods", "CREATE")), rules(rule("", "*", "pods", "CREATE"))),
		Entry("with the same wildcard group", rules(rule("*", "v1", "pods", "CREATE")), rules(rule("*", "v1", "pods", "CREATE"))),
		Entry("without rules", rules(), rules()),
		Entry("of which one is for part of the other's objects", objects(labels1("a", "1")),
			objects(&metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{a, b}})),
		Entry("with different expressions", conditions(yes), conditions(admissionregistrationv1.MatchCondition{Name: "yes", Expression: "1 == 1"})),
	)

	DescribeTable("never lets a step that ignores failures widen an entry that fails",
		func(expected string, steps ...webhookconf.Step) {
			Expect(shared(steps...)).To(Equal(expected))
		},
		Entry("sharing when both want the same in other words", "f,i",
			step("f", rules(rule("", "v1", "pods", "CREATE,UPDATE"))), step("i", ignore, rules(rule("", "v1", "pods", "UPDATE"), rule("", "v1", "pods", "CREATE")))),
		Entry("apart when the rules differ", "f i", step("f"), step("i", ignore, updates)),
		Entry("apart when it would be narrower", "f i", step("f", rules(rule("", "v1", "pods", "CREATE,UPDATE"))), step("i", ignore)),
		Entry("apart from several that fail and together take in as much", "f,g i",
			step("f"), step("g", updates), step("i", ignore, rules(rule("", "v1", "pods", "CREATE,UPDATE")))),
		Entry("only the one that differs", "f,i j", step("f"), step("i", ignore), step("j", ignore, updates)),
		Entry("together with the others that are apart", "i,j f", step("i", ignore, updates), step("f"), step("j", ignore, rules(rule("", "v1", "pods", "DELETE")))),
	)

	It("has no entries for no steps", func() {
		Expect(webhookconf.Group(nil)).To(BeEmpty())
	})

	It("keeps the order of the steps within an entry, and that of the first steps between entries", func() {
		Expect(shared(step("d", validating), step("c"), step("w", isolated), step("b", validating), step("a"))).To(Equal("d,b c,a w"))
	})

	Describe("an entry", func() {
		only := func(steps ...webhookconf.Step) webhookconf.Entry {
			GinkgoHelper()
			entries := webhookconf.Group(steps)
			Expect(entries).To(HaveLen(1))
			return entries[0]
		}

		It("fails if any of its steps fails", func() {
			Expect(only(step("i", ignore), step("f")).FailurePolicy).To(Equal(admissionregistrationv1.Fail))
			Expect(only(step("f"), step("i", ignore)).FailurePolicy).To(Equal(admissionregistrationv1.Fail))
			Expect(only(step("i", ignore), step("j", ignore)).FailurePolicy).To(Equal(admissionregistrationv1.Ignore))
		})

		seconds := func(n time.Duration) change { return func(s *webhookconf.Step) { s.Timeout = n * time.Second } }

		DescribeTable("has time for all its steps", func(wanted time.Duration, timeouts ...time.Duration) {
			var steps []webhookconf.Step
			for i, n := range timeouts {
				steps = append(steps, step(fmt.Sprintf("step-%d", i), seconds(n)))
			}
			Expect(only(steps...).Timeout).To(Equal(wanted * time.Second))
		},
			Entry("the sum of those that are named", time.Duration(14), time.Duration(3), time.Duration(9), time.Duration(2)),
			Entry("5 s for one that names none", time.Duration(5), time.Duration(0)),
			Entry("5 s for all that name none, together", time.Duration(5), time.Duration(0), time.Duration(0), time.Duration(0)),
			Entry("both", time.Duration(12), time.Duration(0), time.Duration(7), time.Duration(0)),
			Entry("30 s at most", time.Duration(30), time.Duration(25), time.Duration(0)),
		)

		It("is followed by another one where it has no time for a step, in the order of the steps", func() {
			entries := webhookconf.Group([]webhookconf.Step{step("a", seconds(20)), step("b", seconds(11)), step("c", seconds(2)), step("d", seconds(18))})
			Expect(entries).To(HaveExactElements(
				And(HaveField("StepNames()", []string{"a"}), HaveField("Timeout", 20*time.Second)),
				And(HaveField("StepNames()", []string{"b", "c"}), HaveField("Timeout", 13*time.Second)),
				And(HaveField("StepNames()", []string{"d"}), HaveField("Timeout", 18*time.Second))))
			Expect([]string{entries[1].Name, entries[2].Name}).NotTo(ContainElement(entries[0].Name))
			Expect(entries[1].Name).NotTo(Equal(entries[2].Name))
			Expect(webhookconf.Group([]webhookconf.Step{step("a", seconds(20))})[0].Name).To(Equal(entries[0].Name), "it stays when another step comes")
		})

		It("has the selectors that all its steps have", func() {
			x, y := objects(labels1("a", "1")), namespaces(labels1("b", "2"))
			Expect(only(step("a", x, y), step("b", y, x))).To(And(HaveField("Objects", labels1("a", "1")), HaveField("Namespaces", labels1("b", "2"))))
		})

		DescribeTable("has the union of the rules",
			func(first, second []admissionregistrationv1.RuleWithOperations, expected ...string) {
				for _, steps := range [][]webhookconf.Step{
					{step("a", rules(first...)), step("b", rules(second...))},
					{step("b", rules(second...)), step("a", rules(first...))},
				} {
					var found []string
					for _, r := range only(steps...).Rules {
						found = append(found, fmt.Sprintf("%v %v %s", r.Operations, r.Resources, *r.Scope))
					}
					Expect(found).To(Equal(expected))
				}
			},
			Entry("one for one", []admissionregistrationv1.RuleWithOperations{rule("", "v1", "pods", "CREATE")},
				[]admissionregistrationv1.RuleWithOperations{rule("", "v1", "pods", "CREATE")}, "[CREATE] [pods] *"),
			Entry("with the operations merged", []admissionregistrationv1.RuleWithOperations{rule("", "v1", "pods", "UPDATE")},
				[]admissionregistrationv1.RuleWithOperations{rule("", "v1", "pods", "DELETE,CREATE,UPDATE")}, "[CREATE UPDATE DELETE] [pods] *"),
			Entry("with scopes apart", []admissionregistrationv1.RuleWithOperations{rule("", "v1", "pods", "CREATE")},
				[]admissionregistrationv1.RuleWithOperations{scoped(rule("", "v1", "pods", "UPDATE"))}, "[CREATE] [pods] *", "[UPDATE] [pods] Namespaced"),
			Entry("with several resources", []admissionregistrationv1.RuleWithOperations{rule("", "v1", "pods/status,pods", "CREATE")},
				[]admissionregistrationv1.RuleWithOperations{rule("", "v1", "pods", "UPDATE"), rule("", "v1", "pods/status", "UPDATE")},
				"[UPDATE] [pods] *", "[CREATE] [pods pods/status] *", "[UPDATE] [pods/status] *"),
		)
	})
})

var _ = Describe("Sharing", func() {
	seconds := func(n time.Duration) change { return func(s *webhookconf.Step) { s.Timeout = n * time.Second } }

	DescribeTable("names the settings that keep steps of a kind from sharing a call", func(expected string, others ...change) {
		steps := []webhookconf.Step{step("a"), step("b"), step("c", others...)}
		Expect(webhookconf.Sharing(webhookconf.Group(steps))).To(HaveExactElements(
			MatchRegexp(`^a, b share one call, that of webhook pods-[0-9a-f]{8}$`), MatchRegexp(`^c is called apart from webhook pods-[0-9a-f]{8}, because of `+expected+`$`)))
	},
		Entry("the object selector", "Objects", objects(labels1("type", "APP"))),
		Entry("several", "Namespaces, Reinvoke", namespaces(labels1("a", "b")), func(s *webhookconf.Step) { s.Reinvoke = "IfNeeded" }),
		Entry("isolation", "Isolated, .*", isolated),
		Entry("time", "Timeout: .*", seconds(25)),
		Entry("failurePolicy with other rules", "FailurePolicy, .*", ignore, rules(rule("", "v1", "pods", "UPDATE"))),
	)

	It("returns nothing for steps on different kinds", func() {
		steps := []webhookconf.Step{step("a"), step("b", rules(rule("", "v1", "configmaps", "CREATE")), kind("", "v1", "ConfigMap"))}
		Expect(webhookconf.Sharing(webhookconf.Group(steps))).To(BeEmpty())
	})
})

var _ = Describe("Names and paths", func() {
	name := func(s webhookconf.Step) string { return webhookconf.Group([]webhookconf.Step{s})[0].Name }

	DescribeTable("are the same in each version of this library: replicas of two versions serve one configuration",
		func(expectedName, expectedPath string, changes ...change) {
			e := webhookconf.Group([]webhookconf.Step{step("volumes", changes...)})[0]
			Expect(e.Name).To(Equal(expectedName))
			Expect(e.Path).To(Equal(expectedPath))
		},
		Entry("for pods", "pods-06856a3d", "/mutate/pods-06856a3d"),
		Entry("for pods, validating", "pods-41eba629", "/validate/pods-41eba629", validating),
		Entry("for a subresource", "pods-exec-93fc41a1", "/validate/pods-exec-93fc41a1", validating, rules(rule("", "v1", "pods/exec", "CONNECT")), kind("", "v1", "PodExecOptions")),
		Entry("for a step alone", "volumes", "/mutate/volumes", isolated),
		Entry("for a wildcard", "volumes", "/validate/volumes", validating, rules(rule("*", "*", "*/*", "*")), ignore),
	)

	It("do not change when other steps come and go", func() {
		exec := []change{rules(rule("", "v1", "pods/exec", "CONNECT")), kind("", "v1", "PodExecOptions")}
		steps := []webhookconf.Step{
			step("a"), step("b", ignore), step("c", validating), step("d", isolated), step("e", exec...),
			step("f", ifNeeded, ignore), step("g", ifNeeded, ignore, updates), step("h", namespaces(labels1("a", "1"))), step("i", updates, critical),
		}
		for subset := 1; subset < 1<<len(steps); subset++ {
			var some []webhookconf.Step
			for i, s := range steps {
				if subset&(1<<i) != 0 {
					some = append(some, s)
				}
			}
			for _, e := range webhookconf.Group(some) {
				for _, s := range e.Steps {
					Expect(e.Name).To(Equal(name(s)), "%s among %d steps", s.Name, len(some))
				}
			}
		}
	})

	It("differ for steps that are kept apart because they ignore failures; those that fail keep their names", func() {
		entries := webhookconf.Group([]webhookconf.Step{step("f"), step("i", ignore, updates)})
		Expect(entries).To(HaveLen(2))
		Expect(entries[0].Name).To(Equal(name(step("f"))))
		Expect(entries[1].Name).NotTo(Equal(entries[0].Name))
		Expect(entries[1].FailurePolicy).To(Equal(admissionregistrationv1.Ignore))
		more := webhookconf.Group([]webhookconf.Step{step("j", ignore, rules(rule("", "v1", "pods", "DELETE"))), step("g"), step("f"), step("i", ignore, updates)})
		Expect(more).To(HaveExactElements(HaveField("Name", entries[1].Name), HaveField("Name", entries[0].Name)))
	})

	It("differ between groups, of one configuration and of both", func() {
		steps := []webhookconf.Step{step("plain"), step("validating", validating)}
		for name, c := range settingChanges {
			if name != "Rules" && name != "Isolated" && name != "FailurePolicy" && name != "Timeout" {
				steps = append(steps, step(name, c))
			}
		}
		names := map[string]bool{}
		for _, e := range webhookconf.Group(steps) {
			names[e.Name] = true
			Expect(e.Path).To(MatchRegexp("^/(mutate|validate)/" + e.Name + "$"))
		}
		Expect(names).To(HaveLen(len(steps)))
	})

	DescribeTable("are labels, for a resource",
		func(resource string) {
			label := name(step("a", rules(rule("example.org", "v1", resource, "CREATE"))))
			Expect(validation.IsDNS1123Label(label)).To(BeEmpty())
			Expect(label).To(MatchRegexp("[0-9a-f]{8}$"))
		},
		Entry("as usual", "widgets"),
		Entry("of the greatest length", strings.Repeat("w", 63)+"/"+strings.Repeat("s", 63)),
		Entry("cut at a dash", strings.Repeat("w", 53)+"-x"),
		Entry("that is none", "Ä/_"),
	)
})
