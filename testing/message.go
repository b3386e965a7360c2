package eirinixtest

import "strings"

// indented puts a text into a message, below a sentence.
func indented(text string) string {
	return "  " + strings.ReplaceAll(strings.TrimRight(text, "\n"), "\n", "\n  ")
}
