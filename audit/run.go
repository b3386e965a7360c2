package audit

// This file plays the objects that exist through the steps of a Manager.

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"sync"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/validation"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	ctrlmetrics "sigs.k8s.io/controller-runtime/pkg/metrics"

	"code.cloudfoundry.org/eirinix"
	"code.cloudfoundry.org/eirinix/internal/audit"
	"code.cloudfoundry.org/eirinix/internal/audit/reports"
	"code.cloudfoundry.org/eirinix/internal/list"
	"code.cloudfoundry.org/eirinix/internal/seam"
	"code.cloudfoundry.org/eirinix/internal/webhookconf"
)

// Options configures Run. The zero value audits every object that the rules of the steps select.
type Options struct {
	// Namespace limits the audit to the objects of one namespace. Empty means all, and objects without a namespace.
	Namespace string

	// Steps are the names of the steps to ask, and of the CustomResourceDefinitions of Conversions. Empty means all.
	Steps []string

	// PageSize is the number of objects of one list request. 0 means 500.
	PageSize int

	// PagesPerSecond bounds the rate of list requests. 0 means 10.
	PagesPerSecond float64

	// StepRequestsPerSecond bounds the rate of the requests that steps send with their own context, on average: the audit
	// waits after a run that has sent some. 0 means 50.
	StepRequestsPerSecond float64

	// PolicyReports writes the findings about objects to PolicyReports of the cluster, and removes those of this program
	// that are clean. What cannot be asked keeps its last report. It needs all Steps.
	PolicyReports bool

	// Finding receives each finding when it is found. An error ends the audit. It is called on one goroutine.
	Finding func(Finding) error

	// Progress is called after each page of objects, on the same goroutine.
	Progress func(Progress)
}

// Result is the kind of a finding.
type Result = audit.Result

const (
	// Denied is the result of a step that would deny the object.
	Denied = audit.Denied

	// Drift is the result of a mutating step that would change the object if it were created or updated today, and of a
	// Conversion of which another version cannot hold all of the object.
	Drift = audit.Drift

	// Failed is the result of a step or a conversion that fails, or of an object that no longer decodes.
	Failed = audit.Failed

	// Unknown is the result if an audit cannot tell: the step decides on deletions or connections, its result
	// depends on the user, or it cannot be asked, which is also a gap.
	Unknown = audit.Unknown
)

type (
	// Finding is something that a step would say. The fields of an object are empty if the finding is about the step
	// as a whole.
	Finding = audit.Finding

	// Progress is the state of an audit.
	Progress = audit.Progress

	// Summary holds the counts of an audit, and its gaps.
	Summary = audit.Summary

	// Gap is a part of an audit that could not be asked: a step, for the objects of a resource in a namespace.
	Gap = audit.Gap

	// IncompleteError is the error of an audit that got to its end, but has gaps. Command joins a *FindingsError to it if
	// there are findings.
	IncompleteError = audit.IncompleteError
)

const (
	defaultPageSize       = 500
	defaultPagesPerSecond = 10
	defaultStepRequests   = 50 // per second
)

// Run lists the objects that the rules of the steps select and asks the steps about each of them in memory, with the
// operation that they are registered for. Nothing is written, unless Options.PolicyReports is set, and no webhook
// is called. The Manager need not be started. A step that reads from the cache of GetKubeManager fails, unless it is.
//
// It also lists the objects of each Conversion in the version in which they are stored, and converts them in memory to the
// other versions and back. The API server converts those for it that are stored in an older version.
//
// Every request is a dry run. A step is asked once about an object: with CREATE, or with UPDATE if it is not called for
// CREATE. About a few objects it is asked as three users, so that a result that depends on the user is not taken for the
// result. Findings are no error: an error says that the audit is not complete. It is an *IncompleteError if the audit
// got to its end. The summary is valid even with an error, up to where the audit got.
func Run(ctx context.Context, m *eirinix.ExtensionManager, o Options) (Summary, error) {
	p, err := seam.Of(m)
	if err != nil {
		return Summary{}, err
	}
	if err := errors.Join(p.Validate(), o.validate(p.Names)); err != nil {
		return Summary{}, err
	}
	var running sync.WaitGroup
	defer running.Wait()
	ctx, end := context.WithCancel(ctx)
	defer end()
	config, notes, err := o.config(ctx, p, &running)
	if err != nil {
		return Summary{}, err
	}
	summary, err := audit.Run(ctx, config)
	summary.Notes = notes
	if err != nil {
		err = fmt.Errorf("eirinix: audit: %w", err)
	}
	return summary, err
}

