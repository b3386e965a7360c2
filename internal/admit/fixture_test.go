package admit_test

// This file holds the fixtures of the specs: a server of steps, the requests of an API server, and a log.

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/go-logr/logr/funcr"
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"github.com/prometheus/client_golang/prometheus"
	admissionv1 "k8s.io/api/admission/v1"
	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"

	"code.cloudfoundry.org/eirinix/internal/admit"
	"code.cloudfoundry.org/eirinix/internal/chain"
	. "code.cloudfoundry.org/eirinix/internal/spectest"
)

func TestAdmit(t *testing.T) {
	RegisterFailHandler(Fail)
	SetDefaultEventuallyTimeout(30 * time.Second) // of a busy machine
	RunSpecs(t, "admit")
}

const (
	volumes = "/mutate/volumes"
	uid     = "705ab4f5-6393-11e8-b7cc-42010a800002"
	secret  = "hunter2" // stands in the object and belongs in no log
	pod     = `{"apiVersion":"v1","kind":"Pod","metadata":{"name":"web-0","namespace":"cf"},"spec":{"containers":[{"name":"web","env":[{"name":"PASSWORD","value":"` + secret + `"}]}]}}`
)

// hook is an admit.Handler behind a real HTTP server.
type hook struct {
	*admit.Handler
	*httptest.Server
	logs     *logLines
	registry *prometheus.Registry
}

// newHook serves f as the step "volumes". The server is ready for changes until the first call.
func newHook(f chain.HandleFunc) *hook {
	GinkgoHelper()
	h := &hook{Handler: &admit.Handler{MaxBytes: 64 << 10}, logs: &logLines{}, registry: prometheus.NewRegistry()}
	var err error
	h.Metrics, err = admit.NewMetrics(h.registry)
	Expect(err).NotTo(HaveOccurred())
	h.Handler.Log = funcr.NewJSON(h.logs.Add, funcr.Options{Verbosity: 1})
	h.Handle("volumes", f)
	h.Server = httptest.NewServer(h.Handler)
	DeferCleanup(h.Close)
	return h
}

// handling is the chain of one step that makes its own patch.
func handling(name string, f chain.HandleFunc) chain.Config {
	return chain.Config{Steps: []chain.Step{{Name: name, Handle: f}}}
}

// Handle serves f as a step of its own.
func (h *hook) Handle(name string, f chain.HandleFunc) {
	h.Serve(admit.MutatePrefix+name, handling(name, f))
}

// count sums the series of a metric that have all these label values.
func (h *hook) count(metric string, values ...string) (total float64) {
	GinkgoHelper()
	families := Must(h.registry.Gather())
	for _, f := range families {
		for _, m := range f.GetMetric() {
			var labels []string
			for _, l := range m.GetLabel() {
				labels = append(labels, l.GetValue())
			}
			missing := func(value string) bool { return !slices.Contains(labels, value) }
			if f.GetName() == metric && !slices.ContainsFunc(values, missing) {
				total += m.GetCounter().GetValue() + float64(m.GetHistogram().GetSampleCount()) + m.GetGauge().GetValue()
			}
		}
	}
	return total
}

// mutation is a step that changes the object in place.
func mutation[T runtime.Object](name string, newObject func() runtime.Object, edit func(context.Context, *chain.Call, T) error) chain.Step {
	return chain.Step{Name: name, New: newObject, Mutates: true, Run: func(ctx context.Context, c *chain.Call, _, obj runtime.Object) error {
		return edit(ctx, c, obj.(T))
	}}
}

// onPod is a step that changes the pod, or returns an error.
func onPod(name string, edit func(*corev1.Pod) error) chain.Step {
	return mutation(name, newPod, func(_ context.Context, _ *chain.Call, p *corev1.Pod) error { return edit(p) })
}

// check is a step that decides on the objects of the request.
func check(name string, newObject func() runtime.Object, decide func(oldObj, newObj runtime.Object) error) chain.Step {
	return chain.Step{Name: name, New: newObject, Run: func(_ context.Context, _ *chain.Call, oldObj, newObj runtime.Object) error {
		return decide(oldObj, newObj)
	}}
}

