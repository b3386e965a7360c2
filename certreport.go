package eirinix

import (
	"context"
	"crypto/x509"
	"fmt"
	"time"

	"github.com/go-logr/logr"
	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	corev1client "k8s.io/client-go/kubernetes/typed/core/v1"
	ctrlmetrics "sigs.k8s.io/controller-runtime/pkg/metrics"

	"code.cloudfoundry.org/eirinix/internal/ca"
	"code.cloudfoundry.org/eirinix/internal/certsecret"
)

const (
	eventNormal  = corev1.EventTypeNormal
	eventWarning = corev1.EventTypeWarning
)

// certificateReport tells of certificates in metrics, and of rotations in Events on the Secret.
type certificateReport struct {
	metrics         *certificateMetrics
	namespace, name string   // of the certificate Secret, which names the deployment
	secret          string   // both
	configurations  []string // those that hold steps
	events          corev1client.EventInterface

	yields map[string]string // as told last
	told   map[string]int    // how often somebody undid what is registered, as told last
	log    logr.Logger
}

// certificateMetrics are shared by all Managers of a program, which the label secret tells apart.
type certificateMetrics struct {
	expiry, phase, generation, inSync, failing, skew, contested, yielding *prometheus.GaugeVec
}

// newCertificateMetrics registers the metrics, or finds them registered by another Manager.
func newCertificateMetrics(registerer prometheus.Registerer) (*certificateMetrics, error) {
	var failed error
	gauges := func(name, help string, labels ...string) *prometheus.GaugeVec {
		g := prometheus.NewGaugeVec(prometheus.GaugeOpts{Namespace: "eirinix", Name: name, Help: help}, append([]string{"secret"}, labels...))
		switch err := registerer.Register(g).(type) { //nolint:errorlint // registries return it bare
		case nil:
		case prometheus.AlreadyRegisteredError:
			if same, ok := err.ExistingCollector.(*prometheus.GaugeVec); ok {
				return same
			}
			failed = err
		default:
			failed = err
		}
		return g
	}
	return &certificateMetrics{
		expiry:     gauges("certificate_expiry_seconds", "Time until a certificate expires: that of the CA, or the one that is served.", "role"),
		phase:      gauges("certificate_phase", "Where the rotation of the CA stands: 1 for the phase that it is in.", "phase"),
		generation: gauges("certificate_generation", "Number of the CA that signs, counted up with each rotation."),
		inSync:     gauges("certificate_bundle_in_sync", "Whether every caBundle that is registered holds all CAs in use, and no other outside a rotation."),
		failing:    gauges("certificate_failing", "Whether the last look at Secret and configurations failed."),
		contested:  gauges("registration_contested", "How often somebody undid what was registered, shortly after each repair; 0 while that may be chance.", "configuration"),
		yielding:   gauges("registration_yielding", "Whether the steps of another version are registered, which started later.", "configuration"),
		skew:       gauges("clock_skew_seconds", "How far the API server's clock is ahead of this process's; 0 within two seconds."),
	}, failed
}

func (m *ExtensionManager) newCertificateReport(namespace, name string, reg *registration, log logr.Logger) *certificateReport {
	r := &certificateReport{namespace: namespace, name: name, secret: namespace + "/" + name, log: log}
	for _, w := range reg.watches() {
		r.configurations = append(r.configurations, w.name)
	}
	var err error
	if r.metrics, err = newCertificateMetrics(ctrlmetrics.Registry); err != nil { // the program's own, by our names
		log.Error(err, "certificate metrics cannot be registered; there will be none")
		r.metrics = nil
	}
	if core, err := m.GetKubeClient(); err == nil {
		r.events = core.Events(namespace)
	}
	return r
}

// serves sets the metrics of what is served; leaf may be nil.
func (r *certificateReport) serves(leaf *x509.Certificate, clock *serverClock) {
	if r.metrics == nil {
		return
	}
	if leaf != nil {
		r.metrics.expiry.WithLabelValues(r.secret, "serving").Set(leaf.NotAfter.Sub(clock.Now()).Seconds())
	}
	r.metrics.skew.WithLabelValues(r.secret).Set(clock.Skew().Seconds())
}

