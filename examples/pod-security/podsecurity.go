package main

// This file decides about pods, and about the kinds that hold a template of pods, as Kubernetes' own admission plugin
// PodSecurity does. The checks themselves are those of Kubernetes.

import (
	"context"
	"fmt"
	"slices"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/pod-security-admission/api"
	"k8s.io/pod-security-admission/policy"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"code.cloudfoundry.org/eirinix"
)

// podSecurity applies the Pod Security Standards that the labels of a namespace name.
type podSecurity struct {
	checks   policy.Evaluator
	defaults api.Policy // for namespaces without labels
	exempt   exemptions
	cluster  cluster
}

// cluster is what a decision reads beside the object.
type cluster interface {
	namespaceLabels(ctx context.Context, name string) (map[string]string, error)
	pods(ctx context.Context, namespace string) ([]corev1.Pod, error)
}

// exemptions name users, namespaces and runtime classes to which no standard applies.
type exemptions struct{ users, namespaces, runtimeClasses []string }

// steps returns a Validation for each kind. Only pods and namespaces are refused. For the others a refusal would come
// too late or too early: their pods are checked when they are created.
func (p *podSecurity) steps() []any {
	return []any{
		eirinix.Validation[*corev1.Pod]{
			Settings: eirinix.Settings{Rules: []admissionregistrationv1.RuleWithOperations{{
				Operations: []admissionregistrationv1.OperationType{admissionregistrationv1.Create, admissionregistrationv1.Update},
				Rule: admissionregistrationv1.Rule{
					APIGroups: []string{""}, APIVersions: []string{"v1"}, Resources: []string{"pods", "pods/ephemeralcontainers"},
				},
			}}},
			Create: func(ctx context.Context, c *eirinix.Call, pod *corev1.Pod) error {
				return p.decide(ctx, c, &pod.ObjectMeta, &pod.Spec, true)
			},
			Update: func(ctx context.Context, c *eirinix.Call, old, pod *corev1.Pod) error {
				if known := images(old); !slices.ContainsFunc(images(pod), func(image string) bool { return !slices.Contains(known, image) }) {
					return nil // no other field that can change is one of the standards'
				}
				return p.decide(ctx, c, &pod.ObjectMeta, &pod.Spec, true)
			},
		},
		eirinix.Validation[*corev1.Namespace]{Create: p.createNamespace, Update: p.updateNamespace},
		template(p, func(o *corev1.PodTemplate) *corev1.PodTemplateSpec { return &o.Template }),
		template(p, func(o *corev1.ReplicationController) *corev1.PodTemplateSpec { return o.Spec.Template }),
		template(p, func(o *appsv1.ReplicaSet) *corev1.PodTemplateSpec { return &o.Spec.Template }),
		template(p, func(o *appsv1.Deployment) *corev1.PodTemplateSpec { return &o.Spec.Template }),
		template(p, func(o *appsv1.StatefulSet) *corev1.PodTemplateSpec { return &o.Spec.Template }),
		template(p, func(o *appsv1.DaemonSet) *corev1.PodTemplateSpec { return &o.Spec.Template }),
		template(p, func(o *batchv1.Job) *corev1.PodTemplateSpec { return &o.Spec.Template }),
		template(p, func(o *batchv1.CronJob) *corev1.PodTemplateSpec { return &o.Spec.JobTemplate.Spec.Template }),
	}
}

// template returns the step for a kind that makes pods. It only warns, so a failure of it stops no object.
func template[T client.Object](p *podSecurity, of func(T) *corev1.PodTemplateSpec) any {
	check := func(ctx context.Context, c *eirinix.Call, obj T) error {
		t := of(obj)
		if t == nil {
			return nil
		}
		return p.decide(ctx, c, &t.ObjectMeta, &t.Spec, false)
	}
	return eirinix.Validation[T]{
		Settings: eirinix.Settings{FailurePolicy: admissionregistrationv1.Ignore},
		Create:   check,
		Update:   func(ctx context.Context, c *eirinix.Call, _, obj T) error { return check(ctx, c, obj) },
	}
}

// images returns the containers of a pod with their images.
func images(pod *corev1.Pod) (all []string) {
	for _, c := range slices.Concat(pod.Spec.InitContainers, pod.Spec.Containers) {
		all = append(all, c.Name+" "+c.Image)
	}
	for _, c := range pod.Spec.EphemeralContainers {
		all = append(all, c.Name+" "+c.Image)
	}
	return all
}

// decide checks a pod against the standards of its namespace: those that it must meet, those whose violation the audit
// log gets, and those whose violation the user sees.
func (p *podSecurity) decide(ctx context.Context, c *eirinix.Call, meta *metav1.ObjectMeta, spec *corev1.PodSpec, enforce bool) error {
	if reason := p.exempt.reason(c, spec); reason != "" {
		c.Annotate(api.ExemptionReasonAnnotationKey, reason)
		return nil
	}
	labels, err := p.cluster.namespaceLabels(ctx, c.Request.Namespace)
	if err != nil {
		c.Annotate("error", fmt.Sprintf("failed to lookup namespace %q: %v", c.Request.Namespace, err))
		return fmt.Errorf("failed to lookup namespace %q: %w", c.Request.Namespace, err)
	}
	levels, errs := api.PolicyToEvaluate(labels, p.defaults)
	if len(errs) > 0 {
		c.Annotate("error", fmt.Sprintf("Failed to parse policy: %v", errs.ToAggregate()))
	}
	violation := func(level api.LevelVersion) string {
		if r := policy.AggregateCheckResults(p.checks.EvaluatePod(level, meta, spec)); !r.Allowed {
			return fmt.Sprintf("violate PodSecurity %q: %s", level, r.ForbiddenDetail())
		}
		return ""
	}
	var refusal error
	if enforce {
		c.Annotate(api.EnforcedPolicyAnnotationKey, levels.Enforce.String())
		if v := violation(levels.Enforce); v != "" {
			resource := schema.GroupResource{Group: c.Request.Resource.Group, Resource: c.Request.Resource.Resource}
			refusal = apierrors.NewForbidden(resource, c.Request.Name, fmt.Errorf("violates%s", v[len("violate"):]))
		}
	}
	if v := violation(levels.Audit); v != "" {
		c.Annotate(api.AuditViolationsAnnotationKey, "would "+v)
	}
	if v := violation(levels.Warn); v != "" && refusal == nil {
		c.Warn("would %s", v)
	}
	return refusal
}

// reason returns the reason why a request is exempt, or nothing.
func (e exemptions) reason(c *eirinix.Call, spec *corev1.PodSpec) string {
	switch {
	case slices.Contains(e.namespaces, c.Request.Namespace):
		return "namespace"
	case slices.Contains(e.users, c.Request.UserInfo.Username):
		return "user"
	case spec.RuntimeClassName != nil && slices.Contains(e.runtimeClasses, *spec.RuntimeClassName):
		return "runtimeClass"
	}
	return ""
}
