package main

// This file measures what shadows, and steps that hang, cost the calls beside them.

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"
	"k8s.io/apimachinery/pkg/util/wait"

	"code.cloudfoundry.org/eirinix/internal/admit"
)

const (
	fiveSteps     = "five"     // webhook of five mutations
	withShadows   = "shadowed" // the same, with an idle mutation in Shadow after each
	shadowRounds  = 15
	shadowedCalls = 300 // of each webhook in a round: more than a queue holds
	counted       = 2000
	shadowBound   = 1.05
	hungRuns      = 6 // each holds an object of 1.7 MB
)

// sectionShadows measures the webhooks that serveHostile serves for it.
func sectionShadows(ctx context.Context, r *report) (err error) {
	r.title("Shadows, and steps that hang")
	server, err := startProgram(nil, "-hostile")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, server.stop()) }()
	w := &watched{client: server.client(false), server: server}
	for _, size := range []string{middle, sizes[len(sizes)-1]} {
		review, err := loadReview(size)
		if err != nil {
			return err
		}
		if err := w.compareShadows(ctx, r, review); err != nil {
			return err
		}
	}
	if err := w.countShadows(ctx, r); err != nil {
		return err
	}
	return w.besideHungRuns(ctx, r)
}

// watched calls the webhooks of one server, and reads its metrics.
type watched struct {
	client *http.Client
	server *child
}

// call returns how long a call took, and its status.
func (w *watched) call(ctx context.Context, webhook string, body []byte) (time.Duration, int, error) {
	began := time.Now()
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, w.server.at(admit.MutatePrefix+webhook+"?timeout=10s"), bytes.NewReader(body))
	if err != nil {
		return 0, 0, err
	}
	request.Header.Set("Content-Type", "application/json")
	resp, err := w.client.Do(request)
	if err != nil {
		return 0, 0, err
	}
	_, err = io.Copy(io.Discard, resp.Body)
	return time.Since(began), resp.StatusCode, errors.Join(err, resp.Body.Close())
}

// metric sums the values of the series of a metric that have a label with this value. Of a histogram, it sums the sums.
func (w *watched) metric(ctx context.Context, name string, values ...string) (sum float64, err error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, w.server.at("/metrics"), nil)
	if err != nil {
		return 0, err
	}
	resp, err := w.client.Do(request)
	if err != nil {
		return 0, err
	}
	defer func() { _ = resp.Body.Close() }()
	parser := expfmt.NewTextParser(model.UTF8Validation)
	families, err := parser.TextToMetricFamilies(resp.Body)
	if err != nil {
		return 0, err
	}
	for _, series := range families[name].GetMetric() {
		labels := map[string]bool{}
		for _, l := range series.GetLabel() {
			labels[l.GetValue()] = true
		}
		if !slices.ContainsFunc(values, func(v string) bool { return !labels[v] }) {
			sum += series.GetCounter().GetValue() + series.GetGauge().GetValue() + series.GetHistogram().GetSampleSum()
		}
	}
	return sum, nil
}

// until waits until a metric has a value.
func (w *watched) until(ctx context.Context, value float64, name string, labels ...string) error {
	err := wait.PollUntilContextTimeout(ctx, 10*time.Millisecond, time.Minute, true, func(ctx context.Context) (bool, error) {
		now, err := w.metric(ctx, name, labels...)
		return now >= value, err
	})
	if err != nil {
		return fmt.Errorf("waiting for %s of %s to be %g: %w", name, strings.Join(labels, ", "), value, err)
	}
	return nil
}

const decisionsTotal = "eirinix_admission_decisions_total"

