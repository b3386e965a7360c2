// Package admit turns an AdmissionReview on the wire into a call of an extension and back.
//
// failurePolicy works only if denials and failures are answered differently. A denial is HTTP 200 with allowed false. A
// failure (an error, a panic, a missed deadline, a patch that does not apply) is an HTTP error. controller-runtime's
// own handler always answers 200, and the API server then treats failures as denials, even under Ignore.
//
// Any client that reaches the port can send a request, so requests are treated as hostile. A request is read within a
// bound, and it is parsed in full before any extension sees it.
package admit

// This file serves chains of steps over HTTP: it reads a request, runs the chain on it, and writes the answer.

import (
	"context"
	"errors"
	"fmt"
	"mime"
	"net/http"
	"reflect"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/go-logr/logr"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/trace"
	admissionv1 "k8s.io/api/admission/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"code.cloudfoundry.org/eirinix/internal/chain"
	"code.cloudfoundry.org/eirinix/internal/decode"
	"code.cloudfoundry.org/eirinix/internal/hang"
	"code.cloudfoundry.org/eirinix/internal/lograte"
)

// These are the prefixes of the paths of webhook entries. During a rollout, an unknown path below them belongs to
// another version of the program. The API server should then retry the call on another replica. Any other unknown path
// is simply wrong. The segments of a path are lowercase DNS names, because a Service reference allows no others.
const (
	MutatePrefix   = "/mutate/"
	ValidatePrefix = "/validate/"
	ConvertPrefix  = "/convert/" // of conversion webhooks
)

// These bound the calls that run steps at once, and the calls that wait for a slot, and the same for conversions. A step
// that waits for something keeps its slot. 100 are more than the API server's own limits send to one webhook.
const (
	callsAtWork  = 100
	callsWaiting = 400
)

// Handler serves chains of steps over HTTP. Configure it before serving; it is safe for concurrent use.
type Handler struct {
	MaxBytes int64          // bound on one request; must be positive
	Log      logr.Logger    // the zero Logger discards
	Draining func() bool    // when true, connections are closed after each answer; nil means never
	Others   *http.ServeMux // serves paths outside the prefixes; nil means none
	Metrics  *Metrics       // nil counts for this Handler alone, and exposes nothing
	Tracer   trace.Tracer   // nil traces nothing

	mu          sync.RWMutex
	chains      map[string]*chain.Chain // by path
	closing     []string                // paths; see ServeAll
	conversions map[string]*Conversion  // by path

	counting   sync.Once // of Metrics
	limits     sync.Once
	slots      *limiter
	converting *limiter // the slots of conversions
	bodies     *readBudget
	objects    hang.Account    // of all conversions together
	refusals   lograte.Sampler // of lines about calls that no step sees
	runner     chain.Runner
	shadows    *chain.Shadows
}

// Serve serves a chain on a path, and replaces the chain that was there.
func (h *Handler) Serve(path string, c chain.Config) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.chains == nil {
		h.chains = map[string]*chain.Chain{}
	}
	h.chains[path] = h.chained(path, c)
}

// ServeAll serves these chains and no others, by path. Calls in flight finish with the chain that they began with. On the
// paths that are closing, the connection is closed after each answer, so that a retry goes to another replica.
func (h *Handler) ServeAll(chains map[string]chain.Config, closing ...string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	served := make(map[string]*chain.Chain, len(chains))
	for path, c := range chains {
		served[path] = h.chained(path, c)
	}
	h.chains, h.closing = served, closing
}

// chained makes the chain on a path, whose last segment is the name of the webhook.
func (h *Handler) chained(path string, c chain.Config) *chain.Chain {
	return chain.New(path[strings.LastIndexByte(path, '/')+1:], c, h.Counts().steps, h.chains[path])
}

// served returns what is served on a path: a chain, or a conversion, or neither. closes reports whether the connection is
// closed after its answers.
func (h *Handler) served(path string) (c *chain.Chain, conversion *Conversion, closes bool) {
	h.mu.RLock()
	defer h.mu.RUnlock()
	return h.chains[path], h.conversions[path], slices.Contains(h.closing, path)
}

// ServeHTTP answers one AdmissionReview or ConversionReview.
func (h *Handler) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	arrived := time.Now()
	h.prepare()
	h.closeWhenDraining(w)
	c, conversion, closes := h.served(r.URL.Path)
	switch {
	case conversion != nil:
		h.convert(w, r, conversion, arrived) //nolint:contextcheck // the request carries its context
		return
	case c == nil:
		h.unknown(w, r)
		return
	case closes:
		w.Header().Set("Connection", "close")
	}
	r, ended := h.traced(w, r, c.Webhook)
	resp, postponed := h.decide(w, r, c, arrived) //nolint:contextcheck // the request carries its context
	h.closeWhenDraining(w)                        // draining may have begun meanwhile
	resp.write(w)
	ended(resp.status)
	if len(postponed) > 0 {
		_ = http.NewResponseController(w).Flush()
		h.shadows.Add(postponed) //nolint:contextcheck // the request has been answered
	}
}

