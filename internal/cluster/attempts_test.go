package cluster

import (
	"context"
	"io"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-logr/logr"
	. "github.com/onsi/gomega"
	"k8s.io/client-go/rest"
)

// forbids refuses all requests.
type forbids struct{}

func (forbids) RoundTrip(r *http.Request) (*http.Response, error) {
	return &http.Response{
		StatusCode: http.StatusForbidden, Header: http.Header{"Content-Type": {"application/json"}}, Request: r,
		Body: io.NopCloser(strings.NewReader(`{"kind":"Status","apiVersion":"v1","status":"Failure","reason":"Forbidden","code":403}`)),
	}, nil
}

func TestAttemptsAreSecondsApartWhereDefinitionsMayNotBeWatched(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Minute)
		defer cancel()
		a := NewAttempts(&rest.Config{Host: "http://cluster", Transport: forbids{}}, logr.Discard(), func(f func()) { go f() })
		last := time.Now()
		for n := 0; a.Await(ctx, true, true, nil, nil); n++ {
			NewWithT(t).Expect(time.Since(last)).To(BeNumerically("<=", 5*time.Second), "attempt %d", n)
			last = time.Now()
		}
		synctest.Wait()
	})
}
