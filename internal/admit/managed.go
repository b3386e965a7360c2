package admit

// This file recognizes objects that a controller keeps as they are.

import (
	admissionv1 "k8s.io/api/admission/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	kjson "sigs.k8s.io/json"
)

// LeaveManaged makes the Matcher skip objects that another program keeps as they are. These are objects other than pods
// that a controller owns, and the mirrors of static pods. A change to such an object only starts a fight, because the
// controller observes the drift and reverts it. Call LeaveManaged before the Matcher is used.
func (m *Matcher) LeaveManaged() { m.leaveManaged = true }

// isManaged reports whether an object, as it arrived, must be left alone.
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

// hasMember reads an object or null, and reports whether it has a member with this name.
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

// hasController reads a list of ownerReferences, and reports whether one of them is the controller.
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

// decodedIsManaged is isManaged for text that is not plain.
func decodedIsManaged(raw []byte, isPod bool) bool {
	var object struct {
		Metadata struct {
			Annotations     map[string]string       `json:"annotations"`
			OwnerReferences []metav1.OwnerReference `json:"ownerReferences"`
		} `json:"metadata"`
	}
	if err := kjson.UnmarshalCaseSensitivePreserveInts(raw, &object); err != nil {
		return false // the step's own decoder returns the error
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