// decide reads the request and builds the answer. It also returns the runs for after the answer. When it returns, the
// call's slot and its memory have been released, so a client that does not read its answer delays no other call.
func (h *Handler) decide(w http.ResponseWriter, r *http.Request, c *chain.Chain, arrived time.Time) (response, []chain.Shadow) {
	h.Counts().inFlight.Inc()
	defer h.Counts().inFlight.Dec()
	due := deadline{arrived, requestTimeout(r, chain.DefaultTimeout)}
	rev, body, err := h.read(w, r, due)
	defer body.release()
	if err != nil {
		return h.refuseCall(w, r, c, err), nil
	}
	wants, some := c.Select(&rev.request, rev.parseUser)
	if !some {
		resp := h.respond(r, c, rev, chain.Outcome{Response: &admissionv1.AdmissionResponse{Allowed: true}}, arrived)
		rev.recycle()
		return resp, nil
	}
	rev.parseUser()
	body.copyObjects(rev)
	ctx, cancel := due.context(r)
	defer cancel()
	if err := h.slots.acquire(ctx); err != nil {
		return h.refuseCall(w, r, c, busy(err)), nil
	}
	defer h.slots.release()
	o := h.runner.Run(ctx, c, &rev.request, wants)
	return h.respond(r, c, rev, o, arrived), o.Shadows
}

// Counts returns Metrics, or what it has in place of a nil one.
func (h *Handler) Counts() *Metrics {
	h.counting.Do(func() {
		if h.Metrics == nil {
			h.Metrics, _ = NewMetrics(nil) // which cannot fail
		}
	})
	return h.Metrics
}

// prepare makes what needs the Handler's fields.
func (h *Handler) prepare() {
	h.limits.Do(func() {
		h.slots, h.converting = newLimiter(callsAtWork, callsWaiting), newLimiter(callsAtWork, callsWaiting)
		h.bodies = newReadBudget(h.MaxBytes)
		h.objects = hang.NewAccount(decode.MaxMemory)
		h.runner = chain.Runner{Log: h.Log, Tracer: h.Tracer, Objects: chain.NewBudget()}
		h.shadows = chain.NewShadows(h.runner, func() bool { return h.slots.calls.Load() > 0 })
	})
}

// Stop ends the steps in ModeShadow. Those that wait are dropped. It returns after two seconds at the latest.
func (h *Handler) Stop() {
	h.prepare()
	h.shadows.Stop()
}

// refuseCall answers a request that is not an AdmissionReview, or that gets no slot.
func (h *Handler) refuseCall(w http.ResponseWriter, r *http.Request, c *chain.Chain, err error) response {
	return h.refuse(w, r, err, fmt.Sprintf("step %q", c.Name), "refused a request", "webhook", c.Webhook)
}

// refuse answers a request that is no review, or that could not be answered. The answer begins with of. The message and
// what it is about are for the log.
func (h *Handler) refuse(w http.ResponseWriter, r *http.Request, err error, of, message string, about ...any) response {
	status := http.StatusInternalServerError
	if refused, ok := errors.AsType[*refusal](err); ok {
		status = refused.status
	} else if refused, ok := errors.AsType[Refusal](err); ok {
		if status = refused.HTTPStatus(); status == http.StatusServiceUnavailable {
			w.Header().Set("Connection", "close") // so that the next attempt chooses a replica anew
		}
	}
	if status == http.StatusServiceUnavailable {
		// The API server retries the call after this many seconds, and perhaps another replica takes it.
		w.Header().Set("Retry-After", "1")
	}
	h.Counts().Refused(status)
	h.refusedSpan(r.Context(), status, err)
	h.refusals.Of(h.runner.Logger(r.Context()), of, err.Error()).
		Info(message, append([]any{"status", status, "reason", err.Error(), "from", r.RemoteAddr}, about...)...)
	return textResponse(status, fmt.Sprintf("%s: %v", of, err))
}

// read reads and parses the request. The caller must release the body when the review is no longer used, even after
// an error.
func (h *Handler) read(w http.ResponseWriter, r *http.Request, due deadline) (rev *review, b *requestBody, err error) {
	if err := checkHeader(w, r); err != nil {
		return nil, nil, err
	}
	text, b, err := h.bodies.read(w, r, due, 1)
	if err != nil {
		return nil, b, err
	}
	if rev, err = parseReview(text); err == nil {
		h.Counts().requestBytes.Observe(float64(len(text)))
	}
	return rev, b, err
}

// busy maps "no slot" to an HTTP error: 503 if a retry may succeed, 500 if the deadline has passed.
func busy(err error) error {
	if errors.Is(err, errTooBusy) || errors.Is(err, errEvicted) {
		return refuse(http.StatusServiceUnavailable, "%v; try again", err)
	}
	return refuse(http.StatusInternalServerError, "no slot became free before the deadline: %v", err)
}

// respond builds the answer from an outcome, and reports the outcome.
func (h *Handler) respond(r *http.Request, c *chain.Chain, rev *review, o chain.Outcome, arrived time.Time) (resp response) {
	switch {
	case o.Err == nil:
		resp = reviewResponse(rev, o.Response)
	case errors.Is(o.Err, decode.ErrTooLarge):
		resp = statusResponse(http.StatusRequestEntityTooLarge, metav1.StatusReasonRequestEntityTooLarge, o.Err.Error())
	default:
		resp = textResponse(http.StatusInternalServerError, o.Err.Error())
	}
	h.runner.Report(r.Context(), c, &rev.request, o, time.Since(arrived))
	return resp
}

