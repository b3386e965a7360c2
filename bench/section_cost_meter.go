package main

// This file counts the requests of replicas to the API server.

import (
	"cmp"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apiserver/pkg/endpoints/request"
	"k8s.io/client-go/rest"
)

// meter counts the requests that are made with a rest.Config. A request counts when it begins, whatever its result.
type meter struct {
	mu    sync.Mutex
	trips []*trip
}

// trip is one request. Its status is 0 until a response arrives, and stays 0 if none does.
type trip struct {
	began          time.Time
	verb, resource string
	status         int
}

func (t *trip) updated(status int) bool { return t.verb == "update" && t.status == status }

// apiServerView determines the verb and resource of a request as audit logs do.
var apiServerView = request.RequestInfoFactory{APIPrefixes: sets.NewString("api", "apis"), GrouplessAPIPrefixes: sets.NewString("api")}

func (m *meter) count(config *rest.Config) {
	config.Wrap(func(next http.RoundTripper) http.RoundTripper { return metered{m, next} })
}

type metered struct {
	meter *meter
	next  http.RoundTripper
}

// WrappedRoundTripper lets client-go find the transport and close its connections when they are broken.
func (m metered) WrappedRoundTripper() http.RoundTripper { return m.next }

func (m metered) RoundTrip(r *http.Request) (*http.Response, error) {
	t := &trip{began: time.Now(), verb: r.Method, resource: r.URL.Path}
	if info, err := apiServerView.NewRequestInfo(r); err == nil && info.IsResourceRequest {
		t.verb, t.resource = info.Verb, info.Resource
	}
	m.meter.mu.Lock()
	m.meter.trips = append(m.meter.trips, t)
	m.meter.mu.Unlock()
	response, err := m.next.RoundTrip(r)
	if err == nil {
		m.meter.mu.Lock()
		t.status = response.StatusCode
		m.meter.mu.Unlock()
	}
	return response, err
}

// tally holds the requests of some replicas in a period, in the order in which they began.
type tally []trip

func tallyOf(from, to time.Time, replicas ...*replica) (all tally) {
	for _, r := range replicas {
		r.mu.Lock()
		for _, t := range r.trips {
			if !t.began.Before(from) && t.began.Before(to) {
				all = append(all, *t)
			}
		}
		r.mu.Unlock()
	}
	slices.SortFunc(all, func(a, b trip) int { return a.began.Compare(b.began) })
	return all
}

// having counts the requests that satisfy a condition.
func (all tally) having(wanted func(*trip) bool) (n int) {
	for i := range all {
		if wanted(&all[i]) {
			n++
		}
	}
	return n
}

// busiest returns the largest number of requests that began within one second.
func (all tally) busiest() (most int) {
	first := 0
	for i := range all {
		for all[i].began.Sub(all[first].began) >= time.Second {
			first++
		}
		most = max(most, i-first+1)
	}
	return most
}

// kinds prints the number of requests of each kind, multiplied by a factor.
func (all tally) kinds(r *report, factor float64) {
	kinds := map[string]int{}
	for _, t := range all {
		name := t.verb + " " + t.resource
		if t.status == 0 {
			name += ": no answer"
		} else if t.status >= http.StatusBadRequest {
			name += fmt.Sprintf(": %d", t.status)
		}
		kinds[name]++
	}
	names := slices.SortedFunc(maps.Keys(kinds), func(a, b string) int {
		return cmp.Or(kinds[b]-kinds[a], strings.Compare(a, b))
	})
	for _, name := range names {
		r.line("    %8.1f  %s", float64(kinds[name])*factor, name)
	}
}
