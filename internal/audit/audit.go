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

	"code.cloudfoundry.org/eirinix/internal/webhookconf"
)

// Result is the kind of a finding.
type Result string

// The results. The public names of the root package describe them.
const (
	Denied Result = "denied"
	Drift  Result = "drift"
	Failed Result = "failed"
	Untold Result = "untold"
)

// Finding is what a step would say of an object, or a fact about the step as a whole. Its fields are those of the
// public AuditFinding, in the same order, so that one type converts to the other.
type Finding struct {
	Step      string
	Mode      webhookconf.Mode
	Result    Result
	Operation admissionv1.Operation
	Message   string
	Paths     []string

	Kind            schema.GroupVersionKind
	Resource        schema.GroupVersionResource
	Namespace, Name string
	UID             types.UID
}

// Text returns the message, or what would change instead of it.
func (f Finding) Text() string {
	if len(f.Paths) > 0 {
		return "would change " + strings.Join(f.Paths, ", ")
	}
	return f.Message
}

// Progress is the state of an audit, with the fields of the public AuditProgress.
type Progress struct {
	Resource  schema.GroupVersionResource
	Listed    int
	Remaining int
	Objects   int
	Findings  int
}

// Summary holds the counts of an audit, with the fields of the public AuditSummary.
type Summary struct {
	Objects  int
	Asked    map[string]int
	Findings map[string]map[Result]int
	Notes    []string
}

// Reports stores the findings of an audit. Its methods are called on one goroutine. The findings about objects come
// ordered by resource. Those of one list come in the order of the API server: by namespace, then by name.
type Reports interface {
	// Add receives each finding.
	Add(ctx context.Context, f Finding) error
	// Asked is called when the steps have been asked about all objects of a resource in a namespace. An empty namespace
	// means all.
	Asked(resource schema.GroupVersionResource, namespace string)
	// Close ends the audit. complete reports whether all resources could be listed, in all namespaces and for all steps.
	Close(ctx context.Context, complete bool) error
}

// Config is an audit.
type Config struct {
	Steps     []Step
	Client    rest.Interface // without a rate limit and a timeout of its own
	Discovery discovery.ServerResourcesInterfaceWithContext

	Namespace      string  // empty: all, and objects without a namespace
	Partial        bool    // there are more steps than these
	PageSize       int     // of a list request
	PagesPerSecond float64 // bound on the rate of list requests

	Conditions func([]admissionregistrationv1.MatchCondition) (Condition, error) // may be nil
	Finding    func(Finding) error                                               // may be nil
	Progress   func(Progress)                                                    // may be nil
	Reports    Reports                                                           // may be nil
	Metrics    *Metrics                                                          // may be nil
	Log        logr.Logger
}

// engine is a running audit.
type engine struct {
	Config
	lister     *lister
	namespaces *namespaces
	users      []authenticationv1.UserInfo

	summary  Summary
	progress Progress
	partial  bool // a resource could not be listed to its end
}

// Run audits. The summary is valid even with an error, up to where the audit got.
func Run(ctx context.Context, c Config) (Summary, error) {
	l := &lister{
		client: c.Client, rate: flowcontrol.NewTokenBucketRateLimiter(float32(c.PagesPerSecond), 1),
		pageSize: c.PageSize, log: c.Log, patience: patience, pageTime: pageTime,
	}
	return run(ctx, c, l)
}

