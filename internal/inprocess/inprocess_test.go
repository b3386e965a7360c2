package inprocess_test

// This file specifies when a response begins and ends, in synctest's time.

import (
	"context"
	"io"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	. "github.com/onsi/gomega"

	"code.cloudfoundry.org/eirinix/internal/inprocess"
)

// request sends a request to a handler in a bubble.
func request(ctx context.Context, f http.HandlerFunc) (*http.Response, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://example.org/", nil)
	if err != nil {
		return nil, err
	}
	return inprocess.Transport{Handler: f}.RoundTrip(req)
}

func in(t *testing.T, f func(g Gomega)) { synctest.Test(t, func(t *testing.T) { f(NewWithT(t)) }) }

func TestAResponseBeginsWhenItIsFlushed(t *testing.T) {
	in(t, func(g Gomega) {
		start, during := time.Now(), context.Background()
		resp, err := request(context.Background(), func(w http.ResponseWriter, r *http.Request) {
			during = r.Context()
			w.Header().Set("A", "b")
			w.WriteHeader(http.StatusAccepted)
			time.Sleep(time.Second)
			for range 1000 { // nothing is read meanwhile
				_, _ = w.Write([]byte("x"))
				_ = http.NewResponseController(w).Flush()
			}
			time.Sleep(time.Second)
			_, _ = w.Write([]byte("mid"))
			_ = http.NewResponseController(w).Flush()
			time.Sleep(time.Second)
			_, _ = w.Write([]byte("end"))
		})
		g.Expect(err).NotTo(HaveOccurred())
		g.Expect(time.Since(start)).To(Equal(time.Second))
		g.Expect(resp).To(And(HaveField("StatusCode", http.StatusAccepted), HaveField("Header", HaveKeyWithValue("A", []string{"b"}))))
		for i, text := range []string{strings.Repeat("x", 1000), "mid", "end"} {
			g.Expect(io.ReadAll(io.LimitReader(resp.Body, int64(len(text))))).To(BeEquivalentTo(text))
			g.Expect(time.Since(start)).To(Equal(time.Duration(i+1) * time.Second))
		}
		g.Expect(io.ReadAll(resp.Body)).To(BeEmpty())
		synctest.Wait()
		g.Expect(during.Err()).To(MatchError(context.Canceled), "the context of a handler that has returned")
	})
}

func TestAHandlerEndsWithItsClient(t *testing.T) {
	in(t, func(g Gomega) {
		for name, leave := range map[string]func(*http.Response, context.CancelFunc){
			"closed": func(resp *http.Response, _ context.CancelFunc) { _ = resp.Body.Close() },
			"ended":  func(_ *http.Response, cancel context.CancelFunc) { cancel() },
		} {
			ctx, cancel := context.WithCancel(context.Background())
			resp, err := request(ctx, func(w http.ResponseWriter, r *http.Request) {
				_ = http.NewResponseController(w).Flush()
				<-r.Context().Done() // else it never returns, and the bubble fails
				time.Sleep(time.Second)
			})
			g.Expect(err).NotTo(HaveOccurred(), name)
			start := time.Now()
			go leave(resp, cancel)
			_, err = io.ReadAll(resp.Body)
			g.Expect(err).To(MatchError(context.Canceled), name)
			g.Expect(time.Since(start)).To(BeZero(), "a client does not wait for the handler")
			cancel()
		}
		ctx, cancel := context.WithTimeout(context.Background(), time.Second)
		defer cancel()
		start := time.Now()
		_, err := request(ctx, func(http.ResponseWriter, *http.Request) { time.Sleep(2 * time.Second) })
		g.Expect(err).To(MatchError(context.DeadlineExceeded))
		g.Expect(time.Since(start)).To(Equal(time.Second))
		time.Sleep(time.Second) // for the handlers
	})
}

func TestAHandlerThatPanics(t *testing.T) {
	in(t, func(g Gomega) {
		_, err := request(context.Background(), func(w http.ResponseWriter, _ *http.Request) {
			_, _ = w.Write([]byte("x"))
			panic("early")
		})
		g.Expect(err).To(MatchError("EOF (the handler panicked: early)"))
		resp, err := request(context.Background(), func(w http.ResponseWriter, _ *http.Request) {
			_, _ = w.Write([]byte("x"))
			_ = http.NewResponseController(w).Flush()
			panic("late")
		})
		g.Expect(err).NotTo(HaveOccurred())
		text, err := io.ReadAll(resp.Body)
		g.Expect(text).To(BeEquivalentTo("x"))
		g.Expect(err).To(MatchError("EOF (the handler panicked: late)"))
	})
}
