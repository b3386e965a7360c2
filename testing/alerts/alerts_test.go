package main

// This file evaluates the alerts over series that are made up and over the metrics of a real Manager, and compares queries
// with the metrics that there are.

import (
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/go-logr/logr"
	. "github.com/onsi/gomega"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/common/model"
	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/model/rulefmt"
	"github.com/prometheus/prometheus/promql/parser"
	"github.com/prometheus/prometheus/promql/promqltest"
	"github.com/prometheus/prometheus/rules"
	"github.com/prometheus/prometheus/storage"
	"github.com/prometheus/prometheus/util/teststorage"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	ctrlmetrics "sigs.k8s.io/controller-runtime/pkg/metrics"

	"code.cloudfoundry.org/eirinix"
	"code.cloudfoundry.org/eirinix/internal/admit"
	"code.cloudfoundry.org/eirinix/internal/audit"
	"code.cloudfoundry.org/eirinix/internal/controller"
	"code.cloudfoundry.org/eirinix/internal/diagnose"
	"code.cloudfoundry.org/eirinix/internal/reads"
	eirinixtest "code.cloudfoundry.org/eirinix/testing"
)

const docs = "../../docs/"

// parse returns the rules of docs/alerts.yaml, as Prometheus reads them.
func parse(t *testing.T) (all []rulefmt.Rule) {
	t.Helper()
	groups, errs := rulefmt.ParseFile(docs+"alerts.yaml", false, model.UTF8Validation, parser.NewParser(parser.Options{}), slog.New(slog.DiscardHandler))
	if err := errors.Join(errs...); err != nil {
		t.Fatal(err)
	}
	for _, g := range groups.Groups {
		all = append(all, g.Rules...)
	}
	if len(all) == 0 {
		t.Fatal("there is no rule")
	}
	return all
}

// expression parses a query.
func expression(t *testing.T, query string) parser.Expr {
	t.Helper()
	expr, err := parser.NewParser(parser.Options{}).ParseExpr(query)
	if err != nil {
		t.Fatalf("%s: %v", query, err)
	}
	return expr
}

// firing evaluates all rules each minute, and returns the alerts that fire at some time, with their labels.
func firing(t *testing.T, from storage.Queryable, began time.Time, minutes int) (found map[string]labels.Labels) {
	t.Helper()
	engine := promqltest.NewTestEngine(t, false, 5*time.Minute, 100_000)
	query, found := rules.EngineQueryFunc(engine, from), map[string]labels.Labels{}
	for _, r := range parse(t) {
		rule := rules.NewAlertingRule(r.Alert, expression(t, r.Expr), time.Duration(r.For), time.Duration(r.KeepFiringFor),
			labels.FromMap(r.Labels), labels.FromMap(r.Annotations), labels.EmptyLabels(), "", true, slog.New(slog.DiscardHandler))
		for minute := range minutes {
			if _, err := rule.Eval(t.Context(), 0, began.Add(time.Duration(minute)*time.Minute), query, nil, 0); err != nil {
				t.Fatal(err)
			}
			for _, a := range rule.ActiveAlerts() {
				if a.State == rules.StateFiring {
					for _, text := range []string{a.Annotations.Get("summary"), a.Annotations.Get("description")} {
						if strings.Contains(text, "error expanding template") || strings.Contains(text, "<no value>") {
							t.Errorf("%s says %q", r.Alert, text)
						}
					}
					found[r.Alert] = a.Labels
				}
			}
		}
	}
	return found
}

