package admit

// This file computes the values of a logger only when a line is logged.

import (
	"github.com/go-logr/logr"
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
