package audit

// This file prints findings as text, and the progress.

import (
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"text/tabwriter"
	"unicode"
)

// maxShown is how many findings of one step and result are listed without -all.
const maxShown = 20

// key identifies the findings that are counted together.
type key struct {
	step   string
	result Result
}

// textPrinter prints text for human readers: a line for each finding, and a table.
type textPrinter struct {
	w     io.Writer
	color bool
	all   bool
	shown map[key]int
}

var (
	results = []Result{Denied, Failed, Drift, Unknown}

	// colors are terminal codes.
	colors = map[Result]string{Denied: "31", Failed: "31", Drift: "33", Unknown: "36"}
)

func (p *textPrinter) paint(color, text string) string {
	if !p.color {
		return text
	}
	return "\x1b[" + color + "m" + text + "\x1b[0m"
}

func (p *textPrinter) begin() error { return nil }

func (p *textPrinter) finding(f Finding) error {
	k := key{f.Step, f.Result}
	p.shown[k]++
	if n := p.shown[k]; !p.all && n > maxShown {
		return nil
	}
	object := ""
	if f.Name != "" {
		object = strings.TrimPrefix(f.Namespace+"/"+f.Name, "/") + " (" + f.Kind.Kind + ")  "
	}
	_, err := fmt.Fprintf(p.w, "%s  %s%s: %s\n", p.paint(colors[f.Result], fmt.Sprintf("%-7s", f.Result)), printable(object), printable(f.Step), printable(f.Text()))
	return err
}

func (p *textPrinter) end(s Summary, failed error) error {
	var b strings.Builder
	for _, k := range slices.SortedFunc(maps.Keys(p.shown), func(a, b key) int { return strings.Compare(a.step+string(a.result), b.step+string(b.result)) }) {
		if more := p.shown[k] - maxShown; more > 0 && !p.all {
			fmt.Fprintf(&b, "%s: %d more %s; -all lists them\n", printable(k.step), more, k.result)
		}
	}
	if len(p.shown) > 0 {
		fmt.Fprintln(&b)
	}
	rows := []string{"asked\tdenied\tfailed\tdrift\tunknown\t  extension"}
	for _, step := range stepsOf(s) {
		row := fmt.Sprintf("%d\t", s.Asked[step])
		for _, r := range results {
			row += fmt.Sprintf("%d\t", s.Findings[step][r])
		}
		rows = append(rows, row+"  "+printable(step))
	}
	table := tabwriter.NewWriter(&b, 0, 0, 2, ' ', tabwriter.AlignRight)
	_, _ = io.WriteString(table, strings.Join(rows, "\n")+"\n")
	_ = table.Flush() // into memory, like the line before
	fmt.Fprintf(&b, "%s were audited", plural(s.Objects, "object"))
	switch _, incomplete := errors.AsType[*IncompleteError](failed); {
	case incomplete:
		fmt.Fprintf(&b, "; the audit is not complete: it has %s\n", plural(len(s.Gaps), "gap"))
	case failed != nil:
		fmt.Fprintf(&b, "; the audit did not finish: %s\n", printable(failed.Error()))
	default:
		fmt.Fprintln(&b)
	}
	_, err := io.WriteString(p.w, b.String())
	return err
}

// printable returns text on one line, and replaces control characters, which a terminal would interpret. Names and
// messages come from untrusted sources.
func printable(text string) string {
	text = strings.Join(strings.FieldsFunc(text, func(r rune) bool { return r == '\n' || r == '\r' }), " ")
	return strings.Map(func(r rune) rune {
		if unicode.IsControl(r) || r == '\u2028' || r == '\u2029' || unicode.Is(unicode.Bidi_Control, r) {
			return unicode.ReplacementChar
		}
		return r
	}, text)
}

// progressEvery is how many objects are between two lines of progress without a terminal.
const progressEvery = 10_000

// progress shows how far an audit is: on a terminal one line that is rewritten, else lines with -v.
type progress struct {
	w        io.Writer
	off      bool
	terminal bool
	verbose  bool
	shown    bool
	next     int
}

func (p *progress) show(a Progress) {
	if p.off || !p.terminal && (!p.verbose || a.Objects < p.next) {
		return
	}
	of := ""
	if a.Remaining >= 0 {
		of = fmt.Sprintf(" of about %d", a.Listed+a.Remaining)
	}
	text := fmt.Sprintf("%s: %d%s; %s, %s", a.Resource.Resource, a.Listed, of, plural(a.Objects, "object"), plural(a.Findings, "finding"))
	if p.terminal {
		_, _ = fmt.Fprintf(p.w, "\r\x1b[K%s", text) // progress that cannot be shown is not missed
		p.shown = true
		return
	}
	p.next = a.Objects + progressEvery
	_, _ = fmt.Fprintln(p.w, text)
}

// hide clears the line, for a line of another kind.
func (p *progress) hide() {
	if p.shown {
		_, _ = fmt.Fprint(p.w, "\r\x1b[K")
		p.shown = false
	}
}
