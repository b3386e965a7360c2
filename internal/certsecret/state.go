// Package certsecret keeps the certificate Secret, the place where replicas agree on one CA: the first
// creates it, the rest adopt it. During a rotation it holds several CAs, and all stand in the bundle, so
// that old and new serving certificates verify. Serving certificates themselves are never stored.
//
// The Secret's resourceVersion is the only lock. Losing a race is normal: read again and adopt. A Secret
// is changed in place and never deleted; what others keep in it (data, labels, annotations) stays.
package certsecret

import (
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/go-logr/logr"
	"k8s.io/apimachinery/pkg/types"

	"code.cloudfoundry.org/eirinix/internal/ca"
)

// FormatVersion is the version of the stored document that this code writes. Every change of the
// document's shape or meaning, however small, increments it: a replica that finds a newer one reads what
// it can and refuses to write, because writing would drop what it does not know.
const FormatVersion = 1

// RotateAnnotation on the Secret asks for a rotation of the CA: each new value that it is given, for one.
const RotateAnnotation = "eirinix.cloudfoundry.org/rotate-ca"

// DistrustAnnotation on the Secret holds the ID of a generation, in decimal: that one and all before it are not to be
// trusted for longer than replicas need to move to the next CA, because a key has leaked. See Store.Distrust.
const DistrustAnnotation = "eirinix.cloudfoundry.org/distrust"

// maxGenerations bounds what is kept of the past, so that the Secret cannot grow without end, and what is read of it.
const maxGenerations = 8

// State is what replicas agree on. It prints without keys. It must not be changed while shared.
type State struct {
	FormatVersion int
	Lineage       string // made with the first CA, and handed down: another one is another deployment's Secret
	Counter       int64  // increases with every write
	Phase         ca.Phase
	Since         time.Time // when the phase began
	CurrentID     int64     // the generation that signs serving certificates
	NextID        int64     // the one that is staged; 0 for none
	Handled       string    // the value of RotateAnnotation that the last rotation was for
	Generations   []Generation

	// RegisteredBundle is the caBundle that was registered last, for replicas that may not read
	// webhook configurations. Empty before the first registration.
	RegisteredBundle []byte

	// Reason says why the CA had to be repaired, restored or made anew. It is not stored.
	Reason string

	// ResourceVersion and UID are those of the Secret in which the state was found or written, Request is its
	// RotateAnnotation, and Distrusted the generation in its DistrustAnnotation, 0 if there is none. Not stored in the state.
	ResourceVersion string
	UID             types.UID
	Request         string
	Distrusted      int64
}

// Requested reports whether the Secret's annotation asks for a rotation that has not been begun.
func (s *State) Requested() bool { return s.Request != "" && s.Request != s.Handled }

// DistrustsOld reports whether a CA that is only retained is one that must not be trusted for long.
func (s *State) DistrustsOld() bool {
	return slices.ContainsFunc(s.Generations, func(g Generation) bool { return !s.inUse(g.ID) && g.ID <= s.Distrusted })
}

// NextBroken reports whether a rotation is staged and its next CA cannot sign. Stage replaces it.
func (s *State) NextBroken() bool {
	if s.Phase != ca.Staged {
		return false
	}
	next := s.generation(s.NextID)
	if next == nil {
		return true
	}
	_, err := next.Authority()
	return err != nil
}

// Generation is one CA: the current one, one that is being rotated in, or one that is still trusted.
type Generation struct {
	ID             int64  // counts up, never used twice
	CertificatePEM []byte // of which only the first certificate counts
	PrivateKeyPEM  []byte `json:"-"` // empty if the CA is only trusted and signs no more
	CrossSigned    []CrossSigned

	read *reading // of the texts above; nil, or of others if they have been changed since
}

// CrossSigned is a certificate of a generation's name and key that another generation issued.
type CrossSigned struct {
	IssuerID       int64
	CertificatePEM []byte
}

// errNoCurrent is what Current says of a state in which no generation signs.
var errNoCurrent = errors.New("no generation is marked as current")

// Current returns the CA that signs serving certificates now, with its cross-signed certificates as its
// chain. Whether it is valid in time is for the caller to ask (ca.Authority.Usable). A state that was found in the Secret
// or written to it returns the same Authority each time, which must not be changed.
func (s *State) Current() (*ca.Authority, error) {
	g := s.generation(s.CurrentID)
	if g == nil {
		return nil, errNoCurrent
	}
	return g.Authority()
}

