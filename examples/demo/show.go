package main

// This file shows the steps of the demo.

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"

	"code.cloudfoundry.org/eirinix/examples/hello/greeting"
)

// deploymentTimeout bounds the wait for a Deployment's pods.
const deploymentTimeout = 60 * time.Second

// showPod creates a pod and shows how the webhook changed it.
func showPod(ctx context.Context, c *cluster, plain rehearsal, out printer) error {
	out.title("\nA pod")
	start := time.Now()
	if _, err := c.createPod(ctx, podName, metav1.CreateOptions{}); err != nil {
		return err
	}
	took := time.Since(start)
	pod, err := c.client.CoreV1().Pods(c.namespace).Get(ctx, podName, metav1.GetOptions{})
	if err != nil {
		return err
	}
	if err := showDiff(out, "sent, as the API server stores it without the webhook", plain.pod, "stored, as read back from the API server", pod); err != nil {
		return err
	}
	if err := mutated(pod); err != nil {
		return err
	}
	median, err := c.measure(ctx)
	if err != nil {
		return err
	}
	out.fact("created in", "%s", round(took))
	out.fact("latency", "a creation takes %s without the webhook, %s with it (medians of dry runs)", round(plain.median), round(median))
	return nil
}

// showDeployment makes the cluster's controllers create pods, which is how most pods are created.
func showDeployment(ctx context.Context, c *cluster, out printer) error {
	out.title(fmt.Sprintf("\nA Deployment with %d replicas", replicas))
	if c.plane != nil { // the pod needed no controllers, and this may have to build them
		if err := c.plane.StartControllerManager(ctx); err != nil {
			return err
		}
	}
	start := time.Now()
	if _, err := c.createDeployment(ctx); err != nil {
		return err
	}
	pods, err := c.awaitPods(ctx)
	if err != nil {
		return err
	}
	took := time.Since(start)
	var failures []error
	for _, pod := range pods {
		err := mutated(&pod)
		failures = append(failures, err)
		verdict := out.paint(green, "mutated")
		if err != nil {
			verdict = out.paint(red, "not mutated")
		}
		owner := "no controller"
		if o := metav1.GetControllerOf(&pod); o != nil {
			owner = o.Kind + " " + o.Name
		}
		out.line("  %-24s %s  created by %s; %s=%s, %s=%q", pod.Name, verdict, owner,
			greeting.Label, pod.Labels[greeting.Label], greeting.Variable, variable(pod, greeting.Variable))
	}
	out.fact("all there", "after %s", round(took))
	return errors.Join(failures...)
}

// awaitPods waits until the Deployment has its pods. They do not have to run.
func (c *cluster) awaitPods(ctx context.Context) (pods []corev1.Pod, err error) {
	err = wait.PollUntilContextTimeout(ctx, pollEvery, deploymentTimeout, true, func(ctx context.Context) (bool, error) {
		list, err := c.client.CoreV1().Pods(c.namespace).List(ctx, metav1.ListOptions{LabelSelector: "app=" + deploymentName})
		if err != nil {
			return false, err
		}
		pods = list.Items
		return len(pods) >= replicas, nil
	})
	if err == nil || ctx.Err() != nil {
		return pods, err
	}
	return nil, fmt.Errorf("%d of %d pods of the Deployment were there after %s: %w", len(pods), replicas, deploymentTimeout, errors.Join(err, c.replicaFailure(ctx)))
}

// replicaFailure returns the Deployment's condition about pods that could not be created, as an error.
func (c *cluster) replicaFailure(ctx context.Context) error {
	deployment, err := c.client.AppsV1().Deployments(c.namespace).Get(ctx, deploymentName, metav1.GetOptions{})
	if err != nil {
		return err
	}
	for _, condition := range deployment.Status.Conditions {
		if condition.Type == appsv1.DeploymentReplicaFailure {
			return errors.New(condition.Message)
		}
	}
	return errors.New("the Deployment reports no failure; does the cluster have a controller manager?")
}

func variable(pod corev1.Pod, name string) string {
	for _, container := range pod.Spec.Containers {
		for _, e := range container.Env {
			if e.Name == name {
				return e.Value
			}
		}
	}
	return ""
}

// showRegistered shows the Manager's objects in the cluster. Of the Secret it shows only the names of the keys.
func showRegistered(ctx context.Context, c *cluster, w *webhook, out printer) error {
	out.title("\nWhat the Manager made in the cluster")
	secret, err := c.client.CoreV1().Secrets(c.namespace).Get(ctx, w.manager.GetManagerOptions().SetupCertificateName, metav1.GetOptions{})
	if err != nil {
		return err
	}
	out.line("  Secret %s/%s", secret.Namespace, secret.Name)
	out.fact("  keys", "%s", strings.Join(slices.Sorted(maps.Keys(secret.Data)), ", "))
	configuration, err := configuration(ctx, c)
	if err != nil {
		return err
	}
	out.line("  MutatingWebhookConfiguration %s", configuration.Name)
	for _, hook := range configuration.Webhooks {
		out.fact("  webhook", "%s", hook.Name)
		out.fact("  URL", "%s", deref(hook.ClientConfig.URL))
		for _, rule := range hook.Rules {
			out.fact("  rule", "%s of %s", join(rule.Operations), strings.Join(rule.Resources, ", "))
		}
		out.fact("  selector", "namespaces with %s", metav1.FormatLabelSelector(hook.NamespaceSelector))
		out.fact("  policy", "failurePolicy %s, timeout %ds, sideEffects %s", deref(hook.FailurePolicy), deref(hook.TimeoutSeconds), deref(hook.SideEffects))
	}
	return nil
}

func configuration(ctx context.Context, c *cluster) (*admissionregistrationv1.MutatingWebhookConfiguration, error) {
	return c.client.AdmissionregistrationV1().MutatingWebhookConfigurations().Get(ctx, c.namespace+"-mutating-hook", metav1.GetOptions{})
}

// registeredURL returns the URL that is registered for the API server.
func registeredURL(ctx context.Context, c *cluster) (string, error) {
	configuration, err := configuration(ctx, c)
	if err != nil {
		return "", err
	}
	if len(configuration.Webhooks) == 0 {
		return "", fmt.Errorf("MutatingWebhookConfiguration %s is empty", configuration.Name)
	}
	return deref(configuration.Webhooks[0].ClientConfig.URL), nil
}

func join[T ~string](words []T) string {
	texts := make([]string, 0, len(words))
	for _, w := range words {
		texts = append(texts, string(w))
	}
	return strings.Join(texts, ", ")
}

func deref[T any](p *T) (v T) {
	if p != nil {
		v = *p
	}
	return v
}
