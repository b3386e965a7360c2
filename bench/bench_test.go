package main

import (
	"bytes"
	"fmt"
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

// TestCheckAnswer expects the check to refuse a peer that does another job than the requested one.
func TestCheckAnswer(t *testing.T) {
	quiet()
	eachReview(t, func(t *testing.T, r *review) {
		h, err := crDefaulter(spec{smallSteps(1), wanted, r})
		if err != nil {
			t.Fatal(err)
		}
		c := newCall(h, r)
		c.do()
		if err := checkAnswer(spec{injection(), wanted, r}, c.answer.status, c.answer.body.Bytes()); err == nil {
			t.Error("an answer that does something else passed")
		}
		other := *r
		other.uid = "another"
		if err := checkAnswer(spec{smallSteps(1), wanted, &other}, c.answer.status, c.answer.body.Bytes()); err == nil {
			t.Error("an answer to something else passed")
		}
	})
}

// TestConversions checks that every peer converts an object, and that the check refuses another one.
func TestConversions(t *testing.T) {
	quiet()
	job := newJob(2)
	rev, err := conversionOf(job)
	if err != nil {
		t.Fatal(err)
	}
	ask := func(p peer, body []byte) error {
		h, err := p.handler(spec{review: rev})
		if err != nil {
			return err
		}
		w := httptest.NewRecorder()
		r := httptest.NewRequest(http.MethodPost, conversionPath, bytes.NewReader(body))
		r.Header.Set("Content-Type", "application/json")
		h.ServeHTTP(w, r)
		return checkConversion(w.Body.Bytes(), rev.uid, job)
	}
	for _, p := range converters() {
		if err := ask(p, rev.body); err != nil {
			t.Errorf("%s: %v", p.name, err)
		}
	}
	if err := ask(converters()[0], bytes.Replace(rev.body, []byte(`"schedule":"5 4"`), []byte(`"schedule":"5 3"`), 1)); err == nil {
		t.Error("an answer with another object passed")
	}
	if err := ask(converters()[0], bytes.Replace(rev.body, []byte(hubVersion.String()), []byte(spokeVersion.String()), 1)); err == nil {
		t.Error("an answer in another version passed")
	}
}

// TestManagedFields checks that the reviews are as they arrive in production: a third to a half of a pod's text
// is managedFields, and every reader of JSON has to get through it.
func TestManagedFields(t *testing.T) {
	eachReview(t, func(t *testing.T, r *review) {
		size := 0
		for _, f := range r.pod.ManagedFields {
			size += len(f.FieldsV1.GetRawBytes())
		}
		if share := float64(size) / float64(len(r.raw)); share < 0.3 || share > 0.55 {
			t.Errorf("managedFields are %.2f of the pod", share)
		}
	})
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

// BenchmarkUnwanted is about a pod that no step wants.
func BenchmarkUnwanted(b *testing.B) {
	quiet()
	eachReview(b, func(b *testing.B, r *review) {
		for _, p := range peersNamed(nameOurs, nameDefaulter, nameWebhook, nameKubewebhook, nameAgnhost) {
			bench1(b, p, "peer="+p.name, spec{injection(), unwanted, r})
		}
	})
}

// BenchmarkSteps is about several steps in one call.
func BenchmarkSteps(b *testing.B) {
	quiet()
	eachReview(b, func(b *testing.B, r *review) {
		for _, p := range peersNamed(nameOurs, nameDefaulter) {
			for _, n := range []int{1, 3, chainLength} {
				bench1(b, p, fmt.Sprintf("steps=%d/peer=%s", n, p.name), spec{smallSteps(n), wanted, r})
			}
		}
	})
}

// BenchmarkContainers is about growing pods.
func BenchmarkContainers(b *testing.B) {
	quiet()
	r, err := loadReview(middle)
	if err != nil {
		b.Fatal(err)
	}
	for _, n := range []int{1, 10, 100} {
		grown, err := r.withContainers(n)
		if err != nil {
			b.Fatal(err)
		}
		for _, p := range peersNamed(nameOurs, nameDefaulter) {
			bench1(b, p, fmt.Sprintf("containers=%d/peer=%s", n, p.name), spec{injection(), wanted, grown})
		}
	}
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
