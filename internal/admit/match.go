package admit

import (
	"fmt"
	"slices"
	"strings"

	admissionv1 "k8s.io/api/admission/v1"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Matcher is one step's own rules and selectors: its entry may be registered for the union of what several
// steps want. It decides as the API server does, and where a review says too little for that, it matches: the
// entry's own selectors have been obeyed by then. It is immutable, and safe for concurrent use. A nil Matcher
// matches every request.
type Matcher struct {
	rules      []rule
	objects    []requirement
	namespaces []requirement // on the namespace's name

	leaveManaged bool
}

// rule is a RuleWithOperations made ready.
type rule struct {
	operations, groups, versions terms
	resources                    []resourceTerm
	scope                        admissionregistrationv1.ScopeType // "" for all
}

// terms are words of which one must be equal; nil matches all.
type terms []string

// resourceTerm is one of a rule's resources, as in "pods/exec".
type resourceTerm struct {
	resource, sub       string
	anyResource, anySub bool
}

// NewMatcher makes a Matcher of a webhook's rules, objectSelector and namespaceSelector. A nil selector
// selects everything, as the API server defaults it. Without rules nothing matches.
//
// Of the namespaceSelector, what it says of the label kubernetes.io/metadata.name is evaluated, and the rest
// is taken for met, because a review does not carry a namespace's labels.
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
		// Every namespace has the label, so that DoesNotExist gets no calls.
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
	all := terms{} // nothing is not everything
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

// matchesKind tells whether the step's rules and namespaceSelector select the request.
func (m *Matcher) matchesKind(req *admissionv1.AdmissionRequest) bool {
	return m == nil || m.matchesRules(req) && m.matchesNamespace(req) && !(m.leaveManaged && isManaged(req))
}

// matchesRules looks at resource and subResource, which are those that the webhook is registered for; under
// matchPolicy Equivalent, what the user asked for stands in requestResource.
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
		// "pods/*" has pods too, and "*" has no subresource.
		if (t.anyResource || t.resource == req.Resource.Resource) && (t.anySub || t.sub == req.SubResource) {
			return true
		}
	}
	return false
}

func (r *rule) matchesScope(req *admissionv1.AdmissionRequest) bool {
	// A namespace belongs to the cluster, though a request for one carries its name as the namespace.
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
			return true // the API server looks at the labels of this object, which is no namespace
		}
		if req.Name != "" {
			namespace = req.Name
		}
	}
	if namespace == "" {
		return true // what belongs to no namespace is never exempt
	}
	for i := range m.namespaces {
		if !met(&m.namespaces[i], namespace, true) {
			return false
		}
	}
	return true
}

// hasObjects tells whether there is an objectSelector to be obeyed.
func (m *Matcher) hasObjects() bool { return m != nil && len(m.objects) > 0 }

// hasSameObjects tells whether two objectSelectors are equal.
func (m *Matcher) hasSameObjects(other *Matcher) bool {
	if !m.hasObjects() || !other.hasObjects() {
		return m.hasObjects() == other.hasObjects()
	}
	return slices.EqualFunc(m.objects, other.objects, func(a, b requirement) bool {
		return a.key == b.key && a.operator == b.operator && slices.Equal(a.values, b.values)
	})
}

// matchesObjects tells whether one of the two objects has the labels that the selector asks for. They must be
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
		return true // the step's own decoder says what is wrong
	}
	return metadata && m.selectsLabels(labels)
}

// selectsLabels tells whether an object with metadata and these labels is selected.
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
