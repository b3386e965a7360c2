package main

import (
	"fmt"
	"io"
	"os"
	"strings"
)

// printer writes the demo's own lines. Colour is a matter of the terminal, never of the text.
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

// paint puts text into a colour, or leaves it as it is.
func (p printer) paint(colour, text string) string {
	if !p.colour || colour == "" {
		return text
	}
	return "\x1b[" + colour + "m" + text + "\x1b[0m"
}

// line writes a line. Whether somebody reads it makes no difference to the demo.
func (p printer) line(format string, args ...any) {
	_, _ = fmt.Fprintf(p.w, format+"\n", args...)
}

func (p printer) title(text string) { p.line("%s", p.paint(bold, text)) }

func (p printer) good(text string) { p.line("%s", p.paint(green, text)) }

// fact writes a name and its value in two columns.
func (p printer) fact(name, format string, args ...any) {
	p.line("  %s %s", p.paint(faint, fmt.Sprintf("%-10s", name)), fmt.Sprintf(format, args...))
}

// isTerminal tells whether somebody may be looking. The null device is a character device too.
func isTerminal(f *os.File) bool {
	info, err := f.Stat()
	if err != nil || info.Mode()&os.ModeCharDevice == 0 {
		return false
	}
	null, err := os.Stat(os.DevNull)
	return err != nil || !os.SameFile(info, null)
}

// quote makes one word for a shell of a path.
func quote(path string) string {
	if strings.ContainsAny(path, " \t'\"$`\\&;()<>|*?[]{}~#!") {
		return "'" + strings.ReplaceAll(path, "'", `'\''`) + "'"
	}
	return path
}
