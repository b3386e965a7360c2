// Way-back is the program quickstart on controller-runtime alone. It does not register itself: docs/check-us.md lists the
// certificate and the objects that it needs then.
package main

import (
	"context"
	"log"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/log/zap"
	"sigs.k8s.io/controller-runtime/pkg/webhook"
)

// team is the step of quickstart as a Defaulter.
type team struct{}

func (team) Default(_ context.Context, pod *corev1.Pod) error {
	metav1.SetMetaDataLabel(&pod.ObjectMeta, "team", "platform")
	return nil
}

func main() {
	ctrl.SetLogger(zap.New())
	server := webhook.NewServer(webhook.Options{Port: 9443, CertDir: "/certs"})
	m, err := ctrl.NewManager(ctrl.GetConfigOrDie(), ctrl.Options{WebhookServer: server})
	if err != nil {
		log.Fatal(err)
	}
	if err := ctrl.NewWebhookManagedBy(m, &corev1.Pod{}).WithDefaulter(team{}).Complete(); err != nil {
		log.Fatal(err)
	}
	if err := m.Start(ctrl.SetupSignalHandler()); err != nil {
		log.Fatal(err)
	}
}
