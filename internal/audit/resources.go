package audit

// This file finds the resources that steps are asked about: those that their rules select, in a version that the
// cluster serves.

import (
	"cmp"
	"context"
	"fmt"
	"path"
	"slices"
	"strconv"
	"strings"

	admissionv1 "k8s.io/api/admission/v1"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/discovery"
)

// resource is a resource as the cluster serves it.
type resource struct {
	schema.GroupVersionResource
	kind       schema.GroupVersionKind
	namespaced bool
	preferred  bool // it is of the version that the cluster prefers
}

// target is a resource with the steps that are asked about its objects.
type target struct {
	resource
	steps      []*step  // the mutating ones come first
	namespaces []string // that are listed; an empty name means all
}

// served returns the resources that can be listed, and created or updated. failed holds the groups that cannot be
// discovered at present.
func served(ctx context.Context, d discovery.ServerResourcesInterfaceWithContext) (all []resource, failed map[schema.GroupVersion]error, err error) {
	groups, lists, err := d.ServerGroupsAndResourcesWithContext(ctx)
	failed, partial := discovery.GroupDiscoveryFailedErrorGroups(err)
	if ended := context.Cause(ctx); ended != nil { // each of the groups may have failed for that
		return nil, nil, ended
	}
	if err != nil && !partial {
		return nil, nil, err
	}
	preferred := map[string]string{}
	for _, g := range groups {
		preferred[g.Name] = g.PreferredVersion.Version
	}
	for _, list := range lists {
		gv, err := schema.ParseGroupVersion(list.GroupVersion)
		if err != nil {
			continue // not of an API server
		}
		for _, r := range list.APIResources {
			if isListed(&r) {
				all = append(all, resource{
					GroupVersionResource: gv.WithResource(r.Name), kind: gv.WithKind(r.Kind), namespaced: r.Namespaced,
					preferred: preferred[gv.Group] == gv.Version,
				})
			}
		}
	}
	slices.SortStableFunc(all, func(a, b resource) int { // the preferred version comes first
		return cmp.Or(strings.Compare(a.Group, b.Group), strings.Compare(a.Resource, b.Resource), -order(a.preferred, b.preferred))
	})
	return all, failed, nil
}

// order puts false before true.
func order(a, b bool) int { return strings.Compare(strconv.FormatBool(a), strconv.FormatBool(b)) }

// isListed reports whether a resource has objects that are created or updated, and that can be listed.
func isListed(r *metav1.APIResource) bool {
	return !strings.Contains(r.Name, "/") && slices.Contains(r.Verbs, "list") &&
		slices.ContainsFunc(r.Verbs, func(verb string) bool { return verb == "create" || verb == "update" })
}

// targets returns the resources that the rules of the steps select, in the order of the steps.
func targets(steps []*step, all []resource, namespace string) (found []*target) {
	byResource := map[schema.GroupVersionResource]*target{}
	for _, s := range steps {
		for _, r := range s.resources(all) {
			if namespace != "" && !r.namespaced {
				continue
			}
			t := byResource[r.GroupVersionResource]
			if t == nil {
				t = &target{resource: r}
				byResource[r.GroupVersionResource], found = t, append(found, t)
			}
			t.steps = append(t.steps, s)
		}
	}
	for _, t := range found {
		slices.SortStableFunc(t.steps, func(a, b *step) int { return order(a.Registered.Validating, b.Registered.Validating) })
		t.namespaces = t.listed(namespace)
	}
	return found
}

// resources returns the resources that the step's rules select for CREATE or UPDATE. If the rules select several
// versions of a resource, it is the preferred one, or the first.
func (s *step) resources(all []resource) (found []resource) {
	chosen := map[schema.GroupResource]bool{}
	for _, r := range all {
		if !chosen[r.GroupResource()] && (s.wants(r, admissionv1.Create) || s.wants(r, admissionv1.Update)) {
			chosen[r.GroupResource()] = true
			found = append(found, r)
		}
	}
	return found
}

func names[T ~string](list []T, word T) bool {
	return slices.Contains(list, "*") || slices.Contains(list, word)
}

