package apiserver

import (
	admissionv1 "k8s.io/api/admission/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// podUpdates is what the API server says of a Pod's fields (ValidatePodUpdate of Kubernetes 1.36).
const podUpdates = "pod updates may not change fields other than `spec.containers[*].image`, `spec.initContainers[*].image`, " +
	"`spec.activeDeadlineSeconds`, `spec.tolerations` (only additions to existing tolerations), " +
	"`spec.terminationGracePeriodSeconds` (allow it to be set to 1 if it was previously negative)"

// checkImmutable refuses an update that the registry would: what a Pod or a Job is made of does not change any more. That is
// decided after the mutating webhooks, so that one of them can be what breaks a user's edit.
func (a *admissionRun) checkImmutable() error {
	if a.Operation != admissionv1.Update || a.Subresource != "" {
		return nil
	}
	now, err := a.stored().Typed()
	if err != nil {
		return err
	}
	before, err := a.oldObject.Typed()
	if err != nil {
		return err
	}
	var faults field.ErrorList
	switch now := now.(type) {
	case *corev1.Pod:
		if before, ok := before.(*corev1.Pod); ok {
			faults = immutablePod(now, before)
		}
	case *batchv1.Job:
		if before, ok := before.(*batchv1.Job); ok {
			faults = immutableJob(&now.Spec, &before.Spec)
		}
	}
	if len(faults) == 0 {
		return nil
	}
	return apierrors.NewInvalid(a.current.Kind.GroupKind(), a.Name, faults)
}

// immutablePod compares what an update may not change.
func immutablePod(now, before *corev1.Pod) field.ErrorList {
	spec, path := now.Spec.DeepCopy(), field.NewPath("spec")
	for _, list := range []struct {
		name        string
		now, before []corev1.Container
	}{{"containers", spec.Containers, before.Spec.Containers}, {"initContainers", spec.InitContainers, before.Spec.InitContainers}} {
		if len(list.now) != len(list.before) {
			return field.ErrorList{field.Forbidden(path.Child(list.name), "pod updates may not add or remove containers")}
		}
		for i := range list.now {
			list.now[i].Image = list.before[i].Image
		}
	}
	spec.ActiveDeadlineSeconds = before.Spec.ActiveDeadlineSeconds
	if added(spec.Tolerations, before.Spec.Tolerations) {
		spec.Tolerations = before.Spec.Tolerations
	}
	if added(before.Spec.SchedulingGates, spec.SchedulingGates) {
		spec.SchedulingGates = before.Spec.SchedulingGates
	}
	if grace := before.Spec.TerminationGracePeriodSeconds; grace != nil && *grace < 0 && spec.TerminationGracePeriodSeconds != nil && *spec.TerminationGracePeriodSeconds == 1 {
		spec.TerminationGracePeriodSeconds = grace
	}
	if len(before.Spec.SchedulingGates) > 0 { // a pod that is not scheduled yet may be narrowed
		spec.NodeSelector, spec.Affinity = before.Spec.NodeSelector, before.Spec.Affinity
	}
	if equality.Semantic.DeepEqual(spec, &before.Spec) {
		return nil
	}
	return field.ErrorList{field.Forbidden(path, podUpdates)}
}

// immutableJob compares what an update may not change. A suspended Job may still be told where its pods run, and with what.
func immutableJob(now, before *batchv1.JobSpec) (faults field.ErrorList) {
	path := field.NewPath("spec")
	fixed := func(name string, now, before any) {
		if !equality.Semantic.DeepEqual(now, before) {
			faults = append(faults, field.Invalid(path.Child(name), now, "field is immutable"))
		}
	}
	if mode := now.CompletionMode; mode == nil || *mode != batchv1.IndexedCompletion {
		fixed("completions", now.Completions, before.Completions)
	}
	fixed("selector", now.Selector, before.Selector)
	template := now.Template.DeepCopy()
	if before.Suspend != nil && *before.Suspend {
		old := before.Template
		template.Labels, template.Annotations = old.Labels, old.Annotations
		template.Spec.NodeSelector, template.Spec.Tolerations, template.Spec.SchedulingGates, template.Spec.Affinity = old.Spec.NodeSelector, old.Spec.Tolerations, old.Spec.SchedulingGates, old.Spec.Affinity
		for i := range min(len(template.Spec.Containers), len(old.Spec.Containers)) {
			template.Spec.Containers[i].Resources = old.Spec.Containers[i].Resources
		}
	}
	fixed("template", *template, before.Template)
	fixed("completionMode", now.CompletionMode, before.CompletionMode)
	fixed("podFailurePolicy", now.PodFailurePolicy, before.PodFailurePolicy)
	fixed("backoffLimitPerIndex", now.BackoffLimitPerIndex, before.BackoffLimitPerIndex)
	fixed("managedBy", now.ManagedBy, before.ManagedBy)
	fixed("successPolicy", now.SuccessPolicy, before.SuccessPolicy)
	return faults
}

// added reports whether all of the second list are in the first.
func added[T any](now, before []T) bool {
	for _, b := range before {
		found := false
		for _, n := range now {
			found = found || equality.Semantic.DeepEqual(n, b)
		}
		if !found {
			return false
		}
	}
	return true
}
