package preview

// This file prints results as text for a terminal, and as YAML.

import (
	"cmp"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"unicode"

	"sigs.k8s.io/yaml"

	"code.cloudfoundry.org/eirinix/internal/apiserver"
	"code.cloudfoundry.org/eirinix/internal/diff"
)

// printer prints the results of objects, one after another.
type printer interface {
	object(*result) error
	end(summary) error
}

func between(before, after apiserver.Document) string {
	return diff.Unified("sent", before.YAML(), "admitted", after.YAML())
}

// textPrinter prints text for human readers.
type textPrinter struct {
	w       io.Writer
	color   bool
	secrets bool // whether secrets are shown
}

// The colours are terminal codes, used as git uses them.
const (
	bold   = "1"
	red    = "31"
	green  = "32"
	yellow = "33"
	cyan   = "36"
)

func (p *textPrinter) paint(color, text string) string {
	if !p.color || text == "" {
		return text
	}
	return "\x1b[" + color + "m" + text + "\x1b[0m"
}

func (p *textPrinter) object(s *result) error {
	var b strings.Builder
	line := func(color, format string, args ...any) {
		text := strings.TrimRight(fmt.Sprintf(format, args...), "\n")
		fmt.Fprintf(&b, "  %s\n", strings.ReplaceAll(p.paint(color, printable(text)), "\n", "\n    "))
	}
	fmt.Fprintln(&b, p.paint(bold, printable(s.title())))
	switch o := s.outcome; {
	case o.Denial != nil:
		line(red, "would be denied with %d %s by %s: %s", o.Denial.Code, o.Denial.Reason, s.refusedBy(), strings.TrimPrefix(o.Denial.Message, s.refusedBy()+": "))
		for _, cause := range causes(o.Denial) {
			line(red, "%s: %s", cause.Field, cause.Message)
		}
	case !o.Allowed():
		line(red, "would fail: %v", o.Err)
	case len(o.Calls) == 0:
		line("", "is not sent to this program%s", s.reasons())
	case !s.changed():
		line("", "is allowed, unchanged")
	default:
		line("", "is allowed, changed")
	}
	for _, c := range s.outcome.Calls {
		if c.Ignored {
			line(yellow, "ignored: %v", c.Err)
		}
	}
	for _, w := range s.outcome.Warnings {
		line(yellow, "warning: %s", w)
	}
	for _, key := range slices.Sorted(maps.Keys(s.outcome.AuditAnnotations)) {
		line("", "audit: %s=%s", key, s.outcome.AuditAnnotations[key])
	}
	for _, run := range s.outcome.Steps {
		if run.Round > 0 {
			run.Step += " (again)"
		}
		if text := message(run); text != "" && s.outcome.Denial == nil {
			line("", "ran: %s: %s", run.Step, text)
			continue
		}
		line("", "ran: %s", run.Step)
	}
	for _, what := range s.written() {
		line(yellow, "would write: %s", what)
	}
	for _, what := range s.missed() {
		line(yellow, "not among the manifests: %s", what)
	}
	if s.outcome.Allowed() {
		b.WriteString(p.diff(between(shown(p.secrets, s.outcome.Before, s.outcome.After))))
	}
	_, err := fmt.Fprintln(p.w, b.String())
	return err
}

// reasons returns one line that says why no webhook is called. Each reason appears once, with its webhooks.
func (s *result) reasons() string {
	var all []string
	webhooks := map[string][]string{}
	for _, pass := range s.outcome.Passed {
		why := pass.Why + s.unsure(pass)
		if !slices.Contains(all, why) {
			all = append(all, why)
		}
		if !pass.Rules && !slices.Contains(webhooks[why], pass.Webhook) {
			webhooks[why] = append(webhooks[why], pass.Webhook)
		}
	}
	for i, why := range all {
		if names := webhooks[why]; len(names) > 0 {
			all[i] = strings.Join(names, ", ") + ": " + why
		}
	}
	if len(all) == 0 {
		return ""
	}
	return ": " + strings.Join(all, "; ")
}

