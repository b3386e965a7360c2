package record_test

import (
	"encoding/base64"
	"encoding/json"
	"strings"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"gomodules.xyz/jsonpatch/v2"
	jsonpatchv4 "gopkg.in/evanphx/json-patch.v4"

	"code.cloudfoundry.org/eirinix/internal/record"
)

// marker is a secret that must not reach the disk.
const marker = "m4rk3r-hunter2"

var inBase64 = base64.StdEncoding.EncodeToString([]byte(marker))

// leaks reports whether a text holds the marker: plain, in base64, or inside of other base64 or JSON.
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

var _ = Describe("A secret", func() {
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
		Expect(string(got.Review.Request.Object.Raw)).To(MatchJSON(want))
		Expect(string(got.Review.Request.OldObject.Raw)).To(MatchJSON(want))
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
		Expect(text).To(beTheRequestOf(body))
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
		Entry("annotations of other tools", secretReview(`{"metadata":{"annotations":{"kapp.k14s.io/original":"{\"data\":\"`+marker+`\"}","kopf.zalando.org/last-handled-configuration":"{\"x\":\"`+marker+`\"}","objectset.rio.cattle.io/applied":"`+packed(marker)+`","Example.com/Last-Applied":"x:\n  `+marker+`"}}}`)),
		Entry("the annotation, escaped", secretReview(`{"metadata":{"annotations":{"kubectl.kubernetes.io\/l\u0061st-applied-configuration":"[\"`+marker+`\"]"}}}`)),
		Entry("a list of Secrets", review(`{"kind":"List","items":[`+pod+`,`+secret+`,`+secret+`]}`)),
		Entry("a SecretList whose items say nothing", review(`{"kind":"SecretList","items":[`+bare+`]}`)),
		Entry("a Secret in a template", review(`{"kind":"Template","objects":[{"kind":"Pod"},{"spec":{"inner":`+secret+`}}]}`)),
		Entry("a Secret in an unknown member", review(pod, `"third":`+secret)),
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
	)

	It("reaches no file in a member of the review that is not known, which goes", func() {
		w := newWorld(allow)
		w.allowed(strings.TrimSuffix(review(pod), "}") + `,"third":` + secret + `,"Request":{"kind":{"kind":"Secret"},"object":` + bare + `}}`)
		Expect(leaks(w.only())).To(BeFalse())
	})

	It("keeps its shape, so that it can be decoded", func() {
		w := newWorld(allow)
		w.allowed(review(`{"apiVersion":"vault.example.com/v1","kind":"Secret","metadata":{"name":"a"},"spec":{"path":"kv/` + marker + `","pin":1234,"on":true,"list":["x",null]}}`))
		Expect(string(w.read()[0].Review.Request.Object.Raw)).To(MatchJSON(
			`{"apiVersion":"vault.example.com/v1","kind":"Secret","metadata":{"name":"a"},"spec":{"path":"redacted","pin":0,"on":true,"list":["redacted",null]}}`))
	})

	DescribeTable("stays where it is none of our business:", func(body string) {
		w := newWorld(allow)
		w.allowed(body)
		Expect(w.only()).To(beTheRequestOf(body))
		Expect(w.read()[0].Redacted).To(BeEmpty())
	},
		Entry("the annotation of another kind", review(`{"kind":"Pod","metadata":{"annotations":{`+lastApplied+`}}}`)),
		Entry("data of another kind", review(`{"kind":"ConfigMap","data":{"a":"`+marker+`"},"stringData":{"a":"b"}}`)),
		Entry("a reference to a Secret", review(`{"kind":"Pod","metadata":{"annotations":{"a":"{}"}},"spec":{"ref":{"kind":"Secret","name":"db","valuesKey":"a","optional":true},"volumes":[{"secret":{"secretName":"db"}}]}}`)),
		Entry("who asked", strings.ReplaceAll(review(pod), `"username":"alice"`, `"username":"alice","extra":{"authentication.kubernetes.io/credential-id":["JTI=7"],"authentication.kubernetes.io/pod-name":["p"]}`)),
		Entry("who asks for a certificate", review(`{"kind":"CertificateSigningRequest","metadata":{"annotations":{`+lastApplied+`}},"spec":{"extra":{"authentication.kubernetes.io/credential-id":["JTI=7"]}}}`)),
		Entry("labels of a Secret that are called data", secretReview(`{"metadata":{"labels":{"data":"x","stringData":"y"}},"type":"Opaque"}`)),
		Entry("null", secretReview(`{"data":null,"stringData":null}`)),
	)

	const copied = "/metadata/annotations/kubectl.kubernetes.io~1last-applied-configuration"
	DescribeTable("reaches no file in a patch, which makes of the recorded object the recorded result:", checkPatch,
		Entry("a value", secretReview(secret), op("add", "/data/x", inBase64)),
		Entry("values in plain text", secretReview(secret), op("replace", "/stringData/user", marker+"x")),
		Entry("all values", secretReview(secret), op("replace", "/data", map[string]any{"x": inBase64})),
		Entry("a test", secretReview(secret), op("test", "/data/password", inBase64), op("add", "/data/x", "YQ==")),
		Entry("a path with escapes", secretReview(secret), op("add", "/data/a~1b", inBase64)),
		Entry("a member in another case", secretReview(secret), op("add", "/DATA", map[string]any{"a": inBase64})),
		Entry("a path that begins with anything", secretReview(secret), op("add", "x/data/y", inBase64)),
		Entry("the whole object", secretReview(secret),
			op("replace", "", map[string]any{"data": map[string]any{"x": inBase64}, "metadata": map[string]any{"annotations": map[string]any{"a": "b", copiedName: `{"x":"` + marker + `"}`}}})),
		Entry("all annotations", secretReview(secret), op("replace", "/metadata/annotations", map[string]any{"a": "b", copiedName: `{"x":"` + marker + `"}`})),
		Entry("all metadata", secretReview(secret), op("replace", "/metadata", map[string]any{"annotations": map[string]any{copiedName: `["` + marker + `"]`}})),
		Entry("the annotation, which is gone", secretReview(secret),
			op("replace", copied, `{"x":"`+marker+`"}`), op("add", "/metadata/labels", map[string]any{"a": "b"}), op("remove", copied, nil)),
		Entry("of a Secret that only says so itself", review(secret), op("add", "/data/x", inBase64)),
		Entry("of a Secret in a list", review(`{"kind":"List","items":[`+secret+`]}`), op("add", "/items/0/data/x", inBase64)),
		Entry("a new Secret in an object that is none", review(`{"kind":"Template","objects":[]}`), op("add", "/objects/-", map[string]any{"kind": "Secret", "data": map[string]any{"x": inBase64}})),
		Entry("a Secret that comes and goes", review(`{"kind":"Template","objects":[]}`), op("add", "/objects/-", map[string]any{"kind": "Secret", "data": map[string]any{"x": inBase64}}),
			op("remove", "/objects/0", nil)),
		Entry("an object that becomes a Secret", review(`{"data":{"a":"`+inBase64+`"}}`), op("add", "/kind", "Secret")),
		Entry("an annotation of another tool", secretReview(secret), op("add", "/metadata/annotations/kapp.k14s.io~1original", `{"x":"`+marker+`"}`)),
		Entry("credentials of a user", review(`{"kind":"SubjectAccessReview","spec":{"extra":{}}}`), op("add", "/spec/extra/token", []any{marker})),
		Entry("a token", review(`{"kind":"TokenRequest","status":{"token":"t"}}`), op("add", "/status/token", marker), op("add", "/spec", map[string]any{"token": marker})),
	)

	It("is not looked for in an empty patch", func() {
		for _, patch := range []string{"", "bnVsbA==", "W10="} {
			w := newWorld(allow, redacting(func(map[string]any) {}))
			ask(answering(w, answerWith(patch)), secretReview(secret))
			Expect(w.read()).To(HaveLen(1))
		}
	})

	DescribeTable("is not looked for in a malformed patch of an object that is no Secret:", func(patch string) {
		w := newWorld(allow)
		ask(answering(w, answerWith(base64.StdEncoding.EncodeToString([]byte(patch)))), review(pod))
		Expect(string(w.read()[0].Review.Response.Patch)).To(Equal(patch))
	},
		Entry("no JSON", `[{"op":`),
		Entry("no list", `{"op":"add"}`),
		Entry("no operations", `["op",1]`),
	)

	DescribeTable("keeps a call unwritten when it cannot be found for sure:", func(answer string) {
		w := newWorld(allow)
		ask(answering(w, answer), secretReview(secret))
		w.close()
		Expect(w.files()).To(BeEmpty())
		Expect(w.counted()).To(Equal(record.Counts{Failed: 1}))
		Expect(w.logs.all()).To(ConsistOf(And(ContainSubstring("the patch of the response"), ContainSubstring(w.dir))))
	},
		Entry("a patch that is no JSON", answerWith(base64.StdEncoding.EncodeToString([]byte(`[{"op":`)))),
		Entry("a patch that is no list", answerWith(base64.StdEncoding.EncodeToString([]byte(`{"data":"`+marker+`"}`)))),
		Entry("a patch of no operations", answerWith(base64.StdEncoding.EncodeToString([]byte(`["`+marker+`"]`)))),
		Entry("a patch that does not apply", answerWith(base64.StdEncoding.EncodeToString([]byte(`[{"op":"replace","path":"/nowhere/x","value":"`+marker+`"}]`)))),
	)
})

