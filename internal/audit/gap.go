package audit

// This file records what an audit could not ask.

import (
	"context"
	"fmt"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// Gap is a part of an audit that could not be asked: a step, for the objects of a resource in a namespace.
type Gap struct {
	Step      string
	Resource  schema.GroupVersionResource // empty: all that the rules of the step select
	Namespace string                      // empty: all
	Objects   int                         // about which the step failed; 0 means that it could be asked about none, or not about all

	Reason string // in the words of the API server, or of the step
	Remedy string
}

func (g Gap) String() string {
	of := ""
	if g.Resource.Resource != "" {
		of = " about " + g.Resource.GroupResource().String()
	}
	if g.Namespace != "" {
		of += " in the namespace " + g.Namespace
	}
	return fmt.Sprintf("step %s%s: %s; %s", g.Step, of, g.Reason, g.Remedy)
}

// IncompleteError is the error of an audit that got to its end, but has gaps.
type IncompleteError struct{ Gaps []Gap }

func (e *IncompleteError) Error() string {
	text := "the audit is not complete: " + e.Gaps[0].String()
	if more := len(e.Gaps) - 1; more > 0 {
		text += fmt.Sprintf("; and %d more gaps", more)
	}
	return text
}

// gap records that a step could not be asked about a resource, and reports that once.
func (e *engine) gap(ctx context.Context, s *Step, r resource, g Gap) error {
	g.Step, g.Resource = s.Name, r.GroupVersionResource
	if !e.record(g) {
		return nil
	}
	return e.about(ctx, s, r, Unknown, g.Reason+"; "+g.Remedy)
}

// record adds a gap to the summary, or its objects to those of the same gap.
func (e *engine) record(g Gap) (isNew bool) {
	key := Gap{Step: g.Step, Resource: g.Resource, Namespace: g.Namespace, Objects: min(g.Objects, 1)}
	if at, known := e.gaps[key]; known {
		e.summary.Gaps[at].Objects += g.Objects
		return false
	}
	e.gaps[key] = len(e.summary.Gaps)
	e.summary.Gaps = append(e.summary.Gaps, g)
	if e.Reports != nil {
		e.Reports.Gap(g)
	}
	return true
}

const (
	remedyAgain  = "mend that, and audit again"
	remedyObject = "one object that cannot be converted makes the whole list fail: mend the conversion of the one that is named, or see to the webhook"
	remedyServed = "have it served, with its CustomResourceDefinition and the rights to list it, or leave the step out"
)

// remedyOf returns what helps against an error of reading a resource.
func remedyOf(err error, r schema.GroupVersionResource, namespace string, verbs ...string) string {
	switch {
	case apierrors.IsNotFound(err):
		return remedyServed
	case strings.Contains(err.Error(), "conversion webhook for "): // in the words of every API server
		return remedyObject
	case !apierrors.IsForbidden(err):
		return remedyAgain
	}
	role := "a ClusterRole"
	if namespace != "" {
		role = fmt.Sprintf("a Role in the namespace %s", namespace)
	}
	return fmt.Sprintf(`grant it with this rule of %s: {apiGroups: [%q], resources: [%q], verbs: ["%s"]}`,
		role, r.Group, r.Resource, strings.Join(verbs, `", "`))
}
