package main

// This file holds the peers that use controller-runtime.

import (
	"context"
	"encoding/json"
	"net/http"

	corev1 "k8s.io/api/core/v1"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"sigs.k8s.io/controller-runtime/pkg/webhook"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"
)

// onWebhookServer serves a hook as controller-runtime's users do: behind the server's mux and metrics.
func onWebhookServer(hook http.Handler) http.Handler {
	server := webhook.NewServer(webhook.Options{})
	server.Register("/", hook)
	return server.WebhookMux()
}

// crWebhook is controller-runtime's older style. It decodes the pod, changes it and marshals it. PatchResponseFromRaw
// then compares the two texts.
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

// crDefaulter is controller-runtime's typed style, which its scaffolding generates. The ratios refer to this peer.
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
