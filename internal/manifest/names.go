package manifest

import (
	"crypto/sha256"
	"encoding/hex"
	"strings"
)

const (
	maxJobName     = 63  // it becomes a label of the Job's pods
	maxCronJobName = 52  // the controller appends eleven characters for a Job's name
	maxAccountName = 253 // a DNS subdomain

	hashLength = 8
)

// Shorten appends suffix to name, and gives up some of the name for a hash of it where both are too long.
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