// checkPatch records a call with a patch. Nothing secret may be left in it. The recorded patch, applied to the recorded
// object, must give the same as the redaction of the real result.
func checkPatch(body string, operations ...jsonpatch.Operation) {
	GinkgoHelper()
	patch, err := json.Marshal(operations)
	Expect(err).NotTo(HaveOccurred())
	w := newWorld(allow)
	ask(answering(w, answerWith(base64.StdEncoding.EncodeToString(patch))), body)
	text := w.only()
	Expect(leaks(text)).To(BeFalse(), text)
	got := w.read()[0]
	Expect(got.Redacted).To(ContainElement("response.patch (made anew)"))

	object := members(body)["request"].(map[string]any)["object"]
	raw, err := json.Marshal(object)
	Expect(err).NotTo(HaveOccurred())
	request := members(body)
	request["request"].(map[string]any)["oldObject"] = object
	request["request"].(map[string]any)["object"] = json.RawMessage(applied(string(patch), string(raw)))
	body2, err := json.Marshal(request)
	Expect(err).NotTo(HaveOccurred())
	result := newWorld(allow)
	result.allowed(string(body2))
	want := result.read()[0].Review.Request.Object.Raw
	Expect(applied(string(got.Review.Response.Patch), string(got.Review.Request.Object.Raw))).To(MatchJSON(want))
}

// applied is the object after a patch.
func applied(operations, object string) string {
	GinkgoHelper()
	patch, err := jsonpatchv4.DecodePatch([]byte(operations))
	Expect(err).NotTo(HaveOccurred())
	made, err := patch.Apply([]byte(object))
	Expect(err).NotTo(HaveOccurred())
	return string(made)
}

const copiedName = "kubectl.kubernetes.io/last-applied-configuration"

// bare is a Secret that does not say so.
var bare = `{"metadata":{"name":"db"},"data":{"password":"` + inBase64 + `"}}`

func op(operation, path string, value any) jsonpatch.Operation {
	return jsonpatch.NewOperation(operation, path, value)
}

func answerWith(patch string) string {
	return `{"apiVersion":"admission.k8s.io/v1","kind":"AdmissionReview","response":{"uid":"` + uid + `","allowed":true,"patchType":"JSONPatch","patch":"` + patch + `"}}`
}
