// Package diff shows the changes between two texts.
package diff

import (
	"fmt"
	"strings"

	"code.cloudfoundry.org/eirinix/internal/list"
)

// contextLines is the number of unchanged lines around a change.
const contextLines = 3

// maxDiffCells bounds the memory of a diff. Objects of more than some thousand lines that differ everywhere are shown
// as one removal and one addition.
const maxDiffCells = 16 << 20

// line is one line of a diff: kept (' '), removed ('-'), added ('+'), or the place of a hunk ('@').
type line struct {
	mark byte
	text string
}

// Unified returns a unified diff of two texts; empty if they are equal.
func Unified(fromName, from, toName, to string) string {
	if from == to {
		return ""
	}
	var b strings.Builder
	fmt.Fprintf(&b, "--- %s\n+++ %s\n", fromName, toName)
	for _, l := range hunks(compare(lines(from), lines(to))) {
		if l.mark == '@' {
			fmt.Fprintln(&b, l.text)
			continue
		}
		fmt.Fprintf(&b, "%c%s\n", l.mark, l.text)
	}
	return b.String()
}

func lines(text string) []string {
	if text == "" {
		return nil
	}
	return strings.Split(strings.TrimSuffix(text, "\n"), "\n")
}

// compare aligns the lines that both texts share. It takes the equal ends first, which are nearly everything in most
// objects, then the longest common subsequence of the rest.
func compare(a, b []string) []line {
	head := 0
	for head < min(len(a), len(b)) && a[head] == b[head] {
		head++
	}
	tail := 0
	for tail < min(len(a), len(b))-head && a[len(a)-1-tail] == b[len(b)-1-tail] {
		tail++
	}
	all := marked(' ', a[:head])
	all = append(all, compareMiddle(a[head:len(a)-tail], b[head:len(b)-tail])...)
	return append(all, marked(' ', a[len(a)-tail:])...)
}

func compareMiddle(a, b []string) []line {
	if len(a)*len(b) > maxDiffCells {
		return append(marked('-', a), marked('+', b)...)
	}
	var all []line
	i, j := 0, 0
	for _, common := range append(list.Common(a, b), [2]int{len(a), len(b)}) {
		all = append(all, marked('-', a[i:common[0]])...)
		all = append(all, marked('+', b[j:common[1]])...)
		if i, j = common[0], common[1]; i < len(a) && j < len(b) {
			all = append(all, line{' ', a[i]})
		}
		i, j = i+1, j+1
	}
	return all
}

func marked(mark byte, lines []string) []line {
	all := make([]line, 0, len(lines))
	for _, l := range lines {
		all = append(all, line{mark, l})
	}
	return all
}

// hunks leaves out the lines that are far from any change.
func hunks(all []line) []line {
	near := make([]bool, len(all))
	for i, l := range all {
		if l.mark != ' ' {
			for k := max(0, i-contextLines); k <= min(len(all)-1, i+contextLines); k++ {
				near[k] = true
			}
		}
	}
	var shown []line
	from, to := 1, 1 // line numbers of the next line on either side
	for i := 0; i < len(all); {
		if !near[i] {
			i, from, to = i+1, from+1, to+1
			continue
		}
		end, removed, added := i, 0, 0
		for ; end < len(all) && near[end]; end++ {
			if all[end].mark != '+' {
				removed++
			}
			if all[end].mark != '-' {
				added++
			}
		}
		shown = append(shown, line{'@', fmt.Sprintf("@@ -%d,%d +%d,%d @@", from, removed, to, added)})
		shown = append(shown, all[i:end]...)
		i, from, to = end, from+removed, to+added
	}
	return shown
}