// config returns the configuration of an audit, and facts about the audit as a whole. It asks the cluster for the kinds of
// the steps.
func (o Options) config(ctx context.Context, p seam.Program, running *sync.WaitGroup) (_ audit.Config, notes []string, err error) {
	config := audit.Config{
		Namespace: o.Namespace, PageSize: cmp.Or(o.PageSize, defaultPageSize), PagesPerSecond: cmp.Or(o.PagesPerSecond, defaultPagesPerSecond),
		RequestsPerSecond: cmp.Or(o.StepRequestsPerSecond, defaultStepRequests),
		Conditions:        conditionsOf, Finding: o.Finding, Progress: o.Progress, Log: p.Log,
	}
	if config.Client, err = lister(p.Config); err != nil {
		return config, nil, err
	}
	r, err := p.Resolve(ctx, o.asks, running)
	if err != nil {
		return config, nil, err
	}
	config.Discovery, config.Modes, notes = r.Discovery, r.Modes, r.Notes
	config.Steps = list.Of(r.Steps, func(s seam.Step) audit.Step { return registered(ctx, r, s) })
	if config.Metrics, err = audit.NewMetrics(ctrlmetrics.Registry); err != nil {
		p.Log.Error(err, "the metrics of audits cannot be registered; there will be none")
	}
	if !o.PolicyReports {
		return config, notes, nil
	}
	writer, err := reports.New(ctx, r.Config, p.Fingerprint, o.Namespace, p.Log)
	if err == nil && writer == nil {
		p.Log.Info(reports.NoKinds)
		return config, append(notes, reports.NoKinds), nil
	}
	if err == nil {
		config.Reports = writer
		writer.Owner, err = r.Owner(ctx)
	}
	if apierrors.IsNotFound(err) {
		err = nil // the program is not installed yet
	}
	if err != nil {
		err = fmt.Errorf("eirinix: audit: %w", err)
	}
	return config, notes, err
}

// validate returns all errors in the options, each with its remedy.
func (o Options) validate(steps []string) error {
	var errs []error
	if o.Namespace != "" {
		for _, problem := range validation.ValidateNamespaceName(o.Namespace, false) {
			errs = append(errs, fmt.Errorf("eirinix: audit.Options.Namespace is %q; give the name of a namespace: %s", o.Namespace, problem))
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
			errs = append(errs, fmt.Errorf("eirinix: audit.Options.%s is %v; set it to a positive number, or leave it out for %d", n.name, n.given, n.without))
		}
	}
	if o.PolicyReports && len(o.Steps) > 0 {
		errs = append(errs, errors.New("eirinix: audit.Options.PolicyReports is set with Steps, but a report holds the findings of all steps; leave out Steps"))
	}
	for _, name := range o.Steps {
		if !slices.Contains(steps, name) {
			errs = append(errs, fmt.Errorf("eirinix: audit.Options.Steps has %q, but the steps are %s; correct the name", name, strings.Join(steps, ", ")))
		}
	}
	return errors.Join(errs...)
}

// asks reports whether the audit asks a step.
func (o Options) asks(step string) bool { return len(o.Steps) == 0 || slices.Contains(o.Steps, step) }

// lister returns a client for large lists. The library's own connection bounds a response to some seconds.
func lister(connect func() (*rest.Config, error)) (rest.Interface, error) {
	given, err := connect()
	if err != nil {
		return nil, err
	}
	config := rest.CopyConfig(given)
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

// registered completes a Conversion. Its objects are listed in the version in which they are stored, so that the API server
// converts few of them.
func registered(ctx context.Context, r seam.Resolved, s audit.Step) audit.Step {
	if s.Converts == nil {
		return s
	}
	definitions := apiextensionsv1.SchemeGroupVersion.WithResource(webhookconf.CRD.Resource)
	crd, err := r.Dynamic.Resource(definitions).Get(ctx, s.Name, metav1.GetOptions{})
	if err != nil {
		return audit.Step{Name: s.Name, Waits: fmt.Errorf("its CustomResourceDefinition cannot be read: %w", err)}
	}
	versions := list.Of(s.Converts.Versions, func(o runtime.Object) string { return o.GetObjectKind().GroupVersionKind().Version })
	all, _, _ := unstructured.NestedSlice(crd.Object, "spec", "versions")
	for _, v := range all {
		v, _ := v.(map[string]any)
		if name, _ := v["name"].(string); v["storage"] == true && v["served"] == true && slices.Contains(versions, name) {
			versions = []string{name}
		}
	}
	s.Webhook = audit.Converted(s.Name, versions...)
	return s
}
