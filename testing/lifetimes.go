package eirinixtest

// This file changes the lifetimes of certificates for tests.

import (
	"time"

	"code.cloudfoundry.org/eirinix"
	"code.cloudfoundry.org/eirinix/internal/seam"
)

// Lifetimes are those of the certificates that a Manager issues. Zero means the default.
type Lifetimes struct {
	Leaf   time.Duration // of serving certificates; default 7 days, renewed in memory after two thirds of it
	Retain time.Duration // how long a replaced CA stays trusted; default Leaf and a tenth of it
}

// SetLifetimes makes certificates of a Manager end sooner than in production, so that a test sees renewals and rotations.
// Call it before the Manager runs. All replicas of a program need the same lifetimes.
func SetLifetimes(m *eirinix.ExtensionManager, l Lifetimes) {
	if p, err := seam.Of(m); err == nil {
		p.SetLifetimes(seam.Lifetimes(l))
	}
}
