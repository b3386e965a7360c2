package world

// This file tries a seed that has failed again, and looks for the faults that it takes.

import (
	"fmt"
	"slices"
	"testing"
)

const (
	// replays is how often a plan that has failed is played again, to see how surely it fails.
	replays = 5

	// tries is how often a smaller plan is played before it counts as one that holds.
	tries = 2
)

// Replay plays the plan of a result again, and returns how many of the runs break a promise.
func Replay(t *testing.T, r Result) (broken int) {
	for range replays {
		if Run(t, r.Plan).Violation != "" {
			broken++
		}
	}
	return broken
}

// Shrink leaves out faults for as long as a promise breaks.
func Shrink(t *testing.T, r Result) Result {
	for i := 0; i < len(r.Plan.Faults); {
		smaller := r.Plan
		smaller.Faults = slices.Delete(slices.Clone(r.Plan.Faults), i, i+1)
		if found := until(t, smaller); found.Violation != "" {
			r = found
		} else {
			i++
		}
	}
	return r
}

func until(t *testing.T, p Plan) (r Result) {
	for range tries {
		if r = Run(t, p); r.Violation != "" {
			break
		}
	}
	return r
}

// Explain plays a failure again, shrinks it, and tells it.
func Explain(t *testing.T, r Result) string {
	again := Replay(t, r)
	small := Shrink(t, r)
	return fmt.Sprintf("seed %d: %s\nIt breaks in %d of %d replays. It takes %d of its %d faults:\n%s",
		r.Plan.Seed, r.Violation, again, replays, len(small.Plan.Faults), len(r.Plan.Faults), small.Story())
}
