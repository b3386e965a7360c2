package manifests

// This file builds the workload: the Deployment, its disruption budget, the Job and CronJob that register, and the CronJob
// that audits.

import (
	"maps"
	"slices"
	"strconv"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/util/intstr"

	"code.cloudfoundry.org/eirinix/internal/rights"
)

const (
	// registerAgain is the schedule on which the registering half restores edited or deleted entries and continues a
	// rotation.
	registerAgain = "*/10 * * * *"

	registerDeadline = 5 * 60       // seconds; a Job that hangs would prevent the CronJob's next run
	auditDeadline    = 6 * 60 * 60  // seconds
	keepJob          = 24 * 60 * 60 // seconds for which the Job's log is available
)

// deployment returns the Deployment, which keeps the full number of replicas available during a rollout.
func (c component) deployment() *appsv1.Deployment {
	template := c.pod()
	if c.program.Replicas > 1 {
		c.spread(&template.Spec)
	}
	return &appsv1.Deployment{
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
	return &batchv1.Job{
		ObjectMeta: c.meta(shorten(c.program.Name, registerInfix+hash(jsonOf(spec.Template)), maxJobName), c.program.Namespace),
		Spec:       spec,
	}
}

// cronJob returns the CronJob that registers repeatedly, because the serving half must not register.
func (c component) cronJob() *batchv1.CronJob {
	job := c.repeated(registerAgain, c.jobSpec(),
		"Restores a webhook configuration that was edited or deleted, and publishes the next CA of a rotation. It writes nothing if nothing is due.")
	job.Spec.StartingDeadlineSeconds = new(int64(registerDeadline))
	return job
}

// repeated returns a CronJob of the component.
func (c component) repeated(schedule string, job batchv1.JobSpec, description string) *batchv1.CronJob {
	return &batchv1.CronJob{
		ObjectMeta: describe(c.meta(c.name, c.program.Namespace), description),
		Spec: batchv1.CronJobSpec{
			Schedule: schedule, ConcurrencyPolicy: batchv1.ForbidConcurrent,
			SuccessfulJobsHistoryLimit: new(int32(1)), FailedJobsHistoryLimit: new(int32(3)),
			JobTemplate: batchv1.JobTemplateSpec{ObjectMeta: c.meta("", ""), Spec: job},
		},
	}
}

func (c component) jobSpec() batchv1.JobSpec {
	return batchv1.JobSpec{ActiveDeadlineSeconds: new(int64(registerDeadline)), BackoffLimit: new(int32(6)), Template: c.pod()}
}

// auditJob returns the CronJob that audits. A run with findings fails, and is not repeated.
func (c component) auditJob() *batchv1.CronJob {
	spec := c.jobSpec()
	spec.ActiveDeadlineSeconds, spec.BackoffLimit = new(int64(auditDeadline)), new(int32(0))
	return c.repeated(c.program.AuditSchedule, spec,
		"Asks the program's extensions about the objects that exist. A Job fails if one of them would be denied; its log has the findings.")
}

const (
	// firstFreePort is the lowest port that an unprivileged process can listen on.
	firstFreePort = 1024

	// longestCall is the longest timeout of a webhook that the API server accepts.
	longestCall = 30 * time.Second

	// stopMargin is the time that a process needs to exit.
	stopMargin = 5 * time.Second
)

// gracePeriod returns the seconds that a stop can take: the drain, the longest call in flight, and the work afterwards.
func (p *program) gracePeriod() int64 {
	stop := p.DrainDelay + longestCall + p.UnregisterTimeout + stopMargin
	return int64((stop + time.Second - 1) / time.Second)
}

// pod returns the template of the component's pods. The Pod Security level "restricted" admits it.
func (c component) pod() corev1.PodTemplateSpec {
	p := c.program
	container := corev1.Container{
		Name: c.half.String(), Image: p.Image, Command: p.Command, Args: p.Args, Env: environment(p.Env, p.Resources), Resources: p.Resources,
		SecurityContext: &corev1.SecurityContext{
			AllowPrivilegeEscalation: new(false),
			ReadOnlyRootFilesystem:   new(true),
			RunAsNonRoot:             new(true),
			Capabilities:             &corev1.Capabilities{Drop: []corev1.Capability{"ALL"}},
			SeccompProfile:           &corev1.SeccompProfile{Type: corev1.SeccompProfileTypeRuntimeDefault},
		},
		// If the program fails, kubectl describe shows the last lines of its log.
		TerminationMessagePolicy: corev1.TerminationMessageFallbackToLogsOnError,
	}
	template := corev1.PodTemplateSpec{
		ObjectMeta: c.podMeta(),
		Spec: corev1.PodSpec{
			ServiceAccountName:           c.account,
			AutomountServiceAccountToken: new(true),
			EnableServiceLinks:           new(false),
			NodeSelector:                 map[string]string{corev1.LabelOSStable: string(corev1.Linux)},
			PriorityClassName:            p.PriorityClassName,
			Tolerations:                  p.Tolerations,
			ImagePullSecrets:             p.ImagePullSecrets,
			SecurityContext: &corev1.PodSecurityContext{
				RunAsNonRoot:   new(true),
				SeccompProfile: &corev1.SeccompProfile{Type: corev1.SeccompProfileTypeRuntimeDefault},
			},
		},
	}
	maps.Copy(template.Spec.NodeSelector, p.NodeSelector)
	switch c.half {
	case rights.Registering:
		container.Args = p.RegisterArgs
		template.Spec.RestartPolicy = corev1.RestartPolicyOnFailure
	case rights.Auditing:
		container.Args = p.AuditArgs
		template.Spec.RestartPolicy = corev1.RestartPolicyNever
	default:
		container.Ports = p.ports.named()
		p.probe(&container)
		template.Spec.TerminationGracePeriodSeconds = new(p.gracePeriod())
		template.Spec.SecurityContext.Sysctls = p.ports.sysctls()
	}
	template.Spec.Containers = []corev1.Container{container}
	return template
}

// probe sets the probes of a container. They use the webhook's own port, which reports whether the API server can call
// this very pod. A program without that port is probed on its health port, if it has one.
func (p *program) probe(c *corev1.Container) {
	port, scheme := p.ports.webhook, corev1.URISchemeHTTPS
	if port == 0 {
		port, scheme = p.ports.health, corev1.URISchemeHTTP
	}
	if port == 0 {
		return
	}
	get := func(path string, period, failures int32) *corev1.Probe {
		return &corev1.Probe{
			ProbeHandler:   corev1.ProbeHandler{HTTPGet: &corev1.HTTPGetAction{Path: path, Port: intstr.FromInt32(port), Scheme: scheme}},
			TimeoutSeconds: 5, PeriodSeconds: period, SuccessThreshold: 1, FailureThreshold: failures,
		}
	}
	// The port opens once there is a certificate. A serving half waits for that up to five minutes, and is then
	// restarted.
	c.StartupProbe = get("/healthz", 2, 150)
	// Killing a process that is only slow does not help.
	c.LivenessProbe = get("/healthz", 10, 6)
	c.ReadinessProbe = get("/readyz", 5, 3)
}

// sysctls returns the sysctl with which an unprivileged program can listen on a port below 1024. It is a safe sysctl:
// it affects only the pod itself, and every kubelet and the Pod Security level "restricted" allow it.
func (p ports) sysctls() []corev1.Sysctl {
	lowest := int32(firstFreePort)
	for _, port := range p.named() {
		lowest = min(lowest, port.ContainerPort)
	}
	if lowest == firstFreePort {
		return nil
	}
	return []corev1.Sysctl{{Name: "net.ipv4.ip_unprivileged_port_start", Value: strconv.Itoa(int(lowest))}}
}

const (
	memoryLimit = "MEMORY_LIMIT_MIB"
	goMemory    = "GOMEMLIMIT"
)

// environment returns the environment with a GOMEMLIMIT derived from the memory limit of the container. A burst of
// requests then costs time but does not kill the process. The limit in MiB is used as a number of megabytes. The
// difference of 5 % is left for memory outside of Go's heap.
func environment(own []corev1.EnvVar, resources corev1.ResourceRequirements) []corev1.EnvVar {
	chosen := slices.ContainsFunc(own, func(e corev1.EnvVar) bool { return e.Name == goMemory || e.Name == memoryLimit })
	if _, limited := resources.Limits[corev1.ResourceMemory]; !limited || chosen {
		return slices.Clone(own)
	}
	return append([]corev1.EnvVar{
		{Name: memoryLimit, ValueFrom: &corev1.EnvVarSource{ResourceFieldRef: &corev1.ResourceFieldSelector{
			Resource: "limits.memory", Divisor: resource.MustParse("1Mi"),
		}}},
		{Name: goMemory, Value: "$(" + memoryLimit + ")000000B"},
	}, own...)
}
