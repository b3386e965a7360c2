package main

// This file defines the job that every peer does.

import (
	"fmt"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// selectLabel is the label by which every webhook here selects pods. All captured pods have it with the value wanted.
const (
	selectLabel = "bench.example.org/inject"
	wanted      = "sidecar"
	unwanted    = "nothing"
)

// step is the change that one extension makes to a pod. Every peer that works on a decoded pod runs the same Go
// function, so peers differ only in the code around it.
type step struct {
	name string
	edit func(*corev1.Pod)
}

// injection is the job by which peers are compared, and the most common job of injectors in practice. It adds a
// sidecar, an init container, a volume, two variables in every container, a label and an annotation.
func injection() []step {
	return []step{{"inject", inject}}
}

func inject(p *corev1.Pod) {
	const name = "bench-injected"
	if p.Labels[name] != "" { // extensions must be idempotent: reinvocation shows them their own result
		return
	}
	metav1.SetMetaDataLabel(&p.ObjectMeta, name, "yes")
	metav1.SetMetaDataAnnotation(&p.ObjectMeta, "bench.example.org/injected-by", "bench")
	mount := corev1.VolumeMount{Name: name, MountPath: "/var/run/" + name}
	p.Spec.Volumes = append(p.Spec.Volumes, corev1.Volume{
		Name: name, VolumeSource: corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{}},
	})
	p.Spec.InitContainers = append(p.Spec.InitContainers, corev1.Container{
		Name: name + "-init", Image: "registry.example.org/bench/init:1", VolumeMounts: []corev1.VolumeMount{mount},
	})
	p.Spec.Containers = append(p.Spec.Containers, corev1.Container{
		Name: name, Image: "registry.example.org/bench/sidecar:1", VolumeMounts: []corev1.VolumeMount{mount},
		Args: []string{"--listen=127.0.0.1:9000"},
	})
	for _, list := range [][]corev1.Container{p.Spec.InitContainers, p.Spec.Containers} {
		for i := range list {
			list[i].Env = append(list[i].Env,
				corev1.EnvVar{Name: "BENCH_ENDPOINT", Value: "http://127.0.0.1:9000"},
				corev1.EnvVar{Name: "BENCH_POD", ValueFrom: &corev1.EnvVarSource{FieldRef: &corev1.ObjectFieldSelector{FieldPath: "metadata.name"}}})
		}
	}
}

// stepValue is the value that smallSteps set, once each in every container.
const stepValue = "set by a step"

// smallSteps returns n extensions that each add one annotation and one variable in every container. Chains are
// measured with them, because another step should cost only its own edit, and not another request.
func smallSteps(n int) []step {
	steps := make([]step, 0, n)
	for i := range n {
		annotation, variable := fmt.Sprintf("bench.example.org/step-%d", i), fmt.Sprintf("BENCH_STEP_%d", i)
		steps = append(steps, step{fmt.Sprintf("step-%d", i), func(p *corev1.Pod) {
			if p.Annotations[annotation] != "" {
				return
			}
			metav1.SetMetaDataAnnotation(&p.ObjectMeta, annotation, "done")
			for c := range p.Spec.Containers {
				container := &p.Spec.Containers[c]
				container.Env = append(container.Env, corev1.EnvVar{Name: variable, Value: stepValue})
			}
		}})
	}
	return steps
}