const (
	run     = `eirinix_registration_versions{secret="ns/setup", pod="a"}`
	failed  = `eirinix_admission_decisions_total{step="sidecar", webhook="pods", operation="CREATE", decision="failed", dry_run="false", pod="a"}`
	ignored = `eirinix_admission_decisions_total{step="sidecar", webhook="pods", operation="CREATE", decision="ignored", dry_run="false", pod="a"}`
	dropped = `eirinix_admission_decisions_total{step="sidecar", webhook="pods", operation="CREATE", decision="dropped", dry_run="false", pod="a"}`
	slow    = `eirinix_admission_step_duration_seconds_bucket{step="sidecar", webhook="pods", pod="a", `
	allowed = `eirinix_admission_decisions_total{step="sidecar", webhook="pods", operation="CREATE", decision="allowed", dry_run="false", pod="a"}`
	timeout = `eirinix_admission_step_timeout_seconds{step="sidecar", webhook="pods", pod="a"}`
	ends    = `eirinix_certificate_expiration_timestamp_seconds{secret="ns/setup", pod="a", `
	year    = "31536000"
)

// faults are series of faulty and of healthy programs, with a sample each minute from the time 0. The healthy ones are
// as near to the fault as the alert bears: it is short, or small.
var faults = map[string]struct {
	faulty, healthy []string
	minutes         int
}{
	"EirinixStepFails": {
		[]string{failed + ` 1+6x20`},
		[]string{failed + ` 7x5 8x14`, allowed + ` 10+1x20`, strings.Replace(failed, `"false"`, `"true"`, 1) + ` 1+6x20`, strings.Replace(failed, `"failed"`, `"denied"`, 1) + ` 1+6x20`},
		20,
	},
	"EirinixStepIgnored": {
		[]string{ignored + ` 1+6x20`},
		[]string{ignored + ` 7x5 8x14`, allowed + ` 10+1x20`, strings.Replace(ignored, `"false"`, `"true"`, 1) + ` 1+6x20`, strings.Replace(ignored, `"ignored"`, `"skipped"`, 1) + ` 1+6x20`},
		20,
	},
	"EirinixShadowDropped": {
		[]string{dropped + ` 0+1x30`, strings.Replace(dropped, "dropped", "would_deny", 1) + ` 0+60x30`},
		[]string{
			dropped + ` 0x5 5x25`, strings.Replace(dropped, "dropped", "would_deny", 1) + ` 0+60x30`,
			strings.Replace(dropped, `"false"`, `"true"`, 1) + ` 0+9x30`, strings.Replace(dropped, "dropped", "would_fail", 1) + ` 0+9x30`,
		},
		30,
	},
	"EirinixPanics": {
		[]string{`eirinix_admission_panics_total{step="sidecar", webhook="pods", pod="a"} 0x5 1x14`},
		[]string{`eirinix_admission_panics_total{step="sidecar", webhook="pods", pod="a"} 3x20`, `eirinix_conversion_panics_total{crd="volumes.example.com"} 0x20`},
		20,
	},
	"EirinixStepSlow": {
		[]string{slow + `le="0.25"} 0+1x30`, slow + `le="0.5"} 0+90x30`, slow + `le="1"} 0+100x30`, slow + `le="+Inf"} 0+100x30`, timeout + ` 1x30`},
		[]string{
			slow + `le="1"} 0+1x30`, slow + `le="2.5"} 0+999x30`, slow + `le="5"} 0+1000x30`, slow + `le="+Inf"} 0+1000x30`, timeout + ` 5x30`,
			strings.Replace(timeout, "sidecar", "other", 1) + ` 1x30`,
		},
		30,
	},
	"EirinixCallsRefused": {
		[]string{`eirinix_admission_refused_requests_total{code="503", pod="a"} 1+60x20`},
		[]string{`eirinix_admission_refused_requests_total{code="503", pod="a"} 12x5 13x14`, `eirinix_admission_refused_requests_total{code="400", pod="a"} 1+60x20`},
		20,
	},
	"EirinixCallsWait": {
		[]string{`eirinix_admission_in_flight_requests{pod="a"} 120x20`, `eirinix_admission_slots{pod="a"} 100x20`},
		[]string{`eirinix_admission_in_flight_requests{pod="a"} 100 120x6 100x13`, `eirinix_admission_slots{pod="a"} 100x20`},
		20,
	},
	"EirinixStepHangs": {
		[]string{`eirinix_admission_left_behind_runs{step="sidecar", webhook="pods", pod="a"} 11x20`},
		[]string{`eirinix_admission_left_behind_runs{step="sidecar", webhook="pods", pod="a"} 11x4 10x15`},
		20,
	},
	"EirinixConversionFails": {
		[]string{`eirinix_conversion_objects_total{crd="volumes.example.com", result="failed", pod="a"} 0+1x20`},
		[]string{
			`eirinix_conversion_objects_total{crd="volumes.example.com", result="failed", pod="a"} 3x5 4x14`,
			`eirinix_conversion_objects_total{crd="volumes.example.com", result="converted", pod="a"} 0+9x20`,
		},
		20,
	},
	"EirinixServingCertificateExpires": {
		[]string{ends + `role="serving"} 87000x30`, ends + `role="ca"} ` + year + `x30`},
		[]string{ends + `role="serving"} 87000x14 600000x15`, ends + `role="ca"} ` + year + `x30`},
		30,
	},
	"EirinixCAExpires": {
		[]string{ends + `role="serving"} 500000x90`, ends + `role="ca"} 500000x90`},
		[]string{ends + `role="serving"} 500000x90`, ends + `role="ca"} 500000x50 500001x39`},
		90,
	},
	"EirinixBundleOutOfSync": {
		[]string{`eirinix_certificate_bundle_in_sync{secret="ns/setup", pod="a"} 0x20`, `eirinix_certificate_bundle_in_sync{secret="ns/setup", pod="b"} 1x20`},
		[]string{`eirinix_certificate_bundle_in_sync{secret="ns/setup", pod="a"} 1 0 0 1x17`},
		20,
	},
	"EirinixCertificatesFailing": {
		[]string{`eirinix_certificate_failing{secret="ns/setup", pod="a"} 1x30`},
		[]string{`eirinix_certificate_failing{secret="ns/setup", pod="a"} 1x13 0x16`},
		30,
	},
	"EirinixRotationStuck": {
		[]string{`eirinix_certificate_phase{secret="ns/setup", phase="staged", pod="a"} 1x90`},
		[]string{`eirinix_certificate_phase{secret="ns/setup", phase="staged", pod="a"} 1x50 0x39`, `eirinix_certificate_phase{secret="ns/setup", phase="retaining", pod="a"} 1x90`},
		90,
	},
	"EirinixNoReplica": {
		[]string{run + ` 1x10 stale`, `eirinix_registration_versions{secret="ns/other", pod="b"} 1x60`},
		[]string{run + ` 1x10 stale _x3 1x46`},
		60,
	},
	"EirinixNeverCalled": {
		[]string{`eirinix_canary_last_success_timestamp_seconds{secret="ns/setup", pod="a"} 0x30`},
		[]string{`eirinix_canary_last_success_timestamp_seconds{secret="ns/setup", pod="a"} 0x30`, `eirinix_canary_last_success_timestamp_seconds{secret="ns/setup", pod="b"} 0 60x29`},
		30,
	},
	"EirinixSeveralVersions": {
		[]string{run + ` 2x60`},
		[]string{run + ` 2x28 1x31`},
		60,
	},
	"EirinixRegistrationWaiting": {
		[]string{`eirinix_registration_waiting{secret="ns/setup", reason="kind", pod="a"} 1x60`},
		[]string{`eirinix_registration_waiting{secret="ns/setup", reason="version", pod="a"} 1x28 0x31`},
		60,
	},
	"EirinixReadInterrupted": {
		[]string{`eirinix_read_interruption_timestamp_seconds{objects="Secret", pod="a"} 60x20`},
		[]string{`eirinix_read_interruption_timestamp_seconds{objects="Secret", pod="a"} 60x3 0x16`, `eirinix_read_interruption_timestamp_seconds{objects="Ingress.networking.k8s.io", pod="a"} 0x20`},
		20,
	},
	"EirinixReadMissing": {
		[]string{`eirinix_read_missing{objects="ConfigMap", pod="a"} 1x10`},
		[]string{`eirinix_read_missing{objects="ConfigMap", pod="a"} 1x1 0x8`, `eirinix_read_missing{objects="Secret", pod="a"} 0x10`},
		10,
	},
	"EirinixRegistrationContested": {
		[]string{`eirinix_registration_contested{secret="ns/setup", kind="MutatingWebhookConfiguration", configuration="x", pod="a"} 6x30`},
		[]string{`eirinix_registration_contested{secret="ns/setup", kind="MutatingWebhookConfiguration", configuration="x", pod="a"} 0x5 6x10 0x14`},
		30,
	},
}

