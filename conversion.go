package eirinix

// This file serves and registers what package conversion defines.

import (
	"slices"

	"k8s.io/apimachinery/pkg/runtime"

	"code.cloudfoundry.org/eirinix/internal/admit"
	"code.cloudfoundry.org/eirinix/internal/list"
	"code.cloudfoundry.org/eirinix/internal/rollout"
	"code.cloudfoundry.org/eirinix/internal/seam"
	"code.cloudfoundry.org/eirinix/internal/webhookconf"
)

// crdsOf returns the names of the definitions.
func crdsOf(conversions []seam.Conversion) []string {
	return list.Of(conversions, func(c seam.Conversion) string { return c.CRD })
}

// conversionPath returns the path of the conversion, without the prefix of a shared server.
func conversionPath(c seam.Conversion) string { return admit.ConvertPrefix + c.CRD }

// versionsOf returns the steps of the conversion's registration, which are its versions.
func versionsOf(c seam.Conversion) []webhookconf.Step {
	return list.Of(c.Versions, func(object runtime.Object) webhookconf.Step {
		return webhookconf.VersionStep(object.GetObjectKind().GroupVersionKind().Version, c.CRD)
	})
}

// conversionEntry returns the registration of the conversion.
func conversionEntry(c seam.Conversion) webhookconf.Entry {
	return webhookconf.Entry{Name: c.CRD, Path: conversionPath(c), Converts: c.CRD, Steps: versionsOf(c)}
}

// convertedElsewhere returns the versions that another live version of the program converts, and this one does not.
func convertedElsewhere(c seam.Conversion, route rollout.Route) (names []string) {
	own := versionsOf(c)
	for _, key := range route.Steps {
		if !slices.Contains(route.Removed, key) && !slices.ContainsFunc(own, func(s webhookconf.Step) bool { return s.Is(key) }) {
			names = append(names, webhookconf.VersionOf(key, c.CRD))
		}
	}
	return names
}

// conversionsName returns the name of the Secret that holds the keys of conversions.
func (o ManagerOptions) conversionsName() string { return o.OperatorFingerprint + "-conversions" }

// keepsLosses reports whether a conversion keeps what a version cannot hold.
func (s setup) keepsLosses() bool {
	return slices.ContainsFunc(s.conversions, func(c seam.Conversion) bool { return !c.Lossy })
}
