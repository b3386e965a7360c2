package record_test

// A call becomes a file that holds its review, its answer and its circumstances, and that is read back. The objects that
// steps read beside the request stand in it, redacted, and within bounds.

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
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"

	"code.cloudfoundry.org/eirinix/internal/chain"
	"code.cloudfoundry.org/eirinix/internal/reads"
	"code.cloudfoundry.org/eirinix/internal/record"
	"code.cloudfoundry.org/eirinix/internal/snapshots"
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
		Expect(w.logs.All()).To(BeEmpty())
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

// cluster holds the objects that the step "volumes" can read.
type cluster struct {
	set     *reads.Set
	objects []*unstructured.Unstructured
	fails   func(reads.Declaration) error
}

// newCluster holds objects, of which the step declares the ConfigMaps and Secrets.
func newCluster(keep func(client.Object), objects ...string) *cluster {
	GinkgoHelper()
	set := Must(reads.New(clientgoscheme.Scheme, []reads.Step{{Name: "volumes", Reads: []reads.Declaration{
		{Object: &corev1.ConfigMap{}, Kind: corev1.SchemeGroupVersion.WithKind("ConfigMap"), Transform: keep},
		{Object: &corev1.Secret{}, Kind: corev1.SchemeGroupVersion.WithKind("Secret"), Transform: keep},
	}}}, logr.Discard(), nil))
	c := &cluster{set: set}
	for _, o := range objects {
		c.objects = append(c.objects, &unstructured.Unstructured{Object: members(o)})
	}
	return c
}

// reader returns the Reader of the step in a call.
func (c *cluster) reader(ctx context.Context) *reads.Reader {
	var turn reads.Turn
	turn.From(ctx, "volumes", func(first func() any) any { return first() }, func(ctx context.Context) *reads.Snapshot {
		return snapshots.Fill(ctx, c.set, c.objects, c.fails)
	})
	return turn.Reader()
}

// listing is a step that lists all ConfigMaps and Secrets.
func (c *cluster) listing(ctx context.Context, _ admission.Request) admission.Response {
	r := c.reader(ctx)
	for _, list := range []client.ObjectList{&corev1.ConfigMapList{}, &corev1.SecretList{}} {
		if err := r.List(ctx, list); err != nil {
			return admission.Errored(500, err)
		}
	}
	return admission.Allowed("")
}

func configMapNamed(name, data string) string {
	return `{"apiVersion":"v1","kind":"ConfigMap","metadata":{"namespace":"cf","name":"` + name + `"},"data":{"host":"` + data + `"}}`
}

var secretWithCopy = `{"apiVersion":"v1","kind":"Secret","metadata":{"namespace":"cf","name":"db","annotations":{` + lastApplied + `}},"data":{"password":"` + inBase64 + `"}}`

