package main

// This file builds the pods whose reviews are captured.

import (
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
)

// shapes result in pods of the sizes they are named after, including managedFields and defaults.
var shapes = map[string]struct{ containers, env, mounts int }{
	"4KB":   {1, 6, 1},
	"22KB":  {4, 18, 4},
	"310KB": {45, 28, 6},
}

// arrivingPod returns the pod that a deployer applies: an application with sidecars, probes and environment variables.
func arrivingPod(size string) *corev1.Pod {
	shape := shapes[size]
	pod := &corev1.Pod{
		TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Pod"},
		ObjectMeta: metav1.ObjectMeta{
			Name: "app-" + strings.ToLower(size), Namespace: "bench",
			Labels: map[string]string{
				selectLabel: wanted, "app.kubernetes.io/name": "app", "cloudfoundry.org/guid": "8d1a6b1e-6f1c-4c39-9f3e-3f6f0b9b5a11",
			},
			Annotations: map[string]string{"example.org/description": "an <application> & its helpers"},
		},
	}
	for m := range shape.mounts {
		pod.Spec.Volumes = append(pod.Spec.Volumes, corev1.Volume{
			Name:         fmt.Sprintf("volume-%d", m),
			VolumeSource: corev1.VolumeSource{ConfigMap: &corev1.ConfigMapVolumeSource{LocalObjectReference: corev1.LocalObjectReference{Name: fmt.Sprintf("settings-%d", m)}}},
		})
	}
	for i := range shape.containers {
		pod.Spec.Containers = append(pod.Spec.Containers, arrivingContainer(i, shape.env, shape.mounts))
	}
	return pod
}

func arrivingContainer(i, env, mounts int) corev1.Container {
	c := corev1.Container{
		Name:  fmt.Sprintf("container-%d", i),
		Image: "registry.example.org/applications/app:1.2.3",
		Ports: []corev1.ContainerPort{{Name: fmt.Sprintf("http-%d", i), ContainerPort: int32(8000 + i)}},
		Resources: corev1.ResourceRequirements{
			Limits:   corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("500m"), corev1.ResourceMemory: resource.MustParse("512Mi")},
			Requests: corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("50m"), corev1.ResourceMemory: resource.MustParse("128Mi")},
		},
	}
	if env > 10 { // the small pod is a simple one
		c.ReadinessProbe = &corev1.Probe{ProbeHandler: corev1.ProbeHandler{HTTPGet: &corev1.HTTPGetAction{Path: "/ready", Port: intstr.FromInt32(int32(8000 + i))}}}
	}
	for e := range env {
		v := corev1.EnvVar{Name: fmt.Sprintf("APPLICATION_SETTING_%d", e), Value: fmt.Sprintf("value %d of container %d, of a common length", e, i)}
		if e%6 == 5 {
			v.Value, v.ValueFrom = "", &corev1.EnvVarSource{SecretKeyRef: &corev1.SecretKeySelector{
				LocalObjectReference: corev1.LocalObjectReference{Name: "credentials"}, Key: fmt.Sprintf("key-%d", e),
			}}
		}
		c.Env = append(c.Env, v)
	}
	for m := range mounts {
		c.VolumeMounts = append(c.VolumeMounts, corev1.VolumeMount{Name: fmt.Sprintf("volume-%d", m), MountPath: fmt.Sprintf("/etc/settings/%d", m), ReadOnly: true})
	}
	return c
}
