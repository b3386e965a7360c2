// Package audit asks the steps of a program about the objects that a cluster holds already. It lists them page by page,
// holds one object at a time, and calls no webhook. It writes nothing, unless its caller has a place for reports.
//
// Each step is asked about those objects for which the API server would call its webhook, with the requests that the
// API server would send.
package audit

// This file runs an audit: it goes through the resources and their objects, and reports the findings.

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/go-logr/logr"
	admissionv1 "k8s.io/api/admission/v1"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	authenticationv1 "k8s.io/api/authentication/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/util/flowcontrol"

	"code.cloudfoundry.org/eirinix/internal/modes"
	"code.cloudfoundry.org/eirinix/internal/wait"
	"code.cloudfoundry.org/eirinix/internal/webhookconf"
)

// Result is the kind of a finding.
type Result string

// The results. The public names of package audit describe them.
const (
	Denied  Result = "denied"
	Drift   Result = "drift"
	Failed  Result = "failed"
	Unknown Result = "unknown"

	// Passed is told to Reports alone.
	Passed Result = "passed"
)

// Finding is what a step would say of an object, or a fact about the step as a whole.
type Finding struct {
	Step      string
	Mode      webhookconf.Mode // in force for the object; empty if that depends on a namespace whose labels cannot be read
	Result    Result
	Operation admissionv1.Operation // with which the step was asked; empty for a Conversion, like Mode
	Message   string                // the reason, with its remedy if it has one; it holds no value of an object, except in the text of a step or a conversion
	Paths     []string              // JSON pointers to what would change, in order; of Drift; in those of a Conversion, "*" is any item

	// Frozen is set if the object is Denied, and so is an update that changes only its metadata. Without, it violates the
	// step, and can be edited elsewhere.
	Frozen bool

	Kind            schema.GroupVersionKind
	Resource        schema.GroupVersionResource
	Namespace, Name string
	UID             types.UID
}

// Text returns the message, or what would change instead of it. The message of a Conversion holds its paths.
func (f Finding) Text() string {
	if len(f.Paths) > 0 && f.Operation != "" {
		return "would change " + strings.Join(f.Paths, ", ")
	}
	if f.Frozen {
		return f.Message + " (frozen: an update of its labels would be denied, too; see Validation.Rule)"
	}
	return f.Message
}

// Progress is the state of an audit.
type Progress struct {
	Resource  schema.GroupVersionResource // that is listed now
	Listed    int                         // objects of it so far
	Remaining int                         // objects of it that the API server has announced; -1 if it has not
	Objects   int                         // of all resources so far
	Findings  int
}

// Summary holds the counts of an audit. Its maps are by step.
type Summary struct {
	Objects  int                       // that at least one step was asked about
	Asked    map[string]int            // objects for which the step was asked
	Findings map[string]map[Result]int // objects with a finding; of a finding about the step as a whole, 1
	Gaps     []Gap                     // what could not be asked
	Notes    []string                  // facts about the audit as a whole, such as why there are no PolicyReports
}

// Reports stores the findings of an audit. Its methods are called on one goroutine. The findings about objects come
// ordered by resource. Those of one list come in the order of the API server: by namespace, then by name.
type Reports interface {
	// Add receives each finding about an object, and also the objects that a step admits, as Passed.
	Add(ctx context.Context, f Finding) error
	// Gap receives what could not be asked. It comes before the findings about another resource.
	Gap(g Gap)
	// Close ends an audit that got to its end. What is neither among the findings nor in a gap is clean.
	Close(ctx context.Context) error
}

// Config is an audit.
type Config struct {
	Steps     []Step
	Client    rest.Interface // without a rate limit and a timeout of its own
	Discovery discovery.ServerResourcesInterfaceWithContext

	Namespace         string  // empty: all, and objects without a namespace
	PageSize          int     // of a list request
	PagesPerSecond    float64 // bound on the rate of list requests
	RequestsPerSecond float64 // bound on the rate of the requests that steps send

	Conditions func([]admissionregistrationv1.MatchCondition) (Condition, error) // compiles matchConditions
	Finding    func(Finding) error                                               // may be nil
	Progress   func(Progress)                                                    // may be nil
	Reports    Reports                                                           // may be nil
	Metrics    *Metrics                                                          // may be nil
	Modes      *modes.Modes                                                      // in force
	Log        logr.Logger
}

// engine is a running audit.
type engine struct {
	Config
	lister     *lister
	namespaces *namespaces
	users      []authenticationv1.UserInfo
	pause      func(context.Context, time.Duration) error

	summary  Summary
	gaps     map[Gap]int // places in the summary; of the keys, only Step, Resource, Namespace and one Object are set
	progress Progress
}

