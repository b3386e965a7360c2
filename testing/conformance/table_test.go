package conformance_test

import (
	"fmt"
	"io"
	"os"
	"slices"
	"strconv"
	"strings"
	"text/tabwriter"

	. "github.com/onsi/ginkgo/v2"
	"github.com/onsi/ginkgo/v2/types"
	. "github.com/onsi/gomega"
)

// scenarios is how many there are: S1 to S22 are the project's end-to-end suite of admission webhooks, S23 to S34 its
// integration tests, S35 and S36 its end-to-end suite of conversion webhooks. S37 and S38 are ours.
const scenarios = 38

// notRun holds the reason why a scenario has no spec here.
var notRun = map[string]string{}

// tally counts the outcomes of a scenario's specs in one mode.
type tally struct{ passed, failed, skipped, unplayable int }

func (t *tally) add(spec types.SpecReport) {
	switch {
	case spec.State == types.SpecStatePassed:
		t.passed++
	case spec.State.Is(types.SpecStateFailureStates):
		t.failed++
	case unplayable(spec) != "":
		t.unplayable++
	default:
		t.skipped++
	}
}

func (t tally) String() string {
	var parts []string
	for _, p := range []struct {
		n       int
		outcome string
	}{{t.failed, "failed"}, {t.passed, "passed"}, {t.skipped, "skipped"}, {t.unplayable, notPlayable}} {
		if p.n > 0 {
			parts = append(parts, fmt.Sprintf("%d %s", p.n, p.outcome))
		}
	}
	return strings.Join(parts, ", ")
}

// row is a line of the table: the tallies by mode, "" being that of specs for which the mode makes no difference.
type row struct {
	scenario string
	by       map[mode]tally
}

func (r row) ran() bool {
	for _, t := range r.by {
		if t.passed+t.failed > 0 {
			return true
		}
	}
	return false
}

// answered reports whether specs ran, or could not because of the API server's version.
func (r row) answered() bool {
	for _, t := range r.by {
		if t.unplayable > 0 {
			return true
		}
	}
	return r.ran()
}

// gap returns the reason why the row is a silent gap; "" if it is none.
func (r row) gap(reasons map[string]string) string {
	switch reason := reasons[r.scenario]; {
	case reason != "" && r.ran():
		return fmt.Sprintf("has specs, and a reason why it has none (%s): remove one", reason)
	case reason != "" || r.answered():
		return ""
	case len(r.by) > 0:
		return "has only specs that were skipped"
	}
	return "has neither a spec nor a reason why there is none"
}

// strays finds the labels that look like a scenario's and are none.
func strays(specs types.SpecReports) []string {
	var found []string
	for _, spec := range specs {
		for _, label := range spec.Labels() {
			number, isNumber := strings.CutPrefix(label, "S")
			n, err := strconv.Atoi(number)
			if isNumber && err == nil && (n < 1 || n > scenarios) && !slices.Contains(found, label) {
				found = append(found, label)
			}
		}
	}
	return found
}

// rowsOf counts the specs by the scenario they are labelled with.
func rowsOf(specs types.SpecReports) []row {
	rows := make([]row, scenarios)
	for i := range rows {
		rows[i] = row{scenario: fmt.Sprintf("S%d", i+1), by: map[mode]tally{}}
	}
	for _, spec := range specs.WithLeafNodeType(types.NodeTypeIt) {
		labels := spec.Labels()
		var in mode
		for _, m := range modes {
			if slices.Contains(labels, string(m)) {
				in = m
			}
		}
		for i := range rows {
			if !slices.Contains(labels, rows[i].scenario) {
				continue
			}
			t := rows[i].by[in]
			t.add(spec)
			rows[i].by[in] = t
		}
	}
	return rows
}

// filtered reports whether only some of the specs were requested.
func filtered(r Report) bool {
	c := r.SuiteConfig
	return r.SuiteHasProgrammaticFocus || c.LabelFilter != "" || c.SemVerFilter != "" || c.DryRun ||
		len(c.FocusStrings)+len(c.SkipStrings)+len(c.FocusFiles)+len(c.SkipFiles) > 0
}

// printTable prints the rows, those without a spec that ran with their reason.
func printTable(out io.Writer, rows []row, reasons map[string]string) {
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	fmt.Fprintf(w, "\nscenario\t%s\t%s\teither\t\n", urlMode, serviceMode)
	for _, r := range rows {
		if reason := reasons[r.scenario]; reason != "" && !r.ran() {
			// Without a tab, so that no column becomes as wide as the reason.
			fmt.Fprintf(w, "%s\tnot run: %s\n", r.scenario, reason)
			continue
		}
		fmt.Fprintf(w, "%s\t%s\t%s\t%s\t\n", r.scenario, r.by[urlMode], r.by[serviceMode], r.by[""])
	}
	w.Flush()
}

var _ = ReportAfterSuite("the table of scenarios", func(report Report) {
	rows := rowsOf(report.SpecReports)
	if filtered(report) {
		rows = slices.DeleteFunc(rows, func(r row) bool { return !r.answered() })
	}
	printTable(os.Stdout, rows, notRun)
	printSummary(os.Stdout, running.GitVersion, report.SpecReports)
	if filtered(report) {
		return
	}
	gaps := []string{}
	for _, label := range strays(report.SpecReports) {
		gaps = append(gaps, label+" is no scenario")
	}
	for _, r := range rows {
		if gap := r.gap(notRun); gap != "" {
			gaps = append(gaps, r.scenario+" "+gap)
		}
	}
	Expect(gaps).To(BeEmpty())
})

var _ = Describe("The table of scenarios", func() {
	spec := func(state types.SpecState, labels ...string) types.SpecReport {
		return types.SpecReport{LeafNodeType: types.NodeTypeIt, State: state, LeafNodeLabels: labels}
	}
	const passed, failed, skipped, pending = types.SpecStatePassed, types.SpecStateFailed, types.SpecStateSkipped, types.SpecStatePending
	reasons := map[string]string{"S3": "it hurts", "S4": "it is over"}

	DescribeTable("sees every gap", func(scenario, gap string) {
		rows := rowsOf(types.SpecReports{
			spec(passed, "S1"), spec(skipped, "S1", "URL"), spec(skipped, "S2", "URL"), spec(pending, "S2", "Service"),
			spec(passed, "S4"), spec(failed, "S5", "URL", "S6"), spec(passed, "S66"),
			tooNew("S8", "it is not there yet"),
		})
		i := slices.IndexFunc(rows, func(r row) bool { return r.scenario == scenario })
		if gap == "" {
			Expect(rows[i].gap(reasons)).To(BeEmpty())
		} else {
			Expect(rows[i].gap(reasons)).To(ContainSubstring(gap))
		}
	},
		Entry("none where a spec passed", "S1", ""),
		Entry("all were skipped or are pending", "S2", "only specs that were skipped"),
		Entry("none where there is a reason", "S3", ""),
		Entry("a reason that is none any more", "S4", "remove one"),
		Entry("none where a spec failed: it fails by itself", "S5", ""),
		Entry("none where a spec covers two", "S6", ""),
		Entry("neither spec nor reason", "S7", "neither"),
		Entry("none where the API server is too old", "S8", ""),
		Entry("the last of them", fmt.Sprintf("S%d", scenarios), "neither"),
	)

	It("sees labels that are no scenario", func() {
		Expect(strays(types.SpecReports{spec(passed, "S1", "Service", "S0"), spec(failed, "S39", "S39"), spec(passed, "S34")})).To(Equal([]string{"S0", "S39"}))
	})
})
