// Package diff shows the changes between two texts.
package diff

import (
	"fmt"
	"strings"
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
	// best[i][j] is the length of the longest common subsequence of a[i:] and b[j:].
	best := make([][]int32, len(a)+1)
	for i := range best {
		best[i] = make([]int32, len(b)+1)
	}
	for i := len(a) - 1; i >= 0; i-- {
		for j := len(b) - 1; j >= 0; j-- {
			if a[i] == b[j] {
				best[i][j] = best[i+1][j+1] + 1
			} else {
				best[i][j] = max(best[i+1][j], best[i][j+1])
			}
		}
	}
	var all []line
	i, j := 0, 0
	for i < len(a) && j < len(b) {
		switch {
		case a[i] == b[j]:
			all = append(all, line{' ', a[i]})
			i, j = i+1, j+1
		case best[i+1][j] >= best[i][j+1]:
			all = append(all, line{'-', a[i]})
			i++
		default:
			all = append(all, line{'+', b[j]})
			j++
		}
	}
	all = append(all, marked('-', a[i:])...)
	return append(all, marked('+', b[j:])...)
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
