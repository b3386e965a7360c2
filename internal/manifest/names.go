package manifest

// This file derives names of a limited length.

import (
	"crypto/sha256"
	"encoding/hex"
	"strings"
)

const (
	maxJobName     = 63  // it becomes the value of a label of the Job's pods
	maxCronJobName = 52  // the controller appends eleven characters to form a Job's name
	maxAccountName = 253 // a DNS subdomain

	hashLength = 8
)

// Shorten returns name with suffix appended. If that is longer than most, the end of name is replaced with a hash of
// name.
func Shorten(name, suffix string, most int) string {
	if len(name)+len(suffix) <= most {
		return name + suffix
	}
	kept := strings.TrimRight(name[:most-len(suffix)-hashLength-1], "-.")
	return kept + "-" + hash([]byte(name)) + suffix
}

func hash(of []byte) string {
	sum := sha256.Sum256(of)
	return hex.EncodeToString(sum[:])[:hashLength]
}
