package admit

// This file specifies that a review is cut from its text as the decoder would read it, and costs as little as its text allows.

import (
	"bytes"
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
	"sigs.k8s.io/randfill"
)

func encoded(v any) []byte {
	text, err := json.Marshal(v)
	if err != nil {
		panic(err)
	}
	return text
}

// arrivedPod is a pod with this many containers.
func arrivedPod(containers int) []byte {
	const container = `{"name":"app","image":"registry.example.org/images/app:1.2.3","env":[{"name":"A","value":"http://example.org/?some=value&of=length"}]},`
	return encoded(json.RawMessage(`{"kind":"Pod","metadata":{"name":"app"},"spec":{"containers":[` + strings.Repeat(container, containers) + `{"name":"b"}]}}`))
}

// arrivedRequest is the request to create an object, as kube-apiserver sends it.
func arrivedRequest(raw []byte) *admissionv1.AdmissionRequest {
	kind, resource := metav1.GroupVersionKind{Version: "v1", Kind: "Pod"}, metav1.GroupVersionResource{Version: "v1", Resource: "pods"}
	return &admissionv1.AdmissionRequest{
		UID: "705ab4f5-6393-11e8-b7cc-42010a800002", Name: "app-7d4b9c6f8-x2x5k", Namespace: "cf-workloads", Operation: admissionv1.Create,
		Kind: kind, Resource: resource, RequestKind: &kind, RequestResource: &resource,
		UserInfo: authenticationv1.UserInfo{
			Username: "system:serviceaccount:kube-system:replicaset-controller", UID: "a1b2c3d4-0000-4000-8000-0123456789ab",
			Groups: []string{"system:serviceaccounts", "system:serviceaccounts:kube-system", "system:authenticated"},
			Extra:  map[string]authenticationv1.ExtraValue{"authentication.kubernetes.io/credential-id": {"JTI=2c1f7f4e-0000-4000-8000-0123456789ab"}},
		},
		Object: kruntime.RawExtension{Raw: raw}, DryRun: new(bool),
		Options: kruntime.RawExtension{Raw: []byte(`{"kind":"CreateOptions","apiVersion":"meta.k8s.io/v1"}`)},
	}
}

func arrivedReview(containers int) []byte {
	return encoded(map[string]any{"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": arrivedRequest(arrivedPod(containers))})
}

// spelt is a review with some changes of its text.
func spelt(changes ...string) string {
	return strings.NewReplacer(changes...).Replace(string(arrivedReview(1)))
}

