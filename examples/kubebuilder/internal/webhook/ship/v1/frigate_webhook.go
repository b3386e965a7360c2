package v1

// This file holds the validator of Frigates.

import (
	"context"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/util/validation/field"
	logf "sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"

	"code.cloudfoundry.org/eirinix"
	shipv1 "code.cloudfoundry.org/eirinix/examples/kubebuilder/api/ship/v1"
	"code.cloudfoundry.org/eirinix/examples/kubebuilder/internal/webhook"
)

var frigatelog = logf.Log.WithName("frigate-resource")

// SetupFrigateWebhookWithManager adds the webhook for Frigate to the manager.
func SetupFrigateWebhookWithManager(x eirinix.Manager) error {
	return x.AddExtension(webhook.Validating(&FrigateCustomValidator{}, eirinix.Settings{}))
}

// sailsPerMast is the number of sails that a mast carries.
const sailsPerMast = 5

// FrigateCustomValidator refuses a Frigate with more sails than its masts carry, and a change of its shipyard.
type FrigateCustomValidator struct{}

// ValidateCreate implements admission.Validator.
func (v *FrigateCustomValidator) ValidateCreate(_ context.Context, obj *shipv1.Frigate) (admission.Warnings, error) {
	frigatelog.Info("Validation for Frigate upon creation", "name", obj.GetName())
	return nil, invalid(obj, validateSails(obj))
}

// ValidateUpdate implements admission.Validator.
func (v *FrigateCustomValidator) ValidateUpdate(_ context.Context, oldObj, newObj *shipv1.Frigate) (admission.Warnings, error) {
	frigatelog.Info("Validation for Frigate upon update", "name", newObj.GetName())
	faults := validateSails(newObj)
	if oldObj.Spec.Shipyard != newObj.Spec.Shipyard {
		faults = append(faults, field.Forbidden(field.NewPath("spec", "shipyard"), "a ship is built once"))
	}
	return nil, invalid(newObj, faults)
}

// ValidateDelete implements admission.Validator. The webhook is not registered for DELETE.
func (v *FrigateCustomValidator) ValidateDelete(_ context.Context, _ *shipv1.Frigate) (admission.Warnings, error) {
	return nil, nil
}

func validateSails(obj *shipv1.Frigate) (faults field.ErrorList) {
	if most := obj.Spec.Masts * sailsPerMast; obj.Spec.Sails > most {
		faults = append(faults, field.Invalid(field.NewPath("spec", "sails"), obj.Spec.Sails, "a mast carries five sails at most"))
	}
	return faults
}

func invalid(obj *shipv1.Frigate, faults field.ErrorList) error {
	if len(faults) == 0 {
		return nil
	}
	return apierrors.NewInvalid(shipv1.GroupVersion.WithKind("Frigate").GroupKind(), obj.Name, faults)
}
