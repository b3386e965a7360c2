package traces

// This file follows one trace from an API server through the call to the step.

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	collector "go.opentelemetry.io/proto/otlp/collector/trace/v1"
	tracev1 "go.opentelemetry.io/proto/otlp/trace/v1"
	"google.golang.org/grpc"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"code.cloudfoundry.org/eirinix"
	"code.cloudfoundry.org/eirinix/recording"
	eirinixtest "code.cloudfoundry.org/eirinix/testing"
)

// span is a span with the service that sent it.
type span struct {
	*tracev1.Span
	service string
}

func (s span) attribute(key string) string {
	for _, a := range s.Attributes {
		if a.Key == key {
			return a.Value.GetStringValue()
		}
	}
	return ""
}

// receiver is a collector that keeps the spans it gets.
type receiver struct {
	collector.UnimplementedTraceServiceServer
	address string

	mu  sync.Mutex
	all []span
}

func receive(t *testing.T) *receiver {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	r, server := &receiver{address: listener.Addr().String()}, grpc.NewServer()
	collector.RegisterTraceServiceServer(server, r)
	served := make(chan error, 1)
	go func() { served <- server.Serve(listener) }()
	t.Cleanup(func() {
		server.Stop()
		if err := <-served; err != nil {
			t.Error(err)
		}
	})
	return r
}

// Export is a call of an exporter.
func (r *receiver) Export(_ context.Context, req *collector.ExportTraceServiceRequest) (*collector.ExportTraceServiceResponse, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, sent := range req.ResourceSpans {
		service := ""
		for _, a := range sent.Resource.GetAttributes() {
			if a.Key == "service.name" {
				service = a.Value.GetStringValue()
			}
		}
		for _, scope := range sent.ScopeSpans {
			for _, s := range scope.Spans {
				r.all = append(r.all, span{s, service})
			}
		}
	}
	return &collector.ExportTraceServiceResponse{}, nil
}

// lineage returns the span of that name about an object, and its ancestors.
func (r *receiver) lineage(name, object string) (found []span) {
	r.mu.Lock()
	defer r.mu.Unlock()
	at := slices.IndexFunc(r.all, func(s span) bool { return s.Name == name && s.attribute("k8s.object.name") == object })
	for at >= 0 {
		child := r.all[at]
		found = append(found, child)
		at = slices.IndexFunc(r.all, func(s span) bool {
			return string(s.SpanId) == string(child.ParentSpanId) && string(s.TraceId) == string(child.TraceId)
		})
	}
	return found
}

// names shows spans as service and name, from the root.
func names(spans []span) (all []string) {
	for _, s := range slices.Backward(spans) {
		all = append(all, s.service+": "+s.Name)
	}
	return all
}