var _ = Describe("A review", func() {
	It("is cut without decoding its content", func() {
		body := arrivedReview(3)
		rev := scanReview(body)
		Expect(rev).NotTo(BeNil())
		Expect(rev.request.UserInfo.Username).To(BeEmpty(), "who asks is for later")
		rev.parseUser()
		Expect(rev.typeMeta).To(Equal(metav1.TypeMeta{Kind: "AdmissionReview", APIVersion: "admission.k8s.io/v1"}))
		Expect(rev.request).To(Equal(*arrivedRequest(arrivedPod(3))))
		Expect(&rev.request.Object.Raw[0]).To(BeIdenticalTo(&body[strings.Index(string(body), `"object":`)+len(`"object":`)]), "no copy")
		Expect(rev.request.OldObject.Raw).To(BeNil())
	})

	It("costs a handful of allocations, however large the object is", func() {
		small, large := arrivedReview(1), arrivedReview(1000)
		allocations := func(body []byte) int { return int(testing.AllocsPerRun(20, func() { scanReview(body) })) }
		Expect(allocations(small)).To(BeNumerically("<=", 6))
		Expect(allocations(large)).To(Equal(allocations(small)))
	})

	DescribeTable("costs no more memory, and a small stack, for an object that nests deep:", func(times int, opening, closing string) {
		flat, deep := spelt(), spelt(`"object":{`, `"object":`+strings.Repeat(opening, times)+"1"+strings.Repeat(closing, times)+`,"x":{`)
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
		Entry("v1", spelt(), true, true),
		Entry("v1beta1", spelt("admission.k8s.io/v1", "admission.k8s.io/v1beta1"), true, true),
		Entry("space around and between", " \r\n\t"+spelt(`,"`, "\t,\r\n \"", `":{`, "\" : { ")+"\n", true, true),
		Entry("unknown members", spelt(`"uid"`, `"id":[1,{"uid":null}],"uid"`), true, true),
		Entry("a member that only differs in case", spelt(`"uid"`, `"UID"`), false, false),
		Entry("null for all that may be absent", spelt(`"dryRun":false`, `"dryRun":null,"subResource":null,"requestSubResource":null`, `"groups":[`, `"groups":null,"x":[`), true, true),
		Entry("null for extra", spelt(`"extra":{`, `"extra":null,"x":{`), true, true),
		Entry("nothing in lists", spelt(`"groups":[`, `"groups":[],"x":[`, `"extra":{`, `"extra":{},"y":{`), true, true),
		Entry("no object", spelt(`"object":{`, `"x":{`), true, true),
		Entry("an object that is no object", spelt(`"object":{`, `"object":-0.5e+10,"x":{`), true, true),
		Entry("a member twice", spelt(`"operation":"CREATE"`, `"operation":"DELETE","operation":"CREATE"`), false, true),
		Entry("an object twice", spelt(`"object":{`, `"object":{"a":1},"object":{`), false, true),
		Entry("a request twice", spelt(`"request":{`, `"request":{"name":"x"},"request":{`), false, true),
		Entry("a group of extra twice", spelt(`"extra":{`, `"extra":{"a":["b"],"a":["c"],`), false, true),
		Entry("an escape", spelt("cf-workloads", `cf\u002dworkloads`), true, true),
		Entry("bytes that are no text", spelt("cf-workloads", "\xff"), true, true),
		Entry("a number for a name", spelt(`"name":"app-7d4b9c6f8-x2x5k","namespace"`, `"name":1,"namespace"`), false, false),
		Entry("a word for true", spelt(`"dryRun":false`, `"dryRun":"false"`), false, false),
		Entry("deeper than the scanner goes", spelt(`"object":{`, `"object":`+strings.Repeat("[", 9991)+"1"+strings.Repeat("]", 9991)+`,"x":{`), false, true),
		Entry("as deep as the scanner goes", spelt(`"object":{`, `"object":`+strings.Repeat("[", 9990)+"1"+strings.Repeat("]", 9990)+`,"x":{`), true, true),
		Entry("deeper than the decoder goes", spelt(`"object":{`, `"object":`+strings.Repeat("[", 10001)+strings.Repeat("]", 10001)+`,"x":{`), false, false),
		Entry("something behind it", spelt()+"x", false, false),
		Entry("a byte order mark", "\ufeff"+spelt(), false, false),
	)

	It("is never cut from a part of a review", func() {
		body := string(arrivedReview(1))
		for i := range body {
			Expect(scanReview([]byte(body[:i]))).To(BeNil(), "%d bytes", i)
		}
	})

	It("is never cut from a text that a changed byte has made malformed", func() {
		body := arrivedReview(1)
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
		for range 500 {
			body := encoded(map[string]any{"apiVersion": "admission.k8s.io/" + one(random, "v1", "v1beta1"), "kind": "AdmissionReview", "request": anyRequest(random)})
			sameAsDecoded(GinkgoTB(), body)
			if scanReview(body) != nil {
				cut++
			}
		}
		Expect(cut).To(BeNumerically(">", 100), "the others have escapes")
	})
})

func one[T any](random *rand.Rand, values ...T) T { return values[random.IntN(len(values))] }

// anyRequest fills every member of a request, or leaves it out, with values that JSON can spell in several ways.
func anyRequest(random *rand.Rand) *admissionv1.AdmissionRequest {
	words := []string{"", "pods", "v1", "a-b.c", "日本", strings.Repeat("long", random.IntN(300))}
	if random.IntN(2) == 0 {
		words = append(words, "a<b", "\u2028", "\"", "\x00")
	}
	req := &admissionv1.AdmissionRequest{}
	randfill.NewWithSeed(random.Int64()).NumElements(0, 3).Funcs(
		func(text *string, _ randfill.Continue) { *text = one(random, words...) },
		func(id *types.UID, _ randfill.Continue) { *id = types.UID(fmt.Sprint(random.Uint64())) },
		func(operation *admissionv1.Operation, _ randfill.Continue) {
			*operation = one(random, admissionv1.Create, admissionv1.Update, admissionv1.Delete, admissionv1.Connect)
		},
		func(raw *kruntime.RawExtension, _ randfill.Continue) {
			raw.Raw = one(random, nil, []byte("null"), []byte(`{}`), encoded(words), encoded(map[string]any{one(random, words...): random.NormFloat64()}))
		},
	).Fill(req)
	return req
}

// sameAsDecoded fails the test when the cut and the decoder differ on the body.
func sameAsDecoded(t testing.TB, body []byte) {
	t.Helper()
	before := bytes.Clone(body)
	want, refused := decodeReview(body)
	cut := scanReview(body)
	got, err := parseReview(body)
	if got != nil {
		got.parseUser()
	}
	switch {
	case refused != nil && cut != nil:
		t.Fatalf("accepted %q, which the decoder refuses: %v", body, refused)
	case refused != nil && (err == nil || err.Error() != refused.Error()):
		t.Fatalf("%q: %v rather than %v", body, err, refused)
	case refused != nil:
		return
	case err != nil:
		t.Fatalf("%q: %v", body, err)
	case got.typeMeta != want.typeMeta || !reflect.DeepEqual(got.request, want.request):
		t.Fatalf("%q: %+v rather than %+v", body, got.request, want.request)
	}
	for _, raw := range [][]byte{got.request.Object.Raw, got.request.OldObject.Raw, got.request.Options.Raw} {
		_ = append(raw, "overwritten"...)
	}
	if !bytes.Equal(body, before) {
		t.Fatalf("%q was changed into %q", before, body)
	}
}

// FuzzReview holds the cut against the decoder: the same refusals in the same words, the same values, and
// never a byte of the body changed.
func FuzzReview(f *testing.F) {
	review, request := spelt(), `{"apiVersion":"admission.k8s.io/v1","kind":"AdmissionReview","request":{"uid":"u","operation":"CREATE",%s}}`
	for _, seed := range []string{
		review, review[:len(review)/2], "", "null", "[]", `"x"`, "\xff", "\x00",
		spelt(`"request"`, `"\u0072equest"`), spelt(`"uid"`, "\"\xff\":1,\"uid\""), spelt(`705ab4f5`, "\xff\\ud800é"),
		spelt(`"object":`, `"object":null,"object":`), spelt(`"object":`, "\"object\" :\t[ tru ]\n,\"x\":"),
		spelt(`"groups":[`, `"groups":[null,`), spelt(`"extra":{`, `"extra":{"a":[1],`), spelt(`"userInfo":{`, `"userInfo":{"groups":"all",`),
		spelt(`"extra":{`, `"extra":{"a":[],"b":["x"],"c":[],"d":[],"e":[],"f":[],"g":[],"h":[],"i":[],`),
		fmt.Sprintf(request, `"userInfo":null,"kind":null,"requestKind":{},"requestResource":null,"namespace":null`),
		fmt.Sprintf(request, `"userInfo":{"groups":[],"extra":{}},"kind":{"Kind":1,"kind":2}`),
	} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, body []byte) { sameAsDecoded(t, body) })
}
