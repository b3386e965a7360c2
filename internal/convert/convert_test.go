package convert_test

// This file specifies the way of an object and of its metadata, the reviews that ask for it, and the memory of an answer.

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"reflect"
	"runtime"
	"slices"
	"strings"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	kruntime "k8s.io/apimachinery/pkg/runtime"

	"code.cloudfoundry.org/eirinix/internal/convert"
)

// edited converts to the hub as usual, and then changes the result.
func edited(change func(*Job)) convert.Func {
	return func(ctx context.Context, o kruntime.Object) (kruntime.Object, error) {
		j, err := alphaToHub(ctx, o)
		if err == nil {
			change(j.(*Job))
		}
		return j, err
	}
}

var _ = Describe("A conversion", func() {
	plain := object("v1alpha1", "", `"schedule":"5 4","suspend":true`)

	DescribeTable("goes", func(to, from, want string) {
		Expect(converted(cronJobs(), to, from)).To(MatchJSON(want))
	},
		Entry("from a spoke to the hub", "v1", plain, object("v1", "", `"schedule":{"minute":"5","hour":"4"},"suspend":true`)),
		Entry("from a spoke to another", "v1beta1", plain, object("v1beta1", "", `"when":{"minute":"5","hour":"4"},"suspend":true`)),
		Entry("from a tree to the hub", "v1", object("v1beta1", "", `"when":{"minute":"5","hour":"4"},"suspend":false`),
			object("v1", "", `"schedule":{"minute":"5","hour":"4"},"suspend":false`)),
	)

	It("leaves an object that has the version already, byte for byte", func() {
		same := "{ \"kind\" : \"CronJob\", \"spec\": {\"a\": 1e3, \"a\": \"\xff\"},\n\"apiVersion\":\"batch.example.com/v1\"}"
		body := review("v1", same, plain, same)
		answer, err := cronJobs().Answer(context.Background(), body, nil)
		Expect(err).NotTo(HaveOccurred())
		Expect(strings.Count(string(answer), same)).To(Equal(2))
	})

	It("takes each object of a list from its own version", func() {
		counts := &counter{}
		k := cronJobs()
		k.Observer = counts
		r := answered(k, review("v1", plain, object("v1", "", ""), object("v1beta1", "", `"when":{"minute":"1"},"suspend":true`), plain))
		Expect(r.Result.Status).To(Equal(metav1.StatusSuccess), r.Result.Message)
		Expect(r.ConvertedObjects).To(HaveLen(4))
		Expect(counts.converted).To(Equal(map[string]int{"v1alpha1>v1": 2, "v1beta1>v1": 1}))
	})

	DescribeTable("keeps the metadata", func(metadata string) {
		object := `{"apiVersion":"batch.example.com/v1alpha1","kind":"CronJob"` + metadata + `,"spec":{"schedule":"1"}}`
		want := `{"apiVersion":"batch.example.com/v1","kind":"CronJob"` + metadata + `,"spec":{"schedule":{"minute":"1"},"suspend":false}}`
		if !strings.Contains(metadata, "{") {
			want = `{"apiVersion":"batch.example.com/v1","kind":"CronJob","metadata":{},"spec":{"schedule":{"minute":"1"},"suspend":false}}`
		}
		Expect(converted(cronJobs(), "v1", object)).To(MatchJSON(want))
	},
		Entry("that is missing", ""),
		Entry("that is null", `,"metadata":null`),
		Entry("of all kinds", `,"metadata":{"name":"a","uid":"u","creationTimestamp":"2024-01-02T03:04:05Z","deletionTimestamp":"2024-01-02T03:04:05Z",
			"deletionGracePeriodSeconds":30,"finalizers":["a/b"],"ownerReferences":[{"apiVersion":"v1","kind":"Pod","name":"p","uid":"u"}],
			"managedFields":[{"manager":"m","operation":"Update","fieldsV1":{"f:spec":{}}}],"annotations":{"a":"<b>"},"labels":{"c":"d"}}`),
		Entry("with members that no type knows", `,"metadata":{"name":"a","zone":{"large":123456789012345678901234567890},"labels":{"x":"y"}}`),
	)

	It("can change labels and annotations", func() {
		k := with(cronJobs(), edited(func(j *Job) {
			j.Labels = map[string]string{"new": "label"}
			j.Annotations = nil
		}), nil)
		k.Forget = true
		Expect(converted(k, "v1", object("v1alpha1", `,"zone":1,"labels":{"a":"b"},"annotations":{"c":"d"}`, `"schedule":"1"`))).To(
			MatchJSON(object("v1", `,"zone":1,"labels":{"new":"label"}`, `"schedule":{"minute":"1"},"suspend":false`)))
	})

	DescribeTable("fails if it changes other metadata",
		func(change func(*Job), reason string) {
			full := object("v1alpha1", `,"uid":"u","finalizers":["f"],"ownerReferences":[{"apiVersion":"v1","kind":"Pod","name":"p","uid":"u"}]`, `"schedule":"1"`)
			message := failure(with(cronJobs(), edited(change), nil), review("v1", full))
			Expect(message).To(ContainSubstring("object 0 (CronJob cf/nightly) from v1alpha1 to v1: the conversion from v1alpha1 to v1: " + reason))
		},
		Entry("the name", func(j *Job) { j.Name = "x" }, `it changed metadata.name from "nightly" to "x"`),
		Entry("an owner, in place", func(j *Job) { j.OwnerReferences[0].Name = "x" }, "it changed metadata.ownerReferences"),
		Entry("all of it", func(j *Job) { j.ObjectMeta = metav1.ObjectMeta{} }, "it changed metadata."),
		Entry("the apiVersion", func(j *Job) { j.APIVersion = "batch.example.com/v7" }, "it returned an object of batch.example.com/v7"),
		Entry("the kind", func(j *Job) { j.Kind = "Other" }, "it returned a Other"),
	)

	It("gets and returns whole trees", func() {
		k := trees(func(o map[string]any) { o["metadata"].(map[string]any)["name"] = "x" }, unchanged)
		Expect(failure(k, review("v1", object("v1alpha1", "", "")))).To(ContainSubstring(`it changed metadata.name from "nightly" to "x"`))
		k = trees(func(o map[string]any) { o["metadata"].(map[string]any)["zone"] = "x" }, unchanged)
		Expect(converted(k, "v1", object("v1alpha1", `,"zone":1`, ""))).To(ContainSubstring(`"zone":1`), "no API server knows it, so it stays")
		k = trees(func(o map[string]any) { o["metadata"] = "x" }, unchanged)
		Expect(failure(k, review("v1", object("v1alpha1", "", "")))).To(ContainSubstring("it changed metadata."))
	})

	DescribeTable("fails only its object, with its name",
		func(f convert.Func, reason string, panics int) {
			counts := &counter{}
			k := with(cronJobs(), f, nil)
			k.Observer = counts
			message := failure(k, review("v1", object("v1", "", ""), object("v1beta1", "", `"when":{"minute":"1"},"suspend":true`), plain, plain))
			Expect(message).To(HavePrefix("object 2 (CronJob cf/nightly) from v1alpha1 to v1: "))
			Expect(message).To(ContainSubstring(reason))
			Expect(len(message)).To(BeNumerically("<", 1000))
			Expect(counts.panics).To(HaveLen(panics))
			Expect(counts.failed).To(Equal([]string{message}))
			Expect(counts.converted).To(Equal(map[string]int{"v1beta1>v1": 1}))
			Expect(failure(k, review("v1beta1", plain))).To(And(HavePrefix("object 0 "), ContainSubstring(reason)), "by way of the hub")
		},
		Entry("with an error", func(context.Context, kruntime.Object) (kruntime.Object, error) { return nil, errBroken }, "failed: broken on purpose", 0),
		Entry("with a panic", func(context.Context, kruntime.Object) (kruntime.Object, error) { panic(strings.Repeat("p", 9000)) }, "the conversion panicked: ppp", 1),
		Entry("with no object", func(context.Context, kruntime.Object) (kruntime.Object, error) { return nil, nil }, "returned no object", 0),
		Entry("with a nil object", func(context.Context, kruntime.Object) (kruntime.Object, error) { return (*Job)(nil), nil }, "returned no object", 0),
		Entry("with an object of another type", func(context.Context, kruntime.Object) (kruntime.Object, error) { return &Alpha{}, nil }, "it returned a *convert_test.Alpha; return a *convert_test.Job", 0),
	)

	DescribeTable("goes on until the context ends", func(end func(context.Context) error, message string) {
		ctx, cancel := context.WithCancel(context.Background())
		done := 0
		k := with(cronJobs(), func(ctx context.Context, o kruntime.Object) (kruntime.Object, error) {
			if done++; done < 3 {
				return alphaToHub(ctx, o)
			}
			cancel()
			if err := end(ctx); err != nil {
				return nil, err
			}
			return alphaToHub(ctx, o)
		}, nil)
		k.Forget = true
		answer, err := k.Answer(ctx, review("v1", plain, plain, plain, plain, plain), nil)
		Expect(err).NotTo(HaveOccurred())
		Expect(string(answer)).To(ContainSubstring(message))
		Expect(done).To(Equal(3))
	},
		Entry("between two objects", func(context.Context) error { return nil }, "the call ended at object 3: context canceled"),
		Entry("in an object, which says so", context.Context.Err, "the call ended at object 2: the conversion from v1alpha1 to v1 failed: context canceled"),
		Entry("in an object that fails for another reason", func(context.Context) error { return errBroken }, "object 2 (CronJob cf/nightly) from v1alpha1 to v1: "),
	)

	It("passes the context and hides the annotation", func() {
		type key struct{}
		k := with(cronJobs(), func(ctx context.Context, o kruntime.Object) (kruntime.Object, error) {
			Expect(ctx.Value(key{})).To(Equal("value"))
			Expect(o.(*Alpha).Annotations).To(Equal(map[string]string{"a": "b"}))
			Expect(o.(*Alpha).Kind).To(Equal("CronJob"))
			return alphaToHub(ctx, o)
		}, nil)
		noted := object("v1alpha1", `,"annotations":{"a":"b","`+convert.Prefix+`x":"{}"}`, `"schedule":"1"`)
		answer, err := k.Answer(context.WithValue(context.Background(), key{}, "value"), review("v1", noted), nil)
		Expect(err).NotTo(HaveOccurred())
		Expect(string(answer)).To(ContainSubstring(`"Success"`))
	})

	It("does not change the review", func() {
		body := review("v1", plain, object("v1alpha1", "", `"schedule":"1 2 # note","limit":1,"unknown":[1e3]`))
		before := string(body)
		answered(cronJobs(), body)
		Expect(string(body)).To(Equal(before))
	})
})