// load returns the alerts that fire on series with a sample each minute.
func load(t *testing.T, minutes int, series ...string) map[string]labels.Labels {
	t.Helper()
	return firing(t, promqltest.LoadedStorage(t, "load 1m\n  "+strings.Join(series, "\n  ")+"\n"), time.Unix(0, 0), minutes)
}

func TestEachAlertFiresOnItsFaultAlone(t *testing.T) {
	for _, r := range parse(t) {
		t.Run(r.Alert, func(t *testing.T) {
			g := NewWithT(t)
			fault, ok := faults[r.Alert]
			g.Expect(ok).To(BeTrue(), "no series make it fire")
			fired := load(t, fault.minutes, fault.faulty...)
			g.Expect(fired).To(And(HaveLen(1), HaveKey(r.Alert)))
			g.Expect(fired[r.Alert].Get("severity")).To(BeElementOf("critical", "warning"))
			g.Expect(load(t, fault.minutes, fault.healthy...)).To(BeEmpty())
		})
	}
}

// Two failures in an hour are many for a step that is called twice, and few for one that is called a hundred times.
func TestAStepThatIsRarelyCalledFails(t *testing.T) {
	g, failures, often := NewWithT(t), ` 0x10 1x19 2x29`, ` 0+2x60`
	skipped := strings.Replace(allowed, "allowed", "skipped_owned", 1) + often
	g.Expect(load(t, 60, failed+failures, allowed+` 1x60`, skipped)).To(And(HaveLen(1), HaveKey("EirinixStepFails")))
	g.Expect(load(t, 60, ignored+failures, skipped)).To(And(HaveLen(1), HaveKey("EirinixStepIgnored")))
	g.Expect(load(t, 60, failed+failures, ignored+failures, allowed+often)).To(BeEmpty())
}

