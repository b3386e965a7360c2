package apiserver

import (
	"maps"

	admissionv1 "k8s.io/api/admission/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apimachinery/pkg/util/uuid"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
)

// This file makes the object that validating webhooks see, which is the one that is stored. An update is completed
// from the object that it replaces. That happens after the mutating webhooks, which see the update as it was sent.

// stored returns the object with the metadata that it gets when it is stored. An update also gets everything that it
// keeps. The uid of a TokenRequest is random, because that of its ServiceAccount is not known here.
func (a *admissionRun) stored() Document {
	if a.current.Absent() {
		return a.current
	}
	switch keep, known := updates[a.Subresource]; {
	case a.Operation == admissionv1.Create && (a.Subresource == "" || a.Subresource == "token"):
		return a.current.With(func(u *unstructured.Unstructured) {
			if u.GetName() == "" && u.GetGenerateName() != "" {
				u.SetName(u.GetGenerateName() + generatedSuffix)
			}
			u.SetUID(uuid.NewUUID())
			u.SetCreationTimestamp(metav1.Now())
		})
	case a.Operation == admissionv1.Update && known:
		before := a.oldObject.Unstructured()
		return a.current.With(func(u *unstructured.Unstructured) {
			keep(u, before)
			keepMetadata(u, before)
		})
	}
	return a.current
}

// updates maps subresources to functions that restore the parts of an object that such an update cannot change. Other
// subresources have objects of other kinds, or strategies of their own.
var updates = map[string]func(now, before *unstructured.Unstructured){
	"":                    keepStatus,
	"status":              keepAllButStatus,
	"ephemeralcontainers": keepAllButEphemeralContainers,
}

// keepStatus keeps the earlier status if the update has none. Built-in kinds always keep it, because their status is
// a subresource.
func keepStatus(now, before *unstructured.Unstructured) {
	_, stated := now.Object["status"]
	status, had := before.Object["status"]
	if had && (!stated || builtIn(before)) {
		now.Object["status"] = status
	}
}

// keepAllButStatus keeps the spec, and the metadata that the kind's strategy keeps. Some strategies also complete the
// status. Of that, this function sets only the qosClass of a Pod.
func keepAllButStatus(now, before *unstructured.Unstructured) {
	kept := specified(before)
	for _, field := range []string{"apiVersion", "kind", "metadata", "status"} {
		if value, ok := now.Object[field]; ok {
			kept[field] = value
		}
	}
	now.Object = kept
	switch kind := before.GroupVersionKind().GroupKind(); {
	case !builtIn(before) || keepMetadataOnStatus.Has(kind):
		takeMetadata(now, before, ownMetadata...)
	case kind == schema.GroupKind{Kind: "Pod"}:
		take(now, before, "metadata", "ownerReferences")
		if class, _, _ := unstructured.NestedString(now.Object, "status", "qosClass"); class == "" {
			take(now, before, "status", "qosClass")
		}
	case kind == schema.GroupKind{Group: "apps", Kind: "Deployment"}:
		take(now, before, "metadata", "labels")
	}
}

// keepAllButEphemeralContainers keeps everything of a Pod but spec.ephemeralContainers.
func keepAllButEphemeralContainers(now, before *unstructured.Unstructured) {
	sent := now.DeepCopy()
	take(now, before, "spec")
	take(now, before, "status")
	takeMetadata(now, before, ownMetadata...)
	take(now, sent, "spec", "ephemeralContainers")
}

// ownMetadata lists the fields of metadata that belong to the user.
var ownMetadata = []string{"labels", "annotations", "finalizers", "ownerReferences"}

// keepMetadataOnStatus lists the built-in kinds whose metadata a status update does not change, as in Kubernetes
// 1.36. For all other built-in kinds it does, with the exceptions in keepAllButStatus.
var keepMetadataOnStatus = sets.New(
	schema.GroupKind{Group: "admissionregistration.k8s.io", Kind: "ValidatingAdmissionPolicy"},
	schema.GroupKind{Group: "certificates.k8s.io", Kind: "PodCertificateRequest"},
	schema.GroupKind{Group: "flowcontrol.apiserver.k8s.io", Kind: "FlowSchema"},
	schema.GroupKind{Group: "flowcontrol.apiserver.k8s.io", Kind: "PriorityLevelConfiguration"},
	schema.GroupKind{Group: "internal.apiserver.k8s.io", Kind: "StorageVersion"},
	schema.GroupKind{Group: "networking.k8s.io", Kind: "ServiceCIDR"},
	schema.GroupKind{Group: "resource.k8s.io", Kind: "DeviceTaintRule"},
	schema.GroupKind{Group: "resource.k8s.io", Kind: "ResourceClaim"},
	schema.GroupKind{Group: "resource.k8s.io", Kind: "ResourcePoolStatusRequest"},
	schema.GroupKind{Group: "scheduling.k8s.io", Kind: "PodGroup"},
	schema.GroupKind{Group: "storage.k8s.io", Kind: "VolumeAttachment"},
	schema.GroupKind{Group: "storagemigration.k8s.io", Kind: "StorageVersionMigration"},
)

func builtIn(u *unstructured.Unstructured) bool {
	return clientgoscheme.Scheme.Recognizes(u.GroupVersionKind())
}

// take copies the field at a path from another object, or removes it if that object has none.
func take(now, from *unstructured.Unstructured, path ...string) {
	unstructured.RemoveNestedField(now.Object, path...)
	if value, ok, err := unstructured.NestedFieldCopy(from.Object, path...); ok && err == nil {
		_ = unstructured.SetNestedField(now.Object, value, path...) // its parent was decoded as a map
	}
}

func takeMetadata(now, from *unstructured.Unstructured, fields ...string) {
	for _, field := range fields {
		take(now, from, "metadata", field)
	}
}

// keepMetadata keeps the metadata that the API server controls. A change outside of metadata and status increments
// the generation.
func keepMetadata(now, before *unstructured.Unstructured) {
	takeMetadata(now, before, "uid", "creationTimestamp", "deletionTimestamp", "deletionGracePeriodSeconds", "generation")
	if before.GetGeneration() > 0 && !equality.Semantic.DeepEqual(specified(now), specified(before)) {
		now.SetGeneration(before.GetGeneration() + 1)
	}
}

// specified returns an object without metadata and status.
func specified(u *unstructured.Unstructured) map[string]any {
	all := maps.Clone(u.Object)
	delete(all, "metadata")
	delete(all, "status")
	return all
}
