package main

// This file builds the library's request path as a peer.

import (
	"context"
	"fmt"
	"net/http"

	"github.com/go-logr/zapr"
	"github.com/prometheus/client_golang/prometheus"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"

	"code.cloudfoundry.org/eirinix/internal/admit"
	"code.cloudfoundry.org/eirinix/internal/chain"
)

// ours is the library's request path, as the Manager builds it for Mutation[*corev1.Pod] values that share one webhook
// entry. Here it is built without a Manager.
func ours(s spec) (http.Handler, error) {
	return served(s, func(step step, served *chain.Step) {
		served.New = func() runtime.Object { return &corev1.Pod{} }
		served.Mutates, served.Run = true, func(_ context.Context, _ *chain.Call, _, obj runtime.Object) error {
			pod, ok := obj.(*corev1.Pod)
			if !ok {
				return fmt.Errorf("got a %T", obj)
			}
			step.edit(pod)
			return nil
		}
	})
}

// oursExtension is the request path for classic Extensions, which change a copy of the pod and return PatchFromPod.
func oursExtension(s spec) (http.Handler, error) {
	pods := &chain.Pods{}
	return served(s, func(step step, served *chain.Step) {
		served.Pods = pods
		served.Handle = func(_ context.Context, req admission.Request) admission.Response {
			pod, err := pods.Pod(req)
			if err != nil {
				return admission.Errored(http.StatusInternalServerError, err)
			}
			changed := pod.DeepCopy()
			step.edit(changed)
			return pods.Patch(req, changed)
		}
	})
}

// oursByHand is the request path for Extensions that write their patch themselves.
func oursByHand(s spec) (http.Handler, error) {
	canned, err := cannedPatch(s)
	if err != nil {
		return nil, err
	}
	pods := &chain.Pods{}
	only := s
	only.steps = s.steps[:1] // the patch contains all steps
	return served(only, func(_ step, served *chain.Step) {
		served.Pods = pods
		served.Handle = func(_ context.Context, req admission.Request) admission.Response {
			if _, err := pods.Pod(req); err != nil {
				return admission.Errored(http.StatusInternalServerError, err)
			}
			resp := admission.Allowed("")
			resp.Patch = canned
			return resp
		}
	})
}

// served serves steps as a started Manager does, with metrics.
func served(s spec, form func(step, *chain.Step)) (http.Handler, error) {
	matcher, err := chain.NewMatcher([]admissionregistrationv1.RuleWithOperations{{
		Operations: []admissionregistrationv1.OperationType{admissionregistrationv1.Create},
		Rule:       admissionregistrationv1.Rule{APIGroups: []string{""}, APIVersions: []string{"v1"}, Resources: []string{"pods"}},
	}}, &metav1.LabelSelector{MatchLabels: map[string]string{selectLabel: s.selects}}, nil)
	if err != nil {
		return nil, err
	}
	metrics, err := admit.NewMetrics(prometheus.NewRegistry())
	if err != nil {
		return nil, err
	}
	entry := chain.Config{}
	for _, step := range s.steps {
		served := chain.Step{Name: step.name, Matcher: matcher}
		form(step, &served)
		entry.Steps = append(entry.Steps, served)
	}
	h := &admit.Handler{MaxBytes: 32 << 20, Log: zapr.NewLogger(quietLogger()), Metrics: metrics}
	h.Serve("/", entry)
	return onWebhookServer(h), nil
}