// readJob reads its own JSON, and remembers a name that it finds there.
type readJob struct {
	Job
	read string
}

func (r *readJob) UnmarshalJSON(text []byte) error {
	err := json.Unmarshal(text, &r.Job)
	r.read = r.Name
	return err
}

var _ = Describe("The way back of an object whose metadata is as it arrived", func() {
	const labels, schedule = `,"labels":{"x":"y"}`, `"schedule":"5 4"`

	It("gets what a decoder makes of the result", func() {
		var seen *Job
		k := with(cronJobs(), alphaToHub, func(ctx context.Context, o kruntime.Object) (kruntime.Object, error) {
			seen = o.DeepCopyObject().(*Job)
			return alphaFromHub(ctx, o)
		})
		result := converted(k, "v1", object("v1alpha1", labels, schedule))
		expected := &Job{}
		Expect(json.Unmarshal([]byte(result), expected)).To(Succeed())
		Expect(seen).To(Equal(expected))
		Expect(seen.Kind).To(Equal("CronJob"))
	})

	It("gets the whole of it if its type reads its own JSON", func() {
		var seen string
		k := cronJobs()
		k.Versions = []convert.Version{
			{
				Name: "v1alpha1", Type: k.Versions[0].Type,
				ToHub: func(ctx context.Context, o kruntime.Object) (kruntime.Object, error) {
					hub, err := alphaToHub(ctx, o)
					return &readJob{Job: *hub.(*Job)}, err
				},
				FromHub: func(ctx context.Context, o kruntime.Object) (kruntime.Object, error) {
					seen = o.(*readJob).read
					return alphaFromHub(ctx, &o.(*readJob).Job)
				},
			},
			{Name: "v1", Type: reflect.TypeFor[*readJob]()},
		}
		converted(k, "v1", object("v1alpha1", labels, schedule))
		Expect(seen).To(Equal("nightly"))
	})

	It("can change it in place, and that is undone", func() {
		k := with(cronJobs(), alphaToHub, func(ctx context.Context, o kruntime.Object) (kruntime.Object, error) {
			o.(*Job).Labels["added"] = "yes"
			return alphaFromHub(ctx, o)
		})
		original := object("v1alpha1", labels, schedule)
		result := converted(k, "v1", original)
		Expect(notesOf(result)).NotTo(BeEmpty())
		Expect(converted(k, "v1alpha1", result)).To(MatchJSON(original))
	})
})

