package diagnose_test

// The schedule of a watch, in the fake time of synctest, which needs a *testing.T, and what it logs.

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
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
func (n *notes) Write(text []byte) (int, error) {
	var line struct{ Level, Msg, Remedy string }
	if err := json.Unmarshal(text, &line); err != nil {
		return 0, err
	}
	if line.Remedy != "" {
		line.Msg += " | " + line.Remedy
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	n.lines = append(n.lines, fmt.Sprintf("%d %s %s", int(time.Since(n.began).Seconds()), strings.ToLower(line.Level), line.Msg))
	return len(text), nil
}

func (n *notes) read() []string {
	n.mu.Lock()
	defer n.mu.Unlock()
	return slices.Clone(n.lines)
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
	giveUp := "600 error the path from the API server to this program is still broken; this was the last check | repair the problems that were logged before, and call Diagnose"
	minutely := []int{0, 10, 30, 60, 120, 180, 240, 300, 360, 420, 480, 540, 600}
	for name, c := range map[string]struct {
		look  func(second int) diagnose.Look
		looks []int
		lines []string
	}{
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
		"says that it has come right, and counts from when it found a fault": {
			func(s int) diagnose.Look {
				if s >= 180 {
					return well
				}
				missing := problem(diagnosis.ServiceMissing, "no Service")
				return map[bool]diagnose.Look{false: of(false, missing), true: of(false, missing, problem(diagnosis.TimedOut, "no answer"))}[s >= 30]
			},
			[]int{0, 10, 30, 60, 120, 180},
			[]string{
				"0 error no Service | mend it", "60 info not called yet: no answer; checking again | mend it",
				"120 error not called yet: no answer; checking again | mend it", "180 info the API server calls this program now",
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
				configurations := diagnose.WatchWith(t.Context(), n.logger(), func() diagnose.Look {
					second := int(time.Since(n.began).Seconds())
					looks = append(looks, second)
					return c.look(second)
				})
				g.Expect(looks).To(Equal(c.looks))
				g.Expect(configurations).To(Equal(len(looks)), "each has that of its time")
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

var _ = It("A problem that waiting may mend is known by its code, and some only pass behind a Service", func() {
	behindService := []diagnosis.Code{diagnosis.ConnectionRefused, diagnosis.ConnectionBroken, diagnosis.NoRoute}
	for _, code := range slices.Concat(behindService, []diagnosis.Code{
		diagnosis.APIServerUnreachable, diagnosis.NotCalled, diagnosis.NoReadyEndpoints, diagnosis.TimedOut, diagnosis.NoTunnel, diagnosis.BadAnswer,
		diagnosis.Shadowed, diagnosis.UnknownAuthority, diagnosis.BundleEmpty, diagnosis.BundleUnreadable, diagnosis.Unexplained,
	}) {
		Expect(diagnose.Propagates(code, true)).To(BeTrue(), code)
		Expect(diagnose.Propagates(code, false)).NotTo(Equal(slices.Contains(behindService, code)), code)
	}
	for _, code := range []diagnosis.Code{
		diagnosis.NotStarted, diagnosis.TooOld, diagnosis.NotRegistered, diagnosis.OwnedElsewhere, diagnosis.WrongTarget, diagnosis.NameMismatch,
		diagnosis.Expired, diagnosis.NotTLS, diagnosis.CallerRefused, diagnosis.NamespaceMissing, diagnosis.ServiceMissing, diagnosis.ServiceUnusable,
		diagnosis.PortMismatch, diagnosis.NoSuchHost, diagnosis.NothingListens,
	} {
		Expect(diagnose.Propagates(code, true)).To(BeFalse(), code)
		Expect(diagnose.Propagates(code, false)).To(BeFalse(), code)
	}
})

var _ = It("A watch logs at once, as an error, what waiting cannot mend, though the API server gets no answer",
	Label("api-server"), func(ctx SpecContext) {
		d := newDeployment(ctx)
		hole := d.Options
		hole.Target.Port = newBlackhole()
		d.registered, d.Settle = &hole, 0
		d.register(ctx)
		watching, cancel := context.WithCancel(ctx)
		n, done, config := newNotes(), make(chan struct{}), func() diagnose.Config { return d.Config }
		go func() { defer close(done); diagnose.Watch(watching, config, n.logger()) }()
		Eventually(n.read).Should(HaveExactElements(And(ContainSubstring(" error "), ContainSubstring("instead of https://127.0.0.1:"), ContainSubstring(" | "), ContainSubstring("call RegisterExtensions"))))
		cancel()
		Eventually(done).Should(BeClosed())
	}, SpecTimeout(2*patience))
