package chain

// This file reports the outcomes of calls, and makes their loggers. They compute their values only when a line is logged.

import (
	"context"
	"errors"
	"slices"
	"strings"
	"time"

	"github.com/go-logr/logr"
	admissionv1 "k8s.io/api/admission/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"code.cloudfoundry.org/eirinix/internal/hang"
	"code.cloudfoundry.org/eirinix/internal/lograte"
)

// lazily returns a logger that computes its values when a line is logged, and not for every request.
func lazily(log logr.Logger, values func() []any) logr.Logger {
	sink := log.GetSink()
	if sink == nil {
		return log
	}
	return logr.New(&lazySink{LogSink: sink, values: values})
}

type lazySink struct {
	logr.LogSink
	values func() []any
}

// full returns the sink with the values. It adds one to the call depth, for the method of lazySink that calls the sink.
func (s *lazySink) full() logr.LogSink {
	sink := s.LogSink.WithValues(s.values()...)
	if deep, ok := sink.(logr.CallDepthLogSink); ok {
		return deep.WithCallDepth(1)
	}
	return sink
}

// Init does nothing, because the wrapped sink has been initialized already.
func (s *lazySink) Init(logr.RuntimeInfo) {}

func (s *lazySink) Info(level int, message string, keysAndValues ...any) {
	s.full().Info(level, message, keysAndValues...)
}

func (s *lazySink) Error(err error, message string, keysAndValues ...any) {
	s.full().Error(err, message, keysAndValues...)
}

func (s *lazySink) WithValues(keysAndValues ...any) logr.LogSink {
	return s.LogSink.WithValues(s.values()...).WithValues(keysAndValues...)
}

func (s *lazySink) WithName(name string) logr.LogSink {
	return s.LogSink.WithValues(s.values()...).WithName(name)
}

// Report logs, counts and traces the outcome of a call, whose answer took so long.
func (x *Runner) Report(ctx context.Context, c *Chain, req *admissionv1.AdmissionRequest, o Outcome, took time.Duration) {
	x.describe(ctx, req, o)
	if o.Err != nil {
		c.metrics.answered(took, 0, 0, x.exemplar(ctx))
		c.logFailure(c.logger(x.Logger(ctx), req), o.Err, "step failed; failurePolicy decides",
			"user", brief(req.UserInfo.Username), "took", took.String())
		return
	}
	resp := o.Response
	c.metrics.answered(took, o.operations, len(resp.Patch), x.exemplar(ctx))
	if !resp.Allowed {
		c.denials.Of(c.blaming(c.logger(x.Logger(ctx), req), o.deniedBy), o.deniedBy, resp.Result.Message).Info("denied",
			"user", brief(req.UserInfo.Username), "code", resp.Result.Code, "reason", resp.Result.Message, "took", took.String())
	} else if x.Log.V(1).Enabled() {
		c.logger(x.Logger(ctx), req).V(1).Info("allowed", "patchBytes", len(resp.Patch), "took", took.String())
	}
}

// logger returns a logger that adds the request to every line, and the step if the webhook has only one.
func (c *Chain) logger(log logr.Logger, req *admissionv1.AdmissionRequest) logr.Logger {
	return lazily(log, func() []any {
		values := []any{
			"webhook", c.Webhook, "uid", brief(string(req.UID)), "operation", req.Operation,
			"resource", brief(resourceOf(req)), "namespace", brief(req.Namespace), "name", brief(req.Name),
		}
		if len(c.steps) == 1 {
			values = append(values, "step", c.Name)
		}
		return values
	})
}

// blaming returns a logger that adds the given steps to every line, if the webhook has several.
func (c *Chain) blaming(log logr.Logger, steps ...string) logr.Logger {
	if len(c.steps) == 1 || len(steps) == 0 {
		return log
	}
	return log.WithValues("step", strings.Join(steps, ", "))
}

// logFailure logs the failure of a step once, with the stack if it was a panic, unless there were many.
func (c *Chain) logFailure(log logr.Logger, err error, message string, keysAndValues ...any) {
	if failed, ok := errors.AsType[*stepError](err); ok && !slices.Contains(failed.steps, c.Name) {
		log = c.blaming(log, failed.steps...)
	}
	log = c.failures.Of(log, message, err.Error())
	if p, ok := errors.AsType[*hang.PanicError](err); ok {
		keysAndValues = append(keysAndValues, "stack", string(p.Stack))
	}
	log.Error(err, message, keysAndValues...)
}

func resourceOf(req *admissionv1.AdmissionRequest) string {
	resource := schema.GroupResource{Group: req.Resource.Group, Resource: req.Resource.Resource}.String()
	if req.SubResource != "" {
		resource += "/" + req.SubResource
	}
	return resource
}

// brief bounds the text that a client can put in an answer or a log line. The bound is the longest name that Kubernetes
// allows.
func brief(s string) string { return lograte.Brief(s, 253) }