// returning is a step that always returns r.
func returning(r admission.Response) chain.HandleFunc {
	return func(context.Context, admission.Request) admission.Response { return r }
}

func allow(context.Context, admission.Request) admission.Response { return admission.Allowed("") }

// reply is an HTTP answer.
type reply struct {
	Status int
	Header http.Header
	Body   string
	Closes bool // the server ends the connection after this answer
}

// review reads the reply as an AdmissionReview of the version and returns its response.
func (r reply) review(version string) *admissionv1.AdmissionResponse {
	GinkgoHelper()
	Expect(r.Status).To(Equal(http.StatusOK), r.Body)
	Expect(r.Header.Get("Content-Type")).To(Equal("application/json"))
	var review admissionv1.AdmissionReview
	Expect(json.Unmarshal([]byte(r.Body), &review)).To(Succeed())
	Expect(review.APIVersion).To(Equal("admission.k8s.io/" + version))
	Expect(review.Kind).To(Equal("AdmissionReview"))
	Expect(review.Request).To(BeNil())
	Expect(review.Response).NotTo(BeNil())
	Expect(review.Response.UID).To(BeEquivalentTo(uid))
	return review.Response
}

// request is the API server's request for a pod, after changes.
func request(changes ...func(*admissionv1.AdmissionRequest)) *admissionv1.AdmissionRequest {
	req := &admissionv1.AdmissionRequest{
		UID:       uid,
		Kind:      metav1.GroupVersionKind{Version: "v1", Kind: "Pod"},
		Resource:  metav1.GroupVersionResource{Version: "v1", Resource: "pods"},
		Operation: admissionv1.Create,
		Namespace: "cf",
		Name:      "web-0",
		UserInfo:  authenticationv1.UserInfo{Username: "alice"},
		Object:    runtime.RawExtension{Raw: []byte(pod)},
	}
	for _, change := range changes {
		change(req)
	}
	return req
}

// deletion makes the request one to delete the pod.
func deletion(req *admissionv1.AdmissionRequest) {
	req.Operation = admissionv1.Delete
	req.OldObject, req.Object = req.Object, runtime.RawExtension{}
}

// body is the AdmissionReview on the wire.
func body(version string, req *admissionv1.AdmissionRequest) string {
	GinkgoHelper()
	text := Must(json.Marshal(map[string]any{"apiVersion": "admission.k8s.io/" + version, "kind": "AdmissionReview", "request": req}))
	return string(text)
}

// ask asks the step "volumes" about a pod.
func (h *hook) ask(changes ...func(*admissionv1.AdmissionRequest)) reply {
	GinkgoHelper()
	return h.post(volumes+"?timeout=10s", body("v1", request(changes...)))
}

func (h *hook) post(path, body string) reply {
	GinkgoHelper()
	return h.do(posted(h.URL+path, body))
}

func (h *hook) do(req *http.Request) reply {
	GinkgoHelper()
	client := *h.Client()
	client.CheckRedirect = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
	resp := Must(client.Do(req))
	return read(resp)
}

func read(resp *http.Response) reply {
	GinkgoHelper()
	defer resp.Body.Close()
	text := Must(io.ReadAll(resp.Body))
	return reply{Status: resp.StatusCode, Header: resp.Header, Body: string(text), Closes: resp.Close}
}

// logLines are the entries of the log, as JSON objects.
type logLines struct{ Lines }

// all returns the lines as text; one that holds the object fails the spec.
func (l *logLines) all() []string {
	GinkgoHelper()
	all := l.All()
	for _, line := range all {
		Expect(line).NotTo(ContainSubstring(secret), "objects belong in no log")
	}
	return all
}

// with returns the members of the lines that hold text.
func (l *logLines) with(text string) []map[string]any {
	GinkgoHelper()
	var found []map[string]any
	for _, line := range l.all() {
		if strings.Contains(line, text) {
			members := map[string]any{}
			Expect(json.NewDecoder(bytes.NewBufferString(line)).Decode(&members)).To(Succeed())
			found = append(found, members)
		}
	}
	return found
}

// aDuration matches text such as "1.2ms".
func aDuration() OmegaMatcher {
	return WithTransform(func(text string) error { _, err := time.ParseDuration(text); return err }, Succeed())
}
