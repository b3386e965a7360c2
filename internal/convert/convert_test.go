package convert_test

import (
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
)

var _ = Describe("A conversion", func() {
	It("goes from a spoke to the hub", func() {
		got := converted(cronJobs(), "v1", object("v1alpha1", "", `"schedule":"5 4","suspend":true`))
		Expect(got).To(MatchJSON(object("v1", "", `"schedule":{"minute":"5","hour":"4"},"suspend":true`)))
	})
})
