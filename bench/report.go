package main

// This file prints tables and verdicts.

import (
	"fmt"
	"io"
	"strings"
)

// report prints figures as they arrive and repeats the verdicts at the end.
type report struct {
	w        io.Writer
	verdicts []verdict
	skipped  []string
}

// verdict is a ratio with the bound that it must not exceed.
type verdict struct {
	what         string
	value, bound float64
}

func (v verdict) String() string {
	word := "PASS"
	if !v.passed() {
		word = "FAIL"
	}
	return fmt.Sprintf("%s  %-62s %7.3f  (at most %g)", word, v.what, v.value, v.bound)
}

func (v verdict) passed() bool { return v.value <= v.bound }

func (r *report) title(format string, args ...any) {
	text := fmt.Sprintf(format, args...)
	r.line("\n%s\n%s", text, strings.Repeat("-", len(text)))
}

func (r *report) line(format string, args ...any) { _, _ = fmt.Fprintf(r.w, format+"\n", args...) }

// judge prints a verdict at once, because a long run can be interrupted, and again at the end.
func (r *report) judge(value, bound float64, format string, args ...any) {
	v := verdict{fmt.Sprintf(format, args...), value, bound}
	r.verdicts = append(r.verdicts, v)
	r.line("%s", v)
}

func (r *report) skip(what, why string) {
	r.skipped = append(r.skipped, what+": "+why)
	r.line("SKIP  %s: %s", what, why)
}

// summary prints all verdicts and reports whether every one passed.
func (r *report) summary() bool {
	r.title("Summary")
	failed := 0
	for _, v := range r.verdicts {
		r.line("%s", v)
		if !v.passed() {
			failed++
		}
	}
	for _, s := range r.skipped {
		r.line("SKIP  %s", s)
	}
	r.line("%d of %d within bounds", len(r.verdicts)-failed, len(r.verdicts))
	return failed == 0
}

// table prints works side by side, with ratios to one of them.
func (r *report) table(works []*work, base *work) {
	r.line("%-28s %11s %11s %9s   %s", "", "CPU us/op", "KB/op", "allocs/op", "CPU as a ratio to "+base.name+" (quartiles)")
	for _, w := range works {
		x := w.ratioTo(base)
		r.line("%-28s %11.1f %11.1f %9.0f   %.3f (%.3f-%.3f)", w.name, quartiles(w.cpu).median, w.bytes/1024, w.allocs, x.median, x.low, x.high)
	}
}