func TestOneTraceFromTheAPIServerToTheStep(t *testing.T) {
	g, ctx, dir := NewWithT(t), t.Context(), t.TempDir()
	r := receive(t)
	config := filepath.Join(dir, "tracing.yaml")
	g.Expect(os.WriteFile(config, []byte("apiVersion: apiserver.config.k8s.io/v1beta1\nkind: TracingConfiguration\n"+
		"endpoint: "+r.address+"\nsamplingRatePerMillion: 1000000\n"), 0o600)).To(Succeed())
	plane := eirinixtest.StartControlPlane(t, func(o *eirinixtest.ControlPlaneOptions) {
		o.APIServerArgs = []string{"--tracing-config-file=" + config}
	})
	provider, err := NewProvider(ctx, r.address, "policy", 1)
	g.Expect(err).NotTo(HaveOccurred())
	t.Cleanup(func() { g.Expect(provider.Shutdown(context.Background())).To(Succeed()) })

	client, err := kubernetes.NewForConfig(plane.Config())
	g.Expect(err).NotTo(HaveOccurred())
	metrics := freeAddress(t)
	m := eirinix.NewManager(eirinix.ManagerOptions{
		RestConfig: plane.Config(), OperatorFingerprint: "policy", WebhookNamespace: "kube-public",
		Host: "127.0.0.1", ListenAddress: "127.0.0.1:0", MetricsBindAddress: metrics,
		TracerProvider: provider,
	})
	g.Expect(m.AddExtension(
		eirinix.Mutation[*corev1.ConfigMap]{ID: "stage", Apply: func(_ context.Context, _ *eirinix.Call, cm *corev1.ConfigMap) error {
			metav1.SetMetaDataLabel(&cm.ObjectMeta, "stage", "test")
			return nil
		}})).To(Succeed())
	g.Expect(m.AddExtension(
		eirinix.Validation[*corev1.ConfigMap]{ID: "owner", Create: func(_ context.Context, _ *eirinix.Call, cm *corev1.ConfigMap) error {
			if cm.Labels["owner"] == "" {
				return eirinix.Deny("set the label owner")
			}
			return nil
		}})).To(Succeed())
	eirinixtest.StartManager(t, m)
	recordings := filepath.Join(dir, "recordings")
	stop, err := recording.Start(m, recording.Options{Dir: recordings})
	g.Expect(err).NotTo(HaveOccurred())

	objects := client.CoreV1().ConfigMaps("default")
	_, err = objects.Create(ctx, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "ours", Labels: map[string]string{"owner": "us"}}}, metav1.CreateOptions{})
	g.Expect(err).NotTo(HaveOccurred())
	_, err = objects.Create(ctx, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "theirs"}}, metav1.CreateOptions{})
	g.Expect(err).To(MatchError(ContainSubstring("set the label owner")))
	g.Expect(stop(ctx)).To(Succeed())

	whole := func(step, object, webhook string) []span {
		t.Helper()
		var found []span
		g.Eventually(func(g Gomega) {
			g.Expect(provider.ForceFlush(ctx)).To(Succeed())
			found = r.lineage(step, object)
			g.Expect(found).NotTo(BeEmpty())
			g.Expect(found[len(found)-1].ParentSpanId).To(BeEmpty(), "the root's spans come last: %q", names(found))
		}).WithTimeout(time.Minute).Should(Succeed())
		lines := names(found)
		t.Log("one trace:\n  " + strings.Join(lines, "\n  "))
		g.Expect(lines[0]).To(HavePrefix("apiserver: "))
		g.Expect(lines).To(ContainElement("apiserver: " + webhook))
		g.Expect(lines[len(lines)-1]).To(Equal("policy: " + step))
		g.Expect(lines[len(lines)-2]).To(HavePrefix("policy: "), "the call's")
		g.Expect(lines[len(lines)-3]).To(HavePrefix("apiserver: "), "the request of the API server")
		return found
	}
	g.Expect(whole("stage", "ours", "Call mutating webhook")[0].attribute("eirinix.decision")).To(Equal("patched"))
	owner := whole("owner", "theirs", "Call validating webhook")
	g.Expect(owner[0].attribute("eirinix.decision")).To(Equal("denied"))
	g.Expect(owner[0].attribute("eirinix.reason")).To(Equal("set the label owner"))

	id := fmt.Sprintf("%x", owner[0].TraceId)
	g.Expect(recorded(t, recordings)).To(ContainElement(ContainSubstring(`"traceID":"`+id+`"`)), "the recorded call leads to the trace")
	g.Expect(scrape(t, metrics)).To(MatchRegexp(`eirinix_admission_step_duration_seconds_bucket\{.*step="owner".*# \{trace_id="`+id), "and so does the duration")

	_, begun := provider.Tracer("").Start(ctx, "a call without a trace")
	g.Expect(begun.IsRecording()).To(BeFalse(), "no trace begins here")
}

// recorded returns the files of a recording.
func recorded(t *testing.T, dir string) (all []string) {
	t.Helper()
	g := NewWithT(t)
	files, err := filepath.Glob(filepath.Join(dir, "*.json"))
	g.Expect(err).NotTo(HaveOccurred())
	for _, file := range files {
		text, err := os.ReadFile(file)
		g.Expect(err).NotTo(HaveOccurred())
		all = append(all, string(text))
	}
	return all
}

// scrape reads the metrics as Prometheus does.
func scrape(t *testing.T, address string) string {
	t.Helper()
	g := NewWithT(t)
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://"+address+"/metrics", http.NoBody)
	g.Expect(err).NotTo(HaveOccurred())
	req.Header.Set("Accept", "application/openmetrics-text; version=1.0.0")
	resp, err := http.DefaultClient.Do(req)
	g.Expect(err).NotTo(HaveOccurred())
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	g.Expect(err).NotTo(HaveOccurred())
	return string(text)
}

func freeAddress(t *testing.T) string {
	t.Helper()
	g := NewWithT(t)
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(listener.Close()).To(Succeed())
	return listener.Addr().String()
}
