package world

// This file compares the summary of an audit, and the results in its reports, with its findings.

import (
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"code.cloudfoundry.org/eirinix/audit"
)

// sums compares the summary with the findings. The caller holds World.mu.
func (e *examination) sums() {
	type of struct {
		step   string
		result audit.Result
	}
	told, panicked := map[of]int{}, map[of]bool{}
	for _, f := range e.told {
		at := of{f.Step, f.Result}
		told[at]++
		panicked[at] = panicked[at] || strings.Contains(f.Message, "panicked")
	}
	for step, all := range e.summary.Findings {
		for result, n := range all {
			at := of{step, result}
			if n != told[at] && !(panicked[at] && n > told[at]) { // later panics are only counted
				e.breaks("%s counts %d findings %q of step %s, and has told %d", e.name, n, result, step, told[at])
			}
			delete(told, at)
		}
	}
	for at, n := range told {
		e.breaks("%s has told %d findings %q of step %s, and counts none", e.name, n, at.result, at.step)
	}
}

// reported are the results of reports.
var reported = map[audit.Result]string{audit.Denied: "fail", audit.Drift: "warn", audit.Failed: "error"}

// files compares a result in a report with the finding about its object. The caller holds World.mu.
func (e *examination) files(report string, result any) {
	one, _ := result.(map[string]any)
	objects, _ := one["resources"].([]any)
	if len(objects) != 1 {
		e.breaks("%s: a result in the report %s is about %d objects", e.name, report, len(objects))
		return
	}
	tree, _ := objects[0].(map[string]any)
	text := func(of map[string]any, name string) string {
		value, _, _ := unstructured.NestedString(of, name)
		return value
	}
	for _, f := range e.told {
		if f.Step == text(one, "rule") && f.Kind.Kind == text(tree, "kind") && f.Namespace == text(tree, "namespace") && f.Name == text(tree, "name") {
			if is := text(one, "result"); is != reported[f.Result] || text(tree, "uid") != string(f.UID) {
				e.breaks("%s finds %q of %s %s/%s by step %s, and the report %s says %q: %v", e.name, f.Result, f.Kind.Kind, f.Namespace, f.Name, f.Step, report, is, tree)
			}
			return
		}
	}
	if len(e.summary.Gaps) == 0 {
		e.breaks("%s: the report %s holds a result about %v, of which nothing was told", e.name, report, tree)
	}
}
