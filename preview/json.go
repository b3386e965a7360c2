package preview

// This file prints results as one JSON document.

import (
	"encoding/json"
	"fmt"
	"io"

	"gomodules.xyz/jsonpatch/v2"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"code.cloudfoundry.org/eirinix/internal/apiserver"
)

// jsonPrinter writes one document for programs, once all results are known. The field names are stable and documented
// in docs/preview-and-audit.md#preview.
type jsonPrinter struct {
	w       io.Writer
	secrets bool // whether secrets are shown
	report  report
}

type report struct {
	Objects []objectReport `json:"objects"`
	Summary summary        `json:"summary"`
}

type objectReport struct {
	Source    string `json:"source"`
	Of        string `json:"of,omitempty"` // the owner, if a controller makes the object
	Operation string `json:"operation"`

	APIVersion string `json:"apiVersion"`
	Kind       string `json:"kind"`
	Namespace  string `json:"namespace,omitempty"`
	Name       string `json:"name"` // a generated name ends in *

	Finalizer string `json:"finalizer,omitempty"` // that the update of a deleted object removes

	Allowed bool          `json:"allowed"`
	Changed bool          `json:"changed"`
	Denial  *denialReport `json:"denial,omitempty"`
	Failure string        `json:"failure,omitempty"`

	Warnings         []string              `json:"warnings,omitempty"`
	AuditAnnotations map[string]string     `json:"auditAnnotations,omitempty"`
	Ignored          []string              `json:"ignored,omitempty"` // failures that failurePolicy Ignore let pass
	Steps            []stepReport          `json:"steps,omitempty"`
	NotCalled        []passReport          `json:"notCalled,omitempty"`
	Writes           []string              `json:"writes,omitempty"`
	NotFound         []string              `json:"notFound,omitempty"` // requested by steps, but not among the manifests
	Patch            []jsonpatch.Operation `json:"patch,omitempty"`
	Diff             string                `json:"diff,omitempty"`
	Object           json.RawMessage       `json:"object,omitempty"` // as it would be stored, if it is allowed
}

type denialReport struct {
	Webhook string               `json:"webhook"`
	Step    string               `json:"step"` // the webhook again, if the step is unknown
	Code    int32                `json:"code"`
	Reason  metav1.StatusReason  `json:"reason,omitempty"`
	Message string               `json:"message"`
	Causes  []metav1.StatusCause `json:"causes,omitempty"`
}

type stepReport struct {
	Step    string `json:"step"`
	Webhook string `json:"webhook"`
	Round   int    `json:"round,omitempty"` // 1 for a reinvocation
	Micros  int64  `json:"microseconds"`
	Error   string `json:"error,omitempty"`
}

type passReport struct {
	Webhook string `json:"webhook"`
	Why     string `json:"why"`
}

func (p *jsonPrinter) object(s *result) error {
	o := s.outcome
	object := s.object
	before, after := shown(p.secrets, o.Before, o.After)
	name := s.object.GetName()
	if name == "" {
		name = s.object.GetGenerateName() + "*"
	}
	r := objectReport{
		Source: s.source, Of: s.of, Finalizer: s.finalizer, Operation: string(s.Operation),
		APIVersion: object.GetAPIVersion(), Kind: object.GetKind(), Namespace: s.namespace, Name: name,
		Allowed: o.Allowed(), Changed: s.changed(), Warnings: o.Warnings, AuditAnnotations: o.AuditAnnotations,
		Writes: s.written(), NotFound: s.missed(), Patch: o.Patch,
	}
	switch {
	case o.Denial != nil:
		r.Denial = &denialReport{o.Denial.Webhook, s.refusedBy(), o.Denial.Code, o.Denial.Reason, o.Denial.Message, causes(o.Denial)}
	case !o.Allowed():
		r.Failure = o.Err.Error()
	default:
		r.Diff, r.Object = between(before, after), after.Raw
	}
	for _, c := range o.Calls {
		if c.Ignored {
			r.Ignored = append(r.Ignored, c.Err.Error())
		}
	}
	for _, run := range o.Steps {
		r.Steps = append(r.Steps, stepReport{run.Step, run.Webhook, run.Round, run.Took.Microseconds(), message(run)})
	}
	if len(o.Calls) == 0 {
		for _, pass := range o.Passed {
			r.NotCalled = append(r.NotCalled, passReport{pass.Webhook, pass.Why + s.unsure(pass)})
		}
	}
	if !p.secrets && isSecret(o.Before) {
		r.Patch = nil // it can hold data that the objects do not show
	}
	p.report.Objects = append(p.report.Objects, r)
	return nil
}

func (p *jsonPrinter) end(t summary) error {
	p.report.Summary = t
	encoder := json.NewEncoder(p.w)
	encoder.SetIndent("", "  ")
	return encoder.Encode(p.report)
}

func causes(d *apiserver.Denial) []metav1.StatusCause {
	if d.Details == nil {
		return nil
	}
	return d.Details.Causes
}

// message returns the error of a step's run, or an empty string.
func message(run apiserver.StepRun) string {
	switch {
	case run.Panic != nil:
		return fmt.Sprintf("panicked: %v", run.Panic)
	case run.Running:
		return "still running when the answer came"
	case run.Err != nil:
		return run.Err.Error()
	}
	return ""
}