var _ = Describe("A ConversionReview", func() {
	valid := string(review("v1"))

	DescribeTable("is refused",
		func(body, reason string) {
			answer, err := cronJobs().Answer(context.Background(), []byte(body), nil)
			Expect(answer).To(BeNil())
			var refusal *convert.Refusal
			Expect(errors.As(err, &refusal)).To(BeTrue(), "%v", err)
			Expect(refusal.Status).To(Equal(http.StatusBadRequest))
			Expect(refusal.Reason).To(ContainSubstring(reason))
			Expect(len(refusal.Reason)).To(BeNumerically("<", 600))
		},
		Entry("without a body", "", "not a ConversionReview"),
		Entry("that is not JSON", "x", "not well-formed"),
		Entry("that is cut short", valid[:len(valid)-1], "not well-formed"),
		Entry("that more text follows", valid+"x", "not well-formed"),
		Entry("that nests too deep", strings.Replace(valid, `"u-1"`, `"u-1","x":`+strings.Repeat("[", 20000)+strings.Repeat("]", 20000), 1), "nests too deep"),
		Entry("of another kind", strings.Replace(valid, "ConversionReview", "AdmissionReview", 1), `kind "AdmissionReview"`),
		Entry("of another version", strings.Replace(valid, "apiextensions.k8s.io/v1", "apiextensions.k8s.io/v2", 1), "send one of apiextensions.k8s.io/v1 or v1beta1"),
		Entry("without a request", `{"kind":"ConversionReview","apiVersion":"apiextensions.k8s.io/v1"}`, "no request"),
		Entry("whose request is null", `{"kind":"ConversionReview","apiVersion":"apiextensions.k8s.io/v1","request":null}`, "no request"),
		Entry("whose request is no object", `{"kind":"ConversionReview","apiVersion":"apiextensions.k8s.io/v1","request":7}`, "not well-formed"),
		Entry("without a uid", strings.Replace(valid, `"uid":"u-1",`, "", 1), "no uid"),
		Entry("whose uid is a number", strings.Replace(valid, `"u-1"`, `1`, 1), "not a string"),
		Entry("whose uid is too long", strings.Replace(valid, `u-1`, strings.Repeat("u", 254), 1), "uid has 254 bytes"),
		Entry("with two uids", strings.Replace(valid, `"uid"`, `"uid":"x","uid"`, 1), `"uid" occurs twice`),
		Entry("with two uids, of which one is escaped", strings.Replace(valid, `"uid"`, `"\u0075id":"x","uid"`, 1), `"uid" occurs twice`),
		Entry("whose objects are no list", strings.Replace(valid, "[]", "{}", 1), "not well-formed"),
		Entry("whose objects hold a syntax error behind a wrong object", strings.Replace(valid, "[]", "[7,{]", 1), "not well-formed"),
		Entry("whose desired version is a number", strings.Replace(valid, `"batch.example.com/v1"`, "1", 1), "desiredAPIVersion is not a string"),
	)

	It("takes the longest uid and returns it in the same form", func() {
		uid := strings.Repeat("é", 100) + `\u00e9\"` + strings.Repeat("u", 50)
		answer, err := cronJobs().Answer(context.Background(), []byte(strings.Replace(valid, "u-1", uid, 1)), nil)
		Expect(err).NotTo(HaveOccurred())
		Expect(string(answer)).To(ContainSubstring(`"uid":"` + uid + `"`))
	})

	It("is answered in its own version", func() {
		for _, version := range []string{"v1", "v1beta1"} {
			body := strings.Replace(string(review("v1", object("v1alpha1", "", `"schedule":"1"`))), "apiextensions.k8s.io/v1", "apiextensions.k8s.io/"+version, 1)
			answer, err := cronJobs().Answer(context.Background(), []byte(body), nil)
			Expect(err).NotTo(HaveOccurred())
			var meta metav1.TypeMeta
			Expect(json.Unmarshal(answer, &meta)).To(Succeed())
			Expect(meta).To(Equal(metav1.TypeMeta{Kind: "ConversionReview", APIVersion: "apiextensions.k8s.io/" + version}))
		}
	})

	It("can hold its members in any order, and unknown ones", func() {
		body := `{"response":{"x":[]},"request":{"objects":[` + object("v1alpha1", "", `"schedule":"1 2"`) +
			`],"more":{},"desiredAPIVersion":"batch.example.com\/v1","uid":"u-1"},"apiVersion":"apiextensions.k8s.io\/v1","kind":"ConversionReview"} `
		Expect(answered(cronJobs(), []byte(body)).ConvertedObjects).To(HaveLen(1))
	})

	DescribeTable("without objects is answered with none",
		func(objects string) {
			body := strings.Replace(valid, `"objects":[]`, objects, 1)
			answer, err := cronJobs().Answer(context.Background(), []byte(body), nil)
			Expect(err).NotTo(HaveOccurred())
			Expect(string(answer)).To(ContainSubstring(`"convertedObjects":[],`))
			Expect(string(answer)).To(ContainSubstring(`"status":"Success"`))
		},
		Entry("null", `"objects":null`),
		Entry("no member", `"x":1`),
	)

	DescribeTable("fails as a whole",
		func(to, object string, reasons ...string) {
			good := `{"apiVersion":"batch.example.com/v1alpha1","kind":"CronJob","metadata":{"name":"good"},"spec":{"schedule":"1"}}`
			message := failure(cronJobs(), review(to, good, object, good))
			for _, reason := range reasons {
				Expect(message).To(ContainSubstring(reason))
			}
			Expect(len(message)).To(BeNumerically("<", 1500))
		},
		Entry("for a version that there is not", "v3", object("v1", "", ""), `desiredAPIVersion is "batch.example.com/v3"`, "v1alpha1, v1beta1, v1"),
		Entry("with an object that is null", "v1", "null", "object 1", "it is null"),
		Entry("with an object that is a string", "v1", `"`+strings.Repeat("x", 5000)+`"`, "object 1", "send an object"),
		Entry("with an object of another kind", "v1", `{"apiVersion":"batch.example.com/v1","kind":"CronJobList"}`, "object 1", `kind is "CronJobList"`),
		Entry("with an object of a version that there is not", "v1", object("v9", "", ""), "object 1 (CronJob cf/nightly)", `"batch.example.com/v9"`),
		Entry("with an object without a kind", "v1", `{"apiVersion":"batch.example.com/v1"}`, "no kind"),
		Entry("with an object without an apiVersion", "v1", `{"kind":"CronJob"}`, "no apiVersion"),
		Entry("with an object that has two kinds", "v1", strings.Replace(object("v1alpha1", "", ""), `"kind"`, `"kind":"CronJob","kind"`, 1), `"kind" occurs twice`),
		Entry("with an object that has two names", "v1", object("v1alpha1", `,"name":"x"`, ""), `"name" occurs twice`),
		Entry("with metadata that is a list", "v1", `{"apiVersion":"batch.example.com/v1","kind":"CronJob","metadata":[]}`, "metadata is not an object"),
		Entry("with labels that are numbers", "v1", object("v1alpha1", `,"labels":{"a":1}`, ""), "from v1alpha1 to v1", "cannot be read as v1alpha1"),
		Entry("with a member of a wrong type", "v1", object("v1alpha1", "", `"schedule":{}`), "object 1 (CronJob cf/nightly) from v1alpha1 to v1", "schedule"),
		Entry("with a very long name", "v1", strings.Replace(object("v1alpha1", "", `"schedule":7`), "nightly", strings.Repeat("n", 9000), 1), "object 1 (CronJob cf/nnn"),
	)

	DescribeTable("is refused if another replica converts what it needs", func(to, object string) {
		k := cronJobs()
		k.Elsewhere = []string{"v3"}
		_, err := k.Answer(context.Background(), review(to, object), nil)
		refused, ok := errors.AsType[*convert.Refusal](err)
		Expect(ok).To(BeTrue(), "%v", err)
		Expect(refused.Status).To(Equal(http.StatusServiceUnavailable))
		Expect(refused.Reason).To(ContainSubstring("batch.example.com/v3 is converted by another version of the program"))
		Expect(failure(cronJobs(), review(to, object))).To(ContainSubstring("v3"), "without the other replica")
	},
		Entry("as the result", "v3", object("v1", "", "")),
		Entry("from an object", "v1", object("v3", "", "")),
	)

	It("can hold any kind if the versions name none", func() {
		k := cronJobs()
		k.Kind = ""
		other := strings.Replace(object("v1alpha1", "", `"schedule":"1"`), `"CronJob"`, `"OtherJob"`, 1)
		Expect(converted(k, "v1", other)).To(ContainSubstring(`"kind":"OtherJob"`))
		Expect(failure(cronJobs(), review("v1", other))).To(ContainSubstring(`its kind is "OtherJob"`))
	})
})

