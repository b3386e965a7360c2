package admit

// This file evaluates a step's own rules and selectors, as the API server does for a webhook.

import (
	"fmt"
	"slices"
	"strings"

	admissionv1 "k8s.io/api/admission/v1"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Matcher holds one step's own rules and selectors, because its entry can be registered for the union of several steps'
// rules. It decides as the API server does. If a review has too little information for that, the Matcher matches,
// because the API server has already applied the entry's own selectors. It is immutable and safe for concurrent use. A
// nil Matcher matches every request.
type Matcher struct {
	rules      []rule
	objects    []requirement
	namespaces []requirement // on the namespace's name

	leaveManaged bool
}

// rule is a RuleWithOperations that is prepared for matching.
type rule struct {
	operations, groups, versions terms
	resources                    []resourceTerm
	scope                        admissionregistrationv1.ScopeType // "" for all
}

// terms matches a word that is equal to one of its own. A nil terms matches all words.
type terms []string

// resourceTerm is one of a rule's resources, as in "pods/exec".
type resourceTerm struct {
	resource, sub       string
	anyResource, anySub bool
}

// NewMatcher makes a Matcher from a webhook's rules, objectSelector and namespaceSelector. A nil selector selects
// everything, as the API server defaults it. Without rules, nothing matches.
//
// Only the requirements of the namespaceSelector on the label kubernetes.io/metadata.name are evaluated. All others
// count as met, because a review does not carry a namespace's labels.
func NewMatcher(rules []admissionregistrationv1.RuleWithOperations, objects, namespaces *metav1.LabelSelector) (*Matcher, error) {
	m := &Matcher{}
	for _, r := range rules {
		m.rules = append(m.rules, newRule(&r))
	}
	var err error
	if m.objects, err = requirementsOf(objects); err != nil {
		return nil, fmt.Errorf("objectSelector: %w", err)
	}
	onNamespaces, err := requirementsOf(namespaces)
	if err != nil {
		return nil, fmt.Errorf("namespaceSelector: %w", err)
	}
	for _, r := range onNamespaces {
		// Every namespace has this label, so the API server sends no calls for DoesNotExist.
		if r.key == corev1.LabelMetadataName && r.operator != metav1.LabelSelectorOpDoesNotExist {
			m.namespaces = append(m.namespaces, r)
		}
	}
	return m, nil
}

func newRule(r *admissionregistrationv1.RuleWithOperations) rule {
	ready := rule{groups: termsOf(r.APIGroups), versions: termsOf(r.APIVersions), operations: termsOf(r.Operations)}
	if r.Scope != nil && *r.Scope != admissionregistrationv1.AllScopes {
		ready.scope = *r.Scope
	}
	for _, name := range r.Resources {
		resource, sub, _ := strings.Cut(name, "/")
		ready.resources = append(ready.resources, resourceTerm{
			resource: resource, anyResource: resource == "*",
			sub: sub, anySub: sub == "*",
		})
	}
	return ready
}

func termsOf[S ~string](words []S) terms {
	all := terms{} // an empty list matches nothing, but nil matches everything
	for _, w := range words {
		if w == "*" {
			return nil
		}
		all = append(all, string(w))
	}
	return all
}

func (t terms) match(word string) bool {
	if t == nil {
		return true
	}
	for _, w := range t {
		if w == word {
			return true
		}
	}
	return false
}

// matchesKind reports whether the step's rules and namespaceSelector select the request. After LeaveManaged, it returns
// false for managed objects.
func (m *Matcher) matchesKind(req *admissionv1.AdmissionRequest) bool {
	return m == nil || m.matchesRules(req) && m.matchesNamespace(req) && !(m.leaveManaged && isManaged(req))
}

// matchesRules compares the rules with resource and subResource, for which the webhook is registered. Under matchPolicy
// Equivalent, the resource of the user's own request is in requestResource.
func (m *Matcher) matchesRules(req *admissionv1.AdmissionRequest) bool {
	for i := range m.rules {
		r := &m.rules[i]
		if r.matchesScope(req) && r.operations.match(string(req.Operation)) && r.groups.match(req.Resource.Group) &&
			r.versions.match(req.Resource.Version) && r.matchesResource(req) {
			return true
		}
	}
	return false
}

func (r *rule) matchesResource(req *admissionv1.AdmissionRequest) bool {
	for i := range r.resources {
		t := &r.resources[i]
		// "pods/*" includes pods, and "*" includes no subresource.
		if (t.anyResource || t.resource == req.Resource.Resource) && (t.anySub || t.sub == req.SubResource) {
			return true
		}
	}
	return false
}

func (r *rule) matchesScope(req *admissionv1.AdmissionRequest) bool {
	// A namespace is cluster-scoped, although a request for one carries its name as the namespace.
	namespaced := req.Namespace != "" && req.Resource != metav1.GroupVersionResource{Version: "v1", Resource: "namespaces"}
	switch r.scope {
	case "":
		return true
	case admissionregistrationv1.NamespacedScope:
		return namespaced
	case admissionregistrationv1.ClusterScope:
		return !namespaced
	}
	return false
}

func (m *Matcher) matchesNamespace(req *admissionv1.AdmissionRequest) bool {
	if len(m.namespaces) == 0 {
		return true
	}
	namespace := req.Namespace
	if req.Resource.Resource == "namespaces" {
		if req.Resource.Group != "" {
			return true // the API server evaluates the labels of this object, which is no namespace
		}
		if req.Name != "" {
			namespace = req.Name
		}
	}
	if namespace == "" {
		return true // an object without a namespace is never exempt
	}
	for i := range m.namespaces {
		if !met(&m.namespaces[i], namespace, true) {
			return false
		}
	}
	return true
}

// hasObjects reports whether there is an objectSelector to evaluate.
func (m *Matcher) hasObjects() bool { return m != nil && len(m.objects) > 0 }

// hasSameObjects reports whether two objectSelectors are equal.
func (m *Matcher) hasSameObjects(other *Matcher) bool {
	if !m.hasObjects() || !other.hasObjects() {
		return m.hasObjects() == other.hasObjects()
	}
	return slices.EqualFunc(m.objects, other.objects, func(a, b requirement) bool {
		return a.key == b.key && a.operator == b.operator && slices.Equal(a.values, b.values)
	})
}

// matchesObjects reports whether one of the two objects has the labels that the objectSelector requires. Both must be
// JSON that parseEnvelope or a decoder has accepted.
func (m *Matcher) matchesObjects(object, oldObject []byte) bool {
	return !m.hasObjects() || m.selects(object) || m.selects(oldObject)
}

func (m *Matcher) selects(raw []byte) bool {
	if len(raw) == 0 {
		return false
	}
	text, metadata, ok := findLabels(raw)
	for i := range m.objects {
		if !ok || !metadata {
			break
		}
		r := &m.objects[i]
		var value []byte
		var has bool
		if value, has, ok = text.value(r.key); ok && !met(r, value, has) {
			return false
		}
	}
	if ok {
		return metadata
	}
	labels, metadata, ok := decodeLabels(raw)
	if !ok {
		return true // the step's own decoder returns the error
	}
	return metadata && m.selectsLabels(labels)
}

// selectsLabels reports whether an object with metadata and these labels is selected.
func (m *Matcher) selectsLabels(labels map[string]string) bool {
	for i := range m.objects {
		r := &m.objects[i]
		value, has := labels[r.key]
		if !met(r, value, has) {
			return false
		}
	}
	return true
}
