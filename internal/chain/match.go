package chain

// This file decides whether a step wants a request, as the API server does for a webhook: by rules and selectors, and
// by whether a controller keeps the object as it is.

import (
	"bytes"
	"fmt"
	"reflect"
	"slices"
	"strings"

	admissionv1 "k8s.io/api/admission/v1"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"code.cloudfoundry.org/eirinix/internal/jsontext"
	"code.cloudfoundry.org/eirinix/internal/resources"
	"code.cloudfoundry.org/eirinix/internal/settled"
)

// Matcher holds one step's own rules and selectors, because its entry can be registered for the union of several steps'
// rules. It decides as the API server does. If a review has too little information for that, the Matcher matches,
// because the API server has already applied the entry's own selectors. It is immutable and safe for concurrent use. A
// nil Matcher matches every request.
type Matcher struct {
	rules      []admissionregistrationv1.RuleWithOperations
	objects    []requirement
	namespaces []requirement // on the namespace's name

	leavesMade, leavesOwned bool // see Leave
}

// NewMatcher makes a Matcher from a webhook's rules, objectSelector and namespaceSelector. A nil selector selects
// everything, as the API server defaults it. Without rules, nothing matches.
//
// Only the requirements of the namespaceSelector on the label kubernetes.io/metadata.name are evaluated. All others
// count as met, because a review does not carry a namespace's labels.
func NewMatcher(
	rules []admissionregistrationv1.RuleWithOperations, objects, namespaces *metav1.LabelSelector,
) (*Matcher, error) {
	m := &Matcher{}
	for _, r := range rules {
		m.rules = append(m.rules, *r.DeepCopy())
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

// Matches reports whether the rules and the selectors select a request, as it would arrive.
func (m *Matcher) Matches(req *admissionv1.AdmissionRequest) bool {
	return m.matchesKind(req) && m.matchesObjects(req.Object.Raw, req.OldObject.Raw)
}

// matchesKind reports whether the rules and the namespaceSelector select the request.
func (m *Matcher) matchesKind(req *admissionv1.AdmissionRequest) bool {
	return m == nil || resources.Match(m.rules, req) && m.matchesNamespace(req)
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
	return !slices.ContainsFunc(m.namespaces, func(r requirement) bool { return !met(r, namespace, true) })
}

// hasObjects reports whether there is an objectSelector to evaluate.
func (m *Matcher) hasObjects() bool { return m != nil && len(m.objects) > 0 }

// hasSameObjects reports whether two objectSelectors are equal.
func (m *Matcher) hasSameObjects(other *Matcher) bool {
	if !m.hasObjects() || !other.hasObjects() {
		return m.hasObjects() == other.hasObjects()
	}
	return reflect.DeepEqual(m.objects, other.objects)
}

// matchesObjects reports whether one of the two objects has the labels that the objectSelector requires. Both must be
// JSON that a decoder, or the reader of the review, has accepted.
func (m *Matcher) matchesObjects(object, oldObject []byte) bool {
	return !m.hasObjects() || m.selects(object) || m.selects(oldObject)
}

// selects searches an object for its labels. Options such as PodExecOptions have no metadata, and are never selected. The
// search ends at the labels, so it misses a second member of the same name, but the API server writes none.
func (m *Matcher) selects(raw []byte) bool {
	if len(raw) == 0 {
		return false
	}
	var labels []byte
	c := jsontext.Reader{Text: raw}
	metadata := c.Member("metadata")
	if metadata && c.Member("labels") && !c.Null() {
		labels = c.Value()
	}
	if c.Failed() || !metadata {
		return c.Failed() // the step's own decoder returns the error
	}
	for _, r := range m.objects {
		value, has, ok := valueIn(labels, r.key)
		if !ok {
			return true // as above
		}
		if !met(r, value, has) {
			return false
		}
	}
	return true
}

// selectsLabels reports whether an object with metadata and these labels is selected.
func (m *Matcher) selectsLabels(labels map[string]string) bool {
	return !slices.ContainsFunc(m.objects, func(r requirement) bool {
		value, has := labels[r.key]
		return !met(r, value, has)
	})
}

// valueIn returns the value of a label in the text of labels, which is nil if there are none. If a name occurs twice, the
// last one wins, as in the decoder. ok is false if the text cannot be read.
func valueIn(labels []byte, key string) (value []byte, has, ok bool) {
	if labels == nil {
		return nil, false, true
	}
	c := jsontext.Reader{Text: labels}
	for more := c.Enter('{'); more; more = c.More('{') {
		found := string(c.Name()) == key
		if v := c.String(); found {
			value, has = v, true
		}
	}
	return value, has, !c.Failed()
}

// requirement is one requirement of a label selector.
type requirement struct {
	key      string
	operator metav1.LabelSelectorOperator
	values   []string
}

// requirementsOf returns the requirements of a selector, all of which must be met.
func requirementsOf(selector *metav1.LabelSelector) ([]requirement, error) {
	if selector == nil {
		return nil, nil
	}
	if _, err := metav1.LabelSelectorAsSelector(selector); err != nil {
		return nil, err
	}
	all := make([]requirement, 0, len(selector.MatchLabels)+len(selector.MatchExpressions))
	for key, value := range selector.MatchLabels {
		all = append(all, requirement{key: key, operator: metav1.LabelSelectorOpIn, values: []string{value}})
	}
	for _, e := range selector.MatchExpressions {
		all = append(all, requirement{key: e.Key, operator: e.Operator, values: slices.Clone(e.Values)})
	}
	return all, nil
}

// met reports whether a label meets a requirement. has reports whether the object has the label.
func met[T string | []byte](r requirement, value T, has bool) bool {
	listed := slices.ContainsFunc(r.values, func(v string) bool { return v == string(value) })
	switch r.operator {
	case metav1.LabelSelectorOpIn:
		return has && listed
	case metav1.LabelSelectorOpNotIn:
		return !has || !listed
	case metav1.LabelSelectorOpExists:
		return has
	default: // DoesNotExist; there are no others
		return !has
	}
}

// ownersOf holds the owners, as group/Kind, of the objects that a controller of Kubernetes makes and compares.
var ownersOf = map[metav1.GroupResource][]string{
	{Group: "apps", Resource: "replicasets"}:                {"apps/Deployment"},
	{Group: "apps", Resource: "controllerrevisions"}:        {"apps/StatefulSet", "apps/DaemonSet"},
	{Group: "discovery.k8s.io", Resource: "endpointslices"}: {"/Service", "/Endpoints"},
	{Resource: "endpoints"}:                                 {"/Service"},
}

// Leave makes the Matcher leave alone what a controller of Kubernetes, or a kubelet, makes and compares with what it
// wants: a change starts a fight, because the maker observes the drift and reverts it. Every client may write
// ownerReferences, so the sender of the request decides, too. With all, the Matcher leaves alone whatever has a
// controller among its owners. Call Leave before the Matcher is used.
func (m *Matcher) Leave(all bool) { m.leavesMade, m.leavesOwned = true, all }

// leaves reports whether the object of a request must be left alone. It calls readUser before it looks at the user.
func (m *Matcher) leaves(req *admissionv1.AdmissionRequest, readUser func()) bool {
	if m == nil || !m.leavesMade {
		return false
	}
	raw := req.Object.Raw
	if absent(raw) {
		raw = req.OldObject.Raw
	}
	kind := metav1.GroupResource{Group: req.Resource.Group, Resource: req.Resource.Resource}
	c := jsontext.Reader{Text: raw}
	if kind.Resource == "pods" && kind.Group == "" && c.Member("metadata") && c.Member("annotations") && c.Member(corev1.MirrorPodAnnotationKey) {
		if readUser(); strings.HasPrefix(req.UserInfo.Username, kubelets) {
			return true
		}
	}
	owners := ownersOf[kind]
	switch {
	case m.leavesOwned:
		return controllerOf(raw) != ""
	case len(owners) == 0 || !slices.Contains(owners, controllerOf(raw)):
		return false
	}
	readUser()
	return isController(req.UserInfo.Username) || req.Operation == admissionv1.Update &&
		slices.Contains(owners, controllerOf(req.OldObject.Raw)) && sameButReplicas(req.OldObject.Raw, raw)
}

// sameButReplicas reports whether two objects differ in nothing but metadata, status and the number of replicas.
func sameButReplicas(a, b []byte) bool {
	specA, specB := settled.Member(a, "spec"), settled.Member(b, "spec")
	return settled.SameMembers(a, b, "metadata", "status", "spec") && (settled.SameMembers(specA, specB, "replicas") || bytes.Equal(specA, specB))
}

// kubeControllers is the user of all controllers of Kubernetes that have no accounts of their own, and kubelets is how the
// names of kubelets begin.
const kubeControllers, kubelets = "system:kube-controller-manager", "system:node:"

func isController(user string) bool {
	account, own := strings.CutPrefix(user, "system:serviceaccount:kube-system:")
	return user == kubeControllers || own && strings.HasSuffix(account, "-controller")
}

// controllerOf returns the controller among an object's ownerReferences as group/Kind, or "" for none.
func controllerOf(raw []byte) (owner string) {
	c := jsontext.Reader{Text: raw}
	if !c.Member("metadata") || !c.Member("ownerReferences") {
		return ""
	}
	for more := c.Enter('['); more; more = c.More('[') {
		var version, kind, controller string
		for more := c.Enter('{'); more; more = c.More('{') {
			switch string(c.Name()) {
			case "apiVersion":
				version = string(c.String())
			case "kind":
				kind = string(c.String())
			case "controller":
				controller = string(c.Value())
			default:
				c.Value()
			}
		}
		if controller == "true" {
			group, _, _ := strings.Cut(version, "/")
			if group == version {
				group = "" // as in v1
			}
			owner = group + "/" + kind
		}
	}
	if c.Failed() {
		return "" // the step's own decoder returns the error
	}
	return owner
}
