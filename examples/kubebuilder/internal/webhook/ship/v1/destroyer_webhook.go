// Package v1 holds the webhooks of the API group ship.tutorial.example in version v1.
package v1

// This file holds the defaulter of Destroyers.

import (
	"context"

	logf "sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"

	"code.cloudfoundry.org/eirinix"
	shipv1 "code.cloudfoundry.org/eirinix/examples/kubebuilder/api/ship/v1"
	"code.cloudfoundry.org/eirinix/examples/kubebuilder/internal/webhook"
)

var destroyerlog = logf.Log.WithName("destroyer-resource")

// SetupDestroyerWebhookWithManager adds the webhook for Destroyer to the manager.
func SetupDestroyerWebhookWithManager(x eirinix.Manager) error {
	return x.AddExtension(webhook.Defaulting(&DestroyerCustomDefaulter{DefaultCrew: 300}, eirinix.Settings{}))
}

// builderAnnotation names the user who created a Destroyer.
const builderAnnotation = "ship.tutorial.example/builder"

// DestroyerCustomDefaulter sets the defaults of a Destroyer when it is created or updated.
type DestroyerCustomDefaulter struct {
	DefaultCrew int32
}

// Default implements admission.Defaulter.
func (d *DestroyerCustomDefaulter) Default(ctx context.Context, obj *shipv1.Destroyer) error {
	destroyerlog.Info("Defaulting for Destroyer", "name", obj.GetName())
	if obj.Spec.Class == "" {
		obj.Spec.Class = obj.Name
	}
	if obj.Spec.Crew == nil {
		obj.Spec.Crew = new(d.DefaultCrew)
	}
	req, err := admission.RequestFromContext(ctx)
	if err != nil || obj.Annotations[builderAnnotation] != "" {
		return err
	}
	if obj.Annotations == nil {
		obj.Annotations = map[string]string{}
	}
	obj.Annotations[builderAnnotation] = req.UserInfo.Username
	return nil
}
