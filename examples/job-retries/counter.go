package main

// This file holds a controller that represents the operator's existing work.

import (
	"context"
	"strconv"

	batchv1 "k8s.io/api/batch/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
)

const failures = "example.org/failures"

// counter represents the operator's existing work. It records in an annotation how often a Job has failed.
type counter struct{ client client.Client }

func (c *counter) Reconcile(ctx context.Context, req reconcile.Request) (reconcile.Result, error) {
	job := &batchv1.Job{}
	if err := c.client.Get(ctx, req.NamespacedName, job); err != nil {
		return reconcile.Result{}, client.IgnoreNotFound(err)
	}
	failed := strconv.Itoa(int(job.Status.Failed))
	if job.Annotations[failures] == failed || job.DeletionTimestamp != nil {
		return reconcile.Result{}, nil
	}
	before := job.DeepCopy()
	metav1.SetMetaDataAnnotation(&job.ObjectMeta, failures, failed)
	return reconcile.Result{}, client.IgnoreNotFound(c.client.Patch(ctx, job, client.MergeFrom(before)))
}
