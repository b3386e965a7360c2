package record_test

// What a recording costs a call: a handler alone, and with a recorder that writes in the background or drops calls.

import (
	"context"
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/go-logr/logr"

	"code.cloudfoundry.org/eirinix/internal/admit"
	"code.cloudfoundry.org/eirinix/internal/record"
)

// discard is a ResponseWriter without a connection.
type discard struct{ header http.Header }

func (d *discard) Header() http.Header         { return d.header }
func (d *discard) WriteHeader(int)             {}
func (d *discard) Write(p []byte) (int, error) { return len(p), nil }

func BenchmarkServe(b *testing.B) {
	env := strings.TrimSuffix(strings.Repeat(`{"name":"VARIABLE","value":"some value of usual length"},`, 375), ",")
	body := review(`{"apiVersion":"v1","kind":"Pod","metadata":{"name":"web-0","namespace":"cf"},"spec":{"containers":[{"name":"web","image":"nginx","env":[` + env + `]}]}}`)
	h := &admit.Handler{MaxBytes: 1 << 20}
	h.Serve(path, handling(allow))
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
	recorded := func(hook func(map[string]any), release func()) func(*testing.B) {
		return func(b *testing.B) {
			r, err := record.New(record.Options{Dir: b.TempDir(), Redact: hook}, logr.Discard())
			if err != nil {
				b.Fatal(err)
			}
			serve(b, r.Wrap(h))
			b.StopTimer()
			release()
			if err := r.Close(context.Background()); err != nil {
				b.Fatal(err)
			}
		}
	}
	wait := make(chan struct{})
	b.Run("alone", func(b *testing.B) { serve(b, h) })
	b.Run("recorded", recorded(nil, func() {}))
	b.Run("full", recorded(func(map[string]any) { <-wait }, func() { close(wait) }))
}
