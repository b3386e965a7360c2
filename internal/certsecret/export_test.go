package certsecret

import (
	"errors"

	"code.cloudfoundry.org/eirinix/internal/ca"
)

// Decode reads the state from a Secret's data. It tries the document, then the mirrored keys, then those of EiriniX. It
// checks structure, not time: the current CA can be expired. The error describes the fault of each source. A newer
// format is decoded as far as this version understands it.
func Decode(data map[string][]byte) (*State, error) {
	f := inspect(data, func(*ca.Authority) error { return nil }, allowlist{})
	if f.authority == nil {
		return nil, errors.New(f.reason)
	}
	f.state.Reason = f.reason
	return f.state, nil
}
