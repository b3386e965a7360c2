package main

import (
	"bytes"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
)

// TestPeers checks that every peer does the job on every review, without which its figures mean nothing.
func TestPeers(t *testing.T) {
	quiet()
	eachReview(t, func(t *testing.T, r *review) {
		for _, s := range []spec{{injection(), wanted, r}, {injection(), unwanted, r}, {smallSteps(chainLength), wanted, r}} {
			for _, p := range peers() {
				if s.selects == unwanted && p.name == nameFloor {
					continue // it does not look
				}
				if _, err := checkedCall(p, s); err != nil {
					t.Errorf("%s: %d steps, selecting %q: %v", p.name, len(s.steps), s.selects, err)
				}
			}
		}
	})
}

// TestConversions checks that every peer converts an object.
func TestConversions(t *testing.T) {
	quiet()
	job := newJob(2)
	rev, err := conversionOf(job)
	if err != nil {
		t.Fatal(err)
	}
	ask := func(p peer) error {
		h, err := p.handler(spec{review: rev})
		if err != nil {
			return err
		}
		w := httptest.NewRecorder()
		r := httptest.NewRequest(http.MethodPost, conversionPath, bytes.NewReader(rev.body))
		r.Header.Set("Content-Type", "application/json")
		h.ServeHTTP(w, r)
		return checkConversion(w.Body.Bytes(), rev.uid, job)
	}
	for _, p := range converters() {
		if err := ask(p); err != nil {
			t.Errorf("%s: %v", p.name, err)
		}
	}
}

// BenchmarkInjection is for benchstat, which can put the peers side by side (see README.md):
//
//	go test -run '^$' -bench Injection -count 10 . | tee new.txt
//	go run golang.org/x/perf/cmd/benchstat@v0.0.0-20260908200009-22c9c6c9d4da -col /peer new.txt
func BenchmarkInjection(b *testing.B) {
	quiet()
	eachReview(b, func(b *testing.B, r *review) {
		for _, p := range peers() {
			bench1(b, p, "peer="+p.name, spec{injection(), wanted, r})
		}
	})
}

func bench1(b *testing.B, p peer, name string, s spec) {
	b.Run(name, func(b *testing.B) {
		c, err := checkedCall(p, s)
		if err != nil {
			b.Fatal(err)
		}
		b.ReportAllocs()
		b.SetBytes(int64(len(s.review.raw)))
		for b.Loop() {
			c.do()
		}
	})
}

// eachReview runs f for every captured review, in a sub-test or sub-benchmark of its own.
func eachReview[T interface {
	Fatal(args ...any)
	Run(name string, f func(T)) bool
}](t T, f func(T, *review),
) {
	for _, size := range sizes {
		r, err := loadReview(size)
		if err != nil {
			t.Fatal(err)
		}
		t.Run("pod="+size, func(t T) { f(t, r) })
	}
}

// TestSize holds the binary of a small program to its bound: one call can link the clients of all of Kubernetes.
func TestSize(t *testing.T) {
	var said strings.Builder
	r := &report{w: &said}
	if err := sectionSize(t.Context(), r); err != nil {
		t.Fatal(err)
	}
	if !r.summary() {
		t.Error(said.String())
	}
}
