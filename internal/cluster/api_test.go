package cluster_test

// Minutes and hours of an API server that does not answer. The bubbles of synctest need a *testing.T, so these are plain
// tests. A bubble also fails when a goroutine is left over.

import (
	"context"
	"errors"
	"io"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	. "github.com/onsi/gomega"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"code.cloudfoundry.org/eirinix/internal/cluster"
	"code.cloudfoundry.org/eirinix/internal/wait"
)

// server answers requests, and may wait.
type server func(*http.Request) (*http.Response, error)

// wire stands where requests leave the process.
type wire struct {
	mu     sync.Mutex
	sent   []sent
	answer server
}

type sent struct {
	at  time.Time
	uri string
}

func (w *wire) RoundTrip(r *http.Request) (*http.Response, error) {
	w.mu.Lock()
	w.sent = append(w.sent, sent{time.Now(), r.URL.RequestURI()})
	answer := w.answer
	w.mu.Unlock()
	return answer(r)
}

func (w *wire) answers(with server) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.answer = with
}

func (w *wire) forget() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.sent = nil
}

// since returns the requests that were sent at that time and later.
func (w *wire) since(t time.Time) (all []sent) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, s := range w.sent {
		if !s.at.Before(t) {
			all = append(all, s)
		}
	}
	return all
}

var errRefused = errors.New("connection refused")

func refused(*http.Request) (*http.Response, error) { return nil, errRefused }

// always answers each request with that.
func always(code int, text string, header ...string) server {
	return func(*http.Request) (*http.Response, error) { return reply(code, text, header...), nil }
}

var works = always(http.StatusOK, "{}")

// hangs is a server that accepts, and never answers.
func hangs(r *http.Request) (*http.Response, error) {
	<-r.Context().Done()
	return nil, r.Context().Err()
}

// hangsInBody is one that stops after the head of its answer. The error is that of HTTP/2, which knows no causes.
func hangsInBody(r *http.Request) (*http.Response, error) {
	resp := reply(http.StatusOK, "")
	resp.Body = body(func([]byte) (int, error) {
		<-r.Context().Done()
		return 0, r.Context().Err()
	})
	return resp, nil
}

type body func([]byte) (int, error)

func (b body) Read(p []byte) (int, error) { return b(p) }
func (body) Close() error                 { return nil }

func reply(code int, text string, header ...string) *http.Response {
	resp := &http.Response{
		StatusCode: code, Status: http.StatusText(code), Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1,
		Header: http.Header{"Content-Type": {"application/json"}}, Body: io.NopCloser(strings.NewReader(text)), ContentLength: -1,
	}
	for i := 0; i < len(header); i += 2 {
		resp.Header.Set(header[i], header[i+1])
	}
	return resp
}

const (
	get    = "/api/v1/namespaces/cf/secrets/one"
	list   = "/api/v1/namespaces/cf/secrets?fieldSelector=metadata.name%3Done"
	begins = list + "&watch=true&sendInitialEvents=true&resourceVersionMatch=NotOlderThan&timeoutSeconds=300"
)

// send sends a request, whose answer the caller closes.
func send(ctx context.Context, through http.RoundTripper, uri string) (*http.Response, error) {
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, "https://api.example.org"+uri, nil)
	if err != nil {
		return nil, err
	}
	return through.RoundTrip(r)
}

// ask sends a request, reads the answer to its end and returns its code.
func ask(ctx context.Context, through http.RoundTripper, uri string) (int, error) {
	resp, err := send(ctx, through, uri)
	if err != nil {
		return 0, err
	}
	defer resp.Body.Close()
	_, err = io.Copy(io.Discard, resp.Body)
	return resp.StatusCode, err
}

// bubble runs f in synctest's time, with an API and the wire behind it.
func bubble(t *testing.T, f func(g Gomega, ctx context.Context, api *cluster.API, w *wire, through http.RoundTripper)) {
	synctest.Test(t, func(t *testing.T) {
		api, w := &cluster.API{}, &wire{answer: works}
		f(NewWithT(t), t.Context(), api, w, api.Wrap(w))
	})
}

