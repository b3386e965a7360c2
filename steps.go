package eirinix

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"sigs.k8s.io/controller-runtime/pkg/client/apiutil"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"

	"code.cloudfoundry.org/eirinix/internal/admit"
	"code.cloudfoundry.org/eirinix/internal/diagnose"
	"code.cloudfoundry.org/eirinix/internal/rollout"
	"code.cloudfoundry.org/eirinix/internal/webhookconf"
)

// podKind is what an Extension is about.
var podKind = corev1.SchemeGroupVersion.WithKind("Pod")

var unstructuredType = reflect.TypeFor[unstructured.Unstructured]()

// resolver turns definitions into what is registered and served. mapper is nil while the cluster cannot be
// asked: then the rules that would be derived from it are stood in for, and only good for checks.
type resolver struct {
	options ManagerOptions
	scheme  *runtime.Scheme
	mapper  meta.RESTMapper
}

func newResolver(o ManagerOptions, mapper meta.RESTMapper) resolver {
	r := resolver{options: o, scheme: o.Scheme, mapper: mapper}
	if r.scheme == nil {
		r.scheme = clientgoscheme.Scheme
	}
	return r
}

// resolve fills in what a step inherits.
func (r resolver) resolve(d definition) (webhookconf.Step, error) {
	kind, err := r.kindOf(d)
	if err != nil {
		return webhookconf.Step{}, err
	}
	s := d.settings
	step := webhookconf.Step{
		Name: d.name, Validating: d.validating, Kind: kind,
		Rules: s.Rules, Namespaces: s.Namespaces, Objects: s.Objects, Conditions: s.Conditions,
		FailurePolicy: cmp.Or(s.FailurePolicy, *r.options.FailurePolicy),
		MatchPolicy:   cmp.Or(s.MatchPolicy, admissionregistrationv1.Equivalent),
		Timeout:       cmp.Or(s.Timeout, callTimeout),
		Reinvoke:      cmp.Or(s.Reinvoke, admissionregistrationv1.NeverReinvocationPolicy),
		SideEffects:   cmp.Or(s.SideEffects, admissionregistrationv1.SideEffectClassNone),
		Isolated:      s.Isolated, ClusterCritical: s.ClusterCritical,
	}
	if kind == podKind && d.subpath == "" && *r.options.FilterEiriniApps {
		if step.Objects == nil {
			step.Objects = &metav1.LabelSelector{}
		}
		step.Objects = metav1.AddLabelToSelector(step.Objects.DeepCopy(), LabelSourceType, sourceTypeApp)
	}
	if len(step.Rules) == 0 {
		rule, err := r.derive(d, kind)
		if err != nil {
			return webhookconf.Step{}, err
		}
		step.Rules = []admissionregistrationv1.RuleWithOperations{rule}
		return step, nil
	}
	return step, r.checkRules(d, &step)
}

// kindOf gives the kind that goes over the wire; none for unstructured.
func (r resolver) kindOf(d definition) (schema.GroupVersionKind, error) {
	switch d.object {
	case nil:
		return podKind, nil
	case unstructuredType:
		if len(d.settings.Rules) == 0 {
			return schema.GroupVersionKind{}, fmt.Errorf("eirinix: extension %q is about unstructured objects, so nothing tells which; set Settings.Rules", d.name)
		}
		return schema.GroupVersionKind{}, nil
	}
	kind, err := apiutil.GVKForObject(d.newObject(), r.scheme)
	if err != nil {
		return kind, fmt.Errorf("eirinix: extension %q is about %s, which the scheme does not know; add its AddToScheme to ManagerOptions.Scheme: %w", d.name, d.object, err)
	}
	return kind, nil
}

