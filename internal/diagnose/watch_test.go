package diagnose_test

// The schedule of a watch, in the fake time of synctest, which needs a *testing.T.

import (
	"context"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-logr/logr"
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"code.cloudfoundry.org/eirinix/diagnosis"
	"code.cloudfoundry.org/eirinix/internal/diagnose"
)

// notes is a log with the second of each line.
type notes struct {
	mu    sync.Mutex
	began time.Time
	lines []string
}

func newNotes() *notes { return &notes{began: time.Now()} }

func (n *notes) logger() logr.Logger {
	return logr.FromSlogHandler(slog.NewJSONHandler(n, nil))
}

// Write takes a line of JSON.
func (n *notes) Write(line []byte) (int, error) {
	_, level, _ := strings.Cut(string(line), `"level":"`)
	level, rest, _ := strings.Cut(level, `"`)
	_, message, _ := strings.Cut(rest, `"msg":"`)
	message, rest, _ = strings.Cut(message, `"`)
	if _, remedy, has := strings.Cut(rest, `"remedy":"`); has {
		remedy, _, _ = strings.Cut(remedy, `"`)
		message += " | " + remedy
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	n.lines = append(n.lines, fmt.Sprintf("%d %s %s", int(time.Since(n.began).Seconds()), strings.ToLower(level), message))
	return len(line), nil
}

func (n *notes) read() []string {
	n.mu.Lock()
	defer n.mu.Unlock()
	return slices.Clone(n.lines)
}

// watch returns the log of a watch that goes on until the spec ends.
func watch(ctx context.Context, d *deployment) *notes {
	GinkgoHelper()
	d.Settle = 0
	ctx, cancel := context.WithCancel(ctx)
	n, done := newNotes(), make(chan struct{})
	go func() { defer close(done); diagnose.Watch(ctx, d.Config, n.logger()) }()
	DeferCleanup(func() { cancel(); Eventually(done).WithTimeout(patience).Should(BeClosed()) })
	return n
}

func problem(code diagnosis.Code, message string) diagnosis.Finding {
	return diagnosis.Finding{Code: code, Severity: diagnosis.Problem, Object: "o", Message: message, Remedy: "mend it", Evidence: time.Now().String()}
}

func TestWatchSchedule(t *testing.T) {
	well := diagnose.Look{Through: true, Findings: []diagnosis.Finding{{Code: diagnosis.Healthy, Severity: diagnosis.Note, Message: "all is well"}}}
	of := func(service bool, findings ...diagnosis.Finding) diagnose.Look {
		return diagnose.Look{Findings: findings, Service: service}
	}
	timedOut := func() diagnose.Look { return of(true, problem(diagnosis.TimedOut, "no answer")) }
	refused := func(service bool) diagnose.Look { return of(service, problem(diagnosis.ConnectionRefused, "refused")) }
	giveUp := "600 error the path from the API server to this program is still broken; this was the last check | repair the problems that were logged before, and call Diagnose"
	minutely := []int{0, 10, 30, 60, 120, 180, 240, 300, 360, 420, 480, 540, 600}
	for name, c := range map[string]struct {
		look  func(second int) diagnose.Look
		looks []int
		lines []string
	}{
		"ends when all is well": {
			func(int) diagnose.Look { return well },
			[]int{0},
			[]string{"0 info the API server calls this program"},
		},
		"logs a fault that waiting cannot mend at once, and only once": {
			func(int) diagnose.Look { return of(false, problem(diagnosis.NoSuchHost, "no such host")) },
			minutely,
			[]string{"0 error no such host | mend it", giveUp},
		},
		"logs a fault that waiting may mend after 10, 30 and 60 s": {
			func(int) diagnose.Look { return timedOut() },
			minutely,
			[]string{
				"10 info not called yet: no answer; checking again | mend it", "30 info not called yet: no answer; checking again | mend it",
				"60 error not called yet: no answer; checking again | mend it", giveUp,
			},
		},
		"logs no fault that has passed after 10 s": {
			func(s int) diagnose.Look {
				if s >= 10 {
					return well
				}
				return refused(true)
			},
			[]int{0, 10},
			[]string{"10 info the API server calls this program"},
		},
		"says at once that a connection is refused where there is no Service": {
			func(s int) diagnose.Look {
				if s >= 10 {
					return well
				}
				return refused(false)
			},
			[]int{0, 10},
			[]string{"0 error refused | mend it", "10 info the API server calls this program now"},
		},
		"says that it has come right": {
			func(s int) diagnose.Look {
				if s >= 120 {
					return well
				}
				return of(false, problem(diagnosis.ServiceMissing, "no Service"), problem(diagnosis.TimedOut, "no answer"))
			},
			[]int{0, 10, 30, 60, 120},
			[]string{
				"0 error no Service | mend it", "10 info not called yet: no answer; checking again | mend it", "30 info not called yet: no answer; checking again | mend it",
				"60 error not called yet: no answer; checking again | mend it", "120 info the API server calls this program now",
			},
		},
		"logs a new fault, and a fault that has returned": {
			func(s int) diagnose.Look {
				switch {
				case s == 120:
					return of(false, problem(diagnosis.ServiceMissing, "no Service"), problem(diagnosis.TimedOut, "no answer"))
				case s == 240:
					return well
				case s == 180, s < 60:
					return of(false, problem(diagnosis.PortMismatch, "another port"))
				}
				return of(false)
			},
			[]int{0, 10, 30, 60, 120, 180, 240},
			[]string{
				"0 error another port | mend it", "120 error no Service | mend it", "120 error not called yet: no answer; checking again | mend it",
				"180 error another port | mend it", "240 info the API server calls this program now",
			},
		},
		"logs warnings once, and neither notes nor missing rights": {
			func(s int) diagnose.Look {
				l := of(false, diagnosis.Finding{Code: diagnosis.Excluded, Severity: diagnosis.Warning, Message: "left out"},
					diagnosis.Finding{Code: diagnosis.CheckSkipped, Severity: diagnosis.Warning, Message: "no right"},
					diagnosis.Finding{Code: diagnosis.Reached, Severity: diagnosis.Note, Message: "reached"})
				l.Through = s == 30
				return l
			},
			[]int{0, 10, 30},
			[]string{"0 warn left out", "30 info the API server calls this program"},
		},
		"ends where no canary can be sent": {
			func(int) diagnose.Look { return diagnose.Look{Blind: true} },
			[]int{0},
			[]string{"0 info it is not known whether the API server calls this program"},
		},
		"ends after ten minutes in which it has learned nothing": {
			func(int) diagnose.Look { return diagnose.Look{} },
			minutely,
			[]string{"600 info it is not known whether the API server calls this program"},
		},
		"does not wait for a slow answer": {
			func(s int) diagnose.Look {
				if s == 30 {
					return well
				}
				l := of(true, problem(diagnosis.WrongTarget, "wrong target"), problem(diagnosis.PortMismatch, "another port"), problem(diagnosis.TimedOut, "no answer"))
				l.Slowly = l.Findings[:1]
				return l
			},
			[]int{0, 10, 30},
			[]string{
				"0 error wrong target | mend it", "0 error another port | mend it", "10 info not called yet: no answer; checking again | mend it",
				"30 info the API server calls this program now",
			},
		},
		"counts from the start when looks take long": {
			func(s int) diagnose.Look {
				time.Sleep(12 * time.Second)
				return timedOut()
			},
			[]int{0, 30, 60, 120, 180, 240, 300, 360, 420, 480, 540, 600},
			[]string{
				"12 info not called yet: no answer; checking again | mend it", "42 info not called yet: no answer; checking again | mend it",
				"72 error not called yet: no answer; checking again | mend it", strings.Replace(giveUp, "600", "612", 1),
			},
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				g, n := NewWithT(t), newNotes()
				var looks []int
				diagnose.WatchWith(t.Context(), n.logger(), func() diagnose.Look {
					second := int(time.Since(n.began).Seconds())
					looks = append(looks, second)
					return c.look(second)
				})
				g.Expect(looks).To(Equal(c.looks))
				g.Expect(n.read()).To(Equal(c.lines))
			})
		})
	}
}

func TestWatchEndsWithItsContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g, n := NewWithT(t), newNotes()
		ctx, cancel := context.WithTimeout(t.Context(), 15*time.Second)
		defer cancel()
		diagnose.WatchWith(ctx, n.logger(), func() diagnose.Look {
			return diagnose.Look{Findings: []diagnosis.Finding{problem(diagnosis.NoSuchHost, "no such host")}}
		})
		g.Expect(time.Since(n.began)).To(Equal(15 * time.Second))
		g.Expect(n.read()).To(HaveLen(1))
	})
}

var _ = Describe("A problem that waiting may mend", func() {
	// mends is true of those that may pass by themselves, behind a Service and elsewhere.
	mends := map[diagnosis.Code][2]bool{
		diagnosis.APIServerUnreachable: {true, true},
		diagnosis.NotCalled:            {true, true},
		diagnosis.NoReadyEndpoints:     {true, true},
		diagnosis.TimedOut:             {true, true},
		diagnosis.NoTunnel:             {true, true},
		diagnosis.BadAnswer:            {true, true},
		diagnosis.Shadowed:             {true, true},
		diagnosis.UnknownAuthority:     {true, true},
		diagnosis.BundleEmpty:          {true, true},
		diagnosis.BundleUnreadable:     {true, true},
		diagnosis.Unexplained:          {true, true},
		diagnosis.ConnectionRefused:    {true, false},
		diagnosis.ConnectionBroken:     {true, false},
		diagnosis.NoRoute:              {true, false},
		diagnosis.NotStarted:           {},
		diagnosis.TooOld:               {},
		diagnosis.NotRegistered:        {},
		diagnosis.OwnedElsewhere:       {},
		diagnosis.WrongTarget:          {},
		diagnosis.NameMismatch:         {},
		diagnosis.Expired:              {},
		diagnosis.NotTLS:               {},
		diagnosis.CallerRefused:        {},
		diagnosis.NamespaceMissing:     {},
		diagnosis.ServiceMissing:       {},
		diagnosis.ServiceUnusable:      {},
		diagnosis.PortMismatch:         {},
		diagnosis.NoSuchHost:           {},
		diagnosis.NothingListens:       {},
	}
	for _, code := range slices.Sorted(maps.Keys(mends)) {
		It("is reported with its code: "+string(code), func() {
			Expect([2]bool{diagnose.Propagates(code, true), diagnose.Propagates(code, false)}).To(Equal(mends[code]))
		})
	}
})

