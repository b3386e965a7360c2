package eirinixtest

// This file implements CheckDeadline and CheckDryRun, which observe the handler's run time and its writes to the API.

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"

	"code.cloudfoundry.org/eirinix/internal/apiserver"
)

const (
	onTime      = "on time"
	dryRunProof = "without side effects"
)

const (
	// shortTimeout is the webhook timeout while the deadline is checked.
	shortTimeout = 200 * time.Millisecond

	// deadlineGrace is the time in which a handler must return after its context has ended, on a busy machine.
	deadlineGrace = time.Second

	// effectsWindow is the time in which writes by abandoned goroutines of the handler are still observed.
	effectsWindow = 50 * time.Millisecond
)

func (h *Harness) deadline(object any, options []RequestOption) error {
	defer h.log.mute()()
	defer h.API().Stall()()
	ran := false
	for _, r := range h.candidates(object, slices.Concat(options, []RequestOption{WebhookTimeout(shortTimeout)})) {
		result, err := h.send(r)
		if err != nil {
			return fmt.Errorf("eirinixtest: %w", err)
		}
		ran = ran || len(result.Steps) > 0
		if err := late(result, r, apiserver.Document{}); err != nil {
			return err
		}
	}
	if !ran {
		return errNothingRan
	}
	return nil
}

// late waits for the steps that a request has left behind, and returns the violation of one that does not end.
func late(result *Result, r Request, object apiserver.Document) error {
	grace := time.NewTimer(deadlineGrace)
	defer grace.Stop()
	for _, run := range result.outcome.Trace.Runs() {
		select {
		case <-run.Done:
		case <-grace.C:
			return &violation{
				property: onTime, what: fmt.Sprintf("%s was called with a timeout of %s, and step %s was still running %s later", r.Operation, r.WebhookTimeout, run.Step, deadlineGrace), proof: beginning(object),
				remedy: "pass the handler's context to every call that waits (clients, HTTP requests, databases) instead of context.Background or context.TODO, select on ctx.Done() beside every channel, and check ctx.Err() in long loops.",
			}
		}
	}
	return nil
}

func (h *Harness) dryRun(object any, options []RequestOption) error {
	defer h.log.mute()()
	for _, p := range h.programs {
		if !p.wired {
			return fmt.Errorf("eirinixtest: whether it is %s cannot be checked for a Manager with a RestConfig, KubeConfig or KubeManager of its own: leave them out, and the harness gives it Harness.API", dryRunProof)
		}
	}
	// All dry runs come first. A background write of a real request could otherwise be attributed to a dry run.
	var real []Request
	var by *Result // the last dry run in which a step ran: a write that comes later than that was watched is its
	for _, r := range h.candidates(object, options) {
		dry := r
		dry.DryRun = true
		result, writes, err := h.watched(dry)
		if err != nil {
			return err
		}
		operation := r.Operation
		if len(result.Steps) > 0 {
			by, real = result, append(real, r)
		} else if len(real) > 0 {
			operation = real[len(real)-1].Operation
		}
		if len(writes) > 0 {
			return &violation{
				property: dryRunProof, what: fmt.Sprintf("in a dry run of %s it wrote to the API (%s)", operation, stepsOf(cmp.Or(by, result))), proof: list(writes),
				remedy: "look at the request's DryRun (Call.DryRun, req.DryRun) before you write anything, or pass client.DryRunAll; and say Settings.SideEffects: NoneOnDryRun.",
			}
		}
	}
	if len(real) == 0 {
		return errNothingRan
	}
	for _, r := range real {
		result, writes, err := h.watched(r)
		if err != nil {
			return err
		}
		if silent := h.declaresNone(result); len(writes) > 0 && silent != "" {
			return &violation{
				property: dryRunProof, what: fmt.Sprintf("at %s it wrote to the API, although %s is registered with sideEffects None (%s)", r.Operation, silent, stepsOf(result)), proof: list(writes),
				remedy: "say Settings.SideEffects: NoneOnDryRun. The API server goes by it.",
			}
		}
	}
	return nil
}

// watched sends a request and returns the writes during it, including those of abandoned goroutines of the handler.
func (h *Harness) watched(r Request) (*Result, []APIRequest, error) {
	before := len(h.API().Writes())
	result, err := h.send(r)
	if err != nil {
		return nil, nil, fmt.Errorf("eirinixtest: %w", err)
	}
	window := time.NewTimer(effectsWindow)
	defer window.Stop()
	<-window.C
	return result, h.API().Writes()[before:], nil
}

// declaresNone returns the first called webhook whose sideEffects are None, or an empty string.
func (h *Harness) declaresNone(r *Result) string {
	for _, c := range r.Calls {
		if s := h.server.SideEffects(c.Webhook); s != nil && *s == admissionregistrationv1.SideEffectClassNone {
			return c.Webhook
		}
	}
	return ""
}

func list(writes []APIRequest) string {
	var b strings.Builder
	for _, w := range writes {
		fmt.Fprintln(&b, w)
	}
	return b.String()
}
