package world

// This file is the moments at which versions ask each other in the Lease.

import (
	"time"

	"code.cloudfoundry.org/eirinix/internal/rollout"
)

// asksWithin is how long a moment may take to come at which a version is asked: they ask every ten seconds.
const asksWithin = 15 * time.Second

// asks waits until a version is asked, and reports whether one is.
func (w *World) asks() bool {
	for end := time.Now().Add(asksWithin); time.Now().Before(end) && w.wait(20*time.Millisecond); {
		lease := w.find("Lease", namespace, fingerprint+"-versions")
		if lease == nil {
			return false
		}
		alive, asked := 0, false
		for _, r := range rollout.Read(lease.GetAnnotations()) {
			if !r.Removed {
				alive++
				asked = asked || r.Probed > r.Answered
			}
		}
		if alive < 2 || asked {
			return asked
		}
	}
	return false
}
