package serving

// This file caches which clients were accepted and which were refused.

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
	// maxVerdicts limits the number of cached verdicts of each kind. A cluster has a handful of API servers. A client
	// with more certificates than this pays for their verification. So does every client when the limit is reached and
	// the cache starts empty again.
	maxVerdicts = 128

	// refusalLife is how long a refusal is cached. Clocks are corrected, and certificates become valid.
	refusalLife = 10 * time.Second
)

// A verdict holds in [from, until). Both bounds are wall clock times.
type verdict struct {
	err         error // nil: accepted
	from, until time.Time
}

// refused returns a verdict with its reason. The reason is limited to 1000 characters and quoted, because an unknown
// client wrote much of it.
func refused(now time.Time, format string, args ...any) *verdict {
	const most = 1000
	reason := fmt.Sprintf(format, args...)
	now = now.Round(0)
	return &verdict{err: fmt.Errorf("%w: %.*s", ErrClientRefused, most, reason), from: now, until: now.Add(refusalLife)}
}

// chainKey identifies the certificates that a client has sent, in their order.
type chainKey [sha256.Size]byte

// keyOf returns the key of a chain and allocates nothing. Intermediates are included, because the verdict can depend on
// them.
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

// verdicts is a bounded cache that is read without a lock. Refusals are stored separately, so that unknown clients
// cannot evict the API server's verdict. The zero value is empty.
type verdicts struct {
	accepted, refused atomic.Pointer[map[chainKey]*verdict]
	writing           sync.Mutex
}

// get returns the verdict that is valid now, or nil.
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
