package main

// This file creates the demo's pod and Deployment, and checks and measures the creation of pods.

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"

	"code.cloudfoundry.org/eirinix/examples/hello/greeting"
)

const (
	podName        = "hello"
	deploymentName = "world"
	replicas       = 2
)

// dryRun makes the API server process a request completely without storing the object.
var dryRun = metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}}

// podSpec returns the spec of a pod that only sleeps. To keep the diff short, the containers start with a command and
// mount no token, whose volume has a random name.
func podSpec(names ...string) corev1.PodSpec {
	spec := corev1.PodSpec{AutomountServiceAccountToken: new(false), TerminationGracePeriodSeconds: new(int64(1))}
	for _, name := range names {
		spec.Containers = append(spec.Containers, corev1.Container{Name: name, Image: "busybox", Command: []string{"sleep", "3600"}})
	}
	return spec
}

func newPod(name string) *corev1.Pod {
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{"app": podName}},
		Spec:       podSpec("main", "sidecar"),
	}
	pod.Spec.Containers[0].Env = []corev1.EnvVar{{Name: "OWN", Value: "stays as it is"}}
	return pod
}

func (c *cluster) createPod(ctx context.Context, name string, o metav1.CreateOptions) (*corev1.Pod, error) {
	return c.client.CoreV1().Pods(c.namespace).Create(ctx, newPod(name), o)
}

func (c *cluster) createDeployment(ctx context.Context) (*appsv1.Deployment, error) {
	labels := map[string]string{"app": deploymentName}
	return c.client.AppsV1().Deployments(c.namespace).Create(ctx, &appsv1.Deployment{
		ObjectMeta: metav1.ObjectMeta{Name: deploymentName},
		Spec: appsv1.DeploymentSpec{
			Replicas: new(int32(replicas)),
			Selector: &metav1.LabelSelector{MatchLabels: labels},
			Template: corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: labels}, Spec: podSpec("main")},
		},
	}, metav1.CreateOptions{})
}

// rehearsal is the result of the API server's work without the webhook.
type rehearsal struct {
	pod    *corev1.Pod
	median time.Duration // of the time that a creation takes
}

// rehearse creates pods in dry runs before the webhook is registered. It retries, because a new namespace gets its
// service account only a moment after its creation, and no pod can be created before.
func (c *cluster) rehearse(ctx context.Context) (r rehearsal, err error) {
	const patience = 15 * time.Second
	err = wait.PollUntilContextTimeout(ctx, pollEvery, patience, true, func(ctx context.Context) (bool, error) {
		if r.pod, err = c.createPod(ctx, podName, dryRun); apierrors.IsForbidden(err) && strings.Contains(err.Error(), "serviceaccount") {
			return false, nil
		}
		return err == nil, err
	})
	if err != nil {
		return r, fmt.Errorf("no pod can be created in namespace %s: %w", c.namespace, err)
	}
	r.median, err = c.measure(ctx)
	return r, err
}

const (
	// warmUp is the time for caches to fill and for a newly started API server to calm down. After that, as many
	// creations are measured as fit into measureFor, but at most maxMeasured.
	warmUp      = 500 * time.Millisecond
	measureFor  = time.Second
	maxMeasured = 101
)

// measure returns the median time of a creation, in consecutive dry runs.
func (c *cluster) measure(ctx context.Context) (time.Duration, error) {
	var times []time.Duration
	for begin := time.Now(); len(times) < maxMeasured && (len(times) == 0 || time.Since(begin) < warmUp+measureFor); {
		start := time.Now()
		if _, err := c.createPod(ctx, podName+"-measured", dryRun); err != nil {
			return 0, err
		}
		if time.Since(begin) > warmUp {
			times = append(times, time.Since(start))
		}
	}
	slices.Sort(times)
	return times[len(times)/2], nil
}

// mutated returns nil if the extension has changed the pod, else an error that names the missing part. It ignores
// containers that other webhooks have added afterwards.
func mutated(pod *corev1.Pod) error {
	if pod.Labels[greeting.Label] == "" {
		return fmt.Errorf("pod %s was not mutated: it lacks the label %s", pod.Name, greeting.Label)
	}
	for _, c := range pod.Spec.Containers {
		ours := c.Name == "main" || c.Name == "sidecar"
		if ours && !slices.ContainsFunc(c.Env, func(e corev1.EnvVar) bool { return e.Name == greeting.Variable }) {
			return fmt.Errorf("pod %s was not mutated: its container %s lacks the variable %s", pod.Name, c.Name, greeting.Variable)
		}
	}
	return nil
}
