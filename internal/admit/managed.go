package admit

import (
	admissionv1 "k8s.io/api/admission/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	kjson "sigs.k8s.io/json"
)

// LeaveManaged makes the Matcher pass over objects that are kept as they are by somebody else: those that a controller
// owns, other than pods, and the mirrors of static pods. Whoever changes them only starts a fight: the controller sees
// an object that is not what it made, and makes it again. Call it before the Matcher is used.
func (m *Matcher) LeaveManaged() { m.leaveManaged = true }

// isManaged tells whether an object, as it arrived, is to be left alone.
func isManaged(req *admissionv1.AdmissionRequest) bool {
	raw := req.Object.Raw
	if absent(raw) {
		raw = req.OldObject.Raw
	}
	isPod := req.Resource.Resource == "pods" && req.Resource.Group == ""
	c := cursor{text: raw}
	if !c.member("metadata") || c.null() {
		return c.odd && decodedIsManaged(raw, isPod)
	}
	found := false
	for more := c.enter('{'); more && !found; more = c.more('{') {
		switch name := string(c.name()); {
		case name == "annotations" && isPod:
			found = c.hasMember(corev1.MirrorPodAnnotationKey)
		case name == "ownerReferences" && !isPod:
			found = c.hasController()
		default:
			c.value()
		}
	}
	if c.odd {
		return decodedIsManaged(raw, isPod)
	}
	return found
}

// hasMember reads an object, or null, and tells whether it has a member of the name.
func (c *cursor) hasMember(name string) (has bool) {
	if c.null() {
		return false
	}
	for more := c.enter('{'); more; more = c.more('{') {
		has = string(c.name()) == name || has
		c.value()
	}
	return has
}

// hasController reads a list of ownerReferences and tells whether one of them is the controller.
func (c *cursor) hasController() (has bool) {
	if c.null() {
		return false
	}
	for more := c.enter('['); more; more = c.more('[') {
		for more := c.enter('{'); more; more = c.more('{') {
			isController := string(c.name()) == "controller"
			value := c.value()
			has = has || isController && string(value) == "true"
		}
	}
	return has
}

// decodedIsManaged is for text that is not plain.
func decodedIsManaged(raw []byte, isPod bool) bool {
	var object struct {
		Metadata struct {
			Annotations     map[string]string       `json:"annotations"`
			OwnerReferences []metav1.OwnerReference `json:"ownerReferences"`
		} `json:"metadata"`
	}
	if err := kjson.UnmarshalCaseSensitivePreserveInts(raw, &object); err != nil {
		return false // the step's own decoder says what is wrong
	}
	if isPod {
		_, mirror := object.Metadata.Annotations[corev1.MirrorPodAnnotationKey]
		return mirror
	}
	for _, owner := range object.Metadata.OwnerReferences {
		if owner.Controller != nil && *owner.Controller {
			return true
		}
	}
	return false
}