var _ = Describe("A watch", Label("api-server"), func() {
	DescribeTable("is logged at once, as an error",
		func(ctx SpecContext, arrange func(context.Context, *deployment), message, remedy string) {
			d := newDeployment(ctx)
			arrange(ctx, d)
			d.register(ctx)
			n := watch(ctx, d)
			Eventually(n.read).WithTimeout(2 * time.Second).WithPolling(10 * time.Millisecond).Should(HaveExactElements(
				And(MatchRegexp(`^[01] error `), ContainSubstring(message), ContainSubstring(" | "), ContainSubstring(remedy))))
			Consistently(n.read).WithTimeout(200 * time.Millisecond).Should(HaveLen(1))
		},
		Entry("that the host does not resolve", func(_ context.Context, d *deployment) {
			// Go's resolver asks no server for a label that is too long.
			d.Options.Target.Host = strings.Repeat("x", 64) + ".invalid"
			d.leaf, d.Verify = nil, nil
		}, "the API server cannot resolve the name of", "set ManagerOptions.Host", SpecTimeout(patience)),
		Entry("that the Service is missing", func(_ context.Context, d *deployment) { d.inServiceMode() },
			"which the API server calls, does not exist", "create it, or correct ManagerOptions.ServiceName", SpecTimeout(patience)),
		Entry("that the port is not the one that is listened on", func(_ context.Context, d *deployment) { d.Options.Target.Port = freePort() },
			"but this process listens on port", "set ManagerOptions.Port to", SpecTimeout(patience)),
		Entry("that nothing listens on the port", func(_ context.Context, d *deployment) {
			d.Options.Target.Port, d.Listen = freePort(), ""
		}, "nothing listens at", "set ManagerOptions.Host and Port", SpecTimeout(patience)),
		Entry("that this process has stopped listening", func(_ context.Context, d *deployment) { Expect(d.server.Close()).To(Succeed()) },
			"this process does not answer on", "restart it", SpecTimeout(patience)),
		Entry("that another address is registered, though the API server gets no answer", func(ctx context.Context, d *deployment) {
			hole := d.Options
			hole.Target.Port = newBlackhole()
			d.registered = &hole
		}, "instead of https://127.0.0.1:", "call RegisterExtensions", SpecTimeout(patience)),
	)

	It("logs one line when all is well", func(ctx SpecContext) {
		d := newDeployment(ctx)
		d.behind(ctx, toLoopback())
		d.register(ctx)
		n := newNotes()
		d.Settle = 0
		diagnose.Watch(ctx, d.Config, n.logger())
		Expect(n.read()).To(HaveExactElements(HaveSuffix(" info the API server calls this program")))
	}, SpecTimeout(patience))

	It("lists no webhooks of others", func(ctx SpecContext) {
		d := newDeployment(ctx)
		name := "user-" + d.Canary.Namespace
		apply(ctx, must(diagnose.Manifest(d.Canary.Namespace, diagnose.SubjectOf(name), []diagnosis.Right{{Resource: "configmaps", Verb: "create", Namespace: d.Canary.Namespace}})))
		d.register(ctx)
		d.awaitCalls(ctx)
		d.Clients, d.Versions = clientsFor(must(controlPlane.User(name))), func() []diagnose.VersionInfo { return nil }
		Eventually(func() []string {
			n := newNotes()
			diagnose.Watch(ctx, d.Config, n.logger())
			return n.read()
		}).WithTimeout(patience).Should(HaveExactElements(HaveSuffix("info the API server calls this program")))
	}, SpecTimeout(2*patience))
})