func TestStepsOfSeveralProgramsAreToldApart(t *testing.T) {
	g := NewWithT(t)
	in := func(namespace, series string) string {
		return strings.Replace(series, "{", `{namespace="`+namespace+`", `, 1)
	}
	fired := load(t, 20, in("a", failed+` 0+1x20`), in("b", allowed+` 0+1x20`))
	g.Expect(fired["EirinixStepFails"].Get("namespace")).To(Equal("a"))
	g.Expect(load(t, 30, in("a", timeout+` 1x30`), in("b", timeout+` 5x30`), in("b", slow+`le="1"} 0+1x30`), in("b", slow+`le="2.5"} 0+100x30`),
		in("b", slow+`le="+Inf"} 0+100x30`))).To(BeEmpty())
}

func TestEachAlertHasARunbook(t *testing.T) {
	g := NewWithT(t)
	page, err := os.ReadFile(docs + "runbooks.md")
	g.Expect(err).NotTo(HaveOccurred())
	var headings, alerts []string
	for _, h := range regexp.MustCompile(`(?m)^## (Eirinix.+)$`).FindAllStringSubmatch(string(page), -1) {
		headings = append(headings, h[1])
	}
	for _, r := range parse(t) {
		alerts = append(alerts, r.Alert)
		g.Expect(r.Annotations["runbook_url"]).To(HaveSuffix("/docs/runbooks.md#" + strings.ToLower(r.Alert)))
	}
	g.Expect(headings).To(ConsistOf(alerts))
}

