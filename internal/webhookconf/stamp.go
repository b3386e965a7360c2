package webhookconf

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"time"
)

const (
	// StepsAnnotation holds the digest of everything that a configuration says beside its caBundles. Processes with the
	// same steps and options write the same.
	StepsAnnotation = "eirinix.cloudfoundry.org/steps"

	// StartedAnnotation holds when the process with those steps started: RFC 3339 with nanoseconds, UTC.
	StartedAnnotation = "eirinix.cloudfoundry.org/started"

	// aheadOfTime is how far in the future a start may lie. One process may be a little ahead of another; a stamp from
	// tomorrow would win until then.
	aheadOfTime = 5 * time.Minute

	// digestLength is in bytes: nobody has a reason to forge what he could as well edit.
	digestLength = 16
)

// Stamp tells whose steps a configuration holds. The zero value is no stamp.
type Stamp struct {
	Digest  string    // of the steps, in hexadecimal digits
	Started time.Time // of the process, by the clock on which all agree
}

// IsZero tells whether there is no stamp.
func (s Stamp) IsZero() bool { return s == Stamp{} }

// Outranks tells whether the steps of s are to be registered rather than those of the other one: the later start wins.
// Of two that started in the same moment, all replicas take the same one.
func (s Stamp) Outranks(other Stamp) bool {
	if !s.Started.Equal(other.Started) {
		return s.Started.After(other.Started)
	}
	return s.Digest > other.Digest
}

// ReadStamp gives the stamp in the annotations of a configuration. What cannot be read, and what lies further in the
// future than clocks differ, is none.
func ReadStamp(annotations map[string]string, now time.Time) Stamp {
	digest := annotations[StepsAnnotation]
	if sum, err := hex.DecodeString(digest); err != nil || len(sum) != digestLength {
		return Stamp{}
	}
	started, err := time.Parse(time.RFC3339Nano, annotations[StartedAnnotation])
	if err != nil || started.After(now.Add(aheadOfTime)) {
		return Stamp{}
	}
	return Stamp{Digest: digest, Started: started.UTC()}
}

// in gives the annotations with the stamp among them.
func (s Stamp) in(annotations map[string]string) map[string]string {
	annotations = with(annotations, StepsAnnotation, s.Digest)
	return with(annotations, StartedAnnotation, s.Started.UTC().Format(time.RFC3339Nano))
}

// digestOf is that of everything that a writer registers in a configuration of this kind.
func (k Kind[C, W]) digestOf(w Writer) string {
	digest, sets := k.Digest(k.Build(w.Options, w.Entries)), w.sets(k.validating)
	if sets == "" {
		return digest
	}
	sum := sha256.Sum256([]byte(digest + sets))
	return hex.EncodeToString(sum[:digestLength])
}

// Digest is that of the webhooks without their caBundles. The form is the API's own JSON, in which maps are sorted and
// what is not set is left out, so a later version of this library that builds the same has the same digest.
func (k Kind[C, W]) Digest(webhooks []W) string {
	bare := append([]W{}, webhooks...) // no webhooks are [], not null
	for i := range bare {
		_, client := k.look(&bare[i])
		client.CABundle = nil
	}
	text, _ := json.Marshal(bare) // the API's own types
	sum := sha256.Sum256(text)
	return hex.EncodeToString(sum[:digestLength])
}
