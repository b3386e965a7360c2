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

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/validation"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"

	"code.cloudfoundry.org/eirinix/internal/audit"
	"code.cloudfoundry.org/eirinix/internal/convert"
	"code.cloudfoundry.org/eirinix/internal/list"
	"code.cloudfoundry.org/eirinix/internal/policyreport"
	"code.cloudfoundry.org/eirinix/internal/resources"
	"code.cloudfoundry.org/eirinix/internal/webhookconf"
)

// AuditOptions configures Audit. The zero value audits every object that the rules of the steps select.
type AuditOptions struct {
	// Namespace limits the audit to the objects of one namespace. Empty means all, and objects without a namespace.
	Namespace string

	// Steps are the names of the steps to ask, and of the CustomResourceDefinitions of Conversions. Empty means all.
	Steps []string

	// PageSize is the number of objects of one list request. 0 means 500.
	PageSize int

	// PagesPerSecond bounds the rate of list requests. 0 means 10.
	PagesPerSecond float64

	// Conditions compiles the matchConditions of a step. Without it, steps with matchConditions are reported as
	// AuditUntold. Package audit has one; it is not here, because it links the interpreter of CEL.
	Conditions func([]admissionregistrationv1.MatchCondition) (AuditConditions, error)

	// StepRequestsPerSecond bounds the rate of the requests that steps send with the Manager's connection and their own
	// context, on average: the audit waits after a run that has sent some. 0 means 50. Other clients of a step have a
	// limit of their own (rest.Config.QPS).
	StepRequestsPerSecond float64

	// PolicyReports writes the findings about objects to PolicyReports of the cluster, and removes those of this program
	// that are clean. What cannot be asked keeps its last report. It needs all Steps.
	PolicyReports bool

	// Finding receives each finding when it is found. An error ends the audit. It is called on one goroutine.
	Finding func(AuditFinding) error

	// Progress is called after each page of objects, on the same goroutine.
	Progress func(AuditProgress)
}

// AuditConditions reports whether all matchConditions of a step hold for a request.
type AuditConditions = audit.Condition

// AuditResult is the kind of a finding.
type AuditResult = audit.Result

const (
	// AuditDenied is the result of a step that would deny the object.
	AuditDenied = audit.Denied

	// AuditDrift is the result of a mutating step that would change the object if it were created or updated today, and of a
	// Conversion of which another version cannot hold all of the object.
	AuditDrift = audit.Drift

	// AuditFailed is the result of a step or a conversion that fails, or of an object that no longer decodes.
	AuditFailed = audit.Failed

	// AuditUntold is the result if an audit cannot tell: the step decides on deletions or connections, its result
	// depends on the user, or it cannot be asked, which is also a gap.
	AuditUntold = audit.Untold
)

type (
	// AuditFinding is something that a step would say. The fields of an object are empty if the finding is about the step
	// as a whole.
	AuditFinding = audit.Finding

	// AuditProgress is the state of an audit.
	AuditProgress = audit.Progress

	// AuditSummary holds the counts of an audit, and its gaps.
	AuditSummary = audit.Summary

	// AuditGap is a part of an audit that could not be asked: a step, for the objects of a resource in a namespace.
	AuditGap = audit.Gap

	// AuditIncompleteError is the error of an audit that got to its end, but has gaps.
	AuditIncompleteError = audit.IncompleteError
)

// Audit lists the objects that the rules of the steps select and asks the steps about each of them in memory, with the
// operation that they are registered for. Nothing is written, unless AuditOptions.PolicyReports is set, and no webhook
// is called. The Manager need not be started. A step that reads from the cache of GetKubeManager fails, unless it is.
//
// It also lists the objects of each Conversion in the version in which they are stored, and converts them in memory to the
// other versions and back. The API server converts those for it that are stored in an older version.
//
// Every request is a dry run. A step is asked once about an object: with CREATE, or with UPDATE if it is not called for
// CREATE. About a few objects it is asked as three users, so that a result that depends on the user is not taken for the
// result. Findings are no error: an error says that the audit is not complete. It is an *AuditIncompleteError if the audit
// got to its end. The summary is valid even with an error, up to where the audit got.
func (m *ExtensionManager) Audit(ctx context.Context, o AuditOptions) (AuditSummary, error) {
	var running sync.WaitGroup
	defer running.Wait()
	ctx, end := context.WithCancel(ctx)
	defer end()
	from, err := m.auditReads(ctx, o, &running)
	var config audit.Config
	var notes []string
	if err == nil {
		config, notes, err = m.audit(ctx, o, from)
	}
	if err != nil {
		return AuditSummary{}, prefixed(err)
	}
	summary, err := audit.Run(ctx, config)
	summary.Notes = notes
	if err != nil {
		err = fmt.Errorf("eirinix: Audit: %w", err)
	}
	return summary, err
}

const (
	defaultPageSize       = 500
	defaultPagesPerSecond = 10
	defaultStepRequests   = 50 // per second
)

