// Package greeting holds the smallest useful extension, which adds a greeting to every container. The example programs
// hello, service and deploy and the demo run it.
package greeting

import (
	"context"
	"slices"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"

	"code.cloudfoundry.org/eirinix"
)

// The label and the environment variable that the extension adds to a pod.
const (
	Label    = "example.org/greeted"
	Variable = "GREETING"
	Message  = "Hello from an extension"
)

// Extension labels a pod and adds the variable GREETING to each of its containers that does not have it. It is
// idempotent. The zero value is ready to use.
type Extension struct{}

// Handle changes its own copy of the pod and makes the Manager compute the patch.
func (Extension) Handle(_ context.Context, m eirinix.Manager, pod *corev1.Pod, req admission.Request) admission.Response {
	if pod == nil { // the request carries none
		return admission.Allowed("")
	}
	metav1.SetMetaDataLabel(&pod.ObjectMeta, Label, "true")
	for i := range pod.Spec.Containers {
		c := &pod.Spec.Containers[i]
		if !slices.ContainsFunc(c.Env, func(e corev1.EnvVar) bool { return e.Name == Variable }) {
			c.Env = append(c.Env, corev1.EnvVar{Name: Variable, Value: Message})
		}
	}
	return m.PatchFromPod(req, pod)
}
