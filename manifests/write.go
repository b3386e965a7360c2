package manifests

// This file writes objects: as YAML, as a kustomize base and as a Helm chart.

import (
	"fmt"
	"io"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"code.cloudfoundry.org/eirinix/internal/manifest"
)

// Write writes objects as YAML for kubectl apply, separated by "---". It omits the status and other fields that only a
// cluster fills in. Every object must either set its kind or be of a built-in one.
func Write(w io.Writer, objects ...client.Object) error {
	return named("Write", manifest.Write(w, objects...))
}

// Kustomization writes objects into a folder as a kustomize base: a file for each object, and kustomization.yaml. An
// overlay can change the image, the replicas and more. For another namespace, it must also replace the namespace in rights
// and arguments: docs/gitops.md shows how.
//
// The folder is made if it is missing. A second call with the same objects changes nothing. Files of an earlier call that
// are not needed any more are removed, and other files are left alone. If one of those is in the way, Kustomization writes
// nothing and returns an error that names it.
func Kustomization(dir string, objects ...client.Object) error {
	return named("Kustomization", manifest.WriteKustomization(dir, objects...))
}

// Chart writes objects into a folder as a Helm chart, in the way of Kustomization. There must be one Deployment, that of
// Of. With its own values, the chart renders to the objects. docs/gitops.md lists the values, among them a
// HorizontalPodAutoscaler that is off. The name of a Job ends in a hash of the values, because a Job cannot be changed.
//
// What several replicas have in addition, such as a PodDisruptionBudget, is in the chart only if the objects are for
// several replicas.
func Chart(dir string, objects ...client.Object) error {
	return named("Chart", manifest.WriteChart(dir, objects...))
}

// named adds the names of the package and of a function to its error, if there is one.
func named(function string, err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("eirinix: manifests.%s: %w", function, err)
}
