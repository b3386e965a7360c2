// Package packages shows that a Helm chart and a kustomize base hold the objects of package manifests: its tests render
// them with helm's and kustomize's own libraries. It is a module of its own, so that the library does not depend on these.
package packages
