package world

// This file is the command of an audit: its text and its exit code agree with the findings.

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"reflect"
	"slices"
	"strings"

	"code.cloudfoundry.org/eirinix"
	"code.cloudfoundry.org/eirinix/audit"
)

// command is an audit by the command line.
type command struct {
	format  string // empty: the audit is run without a command
	drift   bool   // a change counts as a finding
	printed bytes.Buffer
	ran     bool
	err     error
}

// types draws whether a tool audits by the command line.
func (c *command) types(rng *rand.Rand) {
	if rng.IntN(2) == 0 {
		c.format, c.drift = []string{"json", "sarif", "text"}[rng.IntN(3)], rng.IntN(4) == 0
	}
}

// audits runs the audit of a Manager, by its command if there is one.
func (e *examination) audits(ctx context.Context, m *eirinix.ExtensionManager) (summary audit.Summary, err error) {
	if e.command.format == "" {
		return audit.Run(ctx, m, e.options)
	}
	args := []string{"-o", e.command.format, "-v", "-all", "-page-size", fmt.Sprint(e.options.PageSize), fmt.Sprintf("-drift=%t", e.command.drift), fmt.Sprintf("-policy-reports=%t", e.options.PolicyReports)}
	if e.options.Namespace != "" {
		args = append(args, "-n", e.options.Namespace)
	}
	if e.options.PagesPerSecond > 0 {
		args = append(args, "-pages-per-second", fmt.Sprint(e.options.PagesPerSecond))
	}
	for _, step := range e.options.Steps {
		args = append(args, "-step", step)
	}
	e.command.err = audit.Command(ctx, m, args, func(o *audit.CommandOptions) {
		o.Stdout, o.Stderr = &e.command.printed, io.Discard
		run := o.Run
		o.Run = func(ctx context.Context, options audit.Options) (audit.Summary, error) {
			e.command.ran = true
			prints := options.Finding
			options.Finding = func(f audit.Finding) error { return errors.Join(e.options.Finding(f), prints(f)) }
			summary, err = run(ctx, options)
			return summary, err
		}
	})
	if !e.command.ran {
		return summary, e.command.err
	}
	return summary, err
}

// prints compares the text that the command has printed with the findings. The caller holds World.mu.
func (e *examination) prints() {
	c := &e.command
	if c.format == "" {
		return
	}
	if !c.ran {
		e.breaks("%s does not run: %v", e.name, c.err)
		return
	}
	count, want := 0, 0
	for _, all := range e.summary.Findings {
		count += all[audit.Denied] + all[audit.Failed]
		if c.drift {
			count += all[audit.Drift]
		}
	}
	switch {
	case e.err != nil:
		want = 2
	case count > 0:
		want = 1
	}
	if code := audit.ExitCode(c.err); code != want {
		e.breaks("%s has found %d objects that count, its error is %v, and its exit code %d: %v", e.name, count, e.err, code, c.err)
	}
	switch c.format {
	case "json":
		e.printsJSON()
	case "sarif":
		e.printsSARIF()
	default:
		e.printsText()
	}
}

// printsJSON looks at a document for programs.
func (e *examination) printsJSON() {
	var told struct {
		Findings []struct {
			Result, Step, Mode, Operation, Kind, Resource, Namespace, Name, UID, Message string
			Paths                                                                        []string
			Frozen                                                                       bool
		}
		Summary struct {
			Objects int
			Steps   []struct {
				Step                                  string
				Asked, Denied, Failed, Drift, Unknown int
			}
			Gaps []struct{ Step, Resource, Namespace, Reason, Remedy string }
		}
		Error string
	}
	if err := json.Unmarshal(e.command.printed.Bytes(), &told); err != nil || len(told.Findings) != len(e.told) {
		e.breaks("%s has told %d findings, and prints %d (%v): %s", e.name, len(e.told), len(told.Findings), err, e.command.printed.String())
		return
	}
	for i, f := range e.told {
		want := []any{string(f.Result), f.Step, string(f.Mode), string(f.Operation), f.Kind.Kind, f.Resource.Resource, f.Namespace, f.Name, string(f.UID), f.Message, f.Frozen, fmt.Sprint(f.Paths)}
		is := told.Findings[i]
		if got := []any{is.Result, is.Step, is.Mode, is.Operation, is.Kind, is.Resource, is.Namespace, is.Name, is.UID, is.Message, is.Frozen, fmt.Sprint(is.Paths)}; !reflect.DeepEqual(got, want) {
			e.breaks("%s has told %v, and prints %v", e.name, want, got)
		}
	}
	if told.Summary.Objects != e.summary.Objects || len(told.Summary.Gaps) != len(e.summary.Gaps) || (told.Error == "") != (e.err == nil) {
		e.breaks("%s prints %+v, and its summary is %+v, with the error %v", e.name, told.Summary, e.summary, e.err)
	}
	for i, g := range told.Summary.Gaps {
		if is := e.summary.Gaps[min(i, len(e.summary.Gaps)-1)]; g.Step != is.Step || g.Resource != is.Resource.Resource || g.Namespace != is.Namespace || g.Reason != is.Reason || g.Remedy != is.Remedy {
			e.breaks("%s prints the gap %+v, which is %+v", e.name, g, is)
		}
	}
	for _, s := range told.Summary.Steps {
		of := e.summary.Findings[s.Step]
		if s.Asked != e.summary.Asked[s.Step] || s.Denied != of[audit.Denied] || s.Failed != of[audit.Failed] || s.Drift != of[audit.Drift] || s.Unknown != of[audit.Unknown] {
			e.breaks("%s prints of step %s %+v, and its summary has %d, %v", e.name, s.Step, s, e.summary.Asked[s.Step], of)
		}
	}
}

