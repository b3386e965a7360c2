package apiserver

// This file plays the updates by which an object goes that has been deleted.

import (
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

// Finalization is the update that removes a finalizer of an object that has been deleted.
type Finalization struct {
	Finalizer string
	Old, New  Document
}

// Finalizing returns the updates that follow the deletion of an object, in order: its finalizers' controllers remove them,
// one after the other. An object without finalizers counts as deleted in the foreground, so that the garbage collector removes
// the finalizer of that.
func Finalizing(d Document) (all []Finalization) {
	finalizers, now := d.Unstructured().GetFinalizers(), metav1.NewTime(time.Now())
	if len(finalizers) == 0 {
		finalizers = []string{metav1.FinalizerDeleteDependents}
	}
	dying := func(finalizers []string) Document {
		return d.With(func(u *unstructured.Unstructured) {
			u.SetDeletionTimestamp(&now)
			u.SetDeletionGracePeriodSeconds(new(int64))
			u.SetFinalizers(finalizers)
		})
	}
	for i, f := range finalizers {
		all = append(all, Finalization{f, dying(finalizers[i:]), dying(finalizers[i+1:])})
	}
	return all
}
