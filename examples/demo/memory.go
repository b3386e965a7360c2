package main

// This file shows the extension's work without a cluster: on the API server in memory that the test kit has.

import (
	"fmt"

	corev1 "k8s.io/api/core/v1"

	"code.cloudfoundry.org/eirinix/examples/hello/greeting"
	eirinixtest "code.cloudfoundry.org/eirinix/testing"
)

// showInMemory shows what the extension makes of the pod. A control plane may first have to be built; this takes
// milliseconds.
func showInMemory(out printer) error {
	out.title("\nA pod, in memory: the test kit plays the API server while a real one is fetched and started")
	t := &test{}
	harness := eirinixtest.NewHarness(t, greeting.Extension{})
	if t.failure != nil {
		return t.failure
	}
	sent := newPod(podName)
	sent.Namespace = "default"
	result := harness.Create(sent)
	if t.failure == nil {
		t.failure = result.Err
	}
	if t.failure != nil {
		return t.failure
	}
	stored := eirinixtest.As[*corev1.Pod](result)
	if err := showDiff(out, "sent", sent, "what the API server would store", stored); err != nil {
		return err
	}
	return mutated(stored)
}

// test is the test that the kit reports to.
type test struct{ failure error }

func (t *test) Helper()             {}
func (t *test) Cleanup(func())      {}
func (t *test) Failed() bool        { return t.failure != nil }
func (t *test) Logf(string, ...any) {}

func (t *test) Errorf(format string, args ...any) { t.failure = fmt.Errorf(format, args...) }
func (t *test) Fatalf(format string, args ...any) { t.Errorf(format, args...) }
