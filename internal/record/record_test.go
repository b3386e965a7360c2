package record_test

import (
	"context"
	"errors"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"time"

	"github.com/go-logr/logr"
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"gomodules.xyz/jsonpatch/v2"
	admissionv1 "k8s.io/api/admission/v1"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"

	"code.cloudfoundry.org/eirinix/internal/record"
)

var _ = Describe("A call that is recorded", func() {
	It("leaves the review with its answer, and the same value as the request that arrived", func() {
		w := newWorld(patching(jsonpatch.NewOperation("add", "/metadata/labels", map[string]any{"a": "b"})))
		object := `{ "apiVersion":"v1","kind":"Pod","metadata":{"name":"web-0","x":1.50,"y":12345678901234567890,"z":1e2,"slash":"\/\u003c"},"spec":{"unknown":[true,  null]} }`
		body := review(object, `"fromTheFuture":{"b":1,"a":2}`)
		before := time.Now()
		w.allowed(body)
		after := time.Now()
		text := w.only()

		Expect(text).To(beTheRequestOf(body), "numbers keep their text, and unknown members stay")
		all := w.read()
		Expect(all).To(HaveLen(1))
		got := all[0]
		Expect(filepath.Dir(got.File)).To(Equal(w.dir))
		Expect(got.Path).To(Equal(path))
		Expect(got.Status).To(Equal(http.StatusOK))
		Expect(got.Version).To(Equal("v1"))
		Expect(got.Error).To(BeEmpty())
		Expect(got.Redacted).To(BeEmpty())
		Expect(got.Received).To(And(BeTemporally(">=", before), BeTemporally("<=", after)))
		Expect(got.Took.Duration).To(And(BeNumerically(">", 0), BeNumerically("<=", after.Sub(before))))
		Expect(members(string(got.Review.Request.Object.Raw))).To(Equal(members(object)))
		Expect(got.Review.Request.UserInfo.Username).To(Equal("alice"))
		Expect(got.Review.Response.UID).To(BeEquivalentTo(uid))
		Expect(string(got.Review.Response.Patch)).To(MatchJSON(`[{"op":"add","path":"/metadata/labels","value":{"a":"b"}}]`))
		Expect(w.counted()).To(Equal(record.Counts{Written: 1}))
		Expect(w.logs.all()).To(BeEmpty())
	})

	It("is readable by the owner alone, under a name that describes the call", func() {
		w := newWorld(allow, func(o *record.Options) { o.Dir = filepath.Join(o.Dir, "made", "here") })
		w.allowed(review(pod))
		w.close()
		names := []string{}
		for name := range w.files() {
			names = append(names, name)
			info, err := os.Stat(filepath.Join(w.dir, name))
			Expect(err).NotTo(HaveOccurred())
			Expect(info.Mode()).To(Equal(os.FileMode(0o600)))
		}
		Expect(names).To(ConsistOf(MatchRegexp(`^\d{8}t\d{6}\.\d{9}z-create-pods-cf-web-0-705ab4f5\.json$`)))
		info, err := os.Stat(w.dir)
		Expect(err).NotTo(HaveOccurred())
		Expect(info.Mode().Perm()).To(Equal(os.FileMode(0o700)))
	})

	It("keeps the version in which it came, and reads as v1", func() {
		w := newWorld(allow)
		w.allowed(strings.Replace(review(pod), "admission.k8s.io/v1", "admission.k8s.io/v1beta1", 1))
		Expect(members(w.only())).To(HaveKeyWithValue("apiVersion", "admission.k8s.io/v1beta1"))
		got := w.read()[0]
		Expect(got.Version).To(Equal("v1beta1"))
		Expect(got.Review.APIVersion).To(Equal("admission.k8s.io/v1"))
		Expect(got.Review.Kind).To(Equal("AdmissionReview"))
		Expect(got.Review.Request.Name).To(Equal("web-0"))
		Expect(got.Review.Response.Allowed).To(BeTrue())
	})

	It("holds the error that was sent instead of an answer", func() {
		w := newWorld(func(context.Context, admission.Request) admission.Response {
			return admission.Errored(http.StatusInternalServerError, errors.New("the volume service is down"))
		})
		status, said := w.post(path, review(pod))
		Expect(status).To(Equal(http.StatusInternalServerError))
		got := w.read()[0]
		Expect(got.Status).To(Equal(http.StatusInternalServerError))
		Expect(got.Error).To(And(ContainSubstring("the volume service is down"), Equal(strings.TrimSpace(said))))
		Expect(got.Review.Response).To(BeNil())
		Expect(got.Review.Request.Name).To(Equal("web-0"))
	})

	It("has one response and one of our own members, whatever the request brought", func() {
		w := newWorld(allow)
		body := `{"response":{"allowed":false},` + strings.TrimPrefix(strings.TrimSuffix(review(pod), "}"), "{") + `,"eirinix":{"path":"/etc"},"other":1,"Response":2}`
		w.allowed(body)
		text := w.only()
		Expect(strings.Count(strings.ToLower(text), "response")).To(Equal(1))
		Expect(members(text)).To(HaveLen(5))
		got := w.read()[0]
		Expect(got.Path).To(Equal(path))
		Expect(got.Review.Response.Allowed).To(BeTrue())
		Expect(got.Redacted).To(BeEmpty())
	})

	It("is only one that is wanted", func() {
		w := newWorld(allow, func(o *record.Options) {
			o.Only = func(r *admissionv1.AdmissionRequest) bool { return r.Namespace == "cf" }
		})
		w.allowed(review(pod))
		w.allowed(strings.ReplaceAll(review(pod), `"namespace":"cf"`, `"namespace":"other"`))
		Expect(w.read()).To(HaveLen(1))
		Expect(w.counted()).To(Equal(record.Counts{Written: 1}))
	})

	DescribeTable("is none when it is about something else:",
		func(method, path string) {
			w := newWorld(allow)
			w.handler.Others = http.NewServeMux()
			w.handler.Others.HandleFunc("/readyz", func(w http.ResponseWriter, r *http.Request) {
				if _, ours := w.(interface{ Unwrap() http.ResponseWriter }); ours {
					w.WriteHeader(http.StatusTeapot)
				}
			})
			req, err := http.NewRequest(method, w.URL+path, strings.NewReader(review(pod)))
			Expect(err).NotTo(HaveOccurred())
			req.Header.Set("Content-Type", "application/json")
			resp, err := w.Client().Do(req)
			Expect(err).NotTo(HaveOccurred())
			Expect(resp.Body.Close()).To(Succeed())
			Expect(resp.StatusCode).NotTo(Equal(http.StatusTeapot), "it is served as if there were no recorder")
			Expect(w.read()).To(BeEmpty())
			Expect(w.counted()).To(BeZero())
		},
		Entry("health", http.MethodPost, "/readyz"),
		Entry("another path", http.MethodPost, "/metrics"),
		Entry("another method", http.MethodGet, path),
		Entry("a path that another replica may know, whose body is not read", http.MethodPost, "/mutate/unknown"),
	)

	DescribeTable("has a safe name, however hostile the request:", func(of func(string) string, want string) {
		w := newWorld(allow)
		w.allowed(of(review(pod)))
		w.close()
		for name := range w.files() {
			Expect(name).To(MatchRegexp(`^[a-z0-9.-]+$`))
			Expect(len(name)).To(BeNumerically("<=", 250))
			Expect(regexp.MustCompile(`^\d{8}t\d{6}\.\d{9}z`).ReplaceAllString(name, "")).To(HavePrefix(want))
		}
		entries, err := os.ReadDir(filepath.Dir(w.dir))
		Expect(err).NotTo(HaveOccurred())
		Expect(entries).To(HaveLen(1), "nothing is written beside the folder")
		Expect(w.read()).To(HaveLen(1))
	},
		Entry("a way out", replacing(`"name":"web-0","namespace":"cf"`, `"name":"../../../etc/passwd","namespace":".."`), "-create-pods-..-..-..-..-etc-passwd-705ab4f5.json"),
		Entry("an absolute one", replacing(uid, "/etc/shadow"), "-create-pods-cf-web-0--etc-sha.json"),
		Entry("zeros and line ends", replacing(`"resource":"pods"`, `"resource":"p\u0000o\nd s"`), "-create-p-o-d-s-cf-web-0-705ab4f5.json"),
		Entry("long names", replacing(`"namespace":"cf"`, `"namespace":"`+strings.Repeat("n", 5000)+`"`), "-create-pods-nnnnn"),
		Entry("letters of others", replacing(`"name":"web-0","namespace"`, `"name":"`+strings.Repeat("ä", 200)+`","namespace"`), "-create-pods-cf----------"),
		Entry("a subresource", replacing(`"operation"`, `"subResource":"eviction","operation"`), "-create-pods.eviction-cf-web-0"),
		Entry("a name to be made", func(s string) string {
			return strings.ReplaceAll(strings.ReplaceAll(s, `"name":"web-0",`, ""), `"metadata":{`, `"metadata":{"generateName":"web-",`)
		}, "-create-pods-cf-web--705ab4f5.json"),
		Entry("nothing at all", func(s string) string {
			return strings.ReplaceAll(s, `"name":"web-0","namespace":"cf",`, "")
		}, "-create-pods-705ab4f5.json"),
	)
})

func replacing(old, by string) func(string) string {
	return func(s string) string { return strings.ReplaceAll(s, old, by) }
}

var _ = Describe("A recorder that is made", func() {
	It("reports every fault of its options", func() {
		_, err := record.New(record.Options{MaxFiles: -1, MaxBytes: -2}, logr.Discard())
		Expect(err).To(MatchError(And(ContainSubstring("Dir is empty"), ContainSubstring("MaxFiles is -1"), ContainSubstring("MaxBytes is -2"))))
	})

	It("logs that nothing can be written, with the remedy", func() {
		file := filepath.Join(GinkgoT().TempDir(), "file")
		Expect(os.WriteFile(file, nil, 0o600)).To(Succeed())
		for _, dir := range []string{file, filepath.Join(file, "below"), "/proc/eirinix"} {
			_, err := record.New(record.Options{Dir: dir}, logr.Discard())
			Expect(err).To(MatchError(And(ContainSubstring(dir), ContainSubstring("mount an emptyDir"))))
		}
	})
})
