package main

// This file writes the demo's output.

import (
	"fmt"
	"io"
	"os"
	"strings"
)

// printer writes the demo's own lines. Colour depends only on the terminal, and does not change the text.
type printer struct {
	w      io.Writer
	colour bool
}

const (
	red   = "31"
	green = "32"
	cyan  = "36"
	bold  = "1"
	faint = "2"
)

// paint returns text in a colour, or unchanged if colours are off.
func (p printer) paint(colour, text string) string {
	if !p.colour || colour == "" {
		return text
	}
	return "\x1b[" + colour + "m" + text + "\x1b[0m"
}

// line writes a line. It ignores errors, because the demo goes on even if its output cannot be written.
func (p printer) line(format string, args ...any) {
	_, _ = fmt.Fprintf(p.w, format+"\n", args...)
}

func (p printer) title(text string) { p.line("%s", p.paint(bold, text)) }

func (p printer) good(text string) { p.line("%s", p.paint(green, text)) }

// fact writes a name and its value in two columns.
func (p printer) fact(name, format string, args ...any) {
	p.line("  %s %s", p.paint(faint, fmt.Sprintf("%-10s", name)), fmt.Sprintf(format, args...))
}

// isTerminal reports whether the file can be a terminal. The null device is a character device too, but not a terminal.
func isTerminal(f *os.File) bool {
	info, err := f.Stat()
	if err != nil || info.Mode()&os.ModeCharDevice == 0 {
		return false
	}
	null, err := os.Stat(os.DevNull)
	return err != nil || !os.SameFile(info, null)
}

// quote quotes a path as one word for a shell.
func quote(path string) string {
	if strings.ContainsAny(path, " \t'\"$`\\&;()<>|*?[]{}~#!") {
		return "'" + strings.ReplaceAll(path, "'", `'\''`) + "'"
	}
	return path
}
