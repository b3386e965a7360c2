// Package certsecret manages the certificate Secret, through which replicas agree on one CA. The first replica creates
// it and the others adopt it. During a rotation it holds several CAs, all of which are in the bundle, so that old and
// new serving certificates verify. Serving certificates themselves are never stored.
//
// The Secret's resourceVersion is the only lock. Losing a race is normal: read again and adopt. A Secret is changed in
// place and never deleted. Data, labels and annotations of other owners are kept.
package certsecret

import (
	"bytes"
	"cmp"
	"crypto/rand"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"iter"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"code.cloudfoundry.org/eirinix/internal/ca"
)

// FormatVersion is the version of the stored document that this code writes. Every change of the document's shape or
// meaning, however small, increments it. A replica that finds a newer version reads as much as it can and refuses to
// write, because a write would drop the unknown parts.
const FormatVersion = 1

// RotateAnnotation on the Secret requests a rotation of the CA. Each new value requests one.
const RotateAnnotation = "eirinix.cloudfoundry.org/rotate-ca"

// DistrustAnnotation on the Secret holds the ID of a generation, in decimal. That generation and all before it must not
// be trusted for longer than replicas need to move to the next CA, because a key has leaked. While one of them signs, it
// requests a rotation too. See Store.Distrust.
const DistrustAnnotation = "eirinix.cloudfoundry.org/distrust"

// maxGenerations limits the number of generations in the Secret, which thus cannot grow without limit, and of those
// used from it.
const maxGenerations = 8

// State is the state that replicas agree on. It prints without keys. It must not be changed while shared.
type State struct {
	FormatVersion int
	Lineage       string // made with the first CA and inherited; another lineage means another deployment's Secret
	Counter       int64  // increases with every write
	Phase         ca.Phase
	Since         time.Time // when the phase began
	CurrentID     int64     // the generation that signs serving certificates
	NextID        int64     // the staged generation; 0 for none
	Handled       string    // the value of RotateAnnotation that the last rotation was for
	Generations   []Generation

	// RegisteredBundle is the caBundle that was registered last, for replicas that lack permission to read webhook
	// configurations. It is empty before the first registration.
	RegisteredBundle []byte

	// Reason is why the CA was repaired, restored or replaced. It is not stored.
	Reason string

	// ResourceVersion and UID are those of the Secret that the state was read from or written to. Request is its
	// RotateAnnotation. Distrusted is the generation in its DistrustAnnotation, or 0 if there is none. None of them is
	// stored in the state.
	ResourceVersion string
	UID             types.UID
	Request         string
	Distrusted      int64

	document []byte        // under StateKey, as it was read or written
	signer   *ca.Authority // what Current returns; nil before it was parsed
}

// Requested reports whether an annotation of the Secret requests a rotation: RotateAnnotation one that has not started,
// DistrustAnnotation one for as long as a distrusted CA signs.
func (s *State) Requested() bool {
	return s.Request != "" && s.Request != s.Handled || s.Distrusted >= s.CurrentID
}

// DistrustsOld reports whether one of the retained CAs is distrusted, so that it must not stay trusted for long.
func (s *State) DistrustsOld() bool {
	return slices.ContainsFunc(s.Generations, func(g Generation) bool { return !s.inUse(g.ID) && g.ID <= s.Distrusted })
}

// NextBroken reports whether a rotation is staged and its next CA cannot sign, or not yet, as where a clock was set back: every
// replica would put the old one back. Stage replaces such a CA.
func (s *Store) NextBroken(state *State) bool {
	if state.Phase != ca.Staged {
		return false
	}
	next := state.generation(state.NextID)
	if next == nil {
		return true
	}
	authority, err := next.Authority()
	return err != nil || s.usable(authority) != nil
}

// Generation is one CA: the current one, the staged one, or one that is still trusted.
type Generation struct {
	ID             int64  // counts up, never used twice
	CertificatePEM []byte // only the first certificate counts
	PrivateKeyPEM  []byte `json:"-"` // empty if the CA is only trusted and no longer signs
	CrossSigned    []CrossSigned
}

// CrossSigned is a certificate for a generation's name and key, issued by another generation.
type CrossSigned struct {
	IssuerID       int64
	CertificatePEM []byte
}

// certificate returns the first certificate of the generation, which must be a CA certificate.
func (g *Generation) certificate() (*x509.Certificate, error) {
	return ca.ParseCertificate(g.CertificatePEM)
}

// Authority returns the generation as a CA that can sign.
func (g *Generation) Authority() (*ca.Authority, error) {
	authority, err := ca.Parse(g.CertificatePEM, g.PrivateKeyPEM)
	if err != nil {
		return nil, err
	}
	for _, cross := range g.CrossSigned {
		certificate, err := cross.of(authority.Certificate)
		if err != nil {
			return nil, fmt.Errorf("certificate cross-signed by generation %d: %w", cross.IssuerID, err)
		}
		// An adopted CA with path length 0 only vouches for the next one. Their bundles still overlap: an API server that
		// does not refresh its caBundle during the change is not covered this once.
		if certificate.KeyUsage&x509.KeyUsageCertSign != 0 {
			authority.Chain = append(authority.Chain, certificate)
		}
	}
	return authority, nil
}

