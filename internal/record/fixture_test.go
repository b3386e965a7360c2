package record_test

// A handler that is recorded, behind a real HTTP server, and calls that are recorded without one.

import (
	"context"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/go-logr/logr/funcr"
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"

	"code.cloudfoundry.org/eirinix/internal/admit"
	"code.cloudfoundry.org/eirinix/internal/chain"
	"code.cloudfoundry.org/eirinix/internal/record"
	. "code.cloudfoundry.org/eirinix/internal/spectest"
)

const (
	path = "/mutate/volumes"
	uid  = "705ab4f5-6393-11e8-b7cc-42010a800002"
	pod  = `{"apiVersion":"v1","kind":"Pod","metadata":{"name":"web-0","namespace":"cf"},"spec":{"containers":[{"name":"web"}]}}`
)

func TestRecord(t *testing.T) {
	RegisterFailHandler(Fail)
	SetDefaultEventuallyTimeout(30 * time.Second) // of a busy machine
	RunSpecs(t, "record")
}

// world is a handler that is recorded.
type world struct {
	dir      string
	handler  *admit.Handler
	recorder *record.Recorder
	recorded http.Handler
	logs     Lines
	budget   int64 // at the beginning
}

// handling is the chain of the step "volumes".
func handling(f chain.HandleFunc) chain.Config {
	return chain.Config{Steps: []chain.Step{{Name: "volumes", Handle: f}}}
}

// newWorld serves f as the step "volumes", and records it as the options say.
func newWorld(f chain.HandleFunc, change ...func(*record.Options)) *world {
	GinkgoHelper()
	w := &world{dir: filepath.Join(GinkgoT().TempDir(), "recordings"), handler: &admit.Handler{MaxBytes: 1 << 20}}
	w.handler.Serve(path, handling(f))
	o := record.Options{Dir: w.dir}
	for _, c := range change {
		c(&o)
	}
	w.dir = o.Dir
	w.recorder = Must(record.New(o, funcr.NewJSON(w.logs.Add, funcr.Options{})))
	w.budget, w.recorded = w.recorder.Budget(), w.recorder.Wrap(w.handler)
	DeferCleanup(func() {
		w.close()
		Expect(w.recorder.Budget()).To(Equal(w.budget), "the budget must be given back")
	})
	return w
}

// serve serves a handler over HTTP until the spec ends.
func serve(h http.Handler) *httptest.Server {
	s := httptest.NewServer(h)
	DeferCleanup(s.Close)
	return s
}

func (w *world) counted() record.Counts { return w.recorder.Counts() }

// close waits until everything is written.
func (w *world) close() {
	GinkgoHelper()
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	Expect(w.recorder.Close(ctx)).To(Succeed())
}

// read closes the recorder and returns the recorded calls.
func (w *world) read() []record.Recorded {
	GinkgoHelper()
	w.close()
	return Must(record.Read(w.dir))
}

// filesOf returns the texts of the written files, by name.
func filesOf(dir string) map[string]string {
	GinkgoHelper()
	all := map[string]string{}
	for _, path := range Must(filepath.Glob(filepath.Join(dir, "*"))) {
		all[filepath.Base(path)] = string(Must(os.ReadFile(path)))
	}
	return all
}

// only returns the text of the one file that there is.
func (w *world) only() string {
	GinkgoHelper()
	w.close()
	files := filesOf(w.dir)
	Expect(files).To(HaveLen(1), "%v", w.logs.All())
	for _, text := range files {
		return text
	}
	return ""
}

// post sends a body as the API server does, and returns status and body of the answer.
func (w *world) post(body string) (int, string) {
	answer, request := httptest.NewRecorder(), httptest.NewRequest(http.MethodPost, path+"?timeout=10s", strings.NewReader(body))
	request.Header.Set("Content-Type", "application/json")
	w.recorded.ServeHTTP(answer, request)
	return answer.Code, answer.Body.String()
}

// allowed sends a body and expects it to be allowed.
func (w *world) allowed(body string) {
	GinkgoHelper()
	status, text := w.post(body)
	Expect(status).To(Equal(http.StatusOK), text)
	Expect(text).To(ContainSubstring(`"allowed":true`))
}

// review returns an AdmissionReview of the creation of an object, with more members of the request.
func review(object string, more ...string) string {
	return `{"kind":"AdmissionReview","apiVersion":"admission.k8s.io/v1","request":{"uid":"` + uid + `",` +
		`"kind":{"group":"","version":"v1","kind":"Pod"},"resource":{"group":"","version":"v1","resource":"pods"},` +
		`"name":"web-0","namespace":"cf","operation":"CREATE","userInfo":{"username":"alice"},"object":` + object +
		strings.Join(append([]string{""}, more...), ",") + `}}`
}

// answerWith is an answer with a patch in base64.
func answerWith(patch string) string {
	return `{"apiVersion":"admission.k8s.io/v1","kind":"AdmissionReview","response":{"uid":"` + uid + `","allowed":true,"patchType":"JSONPatch","patch":"` + patch + `"}}`
}

// recording is the recording of a call, and its text.
type recording struct {
	record.Recorded
	text string
}

// allowed is the answer of a step that changes nothing.
const allowed = `{"apiVersion":"admission.k8s.io/v1","kind":"AdmissionReview","response":{"uid":"` + uid + `","allowed":true}}`

// composed records a call, without a server and a folder.
func composed(o record.Options, question, answer string) recording {
	GinkgoHelper()
	text, got, err := record.Compose(o, question, answer)
	Expect(err).NotTo(HaveOccurred())
	return recording{Recorded: got, text: text}
}

func allow(context.Context, admission.Request) admission.Response { return admission.Allowed("") }

// members reads an object; numbers stay as they are spelt.
func members(text string) map[string]any {
	GinkgoHelper()
	all := map[string]any{}
	d := json.NewDecoder(strings.NewReader(text))
	d.UseNumber()
	Expect(d.Decode(&all)).To(Succeed())
	return all
}

// beTheRequestOf matches the text of a recording whose request has the same value as that of a review.
func beTheRequestOf(body string) OmegaMatcher {
	return WithTransform(func(text string) any { return members(text)["request"] }, Equal(members(body)["request"]))
}
