package main

import (
	"context"
	"encoding/json"
	"net/http"

	corev1 "k8s.io/api/core/v1"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"sigs.k8s.io/controller-runtime/pkg/webhook"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"
)

// onWebhookServer puts a hook where controller-runtime's users have it: behind the server's mux and metrics.
func onWebhookServer(hook http.Handler) http.Handler {
	server := webhook.NewServer(webhook.Options{})
	server.Register("/", hook)
	return server.WebhookMux()
}

// crWebhook is controller-runtime's older style: decode the pod, change it, marshal it, and let
// PatchResponseFromRaw compare the two texts.
func crWebhook(s spec) (http.Handler, error) {
	decoder := admission.NewDecoder(clientgoscheme.Scheme)
	return onWebhookServer(&admission.Webhook{Handler: admission.HandlerFunc(func(_ context.Context, req admission.Request) admission.Response {
		pod := &corev1.Pod{}
		if err := decoder.Decode(req, pod); err != nil {
			return admission.Errored(http.StatusBadRequest, err)
		}
		if pod.Labels[selectLabel] != s.selects {
			return admission.Allowed("")
		}
		for _, step := range s.steps {
			step.edit(pod)
		}
		text, err := json.Marshal(pod)
		if err != nil {
			return admission.Errored(http.StatusInternalServerError, err)
		}
		return admission.PatchResponseFromRaw(req.Object.Raw, text)
	})}), nil
}

// crDefaulter is controller-runtime's typed style, and what its scaffolding makes; the ratios are to this one.
func crDefaulter(s spec) (http.Handler, error) {
	return onWebhookServer(admission.WithDefaulter[*corev1.Pod](clientgoscheme.Scheme, defaulter(s))), nil
}

type defaulter spec

func (d defaulter) Default(_ context.Context, pod *corev1.Pod) error {
	if pod.Labels[selectLabel] != d.selects {
		return nil
	}
	for _, step := range d.steps {
		step.edit(pod)
	}
	return nil
}
