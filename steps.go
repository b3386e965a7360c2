package eirinix

// This file resolves the steps: it derives their registration and their handlers from their definitions.

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"reflect"
	"slices"
	"strings"

	admissionv1 "k8s.io/api/admission/v1"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"sigs.k8s.io/controller-runtime/pkg/client/apiutil"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"

	"code.cloudfoundry.org/eirinix/internal/admit"
	"code.cloudfoundry.org/eirinix/internal/chain"
	"code.cloudfoundry.org/eirinix/internal/diagnose"
	"code.cloudfoundry.org/eirinix/internal/list"
	"code.cloudfoundry.org/eirinix/internal/modes"
	"code.cloudfoundry.org/eirinix/internal/reads"
	"code.cloudfoundry.org/eirinix/internal/resources"
	"code.cloudfoundry.org/eirinix/internal/rollout"
	"code.cloudfoundry.org/eirinix/internal/seam"
	"code.cloudfoundry.org/eirinix/internal/webhookconf"
)

// podKind is the kind of object that an Extension handles.
var podKind = corev1.SchemeGroupVersion.WithKind("Pod")

var unstructuredType = reflect.TypeFor[unstructured.Unstructured]()

// resolver derives the registered and served steps from definitions.
type resolver struct {
	options ManagerOptions
	scheme  *runtime.Scheme
	cluster resources.Cluster
	modes   *modes.Modes // nil means the modes of the definitions
	reads   reading      // nil if no step waits for what it reads
}

// reading is the source of what steps read: a Set that follows the cluster, or the objects of a test.
type reading interface {
	// Snapshot returns what a call sees.
	Snapshot(ctx context.Context) *reads.Snapshot

	// Waiting returns the reason why a step cannot be registered yet.
	Waiting(step string) error
}

func newResolver(o ManagerOptions, cluster resources.Cluster) resolver {
	r := resolver{options: o, scheme: o.Scheme, cluster: cluster}
	switch {
	case r.scheme != nil:
	case o.KubeManager != nil:
		r.scheme = o.KubeManager.GetScheme()
	default:
		r.scheme = clientgoscheme.Scheme
	}
	return r
}

// resolve returns the step of a definition with all inherited settings and defaults filled in.
func (r resolver) resolve(d definition) (webhookconf.Step, error) {
	kind, err := r.kindOf(d)
	if err != nil {
		return webhookconf.Step{}, err
	}
	step := webhookconf.Step{Name: d.name, Validating: d.validating, Kind: kind, Settings: d.settings.registered()}
	step.FailurePolicy = cmp.Or(step.FailurePolicy, *r.options.FailurePolicy)
	step.MatchPolicy = cmp.Or(step.MatchPolicy, admissionregistrationv1.Equivalent)
	step.Reinvoke = cmp.Or(step.Reinvoke, admissionregistrationv1.NeverReinvocationPolicy)
	step.SideEffects = cmp.Or(step.SideEffects, admissionregistrationv1.SideEffectClassNone)
	step.Mode = cmp.Or(step.Mode, ModeDeny)
	shadow := step.Mode == ModeShadow
	if r.modes != nil {
		shadow = r.modes.Shadow(d.name)
	}
	if shadow && step.FailurePolicy != admissionregistrationv1.Ignore {
		step.Shadow, step.FailurePolicy = true, admissionregistrationv1.Ignore
	}
	step.Operations = nil
	if kind == podKind && d.subpath == "" && *r.options.FilterEiriniApps {
		own := cmp.Or(step.Objects, &metav1.LabelSelector{}).DeepCopy()
		step.Objects = metav1.AddLabelToSelector(own, LabelSourceType, sourceTypeApp)
	}
	step.Rules, step.Kind, err = r.cluster.Resolve(resources.Step{
		Kind: kind, AnyRules: d.extension != nil, Mutates: d.extension == nil && !d.validating, Operations: d.operations,
		Asked: d.settings.Operations, Resource: d.resource, Subresource: d.subpath, Rules: d.settings.Rules,
	})
	if err != nil {
		return step, fmt.Errorf("eirinix: step %q: %w", d.name, err)
	}
	return step, nil
}

