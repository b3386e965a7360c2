package apiserver

// This file collects the warnings and audit annotations of webhooks.

import (
	"slices"
	"strings"
	"sync"
	"unicode/utf8"

	admissionv1 "k8s.io/api/admission/v1"
	utilnet "k8s.io/apimachinery/pkg/util/net"
	"k8s.io/apimachinery/pkg/util/validation"
)

// These are the limits of an API server for Warning headers. If all warnings together exceed maxWarningRunes, each
// one is truncated to maxCutWarningRunes.
const (
	maxWarningRunes    = 4096
	maxCutWarningRunes = 256
)

// feedback are the warnings and audit annotations in the responses of webhooks. Validating webhooks are called
// concurrently, so it is safe for concurrent use until the request is done.
type feedback struct {
	mu       sync.Mutex
	warnings []string
	audit    map[string]string
}

// add adds the warnings and audit annotations of a response, under the rules of an API server. Each warning is kept
// once. An audit annotation is kept if its key is a qualified name, and if it is the first of that name.
func (s *feedback) add(webhook string, resp *admissionv1.AdmissionResponse) {
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

// visibleWarnings returns the warnings as they reach the user's terminal. They are truncated if they are too long, and those
// that a header cannot hold are left out.
func (s *feedback) visibleWarnings() []string {
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