// synced sets the metric after a look.
func (r *certificateReport) synced(is bool) {
	if r.metrics != nil {
		r.metrics.inSync.WithLabelValues(r.secret).Set(oneIf(is))
	}
}

// standing tells of others who write the configurations. uid is that of the certificate Secret; empty where it is not in
// use, and nothing can be left on it.
func (r *certificateReport) standing(ctx context.Context, found survey, uid types.UID) {
	for name, reason := range found.yields {
		if r.yields[name] != reason {
			r.log.Info("the steps of another version stand there, and stay for now", "configuration", name, "because", reason)
		}
	}
	r.yields = found.yields
	told := map[string]int{}
	for name, c := range found.contests {
		told[name] = r.told[name]
		if c.Times < 2*r.told[name] {
			continue // it has been told, and gets no worse
		}
		told[name] = c.Times
		text := fmt.Sprintf("%s: %s", name, contested(c))
		r.log.Info("somebody undoes what is registered", "configuration", name, "because", contested(c))
		if uid != "" {
			r.event(ctx, &certsecret.State{UID: uid}, eventWarning, "RegistrationContested", text)
		}
	}
	r.told = told
	if r.metrics == nil || found.unseen {
		return
	}
	for _, name := range r.configurations {
		times := 0
		if c := found.contests[name]; c != nil {
			times = c.Times
		}
		r.metrics.contested.WithLabelValues(r.secret, name).Set(float64(times))
		_, yields := found.yields[name]
		r.metrics.yielding.WithLabelValues(r.secret, name).Set(oneIf(yields))
	}
}

// tell sets the metrics of our own CA after a look.
func (r *certificateReport) tell(state *certsecret.State, due ca.Due, clock *serverClock) {
	if r.metrics == nil {
		return
	}
	now := clock.Now()
	if authority, err := state.Current(); err == nil {
		r.metrics.expiry.WithLabelValues(r.secret, "ca").Set(authority.Certificate.NotAfter.Sub(now).Seconds())
	}
	for _, phase := range []ca.Phase{ca.Steady, ca.Staged, ca.Retaining} {
		r.metrics.phase.WithLabelValues(r.secret, string(phase)).Set(oneIf(state.Phase == phase))
	}
	r.metrics.generation.WithLabelValues(r.secret).Set(float64(state.CurrentID))
	r.synced(due.Action != ca.Publish)
}

// failed notes how a look ended.
func (r *certificateReport) failed(err error) {
	if r.metrics != nil {
		r.metrics.failing.WithLabelValues(r.secret).Set(oneIf(err != nil))
	}
}

func oneIf(yes bool) float64 {
	if yes {
		return 1
	}
	return 0
}

// event leaves word on the Secret, for kubectl describe. It is a courtesy: without the right to create Events there is
// the log.
func (r *certificateReport) event(ctx context.Context, state *certsecret.State, kind, reason, message string) {
	if r.events == nil {
		return
	}
	now := metav1.NewTime(time.Now())
	_, err := r.events.Create(ctx, &corev1.Event{
		ObjectMeta: metav1.ObjectMeta{GenerateName: r.name + ".", Namespace: r.namespace},
		InvolvedObject: corev1.ObjectReference{
			APIVersion: "v1", Kind: "Secret", Namespace: r.namespace, Name: r.name,
			UID: state.UID, ResourceVersion: state.ResourceVersion,
		},
		Type: kind, Reason: reason, Message: message, Count: 1, FirstTimestamp: now, LastTimestamp: now,
		Source: corev1.EventSource{Component: "eirinix"}, ReportingController: "eirinix.cloudfoundry.org/manager",
	}, metav1.CreateOptions{})
	if err != nil && ctx.Err() == nil {
		r.log.V(1).Info("an Event could not be left", "reason", reason, "because", err.Error())
	}
}
