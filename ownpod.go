package eirinix

import (
	"context"
	"os"
	"strings"

	"github.com/go-logr/logr"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"code.cloudfoundry.org/eirinix/internal/cluster"
	"code.cloudfoundry.org/eirinix/internal/webhookconf"
)

// warnOfOwnPod looks whether the pod that the program runs in can be told from those that are sent to it: where its own
// namespace is not left out as a whole, a webhook that is down would be asked about the pod that brings it back. Outside of
// a pod, and without the right to read it, there is nothing to look at.
func (m *ExtensionManager) warnOfOwnPod(ctx context.Context, log logr.Logger) {
	own, err := os.ReadFile(podNamespaceFile)
	if err != nil {
		return
	}
	clients, err := m.clients()
	if err != nil {
		return
	}
	name, err := os.Hostname()
	if err != nil {
		return
	}
	o := m.GetManagerOptions()
	if problem := unmarked(ctx, clients, o, strings.TrimSpace(string(own)), name); problem != "" {
		log.Info(problem, "label", webhookconf.FingerprintLabel+"="+o.OperatorFingerprint, "pod", name)
	}
}

// unmarked says what is wrong with the pod; empty when nothing is, or nobody knows.
func unmarked(ctx context.Context, clients cluster.Clients, o ManagerOptions, namespace, name string) string {
	if o.serviceMode() && o.WebhookNamespace == namespace && o.Namespace != namespace || o.Namespace != "" && o.Namespace != namespace {
		return "" // its namespace is left out, or not asked for
	}
	pod, err := clients.CoreV1().Pods(namespace).Get(ctx, name, metav1.GetOptions{})
	if err != nil || pod.Labels[webhookconf.FingerprintLabel] == o.OperatorFingerprint {
		return ""
	}
	return "this pod is sent to itself when it starts, so that it may not come back once all replicas are down; give its template the label, as Manifests does"
}
