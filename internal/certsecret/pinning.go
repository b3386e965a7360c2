package certsecret

// This file decides which CAs of a Secret are accepted. A program that can write the Secret, but no webhook
// configuration, must not get a CA into a caBundle.

import (
	"bytes"
	"crypto/sha256"
	"crypto/x509"
	"errors"
	"slices"
)

// Pinned reports whether the webhook configurations pin a CA certificate. A nil Pinned pins nothing: every CA in
// the Secret is accepted.
type Pinned func(*x509.Certificate) bool

// errNotPinned is the reason for dropping a CA.
var errNotPinned = errors.New("the Secret holds a CA that no webhook configuration pins")

// allowlist decides which CAs are allowed: a pinned one, one that this process already knows, and one that an allowed CA
// of the same document has signed. Through that signature a rotation passes its trust on. The zero value allows all.
type allowlist struct {
	pinned Pinned
	known  map[[sha256.Size]byte]bool
}

func newAllowlist(known *State, pinned Pinned) allowlist {
	list := allowlist{pinned: pinned, known: map[[sha256.Size]byte]bool{}}
	if known != nil {
		for _, certificate := range known.readable() {
			list.add(certificate)
		}
	}
	return list
}

// only allows the CAs of that state and no others.
func only(state *State) allowlist {
	return newAllowlist(state, func(*x509.Certificate) bool { return false })
}

func (list allowlist) add(certificate *x509.Certificate) {
	list.known[sha256.Sum256(certificate.Raw)] = true
}

func (list allowlist) allows(certificate *x509.Certificate) bool {
	return list.pinned == nil || list.known[sha256.Sum256(certificate.Raw)] || list.pinned(certificate)
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
			list.add(certificate)
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
