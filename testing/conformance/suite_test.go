package conformance_test

// This file starts the control plane of the suite, and prints the outcome of each scenario.

import (
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	. "github.com/onsi/ginkgo/v2"
	"github.com/onsi/ginkgo/v2/types"
	. "github.com/onsi/gomega"
	"k8s.io/apimachinery/pkg/version"

	eirinixtest "code.cloudfoundry.org/eirinix/testing"
)

// patience bounds the time that a slow machine may take. A spec that passes does not wait for it.
const patience = 2 * time.Minute

// pollMarker is how often the API server is asked whether it acts on a configuration: its informer takes some
// milliseconds.
const pollMarker = 5 * time.Millisecond

func TestMain(m *testing.M) { os.Exit(eirinixtest.Main(m)) }

func TestConformance(t *testing.T) {
	RegisterFailHandler(Fail)
	SetDefaultEventuallyTimeout(patience)
	RunSpecs(t, "Conformance", Label("api-server"))
}

var (
	started *eirinixtest.ControlPlane // one for the whole suite
	running version.Info              // of its API server
)

var _ = BeforeSuite(func(ctx SpecContext) {
	started = eirinixtest.StartControlPlane(GinkgoTB(), eirinixtest.Shared)
	v, err := clients().Discovery().ServerVersion()
	Expect(err).NotTo(HaveOccurred())
	running = *v
	makeNamespace(ctx, markerNamespace)
})

func controlPlane() *eirinixtest.ControlPlane { return started }

// has reports whether the API server is of this minor release or a newer one. A provider's says 36+.
func has(minor int) bool {
	GinkgoHelper()
	is, err := strconv.Atoi(strings.TrimSuffix(running.Minor, "+"))
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

// scenarios is how many there are: S1 to S22 are the project's end-to-end suite of admission webhooks, S23 to S34 its
// integration tests, S35 and S36 its end-to-end suite of conversion webhooks.
const scenarios = 36

// notRun holds the reasons why scenarios have no spec here.
var notRun = map[string][]int{
	"make upstream plays it":           {1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 12, 13, 14, 15, 16, 17, 18, 19, 20, 21, 22, 35, 36},
	"it is about the API server alone": {27, 28, 29, 31, 32},
}

func reasonFor(scenario int) string {
	for reason, of := range notRun {
		if slices.Contains(of, scenario) {
			return reason
		}
	}
	return ""
}

// tally counts specs by their outcome.
type tally map[string]int

func (t tally) add(spec types.SpecReport) { t[outcome(spec)]++ }

func outcome(spec types.SpecReport) string {
	switch {
	case spec.State == types.SpecStatePassed:
		return "passed"
	case spec.State.Is(types.SpecStateFailureStates):
		return "failed"
	case slices.ContainsFunc(spec.ReportEntries, func(e types.ReportEntry) bool { return e.Name == notPlayable }):
		return notPlayable
	}
	return "skipped"
}

func (t tally) String() string {
	var parts []string
	for _, outcome := range []string{"failed", "passed", "skipped", notPlayable} {
		if t[outcome] > 0 {
			parts = append(parts, fmt.Sprintf("%d %s", t[outcome], outcome))
		}
	}
	return strings.Join(parts, ", ")
}

var _ = ReportAfterSuite("the table of scenarios", func(report Report) {
	specs, all, gaps := report.SpecReports.WithLeafNodeType(types.NodeTypeIt), tally{}, []string{}
	fmt.Println()
	for n := range scenarios {
		scenario, reason, whole := fmt.Sprintf("S%d", n+1), reasonFor(n+1), tally{}
		for _, spec := range specs {
			if slices.Contains(spec.Labels(), scenario) {
				whole.add(spec)
			}
		}
		switch answered := whole["passed"]+whole["failed"]+whole[notPlayable] > 0; {
		case reason != "" && len(whole) == 0:
			fmt.Printf("%s\tnot run: %s\n", scenario, reason)
			continue
		case reason != "":
			gaps = append(gaps, scenario+" has specs, and a reason why it has none: remove one")
		case !answered:
			gaps = append(gaps, scenario+" has no spec that ran, and no reason why there is none")
		}
		fmt.Printf("%s\t%s\n", scenario, whole)
	}
	for _, spec := range specs {
		all.add(spec)
	}
	fmt.Printf("\nKubernetes %s: %s\n", running.GitVersion, all)
	for _, spec := range specs {
		if outcome(spec) == notPlayable {
			fmt.Printf("Kubernetes %s not playable: %s (%s)\n", running.GitVersion, spec.FullText(), spec.Failure.Message)
		}
	}
	c := report.SuiteConfig
	if filtered := report.SuiteHasProgrammaticFocus || c.LabelFilter != "" || c.DryRun || len(c.FocusStrings)+len(c.SkipStrings)+len(c.FocusFiles)+len(c.SkipFiles) > 0; !filtered {
		Expect(gaps).To(BeEmpty())
	}
})
