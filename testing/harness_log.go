package eirinixtest

import (
	"strings"
	"sync"

	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
)

// testLog is where the log of the programs under test goes. A step that is left behind may go on writing when the
// test is over; nobody listens then, as t.Logf would panic.
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

// logger writes to the test's log.
func (l *testLog) logger() *zap.SugaredLogger {
	c := zap.NewDevelopmentEncoderConfig()
	c.TimeKey = "" // a test's log is read for what happened
	return zap.New(zapcore.NewCore(zapcore.NewConsoleEncoder(c), zapcore.AddSync(l), zapcore.InfoLevel)).Sugar()
}

// Write takes one line.
func (l *testLog) Write(line []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if !l.over && l.muted == 0 {
		l.t.Logf("%s", strings.TrimRight(string(line), "\n"))
	}
	return len(line), nil
}

// mute drops what is logged until the returned function is called: a property that sends a thousand requests to a
// broken extension has one thing to say.
func (l *testLog) mute() (unmute func()) {
	count := func(n int) {
		l.mu.Lock()
		defer l.mu.Unlock()
		l.muted += n
	}
	count(1)
	return func() { count(-1) }
}