// kindOf returns the kind of the objects in the requests; it is empty for unstructured objects.
func (r resolver) kindOf(d definition) (schema.GroupVersionKind, error) {
	switch d.object {
	case nil:
		return podKind, nil
	case unstructuredType:
		if len(d.settings.Rules) == 0 && d.subpath == "" {
			return schema.GroupVersionKind{}, fmt.Errorf("eirinix: step %q is for unstructured objects of an unknown kind; set Settings.Rules", d.name)
		}
		return schema.GroupVersionKind{}, nil
	}
	kind, err := apiutil.GVKForObject(d.newObject(), r.scheme)
	if err != nil && r.options.Scheme == nil { // a KubeManager's scheme can lack the built-in types
		kind, err = apiutil.GVKForObject(d.newObject(), clientgoscheme.Scheme)
	}
	if err != nil {
		return kind, fmt.Errorf("eirinix: step %q is for %s, which the scheme does not know; add its AddToScheme to ManagerOptions.Scheme", d.name, d.object)
	}
	return kind, nil
}

// check returns all errors for which the API server would refuse the steps, as far as they can be found without a
// cluster.
func (s setup) check() error {
	r := newResolver(s.options, resources.Cluster{})
	var errs []error
	var steps []webhookconf.Step
	for _, d := range s.steps {
		step, err := r.resolve(d)
		if err == nil && d.name == diagnose.CanaryName {
			err = fmt.Errorf("eirinix: step %q has the name of the webhook that Diagnose calls; give it another one", d.name)
		}
		if err = errors.Join(err, r.checkReads(d)); err != nil {
			errs = append(errs, err)
			continue
		}
		steps = append(steps, step)
	}
	return errors.Join(append(errs, webhookconf.Check(steps, s.options.webhookOptions(s.options.port())))...)
}

// resolved holds the registered and served steps, in the order of their definitions, and the entries that call them.
// The paths are without the prefix of a shared server.
type resolved struct {
	steps   []resolvedStep
	entries []webhookconf.Entry
	waiting []waitingStep

	// The steps in waiting fail where API servers call them: those whose Reads have not been listed, and those whose kind
	// the cluster does not serve, of which only the name and the settings are known.
	unread, unserved []resolvedStep

	declared    []webhookconf.Step // steps and unread, in order
	conversions []seam.Conversion
}

// resolvedStep is a definition with its registration.
type resolvedStep struct {
	definition definition
	registered webhookconf.Step
}

// waitingStep is a step that is held back until the cluster serves its kind, and all that it reads has been listed.
type waitingStep struct {
	name string
	why  error
}

// shadows returns the names of the steps that are registered as shadows.
func (r resolved) shadows() (all []string) {
	for _, s := range r.steps {
		if s.registered.Shadow {
			all = append(all, s.definition.name)
		}
	}
	return all
}

// changes reports whether the steps must be registered anew: one has ceased to wait since, or waits for something else
// now, or has entered or left ModeShadow.
func (r resolved) changes(since resolved) bool {
	return !slices.Equal(r.shadows(), since.shadows()) || slices.ContainsFunc(since.waiting, func(was waitingStep) bool {
		return !slices.ContainsFunc(r.waiting, func(w waitingStep) bool { return w.name == was.name })
	}) || slices.ContainsFunc(since.unserved, func(was resolvedStep) bool {
		return !slices.ContainsFunc(r.unserved, func(s resolvedStep) bool { return s.definition.name == was.definition.name })
	})
}

// resolveAll resolves all steps with the help of the cluster. It does not hold the lock during requests. Without modes,
// those of the definitions apply. With reads, steps wait for what they read.
func (s setup) resolveAll(in *modes.Modes, from reading) (resolved, error) {
	mapper, err := s.restMapper()
	if err != nil {
		return resolved{}, err
	}
	_, clients, err := s.own()
	if err != nil {
		return resolved{}, err
	}
	r := newResolver(s.options, resources.Cluster{Mapper: mapper, List: clients.Discovery().ServerResourcesForGroupVersion})
	r.modes, r.reads = in, from
	all, err := r.all(s.steps)
	all.conversions = s.conversions
	return all, err
}