func run(ctx context.Context, c Config, l *lister) (Summary, error) {
	began := time.Now()
	e := &engine{
		Config: c, lister: l, namespaces: &namespaces{lister: l}, users: newUsers(),
		summary: Summary{Asked: map[string]int{}, Findings: map[string]map[Result]int{}},
	}
	err := e.all(ctx)
	if c.Reports != nil {
		complete := err == nil && !e.partial && !c.Partial && c.Namespace == ""
		err = errors.Join(err, c.Reports.Close(ctx, complete))
	}
	if err == nil {
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
	if err := e.loadNamespaces(ctx, found); err != nil {
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
		s, reason, result := newStep(given, e.Conditions, e.Log)
		if without := unplayed(given.Webhook.Rules); s != nil && len(without) > 0 {
			reason = fmt.Sprintf("an audit cannot tell its result for %s: no such request is played", strings.Join(without, "; "))
			result = Untold
		}
		if reason != "" {
			if err := e.aboutStep(ctx, &given, result, reason); err != nil {
				return nil, err
			}
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
		reason := ""
		for gv, err := range failed {
			if slices.ContainsFunc(s.Webhook.Rules, func(r admissionregistrationv1.RuleWithOperations) bool {
				return names(r.APIGroups, gv.Group) && names(r.APIVersions, gv.Version)
			}) {
				reason = fmt.Sprintf("the resources of %s cannot be read; see to its APIService: %s", gv, shortened(err.Error()))
				e.partial = true
			}
		}
		asked := slices.ContainsFunc(found, func(t *target) bool { return slices.Contains(t.steps, s) })
		if reason == "" && !asked && e.Namespace == "" {
			reason = "the cluster serves no resource that its rules select and that can be listed"
		}
		if reason != "" {
			if err := e.aboutStep(ctx, &s.Step, Untold, reason); err != nil {
				return err
			}
		}
	}
	return nil
}

// loadNamespaces reads the labels of namespaces, if a step selects by them. Without the right to that, such a step is
// not asked about objects in namespaces.
func (e *engine) loadNamespaces(ctx context.Context, found []*target) error {
	var steps []*step
	for _, t := range found {
		for _, s := range t.steps {
			if t.namespaced && !t.isNamespaces() && len(otherLabels(s.namespaces)) > 0 && !slices.Contains(steps, s) {
				steps = append(steps, s)
			}
		}
	}
	e.namespaces.needed = len(steps) > 0
	if err := e.namespaces.load(ctx, e.Namespace); err != nil {
		return e.ended(ctx, namespaceResource, err)
	}
	if !e.namespaces.forbidden {
		return nil
	}
	e.partial = true
	for _, s := range steps {
		s.blind = true
		reason := fmt.Sprintf("its namespaceSelector needs the labels %s of namespaces, which may not be listed; %s",
			strings.Join(otherLabels(s.namespaces), ", "), grant(namespaceResource.GroupVersionResource, "", "get", "list"))
		if err := e.aboutStep(ctx, &s.Step, Untold, reason); err != nil {
			return err
		}
	}
	return nil
}

// grant returns the RBAC rule that grants rights on a resource.
func grant(r schema.GroupVersionResource, namespace string, verbs ...string) string {
	role := "a ClusterRole"
	if namespace != "" {
		role = fmt.Sprintf("a Role in the namespace %s", namespace)
	}
	return fmt.Sprintf(`grant it with this rule of %s: {apiGroups: [%q], resources: [%q], verbs: ["%s"]}`,
		role, r.Group, r.Resource, strings.Join(verbs, `", "`))
}

// resource lists a resource and asks its steps about each object. A resource that cannot be listed does not end the
// audit.
func (e *engine) resource(ctx context.Context, t *target) error {
	e.progress.Resource, e.progress.Listed = t.GroupVersionResource, 0
	for _, namespace := range t.namespaces {
		err := e.lister.list(ctx, t.path(namespace), acceptObjects, func(ctx context.Context, i *item) error {
			return e.object(ctx, t, i)
		}, e.paged)
		if err == nil {
			if e.Reports != nil {
				e.Reports.Asked(t.GroupVersionResource, namespace)
			}
			continue
		}
		if err := e.unlisted(ctx, t, namespace, err); err != nil {
			return err
		}
	}
	return nil
}

// paged reports the progress after a page.
func (e *engine) paged(remaining int64) {
	if e.Progress == nil {
		return
	}
	e.progress.Remaining, e.progress.Objects = int(remaining), e.summary.Objects
	e.Progress(e.progress)
}

// unlisted reports that a resource could not be listed, for each of its steps. It returns an error if that ends the
// audit: the context has ended, a receiver of findings failed, or the API server does not answer.
func (e *engine) unlisted(ctx context.Context, t *target, namespace string, err error) error {
	if err := e.ended(ctx, t.resource, err); err != nil {
		return err
	}
	e.partial = true
	var reason string
	if apierrors.IsForbidden(err) {
		reason = fmt.Sprintf("%s may not be listed; %s", groupResource(t.GroupVersionResource), grant(t.GroupVersionResource, namespace, "list"))
	} else {
		reason = fmt.Sprintf("%s cannot be listed to the end: %s", groupResource(t.GroupVersionResource), shortened(err.Error()))
	}
	for _, s := range t.steps {
		if err := e.about(ctx, &s.Step, t.resource, Untold, reason); err != nil {
			return err
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
	return fmt.Errorf("the API server does not list %s: %w", groupResource(r.GroupVersionResource), err)
}

// object asks the steps of a target about one object, with each operation that they are registered for.
func (e *engine) object(ctx context.Context, t *target, i *item) error {
	e.progress.Listed++
	o := &object{target: t, head: &i.head, raw: typed(i, t)}
	created, err := e.walk(ctx, o, admissionv1.Create)
	if err != nil {
		return err
	}
	updated, err := e.walk(ctx, o, admissionv1.Update)
	if err != nil {
		return err
	}
	asked := false
	for n, s := range t.steps {
		c, u := &created[n], &updated[n]
		if !c.asked && !u.asked {
			continue
		}
		asked = true
		e.summary.Asked[s.Name]++
		if err := e.answers(ctx, o, s, c, u); err != nil {
			return err
		}
	}
	if asked {
		e.summary.Objects++
	}
	return nil
}

// operations are those with which steps are asked about an object.
var operations = [...]admissionv1.Operation{admissionv1.Create, admissionv1.Update}

// answers counts and reports the answers of a step for one object. Equal answers for both operations are one finding.
func (e *engine) answers(ctx context.Context, o *object, s *step, created, updated *answer) error {
	counted := Result("")
	for i, a := range []*answer{created, updated} {
		if a.result == "" || a != created && a.equal(created) {
			continue
		}
		if a.result != counted {
			e.count(s.Name, a.result)
			counted = a.result
		}
		if a.panicked {
			if s.panicked {
				continue
			}
			s.panicked = true
			e.Log.Error(nil, "a step panicked in an audit", "step", s.Name, "resource", groupResource(o.GroupVersionResource),
				"namespace", o.head.Metadata.Namespace, "name", o.head.Metadata.Name, "stack", string(a.stack))
		}
		f := e.finding(&s.Step, a.result, a.message)
		f.Operation, f.Paths, f.Kind, f.Resource = operations[i], a.paths, o.kind, o.GroupVersionResource
		f.Namespace, f.Name, f.UID = o.head.Metadata.Namespace, o.head.Metadata.Name, o.head.Metadata.UID
		if err := e.report(ctx, f); err != nil {
			return err
		}
	}
	return nil
}

func (e *engine) finding(s *Step, result Result, message string) Finding {
	return Finding{Step: s.Name, Mode: s.Registered.Mode, Result: result, Message: message}
}

// aboutStep reports a finding about a step as a whole.
func (e *engine) aboutStep(ctx context.Context, s *Step, result Result, message string) error {
	return e.about(ctx, s, resource{}, result, message)
}

// about reports a finding about a step and all objects of a resource.
func (e *engine) about(ctx context.Context, s *Step, r resource, result Result, message string) error {
	e.count(s.Name, result)
	f := e.finding(s, result, message)
	f.Kind, f.Resource = r.kind, r.GroupVersionResource
	return e.report(ctx, f)
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
	if e.Reports != nil {
		return e.Reports.Add(ctx, f)
	}
	return nil
}
