package webhookconf_test

import (
	"slices"
	"strings"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	"k8s.io/apimachinery/pkg/util/validation"

	"code.cloudfoundry.org/eirinix/internal/webhookconf"
)

var _ = Describe("Names and paths", func() {
	yes := condition("yes", "true")

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

	It("differ between all groups, of one configuration and of both", func() {
		steps := []webhookconf.Step{
			step("a"), step("b", validating), step("c", ifNeeded), step("d", namespaces(labels1("a", "1"))), step("e", critical),
			step("f", ignore, updates), step("g", conditions(yes)), step("h", dry), step("i", exact), step("j", objects(labels1("a", "1"))),
		}
		var names, paths []string
		for _, e := range webhookconf.Group(steps) {
			names, paths = append(names, e.Name), append(paths, e.Path)
		}
		Expect(names).To(HaveLen(len(steps)))
		slices.Sort(names)
		Expect(slices.Compact(names)).To(HaveLen(len(steps)))
		Expect(paths).To(HaveEach(MatchRegexp("^/(mutate|validate)/pods-[0-9a-f]{8}$")))
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
