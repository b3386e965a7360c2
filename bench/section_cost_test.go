package main

import (
	"net/http"
	"net/http/httptest"
	"testing"
	"time"
)

type answers int

func (a answers) RoundTrip(*http.Request) (*http.Response, error) {
	return &http.Response{StatusCode: int(a), Body: http.NoBody}, nil
}

// TestMeter checks that requests are counted by verb, resource and status.
func TestMeter(t *testing.T) {
	const group = "/apis/admissionregistration.k8s.io/v1/mutatingwebhookconfigurations"
	for _, c := range []struct {
		method, url string
		expected    trip
	}{
		{http.MethodPut, "/api/v1/namespaces/n/secrets/s", trip{verb: "update", resource: "secrets", status: 409}},
		{http.MethodGet, group + "/c", trip{verb: "get", resource: "mutatingwebhookconfigurations", status: 409}},
		{http.MethodGet, group + "?watch=true", trip{verb: "watch", resource: "mutatingwebhookconfigurations", status: 409}},
		{http.MethodGet, "/version", trip{verb: "GET", resource: "/version", status: 409}},
	} {
		m := &meter{}
		response, err := metered{m, answers(http.StatusConflict)}.RoundTrip(httptest.NewRequest(c.method, c.url, nil))
		if err != nil {
			t.Fatal(err)
		}
		_ = response.Body.Close()
		c.expected.began = m.trips[0].began
		if *m.trips[0] != c.expected {
			t.Errorf("%s %s is taken for %+v", c.method, c.url, *m.trips[0])
		}
	}
}

// TestTally sees requests counted by when they began.
func TestTally(t *testing.T) {
	r, start := &replica{meter: &meter{}}, time.Now()
	for _, ms := range []int{1500, 0, 900, 999, 5000, 1000, 1600} {
		r.trips = append(r.trips, &trip{began: start.Add(time.Duration(ms) * time.Millisecond)})
	}
	all := tallyOf(start, start.Add(5*time.Second), r)
	if len(all) != 6 || all.busiest() != 5 {
		t.Errorf("%d requests, %d in the busiest second", len(all), all.busiest())
	}
}
