package chain

// This file runs steps that watch: their denials are reported, and their changes are thrown away.

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
)

// Mode decides about the effect of a step's result. Failures are not results: in every mode, failurePolicy decides on
// them.
type Mode uint8

const (
	ModeDeny   Mode = iota // a denial refuses the request, and changes are made
	ModeWarn               // both are only reported, as warnings
	ModeAudit              // both are only reported, as audit annotations
	ModeShadow             // both are only logged and counted; the step runs after the answer
)

// Bounds of a report. API servers shorten warnings when all of an answer exceed 4,096 bytes
// (k8s.io/apiserver/pkg/endpoints/filters/warning.go).
const (
	maxPaths      = 10
	maxReportText = 1000
)

// watched counts the result of a step that watches: a denial, or the patches that it made. It adds to the answer what the
// step would have done, and logs it. A step in ModeAudit shows the user nothing, so its own warnings are dropped.
func (r *run) watched(i int, of result, d *denial, made [][]byte) {
	s, call, would, what := r.steps[i], &r.calls[i], "", ""
	switch {
	case d != nil:
		of.decision, would, what = decisionWouldDeny, "deny", d.status.Message
	case len(made) > 0:
		of.decision, would, what = decisionWouldPatch, "change", changedPaths(made)
	}
	of.reason = what
	r.decided(i, of)
	if what = strings.ToValidUTF8(what[:min(len(what), maxReportText)], ""); would != "" {
		r.sampled(r.blaming(r.log, s.Name), s.Name+" would "+would, what).Info("would "+would, "mode", of.mode.String(), "reason", what)
		switch of.mode {
		case ModeWarn:
			call.Warn(fmt.Sprintf("step %q would %s this: %s", s.Name, would, what))
		case ModeAudit:
			call.Annotate("would-"+would, s.Name+": "+what)
		}
	}
	warned := len(r.feedback.warnings)
	r.feedback.add(s.Name, call)
	if of.mode == ModeAudit {
		r.feedback.warnings = r.feedback.warnings[:warned]
	}
}

// changedPaths lists the first of the Paths of patches.
func changedPaths(patches [][]byte) string {
	paths := Paths(patches...)
	if more := len(paths) - maxPaths; more > 0 {
		return fmt.Sprintf("%s and %d more", strings.Join(paths[:maxPaths], ", "), more)
	}
	return strings.Join(paths, ", ")
}

// Paths returns each path that the operations of patches change, in order and without values, because those can be secret.
func Paths(patches ...[]byte) (paths []string) {
	for _, operations := range patches {
		var all []struct{ Op, Path, From string }
		if json.Unmarshal(operations, &all) != nil {
			continue // it is a step's own patch that could not be tried
		}
		for _, o := range all {
			if o.Op == "test" {
				continue
			}
			if o.Path != "" {
				paths = append(paths, o.Path)
			}
			if o.From != "" && o.Op == "move" {
				paths = append(paths, o.From)
			}
		}
	}
	slices.Sort(paths)
	return slices.Compact(paths)
}

func (m Mode) String() string { return [...]string{"Deny", "Warn", "Audit", "Shadow"}[m] }