// of returns the cross-signed certificate if it has this CA's name and key.
func (c *CrossSigned) of(authority *x509.Certificate) (*x509.Certificate, error) {
	certificate, err := ca.ParseCertificate(c.CertificatePEM)
	if err != nil {
		return nil, err
	}
	if !bytes.Equal(certificate.RawSubject, authority.RawSubject) ||
		!bytes.Equal(certificate.RawSubjectPublicKeyInfo, authority.RawSubjectPublicKeyInfo) {
		return nil, errors.New("it is not of this CA's name and key")
	}
	return certificate, nil
}

// mended returns the generation without its unusable parts: a key that does not match the certificate, and cross-signed
// certificates of another name or key.
func (g Generation) mended() Generation {
	authority, err := ca.Parse(g.CertificatePEM, g.PrivateKeyPEM)
	if err != nil {
		g.PrivateKeyPEM, g.CrossSigned = nil, nil
		return g
	}
	g.CertificatePEM, g.PrivateKeyPEM = authority.CertificatePEM, authority.PrivateKeyPEM
	g.CrossSigned = slices.DeleteFunc(slices.Clone(g.CrossSigned), func(c CrossSigned) bool {
		_, err := c.of(authority.Certificate)
		return err != nil
	})
	return g
}

// errNoCurrent is returned by Current for a state in which no generation signs.
var errNoCurrent = errors.New("no generation is marked as current")

// Current returns the CA that signs serving certificates now, with its cross-signed certificates as its chain. The
// caller checks its validity period (ca.Authority.Usable).
func (s *State) Current() (*ca.Authority, error) {
	if s.signer != nil {
		return s.signer, nil
	}
	g := s.generation(s.CurrentID)
	if g == nil {
		return nil, errNoCurrent
	}
	return g.Authority()
}

// Clone returns a copy with generations of its own. Both share the texts, which are replaced as a whole and never edited.
func (s *State) Clone() *State {
	c := *s
	c.Generations, c.signer = slices.Clone(s.Generations), nil
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

// readable returns the generations whose certificate can be read, with that.
func (s *State) readable() iter.Seq2[*Generation, *x509.Certificate] {
	return func(yield func(*Generation, *x509.Certificate) bool) {
		for i := range s.Generations {
			certificate, err := s.Generations[i].certificate()
			if err == nil && !yield(&s.Generations[i], certificate) {
				return
			}
		}
	}
}

// Bundle returns, in PEM, every CA certificate that must be trusted, the current one first.
func (s *State) Bundle() []byte {
	var current, others []byte
	for g, certificate := range s.readable() {
		if text := ca.EncodeCertificate(certificate); g.ID == s.CurrentID {
			current = text
		} else {
			others = append(others, text...)
		}
	}
	return ca.Bundle(current, others)
}

// from records the version of the Secret that a state belongs to.
func (s *State) from(secret *corev1.Secret) *State {
	s.ResourceVersion, s.UID, s.Request = secret.ResourceVersion, secret.UID, secret.Annotations[RotateAnnotation]
	s.Distrusted, s.document = distrusted(secret), secret.Data[StateKey]
	s.signer, _ = s.Current() // a state that cannot sign says so when it is asked
	return s
}

// mark gives a Secret that was lost the annotations back which request what is not over.
func (s *State) mark(secret *corev1.Secret) {
	if s.Distrusted > distrusted(secret) {
		metav1.SetMetaDataAnnotation(&secret.ObjectMeta, DistrustAnnotation, strconv.FormatInt(s.Distrusted, 10))
	}
	if _, there := secret.Annotations[RotateAnnotation]; s.Request != "" && !there {
		metav1.SetMetaDataAnnotation(&secret.ObjectMeta, RotateAnnotation, s.Request)
	}
}

// distrusted parses the DistrustAnnotation. It returns 0 if the annotation is missing or invalid.
func distrusted(secret *corev1.Secret) int64 {
	id, err := strconv.ParseInt(secret.Annotations[DistrustAnnotation], 10, 64)
	if err != nil || id < 0 || id >= maxID/2 {
		return 0
	}
	return id
}

// number prepares a state for a write. The counter stops at the maximum instead of wrapping to a number that looks like
// a rollback.
func (s *State) number() {
	s.FormatVersion, s.Counter = FormatVersion, min(s.Counter, math.MaxInt64-1)+1
	s.Phase, s.Lineage = cmp.Or(s.Phase, ca.Steady), cmp.Or(s.Lineage, rand.Text())
}

// install makes an authority the current generation. A known one keeps its position and ID.
func (s *State) install(authority *ca.Authority) {
	for g, certificate := range s.readable() {
		if certificate.Equal(authority.Certificate) {
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

// forget drops everything that is no longer useful: unusable parts, and CAs not in use that have expired, are
// unreadable or exceed the Secret's limit.
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

// trim drops the generations that exceed maxGenerations, but none in use. Those without a key, which are not our own,
// go first, then our own; in each case the oldest first.
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

// nextID returns an ID higher than that of any present or distrusted generation.
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

// Format prints String for every verb, because %#v, %d and %x would otherwise print the fields one by one.
func (s State) Format(f fmt.State, _ rune) { _, _ = io.WriteString(f, s.String()) }

// Format prints String for every verb, because %#v, %d and %x would otherwise print the fields one by one.
func (g Generation) Format(f fmt.State, _ rune) { _, _ = io.WriteString(f, g.String()) }

// MarshalLog returns String, so that logr logs no keys.
func (s State) MarshalLog() any { return s.String() }

// MarshalLog returns String, so that logr logs no keys.
func (g Generation) MarshalLog() any { return g.String() }
