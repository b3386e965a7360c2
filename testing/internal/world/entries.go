package world

// This file is entries of the ConfigMap of modes that are removed one by one, modes of a step that reads, and which steps are registered
// as shadows at rest.

import (
	"math/rand/v2"
	"slices"
	"strings"

	"code.cloudfoundry.org/eirinix"
)

// changer is the name of the step that changes pods beside the one that judges them.
func changer(step string) string {
	if step == reader { // it is alone
		return reader
	}
	return step + "-sets"
}

// changesEntry removes the entry of one step, so that its program's own mode applies, or has a step that reads watch. It returns false
// if it does neither.
func (w *World) changesEntry(rng *rand.Rand) bool {
	switch n := rng.IntN(8); {
	case n < 2:
		var mild []string
		w.mu.Lock()
		for step, m := range w.modes {
			if m.text != "" && m.mode != eirinix.ModeDeny {
				mild = append(mild, step)
			}
		}
		w.mu.Unlock()
		if len(mild) == 0 {
			return false
		}
		slices.Sort(mild)
		w.setMode(mild[rng.IntN(len(mild))], "")
	case n == 2 && w.plan.Reads:
		w.setMode(reader, string([]eirinix.Mode{eirinix.ModeWarn, eirinix.ModeAudit, eirinix.ModeShadow, eirinix.ModeShadow, eirinix.ModeDeny}[rng.IntN(5)]))
	default:
		return false
	}
	return true
}

// shadowed sees that a configuration at rest holds a step as a shadow if all of its objects are in Shadow, and no other one. The caller
// holds mu.
func (w *World) shadowed(kind string, hooks []hook) {
	if !w.plan.Modes || w.plan.Split || w.wanted.judges || len(hooks) == 0 {
		return
	}
	for _, step := range w.wanted.steps {
		if kind == configurations[0] {
			step = changer(step)
		} else if step == reader {
			continue
		}
		m := w.modes[step]
		if w.declaresModes(step) || w.misspelt(m) || strings.Contains(m.text, "%") {
			continue
		}
		lines := strings.Split(m.text, "\n")
		other := func(line string) bool { return !strings.HasPrefix(line, string(eirinix.ModeShadow)) }
		all := !slices.ContainsFunc(lines, other) && lines[len(lines)-1] == string(eirinix.ModeShadow)
		if is := slices.Contains(hooks[0].shadows, step); is != all {
			w.breaks("at rest, step %s is a shadow in the %s: %t, and its mode is %q", step, kind, is, m.text)
		}
	}
}
