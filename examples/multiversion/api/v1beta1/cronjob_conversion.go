package v1beta1

// This file converts CronJobs to version v1 and back.

import (
	"cmp"
	"context"
	"fmt"
	"strings"

	v1 "code.cloudfoundry.org/eirinix/examples/multiversion/api/v1"
)

// ToV1 returns the CronJob in version v1.
func ToV1(_ context.Context, from *CronJob) (*v1.CronJob, error) {
	fields := strings.Fields(from.Spec.Schedule)
	if len(fields) != 5 {
		return nil, fmt.Errorf("spec.schedule %q has %d fields; a line of cron has 5", from.Spec.Schedule, len(fields))
	}
	to := &v1.CronJob{ObjectMeta: from.ObjectMeta}
	to.Spec.Image = from.Spec.Image
	s := &to.Spec.Schedule
	for i, field := range []*string{&s.Minute, &s.Hour, &s.DayOfMonth, &s.Month, &s.DayOfWeek} {
		if fields[i] != "*" {
			*field = fields[i]
		}
	}
	return to, nil
}

// FromV1 returns the CronJob in version v1beta1. That has no time zone, which the library keeps.
func FromV1(_ context.Context, from *v1.CronJob) (*CronJob, error) {
	to := &CronJob{ObjectMeta: from.ObjectMeta}
	to.Spec.Image = from.Spec.Image
	s, fields := from.Spec.Schedule, []string(nil)
	for _, field := range []string{s.Minute, s.Hour, s.DayOfMonth, s.Month, s.DayOfWeek} {
		fields = append(fields, cmp.Or(field, "*"))
	}
	to.Spec.Schedule = strings.Join(fields, " ")
	return to, nil
}
