package main

import (
	"os"
	"testing"

	. "github.com/onsi/gomega"

	eirinixtest "code.cloudfoundry.org/eirinix/testing"
)

func TestRoundTrip(t *testing.T) {
	definition, err := os.ReadFile("config/batch.example.com_cronjobs.yaml")
	NewWithT(t).Expect(err).NotTo(HaveOccurred())
	losses := eirinixtest.NewHarness(t, cronJobs).CheckRoundTrip(func(o *eirinixtest.RoundTripOptions) {
		o.Definitions = []any{definition} // its schemas limit the random objects
	})
	NewWithT(t).Expect(losses).To(ConsistOf("CronJob v1 -> v1beta1 -> v1: spec.timeZone"))
}

func TestGolden(t *testing.T) {
	eirinixtest.NewHarness(t, cronJobs).GoldenConversions("testdata")
}
