package spectest

// This file shows metrics as a scrape does.

import (
	"slices"
	"strings"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/common/expfmt"
)

// Shown returns the text of the named metrics of a registry, or of all of them.
func Shown(registry prometheus.Gatherer, names ...string) string {
	GinkgoHelper()
	families, err := registry.Gather()
	Expect(err).NotTo(HaveOccurred())
	var text strings.Builder
	for _, family := range families {
		if len(names) == 0 || slices.Contains(names, family.GetName()) {
			_, err := expfmt.MetricFamilyToText(&text, family)
			Expect(err).NotTo(HaveOccurred())
		}
	}
	return text.String()
}
