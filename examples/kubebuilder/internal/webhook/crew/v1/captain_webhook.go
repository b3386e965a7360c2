// Package v1 holds the webhook of the API group crew.tutorial.example in version v1.
package v1

import (
	"context"
	"fmt"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	logf "sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"

	"code.cloudfoundry.org/eirinix"
	crewv1 "code.cloudfoundry.org/eirinix/examples/kubebuilder/api/crew/v1"
	"code.cloudfoundry.org/eirinix/examples/kubebuilder/internal/webhook"
)

var captainlog = logf.Log.WithName("captain-resource")

// SetupCaptainWebhookWithManager adds the webhook for Captain to the manager.
func SetupCaptainWebhookWithManager(x eirinix.Manager) error {
	return x.AddExtension(webhook.Validating(&CaptainCustomValidator{}, eirinix.Settings{
		Operations: []admissionregistrationv1.OperationType{
			admissionregistrationv1.Create, admissionregistrationv1.Update, admissionregistrationv1.Delete,
		},
	}))
}

// maxRank is the rank of an admiral of the fleet.
const maxRank = 10

// CaptainCustomValidator refuses ranks that do not exist, demotions, and the end of a captain in command.
type CaptainCustomValidator struct{}

// ValidateCreate implements admission.Validator.
func (v *CaptainCustomValidator) ValidateCreate(_ context.Context, obj *crewv1.Captain) (admission.Warnings, error) {
	captainlog.Info("Validation for Captain upon creation", "name", obj.GetName())
	return nil, validateRank(obj)
}

// ValidateUpdate implements admission.Validator.
func (v *CaptainCustomValidator) ValidateUpdate(_ context.Context, oldObj, newObj *crewv1.Captain) (admission.Warnings, error) {
	captainlog.Info("Validation for Captain upon update", "name", newObj.GetName())
	if newObj.Spec.Rank < oldObj.Spec.Rank {
		return nil, fmt.Errorf("captain %s has rank %d; it cannot fall to %d", newObj.Name, oldObj.Spec.Rank, newObj.Spec.Rank)
	}
	return nil, validateRank(newObj)
}

// ValidateDelete implements admission.Validator.
func (v *CaptainCustomValidator) ValidateDelete(_ context.Context, obj *crewv1.Captain) (admission.Warnings, error) {
	captainlog.Info("Validation for Captain upon deletion", "name", obj.GetName())
	if obj.Spec.Ship != "" {
		return nil, fmt.Errorf("captain %s commands the %s; appoint another captain first", obj.Name, obj.Spec.Ship)
	}
	return nil, nil
}

func validateRank(obj *crewv1.Captain) error {
	if obj.Spec.Rank > maxRank {
		return fmt.Errorf("rank %d does not exist; the highest is %d", obj.Spec.Rank, maxRank)
	}
	return nil
}