// Run audits. The summary is valid even with an error, up to where the audit got. If there are gaps, the error is an
// *IncompleteError.
func Run(ctx context.Context, c Config) (Summary, error) {
	l := &lister{
		client: c.Client, rate: flowcontrol.NewTokenBucketRateLimiter(float32(c.PagesPerSecond), 1),
		pageSize: c.PageSize, log: c.Log, patience: patience, pageTime: pageTime,
	}
	return run(ctx, c, l, wait.Sleep)
}

func run(ctx context.Context, c Config, l *lister, pause func(context.Context, time.Duration) error) (Summary, error) {
	began := time.Now()
	e := &engine{
		Config: c, lister: l, namespaces: newNamespaces(l, c.Namespace), users: newUsers(), pause: pause,
		summary: Summary{Asked: map[string]int{}, Findings: map[string]map[Result]int{}}, gaps: map[Gap]int{},
	}
	if e.Modes.Labels == nil { // else its program runs
		e.Modes.Labels = e.namespaces.of
	}
	err := e.all(ctx)
	if err == nil && c.Reports != nil {
		err = c.Reports.Close(ctx)
	}
	switch {
	case err != nil:
	case len(e.summary.Gaps) > 0:
		err = &IncompleteError{Gaps: e.summary.Gaps}
	default:
		c.Metrics.completed(c.Steps, e.summary, time.Since(began), time.Now())
	}
	return e.summary, err
}

// all asks all steps about all resources.
func (e *engine) all(ctx context.Context) error {
	steps, err := e.prepare(ctx)
	if err != nil || len(steps) == 0 {
		return err
	}
	resources, failed, err := served(ctx, e.Discovery)
	if err != nil {
		return fmt.Errorf("the resources that the cluster serves cannot be read: %w", err)
	}
	found := targets(steps, resources, e.Namespace)
	if err := e.reportMissing(ctx, steps, found, failed); err != nil {
		return err
	}
	for _, t := range found {
		if err := e.resource(ctx, t); err != nil {
			return err
		}
	}
	return nil
}

// prepare returns the steps that can be asked, and reports the others.
func (e *engine) prepare(ctx context.Context) (steps []*step, err error) {
	for _, given := range e.Steps {
		e.summary.Asked[given.Name] = 0
		s, unknown, gap := newStep(given, e.Conditions, e.Log)
		if without := unplayed(given.Webhook.Rules); s != nil && len(without) > 0 {
			unknown = fmt.Sprintf("an audit cannot tell its result for %s: no such request is played", strings.Join(without, "; "))
		}
		switch {
		case gap.Reason != "":
			err = e.gap(ctx, &given, resource{}, gap)
		case unknown != "":
			err = e.about(ctx, &given, resource{}, Unknown, unknown)
		}
		if err != nil {
			return nil, err
		}
		if s != nil && len(playedIn(given.Webhook.Rules)) > 0 {
			steps = append(steps, s)
		}
	}
	return steps, nil
}

// reportMissing reports the steps that are asked about no resource, and the groups that cannot be discovered.
func (e *engine) reportMissing(ctx context.Context, steps []*step, found []*target, failed map[schema.GroupVersion]error) error {
	for _, s := range steps {
		asked := e.Namespace != "" || slices.ContainsFunc(found, func(t *target) bool { return slices.Contains(t.steps, s) })
		for gv, err := range failed {
			if !slices.ContainsFunc(s.Webhook.Rules, func(r admissionregistrationv1.RuleWithOperations) bool {
				return names(r.APIGroups, gv.Group) && names(r.APIVersions, gv.Version)
			}) {
				continue
			}
			asked = true
			reason := fmt.Sprintf("the resources of %s cannot be read: %s", gv, shortened(err.Error()))
			if err := e.gap(ctx, &s.Step, resource{GroupVersionResource: gv.WithResource("")}, Gap{Reason: reason, Remedy: "see to its APIService"}); err != nil {
				return err
			}
		}
		if asked {
			continue
		}
		const reason = "the cluster serves no resource that its rules select and that can be listed"
		if err := e.gap(ctx, &s.Step, resource{}, Gap{Reason: reason, Remedy: remedyServed}); err != nil {
			return err
		}
	}
	return nil
}

