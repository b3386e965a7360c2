package eirinix

// This file plays the objects that exist through the steps, and reports what the steps would say of them.

import (
	"context"
	"errors"

	admissionv1 "k8s.io/api/admission/v1"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
)

// AuditOptions configures Audit. The zero value audits every object that the rules of the steps select.
type AuditOptions struct {
	// Namespace limits the audit to the objects of one namespace. Empty means all, and objects without a namespace.
	Namespace string

	// Steps are the names of the steps to ask. Empty means all.
	Steps []string

	// PageSize is the number of objects of one list request. 0 means 500.
	PageSize int

	// PagesPerSecond bounds the rate of list requests. 0 means 10.
	PagesPerSecond float64

	// Conditions compiles the matchConditions of a step. Without it, steps with matchConditions are reported as
	// AuditUntold. Package audit has one; it is not here, because it links the interpreter of CEL.
	Conditions func([]admissionregistrationv1.MatchCondition) (AuditConditions, error)

	// PolicyReports writes the findings to PolicyReports of the cluster, and removes those of this program that are clean.
	PolicyReports bool

	// Finding receives each finding when it is found. An error ends the audit. It is called on one goroutine.
	Finding func(AuditFinding) error

	// Progress is called after each page of objects, on the same goroutine.
	Progress func(AuditProgress)
}

// AuditConditions reports whether all matchConditions of a step hold for a request.
type AuditConditions func(context.Context, *admissionv1.AdmissionRequest) (bool, error)

// AuditResult is the kind of a finding.
type AuditResult string

const (
	// AuditDenied is the result of a step that would deny the object.
	AuditDenied AuditResult = "denied"

	// AuditDrift is the result of a mutating step that would change the object if it were created or updated today.
	AuditDrift AuditResult = "drift"

	// AuditFailed is the result of a step that fails, or of an object that no longer decodes.
	AuditFailed AuditResult = "failed"

	// AuditUntold is the result if an audit cannot tell: the step decides on deletions or connections, its result
	// depends on the user, or the objects may not be listed.
	AuditUntold AuditResult = "untold"
)

// AuditFinding is something that a step would say. The fields of an object are empty if the finding is about the step
// as a whole.
type AuditFinding struct {
	Step      string
	Mode      Mode // of the step
	Result    AuditResult
	Operation admissionv1.Operation // with which the step was asked
	Message   string                // the reason, with its remedy if it has one; it holds no value of an object, except in the step's own text
	Paths     []string              // JSON pointers to what would change, in order; of AuditDrift

	Kind            schema.GroupVersionKind
	Resource        schema.GroupVersionResource
	Namespace, Name string
	UID             types.UID
}

// AuditProgress is the state of an audit.
type AuditProgress struct {
	Resource  schema.GroupVersionResource // that is listed now
	Listed    int                         // objects of it so far
	Remaining int                         // objects of it that the API server has announced; -1 if it has not
	Objects   int                         // of all resources so far
	Findings  int
}

// AuditSummary holds the counts of an audit. Its maps are by step.
type AuditSummary struct {
	Objects  int                            // that at least one step was asked about
	Asked    map[string]int                 // objects for which the step was asked
	Findings map[string]map[AuditResult]int // objects with a finding; of a finding about the step as a whole, 1
}

// Audit lists the objects that the rules of the steps select and asks the steps about each of them in memory, with the
// operation that they are registered for. Nothing is written, unless AuditOptions.PolicyReports is set, and no webhook
// is called. The Manager need not be started. The summary is valid even with an error, up to where the audit got.
func (m *ExtensionManager) Audit(ctx context.Context, o AuditOptions) (AuditSummary, error) {
	return AuditSummary{}, errors.New("eirinix: not built yet")
}
