package eirinix

// This file plays the objects that exist through the steps, and reports what the steps would say of them.

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"sync"

	admissionv1 "k8s.io/api/admission/v1"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	"k8s.io/apimachinery/pkg/api/validation"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"

	"code.cloudfoundry.org/eirinix/internal/audit"
	"code.cloudfoundry.org/eirinix/internal/policyreport"
	"code.cloudfoundry.org/eirinix/internal/resources"
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

	// PolicyReports writes the findings about objects to PolicyReports of the cluster, and removes those of this program
	// that are clean. It needs all Steps.
	PolicyReports bool

	// Finding receives each finding when it is found. An error ends the audit. It is called on one goroutine.
	Finding func(AuditFinding) error

	// Progress is called after each page of objects, on the same goroutine.
	Progress func(AuditProgress)
}

// AuditConditions reports whether all matchConditions of a step hold for a request.
type AuditConditions func(context.Context, *admissionv1.AdmissionRequest) (bool, error)

// AuditResult is the kind of a finding.
type AuditResult = audit.Result

const (
	// AuditDenied is the result of a step that would deny the object.
	AuditDenied = audit.Denied

	// AuditDrift is the result of a mutating step that would change the object if it were created or updated today.
	AuditDrift = audit.Drift

	// AuditFailed is the result of a step that fails, or of an object that no longer decodes.
	AuditFailed = audit.Failed

	// AuditUntold is the result if an audit cannot tell: the step decides on deletions or connections, its result
	// depends on the user, or the objects may not be listed.
	AuditUntold = audit.Untold
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
	Notes    []string                       // facts about the audit as a whole, such as why there are no PolicyReports
}

// Audit lists the objects that the rules of the steps select and asks the steps about each of them in memory, with the
// operation that they are registered for. Nothing is written, unless AuditOptions.PolicyReports is set, and no webhook
// is called. The Manager need not be started. A step that reads from the cache of GetKubeManager fails, unless it is.
//
// Every request is a dry run. A step is asked several times about an object, as different users, so that a result that
// depends on the user is not taken for the result. Findings are no error: an error says that the audit is not complete.
// The summary is valid even with an error, up to where the audit got.
func (m *ExtensionManager) Audit(ctx context.Context, o AuditOptions) (AuditSummary, error) {
	var running sync.WaitGroup
	defer running.Wait()
	ctx, end := context.WithCancel(ctx)
	defer end()
	from, err := m.auditReads(ctx, o, &running)
	var config audit.Config
	if err == nil {
		config, err = m.audit(ctx, o, from)
	}
	if err != nil {
		return AuditSummary{}, prefixed(err)
	}
	summary, err := audit.Run(ctx, config)
	if o.PolicyReports && config.Reports == nil {
		summary.Notes = append(summary.Notes, policyreport.NoKinds)
	}
	if err != nil {
		err = fmt.Errorf("eirinix: Audit: %w", err)
	}
	return AuditSummary(summary), err
}

const (
	defaultPageSize       = 500
	defaultPagesPerSecond = 10
)

// auditReads returns what the steps read in an audit: what a running Manager follows, or else a Set that follows it in
// running until ctx ends.
func (m *ExtensionManager) auditReads(ctx context.Context, o AuditOptions, running *sync.WaitGroup) (reading, error) {
	s := m.given()
	if err := errors.Join(s.validate(false, nil), o.validate(s.steps)); err != nil {
		return nil, err
	}
	if p := m.program.Load(); p != nil && p.reads != nil {
		return following{p.reads}, nil
	}
	definitions := slices.DeleteFunc(slices.Clone(s.steps), func(d definition) bool { return !o.asks(d.name) })
	resolver := newResolver(s.options, resources.Cluster{})
	set, err := resolver.newReads(definitions, m.logr(), nil)
	if err != nil || set.Empty() {
		return nil, err
	}
	c, err := m.readsClient(resolver.scheme, set)
	if err != nil {
		return nil, err
	}
	running.Go(func() { set.Run(ctx, c) })
	set.Settled(ctx)
	return following{set}, ctx.Err()
}

// audit returns the configuration of an audit. It asks the cluster for the kinds of the steps.
func (m *ExtensionManager) audit(ctx context.Context, o AuditOptions, from reading) (audit.Config, error) {
	client, err := m.auditClient()
	if err != nil {
		return audit.Config{}, err
	}
	own, clients, err := m.own()
	if err != nil {
		return audit.Config{}, err
	}
	all, err := m.resolveAll(nil, from)
	if err != nil {
		return audit.Config{}, err
	}
	config := audit.Config{
		Client: client, Discovery: clients.Discovery(), Namespace: o.Namespace, Partial: len(o.Steps) > 0,
		PageSize: cmp.Or(o.PageSize, defaultPageSize), PagesPerSecond: cmp.Or(o.PagesPerSecond, defaultPagesPerSecond),
		Log: m.logr(),
	}
	o.receive(&config)
	if config.Steps, err = m.auditedSteps(all, o, from); err != nil {
		return audit.Config{}, err
	}
	config.Metrics = newMetrics(audit.NewMetrics, "the metrics of audits", config.Log)
	if o.PolicyReports {
		reports, err := policyreport.New(ctx, own, m.GetManagerOptions().OperatorFingerprint, o.Namespace, config.Log)
		if err != nil {
			return config, err
		}
		if reports != nil { // else the cluster has no kind for them
			config.Reports = reports
		}
	}
	return config, nil
}

