package world

// This file is a person who takes a registration away while the definition of shops stores objects in two versions.

import (
	"context"
	"math/rand/v2"
	"time"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/runtime"
)

// stores has the definition store these versions, and serve the first one alone, or all.
func (w *World) stores(alone bool, stored ...string) bool {
	found := w.find(definitionKind, "", definitionName)
	var d apiextensionsv1.CustomResourceDefinition
	if found == nil || runtime.DefaultUnstructuredConverter.FromUnstructured(found.Object, &d) != nil {
		return false
	}
	d.APIVersion, d.Kind = found.GetAPIVersion(), found.GetKind()
	d.Status.StoredVersions = stored
	for i := range d.Spec.Versions {
		d.Spec.Versions[i].Served = !alone || d.Spec.Versions[i].Storage
	}
	if err := w.api.Put(&d); err != nil {
		w.violate("the definition cannot be changed: %v", err)
	}
	w.observe()
	return true
}

// unregisters has a replica take the registration away while the definition serves one version and stores two. The definition needs
// its conversion, so all stays as it is.
func (w *World) unregisters(rng *rand.Rand) {
	p := w.any(rng)
	if p == nil || len(webhooksOf(w.find(definitionKind, "", definitionName))) == 0 {
		return
	}
	w.excuse(spoiled, settling)
	if !w.stores(true, first, second) {
		return
	}
	ctx, cancel := w.ctx()
	defer cancel()
	ctx, cancelTimeout := context.WithTimeout(ctx, time.Minute)
	defer cancelTimeout()
	err := p.manager.Unregister(ctx)
	w.tell(p, "is asked to unregister, while the definition of shops stores two versions: %v", err)
	if found := w.find(definitionKind, "", definitionName); found != nil && err == nil && len(webhooksOf(found)) == 0 {
		w.violate("%s has taken the conversion from the definition of shops, which stores two versions", p)
	}
	w.stores(false, definition(w.plan).Status.StoredVersions...)
}
