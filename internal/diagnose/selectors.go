package diagnose

// This file determines which objects and namespaces the registered webhooks select.

import (
	"context"
	"fmt"
	"slices"
	"strings"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// Subject describes an object by the properties that the rules and selectors of a webhook match.
type Subject struct {
	Namespace   string // empty for a cluster-scoped object
	Name        string // only for the message
	Labels      map[string]string
	Resource    schema.GroupVersionResource
	Subresource string
	Operation   admissionregistrationv1.OperationType
}

func (s Subject) String() string {
	name := strings.TrimPrefix(s.Namespace+"/"+s.Name, "/")
	return strings.TrimSpace(fmt.Sprintf("%s of %s %s", s.Operation, s.Resource.Resource, name))
}

// labelsOf holds the labels of a namespace. missing means that the namespace does not exist.
type labelsOf struct {
	labels  labels.Set
	missing bool
	unknown bool
}

// namespace reads the labels of a namespace, and caches them.
func (d *diagnosis) namespace(ctx context.Context, name string) labelsOf {
	if known, ok := d.namespaces[name]; ok {
		return known
	}
	ns, err := within(ctx, d.timeout(), func(ctx context.Context) (*corev1.Namespace, error) {
		return d.Clients.CoreV1().Namespaces().Get(ctx, name, metav1.GetOptions{})
	})
	var found labelsOf
	switch {
	case apierrors.IsNotFound(err):
		found.missing = true
	case err != nil:
		d.noteMissingRight(err, Right{Resource: "namespaces", Verb: "get", Name: name})
		// The API server sets this label on every namespace.
		found = labelsOf{labels: labels.Set{corev1.LabelMetadataName: name}, unknown: true}
	default:
		found.labels = ns.Labels
	}
	d.namespaces[name] = found
	return found
}

// excludes names the selector of the entry that excludes the subject. It is empty if none does. If the namespace's
// labels have not been read, it assumes only the label that every namespace has.
func (d *diagnosis) excludes(h hook, s Subject) string {
	if s.Namespace != "" {
		ns, read := d.namespaces[s.Namespace]
		if !read {
			ns.labels = labels.Set{corev1.LabelMetadataName: s.Namespace}
		}
		if !matches(h.NamespaceSelector, ns.labels) {
			return fmt.Sprintf("namespaceSelector %q", metav1.FormatLabelSelector(h.NamespaceSelector))
		}
	}
	if !matches(h.ObjectSelector, s.Labels) {
		return fmt.Sprintf("objectSelector %q", metav1.FormatLabelSelector(h.ObjectSelector))
	}
	return ""
}

func matches(s *metav1.LabelSelector, set labels.Set) bool {
	if s == nil {
		return true // the API server defaults it to the empty selector, which selects everything
	}
	selector, err := metav1.LabelSelectorAsSelector(s)
	return err == nil && selector.Matches(set)
}

// compareSelectors reports the selectors of an entry that differ from the expected ones.
func (d *diagnosis) compareSelectors(live, expected hook) {
	differ := func(name string, is, should *metav1.LabelSelector) {
		if equality.Semantic.DeepEqual(is, should) {
			return
		}
		d.add(Finding{
			Code: Excluded, Severity: Warning, Object: live.String() + " " + name,
			Message: fmt.Sprintf("the %s of %s is %q instead of %q, so that the API server calls for other objects", name, live,
				metav1.FormatLabelSelector(is), metav1.FormatLabelSelector(should)),
			Remedy: "call RegisterExtensions, and see which other program writes that configuration",
		})
	}
	differ("namespaceSelector", live.NamespaceSelector, expected.NamespaceSelector)
	differ("objectSelector", live.ObjectSelector, expected.ObjectSelector)
}

// selected checks whether the namespaces that the entries select exist.
func (d *diagnosis) selected(ctx context.Context) {
	if ns := d.Options.Namespace; ns != "" && d.namespace(ctx, ns).missing {
		d.add(Finding{
			Code: Excluded, Severity: Warning, Object: "Namespace " + ns,
			Message: fmt.Sprintf("Namespace %s, the only one that is selected, does not exist, so the API server calls for nothing", ns),
			Remedy:  "create it, or set ManagerOptions.Namespace to another one",
		})
		return
	}
	var all []corev1.Namespace
	listed := false
	for _, e := range d.Entries {
		h, live := d.live[e.Path]
		if !live || e.Name == CanaryName || !narrow(h.NamespaceSelector, d.Options.Namespace) {
			continue
		}
		if !listed {
			list, err := within(ctx, d.timeout(), func(ctx context.Context) (*corev1.NamespaceList, error) {
				return d.Clients.CoreV1().Namespaces().List(ctx, metav1.ListOptions{})
			})
			if err != nil {
				d.noteMissingRight(err, Right{Resource: "namespaces", Verb: "list"})
				return
			}
			all, listed = list.Items, true
		}
		if !slices.ContainsFunc(all, func(ns corev1.Namespace) bool { return matches(h.NamespaceSelector, ns.Labels) }) {
			d.add(Finding{
				Code: Excluded, Severity: Warning, Object: h.String(),
				Message: fmt.Sprintf("the namespaceSelector %q of %s matches none of the %d namespaces there are", metav1.FormatLabelSelector(h.NamespaceSelector), h, len(all)),
				Remedy:  "label the namespaces that are meant, or change Settings.Namespaces",
			})
		}
	}
}

// narrow reports whether a namespaceSelector does more than exclude namespaces. The name of the namespace one does not
// count, because selected has checked it already.
func narrow(s *metav1.LabelSelector, one string) bool {
	if s == nil {
		return false
	}
	for key, value := range s.MatchLabels {
		if key != corev1.LabelMetadataName || value != one {
			return true
		}
	}
	return slices.ContainsFunc(s.MatchExpressions, func(r metav1.LabelSelectorRequirement) bool {
		return r.Operator != metav1.LabelSelectorOpNotIn && r.Operator != metav1.LabelSelectorOpDoesNotExist
	})
}

// checkSubject reports which entries exclude the subject, and why.
func (d *diagnosis) checkSubject(ctx context.Context) {
	if d.Subject == nil {
		return
	}
	s := *d.Subject
	if s.Namespace != "" {
		d.namespace(ctx, s.Namespace)
	}
	ruled := false
	for _, e := range d.Entries {
		h, live := d.live[e.Path]
		if !live || !slices.ContainsFunc(h.Rules, s.matchedBy) {
			continue
		}
		ruled = true
		if why := d.excludes(h, s); why != "" {
			d.add(Finding{
				Code: Excluded, Severity: Warning, Object: h.String() + " " + s.String(),
				Message: fmt.Sprintf("the API server does not call for the %s, because the %s of %s leaves it out", s, why, h),
				Remedy:  "change the labels of the object or of its namespace, or Settings.Namespaces, Settings.Objects and ManagerOptions.Namespace",
			})
		}
	}
	if !ruled && d.looked {
		d.add(Finding{
			Code: Excluded, Severity: Warning, Object: s.String(),
			Message: fmt.Sprintf("the API server does not call for the %s, because no rule that is registered matches it", s),
			Remedy:  "name the resource and the operation in Settings.Rules",
		})
	}
}

func (s Subject) matchedBy(r admissionregistrationv1.RuleWithOperations) bool {
	resource := s.Resource.Resource
	if s.Subresource != "" {
		resource += "/" + s.Subresource
	}
	return overlap(r, admissionregistrationv1.RuleWithOperations{
		Operations: []admissionregistrationv1.OperationType{s.Operation},
		Rule:       admissionregistrationv1.Rule{APIGroups: []string{s.Resource.Group}, Resources: []string{resource}},
	})
}
