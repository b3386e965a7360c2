// Package v1 holds the webhooks of the API group batch.tutorial.example in version v1.
package v1

import (
	"context"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/util/validation/field"
	logf "sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"

	"code.cloudfoundry.org/eirinix"
	batchv1 "code.cloudfoundry.org/eirinix/examples/kubebuilder/api/batch/v1"
	"code.cloudfoundry.org/eirinix/examples/kubebuilder/internal/webhook"
)

var cronjoblog = logf.Log.WithName("cronjob-resource")

// SetupCronJobWebhookWithManager adds the webhooks for CronJob to the manager.
func SetupCronJobWebhookWithManager(x eirinix.Manager) error {
	if err := x.AddExtension(webhook.Defaulting(newCronJobDefaulter(), eirinix.Settings{})); err != nil {
		return err
	}
	return x.AddExtension(webhook.Judging(&CronJobCustomValidator{}, eirinix.Settings{}))
}

// CronJobCustomDefaulter sets the defaults of a CronJob when it is created or updated.
type CronJobCustomDefaulter struct {
	DefaultConcurrencyPolicy          batchv1.ConcurrencyPolicy
	DefaultSuspend                    bool
	DefaultSuccessfulRunsHistoryLimit int32
}

func newCronJobDefaulter() *CronJobCustomDefaulter {
	return &CronJobCustomDefaulter{DefaultConcurrencyPolicy: batchv1.AllowConcurrent, DefaultSuccessfulRunsHistoryLimit: 3}
}

// Default implements admission.Defaulter.
func (d *CronJobCustomDefaulter) Default(_ context.Context, obj *batchv1.CronJob) error {
	cronjoblog.Info("Defaulting for CronJob", "name", obj.GetName())
	if obj.Spec.ConcurrencyPolicy == "" {
		obj.Spec.ConcurrencyPolicy = d.DefaultConcurrencyPolicy
	}
	if obj.Spec.Suspend == nil {
		obj.Spec.Suspend = new(d.DefaultSuspend)
	}
	if obj.Spec.SuccessfulRunsHistoryLimit == nil {
		obj.Spec.SuccessfulRunsHistoryLimit = new(d.DefaultSuccessfulRunsHistoryLimit)
	}
	return nil
}

// CronJobCustomValidator refuses a CronJob that could not run.
type CronJobCustomValidator struct{}

// ValidateCreate implements admission.Validator.
func (v *CronJobCustomValidator) ValidateCreate(_ context.Context, obj *batchv1.CronJob) (admission.Warnings, error) {
	cronjoblog.Info("Validation for CronJob upon creation", "name", obj.GetName())
	return validateCronJob(obj)
}

// ValidateUpdate implements admission.Validator.
func (v *CronJobCustomValidator) ValidateUpdate(_ context.Context, _, newObj *batchv1.CronJob) (admission.Warnings, error) {
	cronjoblog.Info("Validation for CronJob upon update", "name", newObj.GetName())
	return validateCronJob(newObj)
}

// ValidateDelete implements admission.Validator. The webhook is not registered for DELETE.
func (v *CronJobCustomValidator) ValidateDelete(_ context.Context, _ *batchv1.CronJob) (admission.Warnings, error) {
	return nil, nil
}

// longestName leaves room for the eleven characters that a run appends to the name of its CronJob.
const longestName = 63 - 11

func validateCronJob(obj *batchv1.CronJob) (warnings admission.Warnings, err error) {
	var faults field.ErrorList
	if len(obj.Name) > longestName {
		faults = append(faults, field.TooLong(field.NewPath("metadata", "name"), obj.Name, longestName))
	}
	schedule := field.NewPath("spec", "schedule")
	switch fields := strings.Fields(obj.Spec.Schedule); {
	case len(fields) != 5:
		faults = append(faults, field.Invalid(schedule, obj.Spec.Schedule, "must have five fields"))
	case fields[0] == "*":
		warnings = append(warnings, "spec.schedule: this runs every minute")
	}
	if len(faults) == 0 {
		return warnings, nil
	}
	return warnings, apierrors.NewInvalid(batchv1.GroupVersion.WithKind("CronJob").GroupKind(), obj.Name, faults)
}
