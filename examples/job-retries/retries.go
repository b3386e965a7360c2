package main

import (
	"context"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	batchv1 "k8s.io/api/batch/v1"

	"code.cloudfoundry.org/eirinix"
)

// terraformJob tells Jobs of terraform-controller by the account that they run as: they have no owner and no labels. The
// API server looks at it, so that no other Job is sent at all.
const terraformJob = `object.spec.template.spec.?serviceAccountName.orValue('') == 'tf-executor-service-account'`

// retries is the webhook: a Terraform run that failed is not to be repeated blindly.
func retries() eirinix.Mutation[*batchv1.Job] {
	return eirinix.Mutation[*batchv1.Job]{
		ID: "retries",
		Settings: eirinix.Settings{
			// Of Jobs the default is CREATE alone: most of one cannot be changed later. Its backoffLimit can.
			Operations: []admissionregistrationv1.OperationType{admissionregistrationv1.Create, admissionregistrationv1.Update},
			Conditions: []admissionregistrationv1.MatchCondition{{Name: "terraform-controller", Expression: terraformJob}},
		},
		Apply: func(_ context.Context, c *eirinix.Call, job *batchv1.Job) error {
			if job.Spec.BackoffLimit != nil && *job.Spec.BackoffLimit > 0 {
				c.Warn("backoffLimit is 0 instead of %d: a Terraform run is not repeated blindly", *job.Spec.BackoffLimit)
				job.Spec.BackoffLimit = new(int32(0))
			}
			return nil
		},
	}
}
