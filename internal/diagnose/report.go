package diagnose

// This file defines the report of a diagnosis, and logs it.

import (
	"cmp"
	"errors"
	"slices"
	"strings"

	"github.com/go-logr/logr"
)

// Report holds the findings of a diagnosis: problems first, then warnings, then notes.
type Report struct {
	Findings []Finding `json:"findings"`
}

// Failed returns the report of a diagnosis that could not begin, for example without a usable kubeconfig.
func Failed(err error) Report {
	return Report{Findings: []Finding{{Code: NotBegun, Severity: Problem, Message: err.Error()}}}
}

// String returns one line per finding.
func (r Report) String() string {
	var text strings.Builder
	for _, f := range r.Findings {
		text.WriteString(f.String())
		text.WriteByte('\n')
	}
	return text.String()
}

// Err joins the problems, each of which is a Finding. It returns nil if there are none.
func (r Report) Err() error {
	var errs []error
	for _, f := range r.Findings {
		if f.Severity == Problem {
			errs = append(errs, f)
		}
	}
	return errors.Join(errs...)
}

// Find returns the first finding with this code.
func (r Report) Find(c Code) (Finding, bool) {
	i := slices.IndexFunc(r.Findings, func(f Finding) bool { return f.Code == c })
	if i < 0 {
		return Finding{}, false
	}
	return r.Findings[i], true
}

// Rights returns the missing rights that limited the diagnosis. Manifest returns the objects that grant them.
func (r Report) Rights() []Right {
	var rights []Right
	for _, f := range r.Findings {
		rights = append(rights, f.Rights...)
	}
	return rights
}

// Log logs one line per finding: problems as errors, the others as information.
func (r Report) Log(log logr.Logger) {
	for _, f := range r.Findings {
		f.log(log, f.Severity == Problem, f.Message)
	}
}

// log logs the finding with a message, as an error or as information.
func (f Finding) log(log logr.Logger, isError bool, message string) {
	values := []any{"code", f.Code, "severity", f.Severity}
	for _, more := range []struct{ key, value string }{{"object", f.Object}, {"remedy", f.Remedy}, {"evidence", f.Evidence}} {
		if more.value != "" {
			values = append(values, more.key, more.value)
		}
	}
	if isError {
		log.Error(nil, message, values...)
	} else {
		log.Info(message, values...)
	}
}

var severities = []Severity{Problem, Warning, Note}

// sorted returns the findings in the order of their severity, each once.
func sorted(findings []Finding) Report {
	slices.SortStableFunc(findings, func(a, b Finding) int {
		return cmp.Compare(slices.Index(severities, a.Severity), slices.Index(severities, b.Severity))
	})
	var once []Finding
	for _, f := range findings {
		i := slices.IndexFunc(once, func(o Finding) bool { return o.Code == f.Code && o.Object == f.Object })
		if i < 0 {
			once = append(once, f)
			continue
		}
		once[i].Evidence = cmp.Or(once[i].Evidence, f.Evidence)
	}
	return Report{Findings: once}
}
