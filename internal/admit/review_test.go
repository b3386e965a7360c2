package admit

import (
	"encoding/json"
	"fmt"
	"math"
	"math/rand/v2"
	"reflect"
	"runtime"
	"strings"
	"testing"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	admissionv1 "k8s.io/api/admission/v1"
	admissionv1beta1 "k8s.io/api/admission/v1beta1"
	authenticationv1 "k8s.io/api/authentication/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	kruntime "k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
)

var _ = Describe("A review", func() {
	review := func(changes ...string) string {
		text := string(arrivedReview(1, 1))
		return strings.NewReplacer(changes...).Replace(text)
	}

	It("is cut without decoding its content", func() {
		body := arrivedReview(3, 3)
		rev := scanReview(body)
		Expect(rev).NotTo(BeNil())
		Expect(rev.request.UserInfo.Username).To(BeEmpty(), "who asks is for later")
		rev.parseUser()
		Expect(rev.typeMeta).To(Equal(metav1.TypeMeta{Kind: "AdmissionReview", APIVersion: "admission.k8s.io/v1"}))
		Expect(rev.request).To(Equal(*arrivedRequest(arrivedPod(3, 3))))
		Expect(&rev.request.Object.Raw[0]).To(BeIdenticalTo(&body[strings.Index(string(body), `"object":`)+len(`"object":`)]), "no copy")
		Expect(rev.request.OldObject.Raw).To(BeNil())
	})

	It("costs a handful of allocations, however large the object is", func() {
		small, large := arrivedReview(1, 1), arrivedReview(60, 20)
		allocations := func(body []byte) int { return int(testing.AllocsPerRun(20, func() { scanReview(body) })) }
		Expect(allocations(small)).To(BeNumerically("<=", 6))
		Expect(allocations(large)).To(Equal(allocations(small)))
	})

	DescribeTable("costs no more memory, and a small stack, for an object that nests deep:", func(times int, opening, closing string) {
		flat, deep := review(), review(`"object":{`, `"object":`+strings.Repeat(opening, times)+"1"+strings.Repeat(closing, times)+`,"x":{`)
		allocations := func(body string) int { return int(testing.AllocsPerRun(20, func() { scanReview([]byte(body)) })) }
		Expect(allocations(deep)).To(Equal(allocations(flat)))
		grown := make(chan int64)
		go func() { // on a stack of its own, which shrinks only in a collection
			var before, after runtime.MemStats
			runtime.ReadMemStats(&before)
			isCut := scanReview([]byte(deep)) != nil
			runtime.ReadMemStats(&after)
			if !isCut {
				after.StackInuse = math.MaxInt64
			}
			grown <- int64(after.StackInuse) - int64(before.StackInuse)
		}()
		Eventually(grown).Should(Receive(BeNumerically("<", 1<<18)))
	},
		Entry("lists", 9990, "[", "]"),
		Entry("objects", 9990, `{"a":`, "}"),
		Entry("both", 4995, `[{"a":`, "}]"),
	)

	DescribeTable("is cut from most texts, and unusual ones are left to the decoder:",
		func(body string, cut, accepted bool) {
			Expect(scanReview([]byte(body)) != nil).To(Equal(cut))
			_, err := parseReview([]byte(body))
			Expect(err == nil).To(Equal(accepted), "%v", err)
			sameAsDecoded(GinkgoTB(), []byte(body))
		},
		Entry("v1", review(), true, true),
		Entry("v1beta1", review("admission.k8s.io/v1", "admission.k8s.io/v1beta1"), true, true),
		Entry("another version", review("admission.k8s.io/v1", "admission.k8s.io/v2"), false, false),
		Entry("another kind", review(`"AdmissionReview"`, `"Review"`), false, false),
		Entry("space around and between", " \r\n\t"+review(`,"`, "\t,\r\n \"", `":{`, "\" : { ")+"\n", true, true),
		Entry("unknown members", review(`"uid"`, `"id":[1,{"uid":null}],"uid"`), true, true),
		Entry("members in another case", review(`"uid"`, `"Uid":1,"UID":"x","uid"`), true, true),
		Entry("a member that only differs in case", review(`"uid"`, `"UID"`), false, false),
		Entry("null for all that may be absent", review(`"dryRun":false`, `"dryRun":null,"subResource":null,"requestSubResource":null`, `"groups":[`, `"groups":null,"x":[`), true, true),
		Entry("null for extra", review(`"extra":{`, `"extra":null,"x":{`), true, true),
		Entry("null for the user", review(`"userInfo":{`, `"userInfo":null,"x":{`), true, true),
		Entry("nothing in lists", review(`"groups":[`, `"groups":[],"x":[`, `"extra":{`, `"extra":{},"y":{`), true, true),
		Entry("null for kinds", review(`"requestKind":{`, `"requestKind":null,"x":{`, `"requestResource":{`, `"requestResource":null,"y":{`), true, true),
		Entry("text beyond ASCII", review("cf-workloads", "日本"), true, true),
		Entry("no object", review(`"object":{`, `"x":{`), true, true),
		Entry("an object that is no object", review(`"object":{`, `"object":-0.5e+10,"x":{`), true, true),
		Entry("a member twice", review(`"operation":"CREATE"`, `"operation":"DELETE","operation":"CREATE"`), false, true),
		Entry("an object twice", review(`"object":{`, `"object":{"a":1},"object":{`), false, true),
		Entry("a request twice", review(`"request":{`, `"request":{"name":"x"},"request":{`), false, true),
		Entry("a member of the object twice", review(`"object":{`, `"object":{"spec":1,"spec":2,`), true, true),
		Entry("a group of extra twice", review(`"extra":{`, `"extra":{"a":["b"],"a":["c"],`), false, true),
		Entry("a name with an escape", review(`"operation"`, `"op\u0065ration"`), true, true),
		Entry("an escape", review("cf-workloads", `cf\u002dworkloads`), true, true),
		Entry("bytes that are no text", review("cf-workloads", "\xff"), true, true),
		Entry("bytes that are no text, in an object", review("some=value", "\xff"), true, true),
		Entry("a number for a name", review(`"name":"app-7d4b9c6f8-x2x5k","namespace"`, `"name":1,"namespace"`), false, false),
		Entry("a word for true", review(`"dryRun":false`, `"dryRun":"false"`), false, false),
		Entry("deeper than the scanner goes", review(`"object":{`, `"object":`+strings.Repeat("[", 9991)+"1"+strings.Repeat("]", 9991)+`,"x":{`), false, true),
		Entry("as deep as the scanner goes", review(`"object":{`, `"object":`+strings.Repeat("[", 9990)+"1"+strings.Repeat("]", 9990)+`,"x":{`), true, true),
		Entry("deeper than the decoder goes", review(`"object":{`, `"object":`+strings.Repeat("[", 10001)+strings.Repeat("]", 10001)+`,"x":{`), false, false),
		Entry("no UID", review(`"uid":"705ab4f5-6393-11e8-b7cc-42010a800002"`, `"uid":""`), false, false),
		Entry("no operation", review(`"operation":"CREATE"`, `"operation":null`), false, false),
		Entry("no operation that there is", review(`"CREATE"`, `"PATCH"`), false, false),
		Entry("no request", review(`"request":{`, `"request":null,"x":{`), false, false),
		Entry("a request that is a list", review(`"request":{`, `"request":[],"x":{`), false, false),
		Entry("nothing", "", false, false),
		Entry("null", "null", false, false),
		Entry("a list", "["+review()+"]", false, false),
		Entry("two", review()+review(), false, false),
		Entry("something behind it", review()+"x", false, false),
		Entry("a byte order mark", "\ufeff"+review(), false, false),
	)

	It("is never cut from a part of a review", func() {
		body := string(arrivedReview(1, 2))
		for i := range body {
			Expect(scanReview([]byte(body[:i]))).To(BeNil(), "%d bytes", i)
		}
	})

	It("is never cut from a text that a changed byte has made malformed", func() {
		body := arrivedReview(1, 1)
		for i := range body {
			was := body[i]
			for _, c := range []byte{0, '"', '\\', '{', ']', ',', ':', '0', 'e', ' '} {
				body[i] = c
				if !json.Valid(body) {
					Expect(scanReview(body)).To(BeNil(), "%q at %d", c, i)
				}
			}
			body[i] = was
		}
	})

	It("holds every field of a review, of v1 and of v1beta1", func() {
		Expect(reflect.TypeFor[admissionv1beta1.AdmissionRequest]().NumField()).To(Equal(reflect.TypeFor[admissionv1.AdmissionRequest]().NumField()))
		random := rand.New(rand.NewPCG(uint64(GinkgoRandomSeed()), 0))
		cut := 0
		for range 2000 {
			body := encoded(map[string]any{
				"apiVersion": "admission.k8s.io/" + one(random, "v1", "v1beta1"), "kind": "AdmissionReview", "request": anyRequest(random),
			})
			sameAsDecoded(GinkgoTB(), body)
			if scanReview(body) != nil {
				cut++
			}
		}
		Expect(cut).To(BeNumerically(">", 500), "the others have escapes")
	})
})

