// Package slogcore lets a zap logger write to a logr logger, through the handler of log/slog that logr has for each. It
// also makes the logger of programs that bring none.
package slogcore

import (
	"context"
	"log/slog"
	"maps"
	"os"
	"slices"

	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
)

// New returns a core that writes to the handler. Levels below Info become the verbosity of logr.
func New(handler slog.Handler) zapcore.Core { return &core{handler} }

type core struct{ handler slog.Handler }

// level returns the level of log/slog. Those of zap are Debug -1, Info 0, Warn 1 and Error 2. Higher ones are errors.
func level(l zapcore.Level) slog.Level {
	switch {
	case l <= zapcore.InfoLevel:
		return slog.Level(l)
	case l == zapcore.WarnLevel:
		return slog.LevelWarn
	}
	return slog.LevelError
}

// Enabled reports whether the handler takes lines of this level.
func (c *core) Enabled(l zapcore.Level) bool {
	return c.handler.Enabled(context.Background(), level(l))
}

// With returns a core that adds the fields to every line.
func (c *core) With(fields []zapcore.Field) zapcore.Core {
	handler := c.handler
	for len(fields) > 0 {
		plain, group, rest := split(fields)
		if attrs := attrsOf(plain); len(attrs) > 0 {
			handler = handler.WithAttrs(attrs)
		}
		if group != "" {
			handler = handler.WithGroup(group)
		}
		fields = rest
	}
	return &core{handler}
}

// split returns the fields before a namespace, its name, and the fields in it.
func split(fields []zapcore.Field) (before []zapcore.Field, group string, inside []zapcore.Field) {
	for i, f := range fields {
		if f.Type == zapcore.NamespaceType {
			return fields[:i], f.Key, fields[i+1:]
		}
	}
	return fields, "", nil
}

// Check adds the core to an entry that it takes.
func (c *core) Check(entry zapcore.Entry, checked *zapcore.CheckedEntry) *zapcore.CheckedEntry {
	if c.Enabled(entry.Level) {
		return checked.AddCore(entry, c)
	}
	return checked
}

// Write writes a line.
func (c *core) Write(entry zapcore.Entry, fields []zapcore.Field) error {
	record := slog.NewRecord(entry.Time, level(entry.Level), entry.Message, entry.Caller.PC)
	if entry.LoggerName != "" {
		record.AddAttrs(slog.String("logger", entry.LoggerName))
	}
	record.AddAttrs(attrsOf(fields)...)
	if entry.Stack != "" {
		record.AddAttrs(slog.String("stacktrace", entry.Stack))
	}
	return c.handler.Handle(context.Background(), record)
}

// Sync does nothing: handlers of log/slog have no buffer that could be flushed.
func (c *core) Sync() error { return nil }

// attrsOf returns the attributes of fields, in their order.
func attrsOf(fields []zapcore.Field) (all []slog.Attr) {
	plain, group, inside := split(fields)
	for _, f := range plain {
		if err, ok := f.Interface.(error); ok && f.Type == zapcore.ErrorType {
			all = append(all, slog.Any(f.Key, err))
			continue
		}
		values := zapcore.NewMapObjectEncoder() // a field can add several values, as inlined objects do
		f.AddTo(values)
		for _, name := range slices.Sorted(maps.Keys(values.Fields)) {
			all = append(all, slog.Any(name, values.Fields[name]))
		}
	}
	if group != "" {
		all = append(all, slog.Attr{Key: group, Value: slog.GroupValue(attrsOf(inside)...)})
	}
	return all
}

// NewDefault returns zap's production logger on standard error.
func NewDefault() *zap.SugaredLogger {
	info, err := os.Stderr.Stat()
	logger, err := loggerConfig(err == nil && info.Mode()&os.ModeCharDevice != 0).Build()
	if err != nil { // only if standard error cannot be opened
		logger = zap.NewNop()
	}
	return logger.Sugar()
}

// loggerConfig returns the configuration of the default logger: readable lines for a terminal, else JSON.
func loggerConfig(terminal bool) zap.Config {
	config := zap.NewProductionConfig()
	config.EncoderConfig.EncodeTime = zapcore.TimeEncoderOfLayout("2006-01-02T15:04:05.000Z07:00")
	if terminal {
		config.Encoding = "console"
		config.EncoderConfig.EncodeTime = zapcore.TimeEncoderOfLayout("15:04:05.000")
		config.EncoderConfig.EncodeLevel = zapcore.CapitalLevelEncoder
		config.EncoderConfig.CallerKey = zapcore.OmitKey
	}
	return config
}
