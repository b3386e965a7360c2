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

// Pinned reports whether the webhook configurations vouch for a CA certificate. A nil Pinned pins nothing: every CA in
// the Secret is accepted.
type Pinned func(*x509.Certificate) bool

// errUnvouched is the reason for dropping a CA.
var errUnvouched = errors.New("the Secret holds a CA that no webhook configuration vouches for")

// vouchers decide which CAs are allowed: a pinned one, one that this process already knows, and one that an allowed CA
// of the same document has signed. Through that signature a rotation passes its trust on. The zero value allows all.
type vouchers struct {
	pinned  Pinned
	allowed map[[sha256.Size]byte]bool
}

func newVouchers(known *State, pinned Pinned) vouchers {
	v := vouchers{pinned: pinned, allowed: map[[sha256.Size]byte]bool{}}
	if known != nil {
		for i := range known.Generations {
			if certificate, err := known.Generations[i].certificate(); err == nil {
				v.allow(certificate)
			}
		}
	}
	return v
}

// only allows the CAs of that state and no others.
func only(state *State) vouchers {
	return newVouchers(state, func(*x509.Certificate) bool { return false })
}

func (v vouchers) allow(certificate *x509.Certificate) {
	v.allowed[sha256.Sum256(certificate.Raw)] = true
}

func (v vouchers) allows(certificate *x509.Certificate) bool {
	return v.pinned == nil || v.allowed[sha256.Sum256(certificate.Raw)] || v.pinned(certificate)
}

// admit drops the generations of a state that are not allowed. It reports whether there were any, and whether the
// current one was among them. An unreadable generation does not count, because nothing trusts it.
func (v vouchers) admit(state *State) (dropped, current bool) {
	if v.pinned == nil {
		return false, false
	}
	for v.spread(state) {
	}
	state.Generations = slices.DeleteFunc(state.Generations, func(g Generation) bool {
		certificate, err := g.certificate()
		if err != nil || v.allows(certificate) {
			return false
		}
		dropped, current = true, current || g.ID == state.CurrentID
		return true
	})
	return dropped, current
}

// spread allows the CAs that an allowed CA has signed, and reports whether any of them was new.
func (v vouchers) spread(state *State) (grown bool) {
	var issuers []*x509.Certificate
	for i := range state.Generations {
		if certificate, err := state.Generations[i].certificate(); err == nil && v.allows(certificate) {
			issuers = append(issuers, certificate)
		}
	}
	for i := range state.Generations {
		g := &state.Generations[i]
		certificate, err := g.certificate()
		if err == nil && !v.allows(certificate) && g.signedBy(certificate, issuers) {
			v.allow(certificate)
			grown = true
		}
	}
	return grown
}

// signedBy reports whether one of the issuers has signed a certificate for the generation's name and key.
func (g *Generation) signedBy(certificate *x509.Certificate, issuers []*x509.Certificate) bool {
	for _, c := range g.CrossSigned {
		cross, err := c.of(certificate)
		if err != nil {
			continue
		}
		for _, issuer := range issuers {
			if bytes.Equal(cross.RawIssuer, issuer.RawSubject) && cross.CheckSignatureFrom(issuer) == nil {
				return true
			}
		}
	}
	return false
}
