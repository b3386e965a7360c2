package rotation_test

// This file generates the load: admissions through every API server, each of which must leave the marks of certain steps.

import (
	"context"
	"fmt"
	"maps"
	"strconv"
	"sync/atomic"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"code.cloudfoundry.org/eirinix"
	"code.cloudfoundry.org/eirinix/testing/internal/load"
)

// every is the time between two calls through one API server, if the machine can keep up.
const every = 200 * time.Millisecond

// How many calls through one API server may be in flight at once.
const (
	few  = 6
	many = 40 // requests to a frozen API server pile up, and all run at once when it goes on
)

// serverName names an API server in a stream.
func serverName(n int) string { return fmt.Sprintf("through API server %d", n) }

// admissions is a stream of them, about one deployment.
type admissions struct {
	*load.Stream
	d      *deployment
	wanted atomic.Pointer[wanted]
}

// startLoad sends admissions until the end of the stream.
func (d *deployment) startLoad(ctx context.Context, inFlight int) *admissions {
	GinkgoHelper()
	a := &admissions{Stream: load.NewStream(), d: d}
	d.obeyed(ctx, nil)
	d.balancer.Unserved.Store(0) // the canary of the first replica may have come before its endpoint
	for n := range servers {
		clients := clientsOf(n)
		a.Send(serverName(n), every, inFlight, func(ctx context.Context, _ int) error {
			before := a.wanted.Load()
			marks, err := admitted(ctx, clients, d.objects)
			if err != nil {
				return err
			}
			if err = before.missedBy(marks); err == nil {
				return nil
			}
			if after := a.wanted.Load(); after != before {
				return after.missedBy(marks)
			}
			return err
		})
	}
	return a
}

// obeyed waits until every API server acts on the registration that stands.
func (d *deployment) obeyed(ctx context.Context, w *wanted) {
	GinkgoHelper()
	for n := range servers {
		clients := clientsOf(n)
		Eventually(func() error {
			marks, err := admitted(ctx, clients, d.objects)
			if err != nil {
				return err
			}
			return w.missedBy(marks)
		}).WithContext(ctx).Should(Succeed())
	}
}

// admitted has one object admitted, and returns the marks that steps have left.
func admitted(ctx context.Context, clients kubernetes.Interface, namespace string) (map[string]string, error) {
	c, err := clients.CoreV1().ConfigMaps(namespace).Create(ctx, &corev1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{GenerateName: "load-", Labels: map[string]string{"tier": "1"}},
	}, metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
	if err != nil {
		return nil, err
	}
	if c.Labels["mutated"] != "yes" {
		return nil, fmt.Errorf("admitted without the mutation")
	}
	return c.Data, nil
}

// expectNoFailure ends the load, and sees that nothing failed, and that every call had a handshake of its own.
func (a *admissions) expectNoFailure(phase string, figures ...any) {
	GinkgoHelper()
	a.end(phase, figures...)
	Expect(a.Failures()).To(BeEmpty())
	Expect(a.d.balancer.Unserved.Load()).To(BeZero(), "connections without a replica")
}

// end ends the load, reports its figures, and sees that every call had a handshake of its own.
func (a *admissions) end(phase string, figures ...any) {
	GinkgoHelper()
	a.End()
	b := a.d.balancer
	AddReportEntry(fmt.Sprintf(phase, figures...)+fmt.Sprintf(": %d admissions, %d failures, %d calls, %d handshakes, %d renewals of serving certificates",
		a.Total(), len(a.Failures()), a.d.calls.Load(), b.Handshakes.Load(), a.d.renewals.Load()), ReportEntryVisibilityAlways)
	Expect(b.Resumed.Load()).To(BeZero(), "handshakes without a certificate")
	Expect(a.d.calls.Load()).To(BeNumerically(">=", 2*a.Total()))
	Expect(b.Handshakes.Load()+int64(a.d.launched)).To(BeNumerically(">=", a.d.calls.Load()), "calls without a handshake of their own")
}

// wanted are the marks that steps must have left in an object. While another wanted takes its place, an admitted object may
// have those of either. The nil wanted accepts everything.
type wanted struct {
	marks map[string]string // an empty value stands for any
	exact bool              // and no others
}

func (w *wanted) missedBy(marks map[string]string) error {
	if w == nil {
		return nil
	}
	for id, value := range w.marks {
		if found, ok := marks[id]; !ok || value != "" && found != value {
			return fmt.Errorf("%s is %q instead of %q, in %v", id, found, value, marks)
		}
	}
	for id := range marks {
		if _, ok := w.marks[id]; w.exact && !ok {
			return fmt.Errorf("%s is there, in %v", id, marks)
		}
	}
	return nil
}

// mark is a step that leaves a value under its ID.
func mark(id, value string, settings eirinix.Settings) eirinix.Mutation[*corev1.ConfigMap] {
	settings.Timeout = 30 * time.Second
	if !settings.Isolated && settings.Objects == nil {
		settings.Timeout = 10 * time.Second // up to three steps share the 30 s that there are for one call
	}
	return eirinix.Mutation[*corev1.ConfigMap]{ID: id, Settings: settings, Apply: func(_ context.Context, _ *eirinix.Call, c *corev1.ConfigMap) error {
		if c.Data == nil {
			c.Data = map[string]string{}
		}
		c.Data[id] = value
		return nil
	}}
}

// version is one version of a program: its steps beside those that every replica has, and their marks.
type version struct {
	steps []any
	marks map[string]string
}

// newVersion makes each step twice: one shares a call with the others, and one has a call of its own. The step "changed"
// selects other objects in each version, and does something else.
func newVersion(number int, ids ...string) version {
	v := version{marks: map[string]string{}}
	for _, id := range ids {
		for _, isolated := range []bool{false, true} {
			name, value, settings := id, "yes", eirinix.Settings{Isolated: isolated}
			if isolated {
				name += "-alone"
			}
			if id == "changed" {
				value = strconv.Itoa(number)
				settings.Objects = &metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{
					{Key: "tier", Operator: metav1.LabelSelectorOpIn, Values: []string{"1", "2"}[:number]},
				}}
			}
			v.steps, v.marks[name] = append(v.steps, mark(name, value, settings)), value
		}
	}
	return v
}

var (
	older = newVersion(1, "stays", "removed", "changed")
	newer = newVersion(2, "stays", "added", "changed")
)

// alone wants the version's steps, and no others.
func (v version) alone() *wanted { return &wanted{marks: v.marks, exact: true} }

// with wants the steps that both versions have. Where they do something else, either will do.
func (v version) with(w version) *wanted {
	both := maps.Clone(v.marks)
	for id, value := range v.marks {
		switch other, has := w.marks[id]; {
		case !has:
			delete(both, id)
		case other != value:
			both[id] = ""
		}
	}
	return &wanted{marks: both}
}