func one[T any](random *rand.Rand, values ...T) T { return values[random.IntN(len(values))] }

// anyRequest fills every member of a request, or leaves it out, with values that JSON can spell in several ways.
func anyRequest(random *rand.Rand) *admissionv1.AdmissionRequest {
	word := func() string {
		return one(random, "", "pods", "v1", "a-b.c", "日本", "x y", "a", "a<b", "\u2028", "\"", "\x00")
	}
	if random.IntN(2) == 0 {
		word = func() string {
			return one(random, "", "pods", "apps", "v1", "a-b.c", "日本", strings.Repeat("long", random.IntN(300)))
		}
	}
	words := func() (all []string) {
		for range random.IntN(4) {
			all = append(all, word())
		}
		return all
	}
	raw := func() kruntime.RawExtension {
		return kruntime.RawExtension{Raw: one(random, nil, []byte("null"), []byte(`{}`), encoded(words()), encoded(map[string]any{word(): word(), "n": random.NormFloat64()}))}
	}
	req := &admissionv1.AdmissionRequest{
		UID:         types.UID(fmt.Sprint(random.Uint64())),
		Kind:        metav1.GroupVersionKind{Group: word(), Version: word(), Kind: word()},
		Resource:    metav1.GroupVersionResource{Group: word(), Version: word(), Resource: word()},
		SubResource: word(), RequestSubResource: word(), Name: word(), Namespace: word(),
		Operation: one(random, admissionv1.Create, admissionv1.Update, admissionv1.Delete, admissionv1.Connect),
		UserInfo:  authenticationv1.UserInfo{Username: word(), UID: word(), Groups: words()},
		Object:    raw(), OldObject: raw(), Options: raw(),
	}
	if random.IntN(2) == 0 {
		req.RequestKind, req.RequestResource = &req.Kind, &metav1.GroupVersionResource{Resource: word()}
		req.DryRun = new(random.IntN(2) == 0)
		req.UserInfo.Extra = map[string]authenticationv1.ExtraValue{word(): words(), word(): words()}
	}
	return req
}