// resource lists a resource and asks its steps about each object. A resource that cannot be listed does not end the
// audit.
func (e *engine) resource(ctx context.Context, t *target) error {
	e.progress.Resource, e.progress.Listed = t.GroupVersionResource, 0
	paged := func(remaining int64) {
		e.progress.Remaining, e.progress.Objects = int(remaining), e.summary.Objects
		if e.Progress != nil {
			e.Progress(e.progress)
		}
	}
	for _, namespace := range t.namespaces {
		why := e.lister.list(ctx, t.path(namespace), acceptObjects, func(ctx context.Context, i *item) error {
			return e.object(ctx, t, i)
		}, paged)
		if why == nil {
			continue
		}
		if err := e.ended(ctx, t.resource, why); err != nil {
			return err
		}
		g := Gap{
			Namespace: namespace, Remedy: remedyOf(why, t.GroupVersionResource, namespace, "list"),
			Reason: fmt.Sprintf("%s cannot be listed to the end: %s", t.GroupResource(), shortened(why.Error())),
		}
		for _, s := range t.steps {
			if err := e.gap(ctx, &s.Step, t.resource, g); err != nil {
				return err
			}
		}
	}
	return nil
}

// ended returns the error with which the audit ends, or nil if only the list of this resource has failed.
func (e *engine) ended(ctx context.Context, r resource, err error) error {
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	if ended, ok := errors.AsType[*endedError](err); ok {
		return ended.err
	}
	if _, ok := errors.AsType[*unreadableError](err); ok {
		return nil
	}
	var answered apierrors.APIStatus // not an error type itself, so AsType does not accept it
	if errors.As(err, &answered) && !apierrors.IsUnauthorized(err) {
		return nil
	}
	return fmt.Errorf("the API server does not list %s: %w", r.GroupResource(), err)
}

// object asks the steps of a target about one object, in order: each mutating step about the object as those before it
// have left it, and the validating steps about the result.
func (e *engine) object(ctx context.Context, t *target, i *item) error {
	e.progress.Listed++
	o := &object{target: t, head: &i.head}
	o.stored, o.created = t.texts(i.raw)
	o.updated = o.stored
	asked := false
	for _, s := range t.steps {
		a, err := e.answer(ctx, o, s)
		if err != nil {
			return err
		}
		if a.Result == "" {
			continue
		}
		asked = true
		e.summary.Asked[s.Name]++
		if err := e.tell(ctx, o, s, &a); err != nil {
			return err
		}
	}
	if asked {
		e.summary.Objects++
	}
	return nil
}

// tell counts and reports the answer of a step for one object.
func (e *engine) tell(ctx context.Context, o *object, s *step, a *answer) error {
	f := a.Finding
	f.Step, f.Kind, f.Resource = s.Name, o.kind, o.GroupVersionResource
	f.Namespace, f.Name, f.UID = o.head.Metadata.Namespace, o.head.Metadata.Name, o.head.Metadata.UID
	switch {
	case f.Result == Passed:
		if e.Reports == nil || f.Name == "" {
			return nil
		}
		return e.Reports.Add(ctx, f)
	case f.Result == Unknown: // for all objects
		s.unknown = true
		return e.about(ctx, &s.Step, resource{}, Unknown, f.Message)
	case a.gap:
		e.record(Gap{Step: s.Name, Resource: o.GroupVersionResource, Namespace: f.Namespace, Objects: 1, Reason: f.Message, Remedy: remedyAgain})
	}
	e.count(s.Name, f.Result)
	if a.stack != nil {
		if s.panicked {
			return nil
		}
		s.panicked = true
		e.Log.Error(nil, "a step panicked in an audit", "step", s.Name, "resource", o.GroupResource().String(),
			"namespace", f.Namespace, "name", f.Name, "stack", string(a.stack))
	}
	return e.report(ctx, f)
}

// about reports a finding about a step and all objects of a resource.
func (e *engine) about(ctx context.Context, s *Step, r resource, result Result, message string) error {
	e.count(s.Name, result)
	return e.report(ctx, Finding{
		Step: s.Name, Result: result, Message: message, Kind: r.kind, Resource: r.GroupVersionResource,
	})
}

// count counts an object, or a step, with a result.
func (e *engine) count(step string, result Result) {
	if e.summary.Findings[step] == nil {
		e.summary.Findings[step] = map[Result]int{}
	}
	e.summary.Findings[step][result]++
}

// report passes a finding on.
func (e *engine) report(ctx context.Context, f Finding) error {
	e.progress.Findings++
	if e.Finding != nil {
		if err := e.Finding(f); err != nil {
			return err
		}
	}
	if e.Reports != nil && f.Name != "" {
		return e.Reports.Add(ctx, f)
	}
	return nil
}
