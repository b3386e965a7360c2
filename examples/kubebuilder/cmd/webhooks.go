package main

// This file adds the webhooks to the library's Manager, and prints the rights that they need.

import (
	"io"

	rbacv1 "k8s.io/api/rbac/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"code.cloudfoundry.org/eirinix"
	webhookappsv1 "code.cloudfoundry.org/eirinix/examples/kubebuilder/internal/webhook/apps/v1"
	webhookbatchv1 "code.cloudfoundry.org/eirinix/examples/kubebuilder/internal/webhook/batch/v1"
	webhookcorev1 "code.cloudfoundry.org/eirinix/examples/kubebuilder/internal/webhook/core/v1"
	webhookcrewv1 "code.cloudfoundry.org/eirinix/examples/kubebuilder/internal/webhook/crew/v1"
	webhookshipv1 "code.cloudfoundry.org/eirinix/examples/kubebuilder/internal/webhook/ship/v1"
	"code.cloudfoundry.org/eirinix/manifests"
)

// setupWebhooks adds the seven webhooks. CronJob has two.
func setupWebhooks(x eirinix.Manager) error {
	for _, setup := range []func(eirinix.Manager) error{
		webhookbatchv1.SetupCronJobWebhookWithManager,
		webhookcrewv1.SetupCaptainWebhookWithManager,
		webhookshipv1.SetupDestroyerWebhookWithManager,
		webhookshipv1.SetupFrigateWebhookWithManager,
		webhookcorev1.SetupPodWebhookWithManager,
		webhookappsv1.SetupDeploymentWebhookWithManager,
	} {
		if err := setup(x); err != nil {
			return err
		}
	}
	return nil
}

// writeRights writes the roles and bindings of the webhooks, for the ServiceAccount that kubebuilder scaffolds.
func writeRights(w io.Writer, options eirinix.ManagerOptions) error {
	x := eirinix.NewManager(options)
	if err := setupWebhooks(x); err != nil {
		return err
	}
	objects, err := manifests.Of(x, manifests.Options{Image: "controller:latest", Args: []string{}, ServiceAccountName: "tutorial-controller-manager"})
	if err != nil {
		return err
	}
	var rights []client.Object
	for _, object := range objects {
		if object.GetObjectKind().GroupVersionKind().Group == rbacv1.GroupName {
			rights = append(rights, object)
		}
	}
	return manifests.Write(w, rights...)
}
