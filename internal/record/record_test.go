package record_test

// A call becomes a file that holds its review, its answer and its circumstances, and that is read back.

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"time"

	"github.com/go-logr/logr"
	"github.com/go-logr/logr/funcr"
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"gomodules.xyz/jsonpatch/v2"
	admissionv1 "k8s.io/api/admission/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"

	"code.cloudfoundry.org/eirinix/internal/record"
	. "code.cloudfoundry.org/eirinix/internal/spectest"
)

var _ = Describe("A call that is recorded", func() {
	It("leaves the review with its answer, and the same value as the request that arrived", func() {
		w := newWorld(func(context.Context, admission.Request) admission.Response {
			return admission.Patched("", jsonpatch.NewOperation("add", "/metadata/labels", map[string]any{"a": "b"}))
		})
		object := `{ "apiVersion":"v1","kind":"Pod","metadata":{"name":"web-0","x":1.50,"y":12345678901234567890,"z":1e2,"slash":"\/\u003c"},"spec":{"unknown":[true,  null]} }`
		body := review(object, `"fromTheFuture":{"b":1,"a":2}`)
		before := time.Now()
		w.allowed(body)
		after := time.Now()

		Expect(w.only()).To(beTheRequestOf(body), "numbers keep their text, and unknown members stay")
		got := w.read()[0]
		Expect(got).To(And(HaveField("Path", path), HaveField("Status", http.StatusOK), HaveField("Version", "v1"), HaveField("Error", ""), HaveField("Redacted", BeEmpty())))
		Expect(filepath.Dir(got.File)).To(Equal(w.dir))
		Expect(got.Received).To(And(BeTemporally(">=", before), BeTemporally("<=", after)))
		Expect(got.Took.Duration).To(And(BeNumerically(">", 0), BeNumerically("<=", after.Sub(before))))
		Expect(members(string(got.Review.Request.Object.Raw))).To(Equal(members(object)))
		Expect(got.Review.Response.UID).To(BeEquivalentTo(uid))
		Expect(got.Review.Response.Patch).To(MatchJSON(`[{"op":"add","path":"/metadata/labels","value":{"a":"b"}}]`))
		Expect(w.counted()).To(Equal(record.Counts{Written: 1}))
		Expect(w.logs.all()).To(BeEmpty())
	})

	It("is readable by the owner alone, in a folder that is made for that user", func() {
		w := newWorld(allow, func(o *record.Options) { o.Dir = filepath.Join(o.Dir, "made", "here") })
		w.allowed(review(pod))
		Expect(Must(os.Stat(w.read()[0].File)).Mode()).To(Equal(os.FileMode(0o600)))
		Expect(Must(os.Stat(w.dir)).Mode().Perm()).To(Equal(os.FileMode(0o700)))
	})

	It("keeps the version in which it came, and reads as v1", func() {
		w := newWorld(allow)
		w.allowed(strings.Replace(review(pod), "admission.k8s.io/v1", "admission.k8s.io/v1beta1", 1))
		Expect(members(w.only())).To(HaveKeyWithValue("apiVersion", "admission.k8s.io/v1beta1"))
		got := w.read()[0]
		Expect(got.Version).To(Equal("v1beta1"))
		Expect(got.Review.APIVersion).To(Equal("admission.k8s.io/v1"))
		Expect(got.Review.Request.Name).To(Equal("web-0"))
		Expect(got.Review.Response.Allowed).To(BeTrue())
	})

	It("holds the error that was sent instead of an answer", func() {
		w := newWorld(func(context.Context, admission.Request) admission.Response {
			return admission.Errored(http.StatusInternalServerError, errors.New("the volume service is down"))
		})
		_, said := w.post(review(pod))
		got := w.read()[0]
		Expect(got.Status).To(Equal(http.StatusInternalServerError))
		Expect(got.Error).To(And(ContainSubstring("the volume service is down"), Equal(strings.TrimSpace(said))))
		Expect(got.Review.Response).To(BeNil())
		Expect(got.Review.Request.Name).To(Equal("web-0"))
	})

	It("has one response and one of our own members, whatever the request brought", func() {
		body := `{"response":{"allowed":false},` + strings.TrimPrefix(strings.TrimSuffix(review(pod), "}"), "{") + `,"eirinix":{"path":"/etc"},"other":1,"Response":2}`
		got := composed(record.Options{}, body, allowed)
		Expect(strings.Count(strings.ToLower(got.text), "response")).To(Equal(1))
		Expect(members(got.text)).To(HaveLen(5))
		Expect(got.Path).To(Equal(path))
		Expect(got.Review.Response.Allowed).To(BeTrue())
	})

	It("is only one that is wanted, and survives panics of the functions that the recorder calls", func() {
		dir := GinkgoT().TempDir()
		r := Must(record.New(record.Options{Dir: dir, Only: func(r *admissionv1.AdmissionRequest) bool {
			if r.Namespace == "panics" {
				panic("oops")
			}
			return r.Namespace == "cf"
		}}, funcr.NewJSON(func(string) { panic("oops") }, funcr.Options{})))
		w := &world{recorded: r.Wrap(newWorld(allow).handler)}
		for _, namespace := range []string{"other", "panics", "cf"} {
			w.allowed(strings.ReplaceAll(review(pod), `"namespace":"cf"`, `"namespace":"`+namespace+`"`))
		}
		Expect(r.Close(context.Background())).To(Succeed())
		Expect(record.Read(dir)).To(HaveExactElements(HaveField("Review.Request.Namespace", "cf")))
		Expect(r.Counts()).To(Equal(record.Counts{Failed: 1, Written: 1}))
	})

	DescribeTable("is none when it is about something else:", func(method, path string) {
		w := newWorld(allow)
		w.handler.Others = http.NewServeMux()
		w.handler.Others.HandleFunc("/readyz", func(w http.ResponseWriter, _ *http.Request) {
			if _, ours := w.(interface{ Unwrap() http.ResponseWriter }); ours {
				w.WriteHeader(http.StatusTeapot)
			}
		})
		answer, request := httptest.NewRecorder(), httptest.NewRequest(method, path, strings.NewReader(review(pod)))
		request.Header.Set("Content-Type", "application/json")
		w.recorded.ServeHTTP(answer, request)
		Expect(answer.Code).NotTo(Equal(http.StatusTeapot), "it is served as if there were no recorder")
		Expect(w.read()).To(BeEmpty())
		Expect(w.counted()).To(BeZero())
	},
		Entry("another path", http.MethodPost, "/readyz"),
		Entry("another method", http.MethodGet, path),
		Entry("a path that another replica may know, whose body is not read", http.MethodPost, "/mutate/unknown"),
	)

	replacing := func(old, by string) func(string) string {
		return func(s string) string { return strings.ReplaceAll(s, old, by) }
	}
	DescribeTable("has a safe name that describes it, however hostile the request:", func(of func(string) string, want string) {
		w := newWorld(allow)
		w.allowed(of(review(pod)))
		name := filepath.Base(w.read()[0].File)
		Expect(name).To(MatchRegexp(`^[a-z0-9.-]{1,250}$`))
		Expect(regexp.MustCompile(`^\d{8}t\d{6}\.\d{9}z`).ReplaceAllString(name, "")).To(HavePrefix(want))
		Expect(os.ReadDir(filepath.Dir(w.dir))).To(HaveLen(1), "nothing is written beside the folder")
	},
		Entry("an ordinary one", replacing("", ""), "-create-pods-cf-web-0-705ab4f5.json"),
		Entry("a way out", replacing(`"name":"web-0","namespace":"cf"`, `"name":"../../../etc/passwd","namespace":".."`), "-create-pods-..-..-..-..-etc-passwd-705ab4f5.json"),
		Entry("zeros and line ends", replacing(`"resource":"pods"`, `"resource":"p\u0000o\nd s"`), "-create-p-o-d-s-cf-web-0-705ab4f5.json"),
		Entry("long names", replacing(`"namespace":"cf"`, `"namespace":"`+strings.Repeat("n", 5000)+`"`), "-create-pods-"+strings.Repeat("n", 63)+"-web-0"),
		Entry("letters of others", replacing(`"name":"web-0","namespace"`, `"name":"`+strings.Repeat("ä", 200)+`","namespace"`), "-create-pods-cf----------"),
		Entry("a subresource", replacing(`"operation"`, `"subResource":"eviction","operation"`), "-create-pods.eviction-cf-web-0"),
		Entry("a name to be made", func(s string) string {
			return strings.ReplaceAll(strings.ReplaceAll(s, `"name":"web-0",`, ""), `"metadata":{`, `"metadata":{"generateName":"web-",`)
		}, "-create-pods-cf-web--705ab4f5.json"),
		Entry("nothing at all", replacing(`"name":"web-0","namespace":"cf",`, ""), "-create-pods-705ab4f5.json"),
	)

	It("leaves a whole file, also among many at once", func() {
		w := newWorld(allow)
		var calls sync.WaitGroup
		for i := range 100 {
			calls.Go(func() {
				defer GinkgoRecover()
				filling := strings.Repeat(fmt.Sprint(i), 1+i*100)
				w.allowed(strings.NewReplacer(uid, fmt.Sprintf("call-%d", i), `"name":"web-0","namespace"`, fmt.Sprintf(`"name":"web-%d","namespace"`, i)).Replace(review(`{"x":"` + filling + `"}`)))
			})
		}
		calls.Wait()
		seen := map[string]bool{}
		for _, r := range w.read() {
			req := r.Review.Request
			i := strings.TrimPrefix(req.Name, "web-")
			Expect(req.UID).To(BeEquivalentTo("call-" + i))
			Expect(r.Review.Response.UID).To(Equal(req.UID), "the answer is that to the question")
			Expect(strings.ReplaceAll(string(req.Object.Raw), i, "")).To(Equal(`{"x":""}`))
			Expect(r.File).To(ContainSubstring("-" + req.Name + "-"))
			seen[i] = true
		}
		Expect(seen).To(HaveLen(100))
	})
})

