package admit

// This file serves conversion webhooks over HTTP. They share the port, the limits and the memory of the chains.

import (
	"context"
	"net/http"
	"time"
)

// ConvertPrefix is the prefix of the paths of conversion webhooks.
const ConvertPrefix = "/convert/"

// conversionTimeout is how long the API server waits for a conversion. It puts no timeout in the URL.
const conversionTimeout = maxHeaderTimeout

// A Conversion answers the ConversionReviews of one CustomResourceDefinition.
type Conversion struct {
	Name string // of the CustomResourceDefinition

	// Answer answers a review, which it must not use after it has returned. For a request that is no review, or that
	// another replica answers, the error is a *convert.Refusal. Any other error is answered with 500.
	Answer func(ctx context.Context, review []byte) (answer []byte, err error)
}

// Convert serves these conversions and no others, by path. Calls in flight finish with the one that they began with.
func (h *Handler) Convert(conversions map[string]Conversion) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.conversions = conversions
}

// conversion returns the conversion on a path.
func (h *Handler) conversion(path string) (Conversion, bool) {
	h.mu.RLock()
	defer h.mu.RUnlock()
	c, ok := h.conversions[path]
	return c, ok
}

// convert answers one ConversionReview.
func (h *Handler) convert(w http.ResponseWriter, r *http.Request, c Conversion, arrived time.Time) {
	h.Counts().arrived()
	defer h.Counts().answered()
	r, ended := h.traced(w, r, c.Name)
	text, err := h.converted(w, r, c, deadline{arrived, conversionDue(r)}) //nolint:contextcheck // the request carries its context
	h.closeWhenDraining(w)
	if err != nil {
		refused := h.refuse(w, r, err, "conversion of "+c.Name, "refused a conversion", "customResourceDefinition", c.Name)
		refused.write(w)
		ended(refused.status)
		return
	}
	h.Counts().converted(c.Name, time.Since(arrived))
	response{status: http.StatusOK, kind: jsonHeader, text: text}.write(w)
	ended(http.StatusOK)
}

// conversionDue returns how long the API server waits for the answer.
func conversionDue(r *http.Request) time.Duration {
	if r.URL.RawQuery == "" {
		return conversionTimeout
	}
	return requestTimeout(r)
}

// converted reads the review, and converts it on a goroutine of its own. After the deadline that goroutine is left
// behind, with its slot and its memory.
func (h *Handler) converted(w http.ResponseWriter, r *http.Request, c Conversion, due deadline) ([]byte, error) {
	if err := checkHeader(w, r); err != nil {
		return nil, err
	}
	h.prepare()
	review, body, err := h.bodies.read(w, r, due, h.bodies.conversion)
	if err != nil {
		body.release()
		return nil, err
	}
	h.Counts().received(len(review))
	ctx, cancel := due.context(r)
	defer cancel()
	if err := h.slots.acquire(ctx); err != nil {
		body.release()
		return nil, busy(err)
	}
	type result struct {
		text []byte
		err  error
	}
	done := make(chan result, 1)
	go func() {
		defer h.slots.release()
		defer body.release()
		end := result{err: errNoAnswer}
		defer func() {
			if v := recover(); v != nil {
				end.err = panicked(v)
			}
			done <- end
		}()
		end.text, end.err = c.Answer(ctx, review)
	}()
	select {
	case end := <-done:
		return end.text, end.err
	case <-ctx.Done():
		return nil, errLate(ctx)
	}
}
