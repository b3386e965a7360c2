// Package resources determines which requests the rules of a step mean, and which they match.
package resources

// This file resolves the rules of a step, and the kind of the objects that match them. It compares rules with words, with
// requests, and with each other.

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	admissionv1 "k8s.io/api/admission/v1"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/utils/ptr"
)

// Resource is a kind in the form that a cluster serves it.
type Resource struct {
	Kind          schema.GroupVersionKind
	Resource      string // the plural; empty for the kind's regular plural in lower case
	ClusterScoped bool
}

// Step holds the settings that determine the rules of a step.
type Step struct {
	Kind        schema.GroupVersionKind                 // kind of the sent objects; empty for any
	AnyRules    bool                                    // its rules can match other kinds
	Mutates     bool                                    // it needs an object that it can change; otherwise it checks, unless AnyRules
	Operations  []admissionregistrationv1.OperationType // those it has a callback for; with AnyRules, the default
	Asked       []admissionregistrationv1.OperationType // set by Settings.Operations
	Resource    schema.GroupVersionResource             // the parent resource of a subresource
	Subresource string
	Rules       []admissionregistrationv1.RuleWithOperations // rules of the user; empty: derived from the other fields
}

// Cluster provides the resources that a cluster serves. Its fields are nil while the cluster cannot be asked.
// Placeholders then replace the rules that depend on it, and are only good for checks.
type Cluster struct {
	Mapper meta.RESTMapper

	// List returns the resources of a version, with their subresources.
	List func(groupVersion string) (*metav1.APIResourceList, error)
}

// NotServedError reports a kind that the cluster does not serve, perhaps not yet.
type NotServedError struct{ Err error }

func (e *NotServedError) Error() string { return e.Err.Error() }
func (e *NotServedError) Unwrap() error { return e.Err }

// wanted returns the operations that a step without rules is registered for. It is empty for the subresource's own
// operation.
func (s Step) wanted() ([]admissionregistrationv1.OperationType, error) {
	switch {
	case s.Mutates:
		return s.changing(s.Asked)
	case len(s.Asked) == 0:
		return s.Operations, nil
	case s.AnyRules || s.Subresource != "":
		return s.Asked, nil
	case slices.Contains(s.Asked, admissionregistrationv1.OperationAll):
		return s.Operations, nil
	}
	for _, operation := range s.Asked {
		if !slices.Contains(s.Operations, operation) {
			return nil, fmt.Errorf("Settings.Operations name %s, for which it has no callback; set one, or leave %s out", operation, operation)
		}
	}
	return s.Asked, nil
}

// changing returns the operations of a step that changes objects. Operations without an object that can be changed are
// an error, and "*" means Create and Update. By default, a step on Pods or Jobs gets only Create. An update cannot
// change the spec of a Pod and the template of a Job: an attempt would be rejected.
func (s Step) changing(asked []admissionregistrationv1.OperationType) ([]admissionregistrationv1.OperationType, error) {
	both := []admissionregistrationv1.OperationType{admissionregistrationv1.Create, admissionregistrationv1.Update}
	switch {
	case len(asked) == 0 && slices.Contains([]schema.GroupKind{{Kind: "Pod"}, {Group: batchv1.GroupName, Kind: "Job"}}, s.Kind.GroupKind()):
		return both[:1], nil
	case len(asked) == 0 || slices.Contains(asked, admissionregistrationv1.OperationAll):
		return both, nil
	}
	for _, operation := range asked {
		if operation != admissionregistrationv1.Create && operation != admissionregistrationv1.Update {
			return nil, fmt.Errorf("a Mutation is for objects that are created or updated; leave %s out of its operations (Settings.Operations or Settings.Rules), or use a Validation or a Subresource", operation)
		}
	}
	return asked, nil
}

// Resolve returns the rules of the step, and the kind of the objects that match them. It is empty if they match several
// kinds.
func (c Cluster) Resolve(s Step) ([]admissionregistrationv1.RuleWithOperations, schema.GroupVersionKind, error) {
	if len(s.Rules) == 0 {
		rule, err := c.derive(s)
		return []admissionregistrationv1.RuleWithOperations{rule}, s.Kind, err
	}
	if len(s.Asked) > 0 {
		return nil, s.Kind, errors.New("Settings.Rules have operations of their own; leave out Settings.Operations")
	}
	rules := make([]admissionregistrationv1.RuleWithOperations, 0, len(s.Rules))
	for _, r := range s.Rules {
		r := *r.DeepCopy()
		if s.Mutates && len(r.Operations) > 0 {
			var err error
			if r.Operations, err = s.changing(r.Operations); err != nil {
				return nil, s.Kind, err
			}
		}
		rules = append(rules, r)
	}
	kind, err := c.kindOf(s, rules)
	return rules, kind, err
}

