package main

import (
	"context"
	"fmt"
	"net/http"

	"github.com/go-logr/zapr"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"code.cloudfoundry.org/eirinix/internal/admit"
)

// ours is the library's request path: what the Manager makes of Mutation[*corev1.Pod] values that share one
// webhook entry. This file is the only one that knows how that is put together.
func ours(s spec) (http.Handler, error) {
	matcher, err := admit.NewMatcher([]admissionregistrationv1.RuleWithOperations{{
		Operations: []admissionregistrationv1.OperationType{admissionregistrationv1.Create},
		Rule:       admissionregistrationv1.Rule{APIGroups: []string{""}, APIVersions: []string{"v1"}, Resources: []string{"pods"}},
	}}, &metav1.LabelSelector{MatchLabels: map[string]string{selectLabel: s.selects}}, nil)
	if err != nil {
		return nil, err
	}
	chain := admit.Chain{}
	for _, step := range s.steps {
		chain.Steps = append(chain.Steps, admit.Step{
			Name:    step.name,
			Matcher: matcher,
			New:     func() runtime.Object { return &corev1.Pod{} },
			Mutate: func(_ context.Context, _ *admit.Exchange, obj runtime.Object) error {
				pod, ok := obj.(*corev1.Pod)
				if !ok {
					return fmt.Errorf("got a %T", obj)
				}
				step.edit(pod)
				return nil
			},
		})
	}
	h := &admit.Handler{MaxBytes: 32 << 20, Log: zapr.NewLogger(quietLogger())}
	h.Serve("/", chain)
	return onWebhookServer(h), nil
}
