// Package spectest holds the fixtures that specs of several packages share. Shipped code must not import it. A spec
// imports it with a dot, like ginkgo and gomega.
package spectest

// This file holds the fixtures of every spec: a value that must exist, a logger, a port.

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"net/http"
	"slices"
	"sync"
	"syscall"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
	"go.uber.org/zap/zaptest/observer"
)

// Must returns the value and fails the spec if there is an error.
func Must[T any](value T, err error) T {
	GinkgoHelper()
	Expect(err).NotTo(HaveOccurred())
	return value
}

// RoundTrip is a transport that a function plays.
type RoundTrip func(*http.Request) (*http.Response, error)

// RoundTrip implements http.RoundTripper.
func (f RoundTrip) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

// Lines are those of a log. It is safe for concurrent use.
type Lines struct {
	mu  sync.Mutex
	all []string
}

// Add appends a line.
func (l *Lines) Add(line string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.all = append(l.all, line)
}

// All returns a copy.
func (l *Lines) All() []string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return slices.Clone(l.all)
}

// Log returns the core of a logger that writes into the report of the spec.
func Log() zapcore.Core {
	encoder := zapcore.NewConsoleEncoder(zap.NewDevelopmentEncoderConfig())
	return zapcore.NewCore(encoder, zapcore.AddSync(GinkgoWriter), zapcore.InfoLevel)
}

// Observed returns a logger that writes into the report of the spec, and its entries.
func Observed() (*zap.SugaredLogger, *observer.ObservedLogs) {
	core, logs := observer.New(zapcore.InfoLevel)
	return zap.New(zapcore.NewTee(core, Log())).Sugar(), logs
}

// drawn holds the ports that FreePort has returned.
var drawn sync.Map

// FreePort returns a free port on loopback. It is not of those that systems give out themselves, so that no connection
// of another process takes it before the spec listens on it. It returns each port once: a webhook that another spec has
// registered at the same address would be an orphan of this one's program.
func FreePort() int32 {
	GinkgoHelper()
	for {
		port := 10_000 + rand.Int32N(22_000)
		if _, again := drawn.LoadOrStore(port, true); again {
			continue
		}
		l, err := net.Listen("tcp", fmt.Sprintf("127.0.0.1:%d", port))
		if errors.Is(err, syscall.EADDRINUSE) {
			continue
		}
		Expect(err).NotTo(HaveOccurred())
		Expect(l.Close()).To(Succeed())
		return port
	}
}
