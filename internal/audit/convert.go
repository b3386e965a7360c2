package audit

// This file plays Conversions, in memory.

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
)

// conversionTime bounds the conversions of one object. An API server waits half of that for each.
const conversionTime = time.Minute

// Converted returns a webhook that selects the objects of a Conversion in these versions.
func Converted(crd string, versions ...string) admissionregistrationv1.MutatingWebhook {
	plural, group, _ := strings.Cut(crd, ".")
	return admissionregistrationv1.MutatingWebhook{Rules: []admissionregistrationv1.RuleWithOperations{{
		Operations: []admissionregistrationv1.OperationType{admissionregistrationv1.Create, admissionregistrationv1.Update},
		Rule:       admissionregistrationv1.Rule{APIGroups: []string{group}, APIVersions: versions, Resources: []string{plural}},
	}}}
}

// convert converts an object to the other versions and back. If that does not end, it is a gap, and the last object.
func (e *engine) convert(ctx context.Context, o *object, s *step) (answer, error) {
	limited, cancel := context.WithTimeout(ctx, conversionTime)
	defer cancel()
	ended := make(chan answer, 1)
	go func() {
		a := answer{Finding: Finding{Result: Failed, Message: "a conversion ended its goroutine (runtime.Goexit); return an error instead"}}
		defer func() { ended <- a }()
		a = s.roundTrips(limited, o)
	}()
	select {
	case a := <-ended:
		if limited.Err() == nil {
			return a, nil
		}
	case <-limited.Done(): // the goroutine is left behind
	}
	if ctx.Err() != nil {
		return answer{}, context.Cause(ctx)
	}
	s.unknown = true
	reason := fmt.Sprintf("the conversions of %s from %s and back do not end within %s, so no further one begins", o.head.key(), o.Version, conversionTime)
	return answer{}, e.gap(ctx, &s.Step, o.resource, Gap{Reason: reason, Remedy: "let them return when their context ends"})
}

func (s *step) roundTrips(ctx context.Context, o *object) answer {
	a, texts := answer{Finding: Finding{Result: Passed}}, []string(nil)
	for _, object := range s.Converts.Versions {
		version := object.GetObjectKind().GroupVersionKind().Version
		if version == o.Version {
			continue
		}
		lost, noRoom, err := s.Converts.RoundTrip(ctx, o.stored, o.Version, version)
		if err != nil {
			a.Result = Failed
			texts = append(texts, err.Error())
		} else if len(lost) > 0 {
			a.Result = map[Result]Result{Passed: Drift, Drift: Drift, Failed: Failed}[a.Result]
			fate := map[bool]string{true: "is lost", false: "annotations keep"}[s.Converts.Lossy || noRoom]
			texts = append(texts, fmt.Sprintf("%s cannot hold %s, which %s", version, strings.Join(lost[:min(len(lost), maxPaths)], ", "), fate))
			a.Paths = append(a.Paths, lost...)
		}
	}
	slices.Sort(a.Paths)
	a.Paths = slices.Compact(a.Paths)
	a.Paths, a.Message = a.Paths[:min(len(a.Paths), maxPaths)], shortened(strings.Join(texts, "; "))
	return a
}
