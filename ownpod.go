package eirinix

// This file warns about a program that is called for its own pods.

import (
	"context"
	"os"
	"strings"

	"github.com/go-logr/logr"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"code.cloudfoundry.org/eirinix/internal/cluster"
	"code.cloudfoundry.org/eirinix/internal/webhookconf"
)

// warnOfOwnPod logs a warning if the program's own pod is sent to the program itself. That is the case if its namespace
// is not excluded as a whole and the pod lacks the label. A webhook that is down would then be called for the pod that
// is to restart it. Outside of a pod, or without the right to read it, there is no warning.
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

// unmarked returns the problem with the pod, or "" if there is none or the pod cannot be read.
func unmarked(ctx context.Context, clients cluster.Clients, o ManagerOptions, namespace, name string) string {
	if o.serviceMode() && o.WebhookNamespace == namespace && o.Namespace != namespace || o.Namespace != "" && o.Namespace != namespace {
		return "" // its namespace is excluded or not selected
	}
	pod, err := clients.CoreV1().Pods(namespace).Get(ctx, name, metav1.GetOptions{})
	if err != nil || pod.Labels[webhookconf.FingerprintLabel] == o.OperatorFingerprint {
		return ""
	}
	return "this pod is sent to itself when it starts, so that it may not come back once all replicas are down; give its template the label, as Manifests does"
}
