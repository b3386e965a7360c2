package main

// This file holds the webhook, which caps the retries of Terraform runs.

import (
	"context"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	batchv1 "k8s.io/api/batch/v1"

	"code.cloudfoundry.org/eirinix"
)

// terraformJob matches the Jobs of terraform-controller by their service account, because they have no owner and no
// labels. The API server evaluates it, so that no other Job is sent.
const terraformJob = `object.spec.template.spec.?serviceAccountName.orValue('') == 'tf-executor-service-account'`

// retries returns the webhook, which prevents a failed Terraform run from being repeated.
func retries() eirinix.Mutation[*batchv1.Job] {
	return eirinix.Mutation[*batchv1.Job]{
		ID: "retries",
		Settings: eirinix.Settings{
			// The default for Jobs is only CREATE, because most fields of a Job are immutable. backoffLimit is not.
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
