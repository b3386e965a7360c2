package main

// This file holds back the Manager's log.

import (
	"fmt"
	"io"
	"os"
	"strings"
	"sync"

	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
)

// keptLines is the number of lines of the Manager's log that are kept.
const keptLines = 50

// logs receives the Manager's log. It shows errors at once. Other lines are shown only if the demo fails, or at once
// with -v. This keeps the demo's own output readable.
type logs struct {
	logger *zap.SugaredLogger

	mu    sync.Mutex
	lines []string
}

func newLogs(verbose bool) *logs {
	l := &logs{}
	encoder := zapcore.NewConsoleEncoder(zap.NewDevelopmentEncoderConfig())
	shown, stderr := zapcore.ErrorLevel, zapcore.Lock(os.Stderr)
	if verbose {
		shown = zapcore.InfoLevel
	}
	kept := zap.LevelEnablerFunc(func(level zapcore.Level) bool { return level >= zapcore.InfoLevel && level < shown })
	l.logger = zap.New(zapcore.NewTee(
		zapcore.NewCore(encoder, stderr, shown),
		zapcore.NewCore(encoder, zapcore.AddSync(l), kept),
	)).Sugar()
	return l
}

// Write keeps a line of the log.
func (l *logs) Write(b []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.lines = append(l.lines, string(b))
	if len(l.lines) > keptLines {
		l.lines = l.lines[len(l.lines)-keptLines:]
	}
	return len(b), nil
}

// show writes the lines that were kept.
func (l *logs) show(w io.Writer) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.lines) > 0 {
		_, _ = fmt.Fprintf(w, "--- the Manager's log ---\n%s---\n", strings.Join(l.lines, ""))
	}
}
