// Package cost is what the two programs in its folders share: section cost starts both as processes of their own, the
// same small webhook once written with the library and once with controller-runtime alone. Their arguments are the path
// of a kubeconfig, the namespace of the pods, and the port on 127.0.0.1.
package cost

import (
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Label is set on every pod that the programs see.
const Label = "bench.example.org/answered"

// Mark is the whole job.
func Mark(pod *corev1.Pod) { metav1.SetMetaDataLabel(&pod.ObjectMeta, Label, "yes") }
