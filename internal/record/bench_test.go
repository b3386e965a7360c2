package record_test

import (
	"context"
	"io"
	"net/http"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/go-logr/logr"

	"code.cloudfoundry.org/eirinix/internal/admit"
	"code.cloudfoundry.org/eirinix/internal/record"
)

// benchReview is a review of 22 KB.
func benchReview() string {
	env := strings.TrimSuffix(strings.Repeat(`{"name":"VARIABLE","value":"some value of usual length"},`, 375), ",")
	return review(`{"apiVersion":"v1","kind":"Pod","metadata":{"name":"web-0","namespace":"cf"},"spec":{"containers":[{"name":"web","image":"nginx","env":[` + env + `]}]}}`)
}

// discard is a ResponseWriter without a connection.
type discard struct{ header http.Header }

func (d *discard) Header() http.Header         { return d.header }
func (d *discard) WriteHeader(int)             {}
func (d *discard) Write(p []byte) (int, error) { return len(p), nil }

// BenchmarkServe compares a handler alone, with a recorder that takes no more calls, with one that is full, so that calls
// are copied and dropped, and with one that writes calls in the background as fast as it can. So it does for a
// handler that only reads, which shows the cost of the copy.
func BenchmarkServe(b *testing.B) {
	h := &admit.Handler{MaxBytes: 1 << 20}
	h.Serve(path, handling(allow))
	b.Run("admit", func(b *testing.B) { compare(b, h) })
	space := make([]byte, 64<<10)
	answer := []byte(answerWith("W10="))
	b.Run("reader", func(b *testing.B) {
		compare(b, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			_, _ = io.ReadFull(r.Body, space[:r.ContentLength])
			_, _ = w.Write(answer)
		}))
	})
}

func compare(b *testing.B, h http.Handler) {
	b.Helper()
	body := benchReview()
	recorded := func(b *testing.B, change func(*record.Options)) *record.Recorder {
		b.Helper()
		o := record.Options{Dir: b.TempDir()}
		if change != nil {
			change(&o)
		}
		r, err := record.New(o, logr.Discard())
		if err != nil {
			b.Fatal(err)
		}
		return r
	}
	end := func(b *testing.B, r *record.Recorder) {
		b.Helper()
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
		defer cancel()
		if err := r.Close(ctx); err != nil {
			b.Fatal(err)
		}
	}
	serve := func(b *testing.B, h http.Handler) {
		b.Helper()
		reader := strings.NewReader(body)
		r, err := http.NewRequest(http.MethodPost, path+"?timeout=10s", io.NopCloser(reader))
		if err != nil {
			b.Fatal(err)
		}
		r.ContentLength = int64(len(body))
		r.Header.Set("Content-Type", "application/json")
		b.SetBytes(r.ContentLength)
		b.ReportAllocs()
		for b.Loop() {
			reader.Reset(body)
			h.ServeHTTP(&discard{header: http.Header{}}, r)
		}
	}
	b.Run("alone", func(b *testing.B) { serve(b, h) })
	b.Run("closed", func(b *testing.B) {
		r := recorded(b, nil)
		end(b, r)
		serve(b, r.Wrap(h))
	})
	b.Run("full", func(b *testing.B) {
		wait := make(chan struct{})
		r := recorded(b, func(o *record.Options) { o.Redact = func(map[string]any) { <-wait } })
		serve(b, r.Wrap(h))
		close(wait)
		end(b, r)
	})
	b.Run("recorded", func(b *testing.B) {
		r := recorded(b, nil)
		serve(b, r.Wrap(h))
		b.StopTimer()
		end(b, r)
	})
}

// BenchmarkWrite measures the goroutine's work for a call, until its file is there.
func BenchmarkWrite(b *testing.B) {
	for name, hook := range map[string]func(map[string]any){"plain": nil, "hook": func(o map[string]any) { o["kind"] = "Pod" }} {
		b.Run(name, func(b *testing.B) {
			r, err := record.New(record.Options{Dir: b.TempDir(), Redact: hook}, logr.Discard())
			if err != nil {
				b.Fatal(err)
			}
			h := r.Wrap(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				_, _ = io.Copy(io.Discard, r.Body)
				_, _ = io.WriteString(w, answerWith("W10="))
			}))
			body := benchReview()
			b.SetBytes(int64(len(body)))
			b.ReportAllocs()
			n := 0
			for b.Loop() {
				req, err := http.NewRequest(http.MethodPost, path, strings.NewReader(body))
				if err != nil {
					b.Fatal(err)
				}
				h.ServeHTTP(&discard{header: http.Header{}}, req)
				n++
				for r.Counts() != (record.Counts{Written: n}) {
					runtime.Gosched()
				}
			}
			if err := r.Close(context.Background()); err != nil {
				b.Fatal(err)
			}
		})
	}
}
