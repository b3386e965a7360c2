package serving

// This file remembers which clients were accepted and which were not.

import (
	"crypto/sha256"
	"crypto/x509"
	"fmt"
	"maps"
	"sync"
	"sync/atomic"
	"time"
)

const (
	// maxVerdicts bounds what is remembered of each kind. A cluster has a handful of API servers; whoever
	// shows more certificates than this pays for their verification, as everybody does when the bound is
	// reached and the memory starts anew.
	maxVerdicts = 128

	// refusalLife is how long a refusal is remembered: clocks are set right, and certificates come of age.
	refusalLife = 10 * time.Second
)

// A verdict holds in [from, until). Both bounds are wall clock times.
type verdict struct {
	err         error // nil: accepted
	from, until time.Time
}

// refused is a verdict with its reason, of bounded length: much of it was written by a stranger (and is quoted
// therefore).
func refused(now time.Time, format string, args ...any) *verdict {
	const most = 1000
	reason := fmt.Sprintf(format, args...)
	now = now.Round(0)
	return &verdict{err: fmt.Errorf("%w: %.*s", ErrClientRefused, most, reason), from: now, until: now.Add(refusalLife)}
}

// chainKey identifies the certificates that a client has sent, in their order.
type chainKey [sha256.Size]byte

// keyOf allocates nothing. Intermediates count too: with others, the verdict may be another.
func keyOf(chain []*x509.Certificate) chainKey {
	key := chainKey(sha256.Sum256(chain[0].Raw))
	for _, certificate := range chain[1:] {
		var pair [2 * sha256.Size]byte
		next := sha256.Sum256(certificate.Raw)
		copy(pair[:], key[:])
		copy(pair[sha256.Size:], next[:])
		key = sha256.Sum256(pair[:])
	}
	return key
}

// verdicts is a bounded memory that is read without a lock. Refusals have a place of their own, so that
// strangers cannot push the API server's out. The zero value is empty.
type verdicts struct {
	accepted, refused atomic.Pointer[map[chainKey]*verdict]
	writing           sync.Mutex
}

// get returns the verdict that holds now, or nil.
func (m *verdicts) get(key chainKey, now time.Time) *verdict {
	for _, kind := range [...]*atomic.Pointer[map[chainKey]*verdict]{&m.accepted, &m.refused} {
		known := kind.Load()
		if known == nil {
			continue
		}
		if v := (*known)[key]; v != nil && !now.Before(v.from) && now.Before(v.until) {
			return v
		}
	}
	return nil
}

func (m *verdicts) put(key chainKey, v *verdict) {
	kind := &m.accepted
	if v.err != nil {
		kind = &m.refused
	}
	m.writing.Lock()
	defer m.writing.Unlock()
	next := map[chainKey]*verdict{}
	if last := kind.Load(); last != nil && len(*last) < maxVerdicts {
		next = maps.Clone(*last)
	}
	next[key] = v
	kind.Store(&next)
}