// derive returns the rule of a step without rules, with the name that the cluster uses for its kind: it never guesses
// plurals.
func (c Cluster) derive(s Step) (rule admissionregistrationv1.RuleWithOperations, err error) {
	if rule.Operations, err = s.wanted(); err != nil {
		return rule, err
	}
	resource, scope := s.Resource, admissionregistrationv1.AllScopes
	switch {
	case s.Subresource != "":
		if rule.Operations, err = Subresource(resource, s.Subresource, s.Kind, rule.Operations); err == nil {
			err = c.servesSubresource(s)
		}
		resource.Resource += "/" + s.Subresource
	case s.Kind == corev1.SchemeGroupVersion.WithKind("Pod"):
		resource, scope = corev1.SchemeGroupVersion.WithResource("pods"), admissionregistrationv1.NamespacedScope
	case c.Mapper == nil:
		resource = s.Kind.GroupVersion().WithResource("resource") // for checks only
	default:
		var mapping *meta.RESTMapping
		if mapping, err = c.Mapper.RESTMapping(s.Kind.GroupKind(), s.Kind.Version); err != nil {
			return rule, notServed(fmt.Errorf("it is about %s, which the cluster does not serve; install its CustomResourceDefinition, or check the version: %w", s.Kind, err), s.Kind.Group)
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
	return rule, err
}

// servesSubresource checks whether the cluster serves a subresource that is not built in.
func (c Cluster) servesSubresource(s Step) error {
	if _, builtIn := subresources[s.Resource.GroupResource()]; c.List == nil || builtIn || strings.Contains(s.Resource.Resource+s.Subresource, "*") {
		return nil
	}
	name := s.Resource.Resource + "/" + s.Subresource
	all, err := c.List(s.Resource.GroupVersion().String())
	if err != nil && !apierrors.IsNotFound(err) {
		return fmt.Errorf("whether the cluster serves %s of %s could not be found out: %w", name, s.Resource.GroupVersion(), err)
	}
	if all == nil {
		all = &metav1.APIResourceList{}
	}
	i := slices.IndexFunc(all.APIResources, func(r metav1.APIResource) bool { return r.Name == name })
	if i < 0 {
		for _, r := range all.APIResources {
			if strings.EqualFold(r.Kind, s.Resource.Resource) && r.Name != s.Resource.Resource && !strings.Contains(r.Name, "/") {
				return misnamed(s.Resource.GroupResource(), r.Name)
			}
		}
		return &NotServedError{fmt.Errorf("it is about %s of %s, which the cluster does not serve; check the name, or have the CustomResourceDefinition declare the subresource", name, s.Resource.GroupVersion())}
	}
	sent := all.APIResources[i]
	kind := schema.GroupVersionKind{Group: sent.Group, Version: sent.Version, Kind: sent.Kind}
	if kind.Group == "" && kind.Version == "" {
		kind.Group, kind.Version = s.Resource.Group, s.Resource.Version
	}
	if !s.Kind.Empty() && kind.GroupKind() != s.Kind.GroupKind() {
		return fmt.Errorf("%s of %s sends %s, and T is %s", name, s.Resource.GroupVersion(), kind.GroupKind(), s.Kind.GroupKind())
	}
	return nil
}

// kindOf ensures that the rules of a user match the step's kind, because another kind would be decoded as if it were
// that one. For a step of any kind, it finds the kind, if the rules match exactly one.
func (c Cluster) kindOf(s Step, rules []admissionregistrationv1.RuleWithOperations) (schema.GroupVersionKind, error) {
	kinds := map[schema.GroupVersionKind]bool{}
	for _, named := range Named(rules) {
		if strings.Contains(named.Group+named.Version+named.Resource, "*") {
			if !s.Kind.Empty() && !s.AnyRules {
				return s.Kind, fmt.Errorf("the rule for %q of %s may yield another kind than %s; name the resource, or use *unstructured.Unstructured", named.Resource, named.GroupVersion(), s.Kind.Kind)
			}
			return schema.GroupVersionKind{}, nil
		}
		resource, below, found := strings.Cut(named.Resource, "/")
		if err := exists(schema.GroupResource{Group: named.Group, Resource: resource}, below); err != nil {
			return s.Kind, err
		}
		if found || c.Mapper == nil { // only discovery knows which other kinds a subresource sends, so its kind is checked with each request
			continue
		}
		if plural, err := c.Mapper.ResourceFor(named); err == nil && plural.Resource != named.Resource { // it takes a singular too
			return s.Kind, misnamed(named.GroupResource(), plural.Resource)
		}
		kind, err := c.Mapper.KindFor(named)
		if err != nil {
			return s.Kind, notServed(fmt.Errorf("the cluster does not serve the %q of %s that Settings.Rules name: %w", named.Resource, named.GroupVersion(), err), named.Group)
		}
		kinds[kind] = true
	}
	if s.AnyRules {
		return s.Kind, nil
	}
	for kind := range kinds {
		if !s.Kind.Empty() && kind != s.Kind {
			return s.Kind, fmt.Errorf("Settings.Rules select %s, but it is about %s; use a step for each kind, or *unstructured.Unstructured", kind, s.Kind)
		}
		if len(kinds) == 1 {
			return kind, nil
		}
	}
	return s.Kind, nil
}

// Named returns the resources that rules name.
func Named(rules []admissionregistrationv1.RuleWithOperations) (all []schema.GroupVersionResource) {
	for _, rule := range rules {
		for _, group := range rule.APIGroups {
			for _, version := range rule.APIVersions {
				for _, resource := range rule.Resources {
					all = append(all, schema.GroupVersionResource{Group: group, Version: version, Resource: resource})
				}
			}
		}
	}
	return all
}

// notServed marks an error about a kind that the cluster does not serve. A group without a dot in its name can only be
// built in, so its error is permanent.
func notServed(err error, group string) error {
	if meta.IsNoMatchError(err) && strings.Contains(group, ".") {
		return &NotServedError{err}
	}
	return err
}

// Names reports whether a list of a rule holds a word, or the wildcard.
func Names[T ~string](list []T, word T) bool {
	return slices.Contains(list, word) || slices.Contains(list, "*")
}

// Match reports whether an API server calls a webhook with these rules for a request. It compares them with resource and
// subResource, for which the webhook is registered. Under matchPolicy Equivalent, the resource of the user's own request
// is in requestResource.
func Match(rules []admissionregistrationv1.RuleWithOperations, req *admissionv1.AdmissionRequest) bool {
	// A namespace is cluster-scoped, although a request for one carries its name as the namespace.
	namespaced := req.Namespace != "" && req.Resource != metav1.GroupVersionResource{Version: "v1", Resource: "namespaces"}
	for i := range rules {
		r := &rules[i]
		if Names(r.Operations, admissionregistrationv1.OperationType(req.Operation)) && Names(r.APIGroups, req.Resource.Group) &&
			Names(r.APIVersions, req.Resource.Version) && matchesScope(r.Scope, namespaced) && matchesResource(r.Resources, req) {
			return true
		}
	}
	return false
}

func matchesScope(scope *admissionregistrationv1.ScopeType, namespaced bool) bool {
	switch ptr.Deref(scope, admissionregistrationv1.AllScopes) {
	case admissionregistrationv1.AllScopes:
		return true
	case admissionregistrationv1.NamespacedScope:
		return namespaced
	case admissionregistrationv1.ClusterScope:
		return !namespaced
	}
	return false
}

func matchesResource(names []string, req *admissionv1.AdmissionRequest) bool {
	return slices.ContainsFunc(names, func(name string) bool {
		// "pods/*" includes pods, and "*" includes no subresource.
		resource, sub, _ := strings.Cut(name, "/")
		return (resource == "*" || resource == req.Resource.Resource) && (sub == "*" || sub == req.SubResource)
	})
}

// Overlap reports whether a request can match rules of both. It ignores scopes, and versions, because an API server
// converts objects.
func Overlap(as, bs []admissionregistrationv1.RuleWithOperations) bool {
	return anyPair(as, bs, func(a, b admissionregistrationv1.RuleWithOperations) bool {
		return anyPair(a.Operations, b.Operations, same) && anyPair(a.APIGroups, b.APIGroups, same) &&
			anyPair(a.Resources, b.Resources, sameResource)
	})
}

func anyPair[T any](as, bs []T, test func(a, b T) bool) bool {
	return slices.ContainsFunc(as, func(a T) bool {
		return slices.ContainsFunc(bs, func(b T) bool { return test(a, b) })
	})
}

func same[T ~string](a, b T) bool { return a == b || a == "*" || b == "*" }

// sameResource compares resources with the wildcards of rules: * is every resource without its subresources, */* is
// everything.
func sameResource(a, b string) bool {
	resourceA, subA, _ := strings.Cut(a, "/")
	resourceB, subB, _ := strings.Cut(b, "/")
	return same(resourceA, resourceB) && same(subA, subB)
}
