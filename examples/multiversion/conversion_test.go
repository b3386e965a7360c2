package main

import (
	"strings"
	"testing"

	. "github.com/onsi/gomega"
	"sigs.k8s.io/randfill"

	v1 "code.cloudfoundry.org/eirinix/examples/multiversion/api/v1"
	"code.cloudfoundry.org/eirinix/examples/multiversion/api/v1beta1"
	eirinixtest "code.cloudfoundry.org/eirinix/testing"
)

func TestRoundTrip(t *testing.T) {
	losses := eirinixtest.NewHarness(t, cronJobs).CheckRoundTrip(func(o *eirinixtest.RoundTripOptions) {
		o.Fill = []any{fillSchedule, fillSpec} // the schema refuses other schedules
	})
	NewWithT(t).Expect(losses).To(ConsistOf("CronJob v1 -> v1beta1 -> v1: spec.timeZone"))
}

func TestGolden(t *testing.T) {
	eirinixtest.NewHarness(t, cronJobs).GoldenConversions("testdata")
}

// fillSchedule leaves some fields empty, which means "*".
func fillSchedule(s *v1.CronSchedule, c randfill.Continue) {
	for _, field := range []*string{&s.Minute, &s.Hour, &s.DayOfMonth, &s.Month, &s.DayOfWeek} {
		*field = []string{"", "1", "*/2", "1-4", "1,3"}[c.Intn(5)]
	}
}

// fillSpec makes a line of cron.
func fillSpec(s *v1beta1.CronJobSpec, c randfill.Continue) {
	c.FillNoCustom(s)
	fields := make([]string, 5)
	for i := range fields {
		fields[i] = []string{"*", "1", "*/2", "1-4", "1,3"}[c.Intn(5)]
	}
	s.Schedule = strings.Join(fields, " ")
}
