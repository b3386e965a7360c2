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

// Unified returns a unified diff of two texts; empty if they are equal.
func Unified(fromName, from, toName, to string) string {
	if from == to {
		return ""
	}
	shown := []string{"--- " + fromName, "+++ " + toName}
	return strings.Join(append(shown, hunks(compare(lines(from), lines(to)))...), "\n") + "\n"
}

func lines(text string) []string {
	if text == "" {
		return nil
	}
	return strings.Split(strings.TrimSuffix(text, "\n"), "\n")
}

// compare returns the lines of both texts, each after its mark: kept (" "), removed ("-") or added ("+"). It aligns the
// equal ends first, which are nearly everything in most objects, then the longest common subsequence of the rest.
func compare(a, b []string) (all []string) {
	head, tail := 0, 0
	for head < min(len(a), len(b)) && a[head] == b[head] {
		head++
	}
	for tail < min(len(a), len(b))-head && a[len(a)-1-tail] == b[len(b)-1-tail] {
		tail++
	}
	all = marked(" ", a[:head])
	was, is := a[head:len(a)-tail], b[head:len(b)-tail]
	var common [][2]int
	if len(was)*len(is) <= maxDiffCells {
		common = list.Common(was, is)
	}
	i, j := 0, 0
	for _, c := range common {
		all = append(append(all, marked("-", was[i:c[0]])...), marked("+", is[j:c[1]])...)
		all = append(all, " "+was[c[0]])
		i, j = c[0]+1, c[1]+1
	}
	all = append(append(all, marked("-", was[i:])...), marked("+", is[j:])...)
	return append(all, marked(" ", a[len(a)-tail:])...)
}

func marked(mark string, lines []string) []string {
	return list.Of(lines, func(l string) string { return mark + l })
}

// hunks leaves out the lines that are far from any change.
func hunks(all []string) (shown []string) {
	near := make([]bool, len(all))
	for i, l := range all {
		if l[0] != ' ' {
			for k := max(0, i-contextLines); k <= min(len(all)-1, i+contextLines); k++ {
				near[k] = true
			}
		}
	}
	from, to := 1, 1 // line numbers of the next line on either side
	for i := 0; i < len(all); {
		if !near[i] {
			i, from, to = i+1, from+1, to+1
			continue
		}
		end, removed, added := i, 0, 0
		for ; end < len(all) && near[end]; end++ {
			if all[end][0] != '+' {
				removed++
			}
			if all[end][0] != '-' {
				added++
			}
		}
		shown = append(shown, fmt.Sprintf("@@ -%d,%d +%d,%d @@", from, removed, to, added))
		shown = append(shown, all[i:end]...)
		i, from, to = end, from+removed, to+added
	}
	return shown
}
