package admit

// This file serves conversion webhooks over HTTP. They share the port and the memory for bodies with the chains. Their
// slots and their memory for objects are their own.

import (
	"context"
	"fmt"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sync/semaphore"

	"code.cloudfoundry.org/eirinix/internal/chain"
	"code.cloudfoundry.org/eirinix/internal/decode"
)

// ConvertPrefix is the prefix of the paths of conversion webhooks.
const ConvertPrefix = "/convert/"

// conversionTimeout is how long the API server waits for a conversion. It puts no timeout in the URL.
const conversionTimeout = maxHeaderTimeout

// convertedObjects bounds the memory of the objects of all conversions together. One that takes more counts as all of it,
// and so has it alone.
const convertedObjects = decode.MaxMemory

// A Conversion answers the ConversionReviews of one CustomResourceDefinition.
type Conversion struct {
	Name string // of the CustomResourceDefinition

	// Answer answers a review, which it must not use after it has returned. For a request that is no review, or that
	// another replica answers, the error is a Refusal. Any other error is answered with 500. It calls room before it decodes
	// an object.
	Answer func(ctx context.Context, review []byte, room Room) (answer []byte, err error)

	left *chain.LeftBehind
}

// A Room takes memory for one object, and waits for it until the context ends. release gives it back.
type Room = func(ctx context.Context, bytes int64) (release func(), err error)

// A Refusal is an error that chooses the status of the HTTP response.
type Refusal interface {
	error
	HTTPStatus() int
}

// Convert serves these conversions and no others, by path. Calls in flight finish with the one that they began with.
func (h *Handler) Convert(conversions map[string]Conversion) {
	h.mu.Lock()
	defer h.mu.Unlock()
	served := make(map[string]*Conversion, len(conversions))
	for path, c := range conversions {
		if before := h.conversions[path]; before != nil {
			c.left = before.left
		} else {
			c.left = &chain.LeftBehind{Gauge: h.Counts().conversionsLeft.WithLabelValues(c.Name)}
		}
		served[path] = &c
	}
	h.conversions = served
}

// convert answers one ConversionReview.
func (h *Handler) convert(w http.ResponseWriter, r *http.Request, c *Conversion, arrived time.Time) {
	h.Counts().inFlight.Inc()
	defer h.Counts().inFlight.Dec()
	r, ended := h.traced(w, r, c.Name)
	text, err := h.converted(w, r, c, deadline{arrived, conversionDue(r)}) //nolint:contextcheck // the request carries its context
	h.closeWhenDraining(w)
	if err != nil {
		refused := h.refuse(w, r, err, "conversion of "+c.Name, "refused a conversion", "customResourceDefinition", c.Name)
		refused.write(w)
		ended(refused.status)
		return
	}
	h.Counts().conversionDuration.WithLabelValues(c.Name).Observe(time.Since(arrived).Seconds())
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

// conversionRun is what a conversion holds. Its goroutine and the one that waits for it use it.
type conversionRun struct {
	memory *semaphore.Weighted
	waits  atomic.Bool // it waits for memory, or has waited in vain

	mu   sync.Mutex
	held int64 // bytes of memory
	body *requestBody
	over bool   // nothing waits for it, or it has ended
	left func() // counts the end of a run that was left behind; nil for others
}

// room is the Room of a run. An object that takes no more than decode.Free is not counted.
func (c *conversionRun) room(ctx context.Context, bytes int64) (release func(), err error) {
	need := min(bytes, convertedObjects)
	if bytes <= decode.Free {
		return func() {}, nil
	} else if !c.memory.TryAcquire(need) {
		c.waits.Store(true)
		if c.memory.Acquire(ctx, need) != nil {
			return nil, fmt.Errorf("%w: %w", chain.ErrNoMemory, context.Cause(ctx))
		}
		c.waits.Store(false)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.held = need; c.over { // both happened at once
		c.release()
		return nil, chain.ErrLate(ctx)
	}
	return func() {
		c.mu.Lock()
		defer c.mu.Unlock()
		c.release()
	}, nil
}

// release gives back the memory that is held. The caller holds mu.
func (c *conversionRun) release() {
	c.memory.Release(c.held)
	c.held = 0
}

// leave leaves the conversion behind, unless it has ended. What it holds counts no longer as that of a call.
func (c *conversionRun) leave(l *chain.LeftBehind, b *chain.Budget) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.over {
		c.over, c.left = true, l.Count(b, c.held+c.body.reserved)
		c.release()
		c.body.unreserve(c.body.reserved)
	}
}

func (c *conversionRun) end() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.over = true
	c.release()
	c.body.release()
	if c.left != nil {
		c.left()
	}
}

// converted reads the review, and converts it on a goroutine of its own. After the deadline that goroutine is left
// behind, as that of a step.
func (h *Handler) converted(w http.ResponseWriter, r *http.Request, c *Conversion, due deadline) ([]byte, error) {
	if err := checkHeader(w, r); err != nil {
		return nil, err
	}
	review, body, err := h.bodies.read(w, r, due, 2)
	if err != nil {
		body.release()
		return nil, err
	}
	h.Counts().requestBytes.Observe(float64(len(review)))
	ctx, cancel := due.context(r)
	defer cancel()
	if err := h.converting.acquire(ctx); err != nil {
		body.release()
		return nil, busy(err)
	}
	defer h.converting.release()
	if err := c.left.Full(h.runner.Objects); err != nil {
		body.release()
		return nil, err
	}
	type result struct {
		text []byte
		err  error
	}
	done := make(chan result, 1)
	run := &conversionRun{memory: h.objects, body: body}
	go func() {
		end := result{err: chain.ErrNoAnswer}
		defer func() {
			if v := recover(); v != nil {
				end.err = chain.Panicked(v)
			}
			run.end()
			done <- end
		}()
		chain.GrowStack()
		end.text, end.err = c.Answer(ctx, review, run.room)
	}()
	select {
	case end := <-done:
		return end.text, end.err
	case <-ctx.Done():
	}
	run.leave(c.left, h.runner.Objects)
	if run.waits.Load() {
		return nil, fmt.Errorf("%w; %w", chain.ErrLate(ctx), chain.ErrNoMemory)
	}
	return nil, chain.ErrLate(ctx)
}
