// Package cost holds the code that the two programs in its folders share. Section cost starts each as a separate
// process. They are the same small webhook, written once with the library and once with controller-runtime alone.
// Their arguments are the path of a kubeconfig, the namespace of the pods, and the port on 127.0.0.1.
package cost

import (
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Label is set on every pod that the programs see.
const Label = "bench.example.org/answered"

// Mark sets Label on the pod. It is all the work that the webhooks do.
func Mark(pod *corev1.Pod) { metav1.SetMetaDataLabel(&pod.ObjectMeta, Label, "yes") }
