package world

// This file is a diagnosis of a program at rest.

import (
	"context"
	"slices"
	"time"

	"code.cloudfoundry.org/eirinix"
	"code.cloudfoundry.org/eirinix/diagnosis"
)

// diagnoses has a replica, or a tool on a laptop, diagnose the path to the program. Nothing is wrong, and the canary comes through.
func (w *World) diagnoses() {
	rng := w.stream("diagnosis", 0)
	w.mu.Lock()
	w.watch.diagnosed = time.Now()
	w.mu.Unlock()
	runs := false // a tool lists nothing that steps look at
	finds := func(ctx context.Context, m *eirinix.ExtensionManager) error {
		report := m.Diagnose(ctx)
		if slices.ContainsFunc(w.boxes, func(s boxStep) bool { return s.FixedMode }) {
			if _, refused := report.Find(diagnosis.ModeRefused); !refused {
				w.violate("at rest, a diagnosis does not find that the mode of a step with FixedMode is to be changed: %s", report)
			}
			return nil
		}
		if w.plan.Reads && w.unruled() { // a backup of before the policy has been restored
			if _, missed := report.Find(diagnosis.ReadsNotListed); !missed && runs {
				w.violate("there is no policy, and a diagnosis does not find that: %s", report)
			}
			return nil
		}
		if _, well := report.Find(diagnosis.Healthy); !well && report.Err() == nil {
			w.violate("at rest, a diagnosis finds no problem, and does not say that all is well: %s", report)
		}
		for _, f := range report.Findings {
			if f.Severity == diagnosis.Warning {
				w.violate("at rest, a diagnosis warns: %s", report)
			}
		}
		return report.Err()
	}
	if p := w.any(rng); p != nil && rng.IntN(2) == 0 {
		ctx, cancel := w.ctx()
		defer cancel()
		w.tell(p, "diagnoses itself")
		runs = true
		if err := finds(ctx, p.manager); err != nil {
			w.violate("at rest, %s finds a problem: %v", p, err)
		}
		return
	}
	w.tool("diagnoses "+w.wanted.name, w.wanted, rng, finds)
}
