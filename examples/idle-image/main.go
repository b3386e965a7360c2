// Idle-image makes every Deployment of the labeled namespaces run an image that only idles. A developer can then exec
// into the pod and start the real process by hand.
package main

import (
	"context"
	"fmt"
	"log"
	"time"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	logf "sigs.k8s.io/controller-runtime/pkg/log"

	"code.cloudfoundry.org/eirinix"
	"code.cloudfoundry.org/eirinix/examples/cli"
)

const (
	idleImage = "empty-container:latest"
	label     = "inject-empty-container"
)

func main() {
	log.SetFlags(0)
	x := eirinix.NewManager(cli.Options("idle-image-example"))
	// The API server evaluates the labels of the namespaces, so that objects of other namespaces cost no call.
	settings := eirinix.Settings{
		Namespaces: &metav1.LabelSelector{MatchLabels: map[string]string{label: "enabled"}},
		// The Event is a side effect, which a dry run must not have.
		SideEffects: admissionregistrationv1.SideEffectClassNoneOnDryRun,
	}
	for _, step := range []any{
		eirinix.Mutation[*appsv1.Deployment]{ID: "deployments", Settings: settings, Apply: idle},
		eirinix.Mutation[*corev1.Service]{ID: "services", Settings: settings, Apply: publish},
	} {
		if err := x.AddExtension(step); err != nil {
			log.Fatal(err)
		}
	}
	if err := cli.Run(x, rights(x)...); err != nil {
		log.Fatal(err)
	}
}

// idle is called for CREATE and for UPDATE, so that no client can restore the old image with an update.
func idle(ctx context.Context, c *eirinix.Call, d *appsv1.Deployment) error {
	containers := d.Spec.Template.Spec.Containers
	if len(containers) == 0 || containers[0].Image == idleImage {
		return nil
	}
	was := containers[0].Image
	containers[0].Image = idleImage
	c.Warn("container %q idles in %s instead of running %s", containers[0].Name, idleImage, was)
	if c.DryRun != nil && *c.DryRun {
		return nil
	}
	if err := tell(ctx, c, d, "Idles instead of running "+was); err != nil {
		// The Event is a courtesy. An error would refuse the Deployment.
		logf.FromContext(ctx).Error(err, "cannot tell which image was replaced")
	}
	return nil
}

// publish makes a Service include pods that are not ready, because they are not ready until a developer starts the real
// process.
func publish(_ context.Context, _ *eirinix.Call, s *corev1.Service) error {
	s.Spec.PublishNotReadyAddresses = true
	return nil
}

// tell creates an Event, for kubectl events.
func tell(ctx context.Context, c *eirinix.Call, d *appsv1.Deployment, what string) error {
	client, err := c.Manager.GetKubeClient()
	if err != nil {
		return err
	}
	now := metav1.NewTime(time.Now())
	_, err = client.Events(c.Namespace).Create(ctx, &corev1.Event{
		ObjectMeta:     metav1.ObjectMeta{GenerateName: "idle-image-", Namespace: c.Namespace},
		InvolvedObject: corev1.ObjectReference{APIVersion: "apps/v1", Kind: "Deployment", Namespace: c.Namespace, Name: d.Name},
		Reason:         "ImageReplaced", Message: what, Type: corev1.EventTypeNormal, Count: 1,
		Source: corev1.EventSource{Component: "idle-image"}, FirstTimestamp: now, LastTimestamp: now,
	}, metav1.CreateOptions{})
	if err != nil {
		return fmt.Errorf("needs create on events: %w", err)
	}
	return nil
}