// described are the metrics that collectors can expose, by name.
type described map[string][]string

func (d described) Register(c prometheus.Collector) error {
	all := make(chan *prometheus.Desc, 100)
	c.Describe(all)
	close(all)
	for desc := range all {
		parts := regexp.MustCompile(`fqName: "([^"]+)".* variableLabels: \{([^}]*)\}`).FindStringSubmatch(desc.String())
		names := []string{"namespace", "pod"} // which Prometheus adds
		if parts[2] != "" {
			names = append(names, strings.Split(parts[2], ",")...)
		}
		d[parts[1]] = names
		for _, suffix := range []string{"_bucket", "_sum", "_count"} {
			if strings.HasSuffix(parts[1], "_seconds") {
				d[parts[1]+suffix] = append(names, "le")
			}
		}
	}
	return nil
}

func (d described) MustRegister(all ...prometheus.Collector) {
	for _, c := range all {
		_ = d.Register(c)
	}
}
func (d described) Unregister(prometheus.Collector) bool { return false }

// exposed returns the metrics of the library, with their labels.
func exposed(t *testing.T) described {
	t.Helper()
	d := described{}
	_, err := admit.NewMetrics(d)
	_, err2 := audit.NewMetrics(d)
	controller.NewReport(context.Background(), "ns", "setup", d, nil, logr.Discard())
	_, err3 := reads.NewMetrics(d)
	if err := errors.Join(err, err2, err3); err != nil {
		t.Fatal(err)
	}
	return d
}

// check fails if a query asks for a metric or a label that does not exist.
func (d described) check(t *testing.T, query string) {
	t.Helper()
	for old, value := range map[string]string{"$__rate_interval": "5m", "$step": ".*", "$secret": ".*"} {
		query = strings.ReplaceAll(query, old, value)
	}
	allowed, used := []string{}, []string{}
	parser.Inspect(expression(t, query), func(n parser.Node, _ []parser.Node) error {
		switch n := n.(type) {
		case *parser.VectorSelector:
			if _, ok := d[n.Name]; !ok {
				t.Errorf("%s asks for %s, which does not exist", query, n.Name)
			}
			allowed = append(allowed, d[n.Name]...)
			for _, m := range n.LabelMatchers {
				if m.Name != "__name__" && !slices.Contains(d[n.Name], m.Name) {
					t.Errorf("%s: %s has no label %s", query, n.Name, m.Name)
				}
			}
		case *parser.AggregateExpr:
			used = append(used, n.Grouping...)
		case *parser.BinaryExpr:
			if n.VectorMatching != nil {
				used = append(used, n.VectorMatching.MatchingLabels...)
			}
		}
		return nil
	})
	for _, name := range used {
		if !slices.Contains(allowed, name) {
			t.Errorf("%s groups by %s, which no metric in it has", query, name)
		}
	}
}

func TestAlertsAndDashboardAskForWhatThereIs(t *testing.T) {
	d := exposed(t)
	for _, r := range parse(t) {
		d.check(t, r.Expr)
	}
	for _, r := range rows {
		for _, p := range r.panels {
			if p.unit == "" || p.about == "" {
				t.Errorf("panel %s has no unit or no description", p.title)
			}
			for _, q := range p.queries {
				d.check(t, q.expr)
				for _, l := range regexp.MustCompile(`\{\{(\w+)\}\}`).FindAllStringSubmatch(q.legend, -1) {
					if !strings.Contains(q.expr, l[1]) && l[1] != "pod" {
						t.Errorf("the legend of %s shows %s, which the query drops", p.title, l[1])
					}
				}
			}
		}
	}
}

