package audit

// This file decides which objects a step is asked about: those for which the API server would call its webhook.

import (
	"cmp"
	"context"
	"fmt"
	"regexp"
	"strings"
	"time"

	"github.com/go-logr/logr"
	admissionv1 "k8s.io/api/admission/v1"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"

	"code.cloudfoundry.org/eirinix/internal/chain"
	"code.cloudfoundry.org/eirinix/internal/decode"
	"code.cloudfoundry.org/eirinix/internal/resources"
	"code.cloudfoundry.org/eirinix/internal/seam"
	"code.cloudfoundry.org/eirinix/internal/webhookconf"
)

// Step is a step that can be asked.
type Step = seam.Step

// Condition reports whether all matchConditions of a step hold for a request.
type Condition func(context.Context, *admissionv1.AdmissionRequest) (bool, error)

// step is a step that is asked.
type step struct {
	Step
	player     *Player
	matcher    *chain.Matcher // of the webhook's rules and objectSelector
	namespaces labels.Selector
	condition  Condition // nil if the step has none

	unknown  bool // its result depends on the user, or on nothing, so it is asked about no more objects
	panicked bool // and that has been reported

	told map[Result]int // answers so far
}

// newStep prepares a step. It returns nil if the step cannot be asked: by its nature, which unknown says, or because of a
// gap.
func newStep(given Step, conditions func([]admissionregistrationv1.MatchCondition) (Condition, error), log logr.Logger) (_ *step, unknown string, _ Gap) {
	if given.Waits != nil {
		return nil, "", Gap{Reason: given.Waits.Error(), Remedy: remedyServed}
	}
	s := &step{Step: given, told: map[Result]int{}}
	if given.Registered.DependsOnUser {
		return nil, "its result depends on the user who sends a request (Settings.DependsOnUser), and an audit has no user", Gap{}
	}
	all := webhookconf.WithoutDying(given.Webhook.MatchConditions)
	for _, c := range all {
		if aboutUsers.MatchString(c.Expression) {
			return nil, fmt.Sprintf("its condition %q depends on the user who sends a request, and an audit has no user", c.Name), Gap{}
		}
	}
	var err error
	if s.matcher, err = chain.NewMatcher(given.Webhook.Rules, given.Webhook.ObjectSelector, nil); err != nil {
		return nil, "", Gap{Reason: err.Error(), Remedy: "correct Settings.Objects"}
	}
	if s.namespaces, err = metav1.LabelSelectorAsSelector(cmp.Or(given.Webhook.NamespaceSelector, &metav1.LabelSelector{})); err != nil {
		return nil, "", Gap{Reason: "namespaceSelector: " + err.Error(), Remedy: "correct Settings.Namespaces"}
	}
	if len(all) > 0 {
		if s.condition, err = conditions(all); err != nil {
			return nil, "", Gap{Reason: "its matchConditions do not compile: " + err.Error(), Remedy: "correct Settings.Conditions"}
		}
	}
	if given.Converts != nil {
		return s, "", Gap{}
	}
	served := given.Served
	served.EveryUpdate = true // the update of an audit changes nothing
	if seconds := given.Webhook.TimeoutSeconds; served.Timeout == 0 && seconds != nil {
		served.Timeout = time.Duration(*seconds) * time.Second
	}
	s.player = NewPlayer(served, log)
	return s, "", Gap{}
}

// aboutUsers matches conditions that read the user or its rights. A mention in a text counts, too.
var aboutUsers = regexp.MustCompile(`\bauthorizer\b|\brequest\s*\.\s*\??\s*userInfo\b`)

// wants reports whether the rules of the step's webhook select an operation on a resource itself.
func (s *step) wants(r resource, operation admissionv1.Operation) bool {
	req := &admissionv1.AdmissionRequest{Operation: operation, Resource: metav1.GroupVersionResource(r.GroupVersionResource)}
	if r.namespaced {
		req.Namespace = metav1.NamespaceDefault // any one
	}
	return resources.Match(s.Webhook.Rules, req)
}

// afterCondition says what the API server does after an error of a condition.
func (s *step) afterCondition() string {
	if s.Registered.FailurePolicy == admissionregistrationv1.Ignore {
		return "; the API server then does not call the step"
	}
	return "; the API server then refuses the object"
}

// selects reports whether the API server would call the step's webhook for a request if its matchConditions hold. For
// the namespaceSelector, Namespaces have their own labels. Other objects without a namespace are always selected.
func (e *engine) selects(ctx context.Context, t *target, s *step, req *admissionv1.AdmissionRequest) (bool, error) {
	if !s.matcher.Matches(req) || !s.player.Wants(req) {
		return false, nil
	}
	switch {
	case s.namespaces.Empty():
		return true, nil
	case t.isNamespaces():
		var own head
		readable := decode.Into(req.Object.Raw, &own) == nil
		return !readable || s.namespaces.Matches(labels.Set(own.Metadata.Labels)), nil // the step's own decoder returns the error
	case req.Namespace == "":
		return true, nil
	case len(otherLabels(s.namespaces)) == 0:
		return s.namespaces.Matches(labels.Set{corev1.LabelMetadataName: req.Namespace}), nil
	}
	of, why := e.namespaces.of(ctx, req.Namespace)
	if why == nil || apierrors.IsNotFound(why) { // it is gone, and so is the object
		return why == nil && s.namespaces.Matches(of), nil
	}
	if err := e.ended(ctx, namespaceResource, why); err != nil {
		return false, err
	}
	g := Gap{
		Remedy: remedyOf(why, namespaceResource.GroupVersionResource, "", "get", "list"),
		Reason: fmt.Sprintf("its namespaceSelector needs the labels %s of namespaces, which cannot be read: %s",
			strings.Join(otherLabels(s.namespaces), ", "), shortened(why.Error())),
	}
	if e.namespaces.failed == nil {
		g.Namespace = req.Namespace
	}
	return false, e.gap(ctx, &s.Step, t.resource, g)
}
