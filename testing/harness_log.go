package eirinixtest

// This file writes the log of the programs under test to the test's log.

import (
	"strings"
	"sync"

	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
)

// testLog receives the log of the programs under test. An abandoned step can go on logging after the test is over. Its
// lines are then dropped, because t.Logf would panic.
type testLog struct {
	mu    sync.Mutex
	t     TB
	muted int
	over  bool
}

func newTestLog(t TB) *testLog {
	l := &testLog{t: t}
	t.Cleanup(func() {
		l.mu.Lock()
		defer l.mu.Unlock()
		l.over = true
	})
	return l
}

// logger returns a logger that writes to the test's log.
func (l *testLog) logger() *zap.SugaredLogger {
	c := zap.NewDevelopmentEncoderConfig()
	c.TimeKey = "" // timestamps only distract in a test's log
	return zap.New(zapcore.NewCore(zapcore.NewConsoleEncoder(c), zapcore.AddSync(l), zapcore.InfoLevel)).Sugar()
}

// Write logs one line.
func (l *testLog) Write(line []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if !l.over && l.muted == 0 {
		l.t.Logf("%s", strings.TrimRight(string(line), "\n"))
	}
	return len(line), nil
}

// mute drops log lines until the returned function is called. A property that sends a thousand requests to a broken
// extension would otherwise log the same failure a thousand times.
func (l *testLog) mute() (unmute func()) {
	count := func(n int) {
		l.mu.Lock()
		defer l.mu.Unlock()
		l.muted += n
	}
	count(1)
	return func() { count(-1) }
}
