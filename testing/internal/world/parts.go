package world

// This file is versions that lack every step with Fail of a call in which another version has one beside steps with Ignore.

import "math/rand/v2"

// part draws such versions: every second one lacks step b, which shares its call with steps with Ignore alone.
func (w *World) part(rng *rand.Rand) {
	if w.plan.Judges || len(w.releases) < 2 || rng.IntN(3) > 0 {
		return
	}
	for i := range w.releases {
		r := &w.releases[i]
		r.parted = true
		kept := []string{}
		for _, step := range r.steps {
			if step == "b" {
				continue
			}
			if kept = append(kept, step); step == "a" && i%2 == 0 {
				kept = append(kept, "b")
			}
			if step != reader {
				r.isolated[step] = true
			}
		}
		r.steps, r.isolated["b"] = kept, false
	}
	w.wanted = w.releases[0]
}

// fails draws whether a step with Ignore fails on a pod, more often where that matters.
func (w *World) fails(n int) bool {
	return w.releases[0].parted && w.stream("fails", n).IntN(3) == 0
}
