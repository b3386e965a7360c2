package record_test

import (
	"context"
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"github.com/go-logr/logr"
	"github.com/go-logr/logr/funcr"
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"gomodules.xyz/jsonpatch/v2"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"

	"code.cloudfoundry.org/eirinix/internal/admit"
	"code.cloudfoundry.org/eirinix/internal/chain"
	"code.cloudfoundry.org/eirinix/internal/record"
)

const (
	path = "/mutate/volumes"
	uid  = "705ab4f5-6393-11e8-b7cc-42010a800002"
	pod  = `{"apiVersion":"v1","kind":"Pod","metadata":{"name":"web-0","namespace":"cf"},"spec":{"containers":[{"name":"web"}]}}`
)

// world is a handler that is recorded, behind a real HTTP server.
type world struct {
	dir      string
	handler  *admit.Handler
	recorder *record.Recorder
	*httptest.Server
	logs   lines
	budget int64 // at the beginning
}

// handling is the chain of the step "volumes".
func handling(f chain.HandleFunc) chain.Config {
	return chain.Config{Steps: []chain.Step{{Name: "volumes", Handle: f}}}
}

// newWorld serves f as the step "volumes", and records it as the options say.
func newWorld(f chain.HandleFunc, change ...func(*record.Options)) *world {
	GinkgoHelper()
	return newWorldWith(nil, f, change...)
}

// newWorldWith is newWorld with a logger for the recorder.
func newWorldWith(sink logr.LogSink, f chain.HandleFunc, change ...func(*record.Options)) *world {
	GinkgoHelper()
	w := &world{dir: filepath.Join(GinkgoT().TempDir(), "recordings"), handler: &admit.Handler{MaxBytes: 1 << 20}}
	w.handler.Serve(path, handling(f))
	o := record.Options{Dir: w.dir}
	for _, c := range change {
		c(&o)
	}
	w.dir = o.Dir
	var err error
	log := funcr.NewJSON(w.logs.add, funcr.Options{})
	if sink != nil {
		log = logr.New(sink)
	}
	w.recorder, err = record.New(o, log)
	Expect(err).NotTo(HaveOccurred())
	w.budget = w.recorder.Budget()
	w.Server = httptest.NewServer(w.recorder.Wrap(w.handler))
	DeferCleanup(func() {
		w.Server.Close()
		w.close()
		Expect(w.recorder.Budget()).To(Equal(w.budget), "the budget must be given back")
	})
	return w
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
	all, err := record.Read(w.dir)
	Expect(err).NotTo(HaveOccurred())
	return all
}

// files returns the texts of the written files, by name.
func (w *world) files() map[string]string {
	GinkgoHelper()
	return filesOf(w.dir)
}

func filesOf(dir string) map[string]string {
	GinkgoHelper()
	entries, err := os.ReadDir(dir)
	Expect(err).NotTo(HaveOccurred())
	all := map[string]string{}
	for _, e := range entries {
		text, err := os.ReadFile(filepath.Join(dir, e.Name()))
		Expect(err).NotTo(HaveOccurred())
		all[e.Name()] = string(text)
	}
	return all
}

// only returns the text of the one file that there is.
func (w *world) only() string {
	GinkgoHelper()
	w.close()
	files := w.files()
	Expect(files).To(HaveLen(1), "%v", w.logs.all())
	for _, text := range files {
		return text
	}
	return ""
}

// post sends a body as the API server does, and returns status and body of the answer.
func (w *world) post(path, body string) (int, string) {
	GinkgoHelper()
	resp, err := w.Client().Post(w.URL+path+"?timeout=10s", "application/json", strings.NewReader(body))
	Expect(err).NotTo(HaveOccurred())
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	Expect(err).NotTo(HaveOccurred())
	return resp.StatusCode, string(text)
}

// allowed sends a body and expects it to be allowed.
func (w *world) allowed(body string) {
	GinkgoHelper()
	status, text := w.post(path, body)
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

func allow(context.Context, admission.Request) admission.Response { return admission.Allowed("") }

// patching is a step that answers with a patch.
func patching(operations ...jsonpatch.Operation) chain.HandleFunc {
	return func(context.Context, admission.Request) admission.Response {
		return admission.Patched("", operations...)
	}
}

// answering serves one answer to everything, recorded by the recorder of w, and returns its URL.
func answering(w *world, answer string) string {
	GinkgoHelper()
	s := httptest.NewServer(w.recorder.Wrap(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		_, _ = io.WriteString(w, answer)
	})))
	DeferCleanup(s.Close)
	return s.URL
}

// ask sends a body to a server.
func ask(url, body string) {
	GinkgoHelper()
	resp, err := http.Post(url+path, "application/json", strings.NewReader(body))
	Expect(err).NotTo(HaveOccurred())
	_, err = io.Copy(io.Discard, resp.Body)
	Expect(err).NotTo(HaveOccurred())
	Expect(resp.Body.Close()).To(Succeed())
}

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

// lines are the lines of the log.
type lines struct {
	mu   sync.Mutex
	said []string
}

func (l *lines) add(line string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.said = append(l.said, line)
}

func (l *lines) all() []string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return append([]string{}, l.said...)
}
