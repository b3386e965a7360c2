package apiserver

// This file does the part of the registry between mutating and validating webhooks. It completes an update from the
// object that it replaces. It refuses updates of immutable fields of Pods and Jobs, as Kubernetes 1.37 does. The messages
// are the API server's, but without the diff that it appends.

import (
	"cmp"
	"fmt"
	"maps"
	"slices"

	admissionv1 "k8s.io/api/admission/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apimachinery/pkg/util/uuid"
	"k8s.io/apimachinery/pkg/util/validation/field"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
)

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
// 1.37. For all other built-in kinds it does, with the exceptions in keepAllButStatus.
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

// podUpdates is the message that lists the fields of a Pod's spec that an update may change.
const podUpdates = "pod updates may not change fields other than `spec.containers[*].image`,`spec.initContainers[*].image`," +
	"`spec.activeDeadlineSeconds`,`spec.tolerations` (only additions to existing tolerations)," +
	"`spec.terminationGracePeriodSeconds` (allow it to be set to 1 if it was previously negative)"

// checkImmutable refuses an update that the registry would refuse, because most of the spec of a Pod or a Job is
// immutable. It runs after the mutating webhooks, so a webhook's patch can make a user's update fail.
func (a *admissionRun) checkImmutable() error {
	if a.Operation != admissionv1.Update || a.Subresource != "" {
		return nil
	}
	now, before, err := bothTyped(a.stored(), a.oldObject)
	if err != nil {
		return err
	}
	var faults field.ErrorList
	switch now := now.(type) {
	case *corev1.Pod:
		if before, ok := before.(*corev1.Pod); ok {
			faults = immutablePod(&now.Spec, &before.Spec)
		}
	case *batchv1.Job:
		if before, ok := before.(*batchv1.Job); ok {
			faults = immutableJob(&now.Spec, before)
		}
	}
	if len(faults) == 0 {
		return nil
	}
	return apierrors.NewInvalid(a.current.Kind.GroupKind(), a.Name, faults)
}

// immutablePod compares two specs of a Pod. A field with its own rule is checked by that rule, and then treated as
// unchanged.
func immutablePod(now, before *corev1.PodSpec) (faults field.ErrorList) {
	path := field.NewPath("spec")
	spec := now.DeepCopy()
	for _, list := range []struct {
		name        string
		now, before []corev1.Container
	}{{"containers", spec.Containers, before.Containers}, {"initContainers", spec.InitContainers, before.InitContainers}} {
		if len(list.now) != len(list.before) {
			return append(faults, field.Forbidden(path.Child(list.name), "pod updates may not add or remove containers"))
		}
		for i := range list.now {
			list.now[i].Image = list.before[i].Image
		}
	}
	at, deadline, earlier := path.Child("activeDeadlineSeconds"), spec.ActiveDeadlineSeconds, before.ActiveDeadlineSeconds
	switch {
	case deadline == nil && earlier != nil:
		faults = append(faults, field.Invalid(at, deadline, "must not update from a positive integer to nil value"))
	case deadline != nil && earlier != nil && *deadline > *earlier: // the API server stops here
		return append(faults, field.Invalid(at, *deadline, "must be less than or equal to previous value"))
	}
	if !tolerated(spec.Tolerations, before.Tolerations) {
		faults = append(faults, field.Forbidden(path.Child("tolerations"), "existing toleration can not be modified except its tolerationSeconds"))
	}
	for i, gate := range spec.SchedulingGates {
		if !slices.Contains(before.SchedulingGates, gate) {
			faults = append(faults, field.Forbidden(path.Child("schedulingGates").Index(i).Child("name"), fmt.Sprintf("only deletion is allowed, but found new scheduling gate '%s'", gate.Name)))
		}
	}
	if len(before.SchedulingGates) > 0 { // its nodes may be narrowed; wider ones are not refused here
		spec.NodeSelector, spec.Affinity = before.NodeSelector, withNodesOf(spec.Affinity, before.Affinity)
	}
	spec.ActiveDeadlineSeconds, spec.Tolerations, spec.SchedulingGates = earlier, before.Tolerations, before.SchedulingGates
	if grace := before.TerminationGracePeriodSeconds; grace != nil && *grace < 0 && spec.TerminationGracePeriodSeconds != nil && *spec.TerminationGracePeriodSeconds == 1 {
		spec.TerminationGracePeriodSeconds = grace
	}
	if !equality.Semantic.DeepEqual(spec, before) {
		faults = append(faults, field.Forbidden(path, podUpdates))
	}
	return faults
}

