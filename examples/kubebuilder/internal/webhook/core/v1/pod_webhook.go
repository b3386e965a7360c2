// Package v1 holds the webhook for Pods.
package v1

import (
	"context"
	"time"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	logf "sigs.k8s.io/controller-runtime/pkg/log"

	"code.cloudfoundry.org/eirinix"
	"code.cloudfoundry.org/eirinix/examples/kubebuilder/internal/webhook"
)

var podlog = logf.Log.WithName("pod-resource")

// SetupPodWebhookWithManager adds the webhook for Pod to the manager.
func SetupPodWebhookWithManager(x eirinix.Manager) error {
	return x.AddExtension(webhook.Defaulting(&PodCustomDefaulter{}, eirinix.Settings{
		FailurePolicy: admissionregistrationv1.Ignore,
		Reinvoke:      admissionregistrationv1.IfNeededReinvocationPolicy,
		Timeout:       3 * time.Second,
	}))
}

// PodCustomDefaulter makes the end of a failed container's log its termination message, unless the container asks for
// something else.
type PodCustomDefaulter struct{}

// Default implements admission.Defaulter.
func (d *PodCustomDefaulter) Default(_ context.Context, obj *corev1.Pod) error {
	podlog.Info("Defaulting for Pod", "name", obj.GetName())
	for i := range obj.Spec.Containers {
		if c := &obj.Spec.Containers[i]; c.TerminationMessagePolicy == "" || c.TerminationMessagePolicy == corev1.TerminationMessageReadFile {
			c.TerminationMessagePolicy = corev1.TerminationMessageFallbackToLogsOnError
		}
	}
	return nil
}