// playedIn returns the resources whose creations or updates the rules select, without subresources. An audit can ask
// about these operations.
func playedIn(rules []admissionregistrationv1.RuleWithOperations) (all []schema.GroupResource) {
	for _, rule := range rules {
		if !names(rule.Operations, admissionregistrationv1.Create) && !names(rule.Operations, admissionregistrationv1.Update) {
			continue
		}
		for _, group := range rule.APIGroups {
			for _, name := range rule.Resources {
				if whole, sub, found := strings.Cut(name, "/"); !found || sub == "*" {
					all = append(all, schema.GroupResource{Group: group, Resource: whole})
				}
			}
		}
	}
	return all
}

// unplayed returns the parts of rules that an audit cannot ask about, such as "DELETE of pods" and "pods/exec", in
// order.
func unplayed(rules []admissionregistrationv1.RuleWithOperations) (all []string) {
	for _, rule := range rules {
		var wholes []string
		for _, r := range rule.Resources {
			whole, sub, found := strings.Cut(r, "/")
			if found {
				all = append(all, r)
			}
			if !found || sub == "*" {
				wholes = append(wholes, whole)
			}
		}
		for _, o := range []admissionregistrationv1.OperationType{admissionregistrationv1.Delete, admissionregistrationv1.Connect} {
			every := o == admissionregistrationv1.Delete && slices.Contains(rule.Operations, admissionregistrationv1.OperationAll)
			if len(wholes) > 0 && (every || slices.Contains(rule.Operations, o)) {
				all = append(all, fmt.Sprintf("%s of %s", o, strings.Join(wholes, ", ")))
			}
		}
	}
	slices.Sort(all)
	return slices.Compact(all)
}

// listed returns the namespaces in which a resource is listed. If all of its steps select namespaces by name, it is
// these, because the program may have no rights elsewhere.
func (t *target) listed(namespace string) (all []string) {
	if !t.namespaced {
		return []string{""}
	}
	if namespace != "" {
		return []string{namespace}
	}
	for _, s := range t.steps {
		all = append(all, namesIn(s.Webhook.NamespaceSelector)...)
	}
	return together(all)
}

// Lists returns the resources that an audit of these webhooks lists, by namespace and group. An empty namespace means all.
// namespaced reports whether the objects of a resource are in namespaces.
func Lists(webhooks []admissionregistrationv1.MutatingWebhook, namespaced func(schema.GroupResource) bool) map[string]map[string][]string {
	at := map[schema.GroupResource][]string{}
	for _, w := range webhooks {
		for _, r := range playedIn(w.Rules) {
			if namespaced(r) {
				at[r] = append(at[r], namesIn(w.NamespaceSelector)...)
			} else {
				at[r] = append(at[r], "")
			}
		}
	}
	all := map[string]map[string][]string{}
	for r, namespaces := range at {
		for _, n := range together(namespaces) {
			if all[n] == nil {
				all[n] = map[string][]string{}
			}
			all[n][r.Group] = append(all[n][r.Group], r.Resource)
			slices.Sort(all[n][r.Group])
		}
	}
	return all
}

// namesIn returns the names of the only namespaces that a selector can select, if it has a requirement on the name. Else
// it returns the empty name, which means all.
func namesIn(s *metav1.LabelSelector) []string {
	if s == nil {
		return []string{""}
	}
	if name, ok := s.MatchLabels[corev1.LabelMetadataName]; ok {
		return []string{name}
	}
	for _, e := range s.MatchExpressions {
		if e.Key == corev1.LabelMetadataName && e.Operator == metav1.LabelSelectorOpIn {
			return e.Values
		}
	}
	return []string{""}
}

// together returns each namespace once, in order. If the empty name is among them, it is the only result.
func together(namespaces []string) []string {
	if slices.Contains(namespaces, "") {
		return []string{""}
	}
	slices.Sort(namespaces)
	return slices.Compact(namespaces)
}

// path returns the path of the list in a namespace.
func (r resource) path(namespace string) string {
	prefix := "/api"
	if r.Group != "" {
		prefix = "/apis/" + r.Group
	}
	if namespace != "" {
		return path.Join(prefix, r.Version, "namespaces", namespace, r.Resource)
	}
	return path.Join(prefix, r.Version, r.Resource)
}

// isNamespaces reports whether the API server matches namespaceSelectors with the labels of the objects themselves. It
// looks at the name of the resource alone.
func (r resource) isNamespaces() bool { return r.Resource == "namespaces" }
