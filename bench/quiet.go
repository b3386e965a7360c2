package main

// This file makes logging cost as much as in production, without output.

import (
	"io"

	"github.com/go-logr/zapr"
	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
	logf "sigs.k8s.io/controller-runtime/pkg/log"
)

// quietLogger returns the logger of a production program, at info level, with its output discarded.
func quietLogger() *zap.Logger {
	return zap.New(zapcore.NewCore(zapcore.NewJSONEncoder(zap.NewProductionEncoderConfig()), zapcore.AddSync(io.Discard), zapcore.InfoLevel))
}

// quiet makes controller-runtime log through quietLogger, so that it does not warn about a missing logger.
func quiet() { logf.SetLogger(zapr.NewLogger(quietLogger())) }
