package certsecret

// This file is the Secret's data format: a JSON document that is the truth, and three PEM keys that
// mirror its current CA for people and tools.

import (
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"maps"
	"time"

	"code.cloudfoundry.org/eirinix/internal/ca"
)

// The keys of the Secret's data. CACertificateKey and CertificateKey both hold the current CA
// certificate, PrivateKeyKey its key; none ever holds a serving certificate.
const (
	StateKey         = "state.json"
	CACertificateKey = "ca.crt"
	CertificateKey   = "tls.crt"
	PrivateKeyKey    = "tls.key"
)

// maxDecodedGenerations and maxRegistered, which is of the certificates in the registered bundle, bound the work that a
// hostile document can cause.
const (
	maxDecodedGenerations = 64
	maxRegistered         = 64
)

// maxID keeps generation IDs exact in any JSON reader and far from an overflow.
const maxID = 1 << 53

// document is the JSON under StateKey. PEM is kept as text so that a person can read it.
type document struct {
	FormatVersion    int                  `json:"formatVersion"`
	Lineage          string               `json:"lineage,omitempty"`
	Counter          int64                `json:"counter"`
	Phase            ca.Phase             `json:"phase"`
	Since            *time.Time           `json:"since,omitempty"`
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

// errNoState says that there is no document at all, which is how EiriniX's Secrets look.
var errNoState = errors.New(StateKey + " is missing")

// Decode reads the state out of a Secret's data: from the document, or else from the mirrored keys, or
// else from those of EiriniX. It judges structure, not time: the current CA may have expired. The error
// says what is wrong with each of them. A newer format is read as far as it is understood.
func Decode(data map[string][]byte) (*State, error) {
	f := inspect(data, func(*ca.Authority) error { return nil }, vouchers{})
	if f.authority == nil {
		return nil, errors.New(f.reason)
	}
	f.state.Reason = f.reason
	f.state.remember()
	return f.state, nil
}

// Encode returns a copy of existing with this state written into it. Other keys are kept. Equal states
// give equal bytes.
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
		Current:          s.CurrentID,
		Next:             s.NextID,
		Handled:          s.Handled,
		RegisteredBundle: string(s.RegisteredBundle),
		Generations:      []generationDocument{},
	}
	if !s.Since.IsZero() {
		doc.Since = new(s.Since.UTC().Truncate(time.Millisecond))
	}
	for _, g := range s.Generations {
		gd := generationDocument{ID: g.ID, Certificate: string(g.CertificatePEM), PrivateKey: string(g.PrivateKeyPEM)}
		for _, c := range g.CrossSigned {
			gd.CrossSigned = append(gd.CrossSigned, crossDocument{Issuer: c.IssuerID, Certificate: string(c.CertificatePEM)})
		}
		doc.Generations = append(doc.Generations, gd)
	}
	text, err := json.MarshalIndent(doc, "", "  ")
	if err != nil { // strings and integers only: cannot happen
		panic(err) //nolint:forbidigo // no input leads here
	}
	data[StateKey] = append(text, '\n')
	if current := s.generation(s.CurrentID); current != nil {
		data[CACertificateKey] = current.CertificatePEM
		data[CertificateKey] = current.CertificatePEM
		data[PrivateKeyKey] = current.PrivateKeyPEM
	}
	return data
}

// decodeDocument reads the JSON document alone. A state that comes back with an error holds what could be
// read; of a newer format that may be no more than its version.
func decodeDocument(text []byte) (*State, error) {
	if len(text) == 0 {
		return nil, errNoState
	}
	var version struct {
		FormatVersion int `json:"formatVersion"`
	}
	if err := json.Unmarshal(text, &version); err != nil {
		// The parser's message may quote the text, and the text holds keys.
		return nil, errors.New(StateKey + " is not valid JSON of a known shape")
	}
	if version.FormatVersion < 1 {
		return nil, fmt.Errorf("%s has no valid format version", StateKey)
	}
	state := &State{FormatVersion: version.FormatVersion}
	var doc document
	if err := json.Unmarshal(text, &doc); err != nil {
		return state, errors.New(StateKey + " is not valid JSON of a known shape")
	}
	if len(doc.Generations) > maxDecodedGenerations {
		return state, fmt.Errorf("%s has %d generations, more than %d", StateKey, len(doc.Generations), maxDecodedGenerations)
	}
	state.Counter, state.Phase, state.CurrentID = max(0, doc.Counter), doc.Phase, doc.Current
	state.Lineage, state.NextID, state.Handled = doc.Lineage, doc.Next, doc.Handled
	if doc.Since != nil {
		state.Since = *doc.Since
	}
	if doc.RegisteredBundle != "" {
		state.RegisteredBundle = registered([]byte(doc.RegisteredBundle))
	}
	seen := map[int64]bool{}
	for _, gd := range doc.Generations {
		if gd.ID < 1 || gd.ID >= maxID || seen[gd.ID] {
			return state, fmt.Errorf("%s has an invalid or repeated generation %d", StateKey, gd.ID)
		}
		seen[gd.ID] = true
		g := Generation{ID: gd.ID, CertificatePEM: []byte(gd.Certificate)}
		if certificate, err := g.certificate(); err == nil { // the first one, whatever else stands there
			g.CertificatePEM = ca.EncodeCertificate(certificate)
			g.read = &reading{certificateText: string(g.CertificatePEM), certificate: certificate}
		}
		if gd.PrivateKey != "" {
			g.PrivateKeyPEM = []byte(gd.PrivateKey)
		}
		for _, c := range gd.CrossSigned {
			// Older versions had the next CA sign the old one too, and kept what is of use in a rotation only.
			if c.Issuer >= gd.ID || doc.Phase == ca.Steady || len(g.CrossSigned) == maxGenerations {
				continue
			}
			g.CrossSigned = append(g.CrossSigned, CrossSigned{IssuerID: c.Issuer, CertificatePEM: []byte(c.Certificate)})
		}
		state.Generations = append(state.Generations, g)
	}
	return state, nil
}

// registered returns a bundle of the first certificates of a PEM text, as many as are kept of what was registered.
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