// withCanary returns the selectors of a query that select the calls of diagnoses among those of steps.
func (d described) withCanary(t *testing.T, query string) (found []string) {
	t.Helper()
	names := []string{"step", "webhook"}
	parser.Inspect(expression(t, regexp.MustCompile(`\$\w+`).ReplaceAllString(query, "5m")), func(n parser.Node, _ []parser.Node) error {
		if s, ok := n.(*parser.VectorSelector); ok && slices.ContainsFunc(d[s.Name], func(l string) bool { return slices.Contains(names, l) }) &&
			!slices.ContainsFunc(s.LabelMatchers, func(m *labels.Matcher) bool {
				return slices.Contains(names, m.Name) && m.Matches("sidecar") && !m.Matches(diagnose.CanaryName)
			}) {
			found = append(found, s.String())
		}
		return nil
	})
	return found
}

func TestTheDashboardLeavesOutTheCanaryAndSaysSo(t *testing.T) {
	g, d := NewWithT(t), exposed(t)
	for _, r := range rows {
		for _, p := range r.panels {
			for _, q := range p.queries {
				g.Expect(d.withCanary(t, q.expr)).To(BeEmpty(), "panel %s", p.title)
			}
		}
	}
	text, err := os.ReadFile(docs + "dashboard.json")
	g.Expect(err).NotTo(HaveOccurred())
	var board struct {
		Description string
		Templating  struct {
			List []struct{ Name, Query string }
		}
	}
	g.Expect(json.Unmarshal(text, &board)).To(Succeed())
	g.Expect(board.Description).To(ContainSubstring(diagnose.CanaryName))
	variable := regexp.MustCompile(`^label_values\((.*), \w+\)$`)
	for _, v := range board.Templating.List {
		if of := variable.FindStringSubmatch(v.Query); of != nil {
			g.Expect(d.withCanary(t, of[1])).To(BeEmpty(), "variable %s", v.Name)
		}
	}
	page, err := os.ReadFile(docs + "reference/metrics.md")
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(string(page)).To(MatchRegexp("step `" + diagnose.CanaryName + "` [^|]+ dashboard leaves it out"))
}

func TestTheDashboardIsThatOfTheProgram(t *testing.T) {
	g := NewWithT(t)
	made, err := dashboard()
	g.Expect(err).NotTo(HaveOccurred())
	stored, err := os.ReadFile(docs + "dashboard.json")
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(string(stored)).To(Equal(string(made)+"\n"), "run make dashboard")
}

func TestMain(m *testing.M) { os.Exit(eirinixtest.Main(m)) }

// recorded are the samples that Prometheus would have stored of this process.
type recorded struct{ *teststorage.TestStorage }

// scrape stores the metrics as they are, as of a time.
func (r recorded) scrape(t *testing.T, at time.Time) {
	t.Helper()
	g := NewWithT(t)
	families, err := ctrlmetrics.Registry.Gather()
	g.Expect(err).NotTo(HaveOccurred())
	appender := r.Appender(t.Context())
	put := func(name string, value float64, of labels.Labels, more ...string) {
		b := labels.NewBuilder(of)
		b.Set("__name__", name).Set("pod", "a")
		for i := 0; i < len(more); i += 2 {
			b.Set(more[i], more[i+1])
		}
		_, err := appender.Append(0, b.Labels(), at.UnixMilli(), value)
		g.Expect(err).NotTo(HaveOccurred())
	}
	for _, f := range families {
		for _, m := range f.GetMetric() {
			of := labels.NewBuilder(labels.EmptyLabels())
			for _, l := range m.GetLabel() {
				of.Set(l.GetName(), l.GetValue())
			}
			switch {
			case m.GetCounter() != nil:
				put(f.GetName(), m.GetCounter().GetValue(), of.Labels())
			case m.GetGauge() != nil:
				put(f.GetName(), m.GetGauge().GetValue(), of.Labels())
			case m.GetHistogram() != nil:
				for _, bucket := range m.GetHistogram().GetBucket() {
					put(f.GetName()+"_bucket", float64(bucket.GetCumulativeCount()), of.Labels(), "le", fmt.Sprint(bucket.GetUpperBound()))
				}
				put(f.GetName()+"_bucket", float64(m.GetHistogram().GetSampleCount()), of.Labels(), "le", "+Inf")
			}
		}
	}
	g.Expect(appender.Commit()).To(Succeed())
}

