package v1

import (
	"testing"

	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"

	"code.cloudfoundry.org/eirinix"
	eirinixtest "code.cloudfoundry.org/eirinix/testing"
)

// Every container of a new pod talks when it ends, and updates are left alone.
func TestPodWebhook(t *testing.T) {
	x := eirinix.NewManager(eirinix.ManagerOptions{Host: "127.0.0.1"})
	g := NewWithT(t)
	g.Expect(SetupPodWebhookWithManager(x)).To(Succeed())
	h := eirinixtest.NewHarness(t, x)
	const pod = "{apiVersion: v1, kind: Pod, metadata: {name: web}, spec: {containers: [{name: main}, {name: sidecar}]}}"
	g.Expect(h.Create(pod)).To(eirinixtest.HaveChanged(func(pod *corev1.Pod) {
		for i := range pod.Spec.Containers {
			pod.Spec.Containers[i].TerminationMessagePolicy = corev1.TerminationMessageFallbackToLogsOnError
		}
	}))
	g.Expect(h.Update(pod, pod)).To(eirinixtest.BeUnchanged())
}