func TestEachRequestEndsWithinTenSeconds(t *testing.T) {
	for name, c := range map[string]struct {
		uri    string
		server server
	}{
		"a request that is never answered":    {get, hangs},
		"an answer that stops after its head": {get, hangsInBody},
		"a watch that does not begin":         {begins, hangs},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(g Gomega, ctx context.Context, _ *cluster.API, w *wire, through http.RoundTripper) {
				w.answers(c.server)
				start := time.Now()
				_, err := ask(ctx, through, c.uri)
				g.Expect(time.Since(start)).To(Equal(10 * time.Second))
				g.Expect(err).To(MatchError(context.DeadlineExceeded))
				g.Expect(err).To(MatchError(ContainSubstring("the API server has not answered within 10s")))
				g.Expect(wait.Transient(err)).To(BeTrue(), "it is tried again")
			})
		})
	}
}

func TestAnAnswerThatWasReadIsForgotten(t *testing.T) {
	bubble(t, func(g Gomega, ctx context.Context, _ *cluster.API, w *wire, through http.RoundTripper) {
		for _, uri := range []string{get, begins} {
			var left context.Context
			w.answers(func(r *http.Request) (*http.Response, error) {
				left = r.Context()
				return works(r)
			})
			g.Expect(ask(ctx, through, uri)).To(Equal(http.StatusOK))
			g.Expect(left.Err()).To(HaveOccurred(), "its context is released")
		}
	})
}

func TestNoServerDecidesOnTheBackOff(t *testing.T) {
	bubble(t, func(g Gomega, ctx context.Context, api *cluster.API, w *wire, _ http.RoundTripper) {
		w.answers(always(http.StatusTooManyRequests, "{}", "Retry-After", "3600"))
		config := &rest.Config{Host: "https://api.example.org", Transport: w}
		config.Wrap(api.Wrap)
		clients, err := kubernetes.NewForConfig(config)
		g.Expect(err).NotTo(HaveOccurred())
		start := time.Now()
		_, err = clients.CoreV1().Secrets("cf").Get(ctx, "one", metav1.GetOptions{})
		g.Expect(apierrors.IsTooManyRequests(err)).To(BeTrue(), "%v", err)
		g.Expect(time.Since(start)).To(BeZero())
		g.Expect(w.since(start)).To(HaveLen(1))
	})
}

// fleet is the constant load of a busy process: 4 watches, and 46 readers.
type fleet struct {
	mu   sync.Mutex
	back map[string][]time.Time // when an answer of 200 came, by the name of the object
	lost []time.Time            // when a request failed
	stop context.CancelFunc
	all  sync.WaitGroup
}

func start(ctx context.Context, through http.RoundTripper, phase time.Duration) *fleet {
	f := &fleet{back: map[string][]time.Time{}}
	ctx, f.stop = context.WithCancel(ctx)
	for n := range 50 {
		name := string(rune('A' + n))
		f.all.Go(func() {
			time.Sleep(time.Duration(n) * phase)
			for tries := 0; ctx.Err() == nil && tries < 10000; tries++ { // more fail the spec anyway
				uri := get
				if n < 4 {
					uri = begins
				}
				resp, err := send(ctx, through, uri+"&name="+name)
				f.mu.Lock()
				switch {
				case err != nil:
					f.lost = append(f.lost, time.Now())
				case resp.StatusCode == http.StatusOK:
					f.back[name] = append(f.back[name], time.Now())
					f.mu.Unlock()
					<-ctx.Done() // as a watch that has begun
					_ = resp.Body.Close()
					return
				default:
					_ = resp.Body.Close()
				}
				f.mu.Unlock()
			}
		})
	}
	return f
}

func (f *fleet) end() {
	f.stop()
	f.all.Wait()
}

