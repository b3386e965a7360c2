package world

// This file plays seeds in a build with known defects.

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
)

// placesReached returns the known defects at whose places the code was since the last call. The overlay of the build sets it.
var placesReached = func() []string { return nil }

// survey is how all seeds are played, to print which places each one reaches. Otherwise seeds are played until one breaks a promise.
const survey = "survey"

// aRound is how many seeds of all kinds of faults a survey plays before it plays one of each kind.
const aRound = 15

// hunt plays the seeds that how names behind its first word, as "7" or, of faults of one kind, "rollout/7", and n from the first one on.
// It is run where a defect was put back, or for a survey.
func hunt(how []string, n, first int, play func(seed uint64, only ...string) Result) error {
	seeds := how[1:]
	for i := range n {
		seeds = append(seeds, strconv.Itoa(first+i))
		if how[0] == survey && i%aRound == aRound-1 {
			for _, kind := range slices.Sorted(maps.Keys(faults)) {
				seeds = append(seeds, fmt.Sprint(kind, "/", first+i/aRound))
			}
		}
	}
	for i, s := range seeds {
		only := kinds()
		kind, number, of := strings.Cut(s, "/")
		if of {
			only = []string{kind}
		} else {
			number = s
		}
		seed, err := strconv.ParseUint(number, 10, 64)
		if err != nil {
			return fmt.Errorf("%q is no seed: %w", s, err)
		}
		placesReached()
		r := play(seed, only...)
		switch {
		case how[0] == survey && r.Violation == "": // else it would find any defect
			fmt.Printf("REACHED %s,%s\n", s, strings.Join(placesReached(), ","))
		case how[0] != survey && r.Violation != "":
			fmt.Printf("FOUND after %d: seed %s: %s\n", i+1, s, strings.ReplaceAll(r.Violation, "\n", " "))
			return nil
		}
	}
	if how[0] != survey {
		return fmt.Errorf("%d seeds break no promise", len(seeds))
	}
	return nil
}
