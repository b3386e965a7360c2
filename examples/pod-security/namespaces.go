package main

// This file checks the labels of namespaces, and the pods of a namespace whose standard becomes stricter.

import (
	"context"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/pod-security-admission/api"
	"k8s.io/pod-security-admission/policy"

	"code.cloudfoundry.org/eirinix"
)

// The bounds of a look at existing pods, which are those of Kubernetes' own plugin.
const (
	maxPods    = 3000
	podsWithin = time.Second
)

func (p *podSecurity) createNamespace(_ context.Context, c *eirinix.Call, ns *corev1.Namespace) error {
	levels, errs := api.PolicyToEvaluate(ns.Labels, p.defaults)
	if len(errs) == 0 {
		p.warnExempt(c, ns, levels)
	}
	return eirinix.Invalid(errs)
}

// updateNamespace accepts wrong labels that were there before. It warns of existing pods that a stricter standard would
// refuse.
func (p *podSecurity) updateNamespace(ctx context.Context, c *eirinix.Call, old, ns *corev1.Namespace) error {
	levels, errs := api.PolicyToEvaluate(ns.Labels, p.defaults)
	before, oldErrs := api.PolicyToEvaluate(old.Labels, p.defaults)
	if len(errs) > 0 && !reflect.DeepEqual(errs, oldErrs) {
		return eirinix.Invalid(errs)
	}
	to, from := levels.Enforce, before.Enforce
	if to == from || to.Level == api.LevelPrivileged || to.Version == from.Version && api.CompareLevels(to.Level, from.Level) < 1 {
		return nil
	}
	if p.warnExempt(c, ns, levels) {
		return nil
	}
	for _, warning := range p.existing(ctx, ns.Name, to) {
		c.Warn("%s", warning)
	}
	return nil
}

// warnExempt reports whether a namespace is exempt, and warns if its labels have no effect for that reason.
func (p *podSecurity) warnExempt(c *eirinix.Call, ns *corev1.Namespace, levels api.Policy) bool {
	if !slices.Contains(p.exempt.namespaces, ns.Name) {
		return false
	}
	if !levels.FullyPrivileged() && !levels.Equivalent(&p.defaults) {
		c.Warn("namespace %q is exempt from Pod Security, and the policy (%s) will be ignored", ns.Name, set(ns.Labels, levels))
	}
	return true
}

// set describes the standards that labels set, unless they are privileged.
func set(labels map[string]string, levels api.Policy) string {
	var all []string
	for _, l := range []struct {
		mode, label, version string
		level                api.LevelVersion
	}{
		{"enforce", api.EnforceLevelLabel, api.EnforceVersionLabel, levels.Enforce},
		{"audit", api.AuditLevelLabel, api.AuditVersionLabel, levels.Audit},
		{"warn", api.WarnLevelLabel, api.WarnVersionLabel, levels.Warn},
	} {
		if labels[l.label]+labels[l.version] != "" && l.level.Level != api.LevelPrivileged {
			all = append(all, l.mode+"="+l.level.String())
		}
	}
	return strings.Join(all, ", ")
}

// existing returns the warnings about the pods of a namespace, those of different controllers first.
func (p *podSecurity) existing(ctx context.Context, namespace string, level api.LevelVersion) (warnings []string) {
	within := podsWithin
	if end, ok := ctx.Deadline(); ok {
		within = min(within, time.Until(end)/2)
	}
	ctx, cancel := context.WithTimeout(ctx, within)
	defer cancel()
	pods, err := p.cluster.pods(ctx, namespace)
	if err != nil {
		return []string{"failed to list pods while checking new PodSecurity enforce level"}
	}
	pods = p.inOrder(pods)
	checked := 0
	violating := map[string][]string{} // names of pods, by reason
	for ; checked < min(len(pods), maxPods) && ctx.Err() == nil; checked++ {
		pod := &pods[checked]
		if r := policy.AggregateCheckResults(p.checks.EvaluatePod(level, &pod.ObjectMeta, &pod.Spec)); !r.Allowed {
			violating[r.ForbiddenReason()] = append(violating[r.ForbiddenReason()], pod.Name)
		}
	}
	if checked < len(pods) {
		warnings = append(warnings, fmt.Sprintf("new PodSecurity enforce level only checked against the first %d of %d existing pods", checked, len(pods)))
	}
	if len(violating) == 0 {
		return warnings
	}
	warnings = append(warnings, fmt.Sprintf("existing pods in namespace %q violate the new PodSecurity enforce level %q", namespace, level))
	var details []string
	for reason, names := range violating {
		details = append(details, named(names)+": "+reason)
	}
	slices.Sort(details)
	return append(warnings, details...)
}

// inOrder returns the pods that are not exempt, with one pod of each controller before all others of it.
func (p *podSecurity) inOrder(pods []corev1.Pod) []corev1.Pod {
	var first, later []corev1.Pod
	seen := map[types.UID]bool{}
	for i := range pods {
		if class := pods[i].Spec.RuntimeClassName; class != nil && slices.Contains(p.exempt.runtimeClasses, *class) {
			continue
		}
		owner := metav1.GetControllerOfNoCopy(&pods[i])
		if owner == nil || !seen[owner.UID] {
			first = append(first, pods[i])
		} else {
			later = append(later, pods[i])
		}
		if owner != nil {
			seen[owner.UID] = true
		}
	}
	return append(first, later...)
}

// named returns the first of some names, and how many others there are.
func named(names []string) string {
	first := slices.Min(names)
	switch others := len(names) - 1; others {
	case 0:
		return first
	case 1:
		return first + " (and 1 other pod)"
	default:
		return fmt.Sprintf("%s (and %d other pods)", first, others)
	}
}