func TestAnOutageCausesOneProbePerInterval(t *testing.T) {
	for name, server := range map[string]server{
		"it refuses connections":             refused,
		"it accepts them, and never answers": hangs,
		"it is overloaded":                   always(http.StatusTooManyRequests, "{}", "Retry-After", "0"),
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(g Gomega, ctx context.Context, _ *cluster.API, w *wire, through http.RoundTripper) {
				w.answers(server)
				_, _ = ask(ctx, through, get) // the outage is known
				w.forget()
				began := time.Now()
				f := start(ctx, through, 200*time.Millisecond)
				time.Sleep(10 * time.Minute)
				synctest.Wait()
				probes := w.since(began)
				f.end()

				last, interval := began, time.Second
				brief := 3 * time.Second // while it may be a restart
				for _, p := range probes {
					took := time.Duration(0) // of the probe before
					if name == "it accepts them, and never answers" && last != began {
						took = 10 * time.Second
					}
					low, high := interval, interval
					if last.Sub(began) < 20*time.Second {
						low = min(low, brief)
					}
					if last.Add(took).Sub(began) < 20*time.Second {
						high = min(high, brief)
					}
					g.Expect(p.at.Sub(last)).To(BeNumerically(">=", low), "one probe per interval, of %s", low)
					g.Expect(p.at.Sub(last)).To(BeNumerically("<=", high+high/5+took+10*time.Millisecond))
					last, interval = p.at, min(2*interval, 30*time.Second)
				}
				for i := range probes[2:] {
					if probes[i].at.Sub(began) > time.Minute {
						g.Expect(probes[i+2].at.Sub(probes[i].at)).To(BeNumerically(">=", time.Minute), "two requests in a minute")
					}
				}
				g.Expect(len(probes)).To(BeNumerically(">=", 15), "it is not given up")
			})
		})
	}
}

func TestAfterAnOutageRequestsComeBackSpread(t *testing.T) {
	for name, outage := range map[string]time.Duration{"of two seconds": 2 * time.Second, "of ten minutes": 10 * time.Minute} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(g Gomega, ctx context.Context, api *cluster.API, w *wire, through http.RoundTripper) {
				w.answers(refused)
				began := time.Now()
				_, err := ask(ctx, through, get)
				g.Expect(err).To(MatchError(errRefused))
				g.Expect(api.SilentUntil()).To(BeTemporally(">", time.Now()), "of an outage that lasts")
				f := start(ctx, through, min(outage/100, 200*time.Millisecond))
				time.Sleep(outage)
				synctest.Wait()
				ready := time.Now()
				w.answers(works)
				time.Sleep(2 * time.Minute)
				synctest.Wait()
				f.end()

				after := w.since(ready)
				over := after[0].at // the probe that was answered
				g.Expect(over.Sub(ready)).To(BeNumerically("<=", 36*time.Second))
				g.Expect(after).To(HaveLen(50), "one request for each object")
				g.Expect(f.back).To(HaveLen(50))

				last, spread := after[len(after)-1].at, min(over.Sub(began)/2, 15*time.Second)
				g.Expect(last.Sub(over)).To(BeNumerically("<=", spread))
				g.Expect(last.Sub(over)).To(BeNumerically(">", spread/4))
				for i := 0; i+25 < len(after); i++ {
					g.Expect(after[i+25].at.Sub(after[i].at)).To(BeNumerically(">", spread/20), "no crowd")
				}
				g.Expect(slices.ContainsFunc(f.lost, over.Before)).To(BeFalse(), "no request fails because it was held back")
				g.Expect(api.SilentUntil()).To(BeTemporally(">=", last.Add(36*time.Second)), "other replicas may have probed last just before the end")
				g.Expect(api.SilentUntil()).To(BeTemporally("<=", over.Add(51*time.Second)))
			})
		})
	}
}

func TestALeaseThatCannotBeReadMeansThatOthersMayBeDeafToo(t *testing.T) {
	bubble(t, func(g Gomega, ctx context.Context, api *cluster.API, w *wire, through http.RoundTripper) {
		w.answers(always(http.StatusInternalServerError, "{}"))
		g.Expect(ask(ctx, through, get)).To(Equal(http.StatusInternalServerError))
		g.Expect(api.SilentUntil()).To(BeZero(), "one kind can fail for ever")
		for _, code := range []int{http.StatusInternalServerError, http.StatusOK} { // they may have failed until the first read that succeeds
			w.answers(always(code, "{}"))
			g.Expect(ask(ctx, through, "/apis/coordination.k8s.io/v1/namespaces/cf/leases/one")).To(Equal(code))
			g.Expect(api.SilentUntil()).To(BeTemporally("~", time.Now().Add(36*time.Second), time.Second))
			time.Sleep(30 * time.Second)
		}
	})
}

