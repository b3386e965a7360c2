package admit

// This file serves conversion webhooks over HTTP. They share the port and the memory for bodies with the chains. Their
// slots and their memory for objects are their own.

import (
	"context"
	"fmt"
	"net/http"
	"time"

	"code.cloudfoundry.org/eirinix/internal/decode"
	"code.cloudfoundry.org/eirinix/internal/hang"
)

// A Conversion answers the ConversionReviews of one CustomResourceDefinition.
type Conversion struct {
	Name string // of the CustomResourceDefinition

	// Answer answers a review, which it must not use after it has returned. For a request that is no review, or that
	// another replica answers, the error is a Refusal. Any other error is answered with 500. It calls room before it decodes
	// an object.
	Answer func(ctx context.Context, review []byte, room Room) (answer []byte, err error)

	left *hang.Runs
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
			c.left = &hang.Runs{Gauge: h.Counts().conversionsLeft.WithLabelValues(c.Name)}
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
	// The API server puts no timeout in the URL of a conversion, and waits for the longest.
	text, err := h.converted(w, r, c, deadline{arrived, requestTimeout(r, maxHeaderTimeout)}) //nolint:contextcheck // the request carries its context
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

// conversionRun is a conversion on a goroutine of its own, as hang.Work, and what it holds.
type conversionRun struct {
	*Conversion
	memory hang.Memory
	body   *requestBody
	review []byte
	answer []byte
	all    *hang.LeftBehind
	ended  func() // counts the end of a run that was left behind; nil for others
}

// room is the Room of a run. An object that takes no more than decode.Free is not counted.
func (c *conversionRun) room(_ context.Context, bytes int64) (release func(), err error) {
	if bytes > decode.Free {
		err = c.memory.Take(bytes)
	}
	return func() { c.memory.Release() }, err
}

// release gives back what the run holds, unless it was left behind.
func (c *conversionRun) release() {
	if c.ended == nil {
		c.memory.Release()
		c.body.release()
	}
}

func (c *conversionRun) Do() (err error) {
	c.answer, err = c.Answer(c.memory.Context, c.review, c.room)
	return err
}

func (c *conversionRun) Leave() {
	c.ended = c.left.Add(c.all, c.memory.Leave()+c.body.reserved)
	c.body.unreserve(c.body.reserved)
}

func (c *conversionRun) Left(error) {
	c.body.release()
	c.ended()
}

// converted reads the review, and converts it on a goroutine of its own. After the deadline that goroutine is left
// behind, as that of a step.
func (h *Handler) converted(w http.ResponseWriter, r *http.Request, c *Conversion, due deadline) ([]byte, error) {
	if err := checkHeader(w, r); err != nil {
		return nil, err
	}
	review, body, err := h.bodies.read(w, r, due, 2)
	run := &conversionRun{Conversion: c, body: body, review: review, all: &h.runner.Objects.LeftBehind}
	defer run.release()
	if err != nil {
		return nil, err
	}
	h.Counts().requestBytes.Observe(float64(len(review)))
	ctx, cancel := due.context(r)
	defer cancel()
	if err := h.converting.acquire(ctx); err != nil {
		return nil, busy(err)
	}
	defer h.converting.release()
	if err := c.left.Full(run.all); err != nil {
		return nil, err
	}
	run.memory.Of, run.memory.Context = h.objects, ctx
	if err = hang.Await(ctx, run); run.ended != nil && run.memory.Waits() {
		return nil, fmt.Errorf("%w; %w", err, hang.ErrNoMemory)
	} else if err != nil {
		return nil, err
	}
	return run.answer, nil
}
