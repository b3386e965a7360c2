package certsecret

// This file judges the contents of a Secret, and decides which of its CAs are accepted. A program that can write the
// Secret, but no webhook configuration, must not get a CA into a caBundle. The judgement is pure: the same data at the
// same time result in the same finding.

import (
	"bytes"
	"crypto/x509"
	"errors"
	"fmt"
	"slices"
	"strings"

	"code.cloudfoundry.org/eirinix/internal/ca"
)

// The keys that EiriniX wrote. They are read once and kept, so that a rollback to EiriniX still works. Its serving
// certificate is never used: it may name its host only in the common name, and that host is any that EiriniX ran with.
const (
	eirinixCACertificateKey = "ca_certificate"
	eirinixCAPrivateKeyKey  = "ca_private_key"
	eirinixCertificateKey   = "certificate"
	eirinixPrivateKeyKey    = "private_key"
)

// finding is the result of inspect.
type finding struct {
	state      *State        // all that can be kept; complete if authority is set, and never nil
	authority  *ca.Authority // the CA to continue with, or nil if the Secret holds no usable one
	outcome    Outcome       // of using this finding; Adopted needs no write
	reason     string        // why a write is needed
	documented bool          // authority comes from the document and not from other keys
	dropped    bool          // the document held CAs that are not allowed
}

// newer reports whether the Secret was written by a newer version of this library.
func (f *finding) newer() bool { return f.state.FormatVersion > FormatVersion }

// inspect looks for a CA that usable accepts and the allowlist allows: in the document, then in the mirrored keys, then
// in EiriniX's. The document has precedence over the mirrors, since it is only ever written whole.
func inspect(data map[string][]byte, usable func(*ca.Authority) error, list allowlist) finding {
	f := finding{outcome: Adopted}
	state, docErr := decodeDocument(data[StateKey])
	f.state = state
	if f.state == nil {
		f.state = &State{FormatVersion: FormatVersion, Phase: ca.Steady}
	}
	var planted bool
	if f.dropped, planted = list.filter(f.state); planted {
		// The document was not written by our replicas, so its counter and lineage mean nothing.
		docErr = errNotPinned
		f.state = &State{FormatVersion: f.state.FormatVersion, Phase: ca.Steady, Generations: f.state.Generations}
	}
	f.state.trim()
	if docErr == nil {
		if f.authority, docErr = f.state.Current(); docErr == nil {
			docErr = usable(f.authority)
		}
		if docErr != nil {
			f.authority, docErr = nil, fmt.Errorf("%s: %w", StateKey, docErr)
		}
	}
	if f.authority != nil {
		f.documented = true
		if f.reason = mirrorFault(data, f.authority); f.reason != "" {
			f.outcome = Repaired
		}
		if f.dropped {
			f.outcome, f.reason = Repaired, errNotPinned.Error()
		}
		return f
	}

	mirror, mirrorErr := pair(data, CertificateKey, PrivateKeyKey, usable, list)
	if mirror != nil {
		f.adopt(mirror, Repaired, docErr.Error())
		return f
	}
	ours := data[StateKey] != nil || data[CertificateKey] != nil || data[PrivateKeyKey] != nil
	eirinix := []string{eirinixCACertificateKey, eirinixCAPrivateKeyKey, eirinixCertificateKey, eirinixPrivateKeyKey}
	if !slices.ContainsFunc(eirinix, func(key string) bool { return data[key] != nil }) {
		f.outcome, f.reason = Repaired, "the Secret holds no CA"
		if ours {
			f.reason = join(docErr, mirrorErr)
		}
		return f
	}
	f.outcome = Migrated
	old, oldErr := pair(data, eirinixCACertificateKey, eirinixCAPrivateKeyKey, usable, list)
	switch {
	case old != nil && ours: // migrated before, and damaged since
		f.adopt(old, Migrated, join(docErr, mirrorErr))
	case old != nil:
		f.adopt(old, Migrated, "")
	case ours:
		f.reason = join(docErr, mirrorErr, oldErr)
	default:
		f.reason = oldErr.Error()
	}
	if errors.Is(oldErr, errNotPinned) {
		f.outcome = Repaired
	}
	return f
}

func (f *finding) adopt(authority *ca.Authority, outcome Outcome, reason string) {
	f.authority, f.outcome, f.reason = authority, outcome, reason
	f.state.install(authority)
}

// mirrorFault describes how the mirrored keys differ from the current CA. It is empty if they do not.
func mirrorFault(data map[string][]byte, current *ca.Authority) string {
	if bytes.Equal(data[CertificateKey], current.CertificatePEM) && bytes.Equal(data[CACertificateKey], current.CertificatePEM) &&
		bytes.Equal(data[PrivateKeyKey], current.PrivateKeyPEM) {
		return "" // unchanged since it was written: nothing to parse
	}
	mirror, err := pair(data, CertificateKey, PrivateKeyKey, func(*ca.Authority) error { return nil }, allowlist{})
	switch {
	case err != nil:
		return err.Error()
	case !bytes.Equal(mirror.Certificate.Raw, current.Certificate.Raw):
		return CertificateKey + " is not the current CA of " + StateKey
	case !ca.EqualBundles(data[CACertificateKey], current.CertificatePEM):
		return CACertificateKey + " is not the current CA of " + StateKey
	default:
		return ""
	}
}

