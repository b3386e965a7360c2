package conformance_test

import (
	"fmt"
	"io"
	"strconv"
	"strings"

	. "github.com/onsi/ginkgo/v2"
	"github.com/onsi/ginkgo/v2/types"
	. "github.com/onsi/gomega"
	"k8s.io/apimachinery/pkg/version"
)

// running is the version of the API server that the suite plays against.
var running version.Info

// release is the minor release in it: 36 for v1.36.3.
func release(v version.Info) (int, error) {
	// A provider's says 36+.
	return strconv.Atoi(strings.TrimSuffix(v.Minor, "+"))
}

// has reports whether the API server is of this minor release or a newer one.
func has(minor int) bool {
	GinkgoHelper()
	is, err := release(running)
	Expect(err).NotTo(HaveOccurred())
	return is >= minor
}

// notPlayable names the report entries of specs that an older API server cannot play.
const notPlayable = "not playable"

// needs ends a spec that needs a feature of a newer API server. The table names these specs and the reason.
func needs(minor int, feature string) {
	GinkgoHelper()
	if has(minor) {
		return
	}
	reason := fmt.Sprintf("needs Kubernetes 1.%d: %s", minor, feature)
	AddReportEntry(notPlayable, reason, ReportEntryVisibilityNever)
	Skip(reason)
}

// unplayable returns the reason why the API server could not play a spec; "" if it could, or was not asked.
func unplayable(spec types.SpecReport) string {
	for _, entry := range spec.ReportEntries {
		if entry.Name == notPlayable && spec.State == types.SpecStateSkipped {
			return entry.StringRepresentation()
		}
	}
	return ""
}

// printSummary prints one line with the outcome under the API server's version, and a line for each spec that it
// could not play.
func printSummary(out io.Writer, version string, specs types.SpecReports) {
	var t tally
	var why []string
	for _, spec := range specs.WithLeafNodeType(types.NodeTypeIt) {
		t.add(spec)
		if reason := unplayable(spec); reason != "" {
			why = append(why, fmt.Sprintf("%s not playable: %s (%s)", version, spec.FullText(), reason))
		}
	}
	fmt.Fprintf(out, "\nKubernetes %s: %s\n", version, t)
	for _, line := range why {
		fmt.Fprintln(out, "Kubernetes", line)
	}
}

var _ = Describe("The version of the API server", func() {
	It("reports its features", func() {
		minor, err := release(running)
		Expect(err).NotTo(HaveOccurred())
		Expect(running.GitVersion).To(HavePrefix(fmt.Sprintf("v1.%d.", minor)))
		Expect(has(minor)).To(BeTrue())
		Expect(has(minor - 1)).To(BeTrue())
		Expect(has(minor + 1)).To(BeFalse())
	})

	DescribeTable("is read from its own version", func(minor string, expected int) {
		Expect(release(version.Info{Minor: minor})).To(Equal(expected))
	},
		Entry("a build from the sources", "34", 34),
		Entry("a provider's", "34+", 34),
	)

	It("decides which specs can be played, and the table names the others", func() {
		out := &strings.Builder{}
		printSummary(out, "v1.2.3", types.SpecReports{
			{LeafNodeType: types.NodeTypeIt, State: types.SpecStatePassed},
			{LeafNodeType: types.NodeTypeIt, State: types.SpecStatePassed},
			{LeafNodeType: types.NodeTypeIt, State: types.SpecStateFailed},
			{LeafNodeType: types.NodeTypeIt, State: types.SpecStatePending},
			{LeafNodeType: types.NodeTypeBeforeSuite, State: types.SpecStatePassed},
			tooNew("S1", "needs Kubernetes 1.4: patience"),
		})
		Expect(out.String()).To(Equal("\nKubernetes v1.2.3: 1 failed, 2 passed, 1 skipped, 1 not playable\n" +
			"Kubernetes v1.2.3 not playable: waits (needs Kubernetes 1.4: patience)\n"))
	})
})

// tooNew is the report of a spec that needs ended.
func tooNew(scenario, reason string) types.SpecReport {
	return types.SpecReport{
		LeafNodeType: types.NodeTypeIt, LeafNodeText: "waits", State: types.SpecStateSkipped, LeafNodeLabels: []string{scenario},
		ReportEntries: types.ReportEntries{{Name: notPlayable, Value: types.WrapEntryValue(reason)}},
	}
}