// Clone returns a deep copy.
func (s *State) Clone() *State {
	c := *s
	c.RegisteredBundle = slices.Clone(s.RegisteredBundle)
	c.Generations = slices.Clone(s.Generations)
	for i := range c.Generations {
		g := &c.Generations[i]
		g.CertificatePEM = slices.Clone(g.CertificatePEM)
		g.PrivateKeyPEM = slices.Clone(g.PrivateKeyPEM)
		g.CrossSigned = slices.Clone(g.CrossSigned)
		for j := range g.CrossSigned {
			g.CrossSigned[j].CertificatePEM = slices.Clone(g.CrossSigned[j].CertificatePEM)
		}
	}
	return &c
}

func (s *State) generation(id int64) *Generation {
	for i := range s.Generations {
		if s.Generations[i].ID == id {
			return &s.Generations[i]
		}
	}
	return nil
}

// install makes an authority the current generation. One that is already known keeps its place.
func (s *State) install(authority *ca.Authority) {
	for i := range s.Generations {
		g := &s.Generations[i]
		certificate, err := g.certificate()
		if err == nil && certificate.Equal(authority.Certificate) {
			g.PrivateKeyPEM = authority.PrivateKeyPEM
			*g = g.mended()
			s.CurrentID = g.ID
			return
		}
	}
	s.CurrentID = s.nextID()
	s.Generations = append(s.Generations, Generation{
		ID:             s.CurrentID,
		CertificatePEM: authority.CertificatePEM,
		PrivateKeyPEM:  authority.PrivateKeyPEM,
	})
}

// forget drops what is of no use any more: unusable parts, and CAs other than the current one that have
// expired or are more than the Secret should hold.
func (s *State) forget(expired func(*x509.Certificate) bool) {
	s.Generations = slices.DeleteFunc(s.Generations, func(g Generation) bool {
		certificate, err := g.certificate()
		return !s.inUse(g.ID) && (err != nil || expired(certificate))
	})
	s.trim()
	for i := range s.Generations {
		s.Generations[i] = s.Generations[i].mended()
	}
}

// trim drops the generations that are more than the Secret should hold: those of others before our own, which have a
// key, oldest first.
func (s *State) trim() {
	for len(s.Generations) > maxGenerations {
		oldest := slices.IndexFunc(s.Generations, func(g Generation) bool { return !s.inUse(g.ID) && len(g.PrivateKeyPEM) == 0 })
		if oldest < 0 {
			oldest = slices.IndexFunc(s.Generations, func(g Generation) bool { return !s.inUse(g.ID) })
		}
		s.Generations = slices.Delete(s.Generations, oldest, oldest+1)
	}
}

func (s *State) inUse(id int64) bool { return id == s.CurrentID || id == s.NextID }

// nextID is higher than any that was used, and than one that is distrusted.
func (s *State) nextID() int64 {
	id := s.Distrusted + 1
	for _, g := range s.Generations {
		id = max(id, g.ID+1)
	}
	return id
}

// String describes the state without keys.
func (s State) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "format %d, counter %d, phase %s, current %d", s.FormatVersion, s.Counter, s.Phase, s.CurrentID)
	for _, g := range s.Generations {
		fmt.Fprintf(&b, ", %s", g)
	}
	return b.String()
}

// String describes the generation without its key.
func (g Generation) String() string {
	name := "unreadable certificate"
	if certificate, err := g.certificate(); err == nil {
		name = fmt.Sprintf("%q valid until %s", certificate.Subject, certificate.NotAfter.UTC().Format(time.RFC3339))
	}
	key := "no key"
	if len(g.PrivateKeyPEM) > 0 {
		key = "key redacted"
	}
	return fmt.Sprintf("generation %d (%s, %d cross-signed, %s)", g.ID, name, len(g.CrossSigned), key)
}

// GoString is String: %#v must not print keys.
func (s State) GoString() string { return s.String() }

// GoString is String: %#v must not print keys.
func (g Generation) GoString() string { return g.String() }

// Format prints String for every verb: %d and %x would otherwise walk the fields.
func (s State) Format(f fmt.State, _ rune) { _, _ = io.WriteString(f, s.String()) }

// Format prints String for every verb: %d and %x would otherwise walk the fields.
func (g Generation) Format(f fmt.State, _ rune) { _, _ = io.WriteString(f, g.String()) }

// MarshalLog is what logr writes.
func (s State) MarshalLog() any { return s.String() }

// MarshalLog is what logr writes.
func (g Generation) MarshalLog() any { return g.String() }

var (
	_ logr.Marshaler = State{}
	_ logr.Marshaler = Generation{}
)
