package main

// This file holds the peer that uses kubewebhook.

import (
	"context"
	"fmt"
	"net/http"

	kwhhttp "github.com/slok/kubewebhook/v2/pkg/http"
	"github.com/slok/kubewebhook/v2/pkg/model"
	"github.com/slok/kubewebhook/v2/pkg/webhook/mutating"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// kubewebhook is a kubewebhook with its no-op logger and tracer, which are its defaults.
func kubewebhook(s spec) (http.Handler, error) {
	hook, err := mutating.NewWebhook(mutating.WebhookConfig{
		ID:  "bench",
		Obj: &corev1.Pod{},
		Mutator: mutating.MutatorFunc(func(_ context.Context, _ *model.AdmissionReview, obj metav1.Object) (*mutating.MutatorResult, error) {
			pod, ok := obj.(*corev1.Pod)
			if !ok {
				return nil, fmt.Errorf("got a %T", obj)
			}
			if pod.Labels[selectLabel] == s.selects {
				for _, step := range s.steps {
					step.edit(pod)
				}
			}
			return &mutating.MutatorResult{MutatedObject: pod}, nil
		}),
	})
	if err != nil {
		return nil, err
	}
	return kwhhttp.HandlerFor(kwhhttp.HandlerConfig{Webhook: hook})
}
