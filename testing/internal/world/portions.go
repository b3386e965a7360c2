package world

// This file is entries of modes with several percentages. Each object draws one number for all lines, which is the same under each entry
// and for all objects that belong together.

import (
	"fmt"
	"math/rand/v2"

	admissionv1 "k8s.io/api/admission/v1"

	"code.cloudfoundry.org/eirinix"
)

// drawnOf is our knowledge of the number that objects of one name have drawn: it is from the one to below the other.
type drawnOf struct{ from, below float64 }

// mostDrawn is the number of names that draw, and entries the number of the entries under which they do.
const mostDrawn, entriesDrawn = 6, 3

// portions puts a step into modes for portions of the objects, one entry after the other.
func (w *World) portions(rng *rand.Rand) {
	steps := w.common()
	step := steps[rng.IntN(len(steps))]
	defer w.setMode(step, string(eirinix.ModeDeny))
	known := map[string]drawnOf{}
	for range entriesDrawn {
		denies := float64(5 + rng.IntN(80))
		warns := denies + float64(1+rng.IntN(10))
		text := fmt.Sprintf("%s %v%%\n%s %v%%\n%s", eirinix.ModeDeny, denies, eirinix.ModeWarn, warns, eirinix.ModeAudit)
		w.setMode(step, text)
		if !w.wait(2 * inMode) {
			return
		}
		w.mu.Lock()
		mode := w.modes[step]
		w.mu.Unlock()
		if mode.text != text {
			return // another one has changed it
		}
		for n := range mostDrawn {
			of, suffix := fmt.Sprint("portion", n), fmt.Sprintf("%05x", rng.IntN(1<<20))
			pod := podIn("shop", of+"-"+suffix)
			pod.SetLabels(map[string]string{denyLabel: step})
			if pod.SetGenerateName(of + "-"); n%2 == 0 {
				owns(pod, of, suffix)
			}
			s := w.servers[rng.IntN(len(w.servers))]
			if failing, frozen := s.state(); failing != 0 || frozen != nil {
				continue
			}
			began, v, over := w.offers(s, ask{operation: admissionv1.Create, resource: podResource, kind: podKind, object: pod})
			w.mu.Lock()
			if proves := !over && v.failed == nil && w.modes[step] == mode && w.settledSince(mode.since) && w.mustRun(step, began); proves {
				is := drawnOf{warns, 100}
				switch {
				case v.denied != "":
					is = drawnOf{0, denies}
				case v.reports(step, eirinix.ModeWarn, "deny") > 0:
					is = drawnOf{denies, warns}
				case v.reports(step, eirinix.ModeAudit, "deny") == 0: // the step has not run
					is = drawnOf{0, 100}
				}
				before, again := known[of]
				if again {
					is = drawnOf{max(before.from, is.from), min(before.below, is.below)}
				}
				if known[of] = is; is.from >= is.below {
					w.breaks("%s: a pod of %s has drawn from %v to below %v before, and is %s by step %s in the modes %q", s.name, of, before.from, before.below, v, step, mode.text)
				}
			}
			w.mu.Unlock()
		}
	}
}
