package eirinixtest_test

import (
	"fmt"
	"runtime"
	"strings"
	"sync"
	"time"

	. "github.com/onsi/ginkgo/v2"

	eirinixtest "code.cloudfoundry.org/eirinix/testing"
)

// fakeTest is a test that may fail without failing the spec.
type fakeTest struct {
	mu       sync.Mutex
	failure  string
	errors   []reported
	log      []string
	cleanups []func()
}

// reported is a failure, with the time at which it was reported.
type reported struct {
	at   time.Time
	text string
}

var _ eirinixtest.TB = (*fakeTest)(nil)

func (t *fakeTest) Helper()          {}
func (t *fakeTest) Failed() bool     { return t.failure != "" }
func (t *fakeTest) Cleanup(f func()) { t.cleanups = append(t.cleanups, f) }

func (t *fakeTest) Logf(format string, args ...any) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.log = append(t.log, fmt.Sprintf(format, args...))
}

func (t *fakeTest) Errorf(format string, args ...any) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.failure = strings.TrimPrefix(t.failure+"\n\n"+fmt.Sprintf(format, args...), "\n\n")
	t.errors = append(t.errors, reported{time.Now(), fmt.Sprintf(format, args...)})
}

func (t *fakeTest) Fatalf(format string, args ...any) {
	t.failure = fmt.Sprintf(format, args...)
	runtime.Goexit()
}

// failureOf runs a test to its end and returns its failure, "" if it passed.
func failureOf(test func(t *fakeTest)) string {
	GinkgoHelper()
	t := &fakeTest{}
	done := make(chan struct{})
	go func() {
		defer GinkgoRecover()
		defer close(done)
		defer func() {
			for _, f := range t.cleanups {
				f()
			}
		}()
		test(t)
	}()
	<-done
	if t.failure != "" {
		AddReportEntry("the test failed with", ReportEntryVisibilityFailureOrVerbose, strings.TrimSpace(t.failure))
	}
	return t.failure
}
