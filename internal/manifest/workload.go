package manifest

// This file builds the workload: the Deployment, its disruption budget, and the Job and CronJob that register.

import (
	"encoding/json"

	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
)

const (
	// registerAgain is the schedule on which the registering half restores edited or deleted entries and continues a
	// rotation.
	registerAgain = "*/10 * * * *"

	registerDeadline = 5 * 60       // seconds; a Job that hangs would prevent the CronJob's next run
	keepJob          = 24 * 60 * 60 // seconds for which the Job's log is available
)

// deployment returns the Deployment, which keeps the full number of replicas available during a rollout.
func (c component) deployment() *appsv1.Deployment {
	template := c.pod()
	if c.program.Replicas > 1 {
		c.spread(&template.Spec)
	}
	return &appsv1.Deployment{
		TypeMeta:   metav1.TypeMeta{APIVersion: appsv1.SchemeGroupVersion.String(), Kind: "Deployment"},
		ObjectMeta: c.meta(c.name, c.program.Namespace),
		Spec: appsv1.DeploymentSpec{
			Replicas: new(c.program.Replicas),
			Selector: c.selector(),
			Strategy: appsv1.DeploymentStrategy{
				Type: appsv1.RollingUpdateDeploymentStrategyType,
				RollingUpdate: &appsv1.RollingUpdateDeployment{
					MaxUnavailable: new(intstr.FromInt32(0)), MaxSurge: new(intstr.FromInt32(1)),
				},
			},
			Template: template,
		},
	}
}

// spread distributes the replicas over nodes and zones, so that the loss of one does not take them all down. If there
// is only one node or zone, the replicas share it.
func (c component) spread(pod *corev1.PodSpec) {
	pod.Affinity = &corev1.Affinity{PodAntiAffinity: &corev1.PodAntiAffinity{
		PreferredDuringSchedulingIgnoredDuringExecution: []corev1.WeightedPodAffinityTerm{{
			Weight: 100, PodAffinityTerm: corev1.PodAffinityTerm{LabelSelector: c.selector(), TopologyKey: corev1.LabelHostname},
		}},
	}}
	pod.TopologySpreadConstraints = []corev1.TopologySpreadConstraint{{
		MaxSkew: 1, TopologyKey: corev1.LabelTopologyZone, WhenUnsatisfiable: corev1.ScheduleAnyway, LabelSelector: c.selector(),
		MatchLabelKeys: []string{appsv1.DefaultDeploymentUniqueLabelKey}, // the pods of each rollout are spread separately
	}}
}

// disruptionBudget returns a PodDisruptionBudget that keeps one replica available while nodes are drained. Pods that
// are not ready do not block a drain.
func (c component) disruptionBudget() *policyv1.PodDisruptionBudget {
	return &policyv1.PodDisruptionBudget{
		TypeMeta:   metav1.TypeMeta{APIVersion: policyv1.SchemeGroupVersion.String(), Kind: "PodDisruptionBudget"},
		ObjectMeta: c.meta(c.name, c.program.Namespace),
		Spec: policyv1.PodDisruptionBudgetSpec{
			MinAvailable: new(intstr.FromInt32(1)), Selector: c.selector(),
			UnhealthyPodEvictionPolicy: new(policyv1.AlwaysAllow),
		},
	}
}

// job returns the Job that registers immediately. Its name changes with its template, because a Job's template is
// immutable.
func (c component) job() *batchv1.Job {
	spec := c.jobSpec()
	spec.TTLSecondsAfterFinished = new(int32(keepJob))
	template, err := json.Marshal(spec.Template)
	if err != nil { // API types can always be marshaled
		template = []byte(c.program.Image)
	}
	return &batchv1.Job{
		TypeMeta:   metav1.TypeMeta{APIVersion: batchv1.SchemeGroupVersion.String(), Kind: "Job"},
		ObjectMeta: c.meta(Shorten(c.program.Name, "-register-"+hash(template), maxJobName), c.program.Namespace),
		Spec:       spec,
	}
}

// cronJob returns the CronJob that registers repeatedly, because the serving half must not register.
func (c component) cronJob() *batchv1.CronJob {
	return &batchv1.CronJob{
		TypeMeta: metav1.TypeMeta{APIVersion: batchv1.SchemeGroupVersion.String(), Kind: "CronJob"},
		ObjectMeta: describe(c.meta(c.name, c.program.Namespace),
			"Registers again: it puts back a webhook configuration that was edited or deleted, and publishes the next CA of a rotation. Without a cause it writes nothing."),
		Spec: batchv1.CronJobSpec{
			Schedule: registerAgain, ConcurrencyPolicy: batchv1.ForbidConcurrent, StartingDeadlineSeconds: new(int64(registerDeadline)),
			SuccessfulJobsHistoryLimit: new(int32(1)), FailedJobsHistoryLimit: new(int32(3)),
			JobTemplate: batchv1.JobTemplateSpec{ObjectMeta: c.meta("", ""), Spec: c.jobSpec()},
		},
	}
}

func (c component) jobSpec() batchv1.JobSpec {
	return batchv1.JobSpec{ActiveDeadlineSeconds: new(int64(registerDeadline)), BackoffLimit: new(int32(6)), Template: c.pod()}
}
