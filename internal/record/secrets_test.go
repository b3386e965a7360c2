package record_test

import (
	"encoding/base64"
	"encoding/json"
	"strings"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"gomodules.xyz/jsonpatch/v2"

	"code.cloudfoundry.org/eirinix/internal/record"
)

// marker stands in for what must not reach the disk.
const marker = "m4rk3r-hunter2"

var inBase64 = base64.StdEncoding.EncodeToString([]byte(marker))

// leaks tells whether a text holds the marker: plain, in base64, or inside of what is in base64 or JSON itself.
func leaks(text string) bool {
	if strings.Contains(text, marker) || strings.Contains(text, inBase64) {
		return true
	}
	var v any
	if json.Unmarshal([]byte(text), &v) == nil {
		return leaksIn(v)
	}
	plain, err := base64.StdEncoding.DecodeString(text)
	return err == nil && len(plain) > 0 && leaks(string(plain))
}

func leaksIn(v any) bool {
	switch v := v.(type) {
	case string:
		return leaks(v)
	case []any:
		for _, e := range v {
			if leaksIn(e) {
				return true
			}
		}
	case map[string]any:
		for k, e := range v {
			if leaks(k) || leaksIn(e) {
				return true
			}
		}
	}
	return false
}

// secretReview is a review about a Secret, as the API server sends it.
func secretReview(object string, more ...string) string {
	return strings.NewReplacer(`"kind":"Pod"`, `"kind":"Secret"`, `"resource":"pods"`, `"resource":"secrets"`).Replace(review(object, more...))
}

const lastApplied = `"kubectl.kubernetes.io/last-applied-configuration":"{\"data\":{\"password\":\"m4rk3r-hunter2\"}}"`

// extra is added to a user by authentication; this one holds a credential.
const extra = `"extra":{"example.com/access-token":["` + marker + `"],"a":["b"]}`

var secret = `{"apiVersion":"v1","kind":"Secret","metadata":{"name":"db","annotations":{"a":"b",` + lastApplied + `,"c":"d"},` +
	`"managedFields":[{"fieldsV1":{"f:data":{"f:password":{}},"f:metadata":{"f:annotations":{"f:kubectl.kubernetes.io/last-applied-configuration":{}}}}}]},"type":"Opaque",` +
	`"data":{"password":"` + inBase64 + `","empty":"","null":null},"stringData":{"user":"` + marker + `"}}`