// printsSARIF looks at a log for code scanning, which tells results apart by their fingerprints.
func (e *examination) printsSARIF() {
	var told struct {
		Runs []struct {
			Results []struct {
				RuleID, Level string
				Message       struct{ Text string }
				Locations     []struct {
					PhysicalLocation struct{ ArtifactLocation struct{ URI string } }
				}
				PartialFingerprints map[string]string
			}
			Tool struct {
				Driver struct{ Rules []struct{ ID string } }
			}
			Invocations []struct {
				ExecutionSuccessful        bool
				ToolExecutionNotifications []struct{ Message struct{ Text string } }
			}
		}
	}
	err := json.Unmarshal(e.command.printed.Bytes(), &told)
	if err != nil || len(told.Runs) != 1 || len(told.Runs[0].Results) != len(e.told) || len(told.Runs[0].Invocations) != 1 {
		e.breaks("%s has told %d findings, and prints (%v): %s", e.name, len(e.told), err, e.command.printed.String())
		return
	}
	run, seen := told.Runs[0], map[string]bool{}
	levels := map[audit.Result]string{audit.Denied: "error", audit.Failed: "error", audit.Drift: "warning", audit.Unknown: "note"}
	for i, f := range e.told {
		is := run.Results[i]
		mark := fmt.Sprint(is.PartialFingerprints)
		at := "/" + f.Resource.Resource + "/" + f.Name
		located := len(is.Locations) == 1 && strings.HasSuffix(is.Locations[0].PhysicalLocation.ArtifactLocation.URI, at) && (f.Namespace == "" || strings.Contains(is.Locations[0].PhysicalLocation.ArtifactLocation.URI, "/namespaces/"+f.Namespace+"/"))
		if is.RuleID != f.Step || is.Level != levels[f.Result] || is.Message.Text != f.Text() || located != (f.Name != "") {
			e.breaks("%s has told %+v, and prints %+v", e.name, f, is)
		}
		if f.Name != "" && seen[mark] {
			e.breaks("%s prints two findings with one fingerprint: %+v", e.name, is)
		}
		seen[mark] = true
		if !slices.ContainsFunc(run.Tool.Driver.Rules, func(r struct{ ID string }) bool { return r.ID == f.Step }) {
			e.breaks("%s prints a finding of step %s, which is no rule", e.name, f.Step)
		}
	}
	if is := run.Invocations[0]; is.ExecutionSuccessful != (e.err == nil) || (len(is.ToolExecutionNotifications) == 0) != (e.err == nil) || len(is.ToolExecutionNotifications) < len(e.summary.Gaps) {
		e.breaks("%s ends with %v, and prints %+v", e.name, e.err, is)
	}
}

// printsText looks at the lines for people.
func (e *examination) printsText() {
	text := e.command.printed.String()
	for _, f := range e.told {
		of := ""
		if f.Name != "" {
			of = strings.TrimPrefix(f.Namespace+"/"+f.Name, "/") + " (" + f.Kind.Kind + ")  "
		}
		if line := fmt.Sprintf("%-7s  %s%s: ", f.Result, of, f.Step); !strings.Contains("\n"+text, "\n"+line) {
			e.breaks("%s has told %+v, and prints no line %q: %s", e.name, f, line, text)
		}
	}
	incomplete := strings.Contains(text, "the audit is not complete") || strings.Contains(text, "the audit did not finish")
	if end := fmt.Sprintf("%d object%s audited", e.summary.Objects, cmp.Or(map[int]string{1: " were"}[e.summary.Objects], "s were")); !strings.Contains(text, end) || incomplete != (e.err != nil) {
		e.breaks("%s ends with %v, and %d objects, and prints: %s", e.name, e.err, e.summary.Objects, text)
	}
}