// derive makes the rule of a step that has none, as the cluster calls its kind: plurals are never guessed.
func (r resolver) derive(d definition, kind schema.GroupVersionKind) (admissionregistrationv1.RuleWithOperations, error) {
	rule := admissionregistrationv1.RuleWithOperations{Operations: d.operations}
	resource, scope := d.resource, admissionregistrationv1.AllScopes
	switch {
	case d.subpath != "":
		resource.Resource += "/" + d.subpath
	case kind == podKind:
		resource, scope = corev1.SchemeGroupVersion.WithResource("pods"), admissionregistrationv1.NamespacedScope
	case r.mapper == nil:
		resource = kind.GroupVersion().WithResource("resource") // for checks only
	default:
		mapping, err := r.mapper.RESTMapping(kind.GroupKind(), kind.Version)
		if err != nil {
			return rule, fmt.Errorf("extension %q is about %s, which the cluster does not serve; install its CustomResourceDefinition first, or check the version: %w", d.name, kind, err)
		}
		resource, scope = mapping.Resource, admissionregistrationv1.ClusterScope
		if mapping.Scope.Name() == meta.RESTScopeNameNamespace {
			scope = admissionregistrationv1.NamespacedScope
		}
	}
	rule.Rule = admissionregistrationv1.Rule{
		APIGroups: []string{resource.Group}, APIVersions: []string{resource.Version}, Resources: []string{resource.Resource},
		Scope: new(scope),
	}
	return rule, nil
}

// checkRules makes sure that the rules a user wrote yield T: another kind would be read as if it were one. For
// unstructured it finds the kind instead, if there is just one.
func (r resolver) checkRules(d definition, step *webhookconf.Step) error {
	kinds := map[schema.GroupVersionKind]bool{}
	for _, rule := range step.Rules {
		for _, group := range rule.APIGroups {
			for _, version := range rule.APIVersions {
				for _, resource := range rule.Resources {
					if strings.Contains(group+version+resource, "*") {
						if d.object != unstructuredType && d.extension == nil {
							return fmt.Errorf("eirinix: extension %q: the rule for %q of %s/%s may yield another kind than %s; name the resource, or use *unstructured.Unstructured", d.name, resource, group, version, d.object)
						}
						step.Kind = schema.GroupVersionKind{}
						return nil
					}
					// What a subresource sends is known to discovery alone, so its kind is checked with each request.
					if r.mapper == nil || strings.Contains(resource, "/") {
						continue
					}
					kind, err := r.mapper.KindFor(schema.GroupVersionResource{Group: group, Version: version, Resource: resource})
					if err != nil {
						return fmt.Errorf("extension %q: the cluster does not serve the %q of %s/%s that Settings.Rules name: %w", d.name, resource, group, version, err)
					}
					kinds[kind] = true
				}
			}
		}
	}
	if d.extension != nil {
		return nil // it is told of other kinds than pods by a nil pod
	}
	for kind := range kinds {
		if d.object != unstructuredType && kind != step.Kind {
			return fmt.Errorf("extension %q: Settings.Rules select %s, but it is about %s; use a step for each kind, or *unstructured.Unstructured", d.name, kind, step.Kind)
		}
		if len(kinds) == 1 {
			step.Kind = kind
		}
	}
	return nil
}

// checkSteps tells everything that the API server would refuse, as far as it can be told without a cluster.
func checkSteps(o ManagerOptions, definitions []definition) error {
	r := newResolver(o, nil)
	var errs []error
	var steps []webhookconf.Step
	for _, d := range definitions {
		step, err := r.resolve(d)
		if err == nil && d.name == diagnose.CanaryName {
			err = fmt.Errorf("eirinix: extension %q has the name of the webhook that Diagnose calls; give it another one", d.name)
		}
		if err != nil {
			errs = append(errs, err)
			continue
		}
		steps = append(steps, step)
	}
	return errors.Join(append(errs, webhookconf.Check(steps, o.webhookOptions(o.port())))...)
}

// resolved are the steps that are registered and served, in the order of their definitions, and the entries that call
// them. Paths are those of a server of our own.
type resolved struct {
	steps   []webhookconf.Step
	entries []webhookconf.Entry
}

// keyOf names a step among all versions of a program. A step of the same name for another kind is another step.
func keyOf(s webhookconf.Step) string {
	if s.Kind.Empty() {
		return s.Name
	}
	return s.Name + "@" + s.Kind.GroupVersion().String() + "/" + s.Kind.Kind
}

// names returns the keys of the steps behind an entry.
func (r resolved) names(e webhookconf.Entry) []string {
	names := make([]string, 0, len(e.Steps))
	for _, i := range e.Steps {
		names = append(names, keyOf(r.steps[i]))
	}
	return names
}

