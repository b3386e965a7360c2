package world

// This file plays seeds in a build with known defects.

import (
	"fmt"
	"strconv"
	"strings"
)

// placesReached returns the known defects at whose places the code was since the last call. The overlay of the build sets it.
var placesReached = func() []string { return nil }

// survey is how all seeds are played, to print which places each one reaches. Otherwise seeds are played until one breaks a promise.
const survey = "survey"

// hunt plays the seeds that how names behind its first word, and n from the first one on. It is run where a defect was put back, or for a
// survey.
func hunt(how []string, n, first int, play func(seed uint64) Result) error {
	seeds := how[1:]
	for i := range n {
		seeds = append(seeds, strconv.Itoa(first+i))
	}
	for i, s := range seeds {
		seed, err := strconv.ParseUint(s, 10, 64)
		if err != nil {
			return fmt.Errorf("%q is no seed: %w", s, err)
		}
		placesReached()
		r := play(seed)
		switch {
		case how[0] == survey && r.Violation == "": // else it would find any defect
			fmt.Println("REACHED", seed, strings.Join(placesReached(), " "))
		case how[0] != survey && r.Violation != "":
			fmt.Printf("FOUND after %d: seed %d: %s\n", i+1, seed, strings.ReplaceAll(r.Violation, "\n", " "))
			return nil
		}
	}
	if how[0] != survey {
		return fmt.Errorf("%d seeds break no promise", len(seeds))
	}
	return nil
}
