package world

// This file plays seeds, and puts known defects back to see that seeds find them.

import (
	"os"
	"runtime"
	"runtime/debug"
	"strings"
	"testing"
	"time"

	"code.cloudfoundry.org/eirinix/testing/internal/world/defects/known"
)

func TestMain(m *testing.M) {
	runtime.GOMAXPROCS(1) // goroutines that can run do so in the same order more often
	debug.SetGCPercent(400)
	os.Exit(m.Run())
}

// TestSeeds plays EIRINIX_SEEDS seeds, from EIRINIX_SEED on. It explains the first ones that break a promise.
func TestSeeds(t *testing.T) {
	n, first := number("EIRINIX_SEEDS", 20), number("EIRINIX_SEED", 0)
	if how := os.Getenv("EIRINIX_HUNT"); how != "" {
		if err := hunt(strings.Split(how, ","), n, first, func(seed uint64, only ...string) Result { return Run(t, Draw(seed, lasts, only...)) }); err != nil {
			t.Error(err)
		}
		return
	}
	var all Counts
	broken, began, struck := 0, time.Now(), map[string]int{}
	for seed := first; seed < first+n; seed++ {
		r := Run(t, Draw(uint64(seed), lasts, kinds()...))
		all.add(r.Counts)
		for _, f := range r.Plan.Faults {
			struck[f.Kind]++
		}
		if os.Getenv("EIRINIX_STORY") != "" {
			t.Log(r.Everything())
		}
		if r.Violation == "" {
			continue
		}
		if broken++; broken <= number("EIRINIX_EXPLAIN", 3) && os.Getenv("EIRINIX_STORY") == "" {
			t.Error(Explain(t, r))
		} else {
			t.Errorf("seed %d: %s", seed, r.Violation)
		}
	}
	t.Logf("%d seeds of %s, %d of which break a promise, in %s: %+v; faults: %v", n, lasts, broken, time.Since(began).Round(time.Second), all, struck)
}

// quick are the defects that are put back in each run of the specs, some with faults of one kind alone. EIRINIX_DEFECTS names
// others, or is "all".
var quick = strings.Fields("leaf-kept leaf-late old-ca-stays=rotation not-backdated=rotation keep-alive leaf-before-bundle=rotation goroutine=namespace ready-early dead-version-kept F1=restore,rotation F4=namespace late-lease-reverts=rollout old-object-kept=load")

// TestDefects puts known defects back, one at a time, into a build of these specs. Seeds must find each.
func TestDefects(t *testing.T) {
	names := quick
	switch chosen := os.Getenv("EIRINIX_DEFECTS"); chosen {
	case "":
	case "all":
		names = nil
		for _, d := range known.All {
			names = append(names, d.Name)
		}
	default:
		names = strings.Split(chosen, ",")
	}
	binary, err := known.Build(t.Context(), "../../..", t.TempDir(), "./testing/internal/world")
	if err != nil {
		t.Fatal(err)
	}
	h := known.Hunt{Binary: binary, Seeds: number("EIRINIX_SEEDS", 1000)}
	if len(names) == len(known.All) {
		if err := h.Survey(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	for _, name := range names {
		name, kinds, _ := strings.Cut(name, "=")
		t.Run(name, func(t *testing.T) {
			found, err := h.Find(t.Context(), name, kinds)
			if err != nil {
				t.Fatal(err)
			}
			t.Log(found)
		})
	}
}