// recorder is a ResponseWriter that records the call. The record gets the ID of the trace.
type recorder interface{ Trace(id string) }

// traced starts the span of a call. Its parent is the span in the request's headers, if any. ended ends it, with the
// HTTP status of the answer.
func (h *Handler) traced(w http.ResponseWriter, r *http.Request, name string) (_ *http.Request, ended func(status int)) {
	if h.Tracer == nil {
		return r, func(int) {}
	}
	parent := propagation.TraceContext{}.Extract(r.Context(), propagation.HeaderCarrier(r.Header))
	ctx, span := h.Tracer.Start(parent, name, trace.WithSpanKind(trace.SpanKindServer))
	if records, ok := w.(recorder); ok && span.SpanContext().HasTraceID() {
		records.Trace(span.SpanContext().TraceID().String())
		span.SetAttributes(attribute.Bool("eirinix.recorded", true))
	}
	return r.WithContext(ctx), func(status int) {
		span.SetAttributes(attribute.Int("http.response.status_code", status))
		span.End()
	}
}

// refusedSpan adds to the span of a call why it was refused.
func (h *Handler) refusedSpan(ctx context.Context, status int, err error) {
	if h.Tracer != nil && status >= http.StatusInternalServerError {
		chain.FailSpan(trace.SpanFromContext(ctx), err)
	}
}

// closeWhenDraining closes the connection after the answer while the program drains, so that the next call goes to
// another replica.
func (h *Handler) closeWhenDraining(w http.ResponseWriter) {
	if h.Draining != nil && h.Draining() {
		w.Header().Set("Connection", "close")
	}
}

// redirect is the type of the handler that a ServeMux returns for a path that is not clean. The API server follows
// redirects with the whole object in the body, so such a path counts as unknown here.
var redirect = reflect.TypeOf(http.RedirectHandler("", http.StatusTemporaryRedirect))

// unknown answers a request for a path on which no chain is served.
func (h *Handler) unknown(w http.ResponseWriter, r *http.Request) {
	ours := func(prefix string) bool { return strings.HasPrefix(r.URL.Path, prefix) }
	if !slices.ContainsFunc([]string{MutatePrefix, ValidatePrefix, ConvertPrefix}, ours) {
		if h.Others != nil {
			if other, pattern := h.Others.Handler(r); pattern != "" && reflect.TypeOf(other) != redirect {
				h.Others.ServeHTTP(w, r)
				return
			}
		}
		h.Counts().Refused(http.StatusNotFound)
		textResponse(http.StatusNotFound, fmt.Sprintf("nothing is served on %s", printable(r.URL.Path))).write(w)
		return
	}
	h.refusals.Of(h.Log, "unknown path", r.URL.Path).Info("unknown path, answered 503 so that the API server retries on another replica",
		"path", printable(r.URL.Path), "from", r.RemoteAddr)
	h.Counts().Refused(http.StatusServiceUnavailable)
	// Measured: the API server retries a 5xx with Retry-After up to ten times, with the same UID. A closed connection
	// makes it choose a new endpoint.
	w.Header().Set("Retry-After", "0")
	w.Header().Set("Connection", "close")
	textResponse(http.StatusServiceUnavailable, fmt.Sprintf(
		"no step is served on %s; another version of the webhook may have it", printable(r.URL.Path))).write(w)
}

// refusal is the error for a request that no step sees. It holds the reason and the HTTP status of the answer, which is
// 4xx for a mistake of the caller.
type refusal struct {
	status int
	reason string
}

func (r *refusal) Error() string { return r.reason }

// refuse returns a refusal. It bounds the reason, because that can contain a client's text, and is sent back and
// logged.
func refuse(status int, format string, args ...any) error {
	const most = 500
	return &refusal{status: status, reason: lograte.Brief(fmt.Sprintf(format, args...), most)}
}

func printable(s string) string { return fmt.Sprintf("%q", lograte.Brief(s, 253)) }

// checkHeader refuses a request that cannot be a review, before its body is read.
func checkHeader(w http.ResponseWriter, r *http.Request) error {
	if r.Method != http.MethodPost {
		w.Header().Set("Allow", http.MethodPost)
		return refuse(http.StatusMethodNotAllowed, "method %s: send the review with POST", r.Method)
	}
	if given := r.Header.Get("Content-Type"); given != contentTypeJSON {
		if media, _, err := mime.ParseMediaType(given); err != nil || media != contentTypeJSON {
			return refuse(http.StatusUnsupportedMediaType, "Content-Type %q: send %s", given, contentTypeJSON)
		}
	}
	if encoding := r.Header.Get("Content-Encoding"); encoding != "" && encoding != "identity" {
		return refuse(http.StatusUnsupportedMediaType, "Content-Encoding %q: send the body uncompressed", encoding)
	}
	return nil
}
