package world

// This file is what each write of a configuration keeps: its owner, what other clients have added to an entry, and the hashes of
// the CAs that it trusts.

import (
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"code.cloudfoundry.org/eirinix/internal/ca"
	"code.cloudfoundry.org/eirinix/internal/webhookconf"
)

// invented is a field of an entry that this library does not know, as a newer API has one.
const invented = "invented"

// invents has another client add a field to an entry. It reports whether there is one.
func invents(object *unstructured.Unstructured) bool {
	hooks, _, _ := unstructured.NestedSlice(object.Object, "webhooks")
	if len(hooks) == 0 {
		return false
	}
	hooks[len(hooks)-1].(map[string]any)[invented] = mark
	return unstructured.SetNestedSlice(object.Object, hooks, "webhooks") == nil
}

// keeps looks at the parts that a change of a configuration keeps. The caller holds mu.
func (w *World) keeps(kind string, was, is *unstructured.Unstructured) {
	if was == nil || is == nil || kind == definitionKind || was.GetUID() != is.GetUID() || w.excused(spoiled, time.Now()) {
		return // a backup brings back an old state
	}
	owned := func(o *unstructured.Unstructured) bool {
		current := w.find("Namespace", "", namespace)
		for _, owner := range o.GetOwnerReferences() {
			if current == nil || owner.UID == current.GetUID() {
				return true
			}
		}
		return false
	}
	if owned(was) && !owned(is) {
		w.breaks("the %s was owned by the namespace, and is not any more", kind)
	}
	if w.watch.invented[kind] != is.GetUID() {
		return
	}
	before, after := inventedIn(was), inventedIn(is)
	for _, h := range webhooksOf(is) {
		if slices.Contains(before, h.Name) && !slices.Contains(after, h.Name) {
			w.breaks("the entry %s of the %s lacks the field that another client has added", h.Name, kind)
		}
	}
}

// inventedIn returns the names of the entries with a field that another client has added.
func inventedIn(object *unstructured.Unstructured) (names []string) {
	hooks, _ := object.Object["webhooks"].([]any)
	for _, h := range hooks {
		if h, ok := h.(map[string]any); ok && h[invented] != nil {
			name, _ := h["name"].(string)
			names = append(names, name)
		}
	}
	return names
}

// pins sees that a configuration at rest pins the CAs in its caBundles, but for those that others have added. The caller holds mu.
func (w *World) pins(kind string, object *unstructured.Unstructured) {
	pinned := strings.Split(object.GetAnnotations()[webhookconf.PinsAnnotation], ",")
	for _, c := range ca.SplitBundle(bundlesOf(object)) {
		if w.watch.foreign[string(ca.EncodeCertificate(c))].IsZero() && c.Subject.CommonName != overwriter && !slices.Contains(pinned, ca.HashOf(c)) {
			w.breaks("at rest, the %s does not pin the CA %s, which it trusts", kind, c.Subject)
		}
	}
}

// ownedWell looks at the owner of a configuration at rest, and at the deployment that it belongs to. The caller holds mu.
func (w *World) ownedWell(kind string, object *unstructured.Unstructured) {
	for _, owner := range slices.DeleteFunc(object.GetOwnerReferences(), isMarked) {
		if owner.BlockOwnerDeletion != nil && *owner.BlockOwnerDeletion || owner.Kind != "Namespace" || owner.Name != namespace {
			w.breaks("at rest, the owner of the %s is not the namespace alone, or cannot be deleted before it: %v", kind, owner)
		}
	}
	if of := object.GetAnnotations()[webhookconf.OwnerAnnotation]; of != namespace+"/"+theSecret {
		w.breaks("at rest, the %s says that it belongs to %q", kind, of)
	}
}