// all resolves the definitions. A kind that is not served holds back only its own step, and those that read it.
func (r resolver) all(definitions []definition) (all resolved, err error) {
	var steps []webhookconf.Step
	for _, d := range definitions {
		step, err := r.resolve(d)
		if absent, ok := errors.AsType[*resources.NotServedError](err); ok {
			step.Kind, step.Rules = schema.GroupVersionKind{}, nil
			all.waiting, all.unserved = append(all.waiting, waitingStep{d.name, absent}), append(all.unserved, resolvedStep{d, step})
			continue
		}
		if err != nil {
			return resolved{}, err
		}
		if r.reads != nil {
			if why := r.reads.Waiting(d.name); why != nil {
				all.waiting, all.unread = append(all.waiting, waitingStep{d.name, why}), append(all.unread, resolvedStep{d, step})
				step.Waits = true
				all.declared = append(all.declared, step)
				continue
			}
		}
		all.steps, steps, all.declared = append(all.steps, resolvedStep{d, step}), append(steps, step), append(all.declared, step)
	}
	all.entries = webhookconf.Group(steps)
	return all, nil
}

// registration returns what the steps declare, for these options of the configurations. The version is the digest of what
// is declared without a cluster, so that replicas that see different kinds are of one version.
func (m *ExtensionManager) registration(steps resolved, options webhookconf.Options, in *modes.Modes) (webhookconf.Registration, error) {
	s := m.given()
	r := newResolver(s.options, resources.Cluster{})
	r.modes = in
	declared, err := r.all(s.steps)
	if err != nil {
		return webhookconf.Registration{}, err
	}
	made := webhookconf.Registration{Options: options, Prefix: m.pathPrefix(), Steps: declared.declared}
	if len(s.steps) > 0 {
		made.Canary = new(m.newCanary().Entry())
	}
	made.Conversions = list.Of(steps.conversions, conversionEntry)
	made.Version = webhookconf.Digest(made.Desired(nil, nil))
	made.Steps = steps.declared
	made.Unserved = list.Of(steps.unserved, func(s resolvedStep) webhookconf.Step { return s.registered })
	return made, nil
}

// chains returns the served chains by path. The path of each entry serves the steps of the entry. The path of another
// version serves those of its steps that this version has too. The path of a later version is not served while one of
// its steps is missing here, so that the API server tries another replica. A step that waits fails, so that its
// failurePolicy decides. Without modes, those of the definitions apply.
func (m *ExtensionManager) chains(r resolved, routes map[string]rollout.Route, in *modes.Modes, from reading) (map[string]chain.Config, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	steps := slices.Concat(r.steps, r.unread, r.unserved)
	keys := webhookconf.Registration{Steps: r.declared}.Desired(nil, nil).Registered() // of the steps that do not wait, by path
	for path, route := range routes {
		own, ours := keys[path]
		has := func(key string) bool {
			return slices.ContainsFunc(steps, func(s resolvedStep) bool { return s.at(path) && s.registered.Is(key) })
		}
		if ours || !route.All || !slices.ContainsFunc(route.Steps, func(key string) bool { return !has(key) }) {
			keys[path] = slices.Concat(own, route.Steps)
		}
	}
	chains := map[string]chain.Config{}
	for path, of := range keys {
		entry := chain.Config{Validating: strings.HasPrefix(path, admit.ValidatePrefix)}
		entry.Partial = slices.ContainsFunc(of, func(key string) bool {
			return !slices.ContainsFunc(steps, func(s resolvedStep) bool { return s.at(path) && s.registered.Is(key) })
		})
		for _, s := range steps {
			if !s.at(path) || !slices.ContainsFunc(of, s.registered.Is) {
				continue
			}
			step, err := m.servedStep(s.definition, s.registered, from)
			if err != nil {
				return nil, err
			}
			if w := slices.IndexFunc(r.waiting, func(w waitingStep) bool { return w.name == s.definition.name }); w >= 0 && len(s.registered.Rules) == 0 {
				why := fmt.Errorf("the step waits: %w", r.waiting[w].why)
				step.Matcher, step.Pods, step.Handle = nil, nil, func(context.Context, admission.Request) admission.Response {
					return admission.Errored(http.StatusInternalServerError, why)
				}
			}
			if in != nil { // another version can register any step as a shadow, at any time
				step.Choose = func(ctx context.Context, req *admissionv1.AdmissionRequest) (chain.Mode, error) {
					return in.Choose(ctx, s.definition.name, req)
				}
			}
			entry.Steps = append(entry.Steps, step)
			entry.Reinvoke = entry.Reinvoke || s.registered.Reinvoke == admissionregistrationv1.IfNeededReinvocationPolicy
		}
		chains[path] = entry
	}
	return chains, nil
}

