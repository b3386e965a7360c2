package modes

// This file parses the entry of one step: lines with a mode and the objects that it is for.

import (
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"

	"code.cloudfoundry.org/eirinix/internal/chain"
)

// everyone is the percentage of a line without one.
const everyone = 100

// line is one line of an entry. Its mode is for the objects in namespaces that the selector selects, and of those for a
// percentage.
type line struct {
	mode     chain.Mode
	percent  float64         // 0 to 100
	selector labels.Selector // nil selects all namespaces, and objects without one
}

// always reports whether the line is for every object.
func (l line) always() bool { return l.percent == everyone && l.selector == nil }

// parse returns the lines of an entry. Its form is
//
//	Deny where team in (a, b)
//	Warn 10%
//	Shadow
//
// Empty lines and those that begin with # are skipped. An error begins with the number of its line.
func parse(text string) (lines []line, err error) {
	for i, text := range strings.Split(text, "\n") {
		if text = strings.TrimSpace(text); text == "" || text[0] == '#' {
			continue
		}
		if len(lines) > 0 && lines[len(lines)-1].always() {
			return nil, fmt.Errorf("line %d: %q is never reached, because the line before it is for all objects; move it up", i+1, text)
		}
		l, err := parseLine(text)
		if err != nil {
			return nil, fmt.Errorf("line %d: %q: %w", i+1, text, err)
		}
		lines = append(lines, l)
	}
	if len(lines) == 0 {
		return nil, fmt.Errorf("line 1: no mode; give %s, or remove the entry", names)
	}
	return lines, nil
}

func parseLine(text string) (l line, err error) {
	word, rest, _ := strings.Cut(text, " ")
	if l.mode, err = modeOf(word); err != nil {
		return l, err
	}
	l.percent, rest = everyone, strings.TrimSpace(rest)
	if word, after, _ := strings.Cut(rest, " "); strings.HasSuffix(word, "%") {
		l.percent, err = strconv.ParseFloat(strings.TrimSuffix(word, "%"), 64)
		if err != nil || math.IsNaN(l.percent) || l.percent < 0 || l.percent > everyone {
			return l, fmt.Errorf("%q is no percentage; give a number from 0%% to 100%%", word)
		}
		rest = strings.TrimSpace(after)
	}
	if rest == "" {
		return l, nil
	}
	word, selector, _ := strings.Cut(rest, " ")
	if word != "where" {
		return l, fmt.Errorf("%q is not understood; give a percentage such as 10%%, or where and a selector of namespaces", word)
	}
	l.selector, err = labels.Parse(selector)
	if err == nil && l.selector.Empty() {
		err = fmt.Errorf("there is no selector after where; give one such as team=payments")
	}
	return l, err
}

const names = "Deny, Warn, Audit or Shadow"

func modeOf(word string) (chain.Mode, error) {
	for _, m := range []chain.Mode{chain.ModeDeny, chain.ModeWarn, chain.ModeAudit, chain.ModeShadow} {
		if strings.EqualFold(word, m.String()) {
			return m, nil
		}
	}
	return 0, fmt.Errorf("%q is no mode; give %s", word, names)
}

// needsLabels reports whether a selector, which is not nil, is about more than the name of the namespace.
func (l line) needsLabels() bool {
	requirements, _ := l.selector.Requirements()
	return slices.ContainsFunc(requirements, func(r labels.Requirement) bool { return r.Key() != corev1.LabelMetadataName })
}
