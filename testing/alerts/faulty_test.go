package main

// This file evaluates the alerts over the metrics of a real Manager.

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"strings"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/util/teststorage"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	ctrlmetrics "sigs.k8s.io/controller-runtime/pkg/metrics"

	"code.cloudfoundry.org/eirinix"
	eirinixtest "code.cloudfoundry.org/eirinix/testing"
)

func TestMain(m *testing.M) { os.Exit(eirinixtest.Main(m)) }

// recorded is what Prometheus would have stored of this process.
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
