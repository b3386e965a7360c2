package known

// This file looks for defects with the specs of worlds, in processes of their own.

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"time"
)

// Hunt looks for defects with a binary that Build has made of the specs of worlds. It runs in their directory.
type Hunt struct {
	Binary string
	Seeds  int // for each defect

	reaching map[string][]string // seeds, and kinds with seeds, by the defect at whose place the code is in them
	played   int                 // the seeds from 0 on that the survey played
}

// mostTime is how long a defect is looked for.
const mostTime = 30 * time.Minute

// Survey plays a fifth of the seeds without a defect, and some with faults of one kind alone, and notes at the places of which defects the
// code is in each. Find then plays the seeds first that reach the place of a defect: no other one can find it.
func (h *Hunt) Survey(ctx context.Context) error {
	n := h.Seeds / 5
	said, err := h.play(ctx, "", "survey", 0, n)
	if err != nil {
		return err
	}
	h.reaching, h.played = map[string][]string{}, n
	for line := range strings.Lines(said) {
		if line, is := strings.CutPrefix(strings.TrimSpace(line), "REACHED "); is {
			words := strings.Split(line, ",")
			for _, name := range words[1:] {
				h.reaching[name] = append(h.reaching[name], words[0])
			}
		}
	}
	return nil
}

// Find puts a defect back, and plays seeds with some kinds of faults, or with all. It returns how it was found, or an error.
func (h *Hunt) Find(ctx context.Context, name, kinds string) (found string, err error) {
	ctx, cancel := context.WithTimeout(ctx, mostTime)
	defer cancel()
	said, err := h.play(ctx, name, strings.Join(append([]string{"hunt"}, h.reaching[name]...), ","), h.played, h.Seeds-h.played, "EIRINIX_FAULTS="+kinds)
	if strings.Contains(said, "blocked goroutines remain") || strings.Contains(said, "all goroutines in bubble are blocked") {
		return "the end of a seed: goroutines remain, or a process that never ends", nil
	}
	for _, crash := range []string{"\nfatal error: ", "\npanic: "} {
		if _, why, ended := strings.Cut(said, crash); ended {
			why, _, _ = strings.Cut(why, "\n")
			return "the process ends: " + why, nil
		}
	}
	_, found, ok := strings.Cut(said, "FOUND ")
	if err != nil || !ok {
		return "", fmt.Errorf("no seed finds the defect %s, whose place %d seeds of the survey reach: %w\n%s", name, len(h.reaching[name]), err, said)
	}
	found, _, _ = strings.Cut(found, "\n")
	return found, nil
}

// play plays n seeds from the first one on, and returns the output.
func (h *Hunt) play(ctx context.Context, name, how string, first, n int, further ...string) (string, error) {
	specs := exec.CommandContext(ctx, h.Binary, "-test.run", "^TestSeeds$", "-test.timeout", "24h") //nolint:gosec // Build made it
	specs.Env = slices.Concat(os.Environ(), []string{"EIRINIX_HUNT=" + how, "EIRINIX_DEFECT=" + name, "EIRINIX_SEED=" + strconv.Itoa(first), "EIRINIX_SEEDS=" + strconv.Itoa(n)}, further)
	said, err := specs.CombinedOutput()
	return string(said), errors.Join(err, context.Cause(ctx))
}
