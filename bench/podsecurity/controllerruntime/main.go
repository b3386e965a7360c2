// Program controllerruntime is the same webhook on controller-runtime alone. The folder of its certificate is its fourth
// argument.
package main

import (
	"context"
	"errors"
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

	"code.cloudfoundry.org/eirinix/bench/podsecurity/restricted"
)

type validator struct{ check func(*corev1.Pod) string }

func (v validator) ValidateCreate(_ context.Context, pod *corev1.Pod) (admission.Warnings, error) {
	if violation := v.check(pod); violation != "" {
		return nil, errors.New(violation)
	}
	return nil, nil
}

func (validator) ValidateUpdate(context.Context, *corev1.Pod, *corev1.Pod) (admission.Warnings, error) {
	return nil, nil
}

func (validator) ValidateDelete(context.Context, *corev1.Pod) (admission.Warnings, error) {
	return nil, nil
}

func main() {
	ctrl.SetLogger(zap.New())
	port, err := strconv.Atoi(os.Args[3])
	if err != nil {
		log.Fatal(err)
	}
	check, err := restricted.Check()
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
	if err := ctrl.NewWebhookManagedBy(m, &corev1.Pod{}).WithValidator(validator{check}).Complete(); err != nil {
		log.Fatal(err)
	}
	if err := m.Start(ctrl.SetupSignalHandler()); err != nil {
		log.Fatal(err)
	}
}