func TestARequestThatIsGivenUpSaysNothing(t *testing.T) {
	bubble(t, func(g Gomega, ctx context.Context, api *cluster.API, w *wire, through http.RoundTripper) {
		w.answers(hangs)
		short, cancel := context.WithTimeout(ctx, time.Second)
		defer cancel()
		_, err := ask(short, through, get)
		g.Expect(err).To(MatchError(context.DeadlineExceeded))
		w.answers(works)
		start := time.Now()
		g.Expect(ask(ctx, through, get)).To(Equal(http.StatusOK))
		g.Expect(time.Since(start)).To(BeZero(), "it began no outage")

		w.answers(hangs)
		impatient, giveUp := context.WithCancel(ctx)
		early := make(chan error, 1)
		go func() {
			_, err := ask(impatient, through, get) // before the outage
			early <- err
		}()
		synctest.Wait()
		w.answers(refused)
		_, err = ask(ctx, through, get)
		g.Expect(err).To(MatchError(errRefused))
		giveUp()
		g.Expect(<-early).To(MatchError(context.Canceled))
		start = time.Now()
		_, err = ask(ctx, through, get)
		g.Expect(err).To(MatchError(errRefused))
		g.Expect(time.Since(start)).To(BeNumerically(">=", time.Second), "it ended no outage")

		w.answers(hangs)
		for range 3 { // as probes
			short, cancel := context.WithTimeout(ctx, 6*time.Second)
			_, err := ask(short, through, get)
			g.Expect(err).To(MatchError(context.DeadlineExceeded))
			cancel()
		}
		g.Expect(api.SilentUntil()).To(BeTemporally(">", time.Now()))
		w.answers(works)
		start = time.Now()
		g.Expect(ask(ctx, through, begins)).To(Equal(http.StatusOK))
		g.Expect(time.Since(start)).To(BeNumerically(">", time.Second), "it waits for its turn")
	})
}

func TestARequestThatNothingCanEndDoesNotWait(t *testing.T) {
	bubble(t, func(g Gomega, ctx context.Context, _ *cluster.API, w *wire, through http.RoundTripper) {
		w.answers(refused)
		_, _ = ask(ctx, through, get) // the outage is known
		start := time.Now()
		_, err := ask(context.Background(), through, get)
		g.Expect(err).To(MatchError(ContainSubstring("it is asked again")))
		g.Expect(time.Since(start)).To(BeZero(), "a RESTMapper holds its lock meanwhile")
	})
}

func TestTheClockOfTheAPIServer(t *testing.T) {
	bubble(t, func(g Gomega, ctx context.Context, api *cluster.API, w *wire, through http.RoundTripper) {
		g.Expect(api.ServerTime()).To(BeZero(), "before an answer")
		g.Expect(api.Earlier()).To(Equal(time.Now()))
		dated := func(ahead time.Duration) {
			w.answers(always(http.StatusOK, "{}", "Date", time.Now().Add(ahead).UTC().Format(http.TimeFormat)))
			g.Expect(ask(ctx, through, get)).To(Equal(http.StatusOK))
		}
		dated(6 * time.Hour)
		g.Expect(api.ServerTime()).To(BeZero(), "one answer may be odd")
		dated(6 * time.Hour)
		time.Sleep(time.Hour)
		g.Expect(api.ServerTime()).To(BeTemporally("~", time.Now().Add(6*time.Hour), time.Second), "it goes on")
		g.Expect(api.Earlier()).To(Equal(time.Now()))
		for _, odd := range []time.Duration{-6 * time.Hour, 9 * time.Hour, -30 * 24 * time.Hour} {
			dated(odd)
			g.Expect(api.ServerTime()).To(BeTemporally("~", time.Now().Add(6*time.Hour), time.Second), "one odd Date changes nothing")
			dated(6 * time.Hour)
		}
		dated(-6 * time.Hour)
		dated(-6 * time.Hour)
		g.Expect(api.Earlier()).To(BeTemporally("~", time.Now().Add(-6*time.Hour), time.Second))
		w.answers(always(http.StatusOK, "{}", "Date", "yesterday"))
		g.Expect(ask(ctx, through, get)).To(Equal(http.StatusOK))
		g.Expect(api.Earlier()).To(BeTemporally("~", time.Now().Add(-6*time.Hour), time.Second), "nonsense changes nothing")
	})
}
