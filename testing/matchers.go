package eirinixtest

import (
	"fmt"
	"strings"

	"github.com/onsi/gomega"
	"github.com/onsi/gomega/format"
	"github.com/onsi/gomega/types"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// This file holds the gomega matchers for results, as in Expect(h.Create(pod)).To(eirinixtest.BeAllowed()). If a
// parameter is a text, a string is searched for as a substring, and a matcher is applied. Failure messages show the
// whole result, with the object as a diff of YAML.

// resultMatcher is a gomega matcher for Results.
type resultMatcher struct {
	want  string // as in "to <want>"
	match func(*Result) (bool, error)
	why   func(*Result) string // explains a mismatch; nil for no explanation
}

var _ types.GomegaMatcher = (*resultMatcher)(nil)

func (m *resultMatcher) Match(actual any) (bool, error) {
	r := resultOf(actual)
	if r == nil {
		return false, fmt.Errorf("this matcher is for what Harness.Create and its like return, not for %T", actual)
	}
	return m.match(r)
}

// resultOf returns the Result that a matcher received, or nil if the value is of another type.
func resultOf(actual any) *Result {
	switch actual := actual.(type) {
	case *Result:
		return actual
	case *Replayed:
		if actual != nil {
			return actual.Result
		}
	}
	return nil
}

func (m *resultMatcher) FailureMessage(actual any) string { return m.message(actual, "to") }

func (m *resultMatcher) NegatedFailureMessage(actual any) string { return m.message(actual, "not to") }

func (m *resultMatcher) message(actual any, to string) string {
	r := resultOf(actual)
	text := fmt.Sprintf("Expected the request\n%s\n%s %s", indented(r.String()), to, m.want)
	if m.why != nil && to == "to" {
		if why := m.why(r); why != "" {
			text += "\n" + why
		}
	}
	return text
}

// textMatcher returns a matcher unchanged, and turns a string into a matcher for that substring.
func textMatcher(expected any) types.GomegaMatcher {
	switch expected := expected.(type) {
	case types.GomegaMatcher:
		return expected
	case string:
		return gomega.ContainSubstring(expected)
	}
	return gomega.Equal(expected)
}

func describe(expected any) string {
	switch expected := expected.(type) {
	case string:
		return fmt.Sprintf("%q", expected)
	case types.GomegaMatcher:
		return strings.TrimPrefix(format.Object(expected, 1), format.Indent)
	}
	return fmt.Sprint(expected)
}

// BeAllowed matches a request that was admitted, whether or not the object was changed.
func BeAllowed() types.GomegaMatcher {
	return &resultMatcher{want: "be allowed", match: func(r *Result) (bool, error) { return r.Allowed, nil }}
}

// HaveFailed matches a request that was not allowed although no step refused it. Either a step failed with
// failurePolicy Fail, or its patch did not apply. The message is matched against the error that the user sees. Escaped
// quotes in the error are unescaped first, so quotes in a step's own message can be written as the step wrote them.
func HaveFailed(message any) types.GomegaMatcher {
	return &resultMatcher{
		want: "fail with " + describe(message),
		match: func(r *Result) (bool, error) {
			if r.Failure() == nil {
				return false, nil
			}
			return textMatcher(message).Match(strings.ReplaceAll(r.Err.Error(), `\"`, `"`))
		},
	}
}

// DenialMatcher matches a refusal by a step. Each of its methods adds a condition and returns the matcher.
type DenialMatcher struct {
	resultMatcher
	parts []denialPart
}

type denialPart struct {
	name    string
	value   func(*Denial) any
	matcher types.GomegaMatcher
}

// BeDenied matches a request that a step refused. A failure is not a refusal; see HaveFailed.
//
//	Expect(h.Create(pod)).To(eirinixtest.BeDenied().WithCode(403).WithMessage("no root"))
func BeDenied() *DenialMatcher {
	m := &DenialMatcher{}
	m.want = "be denied"
	m.match = func(r *Result) (bool, error) {
		if r.Denial == nil {
			return false, nil
		}
		for _, p := range m.parts {
			if ok, err := p.matcher.Match(p.value(r.Denial)); !ok || err != nil {
				return false, err
			}
		}
		return true, nil
	}
	return m
}

func (m *DenialMatcher) with(name string, expected any, matcher types.GomegaMatcher, value func(*Denial) any) *DenialMatcher {
	m.want += fmt.Sprintf(", with %s %s", name, describe(expected))
	m.parts = append(m.parts, denialPart{name, value, matcher})
	return m
}

// WithCode requires this HTTP status, such as 403.
func (m *DenialMatcher) WithCode(code int) *DenialMatcher {
	return m.with("code", code, gomega.BeEquivalentTo(code), func(d *Denial) any { return d.Code })
}

// WithReason requires this reason, such as metav1.StatusReasonForbidden.
func (m *DenialMatcher) WithReason(reason metav1.StatusReason) *DenialMatcher {
	return m.with("reason", string(reason), gomega.Equal(reason), func(d *Denial) any { return d.Reason })
}

// WithMessage requires the step's own message to contain a string, or to match a matcher.
func (m *DenialMatcher) WithMessage(message any) *DenialMatcher {
	return m.with("message", message, textMatcher(message), func(d *Denial) any { return d.Message })
}

// WithCause requires a cause that concerns this field. The errors of eirinix.Invalid have such causes.
func (m *DenialMatcher) WithCause(field string) *DenialMatcher {
	return m.with("a cause at", field, gomega.ContainElement(gomega.HaveField("Field", field)), func(d *Denial) any {
		if d.Details == nil {
			return []metav1.StatusCause{}
		}
		return d.Details.Causes
	})
}

// HaveWarned matches a request for which the user sees a matching warning: one that contains the string, or that
// satisfies the matcher.
func HaveWarned(warning any) types.GomegaMatcher {
	return &resultMatcher{
		want:  "warn of " + describe(warning),
		match: func(r *Result) (bool, error) { return matchAny(r.Warnings, textMatcher(warning)) },
	}
}

// HaveAudited matches a request for which a step set an audit annotation with this key and a matching value. The key
// can be written with or without the webhook's name and a slash in front.
func HaveAudited(key string, value any) types.GomegaMatcher {
	return &resultMatcher{
		want: fmt.Sprintf("leave the audit annotation %s=%s", key, describe(value)),
		match: func(r *Result) (bool, error) {
			var values []string
			for k, v := range r.AuditAnnotations {
				if k == key || strings.HasSuffix(k, "/"+key) {
					values = append(values, v)
				}
			}
			return matchAny(values, textMatcher(value))
		},
	}
}

func matchAny(all []string, m types.GomegaMatcher) (bool, error) {
	for _, s := range all {
		if ok, err := m.Match(s); ok || err != nil {
			return ok, err
		}
	}
	return false, nil
}

// HaveRun matches a request for which a step ran, because its rules, selectors and conditions matched.
func HaveRun(step string) types.GomegaMatcher {
	return &resultMatcher{want: fmt.Sprintf("be seen by the step %q", step), match: func(r *Result) (bool, error) { return r.Ran(step), nil }}
}
