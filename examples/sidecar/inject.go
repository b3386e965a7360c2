package main

// This file holds the webhook, which adds the sidecar to a pod.

import (
	"context"
	"slices"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/util/intstr"

	"code.cloudfoundry.org/eirinix"
)

const (
	sidecarName = "log-forwarder"
	volumeName  = "log-forwarder-logs"
	logFolder   = "/var/log/app"

	// wanted is evaluated by the API server itself, so a pod that opts out costs no call.
	wanted = `object.metadata.?annotations[?'sidecar.example.org/inject'].orValue('true') != 'false'`
)

// injection returns the webhook. It is called only for the creation of pods, because the containers of a pod cannot be
// changed later. A later webhook can add containers: with IfNeeded the API server then calls this one again.
func injection(image string) eirinix.Mutation[*corev1.Pod] {
	return eirinix.Mutation[*corev1.Pod]{
		ID: "inject",
		Settings: eirinix.Settings{
			Conditions: []admissionregistrationv1.MatchCondition{{Name: "not-opted-out", Expression: wanted}},
			Reinvoke:   admissionregistrationv1.IfNeededReinvocationPolicy,
		},
		Apply: func(_ context.Context, c *eirinix.Call, pod *corev1.Pod) error {
			if slices.ContainsFunc(pod.Spec.Containers, func(c corev1.Container) bool { return c.Name == sidecarName }) {
				return eirinix.Deny("the container name %q is taken by the sidecar; choose another", sidecarName)
			}
			inject(&pod.Spec, image)
			c.Annotate("image", image)
			return nil
		},
	}
}

// inject adds the missing parts of the sidecar. It is idempotent.
func inject(pod *corev1.PodSpec, image string) {
	if !slices.ContainsFunc(pod.Volumes, func(v corev1.Volume) bool { return v.Name == volumeName }) {
		pod.Volumes = append(pod.Volumes, corev1.Volume{Name: volumeName, VolumeSource: corev1.VolumeSource{
			EmptyDir: &corev1.EmptyDirVolumeSource{SizeLimit: new(resource.MustParse("64Mi"))},
		}})
	}
	if !slices.ContainsFunc(pod.InitContainers, func(c corev1.Container) bool { return c.Name == sidecarName }) {
		// It is the first init container, so that it is already running when the pod's own init containers run.
		pod.InitContainers = slices.Insert(pod.InitContainers, 0, forwarder(image))
	}
	for _, containers := range [][]corev1.Container{pod.InitContainers, pod.Containers} {
		for i := range containers {
			mount(&containers[i])
		}
	}
}

func mount(c *corev1.Container) {
	if !slices.ContainsFunc(c.VolumeMounts, func(m corev1.VolumeMount) bool { return m.Name == volumeName || m.MountPath == logFolder }) {
		c.VolumeMounts = append(c.VolumeMounts, corev1.VolumeMount{Name: volumeName, MountPath: logFolder})
	}
}

// forwarder returns a native sidecar: an init container that keeps running. The pod's containers start once its startup
// probe succeeds. It is stopped after them, and does not keep a Job from completing.
func forwarder(image string) corev1.Container {
	health := corev1.ProbeHandler{HTTPGet: &corev1.HTTPGetAction{Path: "/healthz", Port: intstr.FromString("health")}}
	return corev1.Container{
		Name:          sidecarName,
		Image:         image,
		Args:          []string{"--folder", logFolder},
		RestartPolicy: new(corev1.ContainerRestartPolicyAlways),
		Ports:         []corev1.ContainerPort{{Name: "health", ContainerPort: 15020}},
		StartupProbe:  &corev1.Probe{ProbeHandler: health, PeriodSeconds: 1, FailureThreshold: 30},
		LivenessProbe: &corev1.Probe{ProbeHandler: health, PeriodSeconds: 10},
		Resources: corev1.ResourceRequirements{
			Requests: corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("10m"), corev1.ResourceMemory: resource.MustParse("32Mi")},
			Limits:   corev1.ResourceList{corev1.ResourceMemory: resource.MustParse("64Mi")},
		},
		SecurityContext: &corev1.SecurityContext{ // meets the Pod Security level "restricted"
			RunAsNonRoot: new(true), RunAsUser: new(int64(65532)),
			AllowPrivilegeEscalation: new(false), ReadOnlyRootFilesystem: new(true),
			Capabilities:   &corev1.Capabilities{Drop: []corev1.Capability{"ALL"}},
			SeccompProfile: &corev1.SeccompProfile{Type: corev1.SeccompProfileTypeRuntimeDefault},
		},
	}
}
