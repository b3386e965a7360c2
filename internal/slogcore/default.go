package slogcore

// This file makes the logger of programs that bring none.

import (
	"os"

	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
)

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
