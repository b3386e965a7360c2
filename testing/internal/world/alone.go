package world

// This file is changes of a single part of a pod, of which a few are left out: those that leave nothing to judge.

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"time"

	admissionv1 "k8s.io/api/admission/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

// spared are namespaces whose objects no step sees.
var spared = []string{"kube-system", "kube-public", "kube-node-lease", namespace}

// partsOfDying are parts that still change while an object dies, and partsOfStoring those by which an object is stored anew as it is.
var partsOfDying, partsOfStoring = []string{"finalizers", "ownerReferences", "managedFields", "resourceVersion", "generation", "status", "deletionGracePeriodSeconds"}, []string{"managedFields", "resourceVersion"}

// drawAlone draws a change of one part of a pod of this name, which is dying half the time.
func (w *World) drawAlone(rng *rand.Rand, name string) edit {
	in, exempt := "shop", ""
	if rng.IntN(8) == 0 {
		in, exempt = spared[rng.IntN(len(spared))], "it is in a namespace of the cluster, or of the program"
		if in == namespace && w.plan.URL { // its own is spared in Service mode
			in, exempt = "shop", ""
		}
	}
	old := podIn(in, name)
	old.SetAnnotations(map[string]string{nonceKey: fmt.Sprintf("%016x", rng.Uint64())})
	old.SetLabels(map[string]string{"app": "shop"})
	old.Object["spec"].(map[string]any)["hostname"] = "before"
	dying := rng.IntN(2) == 0
	if dying {
		dies(old)
	}
	object := old.DeepCopy()
	e := edit{ask: ask{operation: admissionv1.Update, resource: podResource, kind: podKind, old: old, object: object}}
	others := []string{"hostname", "labels", "annotations", "members"}
	all := append(slices.Clone(partsOfDying), others...)
	part := all[rng.IntN(len(all))]
	switch part {
	case "finalizers":
		object.SetFinalizers([]string{"example.com/another"})
	case "ownerReferences":
		object.SetOwnerReferences([]metav1.OwnerReference{{APIVersion: "v1", Kind: "ConfigMap", Name: "owner", UID: "1"}})
	case "managedFields":
		object.SetManagedFields([]metav1.ManagedFieldsEntry{{Manager: "alice", Operation: metav1.ManagedFieldsOperationUpdate, APIVersion: "v1", Time: &metav1.Time{Time: time.Unix(1, 0)}}})
	case "resourceVersion":
		object.SetResourceVersion("2")
	case "generation":
		object.SetGeneration(2)
	case "deletionGracePeriodSeconds":
		_ = unstructured.SetNestedField(object.Object, int64(5), "metadata", part) // it is an object
	case "status":
		object.Object[part] = map[string]any{"phase": "Running"}
	case "hostname":
		object.Object["spec"].(map[string]any)[part] = "after"
	case "labels":
		object.SetLabels(map[string]string{"app": "another"})
	case "annotations":
		all := object.GetAnnotations()
		all["app"] = "another"
		object.SetAnnotations(all)
	case "members":
		object.Object["unknown"] = "of a later API"
	}
	switch {
	case exempt != "":
		e.exempt = exempt
	case dying && slices.Contains(partsOfDying, part):
		e.exempt = "a dying object changes nothing but its " + part
	case !dying && slices.Contains(partsOfStoring, part):
		e.unseen = true
	}
	return e
}