var _ = Describe("What is secret", func() {
	It("is taken out of Secrets, and nothing else is", func() {
		w := newWorld(allow)
		w.allowed(secretReview(secret, `"oldObject":`+secret))
		text := w.only()
		Expect(leaks(text)).To(BeFalse(), text)

		want := secret
		for old, by := range map[string]string{
			`"` + inBase64 + `"`: `"cmVkYWN0ZWQ="`, `"empty":""`: `"empty":"cmVkYWN0ZWQ="`, `"` + marker + `"`: `"redacted"`, "," + lastApplied: "",
		} {
			want = strings.ReplaceAll(want, old, by)
		}
		got := w.read()[0]
		Expect(string(got.Review.Request.Object.Raw)).To(Equal(want))
		Expect(string(got.Review.Request.OldObject.Raw)).To(Equal(want))
		Expect(got.Redacted).To(ConsistOf(
			"request.object.data", "request.object.stringData", `request.object.metadata.annotations["kubectl.kubernetes.io/last-applied-configuration"]`,
			"request.oldObject.data", "request.oldObject.stringData", `request.oldObject.metadata.annotations["kubectl.kubernetes.io/last-applied-configuration"]`,
		))
	})

	It("is kept on request", func() {
		embedded := map[string]any{"kind": "Secret", "data": map[string]any{"a": inBase64}}
		w := newWorld(patching(op("add", "/data/more", inBase64), op("add", "/more", embedded)), func(o *record.Options) { o.SecretData = true })
		body := secretReview(secret)
		w.allowed(body)
		text := w.only()
		Expect(text).To(HavePrefix(strings.TrimSuffix(body, "}")))
		Expect(strings.Count(string(w.read()[0].Review.Response.Patch), inBase64)).To(Equal(2))
	})

	// Each plants the marker somewhere.
	DescribeTable("reaches no file, however it is spelt:", func(body string) {
		Expect(leaks(body)).To(BeTrue(), "the marker must be there to begin with")
		w := newWorld(allow)
		w.allowed(body)
		text := w.only()
		Expect(leaks(text)).To(BeFalse(), text)
		Expect(w.read()[0].Redacted).NotTo(BeEmpty())
	},
		Entry("only the kind says so", strings.ReplaceAll(review(bare), `"version":"v1","kind":"Pod"`, `"version":"v1","kind":"Secret"`)),
		Entry("only the resource says so", strings.ReplaceAll(review(bare), `"resource":"pods"`, `"resource":"secrets"`)),
		Entry("only requestKind says so", review(bare, `"requestKind":{"group":"","version":"v1","kind":"Secret"}`)),
		Entry("only requestResource says so", review(bare, `"requestResource":{"group":"","version":"v1","resource":"secrets"}`)),
		Entry("only requestKind says so, behind the object", strings.TrimSuffix(review(bare), "}}")+`,"requestKind":{"kind":"Secret"}}}`),
		Entry("the kind comes twice", strings.Replace(review(bare), `"operation"`, `"kind":{"kind":"Secret"},"kind":{"kind":"Pod"},"operation"`, 1)),
		Entry("the request comes twice", strings.Replace(review(bare), `"request":`, `"request":{"kind":{"kind":"Secret"}},"request":`, 1)),
		Entry("only the object says so", review(strings.Replace(bare, "{", `{"kind":"Secret",`, 1))),
		Entry("only the object says so, at its end", review(strings.TrimSuffix(bare, "}")+`,"kind":"Secret"}`)),
		Entry("another apiVersion", review(strings.Replace(bare, "{", `{"kind":"Secret","apiVersion":"v2beta1",`, 1))),
		Entry("another case", review(strings.Replace(bare, "{", `{"KIND":"SECRET",`, 1))),
		Entry("escapes in the kind", review(strings.Replace(bare, "{", `{"k\u0069nd":"S\u0065cret",`, 1))),
		Entry("escapes in the members", secretReview(`{"d\u0061ta":{"a":"`+inBase64+`"},"string\u0044ata":{"a":"`+marker+`"}}`)),
		Entry("members in another case", secretReview(`{"DATA":{"a":"`+inBase64+`"},"stringdata":{"a":"`+marker+`"}}`)),
		Entry("a long s", secretReview(`{"ſtringData":{"a":"`+marker+`"}}`)),
		Entry("members twice", secretReview(`{"data":{"a":"`+inBase64+`","a":"`+inBase64+`"},"data":{"b":"`+inBase64+`"}}`)),
		Entry("data in plain text", secretReview(`{"data":{"a":"`+marker+`"}}`)),
		Entry("data that is no map", secretReview(`{"data":"`+marker+`","stringData":["`+marker+`"]}`)),
		Entry("values that are no text", secretReview(`{"data":{"a":{"b":["`+marker+`"]},"c":["`+marker+`"]}}`)),
		Entry("space", secretReview("{ \"data\" :\t{ \"a\" : \""+inBase64+"\" , \"b\":\n\""+marker+"\" } }")),
		Entry("quotes and backslashes before it", secretReview(`{"x":"\\","y":"\\\"","z\"":{"{":"}"},"data":{"a\\":"`+inBase64+`"}}`)),
		Entry("annotations alone", secretReview(`{"metadata":{"annotations":{`+lastApplied+`}}}`)),
		Entry("annotations in front", secretReview(`{"metadata":{"annotations":{`+lastApplied+`,`+lastApplied+`,"a":"b"}}}`)),
		Entry("annotations at the end", secretReview(`{"metadata":{"annotations":{"a":"b",`+lastApplied+` , `+lastApplied+`}}}`)),
		Entry("annotations between", secretReview(`{"metadata":{"annotations":{`+lastApplied+`,"a":"b",`+lastApplied+`,"c":"d",`+lastApplied+`}}}`)),
		Entry("annotations of other tools", secretReview(`{"metadata":{"annotations":{"kapp.k14s.io/original":"{\"data\":\"`+marker+`\"}","kopf.zalando.org/last-handled-configuration":"`+marker+`","objectset.rio.cattle.io/applied":"`+marker+`","Example.com/Last-Applied":"`+marker+`"}}}`)),
		Entry("the annotation, escaped", secretReview(`{"metadata":{"annotations":{"kubectl.kubernetes.io\/l\u0061st-applied-configuration":"`+marker+`"}}}`)),
		Entry("a list of Secrets", review(`{"kind":"List","items":[`+pod+`,`+secret+`,`+secret+`]}`)),
		Entry("a SecretList whose items say nothing", review(`{"kind":"SecretList","items":[`+bare+`]}`)),
		Entry("a Secret in a template", review(`{"kind":"Template","objects":[{"kind":"Pod"},{"spec":{"inner":`+secret+`}}]}`)),
		Entry("a Secret in a member that nobody knows", review(pod, `"third":`+secret)),
		Entry("a Secret beside the request", strings.TrimSuffix(review(pod), "}")+`,"third":`+secret+`}`),
		Entry("a request in another case", strings.TrimSuffix(review(pod), "}")+`,"Request":{"kind":{"kind":"Secret"},"object":`+bare+`}}`),
		Entry("a Secret in a Secret", secretReview(`{"metadata":{"x":`+secret+`},"y":`+secret+`}`)),
		Entry("deep down", review(strings.Repeat(`{"a":[`, 400)+secret+strings.Repeat(`]}`, 400))),
		Entry("a Secret of another group", review(`{"apiVersion":"vault.example.com/v1","kind":"Secret","data":{"a":"`+inBase64+`"}}`)),
		Entry("a token under review", review(`{"kind":"TokenReview","spec":{"token":"`+marker+`"}}`)),
		Entry("a token under review, by resource", strings.ReplaceAll(review(`{"spec":{"token":"`+marker+`"}}`), `"resource":"pods"`, `"resource":"tokenreviews"`)),
		Entry("a token that was requested", review(`{"kind":"TokenRequest","status":{"token":"`+marker+`"}}`)),
		Entry("a token that was requested, by subresource", review(`{"status":{"token":"`+marker+`"}}`, `"subResource":"token"`)),
		Entry("credentials of the user", strings.ReplaceAll(review(pod), `"username":"alice"`, `"username":"alice","extra":{"example.com/access-token":["`+marker+`","`+marker+`"],"x-Password":["`+marker+`"]}`)),
		Entry("credentials of a user whose access is reviewed", review(`{"kind":"SubjectAccessReview","spec":{`+extra+`}}`)),
		Entry("credentials of a user whose access is reviewed, by resource", strings.ReplaceAll(review(`{"spec":{`+extra+`}}`), `"resource":"pods"`, `"resource":"subjectaccessreviews"`)),
		Entry("credentials of a user whose access is reviewed in a namespace", review(`{"kind":"LocalSubjectAccessReview","spec":{`+extra+`}}`)),
		Entry("credentials of a user whose access is reviewed in a namespace, by resource", strings.ReplaceAll(review(`{"spec":{`+extra+`}}`), `"resource":"pods"`, `"resource":"localsubjectaccessreviews"`)),
		Entry("credentials of the user of a token", review(`{"kind":"TokenReview","status":{"user":{`+extra+`}}}`)),
		Entry("credentials of a user who asks for that", review(`{"kind":"SelfSubjectReview","status":{"userInfo":{`+extra+`}}}`)),
		Entry("credentials of a user who asks for that, by resource", strings.ReplaceAll(review(`{"status":{"userInfo":{`+extra+`}}}`), `"resource":"pods"`, `"resource":"selfsubjectreviews"`)),
		Entry("credentials of a user who asks for a certificate", review(`{"kind":"List","items":[{"kind":"CertificateSigningRequest","spec":{`+extra+`}}]}`)),
		Entry("credentials of a user who asks for a certificate, by resource", strings.ReplaceAll(review(`{"spec":{`+extra+`}}`), `"resource":"pods"`, `"resource":"certificatesigningrequests"`)),
		Entry("credentials of the user, in another shape", strings.ReplaceAll(review(pod), `"userInfo":{`, `"USERINFO":{"extra":{"token":"`+marker+`"}},"userInfo":{`)),
	)

	DescribeTable("stays where it is none of our business:", func(body string) {
		w := newWorld(allow)
		w.allowed(body)
		Expect(w.only()).To(HavePrefix(strings.TrimSuffix(body, "}")))
		Expect(w.read()[0].Redacted).To(BeEmpty())
	},
		Entry("the annotation of another kind", review(`{"kind":"Pod","metadata":{"annotations":{`+lastApplied+`}}}`)),
		Entry("data of another kind", review(`{"kind":"ConfigMap","data":{"a":"`+marker+`"},"stringData":{"a":"b"}}`)),
		Entry("a reference to a Secret", review(`{"kind":"Pod","spec":{"ref":{"kind":"Secret","name":"db"},"volumes":[{"secret":{"secretName":"db"}}]}}`)),
		Entry("who asked", strings.ReplaceAll(review(pod), `"username":"alice"`, `"username":"alice","extra":{"authentication.kubernetes.io/credential-id":["JTI=7"],"authentication.kubernetes.io/pod-name":["p"]}`)),
		Entry("who asks for a certificate", review(`{"kind":"CertificateSigningRequest","metadata":{"annotations":{`+lastApplied+`}},"spec":{"extra":{"authentication.kubernetes.io/credential-id":["JTI=7"]}}}`)),
		Entry("what is called extra elsewhere", review(`{"kind":"SubjectAccessReview","spec":{"inner":{`+extra+`}}}`)),
		Entry("labels of a Secret that are called data", secretReview(`{"metadata":{"labels":{"data":"x","stringData":"y"}},"type":"Opaque"}`)),
		Entry("null", secretReview(`{"data":null,"stringData":null}`)),
	)

	const copied = "/metadata/annotations/kubectl.kubernetes.io~1last-applied-configuration"
	DescribeTable("reaches no file in a patch:", func(body string, want string, operations ...jsonpatch.Operation) {
		patch, err := json.Marshal(operations)
		Expect(err).NotTo(HaveOccurred())
		w := newWorld(allow)
		ask(answering(w, answerWith(base64.StdEncoding.EncodeToString(patch))), body)
		text := w.only()
		Expect(leaks(text)).To(BeFalse(), text)
		got := w.read()[0]
		Expect(string(got.Review.Response.Patch)).To(MatchJSON(want))
		Expect(got.Redacted).To(ContainElement("response.patch"))
	},
		Entry("a value", secretReview(secret), `[{"op":"add","path":"/data/x","value":"cmVkYWN0ZWQ="}]`, op("add", "/data/x", inBase64)),
		Entry("values in plain text", secretReview(secret), `[{"op":"replace","path":"/stringData/x","value":"redacted"}]`, op("replace", "/stringData/x", marker)),
		Entry("all values", secretReview(secret), `[{"op":"replace","path":"/data","value":{"x":"cmVkYWN0ZWQ="}}]`, op("replace", "/data", map[string]any{"x": inBase64})),
		Entry("a test", secretReview(secret), `[{"op":"test","path":"/data/x","value":"cmVkYWN0ZWQ="}]`, op("test", "/data/x", inBase64)),
		Entry("a path with escapes", secretReview(secret), `[{"op":"add","path":"/data/a~1b","value":"cmVkYWN0ZWQ="}]`, op("add", "/data/a~1b", inBase64)),
		Entry("a path in another case", secretReview(secret), `[{"op":"add","path":"/DATA/x","value":"cmVkYWN0ZWQ="}]`, op("add", "/DATA/x", inBase64)),
		Entry("a path that begins with anything", secretReview(secret), `[{"op":"add","path":"x/data/y","value":"cmVkYWN0ZWQ="}]`, op("add", "x/data/y", inBase64)),
		Entry("deeper than there is anything", secretReview(secret), `[{"op":"add","path":"/data/x/y/-","value":"cmVkYWN0ZWQ="}]`, op("add", "/data/x/y/-", []any{marker})),
		Entry("the whole object", secretReview(secret), `[{"op":"replace","path":"","value":{"data":{"x":"cmVkYWN0ZWQ="},"metadata":{"annotations":{"a":"b"}}}}]`,
			op("replace", "", map[string]any{"data": map[string]any{"x": inBase64}, "metadata": map[string]any{"annotations": map[string]any{"a": "b", copiedName: marker}}})),
		Entry("all annotations", secretReview(secret), `[{"op":"replace","path":"/metadata/annotations","value":{"a":"b"}}]`,
			op("replace", "/metadata/annotations", map[string]any{"a": "b", copiedName: marker})),
		Entry("all metadata", secretReview(secret), `[{"op":"replace","path":"/metadata","value":{"annotations":{}}}]`,
			op("replace", "/metadata", map[string]any{"annotations": map[string]any{copiedName: marker}})),
		Entry("the annotation, which is gone", secretReview(secret), `[{"op":"add","path":"/a","value":1},{"op":"add","path":"/b","value":2}]`,
			op("replace", copied, marker), op("add", "/a", 1), op("remove", copied, nil), op("add", "/b", 2), op("test", copied, marker)),
		Entry("of a Secret that only says so itself", review(secret), `[{"op":"add","path":"/data/x","value":"cmVkYWN0ZWQ="}]`, op("add", "/data/x", inBase64)),
		Entry("of a Secret in a list", review(`{"kind":"List","items":[`+secret+`]}`), `[{"op":"add","path":"/items/0/data/x","value":"cmVkYWN0ZWQ="}]`, op("add", "/items/0/data/x", inBase64)),
		Entry("a new Secret in what is none", review(`{"kind":"Template","objects":[]}`), `[{"op":"add","path":"/objects/-","value":{"data":{"x":"cmVkYWN0ZWQ="},"kind":"Secret"}}]`,
			op("add", "/objects/-", map[string]any{"kind": "Secret", "data": map[string]any{"x": inBase64}})),
		Entry("an annotation of another tool", secretReview(secret), `[]`, op("add", "/metadata/annotations/kapp.k14s.io~1original", marker)),
		Entry("a token on a path that begins with anything", review(`{"kind":"TokenRequest"}`), `[{"op":"add","path":"x/status/token","value":"redacted"}]`, op("add", "x/status/token", marker)),
		Entry("credentials of a user", review(`{"kind":"SubjectAccessReview"}`), `[{"op":"add","path":"/spec/extra/token","value":["redacted"]}]`, op("add", "/spec/extra/token", []any{marker})),
		Entry("a token", review(`{"kind":"TokenRequest","status":{"token":"t"}}`), `[{"op":"add","path":"/status/token","value":"redacted"},{"op":"add","path":"/spec","value":{"token":"redacted"}}]`,
			op("add", "/status/token", marker), op("add", "/spec", map[string]any{"token": marker})),
	)

	It("is not looked for in an empty patch", func() {
		for _, patch := range []string{"", "bnVsbA==", "W10="} {
			w := newWorld(allow, redacting(func(map[string]any) {}))
			ask(answering(w, answerWith(patch)), secretReview(secret))
			Expect(w.read()).To(HaveLen(1))
		}
	})

	DescribeTable("is not looked for in what is no patch, of what is no Secret:", func(patch string) {
		w := newWorld(allow)
		ask(answering(w, answerWith(base64.StdEncoding.EncodeToString([]byte(patch)))), review(pod))
		Expect(string(w.read()[0].Review.Response.Patch)).To(Equal(patch))
	},
		Entry("no JSON", `[{"op":`),
		Entry("no list", `{"op":"add"}`),
		Entry("no operations", `["op",1]`),
	)

	It("does not spoil what else a patch of a Secret says", func() {
		want := `[{"op":"add","path":"/metadata/labels","value":{"data":"x"}},{"op":"copy","path":"/metadata/name","from":"/data/a"},{"op":"remove","path":"/data/x"}]`
		w := newWorld(allow)
		ask(answering(w, answerWith(base64.StdEncoding.EncodeToString([]byte(want)))), secretReview(secret))
		Expect(string(w.read()[0].Review.Response.Patch)).To(Equal(want))
	})

	DescribeTable("keeps a call unwritten when it cannot be found for sure:", func(answer string) {
		w := newWorld(allow)
		ask(answering(w, answer), secretReview(secret))
		w.close()
		Expect(w.files()).To(BeEmpty())
		Expect(w.counted()).To(Equal(map[string]int{record.Failed: 1}))
		Expect(w.logs.all()).To(ConsistOf(And(ContainSubstring("the patch of the response"), ContainSubstring(w.dir))))
	},
		Entry("a patch that is no JSON", answerWith(base64.StdEncoding.EncodeToString([]byte(`[{"op":`)))),
		Entry("a patch that is no list", answerWith(base64.StdEncoding.EncodeToString([]byte(`{"data":"`+marker+`"}`)))),
		Entry("a patch of no operations", answerWith(base64.StdEncoding.EncodeToString([]byte(`["`+marker+`"]`)))),
	)
})

const copiedName = "kubectl.kubernetes.io/last-applied-configuration"

// bare is a Secret that does not say so.
var bare = `{"metadata":{"name":"db"},"data":{"password":"` + inBase64 + `"}}`

func op(operation, path string, value any) jsonpatch.Operation {
	return jsonpatch.NewOperation(operation, path, value)
}

func answerWith(patch string) string {
	return `{"apiVersion":"admission.k8s.io/v1","kind":"AdmissionReview","response":{"uid":"` + uid + `","allowed":true,"patchType":"JSONPatch","patch":"` + patch + `"}}`
}
