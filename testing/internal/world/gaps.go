package world

// This file is the questions that an audit cannot ask: a step whose Conditions do not compile, one that looks at the user, and objects whose list
// was not answered. It says so, with the remedy.

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"slices"
	"strings"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"code.cloudfoundry.org/eirinix"
	"code.cloudfoundry.org/eirinix/audit"
)

// The steps of tools that audit: the Conditions of one do not compile, another one denies the deeds of administrators, and one is about
// replica sets in any version.
const misprinted, peeks, versioned = "misprinted", "peeks", "versioned"

// puzzles gives the Manager of a tool that audits those steps.
func (e *examination) puzzles(m *eirinix.ExtensionManager) error {
	e.puzzled = len(e.options.Steps) == 0
	wrong := []admissionregistrationv1.MatchCondition{{Name: "named", Expression: "object.metadata.name.startsWith('a') &&"}}
	sets := admissionregistrationv1.Rule{APIGroups: []string{"apps"}, APIVersions: []string{"*"}, Resources: []string{setsOf}}
	return errors.Join(
		m.AddExtension(eirinix.Validation[*unstructured.Unstructured]{
			ID: versioned, Create: func(context.Context, *eirinix.Call, *unstructured.Unstructured) error { return nil },
			Settings: eirinix.Settings{Rules: []admissionregistrationv1.RuleWithOperations{{Operations: []admissionregistrationv1.OperationType{admissionregistrationv1.Create}, Rule: sets}}},
		}),
		m.AddExtension(eirinix.Validation[*corev1.Pod]{
			ID: misprinted, Settings: eirinix.Settings{Conditions: wrong}, Create: func(context.Context, *eirinix.Call, *corev1.Pod) error { return nil },
		}),
		m.AddExtension(eirinix.Validation[*corev1.Pod]{ID: peeks, Create: func(_ context.Context, c *eirinix.Call, _ *corev1.Pod) error {
			if c.UserInfo.Username == "kubernetes-admin" {
				return eirinix.Deny("it is not for administrators")
			}
			return nil
		}}),
	)
}

// listing is a resource in a namespace.
type listing struct{ group, resource, namespace string }

// listingOf returns the objects that a request for a page lists.
func listingOf(r *http.Request) (of listing) {
	parts := strings.Split(strings.Trim(r.URL.Path, "/"), "/")
	if parts[0] == "apis" && len(parts) > 3 {
		of.group, parts = parts[1], parts[1:]
	}
	if parts = parts[2:]; len(parts) == 3 && parts[0] == "namespaces" {
		of.namespace, parts = parts[1], parts[2:]
	}
	of.resource = strings.Join(parts, "/")
	return of
}

// forbids is the answer to an account that lacks a right.
func forbids(r *http.Request) *http.Response {
	denied := apierrors.NewForbidden(corev1.Resource("secrets"), "", errors.New("the account of this audit lacks the right"))
	text, _ := json.Marshal(denied.Status()) // of texts
	return &http.Response{
		StatusCode: http.StatusForbidden, Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1, Request: r,
		Header: http.Header{"Content-Type": {"application/json"}}, Body: io.NopCloser(bytes.NewReader(text)),
	}
}

// lists notes how a request for a page was answered.
func (e *examination) lists(r *http.Request, response *http.Response, err error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.answers == nil {
		e.answers = map[listing]bool{}
	}
	e.answers[listingOf(r)] = err == nil && response.StatusCode == http.StatusOK
}

// gapsWell compares the gaps with the questions that were not asked. The caller holds World.mu.
func (e *examination) gapsWell(ended bool) {
	if !ended {
		return
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	for of, answered := range e.answers {
		covers := func(g audit.Gap) bool {
			return (g.Resource.Empty() || g.Resource.Group == of.group && (g.Resource.Resource == "" || g.Resource.Resource == of.resource)) && (g.Namespace == "" || g.Namespace == of.namespace)
		}
		if !answered && of.resource != "namespaces" && !slices.ContainsFunc(e.summary.Gaps, covers) {
			e.breaks("%s has got no list of %s in the namespace %q, and has no gap for that: %v", e.name, of.resource, of.namespace, e.summary.Gaps)
		}
	}
	if !e.puzzled {
		return
	}
	if is := func(g audit.Gap) bool { return g.Step == misprinted && strings.Contains(g.Reason, "do not compile") }; !slices.ContainsFunc(e.summary.Gaps, is) {
		e.breaks("%s has a step whose Conditions do not compile, and no gap for that: %v", e.name, e.summary.Gaps)
	}
	ofSets := 0
	for _, o := range e.stored {
		if o.GetKind() == kindOfIt {
			ofSets++
		}
	}
	if n := e.summary.Asked[versioned]; n != ofSets && e.rested {
		e.breaks("%s asks a step about %d replica sets in any version, of %d", e.name, n, ofSets)
	}
	is := func(f audit.Finding) bool { return f.Step == peeks && f.Result == audit.Unknown && f.Name == "" }
	if e.summary.Asked[peeks] > 0 && !slices.ContainsFunc(e.told, is) {
		e.breaks("%s asks a step that denies what administrators do, and does not say that its result depends on the user", e.name)
	}
}