// at reports whether a path is one of the step's configuration.
func (s resolvedStep) at(path string) bool {
	return s.registered.Validating == strings.HasPrefix(path, admit.ValidatePrefix)
}

// servedStep returns the handler of a step, which reads from there. The caller holds mu.
func (m *ExtensionManager) servedStep(d definition, registered webhookconf.Step, from reading) (chain.Step, error) {
	matcher, err := chain.NewMatcher(registered.Rules, diagnose.WithoutCanary(registered, m.options.OperatorFingerprint), registered.Namespaces)
	if err != nil {
		return chain.Step{}, fmt.Errorf("step %q: %w", d.name, err)
	}
	if !registered.Validating && registered.Owned != OwnedSee {
		matcher.Leave(registered.Owned == OwnedSkip)
	}
	ignore := registered.FailurePolicy == admissionregistrationv1.Ignore
	step := chain.Step{
		Name: d.name, Timeout: registered.Timeout, Share: webhookconf.ShareTimeout, Matcher: matcher,
		Ignore: ignore, Lenient: ignore && !registered.Shadow, Mode: servedModes[registered.Mode], EveryUpdate: registered.EveryUpdate,
	}
	if d.extension != nil {
		step.Handle, step.Pods = m.classic(d.extension), &m.pods
		return step, nil
	}
	step.New, step.Mutates = d.newObject, !d.validating
	calls := func(ctx context.Context, c *chain.Call, run func(*Call) error) error {
		sent, expected := c.Request.Kind, registered.Kind
		if d.object != unstructuredType && (sent.Group != expected.Group || sent.Version != expected.Version || sent.Kind != expected.Kind) {
			return fmt.Errorf("the API server sent a %s of %s/%s, but this step is about %s", sent.Kind, sent.Group, sent.Version, expected)
		}
		call := &Call{Request: admission.Request{AdmissionRequest: *c.Request}, Manager: m, feedback: c}
		if len(d.settings.Reads) > 0 && from != nil {
			call.reads.From(ctx, d.name, c.Shared, from.Snapshot)
		}
		err := run(call)
		if failure := call.reads.Err(); failure != nil {
			return failure
		}
		return err
	}
	if d.run != nil {
		step.Run = func(ctx context.Context, c *chain.Call, oldObj, newObj runtime.Object) error {
			return calls(ctx, c, func(call *Call) error { return d.run(ctx, call, oldObj, newObj) })
		}
	}
	if d.rule != nil {
		step.Rule = func(ctx context.Context, c *chain.Call, obj runtime.Object) error {
			return calls(ctx, c, func(call *Call) error { return d.rule(ctx, call, obj) })
		}
	}
	return step, nil
}

var servedModes = map[Mode]chain.Mode{ModeDeny: chain.ModeDeny, ModeWarn: chain.ModeWarn, ModeAudit: chain.ModeAudit, ModeShadow: chain.ModeShadow}

// classic adapts an Extension to the request path.
func (m *ExtensionManager) classic(e Extension) chain.HandleFunc {
	return func(ctx context.Context, req admission.Request) admission.Response {
		pod, err := m.pods.Pod(req)
		if err != nil {
			return admission.Errored(http.StatusInternalServerError, err)
		}
		return e.Handle(ctx, m, pod, req)
	}
}