// pair reads a CA from two keys of the Secret. Its errors name those keys.
func pair(data map[string][]byte, certificateKey, privateKeyKey string, usable func(*ca.Authority) error, list allowlist) (*ca.Authority, error) {
	for _, key := range []string{certificateKey, privateKeyKey} {
		if data[key] == nil {
			return nil, fmt.Errorf("%s is missing", key)
		}
		if len(bytes.TrimSpace(data[key])) == 0 {
			return nil, fmt.Errorf("%s is empty", key)
		}
	}
	authority, err := ca.Parse(data[certificateKey], data[privateKeyKey])
	if err == nil && !list.allows(authority.Certificate) {
		return nil, errNotPinned
	}
	if err == nil {
		err = usable(authority)
	}
	switch {
	case err == nil:
		return authority, nil
	case errors.Is(err, ca.ErrKeyMismatch):
		return nil, fmt.Errorf("%s does not match %s", privateKeyKey, certificateKey)
	case errors.Is(err, ca.ErrNoPrivateKey), errors.Is(err, ca.ErrBadPrivateKey):
		return nil, fmt.Errorf("%s: %w", privateKeyKey, err)
	default:
		return nil, fmt.Errorf("%s: %w", certificateKey, err)
	}
}

func join(errs ...error) string {
	var texts []string
	for _, err := range errs {
		if err != nil && !slices.Contains(texts, err.Error()) {
			texts = append(texts, err.Error())
		}
	}
	return strings.Join(texts, "; ")
}

// Pinned reports whether the webhook configurations pin a CA certificate. A nil Pinned pins nothing: every CA in
// the Secret is accepted.
type Pinned func(*x509.Certificate) bool

// errNotPinned is the reason for dropping a CA.
var errNotPinned = errors.New("the Secret holds a CA that no webhook configuration pins")

// allowlist decides which CAs are allowed: a pinned one, one that this process already knows, and one that an allowed CA
// of the same document has signed. Through that signature a rotation passes its trust on. The zero value allows all.
type allowlist struct {
	pinned Pinned
	known  map[string]bool // by the certificate's DER
}

func newAllowlist(known *State, pinned Pinned) allowlist {
	list := allowlist{pinned: pinned, known: map[string]bool{}}
	if known != nil {
		for _, certificate := range known.readable() {
			list.known[string(certificate.Raw)] = true
		}
	}
	return list
}

// only allows the CAs of that state and no others.
func only(state *State) allowlist {
	return newAllowlist(state, func(*x509.Certificate) bool { return false })
}

func (list allowlist) allows(certificate *x509.Certificate) bool {
	return list.pinned == nil || list.known[string(certificate.Raw)] || list.pinned(certificate)
}

// filter drops the generations of a state that are not allowed. It reports whether there were any, and whether the
// current one was among them. An unreadable generation does not count, because nothing trusts it.
func (list allowlist) filter(state *State) (dropped, current bool) {
	if list.pinned == nil {
		return false, false
	}
	for list.extend(state) {
	}
	state.Generations = slices.DeleteFunc(state.Generations, func(g Generation) bool {
		certificate, err := g.certificate()
		if err != nil || list.allows(certificate) {
			return false
		}
		dropped, current = true, current || g.ID == state.CurrentID
		return true
	})
	return dropped, current
}

// extend allows the CAs that an allowed CA has signed, and reports whether any of them was new.
func (list allowlist) extend(state *State) (grown bool) {
	var issuers []*x509.Certificate
	for _, certificate := range state.readable() {
		if list.allows(certificate) {
			issuers = append(issuers, certificate)
		}
	}
	for g, certificate := range state.readable() {
		if !list.allows(certificate) && g.signedBy(certificate, issuers) {
			list.known[string(certificate.Raw)] = true
			grown = true
		}
	}
	return grown
}

// signedBy reports whether one of the issuers has signed a certificate for the generation's name and key.
func (g *Generation) signedBy(certificate *x509.Certificate, issuers []*x509.Certificate) bool {
	return slices.ContainsFunc(g.CrossSigned, func(c CrossSigned) bool {
		cross, err := c.of(certificate)
		return err == nil && slices.ContainsFunc(issuers, func(issuer *x509.Certificate) bool {
			return bytes.Equal(cross.RawIssuer, issuer.RawSubject) && cross.CheckSignatureFrom(issuer) == nil
		})
	})
}
