// Package v1 holds the webhook for Deployments.
package v1

import (
	"context"
	"errors"
	"fmt"

	appsv1 "k8s.io/api/apps/v1"
	logf "sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"

	"code.cloudfoundry.org/eirinix"
	"code.cloudfoundry.org/eirinix/examples/kubebuilder/internal/webhook"
)

var deploymentlog = logf.Log.WithName("deployment-resource")

// SetupDeploymentWebhookWithManager adds the webhook for Deployment to the manager.
func SetupDeploymentWebhookWithManager(x eirinix.Manager) error {
	return x.AddExtension(webhook.Validating(&DeploymentCustomValidator{MaxReplicas: 50}, eirinix.Settings{}))
}

// ownerLabel names the team that answers for a Deployment.
const ownerLabel = "tutorial.example/team"

// DeploymentCustomValidator refuses a Deployment without a team, or with too many replicas.
type DeploymentCustomValidator struct {
	MaxReplicas int32
}

// ValidateCreate implements admission.Validator.
func (v *DeploymentCustomValidator) ValidateCreate(_ context.Context, obj *appsv1.Deployment) (admission.Warnings, error) {
	deploymentlog.Info("Validation for Deployment upon creation", "name", obj.GetName())
	return nil, v.validate(obj)
}

// ValidateUpdate implements admission.Validator.
func (v *DeploymentCustomValidator) ValidateUpdate(_ context.Context, _, newObj *appsv1.Deployment) (admission.Warnings, error) {
	deploymentlog.Info("Validation for Deployment upon update", "name", newObj.GetName())
	return nil, v.validate(newObj)
}

// ValidateDelete implements admission.Validator. The webhook is not registered for DELETE.
func (v *DeploymentCustomValidator) ValidateDelete(_ context.Context, _ *appsv1.Deployment) (admission.Warnings, error) {
	return nil, nil
}

func (v *DeploymentCustomValidator) validate(obj *appsv1.Deployment) error {
	var errs []error
	if obj.Labels[ownerLabel] == "" {
		errs = append(errs, fmt.Errorf("the label %s is missing", ownerLabel))
	}
	if n := obj.Spec.Replicas; n != nil && *n > v.MaxReplicas {
		errs = append(errs, fmt.Errorf("%d replicas are too many; the most is %d", *n, v.MaxReplicas))
	}
	return errors.Join(errs...)
}