// refusedBy returns the step that denied, or the webhook if several steps did or none is known.
func (s *result) refusedBy() string {
	var by string
	for _, run := range s.outcome.Steps {
		if run.Webhook != s.outcome.Denial.Webhook || run.Err == nil || run.Step == by {
			continue
		}
		if by != "" {
			return run.Webhook
		}
		by = run.Step
	}
	return cmp.Or(by, s.outcome.Denial.Webhook)
}

// title describes the request.
func (s *result) title() string {
	verb := strings.ToLower(string(s.Operation))
	what := describe(s.object)
	if namespace := s.namespace; namespace != "" {
		what += " in namespace " + namespace
	}
	if s.of != "" {
		return fmt.Sprintf("%s: %s %s, which %s creates", s.source, verb, what, s.of)
	}
	if s.finalizer != "" {
		return fmt.Sprintf("%s: %s %s, which has been deleted, to remove its finalizer %s", s.source, verb, what, s.finalizer)
	}
	return fmt.Sprintf("%s: %s %s", s.source, verb, what)
}

func (p *textPrinter) diff(text string) string {
	var b strings.Builder
	for l := range strings.Lines(text) {
		l = printable(strings.TrimSuffix(l, "\n"))
		switch {
		case strings.HasPrefix(l, "--- "), strings.HasPrefix(l, "+++ "):
			l = p.paint(bold, l)
		case strings.HasPrefix(l, "@@"):
			l = p.paint(cyan, l)
		case strings.HasPrefix(l, "-"):
			l = p.paint(red, l)
		case strings.HasPrefix(l, "+"):
			l = p.paint(green, l)
		}
		fmt.Fprintf(&b, "  %s\n", l)
	}
	return b.String()
}

// printable replaces control characters, which a terminal would interpret. Manifests can come from untrusted sources.
func printable(text string) string {
	return strings.Map(func(r rune) rune {
		switch {
		case r == '\n', r == '\t':
			return r
		case unicode.IsControl(r), r == '\u2028', r == '\u2029', unicode.Is(unicode.Bidi_Control, r): // line ends for some programs
			return '\uFFFD'
		}
		return r
	}, text)
}

func (p *textPrinter) end(t summary) error {
	parts := []string{fmt.Sprintf("%d changed", t.Changed)}
	color := green
	if t.Denied > 0 {
		parts, color = append(parts, fmt.Sprintf("%d denied", t.Denied)), red
	}
	if t.Failed > 0 {
		parts, color = append(parts, fmt.Sprintf("%d failed", t.Failed)), red
	}
	if t.Ignored > 0 {
		parts = append(parts, plural(t.Ignored, "failure")+" ignored")
	}
	text := p.paint(color, fmt.Sprintf("%s: %s", plural(t.Objects, "object"), strings.Join(parts, ", "))) + "\n"
	for _, unmatched := range t.Unmatched {
		text += p.paint(yellow, "only -old has this object, so it is not updated: "+printable(unmatched)) + "\n"
	}
	for _, e := range t.Empty {
		text += p.paint(yellow, printable(fmt.Sprintf("step %s looks at %s, and there was none: give the objects with -with", e.Step, e.Read))) + "\n"
	}
	_, err := io.WriteString(p.w, text)
	return err
}

// yamlPrinter prints the objects as they would be stored, for programs that read manifests. Objects that are not
// admitted are replaced by a comment.
type yamlPrinter struct {
	w       io.Writer
	written bool
}

func (p *yamlPrinter) object(s *result) error {
	var text string
	switch {
	case s.of != "" || s.finalizer != "": // created or deleted by a controller, so no manifest has it
		return nil
	case !s.outcome.Allowed():
		text = "# " + strings.ReplaceAll(printable(fmt.Sprintf("%s\n%v", s.title(), s.outcome.Err)), "\n", "\n# ") + "\n"
	case s.outcome.After.Absent():
		return nil
	default:
		raw, err := yaml.JSONToYAML(s.outcome.After.Raw)
		if err != nil {
			return fmt.Errorf("%s: %w", s.source, err)
		}
		text = string(raw)
	}
	if p.written {
		text = "---\n" + text
	}
	p.written = true
	_, err := io.WriteString(p.w, text)
	return err
}

func (p *yamlPrinter) end(summary) error { return nil }
