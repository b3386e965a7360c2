package preview

// This file simulates kubectl apply.

import (
	"encoding/json"

	jsonpatchv4 "gopkg.in/evanphx/json-patch.v4"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/jsonmergepatch"
	"k8s.io/apimachinery/pkg/util/strategicpatch"

	"code.cloudfoundry.org/eirinix/internal/apiserver"
)

// applied returns the result of kubectl apply. The manifest's fields are set. Fields that an earlier manifest set and
// this one does not are removed. Fields that others have set are kept.
func applied(scheme *runtime.Scheme, old, manifest apiserver.Document) (apiserver.Document, error) {
	original := []byte(old.Unstructured().GetAnnotations()[corev1.LastAppliedConfigAnnotation])
	if !json.Valid(original) {
		original = nil
	}
	typed, err := scheme.New(manifest.Kind)
	if err != nil { // a custom resource
		patch, err := jsonmergepatch.CreateThreeWayJSONMergePatch(original, manifest.Raw, old.Raw)
		if err != nil {
			return apiserver.Document{}, err
		}
		raw, err := jsonpatchv4.MergePatch(old.Raw, patch)
		return apiserver.NewDocument(manifest.Kind, raw), err
	}
	lookup, err := strategicpatch.NewPatchMetaFromStruct(typed)
	if err != nil {
		return apiserver.Document{}, err
	}
	patch, err := strategicpatch.CreateThreeWayMergePatch(original, manifest.Raw, old.Raw, lookup, true)
	if err != nil {
		return apiserver.Document{}, err
	}
	raw, err := strategicpatch.StrategicMergePatchUsingLookupPatchMeta(old.Raw, patch, lookup)
	return apiserver.NewDocument(manifest.Kind, raw), err
}
