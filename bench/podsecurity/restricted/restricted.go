// Package restricted holds the code that the two programs beside it share: Kubernetes' own checks of the Pod Security
// Standard "restricted". The programs' arguments are the path of a kubeconfig, the namespace of the pods, and the port on
// 127.0.0.1.
package restricted

import (
	corev1 "k8s.io/api/core/v1"
	"k8s.io/pod-security-admission/api"
	"k8s.io/pod-security-admission/policy"
)

// Check returns a function that describes how a pod violates the standard. It returns nothing for pods that comply.
func Check() (func(*corev1.Pod) string, error) {
	checks, err := policy.NewEvaluator(policy.DefaultChecks(), nil)
	if err != nil {
		return nil, err
	}
	level := api.LevelVersion{Level: api.LevelRestricted, Version: api.LatestVersion()}
	return func(pod *corev1.Pod) string {
		if r := policy.AggregateCheckResults(checks.EvaluatePod(level, &pod.ObjectMeta, &pod.Spec)); !r.Allowed {
			return r.ForbiddenDetail()
		}
		return ""
	}, nil
}
