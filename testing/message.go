package eirinixtest

// This file formats the messages of failed checks.

import "strings"

// indented indents a text, to be shown below a sentence of a message.
func indented(text string) string {
	return "  " + strings.ReplaceAll(strings.TrimRight(text, "\n"), "\n", "\n  ")
}
