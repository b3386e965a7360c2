package admit

import (
	"github.com/go-logr/logr"
)

// lazily gives a logger that works out its values when something is logged, and not for every request.
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

// full is the sink with the values, one call further away from who logs.
func (s *lazySink) full() logr.LogSink {
	sink := s.LogSink.WithValues(s.values()...)
	if deep, ok := sink.(logr.CallDepthLogSink); ok {
		return deep.WithCallDepth(1)
	}
	return sink
}

// Init does nothing: the sink behind has been told who it works for.
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
