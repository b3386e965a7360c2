package audit

// This file plays Conversions, in memory.

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
)

// conversionTime is how long an API server waits for the way to another version and back.
const conversionTime = time.Minute

// Converted returns a webhook that selects the objects of a Conversion in these versions.
func Converted(crd string, versions ...string) admissionregistrationv1.MutatingWebhook {
	plural, group, _ := strings.Cut(crd, ".")
	return admissionregistrationv1.MutatingWebhook{Rules: []admissionregistrationv1.RuleWithOperations{{
		Operations: []admissionregistrationv1.OperationType{admissionregistrationv1.Create, admissionregistrationv1.Update},
		Rule:       admissionregistrationv1.Rule{APIGroups: []string{group}, APIVersions: versions, Resources: []string{plural}},
	}}}
}

// roundTrips converts an object to each other version of its Conversion and back. The first conversion that does not end
// is a gap, and the last one.
func (e *engine) roundTrips(ctx context.Context, o *object, s *step) (answer, error) {
	a, texts := answer{Finding: Finding{Result: Passed}}, []string(nil)
	for _, v := range s.Converts.Versions {
		if v.Name == o.Version {
			continue
		}
		limited, cancel := context.WithTimeout(ctx, conversionTime)
		var lost []string
		noRoom, err := false, errors.New("the conversion ended its goroutine (runtime.Goexit); return an error instead")
		ended := make(chan struct{})
		go func() {
			defer close(ended)
			lost, noRoom, err = s.Converts.RoundTrip(limited, o.stored, o.Version, v.Name)
		}()
		select {
		case <-ended:
		case <-limited.Done(): // the goroutine is left behind with its results
		}
		late := limited.Err() != nil
		cancel()
		switch {
		case ctx.Err() != nil:
			return answer{}, context.Cause(ctx)
		case late:
			s.untold = true
			reason := fmt.Sprintf("the conversion of %s from %s to %s and back does not end within %s, so no further one begins", o.head.key(), o.Version, v.Name, conversionTime)
			return answer{}, e.gap(ctx, &s.Step, o.resource, Gap{Reason: reason, Remedy: "let it return when its context ends"})
		case err != nil:
			a.Result = Failed
			texts = append(texts, err.Error())
		case len(lost) > 0:
			a.Result = map[Result]Result{Passed: Drift, Drift: Drift, Failed: Failed}[a.Result]
			fate := map[bool]string{true: "is lost", false: "annotations keep"}[s.Converts.Forget || noRoom]
			texts = append(texts, fmt.Sprintf("%s cannot hold %s, which %s", v.Name, strings.Join(lost[:min(len(lost), mostPaths)], ", "), fate))
			a.Paths = append(a.Paths, lost...)
		}
	}
	slices.Sort(a.Paths)
	a.Paths = slices.Compact(a.Paths)
	a.Paths, a.Message = a.Paths[:min(len(a.Paths), mostPaths)], shortened(strings.Join(texts, "; "))
	return a, nil
}
