package audit

// This file decides which objects a step is asked about: those for which the API server would call its webhook.

import (
	"bytes"
	"context"
	"fmt"
	"regexp"
	"slices"
	"time"

	"github.com/go-logr/logr"
	admissionv1 "k8s.io/api/admission/v1"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"

	"code.cloudfoundry.org/eirinix/internal/admit"
	"code.cloudfoundry.org/eirinix/internal/decode"
	"code.cloudfoundry.org/eirinix/internal/webhookconf"
)

// Step is a step that is audited.
type Step struct {
	Name  string
	Waits error // why it has no registration: the cluster does not serve its kind; the other fields are then empty

	Registered webhookconf.Step
	Served     admit.Step
	Webhook    admissionregistrationv1.MutatingWebhook // as if the step had one alone; validating steps have one of this type, too
}

// Condition reports whether all matchConditions of a step hold for a request.
type Condition func(context.Context, *admissionv1.AdmissionRequest) (bool, error)

// step is a step that is asked.
type step struct {
	Step
	player     *admit.Player
	matcher    *admit.Matcher // of the webhook's rules and objectSelector
	namespaces labels.Selector
	condition  Condition // nil if the step has none

	blind    bool // objects in namespaces are not asked about, because their namespaces' labels are unknown
	panicked bool // and that has been reported
}

// newStep prepares a step. reason says why the step cannot be asked at all, with the result of the finding.
func newStep(given Step, conditions func([]admissionregistrationv1.MatchCondition) (Condition, error), log logr.Logger) (s *step, reason string, result Result) {
	if given.Waits != nil {
		return nil, given.Waits.Error(), Untold
	}
	s = &step{Step: given}
	if given.Registered.ReadsUser {
		return nil, "its result depends on the user who sends a request (Settings.ReadsUser), and an audit has no user", Untold
	}
	var err error
	if s.matcher, err = admit.NewMatcher(given.Webhook.Rules, given.Webhook.ObjectSelector, nil); err != nil {
		return nil, err.Error(), Failed
	}
	if s.namespaces, err = metav1.LabelSelectorAsSelector(given.Webhook.NamespaceSelector); err != nil {
		return nil, fmt.Sprintf("namespaceSelector: %v", err), Failed
	}
	if given.Webhook.NamespaceSelector == nil {
		s.namespaces = labels.Everything()
	}
	if reason, result = s.compile(conditions); reason != "" {
		return nil, reason, result
	}
	served := given.Served
	if seconds := given.Webhook.TimeoutSeconds; served.Timeout == 0 && seconds != nil {
		served.Timeout = time.Duration(*seconds) * time.Second
	}
	s.player = admit.NewPlayer(served, log)
	return s, "", ""
}

// aboutUsers matches conditions that read the user or its rights. A mention in a text counts, too.
var aboutUsers = regexp.MustCompile(`\bauthorizer\b|\brequest\s*\.\s*\??\s*userInfo\b`)

func (s *step) compile(conditions func([]admissionregistrationv1.MatchCondition) (Condition, error)) (reason string, result Result) {
	all := s.Webhook.MatchConditions
	if len(all) == 0 {
		return "", ""
	}
	for _, c := range all {
		if aboutUsers.MatchString(c.Expression) {
			return fmt.Sprintf("its condition %q depends on the user who sends a request, and an audit has no user", c.Name), Untold
		}
	}
	if conditions == nil {
		return "it has matchConditions, its own or those of its wildcards, which need an interpreter of CEL; set AuditOptions.Conditions to audit.Conditions", Untold
	}
	var err error
	if s.condition, err = conditions(all); err != nil {
		return fmt.Sprintf("its matchConditions do not compile; correct Settings.Conditions: %v", err), Failed
	}
	return "", ""
}

// wants reports whether the rules of the step's webhook select an operation on a resource itself.
func (s *step) wants(r resource, operation admissionv1.Operation) bool {
	req := &admissionv1.AdmissionRequest{Operation: operation, Resource: metav1.GroupVersionResource(r.GroupVersionResource)}
	if r.namespaced {
		req.Namespace = metav1.NamespaceDefault // any one
	}
	return s.matcher.MatchesRules(req)
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
	if s.namespaces.Empty() {
		return true, nil
	}
	if t.isNamespaces() {
		own, readable := labelsIn(req.Object.Raw)
		return !readable || s.namespaces.Matches(own), nil // the step's own decoder returns the error
	}
	if req.Namespace == "" {
		return true, nil
	}
	if s.blind {
		return false, nil
	}
	of, err := e.namespaces.of(ctx, req.Namespace)
	return err == nil && s.namespaces.Matches(of), err
}

// labelsIn returns the labels of an object.
func labelsIn(raw []byte) (all labels.Set, readable bool) {
	var object head
	err := decode.Into(raw, &object)
	return object.Metadata.Labels, err == nil
}

// typed adds apiVersion and kind to an object of a list, if they are missing.
func typed(i *item, t *target) []byte {
	var missing []byte
	if i.head.APIVersion == "" {
		missing = fmt.Appendf(missing, `"apiVersion":%q,`, t.kind.GroupVersion().String())
	}
	if i.head.Kind == "" {
		missing = fmt.Appendf(missing, `"kind":%q,`, t.kind.Kind)
	}
	members, isObject := bytes.CutPrefix(i.raw, []byte{'{'})
	if len(missing) == 0 || !isObject {
		return i.raw
	}
	if bytes.HasPrefix(bytes.TrimSpace(members), []byte{'}'}) {
		missing = missing[:len(missing)-1] // the comma
	}
	return slices.Concat([]byte{'{'}, missing, members)
}
