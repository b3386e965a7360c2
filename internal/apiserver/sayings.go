package apiserver

import (
	"slices"
	"strings"
	"sync"
	"unicode/utf8"

	admissionv1 "k8s.io/api/admission/v1"
	utilnet "k8s.io/apimachinery/pkg/util/net"
	"k8s.io/apimachinery/pkg/util/validation"
)

// What an API server puts into Warning headers before it begins to cut.
const (
	maxWarningRunes    = 4096
	maxCutWarningRunes = 256
)

// sayings are what webhooks say beside their verdicts. Validating webhooks are called side by side, so it is safe for
// concurrent use until the request is done.
type sayings struct {
	mu       sync.Mutex
	warnings []string
	audit    map[string]string
}

// hear takes in what a webhook said, as far as an API server would: each warning once, and audit annotations under
// keys that are qualified names, the first of one name.
func (s *sayings) hear(webhook string, resp *admissionv1.AdmissionResponse) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, w := range resp.Warnings {
		if w != "" && !slices.Contains(s.warnings, w) {
			s.warnings = append(s.warnings, w)
		}
	}
	for key, value := range resp.AuditAnnotations {
		key = webhook + "/" + key
		if _, taken := s.audit[key]; taken || strings.Count(key, "/") != 1 || len(validation.IsQualifiedName(key)) > 0 {
			continue
		}
		if s.audit == nil {
			s.audit = map[string]string{}
		}
		s.audit[key] = value
	}
}

// shown are the warnings as they reach the user's terminal: cut where they are too much, and without those that
// cannot stand in a header.
func (s *sayings) shown() []string {
	total := 0
	for _, w := range s.warnings {
		total += utf8.RuneCountInString(w)
	}
	var shown []string
	written := 0
	for _, w := range s.warnings {
		if total > maxWarningRunes {
			if written >= maxWarningRunes {
				break
			}
			w = string([]rune(w)[:min(utf8.RuneCountInString(w), maxCutWarningRunes)])
		}
		if _, err := utilnet.NewWarningHeader(299, "", w); err != nil {
			continue
		}
		written += utf8.RuneCountInString(w)
		shown = append(shown, w)
	}
	return shown
}
