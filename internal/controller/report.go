package controller

// This file reports certificates and registration in metrics, Events and logs.

import (
	"cmp"
	"context"
	"fmt"
	"runtime"
	"runtime/debug"
	"strings"
	"sync"
	"time"

	"github.com/go-logr/logr"
	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/events"

	"code.cloudfoundry.org/eirinix/internal/ca"
	"code.cloudfoundry.org/eirinix/internal/cluster"
	"code.cloudfoundry.org/eirinix/internal/collectors"
	"code.cloudfoundry.org/eirinix/internal/lograte"
)

const (
	eventNormal  = corev1.EventTypeNormal
	eventWarning = corev1.EventTypeWarning
)

// Report reports the state of one Controller. The nil Report does nothing.
type Report struct {
	secret          string // namespace/name, which identifies the deployment
	namespace, name string
	metrics         *metrics
	recorder        func() events.EventRecorder // created for the first Event; nil without the right to create Events

	logs lograte.Limiter

	// The fields below belong to the pass.
	waits    string         // the earlier version that stays registered, as last logged
	reported map[string]int // how many repairs in a row of a configuration were last reported
	uid      types.UID      // of the Secret; empty if there is none
}

// metrics are shared by all Managers of a program. The label secret distinguishes them.
type metrics struct {
	expiration, phase, generation, inSync, failing, contested, versions, waiting, canary, build *prometheus.GaugeVec
}

// newMetrics registers the metrics, or finds those that another Manager has registered.
func newMetrics(registerer prometheus.Registerer) (*metrics, error) {
	r := collectors.Registration{Registerer: registerer}
	gauges := func(name, help string, labels ...string) *prometheus.GaugeVec {
		return r.Gauges(name, help, append([]string{"secret"}, labels...)...)
	}
	return &metrics{
		expiration: gauges("certificate_expiration_timestamp_seconds", "Time at which a certificate expires: that of the CA, or the one that is served.", "role"),
		phase:      gauges("certificate_phase", "The state of the rotation of the CA: 1 for the phase that it is in.", "phase"),
		generation: gauges("certificate_generation", "Number of the CA that signs, counted up with each rotation."),
		inSync:     gauges("certificate_bundle_in_sync", "Whether every caBundle that is registered holds all CAs in use, and no other outside a rotation."),
		failing:    gauges("certificate_failing", "Whether the last pass over Secret and configurations failed."),
		contested:  gauges("registration_contested", "Number of repairs of a configuration in a row; 0 while that may be chance.", "kind", "configuration"),
		versions:   gauges("registration_versions", "Number of versions of the program that live."),
		waiting:    gauges("registration_waiting", "Whether steps of this process are not registered yet, by the reason: version, while the registration of another version stands; kind, while the cluster does not serve what a step is about; definition, while a CustomResourceDefinition does not exist.", "reason"),
		canary:     gauges("canary_last_success_timestamp_seconds", "Time at which this process last answered a canary, for which an API server has called it; 0 if none has."),
		build:      gauges("build_info", "1, with the version of this library and of Go.", "version", "goversion"),
	}, r.Err
}

// NewReport returns a Report of the deployment that the certificate Secret identifies. clients is nil if this process
// must not create Events. Their recorder ends with ctx.
func NewReport(ctx context.Context, namespace, name string, registerer prometheus.Registerer, clients cluster.Clients, log logr.Logger) *Report {
	r := &Report{secret: namespace + "/" + name, namespace: namespace, name: name, reported: map[string]int{}}
	var err error
	if r.metrics, err = newMetrics(registerer); err != nil { // the program has metrics of its own with our names
		log.Error(err, "certificate metrics cannot be registered; there will be none")
		r.metrics, _ = newMetrics(prometheus.NewRegistry()) // which shows them to no client
	}
	r.metrics.build.WithLabelValues(r.secret, version(), runtime.Version()).Set(1)
	if clients != nil {
		r.recorder = sync.OnceValue(func() events.EventRecorder {
			return cluster.NewRecorder(ctx, clients, "eirinix.cloudfoundry.org/manager")
		})
	}
	return r
}

// logLimited logs a message at once, when its reason changes, and again after a minute. It reports whether it logged.
func (r *Report) logLimited(log logr.Logger, message, reason string) bool {
	return r != nil && r.logs.Info(log, message, reason)
}

// The reasons why steps are not registered yet.
const (
	ForVersion    = "version"    // the registration of an earlier version is still in place
	ForKind       = "kind"       // the cluster does not serve the resources of the steps
	ForReads      = "reads"      // the objects that steps look at have not been listed
	ForDefinition = "definition" // a CustomResourceDefinition does not exist, which its user creates
)

// newcomer reports that another program has started under the same fingerprint.
func (r *Report) newcomer(log logr.Logger, err error) {
	if r == nil {
		return
	}
	if _, ok := r.logs.Allow("newcomer", err.Error()); ok {
		log.Error(err, "another program has started; this one stays registered")
	}
}

// Waits records whether steps of this process wait for a reason to end.
func (r *Report) Waits(reason string, waits bool) {
	if r != nil {
		r.metrics.waiting.WithLabelValues(r.secret, reason).Set(oneIf(waits))
	}
}

