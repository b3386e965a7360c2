package podsecurity

// This file sends the same pod again and again, as several users or at a rate, and measures how long each request takes.

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net/http"
	"slices"
	"sync"
	"sync/atomic"
	"time"
)

// load is a number of requests for the dry-run creation of one pod.
type load struct {
	name     string
	users    int     // each sends its next request when the last is answered; 0 for a rate
	rate     float64 // requests that begin in a second, whatever becomes of those before
	requests int
	pod      pod
}

// answers are the results of a load.
type answers struct {
	took   []time.Duration // sorted
	failed int             // no verdict: the API server could not be asked, or could not ask
	wrong  int             // the other verdict
	reason string          // of the first that failed or is wrong
}

// sender sends pods to the namespaces of one API server.
type sender struct {
	client *http.Client
	host   string
}

// play sends a load and returns its answers. Times of a rate are counted from the moment when a request was due, so that
// a webhook that falls behind cannot hide it.
func (s *sender) play(ctx context.Context, l load, namespace string) answers {
	var (
		all   = make([]time.Duration, l.requests)
		next  atomic.Int64
		mu    sync.Mutex
		a     answers
		tasks sync.WaitGroup
	)
	one := func(i int, began time.Time) {
		refused, err := s.ask(ctx, l.pod, namespace)
		all[i] = time.Since(began)
		if err == nil && refused == l.pod.refused {
			return
		}
		mu.Lock()
		defer mu.Unlock()
		reason := fmt.Sprintf("refused: %t", refused)
		if err != nil {
			a.failed++
			reason = err.Error()
		} else {
			a.wrong++
		}
		if a.reason == "" {
			a.reason = reason
		}
	}
	if l.users == 0 {
		start := time.Now()
		for i := range l.requests {
			due := start.Add(time.Duration(float64(i) / l.rate * float64(time.Second)))
			time.Sleep(time.Until(due))
			tasks.Go(func() { one(i, due) })
		}
	}
	for range l.users {
		tasks.Go(func() {
			for i := int(next.Add(1)) - 1; i < l.requests; i = int(next.Add(1)) - 1 {
				one(i, time.Now())
			}
		})
	}
	tasks.Wait()
	slices.Sort(all)
	a.took = all
	return a
}

// ask creates the pod in a dry run and reports whether it was refused by a verdict. An error is anything else.
func (s *sender) ask(ctx context.Context, p pod, namespace string) (refused bool, err error) {
	url := s.host + "/api/v1/namespaces/" + namespace + "/pods?dryRun=All"
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, url, bytes.NewReader(p.json))
	if err != nil {
		return false, err
	}
	request.Header.Set("Content-Type", "application/json")
	response, err := s.client.Do(request)
	if err != nil {
		return false, err
	}
	defer func() { _ = response.Body.Close() }()
	text, err := io.ReadAll(response.Body)
	switch {
	case err != nil:
		return false, err
	case response.StatusCode == http.StatusCreated:
		return false, nil
	case response.StatusCode < http.StatusInternalServerError && isVerdict(text):
		return true, nil
	}
	return false, fmt.Errorf("%s: %s", response.Status, bytes.TrimSpace(text[:min(len(text), 500)]))
}

// isVerdict reports whether the text of a Status is the API server's about a refusal by a webhook or a policy.
func isVerdict(status []byte) bool {
	return bytes.Contains(status, []byte(" denied the request")) || bytes.Contains(status, []byte(" denied request: "))
}

// percentile returns the smallest time that at least a part of all does not exceed, in milliseconds.
func (a answers) percentile(part float64) float64 {
	if len(a.took) == 0 {
		return 0
	}
	i := min(len(a.took)-1, int(part*float64(len(a.took))))
	return float64(a.took[i].Nanoseconds()) / 1e6
}