var _ = Describe("The memory of an answer", Serial, func() {
	It("holds one object at a time, beside the review and the answer", func() {
		spec := `"schedule":"5 4","steps":[` + strings.Repeat(`{"name":"`+strings.Repeat("n", 8)+`"},`, 20) + `{"name":"z"}]`
		body := review("v1", slices.Repeat([]string{object("v1alpha1", "", spec)}, 10_000)...)
		live := map[int]uint64{}
		calls := 0
		k := with(cronJobs(), func(ctx context.Context, o kruntime.Object) (kruntime.Object, error) {
			if calls++; calls == 10 || calls == 9_990 {
				var m runtime.MemStats
				runtime.GC()
				runtime.GC() // pools live through one collection
				runtime.ReadMemStats(&m)
				live[calls] = m.HeapAlloc
			}
			return alphaToHub(ctx, o)
		}, nil)
		r := answered(k, body)
		Expect(r.ConvertedObjects).To(HaveLen(10_000))
		grown := int64(live[9_990]) - int64(live[10])
		Expect(grown).To(BeNumerically("<", len(body)/4), "of %d bytes", len(body))
		runtime.KeepAlive(body)
	})

	DescribeTable("allocates for an object, with its garbage, no more than twice what it asks room for:", Label("sequential"), func(from, to, step string) {
		spec := `"schedule":"5 4","owner":{"team":"t"},"steps":[` + strings.Repeat(step+",", 293<<10/len(step)) + step + `]`
		var before, after runtime.MemStats
		asked, rooms := int64(0), 0
		body := review(to, object(from, "", spec), object(from, "", spec), object(to, "", `"schedule":"5 4"`))
		_, err := cronJobs().Answer(context.Background(), body, func(_ context.Context, bytes int64) (func(), error) {
			rooms++
			asked = bytes
			runtime.ReadMemStats(&before)
			return func() { rooms--; runtime.ReadMemStats(&after) }, nil
		})
		Expect(err).NotTo(HaveOccurred())
		Expect(rooms).To(BeZero(), "one object at a time")
		Expect(asked).To(BeNumerically(">", 40*len(spec)))
		Expect(after.TotalAlloc - before.TotalAlloc).To(And(BeNumerically(">", 0), BeNumerically("<=", 2*asked)))
	},
		Entry("of Go types that lose a member of each item", "v1alpha1", "v1", `{"name":"nnnnnnnn","image":"example.org/images/app:1","note":"a note of common length"}`),
		Entry("of Go types that lose little", "v1alpha1", "v1", `{"name":"nnnnnnnn","image":"example.org/images/app:1"}`),
		Entry("of trees", "v1beta1", "v1", `{"name":"nnnnnnnn","image":"example.org/images/app:1"}`),
		Entry("with members that no type knows", "v1", "v1alpha1", `{"name":"nnnnnnnn","unknown":{"a":1,"b":[1,2,3]}}`),
	)

	It("ends with the reason for which there is no room", func() {
		body := review("v1", object("v1alpha1", "", `"schedule":"5 4"`))
		answer, err := cronJobs().Answer(context.Background(), body, func(context.Context, int64) (func(), error) {
			return nil, errors.New("it waited for memory")
		})
		Expect(err).NotTo(HaveOccurred())
		Expect(string(answer)).To(And(ContainSubstring("it waited for memory"), ContainSubstring(`"Failure"`)))
	})
})