// failed records that a pass failed. The next successful pass resets the metric.
func (r *Report) failed(err error) {
	if r != nil && err != nil {
		r.metrics.failing.WithLabelValues(r.secret).Set(1)
	}
}

// blocked reports that this process has no right to take the action that is due.
func (r *Report) blocked(log logr.Logger, why string) {
	if r.logLimited(log, "this replica cannot take the next step for the certificates", why) {
		r.event(eventWarning, "CARotationBlocked", why)
	}
}

// observed reports the state that a pass has observed.
func (r *Report) observed(c *Controller, plan Plan, first string) {
	if r == nil {
		return
	}
	waits := cmp.Or(first, r.waits) // where the Lease cannot be written, it is not known which one is first
	if first == c.desired.Version || !c.Serving {
		waits = ""
	}
	switch {
	case waits == r.waits:
	case waits != "":
		c.Log.Info("an earlier version stays registered while one of its replicas lives; this replica answers its calls too",
			"registered", waits, "this", c.desired.Version)
	default:
		c.Log.Info("no replica of an earlier version is left, so this version registers", "this", c.desired.Version)
	}
	r.waits = waits
	r.metrics.versions.WithLabelValues(r.secret).Set(float64(max(1, c.versions.Serving())))
	r.Waits(ForVersion, waits != "")
	if leaf := c.Certificates.Certificate(); leaf != nil {
		r.metrics.expiration.WithLabelValues(r.secret, "serving").Set(seconds(leaf.NotAfter))
	}
	r.metrics.failing.WithLabelValues(r.secret).Set(oneIf(plan.Waiting != nil))
	retained := !c.Registers && plan.own != nil && !plan.Distrusted && c.Now().Before(plan.own.Since.Add(c.Retain*6/5)) // by RegisterExtensions
	r.metrics.inSync.WithLabelValues(r.secret).Set(oneIf(plan.Missing == "" && (plan.Surplus == "" || retained)))
	state := plan.own
	if state == nil {
		return
	}
	r.uid = state.UID
	if authority, err := state.Current(); err == nil {
		r.metrics.expiration.WithLabelValues(r.secret, "ca").Set(seconds(authority.Certificate.NotAfter))
	}
	for _, phase := range []ca.Phase{ca.Steady, ca.Staged, ca.Retaining} {
		r.metrics.phase.WithLabelValues(r.secret, string(phase)).Set(oneIf(state.Phase == phase))
	}
	r.metrics.generation.WithLabelValues(r.secret).Set(float64(state.CurrentID))
}

// contested reports that another client keeps reverting a configuration.
func (r *Report) contested(c *Controller, conf observed, times int) {
	if r == nil || !conf.holds {
		return
	}
	if times <= contestedAfter {
		times = 0
	}
	kind := strings.TrimSuffix(conf.String(), " "+conf.Name())
	r.metrics.contested.WithLabelValues(r.secret, kind, conf.Name()).Set(float64(times))
	if known := r.reported[conf.String()]; times != 0 && times < 2*known {
		return // reported before, and not yet twice as many
	}
	if r.reported[conf.String()] = times; times == 0 {
		return
	}
	by := ""
	if manager := c.managers[conf.Name()]; manager != "" {
		by = fmt.Sprintf(" by %q", manager)
	}
	remedy := "take it out of what that tool applies, or have it leave out webhooks"
	if !conf.Creates() {
		remedy = "have that tool leave out spec.conversion"
	}
	reason := fmt.Sprintf("it was edited or deleted%s %d times, shortly after each repair; %s", by, times, remedy)
	c.Log.Info("another client keeps reverting the registration", "configuration", conf.String(), "reason", reason)
	r.event(eventWarning, "RegistrationContested", conf.String()+": "+reason)
}

// event creates an Event on the Secret, for kubectl describe. A repeated Event increases its count.
func (r *Report) event(kind, reason, message string) {
	if r == nil || r.recorder == nil {
		return
	}
	if recorder := r.recorder(); recorder != nil { // without a resourceVersion, all Events of the Secret are one series
		on := &corev1.ObjectReference{APIVersion: "v1", Kind: "Secret", Namespace: r.namespace, Name: r.name, UID: r.uid}
		recorder.Eventf(on, nil, kind, reason, "Reconcile", "%s", message)
	}
}

// SendsCanary records that this process has sent a canary, so that the metric shows 0 as long as none is answered.
func (r *Report) SendsCanary() {
	if r != nil {
		r.metrics.canary.WithLabelValues(r.secret)
	}
}

// AnsweredCanary records that an API server has called this process for a canary.
func (r *Report) AnsweredCanary() {
	if r != nil {
		r.metrics.canary.WithLabelValues(r.secret).SetToCurrentTime()
	}
}

// version returns the version of this library, as the program was built with it.
func version() string {
	const module = "code.cloudfoundry.org/eirinix"
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return "unknown"
	}
	for _, m := range append(info.Deps, &info.Main) {
		if m.Path == module {
			return cmp.Or(m.Version, "unknown")
		}
	}
	return "unknown"
}

// seconds returns a time as Prometheus has times: in seconds since 1970.
func seconds(t time.Time) float64 { return float64(t.Unix()) }

func oneIf(yes bool) float64 {
	if yes {
		return 1
	}
	return 0
}
