package diagnose

import (
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/version"
)

// What the specs see of the inside. They cannot live in this package, because its Report is ginkgo's too.
var (
	Classify = classify
	CodeOf   = codeOf
)

// Blamed is what parseFailure finds.
func Blamed(text string) (webhook string, denied bool, reason string, ok bool) {
	f, ok := parseFailure(text)
	return f.webhook, f.denied, f.reason, ok
}

// Old tells whether an API server of that version is too old.
func Old(major, minor string) bool { return old(version.Info{Major: major, Minor: minor}) }

// Fold folds the findings of a diagnosis.
func Fold(c Config, findings []Finding) []Finding {
	d := &diagnosis{Config: c, findings: findings}
	d.fold()
	return d.findings
}

// JudgePorts says what follows from a call that failed, with this behind the Service, and which port had to be open.
func JudgePorts(c Config, service *corev1.Service, slices []discoveryv1.EndpointSlice, symptom Finding) (findings []Finding, open int32) {
	d := &diagnosis{Config: c, backend: backend{service: service, slices: slices}, findings: []Finding{symptom}}
	d.judgePorts()
	return d.findings[1:], d.openPort()
}