// tolerated reports whether all earlier tolerations are among the later ones, whatever their tolerationSeconds.
func tolerated(now, before []corev1.Toleration) bool {
	untimed := func(t corev1.Toleration) corev1.Toleration {
		t.TolerationSeconds = nil
		return t
	}
	for _, b := range before {
		if !slices.ContainsFunc(now, func(n corev1.Toleration) bool { return untimed(n) == untimed(b) }) {
			return false
		}
	}
	return true
}

// withNodesOf returns an affinity with the node affinity of another. It returns nil if the result is empty and the
// other is nil.
func withNodesOf(a, other *corev1.Affinity) *corev1.Affinity {
	together := *cmp.Or(a, &corev1.Affinity{})
	together.NodeAffinity = cmp.Or(other, &corev1.Affinity{}).NodeAffinity
	if together == (corev1.Affinity{}) && other == nil {
		return nil
	}
	return &together
}

// immutableJob compares the spec of a Job with the earlier one. An update of a suspended Job without running pods may
// still change the node choice and the resources of its pods.
func immutableJob(now *batchv1.JobSpec, was *batchv1.Job) (faults field.ErrorList) {
	path, before := field.NewPath("spec"), &was.Spec
	fixed := func(name string, now, before any) {
		if !equality.Semantic.DeepEqual(now, before) {
			faults = append(faults, field.Invalid(path.Child(name), now, "field is immutable"))
		}
	}
	if mode := now.CompletionMode; mode == nil || *mode != batchv1.IndexedCompletion {
		fixed("completions", now.Completions, before.Completions)
	} else if c, p := now.Completions, now.Parallelism; c != nil && p != nil && *c != *p && !equality.Semantic.DeepEqual(c, before.Completions) {
		faults = append(faults, field.Invalid(path.Child("completions"), c, "can only be modified in tandem with spec.parallelism"))
	}
	fixed("selector", now.Selector, before.Selector)
	template, old := now.Template, before.Template.DeepCopy()
	if atRest(was) {
		schedule(old, &template)
		resize(old.Spec.Containers, template.Spec.Containers)
		resize(old.Spec.InitContainers, template.Spec.InitContainers)
		fixed("template.spec", template.Spec, old.Spec)
	} else {
		fixed("template", template, *old)
	}
	fixed("completionMode", now.CompletionMode, before.CompletionMode)
	fixed("podFailurePolicy", now.PodFailurePolicy, before.PodFailurePolicy)
	fixed("backoffLimitPerIndex", now.BackoffLimitPerIndex, before.BackoffLimitPerIndex)
	fixed("managedBy", now.ManagedBy, before.ManagedBy)
	fixed("successPolicy", now.SuccessPolicy, before.SuccessPolicy)
	return faults
}

// atRest reports whether a Job is suspended, and has no pods from its template.
func atRest(job *batchv1.Job) bool {
	if job.Spec.Suspend == nil || !*job.Spec.Suspend || job.Status.Active > 0 {
		return false
	}
	return job.Status.StartTime == nil || slices.ContainsFunc(job.Status.Conditions, func(c batchv1.JobCondition) bool {
		return c.Type == batchv1.JobSuspended && c.Status == corev1.ConditionTrue
	})
}

// schedule copies the fields that choose the nodes of pods, together with labels and annotations.
func schedule(into, from *corev1.PodTemplateSpec) {
	into.Labels, into.Annotations = from.Labels, from.Annotations
	into.Spec.NodeSelector, into.Spec.Tolerations, into.Spec.SchedulingGates = from.Spec.NodeSelector, from.Spec.Tolerations, from.Spec.SchedulingGates
	into.Spec.Affinity = withNodesOf(into.Spec.Affinity, from.Spec.Affinity)
}

// resize copies the resources of the containers whose name has not changed, if their number has not changed either.
func resize(into, from []corev1.Container) {
	for i := range min(len(into), len(from)) {
		if into[i].Name == from[i].Name && len(into) == len(from) {
			into[i].Resources = from[i].Resources
		}
	}
}