// auditReads returns what the steps read in an audit: what a running Manager follows, or else a Set that follows it in
// running until ctx ends.
func (m *ExtensionManager) auditReads(ctx context.Context, o AuditOptions, running *sync.WaitGroup) (reading, error) {
	s := m.given()
	if err := errors.Join(s.validate(false, nil), o.validate(s)); err != nil {
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
	set.Settled(ctx) // steps without their objects are gaps then
	return following{set}, ctx.Err()
}

// audit returns the configuration of an audit, and facts about the audit as a whole. It asks the cluster for the kinds of
// the steps.
func (m *ExtensionManager) audit(ctx context.Context, o AuditOptions, from reading) (_ audit.Config, notes []string, err error) {
	config := audit.Config{
		Namespace: o.Namespace, PageSize: cmp.Or(o.PageSize, defaultPageSize), PagesPerSecond: cmp.Or(o.PagesPerSecond, defaultPagesPerSecond),
		RequestsPerSecond: cmp.Or(o.StepRequestsPerSecond, defaultStepRequests),
		Conditions:        o.Conditions, Finding: o.Finding, Progress: o.Progress, Log: m.logr(),
	}
	if config.Client, err = m.auditClient(); err != nil {
		return config, nil, err
	}
	p := m.program.Load()
	if p == nil {
		if p, err = m.newProgram(nil, config.Log); err != nil {
			return config, nil, err
		}
		if err := p.auditModes(ctx); err != nil {
			notes = append(notes, err.Error())
		}
	}
	config.Discovery, config.Modes = p.clients.Discovery(), p.modes
	all, err := m.resolveAll(p.modes, from)
	if err != nil {
		return config, nil, err
	}
	if config.Steps, err = m.auditedSteps(all, o, from); err != nil {
		return config, nil, err
	}
	for _, c := range m.given().conversions {
		if o.asks(c.crd) {
			config.Steps = append(config.Steps, p.auditedConversion(ctx, c))
		}
	}
	config.Metrics = newMetrics(audit.NewMetrics, "the metrics of audits", config.Log)
	if !o.PolicyReports {
		return config, notes, nil
	}
	reports, err := policyreport.New(ctx, p.config, m.GetManagerOptions().OperatorFingerprint, o.Namespace, p.log)
	if err == nil && reports == nil {
		config.Log.Info(policyreport.NoKinds)
		return config, append(notes, policyreport.NoKinds), nil
	}
	if err == nil {
		config.Reports = reports
		reports.Owner, err = p.owningNamespace(ctx)
	}
	if apierrors.IsNotFound(err) {
		err = nil // the program is not installed yet
	}
	return config, notes, err
}

// auditModes puts the modes of the ConfigMap in force. Without the right to read it, the program's own are.
func (p *program) auditModes(ctx context.Context) error {
	from := p.m.GetManagerOptions().modesOf(p.namespace)
	if from == nil {
		return nil
	}
	if err := p.setModes(from, p.cache.Get(ctx, from)); err != nil {
		return fmt.Errorf("the modes are the program's own, because those in force cannot be read; grant get on it: %w", err)
	}
	return nil
}

// removeReports deletes the reports of the program's audits. Without the rights for that it logs what does it.
func (p *program) removeReports(ctx context.Context) {
	fingerprint := p.m.GetManagerOptions().OperatorFingerprint
	if err := policyreport.Remove(ctx, p.dynamic, fingerprint); err != nil {
		label := policyreport.Label + "=" + fingerprint
		p.log.Info("the reports of audits, if there are any, stay; remove them with kubectl delete -A -l "+label, "reason", err.Error())
	}
}

// validate returns all errors in the options, each with its remedy.
func (o AuditOptions) validate(s setup) error {
	var errs []error
	if o.Namespace != "" {
		for _, problem := range validation.ValidateNamespaceName(o.Namespace, false) {
			errs = append(errs, fmt.Errorf("eirinix: AuditOptions.Namespace is %q; give the name of a namespace: %s", o.Namespace, problem))
		}
	}
	for _, n := range []struct {
		name    string
		given   float64
		without int
	}{
		{"PageSize", float64(o.PageSize), defaultPageSize},
		{"PagesPerSecond", o.PagesPerSecond, defaultPagesPerSecond},
		{"StepRequestsPerSecond", o.StepRequestsPerSecond, defaultStepRequests},
	} {
		if n.given < 0 || math.IsNaN(n.given) || math.IsInf(n.given, 0) {
			errs = append(errs, fmt.Errorf("eirinix: AuditOptions.%s is %v; set it to a positive number, or leave it out for %d", n.name, n.given, n.without))
		}
	}
	if o.PolicyReports && len(o.Steps) > 0 {
		errs = append(errs, errors.New("eirinix: AuditOptions.PolicyReports is set with Steps, but a report holds the findings of all steps; leave out Steps"))
	}
	names := append(list.Of(s.steps, func(d definition) string { return d.name }), crdsOf(s.conversions)...)
	for _, name := range o.Steps {
		if !slices.Contains(names, name) {
			errs = append(errs, fmt.Errorf("eirinix: AuditOptions.Steps has %q, but the steps are %s; correct the name", name, strings.Join(names, ", ")))
		}
	}
	return errors.Join(errs...)
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

// auditedConversion returns the audit of a Conversion. Its objects are listed in the version in which they are stored, so
// that the API server converts few of them.
func (p *program) auditedConversion(ctx context.Context, c conversionOf) audit.Step {
	definitions := apiextensionsv1.SchemeGroupVersion.WithResource(webhookconf.CRD.Resource)
	crd, err := p.dynamic.Resource(definitions).Get(ctx, c.crd, metav1.GetOptions{})
	if err != nil {
		return audit.Step{Name: c.crd, Waits: fmt.Errorf("its CustomResourceDefinition cannot be read: %w", err)}
	}
	versions := list.Of(c.kind.Versions, func(v convert.Version) string { return v.Name })
	all, _, _ := unstructured.NestedSlice(crd.Object, "spec", "versions")
	for _, v := range all {
		v, _ := v.(map[string]any)
		if name, _ := v["name"].(string); v["storage"] == true && v["served"] == true && slices.Contains(versions, name) {
			versions = []string{name}
		}
	}
	return audit.Step{Name: c.crd, Webhook: audit.Converted(c.crd, versions...), Converts: c.kind}
}
