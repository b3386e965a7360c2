package main

// This file runs a Manager that registers itself.

import (
	"context"
	"errors"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"code.cloudfoundry.org/eirinix"
)

// managerNamespace holds the Manager's Secret, and the pods for which the Manager is called.
const managerNamespace = "bench-manager"

// runManager runs the library as a program does, with ten Mutations, and returns when it is ready. The Manager decides
// on its registration, because the combination of the ten into one call is part of the measurement.
func runManager(kubeconfig string) (stop func() error, err error) {
	m := eirinix.NewManager(eirinix.ManagerOptions{
		Namespace:           managerNamespace,
		Host:                "127.0.0.1",
		ListenAddress:       "127.0.0.1:0",
		OperatorFingerprint: managerNamespace,
		KubeConfig:          kubeconfig,
		Logger:              quietLogger().Sugar(),
	})
	for _, s := range smallSteps(chainLength) {
		err := m.AddExtension(eirinix.Mutation[*corev1.Pod]{
			ID:       s.name,
			Settings: eirinix.Settings{Objects: &metav1.LabelSelector{MatchLabels: map[string]string{selectLabel: wanted}}},
			Apply: func(_ context.Context, _ *eirinix.Call, pod *corev1.Pod) error {
				s.edit(pod)
				return nil
			},
		})
		if err != nil {
			return nil, err
		}
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- m.Run(ctx) }()
	stop = func() error {
		cancel()
		return <-done
	}
	select {
	case <-m.Ready():
		return stop, nil
	case err := <-done:
		cancel()
		return nil, fmt.Errorf("the Manager did not start: %w", err)
	case <-time.After(time.Minute):
		return nil, errors.Join(errors.New("the Manager is not ready after a minute"), stop())
	}
}