// resolveAll resolves every step with the cluster's help. The lock is not held while the cluster is asked.
func (m *ExtensionManager) resolveAll() (resolved, error) {
	m.mu.Lock()
	options, definitions := m.options, slices.Clone(m.steps)
	m.mu.Unlock()
	mapper, err := m.restMapper()
	if err != nil {
		return resolved{}, err
	}
	r := newResolver(options, mapper)
	var all resolved
	for _, d := range definitions {
		step, err := r.resolve(d)
		if err != nil {
			return resolved{}, err
		}
		all.steps = append(all.steps, step)
	}
	all.entries = webhookconf.Group(all.steps)
	return all, nil
}

// chains makes what is served: the steps of each entry on its path, and on the paths of other versions those of their
// steps that this one has. A path that came with a later version is not served while one of its steps is missing, so that
// the API server asks another replica.
func (m *ExtensionManager) chains(r resolved, routes map[string]rollout.Route) (map[string]admit.Chain, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	chains := map[string]admit.Chain{}
	serve := func(path string, validating bool, steps []int) error {
		chain := admit.Chain{Validating: validating}
		for _, i := range steps {
			step, err := m.servedStep(m.steps[i], r.steps[i])
			if err != nil {
				return err
			}
			chain.Steps = append(chain.Steps, step)
			chain.Reinvoke = chain.Reinvoke || r.steps[i].Reinvoke == admissionregistrationv1.IfNeededReinvocationPolicy
		}
		chains[path] = chain
		return nil
	}
	own := map[string]webhookconf.Entry{}
	for _, e := range r.entries {
		own[e.Path] = e
		if err := serve(e.Path, e.Validating, e.Steps); err != nil {
			return nil, err
		}
	}
	for path, route := range routes {
		e, ours := own[path]
		e.Validating = strings.HasPrefix(path, admit.ValidatePrefix)
		steps, lacks := slices.Clone(e.Steps), false
		for _, name := range route.Steps {
			i := slices.IndexFunc(r.steps, func(s webhookconf.Step) bool { return s.Validating == e.Validating && keyOf(s) == name })
			lacks = lacks || i < 0
			if i >= 0 && !slices.Contains(steps, i) {
				steps = append(steps, i)
			}
		}
		if !ours && route.All && lacks {
			continue
		}
		slices.Sort(steps)
		if err := serve(path, e.Validating, steps); err != nil {
			return nil, err
		}
	}
	return chains, nil
}

// servedStep makes the step that is served. It is called under mu.
func (m *ExtensionManager) servedStep(d definition, registered webhookconf.Step) (admit.Step, error) {
	matcher, err := admit.NewMatcher(registered.Rules, diagnose.WithoutCanary(registered, m.options.OperatorFingerprint), registered.Namespaces)
	if err != nil {
		return admit.Step{}, fmt.Errorf("extension %q: %w", d.name, err)
	}
	if !registered.Validating && !registered.ClusterCritical {
		matcher.LeaveManaged()
	}
	step := admit.Step{
		Name: d.name, Timeout: registered.Timeout, Matcher: matcher,
		Ignore: registered.FailurePolicy == admissionregistrationv1.Ignore,
	}
	call := func(x *admit.Exchange) (*Call, error) {
		sent, expected := x.Request.Kind, registered.Kind
		if d.object != unstructuredType && (sent.Group != expected.Group || sent.Version != expected.Version || sent.Kind != expected.Kind) {
			return nil, fmt.Errorf("the API server sent a %s of %s/%s, but this extension is about %s", sent.Kind, sent.Group, sent.Version, expected)
		}
		return &Call{Request: admission.Request{AdmissionRequest: *x.Request}, Manager: m, exchange: x}, nil
	}
	switch {
	case d.extension != nil:
		step.Handle, step.Pods = m.classic(d.extension), &m.pods
	case d.mutate != nil:
		step.New = d.newObject
		step.Mutate = func(ctx context.Context, x *admit.Exchange, obj runtime.Object) error {
			c, err := call(x)
			if err != nil {
				return err
			}
			return d.mutate(ctx, c, obj)
		}
	default:
		step.New = d.newObject
		step.Check = func(ctx context.Context, x *admit.Exchange, oldObj, newObj runtime.Object) error {
			c, err := call(x)
			if err != nil {
				return err
			}
			return d.check(ctx, c, oldObj, newObj)
		}
	}
	return step, nil
}