var _ = It("A recorder that is made reports every fault of its options", func() {
	_, err := record.New(record.Options{MaxFiles: -1, MaxBytes: -2}, logr.Discard())
	Expect(err).To(MatchError(And(ContainSubstring("Dir is empty"), ContainSubstring("MaxFiles is -1"), ContainSubstring("MaxBytes is -2"))))
})

var _ = Describe("Reading", func() {
	var dir string
	put := func(name, text string) string {
		GinkgoHelper()
		file := filepath.Join(dir, name)
		Expect(os.WriteFile(file, []byte(text), 0o600)).To(Succeed())
		return file
	}
	with := func(own string) string { return strings.TrimSuffix(review(pod), "}") + `,"eirinix":` + own + `}` }
	BeforeEach(func() { dir = GinkgoT().TempDir() })

	It("returns the content of a file", func() {
		file := put("any.thing", with(`{"path":"/mutate/a","received":"2026-11-21T14:45:22.000000123Z","took":"1.5ms","status":500,"error":"no","redacted":["a"],"later":1}`))
		all := Must(record.Read(file))
		Expect(all).To(HaveExactElements(HaveField("Review.Request.UID", BeEquivalentTo(uid))))
		all[0].Review = nil
		Expect(all[0]).To(Equal(record.Recorded{File: file, Version: "v1", Circumstances: record.Circumstances{
			Path: "/mutate/a", Received: time.Date(2026, 11, 21, 14, 45, 22, 123, time.UTC), Took: metav1.Duration{Duration: 1500 * time.Microsecond},
			Status: 500, Error: "no", Redacted: []string{"a"},
		}}))
	})

	It("reads the files of a folder by name, also reviews that another tool has kept, and passes over files of others", func() {
		Expect(record.Read(dir)).To(BeEmpty())
		for _, name := range []string{"c.json", "a.json", "b.json"} {
			put(name, review(pod))
		}
		put("notes.txt", "hello")
		put(".eirinix-1.tmp", `{"kind":"Adm`)
		Expect(os.Mkdir(filepath.Join(dir, "folder.json"), 0o700)).To(Succeed())
		Expect(record.Read(dir)).To(HaveExactElements(HaveField("File", dir+"/a.json"), HaveField("File", dir+"/b.json"), HaveField("File", dir+"/c.json")))
	})

	It("names the missing file", func() {
		Expect(record.Read(filepath.Join(dir, "nowhere"))).Error().To(MatchError(os.ErrNotExist))
	})

	DescribeTable("names the file that is no recording:", func(text, why string) {
		put("a.json", review(pod))
		bad := put("b.json", text)
		Expect(record.Read(dir)).Error().To(MatchError(And(ContainSubstring(bad), ContainSubstring(why))))
	},
		Entry("cut off", review(pod)[:200], "not an AdmissionReview"),
		Entry("another kind", `{"kind":"Pod","apiVersion":"v1"}`, `kind "Pod" of apiVersion "v1"`),
		Entry("another kind of the group", strings.Replace(review(pod), "AdmissionReview", "Other", 1), `kind "Other"`),
		Entry("another group", strings.Replace(review(pod), "admission.k8s.io", "example.org", 1), `"example.org/v1"`),
		Entry("another version", strings.Replace(review(pod), "k8s.io/v1", "k8s.io/v2", 1), `"admission.k8s.io/v2"`),
		Entry("no request", `{"kind":"AdmissionReview","apiVersion":"admission.k8s.io/v1","response":{}}`, "holds no request"),
		Entry("another shape of ours", with(`{"took":"long"}`), "invalid duration"),
	)
})