// validate returns all errors in the options, each with its remedy.
func (o AuditOptions) validate(definitions []definition) error {
	var errs []error
	if o.Namespace != "" {
		for _, problem := range validation.ValidateNamespaceName(o.Namespace, false) {
			errs = append(errs, fmt.Errorf("eirinix: AuditOptions.Namespace is %q; give the name of a namespace: %s", o.Namespace, problem))
		}
	}
	if o.PageSize < 0 {
		errs = append(errs, fmt.Errorf("eirinix: AuditOptions.PageSize is %d; set it to 1 or more, or leave it out for %d", o.PageSize, defaultPageSize))
	}
	if p := o.PagesPerSecond; p < 0 || math.IsNaN(p) || math.IsInf(p, 0) {
		errs = append(errs, fmt.Errorf("eirinix: AuditOptions.PagesPerSecond is %v; set it to a positive number, or leave it out for %d", o.PagesPerSecond, defaultPagesPerSecond))
	}
	if o.PolicyReports && len(o.Steps) > 0 {
		errs = append(errs, errors.New("eirinix: AuditOptions.PolicyReports is set with Steps, but a report holds the findings of all steps; leave out Steps"))
	}
	var names []string
	for _, d := range definitions {
		names = append(names, d.name)
	}
	for _, name := range o.Steps {
		if !slices.Contains(names, name) {
			errs = append(errs, fmt.Errorf("eirinix: AuditOptions.Steps has %q, but the steps are %s; correct the name", name, strings.Join(names, ", ")))
		}
	}
	return errors.Join(errs...)
}

// receive passes the receivers of findings on.
func (o AuditOptions) receive(c *audit.Config) {
	if o.Finding != nil {
		c.Finding = func(f audit.Finding) error { return o.Finding(AuditFinding(f)) }
	}
	if o.Progress != nil {
		c.Progress = func(p audit.Progress) { o.Progress(AuditProgress(p)) }
	}
	if o.Conditions != nil {
		c.Conditions = func(all []admissionregistrationv1.MatchCondition) (audit.Condition, error) {
			holds, err := o.Conditions(all)
			return audit.Condition(holds), err
		}
	}
}

// auditClient returns a client for large lists. The library's own connection bounds a response to some seconds.
func (m *ExtensionManager) auditClient() (rest.Interface, error) {
	config, err := m.GetKubeConnection()
	if err != nil {
		return nil, err
	}
	config = rest.CopyConfig(config)
	config.QPS, config.RateLimiter, config.Timeout = -1, nil, 0 // an audit has limits of its own
	config.DisableCompression = true                            // it costs the API server more than the network gains
	config.GroupVersion, config.APIPath = nil, ""
	config.ContentConfig = rest.ContentConfig{
		AcceptContentTypes: runtime.ContentTypeJSON, ContentType: runtime.ContentTypeJSON, NegotiatedSerializer: clientgoscheme.Codecs.WithoutConversion(),
	}
	client, err := rest.UnversionedRESTClientFor(config)
	if err != nil {
		return nil, fmt.Errorf("eirinix: the kubeconfig cannot be used: %w", err)
	}
	return client, nil
}

// asks reports whether the audit asks a step.
func (o AuditOptions) asks(step string) bool {
	return len(o.Steps) == 0 || slices.Contains(o.Steps, step)
}

// auditedSteps returns the steps that the audit asks. They read from there.
func (m *ExtensionManager) auditedSteps(all resolved, o AuditOptions, from reading) (steps []audit.Step, err error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, w := range all.waiting {
		if o.asks(w.name) {
			steps = append(steps, audit.Step{Name: w.name, Waits: w.why})
		}
	}
	options := m.options.offlineWebhooks()
	for _, s := range all.steps {
		if !o.asks(s.definition.name) {
			continue
		}
		step := audit.Step{Name: s.definition.name, Registered: s.registered}
		if step.Served, err = m.servedStep(s.definition, s.registered, from); err != nil {
			return nil, prefixed(err)
		}
		step.Webhook = options.Alone(s.registered)
		steps = append(steps, step)
	}
	return steps, nil
}
