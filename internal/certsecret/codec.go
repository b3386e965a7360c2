package certsecret

// This file defines the Secret's data format: an authoritative JSON document, and three PEM keys that mirror its
// current CA for people and tools.

import (
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"maps"
	"time"

	"code.cloudfoundry.org/eirinix/internal/ca"
)

// The keys of the Secret's data. CACertificateKey and CertificateKey both hold the current CA certificate, and
// PrivateKeyKey holds its key. None of them ever holds a serving certificate.
const (
	StateKey         = "state.json"
	CACertificateKey = "ca.crt"
	CertificateKey   = "tls.crt"
	PrivateKeyKey    = "tls.key"
)

// maxDecodedGenerations and maxRegistered limit the work that a hostile document can cause. maxRegistered counts
// the PEM blocks of the registered bundle.
const (
	maxDecodedGenerations = 64
	maxRegistered         = 64
)

// maxID keeps generation IDs exact in any JSON parser and far from an overflow.
const maxID = 1 << 53

// document is the JSON under StateKey. PEM is kept as text so that a person can read it.
type document struct {
	FormatVersion    int                  `json:"formatVersion"`
	Lineage          string               `json:"lineage,omitempty"`
	Counter          int64                `json:"counter"`
	Phase            ca.Phase             `json:"phase"`
	Since            time.Time            `json:"since,omitzero"`
	Current          int64                `json:"current"`
	Next             int64                `json:"next,omitempty"`
	Handled          string               `json:"handledRequest,omitempty"`
	Generations      []generationDocument `json:"generations"`
	RegisteredBundle string               `json:"registeredBundle,omitempty"`
}

type generationDocument struct {
	ID          int64           `json:"id"`
	Certificate string          `json:"certificate"`
	PrivateKey  string          `json:"privateKey,omitempty"`
	CrossSigned []crossDocument `json:"crossSigned,omitempty"`
}

type crossDocument struct {
	Issuer      int64  `json:"issuer"`
	Certificate string `json:"certificate"`
}

// Encode returns a copy of existing with this state written into it. Other keys are kept. Equal states result in equal
// bytes.
func (s *State) Encode(existing map[string][]byte) map[string][]byte {
	data := maps.Clone(existing)
	if data == nil {
		data = map[string][]byte{}
	}
	doc := document{
		FormatVersion:    s.FormatVersion,
		Lineage:          s.Lineage,
		Counter:          s.Counter,
		Phase:            s.Phase,
		Since:            s.Since.UTC().Truncate(time.Millisecond),
		Current:          s.CurrentID,
		Next:             s.NextID,
		Handled:          s.Handled,
		RegisteredBundle: string(s.RegisteredBundle),
		Generations:      []generationDocument{},
	}
	for _, g := range s.Generations {
		gd := generationDocument{ID: g.ID, Certificate: string(g.CertificatePEM), PrivateKey: string(g.PrivateKeyPEM)}
		for _, c := range g.CrossSigned {
			gd.CrossSigned = append(gd.CrossSigned, crossDocument{Issuer: c.IssuerID, Certificate: string(c.CertificatePEM)})
		}
		doc.Generations = append(doc.Generations, gd)
	}
	text, _ := json.MarshalIndent(doc, "", "  ") // cannot fail for strings, integers and a time that decodeDocument accepts
	data[StateKey] = append(text, '\n')
	if current := s.generation(s.CurrentID); current != nil {
		data[CACertificateKey] = current.CertificatePEM
		data[CertificateKey] = current.CertificatePEM
		data[PrivateKeyKey] = current.PrivateKeyPEM
	}
	return data
}

// decodeDocument decodes only the JSON document. A state returned with an error holds all that could be decoded. For a
// newer format that may be only its version.
func decodeDocument(text []byte) (*State, error) {
	if len(text) == 0 { // as in EiriniX's Secret
		return nil, errors.New(StateKey + " is missing")
	}
	var version struct {
		FormatVersion int `json:"formatVersion"`
	}
	if err := json.Unmarshal(text, &version); err != nil {
		// The parser's message may quote the text, which holds keys.
		return nil, errors.New(StateKey + " is not valid JSON of a known shape")
	}
	if version.FormatVersion < 1 {
		return nil, fmt.Errorf("%s has no valid format version", StateKey)
	}
	state := &State{FormatVersion: version.FormatVersion}
	var doc document
	err := json.Unmarshal(text, &doc)
	if err == nil {
		_, err = doc.Since.UTC().MarshalJSON() // Encode could not write a time that only its zone keeps below the year 10000
	}
	if err != nil {
		return state, errors.New(StateKey + " is not valid JSON of a known shape")
	}
	if len(doc.Generations) > maxDecodedGenerations {
		return state, fmt.Errorf("%s has %d generations, more than %d", StateKey, len(doc.Generations), maxDecodedGenerations)
	}
	state.Counter, state.Phase, state.CurrentID = max(0, doc.Counter), doc.Phase, doc.Current
	state.Lineage, state.NextID, state.Handled = doc.Lineage, doc.Next, doc.Handled
	state.Since, state.RegisteredBundle = doc.Since, registered([]byte(doc.RegisteredBundle))
	seen := map[int64]bool{}
	for _, gd := range doc.Generations {
		if gd.ID < 1 || gd.ID >= maxID || seen[gd.ID] {
			return state, fmt.Errorf("%s has an invalid or repeated generation %d", StateKey, gd.ID)
		}
		seen[gd.ID] = true
		g := Generation{ID: gd.ID, CertificatePEM: []byte(gd.Certificate), PrivateKeyPEM: []byte(gd.PrivateKey)}
		if certificate, err := g.certificate(); err == nil { // the first one, regardless of any text after it
			g.CertificatePEM = ca.EncodeCertificate(certificate)
		}
		for _, c := range gd.CrossSigned {
			// Older versions also made the next CA sign the old one, and kept cross-signed certificates that are only
			// useful during a rotation. Both are dropped here.
			if c.Issuer >= gd.ID || doc.Phase == ca.Steady || len(g.CrossSigned) == maxGenerations {
				continue
			}
			g.CrossSigned = append(g.CrossSigned, CrossSigned{IssuerID: c.Issuer, CertificatePEM: []byte(c.Certificate)})
		}
		state.Generations = append(state.Generations, g)
	}
	return state, nil
}

// registered returns a bundle of the certificates among the first maxRegistered PEM blocks of a text.
func registered(text []byte) []byte {
	rest := text
	for range maxRegistered {
		var block *pem.Block
		if block, rest = pem.Decode(rest); block == nil {
			break
		}
	}
	return ca.Bundle(text[:len(text)-len(rest)])
}
