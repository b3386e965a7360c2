// Program controllerruntime is the same webhook on controller-runtime alone. Section cost registers it, and creates
// its certificate: tls.crt and tls.key in the folder that is its fourth argument.
package main

import (
	"context"
	"log"
	"os"
	"strconv"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/tools/clientcmd"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/log/zap"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"
	"sigs.k8s.io/controller-runtime/pkg/webhook"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"

	"code.cloudfoundry.org/eirinix/bench/cost"
)

type defaulter struct{}

func (defaulter) Default(_ context.Context, pod *corev1.Pod) error {
	cost.Mark(pod)
	return nil
}

func main() {
	ctrl.SetLogger(zap.New())
	port, err := strconv.Atoi(os.Args[3])
	if err != nil {
		log.Fatal(err)
	}
	config, err := clientcmd.BuildConfigFromFlags("", os.Args[1])
	if err != nil {
		log.Fatal(err)
	}
	m, err := ctrl.NewManager(config, ctrl.Options{
		Metrics:       metricsserver.Options{BindAddress: "0"},
		WebhookServer: webhook.NewServer(webhook.Options{Host: "127.0.0.1", Port: port, CertDir: os.Args[4]}),
	})
	if err != nil {
		log.Fatal(err)
	}
	m.GetWebhookServer().Register("/", admission.WithDefaulter[*corev1.Pod](m.GetScheme(), defaulter{}))
	if err := m.Start(ctrl.SetupSignalHandler()); err != nil {
		log.Fatal(err)
	}
}