// The metrics are those of a real Manager, which a real API server calls. Only the minutes between the scrapes are made
// up.
func TestARealFaultyRun(t *testing.T) {
	g, ctx := NewWithT(t), t.Context()
	plane := eirinixtest.StartControlPlane(t, eirinixtest.Shared)
	client, err := kubernetes.NewForConfig(plane.Config())
	g.Expect(err).NotTo(HaveOccurred())
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(listener.Close()).To(Succeed())
	m := eirinix.NewManager(eirinix.ManagerOptions{
		RestConfig: plane.Config(), OperatorFingerprint: "policy", WebhookNamespace: "kube-public",
		Host: "127.0.0.1", ListenAddress: listener.Addr().String(),
	})
	labelled := func(name string, settings eirinix.Settings) eirinix.Validation[*corev1.ConfigMap] {
		return eirinix.Validation[*corev1.ConfigMap]{ID: name, Settings: settings, Create: func(_ context.Context, _ *eirinix.Call, cm *corev1.ConfigMap) error {
			switch cm.Labels[name] {
			case "panic":
				panic("no owner")
			case "error":
				return errors.New("no owner")
			}
			return nil
		}}
	}
	g.Expect(m.AddExtension(labelled("strict", eirinix.Settings{}))).To(Succeed())
	g.Expect(m.AddExtension(labelled("lenient", eirinix.Settings{FailurePolicy: admissionregistrationv1.Ignore}))).To(Succeed())
	eirinixtest.StartManager(t, m)
	g.Expect(m.Diagnose(ctx).Err()).NotTo(HaveOccurred())

	create := func(name string, labels map[string]string, dryRun ...string) error {
		_, err := client.CoreV1().ConfigMaps("default").Create(ctx, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{GenerateName: name, Labels: labels}}, metav1.CreateOptions{DryRun: dryRun})
		return err
	}
	const minutes = 20
	record := func(during func()) (recorded, time.Time) {
		r, began := recorded{teststorage.New(t)}, time.Now()
		for i := range minutes {
			g.Expect(create("well-", nil)).To(Succeed())
			during()
			r.scrape(t, began.Add(time.Duration(i)*time.Minute))
		}
		return r, began
	}
	healthy, began := record(func() { // a failure of a dry run harms no object
		g.Expect(create("dry-", map[string]string{"strict": "error"}, metav1.DryRunAll)).To(MatchError(ContainSubstring("no owner")))
	})
	g.Expect(firing(t, healthy, began, minutes)).To(BeEmpty())

	faulty, began := record(func() {
		g.Expect(create("bad-", map[string]string{"strict": "panic"})).To(MatchError(ContainSubstring("no owner")))
		g.Expect(create("missed-", map[string]string{"lenient": "panic"})).To(Succeed())
		g.Expect(call("https://" + m.Addr().String() + "/validate/of-another-version")).To(Equal(http.StatusServiceUnavailable))
	})
	fired := firing(t, faulty, began, minutes)
	g.Expect(fired).To(And(HaveLen(4), HaveKey("EirinixPanics"), HaveKey("EirinixCallsRefused")))
	failed, ignored := fired["EirinixStepFails"], fired["EirinixStepIgnored"]
	g.Expect(failed.Get("step")).To(Equal("strict"))
	g.Expect(ignored.Get("step")).To(Equal("lenient"))
}

// call sends a review as an API server does, and returns the status of the answer.
func call(url string) (status int, err error) {
	client := http.Client{Timeout: time.Minute, Transport: &http.Transport{
		DisableKeepAlives: true, TLSClientConfig: &tls.Config{InsecureSkipVerify: true}, //nolint:gosec // the answer is of interest
	}}
	answer, err := client.Post(url, "application/json", strings.NewReader("{}"))
	if err != nil {
		return 0, err
	}
	return answer.StatusCode, answer.Body.Close()
}