// compareShadows takes turns between five mutations, and the same with idle shadows. A round ends when the shadows have
// run, so that they are beside calls of their own webhook alone.
func (w *watched) compareShadows(ctx context.Context, r *report, review *review) error {
	var byClient, byMetric []float64
	for round := range shadowRounds + 1 { // the first one warms up
		client, metric := map[string]float64{}, map[string]float64{}
		for _, webhook := range []string{fiveSteps, withShadows} {
			before, err := w.metric(ctx, "eirinix_admission_duration_seconds", webhook)
			if err != nil {
				return err
			}
			took := make([]float64, 0, shadowedCalls)
			for range shadowedCalls {
				d, status, err := w.call(ctx, webhook, review.body)
				if err != nil || status != http.StatusOK {
					return errors.Join(err, fmt.Errorf("%s: HTTP %d", webhook, status))
				}
				took = append(took, d.Seconds())
			}
			after, err := w.metric(ctx, "eirinix_admission_duration_seconds", webhook)
			if err != nil {
				return err
			}
			slices.Sort(took)
			client[webhook], metric[webhook] = took[len(took)/2], after-before
			if err := w.idle(ctx); err != nil {
				return err
			}
		}
		if round > 0 {
			byClient = append(byClient, client[withShadows]/client[fiveSteps])
			byMetric = append(byMetric, metric[withShadows]/metric[fiveSteps])
		}
	}
	r.judge(quartiles(byClient).median, shadowBound, "five idle shadows between five mutations, %s, by the client", review.name)
	r.judge(quartiles(byMetric).median, shadowBound, "five idle shadows between five mutations, %s, by the metric", review.name)
	return nil
}

// idle waits until no shadow has been decided for a while.
func (w *watched) idle(ctx context.Context) error {
	last := -1.0
	return wait.PollUntilContextTimeout(ctx, 50*time.Millisecond, time.Minute, true, func(ctx context.Context) (bool, error) {
		now, err := w.metric(ctx, decisionsTotal, withShadows)
		done := now == last
		last = now
		return done, err
	})
}

// countShadows calls a webhook with a shadow that hangs, and one that denies at once.
func (w *watched) countShadows(ctx context.Context, r *report) error {
	review, err := loadReview(sizes[0])
	if err != nil {
		return err
	}
	for n := range counted {
		if _, status, err := w.call(ctx, besideShadow, review.body); err != nil || status != http.StatusOK {
			return errors.Join(err, fmt.Errorf("%s: HTTP %d", besideShadow, status))
		}
		if n%100 == 99 { // an API server that never pauses would measure the speed of the machine
			if err := w.until(ctx, float64(n)/2, decisionsTotal, "quick"); err != nil {
				return err
			}
		}
	}
	if err := w.until(ctx, counted, decisionsTotal, "quick"); err != nil {
		return err
	}
	missed, err := w.metric(ctx, decisionsTotal, "quick", "dropped")
	if err != nil {
		return err
	}
	dropped, err := w.metric(ctx, decisionsTotal, hangs, "dropped")
	r.line("the shadow that hangs was not run for %.0f of %d requests", dropped, counted)
	r.judge(missed, 0, "requests of %d that a quick shadow has not seen beside one that hangs", counted)
	return err
}

// besideHungRuns calls a webhook with large objects after runs of other webhooks with such objects have been left behind,
// in every mode.
func (w *watched) besideHungRuns(ctx context.Context, r *report) error {
	for _, size := range []int{1_000_000, 1_700_000} {
		large := pod(`"containers":[{"name":"a","env":[` + strings.Repeat(`{"name":"a","value":"a value of some length"},`, size/46) + `{"name":"b"}]}]`)
		alone, err := w.slowest(ctx, large)
		if err != nil {
			return err
		}
		beside := 0.0
		for _, webhook := range hungWebhooks() {
			for range hungRuns {
				if _, _, err := w.call(ctx, webhook, large); err != nil {
					return err
				}
				took, err := w.slowest(ctx, large)
				if err != nil {
					return fmt.Errorf("beside %s: %w", webhook, err)
				}
				beside = max(beside, took)
			}
		}
		r.line("slowest of calls with %d bytes: %.0f ms alone, %.0f ms after runs that hang", len(large), 1000*alone, 1000*beside)
		r.judge(beside-alone, 0.5, "delay by runs that hang on objects of %.1f MB, in every mode, s", float64(size)/1e6)
	}
	return nil
}

// slowest returns the seconds that the slowest of some calls with an object takes.
func (w *watched) slowest(ctx context.Context, body []byte) (slowest float64, err error) {
	for range 3 {
		d, status, err := w.call(ctx, fiveSteps, body)
		if err != nil || status != http.StatusOK {
			return 0, errors.Join(err, fmt.Errorf("HTTP %d", status))
		}
		slowest = max(slowest, d.Seconds())
	}
	return slowest, nil
}
