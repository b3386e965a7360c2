package main

import (
	"io"

	"github.com/go-logr/zapr"
	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
	logf "sigs.k8s.io/controller-runtime/pkg/log"
)

// quietLogger is what a production program logs with, at info level, but nobody reads it.
func quietLogger() *zap.Logger {
	return zap.New(zapcore.NewCore(zapcore.NewJSONEncoder(zap.NewProductionEncoderConfig()), zapcore.AddSync(io.Discard), zapcore.InfoLevel))
}

// quiet makes controller-runtime log through it, and not complain that nobody told it where to.
func quiet() { logf.SetLogger(zapr.NewLogger(quietLogger())) }