var _ = Describe("What steps read", func() {
	It("is recorded once, by declaration, as it was kept", func() {
		c := newCluster(nil, configMapNamed("a", "a.example.com"), configMapNamed("b", "b.example.com"))
		w := newWorld(func(ctx context.Context, _ admission.Request) admission.Response {
			r, found := c.reader(ctx), &corev1.ConfigMap{}
			for _, name := range []string{"a", "a", "none"} {
				_ = r.Get(ctx, client.ObjectKey{Namespace: "cf", Name: name}, found)
			}
			return admission.Allowed("")
		})
		w.allowed(review(pod))
		got := w.read()[0]
		Expect(got.Reads).To(HaveExactElements(And(
			HaveField("Declaration", "eirinix.Read{Object: &v1.ConfigMap{}}"), HaveField("Steps", []string{"volumes"}), HaveField("Failed", BeEmpty()),
			HaveField("Objects", HaveExactElements(HaveKeyWithValue("data", map[string]any{"host": "a.example.com"}))))))
		Expect(got.ReadsLeftOut).To(BeEmpty())
	})

	It("is an empty list if they read nothing, and is missing if they cannot read", func() {
		c := newCluster(nil)
		able := newWorld(func(ctx context.Context, _ admission.Request) admission.Response {
			c.reader(ctx)
			return admission.Allowed("")
		})
		able.allowed(review(pod))
		Expect(able.only()).To(ContainSubstring(`"reads":[]`))
		Expect(able.read()[0].Reads).To(And(BeEmpty(), Not(BeNil())))
		unable := newWorld(allow)
		unable.allowed(review(pod))
		Expect(unable.read()[0].Reads).To(BeNil())
	})

	It("says which reads failed, without a value that a function of the program has quoted", func() {
		c := newCluster(func(o client.Object) {
			if s, ok := o.(*corev1.Secret); ok {
				panic(string(s.Data["password"]))
			}
		}, secretWithCopy)
		c.fails = func(d reads.Declaration) error {
			if d.Kind.Kind == "ConfigMap" {
				return errors.New("they are too old")
			}
			return nil
		}
		w := newWorld(func(ctx context.Context, _ admission.Request) admission.Response {
			r := c.reader(ctx)
			_, _ = r.List(ctx, &corev1.ConfigMapList{}), r.List(ctx, &corev1.SecretList{})
			return admission.Allowed("")
		})
		w.allowed(review(pod))
		Expect(leaks(w.only())).To(BeFalse())
		got := w.read()[0].Reads
		Expect(got).To(HaveLen(2))
		Expect(got[0].Failed).To(Equal(map[string]string{"volumes": "they are too old"}))
		Expect(got[1].Failed).To(HaveKeyWithValue("volumes", ContainSubstring("Read.Transform or Read.Index of eirinix.Read{Object: &v1.Secret{}} fails")))
	})

	DescribeTable("is redacted as the objects of the request are, and wherever the answer repeats it", func(say func(value string) admission.Response) {
		c := newCluster(nil, secretWithCopy, configMapNamed("copy", "https://user:"+marker+"@db"))
		w := newWorld(func(ctx context.Context, _ admission.Request) admission.Response {
			r, secret := c.reader(ctx), &corev1.Secret{}
			if err := errors.Join(r.Get(ctx, client.ObjectKey{Namespace: "cf", Name: "db"}, secret), r.List(ctx, &corev1.ConfigMapList{})); err != nil {
				return admission.Errored(500, err)
			}
			return say(string(secret.Data["password"]))
		})
		_, answer := w.post(review(pod))
		Expect(leaks(answer)).To(BeTrue(), "the answer must hold the value, or nothing is shown: %s", answer)
		text := w.only()
		Expect(leaks(text)).To(BeFalse(), text)
		got := w.read()[0]
		Expect(got.Reads).To(HaveLen(2))
		Expect(got.Reads[0].Objects[0]["data"]).To(Equal(map[string]any{"password": "cmVkYWN0ZWQ="}))
		Expect(got.Reads[0].Objects[0]["metadata"]).To(HaveKeyWithValue("annotations", BeEmpty()), "the one was a copy")
		Expect(got.Reads[1].Objects[0]["data"]).To(Equal(map[string]any{"host": "https://user:redacted@db"}))
		Expect(got.Redacted).To(ContainElements("eirinix.reads[0].objects[0].data", "eirinix.reads[1].objects[0].data (repeated a secret)"))
	},
		Entry("in a failure", func(value string) admission.Response { return admission.Errored(500, errors.New("not with "+value)) }),
		Entry("in an annotation for the audit log", func(value string) admission.Response {
			r := admission.Allowed("")
			r.AuditAnnotations = map[string]string{"used": value, value: "used"}
			return r
		}),
	)

	It("is shown to the program's hook, which sees no value of a Secret", func() {
		c := newCluster(nil, configMapNamed("a", marker), secretWithCopy)
		var seen []string
		w := newWorld(c.listing, func(o *record.Options) {
			o.Redact = func(o map[string]any) {
				if seen = append(seen, fmt.Sprint(o["kind"])); o["kind"] == "ConfigMap" {
					delete(o, "data")
				} else if data, ok := o["data"].(map[string]any); ok && data["password"] == inBase64 {
					seen = append(seen, "a value")
				}
			}
		})
		w.allowed(review(pod))
		text := w.only()
		Expect(leaks(text)).To(BeFalse(), text)
		Expect(seen).To(Equal([]string{"Pod", "ConfigMap", "Secret"}))
		Expect(w.read()[0].Redacted).To(ContainElement("eirinix.reads[0].objects[0] (by Redact)"))
	})

	DescribeTable("is left out of the recording if it is too much", func(objects int, data string, budget int64, reason string) {
		var all []string
		for i := range objects {
			all = append(all, configMapNamed(fmt.Sprint("c-", i), data))
		}
		w := newWorld(newCluster(nil, all...).listing)
		if budget > 0 {
			w.budget = budget
			w.recorder.SetBudget(budget)
		}
		w.allowed(review(pod))
		got := w.read()[0]
		if reason == "" {
			Expect(got.Reads[0].Objects).To(HaveLen(objects))
		} else {
			Expect(got.Reads).To(BeNil())
		}
		Expect(got.ReadsLeftOut).To(Equal(reason))
		Expect(got.Review.Response.Allowed).To(BeTrue())
	},
		Entry("not at the limit", 1000, "x", int64(0), ""),
		Entry("of objects", 1001, "x", int64(0), "the steps read more than 1000 objects"),
		Entry("of bytes", 11, strings.Repeat("x", 100<<10), int64(0), "the steps read more than 1048576 bytes"),
		Entry("of the memory of the calls that wait", 2, strings.Repeat("x", 100<<10), int64(128<<10), "more calls came than could be written"),
	)

	It("ends with the answer: a step that was left behind changes nothing", func() {
		change, began, release := blocking()
		c := newCluster(nil, configMapNamed("a", "early"), configMapNamed("b", "late"))
		late, done := make(chan struct{}), make(chan struct{})
		var step chain.HandleFunc = func(ctx context.Context, _ admission.Request) admission.Response {
			r := c.reader(ctx)
			Expect(r.Get(ctx, client.ObjectKey{Namespace: "cf", Name: "a"}, &corev1.ConfigMap{})).To(Succeed())
			go func() {
				defer GinkgoRecover()
				defer close(done)
				<-late
				Expect(r.Get(context.WithoutCancel(ctx), client.ObjectKey{Namespace: "cf", Name: "b"}, &corev1.ConfigMap{})).To(Succeed())
			}()
			return admission.Allowed("")
		}
		w := newWorld(step, change)
		DeferCleanup(release)
		w.allowed(review(pod))
		Eventually(began).Should(BeClosed())
		close(late) // while the call waits to be written
		Eventually(done).Should(BeClosed())
		release()
		Expect(w.only()).To(And(ContainSubstring("early"), Not(ContainSubstring("late"))))
	})
})
