package record_test

// Secrets and tokens stay out of recordings: those in objects, in copies of objects in annotations, in patches, and those
// that only the program's hook knows. A value that was taken out does not stay elsewhere in the call, in any usual
// spelling. Names, and texts that only look like a value, stay.

import (
	"bytes"
	"compress/gzip"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"maps"
	"math/rand/v2"
	"net/url"
	"slices"
	"strings"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"gomodules.xyz/jsonpatch/v2"
	jsonpatchv4 "gopkg.in/evanphx/json-patch.v4"

	"code.cloudfoundry.org/eirinix/internal/record"
	. "code.cloudfoundry.org/eirinix/internal/spectest"
)

const (
	marker      = "m4rk3r-hunter2" // a secret that must not reach the disk
	copiedName  = "kubectl.kubernetes.io/last-applied-configuration"
	atCopy      = "/metadata/annotations/kubectl.kubernetes.io~1last-applied-configuration"
	lastApplied = `"` + copiedName + `":"{\"data\":{\"password\":\"` + marker + `\"}}"`
	embedded    = `{"apiVersion":"v1","kind":"Secret","metadata":{"name":"db"},"stringData":{"password":"` + marker + `"}}`
	configMap   = `{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"web"}}`
)

var (
	inBase64 = encoded(marker)
	bare     = `{"metadata":{"name":"db"},"data":{"password":"` + inBase64 + `"}}` // a Secret that does not say so
	secret   = `{"apiVersion":"v1","kind":"Secret","metadata":{"name":"db","annotations":{"a":"b",` + lastApplied + `,"c":"d"},` +
		`"managedFields":[{"fieldsV1":{"f:data":{"f:password":{}}}}]},"type":"Opaque",` +
		`"data":{"password":"` + inBase64 + `","empty":"","null":null},"stringData":{"user":"` + marker + `"}}`
)

func encoded(text string) string { return base64.StdEncoding.EncodeToString([]byte(text)) }

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

// quoted is a text as a string of JSON.
func quoted(text string) string {
	GinkgoHelper()
	return string(Must(json.Marshal(text)))
}

func packed(text string) string {
	GinkgoHelper()
	var b bytes.Buffer
	z := gzip.NewWriter(&b)
	Must(z.Write([]byte(text)))
	Expect(z.Close()).To(Succeed())
	return base64.RawStdEncoding.EncodeToString(b.Bytes())
}

// secretReview is a review about a Secret, as the API server sends it.
func secretReview(object string, more ...string) string {
	return strings.NewReplacer(`"kind":"Pod"`, `"kind":"Secret"`, `"resource":"pods"`, `"resource":"secrets"`).Replace(review(object, more...))
}

// userWith is a review of a pod whose user has these members, too.
func userWith(members string) string {
	return strings.ReplaceAll(review(pod), `"username":"alice"`, `"username":"alice",`+members)
}

// workOf is a ManifestWork, which has another object in it, with the annotation "a" and more.
func workOf(manifest string, annotations ...string) string {
	return `{"apiVersion":"work.open-cluster-management.io/v1","kind":"ManifestWork","metadata":{"name":"web","annotations":{` +
		strings.Join(append([]string{`"a":"b"`}, annotations...), ",") + `}},"spec":{"workload":{"manifests":[` + manifest + `]}}}`
}

// annotated is an annotation with a text.
func annotated(name, text string) string { return quoted(name) + ":" + quoted(text) }

func op(operation, path string, value any) jsonpatch.Operation {
	return jsonpatch.NewOperation(operation, path, value)
}

// answerSaying is an answer with the members in its response, whose patch consists of the operations.
func answerSaying(members string, operations ...jsonpatch.Operation) string {
	GinkgoHelper()
	patch := Must(json.Marshal(operations))
	return strings.Replace(answerWith(encoded(string(patch))), `"allowed":true`, `"allowed":true`+members, 1)
}

// applied is the object after a patch.
func applied(operations, object []byte) []byte {
	GinkgoHelper()
	return Must(Must(jsonpatchv4.DecodePatch(operations)).Apply(object))
}

// clean records a call, and expects that nothing of the marker is left.
func clean(body, answer string) recording {
	GinkgoHelper()
	r := composed(record.Options{}, body, answer)
	Expect(leaks(r.text)).To(BeFalse(), r.text)
	return r
}

// checkPatch records a call with a patch, which must be clean. The recorded patch, applied to the recorded object, must
// give the same as the recording of the real result.
func checkPatch(body string, operations ...jsonpatch.Operation) {
	GinkgoHelper()
	got := clean(body, answerSaying("", operations...))
	Expect(got.Redacted).To(ContainElement("response.patch (made anew)"))

	review := members(body)
	request := review["request"].(map[string]any)
	object := Must(json.Marshal(request["object"]))
	patch := Must(json.Marshal(operations))
	request["oldObject"], request["object"] = request["object"], json.RawMessage(applied(patch, object))
	want := composed(record.Options{}, string(Must(json.Marshal(review))), allowed).Review.Request.Object.Raw
	Expect(applied(got.Review.Response.Patch, got.Review.Request.Object.Raw)).To(MatchJSON(want))
}

var _ = Describe("A secret", func() {
	It("is taken out of Secrets, and nothing else is", func() {
		w := newWorld(allow)
		w.allowed(secretReview(secret, `"oldObject":`+secret))
		text := w.only()
		Expect(leaks(text)).To(BeFalse(), text)

		want := strings.NewReplacer(`"`+inBase64+`"`, `"cmVkYWN0ZWQ="`, `"empty":""`, `"empty":"cmVkYWN0ZWQ="`, `"`+marker+`"`, `"redacted"`, ","+lastApplied, "").Replace(secret)
		got := w.read()[0]
		Expect(got.Review.Request.Object.Raw).To(MatchJSON(want))
		Expect(got.Review.Request.OldObject.Raw).To(MatchJSON(want))
		Expect(got.Redacted).To(ConsistOf(
			"request.object.data", "request.object.stringData", `request.object.metadata.annotations["`+copiedName+`"]`,
			"request.oldObject.data", "request.oldObject.stringData", `request.oldObject.metadata.annotations["`+copiedName+`"]`,
		))
	})

	It("is kept on request, in objects, patches and answers", func() {
		body, answer := secretReview(secret), answerSaying(`,"warnings":["`+marker+`"]`, op("add", "/data/more", inBase64), op("add", "/leak", marker))
		got := composed(record.Options{SecretData: true}, body, answer)
		Expect(got.text).To(beTheRequestOf(body))
		Expect(got.Review.Response.Warnings).To(Equal([]string{marker}))
		Expect(string(got.Review.Response.Patch)).To(And(ContainSubstring(inBase64), ContainSubstring(marker)))
	})

	DescribeTable("reaches no file, however it is spelt:", func(body string) {
		Expect(leaks(body)).To(BeTrue(), "the marker must be there to begin with")
		Expect(clean(body, allowed).Redacted).NotTo(BeEmpty())
	},
		Entry("only the kind says so", strings.ReplaceAll(review(bare), `"version":"v1","kind":"Pod"`, `"version":"v1","kind":"Secret"`)),
		Entry("only the resource says so", strings.ReplaceAll(review(bare), `"resource":"pods"`, `"resource":"secrets"`)),
		Entry("only requestKind says so", review(bare, `"requestKind":{"group":"","version":"v1","kind":"Secret"}`)),
		Entry("only requestResource says so", review(bare, `"requestResource":{"group":"","version":"v1","resource":"secrets"}`)),
		Entry("only the subresource says so", review(`{"status":{"token":"`+marker+`"}}`, `"subResource":"token"`)),
		Entry("only requestSubResource says so", review(`{"status":{"token":"`+marker+`"}}`, `"requestSubResource":"token"`)),
		Entry("only the object says so, in another case, group and spelling", review(`{"apiVersion":"v2beta1","K\u0049ND":"S\u0045CRET","DATA":{"a":"`+inBase64+`"}}`)),
		Entry("members in another case, and twice", secretReview(`{"data":{"a":"`+inBase64+`"},"DATA":{"a":"`+inBase64+`"},"stringdata":{"a":"`+marker+`"},"data":{"b":"`+inBase64+`"}}`)),
		Entry("data that is no map", secretReview(`{"data":"`+marker+`","stringData":["`+marker+`"]}`)),
		Entry("values that are no text", secretReview(`{"data":{"a":{"b":["`+marker+`"]},"c":["`+marker+`"]}}`)),
		Entry("an object that is no map", secretReview(`"`+marker+`"`)),
		Entry("a list of Secrets", review(`{"kind":"List","items":[`+pod+`,`+secret+`,`+secret+`]}`)),
		Entry("a SecretList whose items say nothing", review(`{"kind":"SecretList","items":[`+bare+`]}`)),
		Entry("a Secret in an unknown member", review(pod, `"third":`+secret)),
		Entry("a Secret in a Secret", secretReview(`{"metadata":{"x":`+secret+`},"y":`+secret+`}`)),
		Entry("deep down", review(strings.Repeat(`{"a":[`, 400)+secret+strings.Repeat(`]}`, 400))),
		Entry("a token under review", review(`{"kind":"TokenReview","spec":{"token":"`+marker+`"}}`)),
		Entry("a token under review, by resource", strings.ReplaceAll(review(`{"spec":{"token":"`+marker+`"}}`), `"resource":"pods"`, `"resource":"tokenreviews"`)),
		Entry("a token that was requested", review(`{"kind":"TokenRequest","status":{"token":"`+marker+`"}}`)),
		Entry("credentials of the user", userWith(`"extra":{"example.com/access-token":["`+marker+`","`+marker+`"],"x-Password":["`+marker+`"]}`)),
		Entry("credentials of a user whose access is reviewed", review(`{"kind":"SubjectAccessReview","spec":{"extra":{"example.com/access-token":["`+marker+`"],"a":["b"]}}}`)),
	)

	It("reaches no file in a member of the review that is not known, which goes", func() {
		clean(strings.TrimSuffix(review(pod), "}")+`,"third":`+secret+`,"Request":{"kind":{"kind":"Secret"},"object":`+bare+`}}`, allowed)
	})

	It("keeps its shape, so that it can be decoded", func() {
		object := `{"apiVersion":"vault.example.com/v1","kind":"Secret","metadata":{"name":"a"},"spec":{"path":"kv/` + marker + `","pin":1234,"on":true,"list":["x",null]}}`
		Expect(clean(review(object), allowed).Review.Request.Object.Raw).To(MatchJSON(
			`{"apiVersion":"vault.example.com/v1","kind":"Secret","metadata":{"name":"a"},"spec":{"path":"redacted","pin":0,"on":true,"list":["redacted",null]}}`))
	})

	It("is named by its place, of which a bounded number is listed", func() {
		got := clean(review(`{"kind":"List","items":[`+strings.TrimSuffix(strings.Repeat(embedded+",", 51), ",")+`]}`), allowed)
		Expect(got.Redacted).To(And(HaveLen(51), ContainElement("request.object.items[49].stringData"), ContainElement("and more")))
	})

	DescribeTable("stays where it is none of our business:", func(body string) {
		got := composed(record.Options{}, body, allowed)
		Expect(got.text).To(beTheRequestOf(body))
		Expect(got.Redacted).To(BeEmpty())
	},
		Entry("the annotation of another kind", review(`{"kind":"Pod","metadata":{"annotations":{`+lastApplied+`}}}`)),
		Entry("data of another kind", review(`{"kind":"ConfigMap","data":{"a":"`+marker+`"},"stringData":{"a":"b"}}`)),
		Entry("a reference to a Secret", review(`{"kind":"Pod","spec":{"ref":{"kind":"Secret","name":"db","valuesKey":"a","optional":true},"volumes":[{"secret":{"secretName":"db"}}]}}`)),
		Entry("a reference to a Secret, and words about one, in annotations", review(workOf(configMap, annotated("x", `{"ref":{"kind":"Secret","name":"db"}}`), annotated("y", encoded("the kind is Secret"))))),
		Entry("a packed annotation of an object without a Secret", review(workOf(configMap, annotated("x", packed(configMap))))),
		Entry("who asked", userWith(`"extra":{"authentication.kubernetes.io/credential-id":["JTI=7"],"authentication.kubernetes.io/pod-name":["p"]}`)),
		Entry("labels of a Secret that are called data", secretReview(`{"metadata":{"labels":{"data":"x","stringData":"y"}},"type":"Opaque"}`)),
		Entry("null", secretReview(`{"data":null,"stringData":null}`)),
	)

	DescribeTable("reaches no file in a patch, which makes of the recorded object the recorded result:", checkPatch,
		Entry("a value, plain and encoded", secretReview(secret), op("add", "/data/x", inBase64), op("replace", "/stringData/user", marker+"x")),
		Entry("a test, and a path with escapes", secretReview(secret), op("test", "/data/password", inBase64), op("add", "/data/a~1b", inBase64)),
		Entry("the whole object", secretReview(secret), op("replace", "", json.RawMessage(secret))),
		Entry("the annotation, which is gone", secretReview(secret), op("replace", atCopy, `{"x":"`+marker+`"}`), op("add", "/metadata/labels", map[string]any{"a": "b"}), op("remove", atCopy, nil)),
		Entry("of a Secret in a list", review(`{"kind":"List","items":[`+secret+`]}`), op("add", "/items/0/data/x", inBase64)),
		Entry("a Secret that comes and goes", review(`{"kind":"Template","objects":[]}`), op("add", "/objects/-", json.RawMessage(embedded)), op("remove", "/objects/0", nil)),
		Entry("an object that becomes a Secret", review(`{"data":{"a":"`+inBase64+`"}}`), op("add", "/kind", "Secret")),
		Entry("credentials of a user", review(`{"kind":"SubjectAccessReview","spec":{"extra":{}}}`), op("add", "/spec/extra/token", []any{marker})),
		Entry("a token", review(`{"kind":"TokenRequest","status":{"token":"t"}}`), op("add", "/status/token", marker), op("add", "/spec", map[string]any{"token": marker})),
		Entry("a copy that holds one itself, and comes and goes", review(workOf(configMap)), op("add", "/metadata/annotations/my.tool~1copy", embedded), op("remove", "/metadata/annotations/my.tool~1copy", nil)),
		Entry("a copy that holds one itself, with the other annotations", review(workOf(configMap)), op("replace", "/metadata/annotations", map[string]any{"a": "b", "my.tool/copy": embedded}), op("add", "/x", marker)),
		Entry("a copy that held one", review(workOf(configMap, annotated("my.tool/copy", embedded))), op("replace", "/metadata/annotations/my.tool~1copy", "x")),
	)

	DescribeTable("leaves a patch as it is where nothing is redacted:", func(body, patch string) {
		Expect(string(composed(record.Options{}, body, answerWith(encoded(patch))).Review.Response.Patch)).To(Equal(patch))
	},
		Entry("without a secret", review(workOf(configMap)), `[ {"op":"add","path":"/metadata/annotations/x","value":"{\"kind\":\"Secret\"}"} ]`),
		Entry("that is no JSON", review(pod), `[{"op":`),
		Entry("of no operations", review(pod), `["op",1]`),
	)

	It("is not looked for in an empty patch", func() {
		for _, patch := range []string{"", "bnVsbA==", "W10="} {
			composed(record.Options{Redact: func(map[string]any) {}}, secretReview(secret), answerWith(patch))
		}
	})

	DescribeTable("keeps a call unwritten when it cannot be found for sure:", func(body, patch string) {
		_, _, err := record.Compose(record.Options{}, body, answerWith(encoded(patch)))
		Expect(err).To(MatchError(And(ContainSubstring("the patch of the response cannot be redacted"), Not(ContainSubstring(marker)))))
	},
		Entry("a patch that is no JSON", secretReview(secret), `[{"op":`),
		Entry("a patch of no operations", secretReview(secret), `["`+marker+`"]`),
		Entry("a patch that does not apply", secretReview(secret), `[{"op":"replace","path":"/nowhere/x","value":"`+marker+`"}]`),
		Entry("a patch of nothing", secretReview("null", `"oldObject":`+secret), `[{"op":"add","path":"/x","value":1}]`),
		Entry("a patch with a Secret, and a part that is no operation", review(pod), `[1,{"op":"add","path":"/x","value":`+embedded+`}]`),
		Entry("a patch that is no JSON, beside a credential", userWith(`"extra":{"x-token":["`+marker+`"]}`), `[{"`+marker),
	)
})

var _ = Describe("The copy of an object, in an annotation", func() {
	DescribeTable("goes under any name when it holds a Secret:", func(copied string) {
		mine := annotated("my.tool/copy", copied)
		for _, body := range []string{
			review(workOf(configMap, mine)), review("null", `"oldObject":`+workOf(embedded, mine)), review(`{"kind":"List","items":[` + workOf(configMap, mine) + `]}`),
			secretReview(`{"metadata":{"ANNOTATIONS":{"a":"b",` + mine + `}},"data":{"a":"` + inBase64 + `"}}`),
		} {
			got := clean(body, answerSaying(`,"warnings":["it is `+marker+`"]`))
			Expect(got.text).To(And(ContainSubstring(`"a":"b"`), Not(ContainSubstring(`my.tool/copy":`))), "others stay")
			Expect(got.Redacted).To(ContainElement(HaveSuffix(`["my.tool/copy"]`)))
		}
	},
		Entry("as it is", embedded+"\n"),
		Entry("in a list", "["+embedded+"]"),
		Entry("in another case, with escapes", `{"K\u0049ND":"secret","data":{"a":"`+marker+`"}}`),
		Entry("in the copy of another tool", workOf(configMap, annotated("your.tool/copy", embedded))),
		Entry("in base64", encoded(embedded)),
		Entry("as a string", quoted(embedded)),
		Entry("a token", `{"kind":"TokenRequest","status":{"token":"`+marker+`"}}`),
	)

	DescribeTable("goes from a call with a Secret when it can hold an object:", func(copied string, goes bool) {
		got := composed(record.Options{}, review(workOf(embedded, annotated("copy", copied))), allowed)
		if goes {
			Expect(got.text).To(ContainSubstring(`"annotations":{"a":"b"}`), "others stay")
		} else {
			Expect(got.text).To(ContainSubstring(annotated("copy", copied)))
		}
	},
		Entry("JSON", `{"data":{"password":"b2xkZXI="}}`, true),
		Entry("a list", ` ["older"]`, true),
		Entry("a string in JSON", `"{}"`, true),
		Entry("cut off", `{"kind":"Secr`, true),
		Entry("YAML, in base64", encoded("data:\n  password: older\n"), true),
		Entry("packed, as Rancher does", packed(`{"data":{"password":"b2xkZXI="}}`), true),
		Entry("anything long", strings.Repeat("x", 257), true),
		Entry("nothing that is shorter and no such text", strings.Repeat("x ", 128), false),
		Entry("nothing that is empty", "", false),
	)
})

// withoutEnv is a hook that empties the values of environment variables.
func withoutEnv(object map[string]any) {
	spec, _ := object["spec"].(map[string]any)
	containers, _ := spec["containers"].([]any)
	for _, c := range containers {
		env, _ := c.(map[string]any)["env"].([]any)
		for _, e := range env {
			e.(map[string]any)["value"] = "none of your business"
		}
	}
}

func podWith(env string) string {
	return `{"kind":"Pod","metadata":{"name":"web-0","generation":12345678901234567890,"x":1.50},"spec":{"containers":[{"name":"web<1>","env":[{"name":"PASSWORD","value":"` + env + `"}]}]}}`
}

var _ = Describe("A value that only the program knows to be secret", func() {
	hooked := record.Options{Redact: withoutEnv}

	It("is taken out of both objects, by its hook, and numbers stay as they are spelt", func() {
		got := composed(hooked, review(podWith(marker), `"oldObject":`+podWith(marker)), allowed)
		Expect(leaks(got.text)).To(BeFalse(), got.text)
		for _, raw := range [][]byte{got.Review.Request.Object.Raw, got.Review.Request.OldObject.Raw} {
			Expect(raw).To(MatchJSON(podWith("none of your business")))
			Expect(string(raw)).To(And(ContainSubstring(`12345678901234567890`), ContainSubstring(`1.50`), ContainSubstring(`web<1>`)))
		}
		Expect(got.Redacted).To(Equal([]string{"request.object (by Redact)", "request.oldObject (by Redact)"}))
	})

	It("changes neither the object nor the patch where it takes out nothing", func() {
		body, operations := review(`{ "b":1.0, "a":"\u003c", "kind":"Pod" }`), `[ {"op":"add","path":"/metadata","value":{"a":"b"}} ]`
		got := composed(hooked, body, answerWith(encoded(operations)))
		Expect(got.text).To(beTheRequestOf(body))
		Expect(string(got.Review.Response.Patch)).To(Equal(operations))
		Expect(got.Redacted).To(BeEmpty())
	})

	It("is looked for in Secrets as they will be written, and the patch still applies to the redacted object", func() {
		var seen []string
		got := composed(record.Options{Redact: func(o map[string]any) {
			text, _ := json.Marshal(o)
			seen = append(seen, string(text))
			delete(o, "type")
		}}, secretReview(secret), answerSaying("", op("remove", atCopy, nil), op("test", "/metadata/annotations/a", "b"), op("add", "/data/x", inBase64), op("add", "/leak", marker)))
		Expect(leaks(got.text)).To(BeFalse(), got.text)
		Expect(seen[0]).To(And(Satisfy(func(s string) bool { return !leaks(s) }), ContainSubstring("cmVkYWN0ZWQ=")))
		Expect(got.Review.Response.Patch).To(MatchJSON(`[{"op":"add","path":"/data/x","value":"cmVkYWN0ZWQ="},{"op":"add","path":"/leak","value":"redacted"}]`))
	})

	DescribeTable("does not survive in the patch:", func(original, operations string) {
		got := composed(hooked, review(original), answerWith(encoded(operations)))
		Expect(leaks(got.text)).To(BeFalse(), got.text)
		object := members(string(applied([]byte(operations), []byte(original))))
		withoutEnv(object)
		want := Must(json.Marshal(object))
		Expect(applied(got.Review.Response.Patch, got.Review.Request.Object.Raw)).To(MatchJSON(want))
		Expect(got.Redacted).To(ContainElement("response.patch (made anew)"))
	},
		Entry("as a value", podWith(marker), `[{"op":"add","path":"/spec/containers/0/env/-","value":{"name":"b","value":"`+marker+`"}}]`),
		Entry("of an object that held none", pod, `[{"op":"add","path":"/spec/containers/-","value":{"env":[{"value":"`+marker+`"}]}}]`),
		Entry("in a test of a value that is removed thereafter", podWith(marker), `[{"op":"test","path":"/spec/containers/0/env/0/value","value":"`+marker+`"},{"op":"remove","path":"/spec"}]`),
		Entry("on the way", podWith(marker), `[{"op":"add","path":"/x","value":"`+marker+`"},{"op":"remove","path":"/x"},{"op":"replace","path":"/metadata/name","value":null}]`),
	)

	DescribeTable("keeps a call unwritten when the hook", func(hook func(map[string]any), patch, why string) {
		_, _, err := record.Compose(record.Options{Redact: hook}, review(podWith(marker)), answerWith(encoded(patch)))
		Expect(err).To(MatchError(And(ContainSubstring(why), Not(ContainSubstring(marker)))))
	},
		Entry("panics", func(o map[string]any) { _ = o["spec"].(string) }, "", "interface conversion: interface {} is map[string]interface {}, not string"),
		Entry("panics with the object", func(o map[string]any) { panic(o["spec"]) }, "", "Redact panicked (with a map[string]interface {})"),
		Entry("leaves a value that is no JSON", func(o map[string]any) { o["a"] = make(chan int) }, "", "Redact left an object that is not JSON"),
		Entry("cannot see the result of a patch that is no patch", func(map[string]any) {}, `{"a":1}`, "the patch is no JSON patch"),
		Entry("cannot see the result of a patch that does not apply", func(map[string]any) {}, `[{"op":"remove","path":"/nowhere"}]`, "does not apply"),
	)

	It("is counted and logged where it cannot be taken out, and the next call is recorded", func() {
		w := newWorld(allow, func(o *record.Options) {
			o.Redact = func(object map[string]any) {
				if object["kind"] == "Panic" {
					panic(object["spec"])
				}
			}
		})
		w.allowed(review(`{"kind":"Panic","spec":"` + marker + `"}`))
		w.allowed(review(pod))
		Expect(w.read()).To(HaveLen(1))
		Expect(w.counted()).To(Equal(record.Counts{Failed: 1, Written: 1}))
		Expect(w.logs.All()).To(ConsistOf(And(ContainSubstring("Redact panicked"), ContainSubstring(w.dir), Not(ContainSubstring(marker)))))
	})
})

// secretOf is a review about a list with a Secret with these values.
func secretOf(values ...string) string {
	var data []string
	for i, value := range values {
		data = append(data, fmt.Sprintf(`"key%d":"%s"`, i, encoded(value)))
	}
	return review(`{"kind":"List","metadata":{"name":"db","annotations":{}},"items":[{"kind":"Secret","metadata":{},"data":{` + strings.Join(data, ",") + `}}]}`)
}

// withUser is a credential, in base64, of which the secret part was taken out.
const withUser = "dXNlcjpyZWRhY3RlZA=="

// inLines is a text with a line break in its middle.
func inLines(s string) string { return s[:len(s)/2] + "\n" + s[len(s)/2:] }

// numbers are the bytes of a text, as an array of JSON.
func numbers(s string) (all []any) {
	for _, b := range []byte(s) {
		all = append(all, b)
	}
	return all
}

// sorted are members of an object as a recording has them.
func sorted(some string) string {
	GinkgoHelper()
	text := Must(json.Marshal(members("{" + some + "}")))
	return string(text[1 : len(text)-1])
}

// forms are the forms in which a value that was removed from a call is found elsewhere in it.
var forms = map[string]func(string) string{
	"plain":             func(s string) string { return s },
	"in JSON":           func(s string) string { return "say " + quoted(s) },
	"in a query":        func(s string) string { return "https://x/?p=" + url.QueryEscape(s) },
	"in a path":         func(s string) string { return "https://x/" + url.PathEscape(s) + "/y" },
	"in base64":         encoded,
	"in base64 of URLs": func(s string) string { return base64.RawURLEncoding.EncodeToString([]byte(s)) },
	"in a header":       func(s string) string { return "Basic " + encoded("user:"+s) },
	"in hexadecimal":    func(s string) string { return hex.EncodeToString([]byte(s)) },
	"as bytes":          func(s string) string { return fmt.Sprint([]byte(s)) },
}

var _ = Describe("A secret that a call repeats", func() {
	// Each place holds a text T, or its quotation in another one. The value is V, in base64, or P, plain. C is a copy.
	places := []string{
		`{"kind":"Secret","metadata":{"annotations":{"a":T},"labels":{"a":T,T:"b"}},"data":{"a":V}}`,
		`{"kind":"Secret","type":T,"metadata":{"ownerReferences":[{"name":T}],"managedFields":[{"manager":T,"fieldsV1":{T:{}}}]},"data":{"a":V}}`,
		`{"kind":"Secret","metadata":{"annotations":{"kubectl.kubernetes.io/last-applied-configuration":C}},"data":{"a":V},"more":{"a":[T]}}`,
		`{"kind":"List","items":[{"kind":"Secret","data":{"a":V}},{"kind":"Pod","spec":{"env":[{"value":T}]}},{"kind":"ConfigMap","data":{"a":T}}]}`,
		`{"kind":"Pod","metadata":{"annotations":{"my.tool/copy":C,T:C,"a":T}},"spec":{"a":T}}`,
		`{"kind":"Template","objects":[{"spec":{"inner":{"kind":"Secret","stringData":{"a":P},"x":T}}}]}`,
		`{"kind":"TokenReview","spec":{"token":P},"metadata":{"annotations":{"a":T,T:"b"}}}`,
	}
	patches := []string{
		`[]`, `[{"op":"add","path":"/extra","value":{"a":T}}]`, `[{"op":"add","path":"/metadata","value":{"annotations":{"a":T,"b":C,T:"c"}}}]`,
		`[{"op":"add","path":"/a","value":T},{"op":"remove","path":"/a"}]`,
	}

	It("reaches no file, in whatever form and place", func() {
		const alphabet = `abcdefghijklmnopqrstuvwxyzABCXYZ0123456789 -_+/="\<>&%:@!` + "\n"
		random := rand.New(rand.NewPCG(uint64(GinkgoRandomSeed()), 0))
		names := slices.Sorted(maps.Keys(forms))
		for range 200 {
			value := make([]byte, 7+random.IntN(40))
			for i := range value {
				value[i] = alphabet[random.IntN(len(alphabet))]
			}
			secret, name := "q"+string(value)+"q", names[random.IntN(len(names))] // without space around it
			text, copied := forms[name](secret), `{"kind":"Secret","data":{"a":"`+encoded(secret)+`"}}`
			var pairs []string
			for mark, by := range map[string]string{"T": text, "V": encoded(secret), "P": secret, "C": copied} {
				for _, end := range []string{"}", ",", "]", ":"} {
					pairs = append(pairs, mark+end, quoted(by)+end)
				}
			}
			fill := strings.NewReplacer(pairs...).Replace
			patch := fill(patches[random.IntN(len(patches))])
			body := fill(review(places[random.IntN(len(places))], `"options":{"fieldManager":T},"oldObject":{"metadata":{"labels":{"a":T}}},"unknown":{"a":T}`))
			body = strings.Replace(body, `"alice"`, quoted(text)+`,"groups":[`+quoted(text)+`],"extra":{"a":[`+quoted(text)+`]}`, 1)
			Expect(json.Valid([]byte(body))).To(BeTrue(), body)
			answer := strings.Replace(answerWith(encoded(patch)), `"allowed":true`,
				fill(`"allowed":true,"warnings":[T],"auditAnnotations":{"a":T,T:"b"},"status":{"message":T,"details":{"causes":[{"message":T}]}}`), 1)

			detail := fmt.Sprintf("%q %s, from %s with %s", secret, name, body, answer)
			recorded := composed(record.Options{}, body, answer)
			failed := composed(record.Options{}, body, "the step failed: "+text)
			for _, form := range forms {
				for _, written := range []string{recorded.text, string(recorded.Review.Response.Patch), fmt.Sprint(members(recorded.text)), failed.Error} {
					Expect(written).NotTo(ContainSubstring(form(secret)), detail)
				}
			}
			Expect(recorded.Review.Response.Warnings).NotTo(ContainElement(text), detail)
		}
	})

	DescribeTable("is replaced by a placeholder of the same spelling:", func(values []string, value any, want string) {
		got := clean(secretOf(values...), answerSaying("", op("add", "/a", value)))
		Expect(got.Review.Response.Patch).To(MatchJSON(`[{"op":"add","path":"/a","value":` + want + `}]`))
		Expect(got.Redacted).To(ContainElement("response.patch (made anew)"))
	},
		Entry("plain, in the middle, twice", []string{marker}, "db://user:"+marker+"@host,"+marker, `"db://user:redacted@host,redacted"`),
		Entry("without the line's end", []string{marker + "\n"}, marker, `"redacted"`),
		Entry("base64 without padding", []string{marker}, strings.TrimRight(inBase64, "="), `"cmVkYWN0ZWQ"`),
		Entry("base64 for URLs with more of its characters", []string{marker}, base64.RawURLEncoding.EncodeToString([]byte("???"+marker)), `"`+base64.RawURLEncoding.EncodeToString([]byte("???redacted"))+`"`),
		Entry("base64 of base64", []string{marker}, encoded("x"+encoded("user:"+marker)), `"`+encoded("x"+withUser)+`"`),
		Entry("base64 without padding that needs none", []string{marker + "x"}, encoded("us:"+marker+"x!!"), `"`+encoded("us:redacted!!")+`"`),
		Entry("base64 of lines", []string{marker}, "x: "+inLines(encoded("user:"+marker))+"!", `"x: `+withUser+`!"`),
		Entry("base64 behind a path", []string{marker}, "a/path/"+base64.RawURLEncoding.EncodeToString([]byte("user:"+marker))+"?", `"a/path/`+strings.TrimRight(withUser, "=")+`?"`),
		Entry("a header in a URL", []string{marker}, "?h="+url.QueryEscape("Basic "+encoded("user:"+marker)), `"?h=Basic+`+strings.TrimRight(withUser, "=")+`%3D%3D"`),
		Entry("a query", []string{"a b/" + marker + "&+%"}, "https://x/?p="+url.QueryEscape("a b/"+marker+"&+%")+"&q=1%20", `"https://x/?p=redacted&q=1%20"`),
		Entry("a path", []string{"a b/" + marker + "&+%"}, "https://x/"+url.PathEscape("a b/"+marker+"&+%")+"/1%20", `"https://x/redacted/1%20"`),
		Entry("the password of a URL", []string{"p/:@" + marker}, (&url.URL{Scheme: "db", User: url.UserPassword("u", "p/:@"+marker), Host: "h"}).String(), `"db://u:redacted@h"`),
		Entry("hexadecimal of both cases, with more", []string{marker}, fmt.Sprintf("0x%x, %X", "user:"+marker, marker), `"0x757365723a7265646163746564, 7265646163746564"`),
		Entry("bytes that are printed", []string{marker}, fmt.Sprintf("x %v 7", []byte("u:"+marker)), `"x [117 58 114 101 100 97 99 116 101 100] 7"`),
		Entry("bytes in a text, with commas and spaces", []string{marker}, strings.ReplaceAll(fmt.Sprint([]byte(marker)), " ", ", "), `"[114, 101, 100, 97, 99, 116, 101, 100]"`),
		Entry("bytes in JSON", []string{marker}, []any{1000, numbers(marker), map[string]any{"b": numbers("u:" + marker)}},
			`[1000,[114,101,100,97,99,116,101,100],{"b":[117,58,114,101,100,97,99,116,101,100]}]`),
		Entry("JSON", []string{"\"<\n" + marker + "\""}, `{"x":"\"<\n`+marker+`\""}`, `"{\"x\":\"redacted\"}"`),
		Entry("JSON for HTML", []string{"<" + marker + "&"}, `{"x":"\u003c`+marker+`\u0026"}`, `"{\"x\":\"redacted\"}"`),
		Entry("several values that begin alike", []string{marker[:7], marker[:8], marker, marker[:10]}, strings.Repeat(marker+" ", 9), `"`+strings.Repeat("redacted ", 9)+`"`),
		Entry("two values that overlap", []string{marker, "hunter2-and-more"}, "x"+marker+"-and-morey", `"xredacted-and-morey"`),
		Entry("a value of the least length", []string{marker, "1234567"}, "x1234567y", `"xredactedy"`),
		Entry("the name of a label", []string{marker}, map[string]any{"b": []any{marker, 1, map[string]any{"labels": map[string]any{marker: true}}}}, `{"b":["redacted",1,{"labels":{"redacted":true}}]}`),
	)

	DescribeTable("is known from", func(body string, operation jsonpatch.Operation, want string) {
		Expect(clean(body, answerSaying("", operation)).Review.Response.Patch).To(MatchJSON("[" + want + "]"))
	},
		Entry("the old object", review(pod, `"oldObject":`+secret), op("add", "/a", marker), `{"op":"add","path":"/a","value":"redacted"}`),
		Entry("the patch alone", review(`{"kind":"List","metadata":{"labels":{"a":"`+marker+`"}}}`), op("add", "/a", map[string]any{"b": marker, "c": json.RawMessage(embedded)}),
			`{"op":"add","path":"/a","value":{"b":"redacted","c":{"apiVersion":"v1","kind":"Secret","metadata":{"name":"db"},"stringData":{"password":"redacted"}}}}`),
		Entry("the user", userWith(`"extra":{"x-token":["`+marker+`"]}`), op("add", "/a", marker), `{"op":"add","path":"/a","value":"redacted"}`),
		Entry("a path, even when the request has it as a value", secretReview(`{"metadata":{"labels":{"a":"`+marker+`"}},"data":{"password":"`+inBase64+`"}}`),
			op("add", "/metadata/labels/"+marker, "x"), `{"op":"add","path":"/metadata/labels/redacted","value":"x"}`),
	)

	It("is noted by the member that repeats it", func() {
		got := clean(secretOf(marker), answerSaying(`,"warnings":["fine","it is `+marker+`"],"status":{"message":"not `+marker+`"},"auditAnnotations":{"a":"`+marker+`","`+marker+`":"b"}`))
		Expect(got.Review.Response.Warnings).To(Equal([]string{"fine", "it is redacted"}))
		Expect(got.Review.Response.Result.Message).To(Equal("not redacted"))
		Expect(got.Review.Response.AuditAnnotations).To(Equal(map[string]string{"a": "redacted", "redacted": "b"}))
		Expect(got.Redacted).To(ConsistOf("request.object.items[0].data", "response.warnings (repeated a secret)", "response.status (repeated a secret)", "response.auditAnnotations (repeated a secret)"))
	})

	It("goes alike from the request and from its patch, so that the one still applies to the other", func() {
		header := "Basic " + encoded("user:"+marker)
		body := secretReview(`{"kind":"Secret","metadata":{"labels":{"` + marker + `":"` + marker + `"},"annotations":{"a":"` + header + `"}},"data":{"password":"` + inBase64 + `"}}`)
		got := clean(body, answerSaying("", op("test", "/metadata/labels/"+marker, marker), op("replace", "/metadata/labels/"+marker, "x"), op("test", "/metadata/annotations/a", header)))
		Expect(applied(got.Review.Response.Patch, got.Review.Request.Object.Raw)).To(MatchJSON(
			`{"kind":"Secret","metadata":{"labels":{"redacted":"x"},"annotations":{"a":"Basic ` + withUser + `"}},"data":{"password":"cmVkYWN0ZWQ="}}`))
	})

	It("goes from an error, even where that is cut off", func() {
		for _, end := range []int{10, 8, 6} {
			got := composed(record.Options{}, secretOf(marker), strings.Repeat("x", 16<<10-end)+marker)
			Expect(strings.TrimLeft(got.Error, "x")).To(HavePrefix("redact"))
		}
	})

	DescribeTable("stays where it is only a name:", func(value, member string) {
		got := composed(record.Options{}, secretReview(`{"kind":"Secret",`+member+`,"data":{"key":"`+encoded(value)+`"}}`), allowed)
		Expect(got.text).To(ContainSubstring(sorted(member)))
		Expect(got.Redacted).To(ConsistOf("request.object.data"))
	},
		Entry("of the object", "postgres", `"metadata":{"name":"postgres","namespace":"postgres-a","generateName":"postgres-"}`),
		Entry("a uid", "4d9d-a7e9", `"metadata":{"uid":"4d9d-a7e9"}`),
		Entry("a time", "2026-01-01T00:00:00Z", `"metadata":{"creationTimestamp":"2026-01-01T00:00:00Z","managedFields":[{"time":"2026-01-01T00:00:00Z"}]}`),
		Entry("a kind", "ConfigMap", `"metadata":{"ownerReferences":[{"apiVersion":"ConfigMap/v1","kind":"ConfigMap"}]}`),
		Entry("a member", "finalizers", `"metadata":{"finalizers":["x"]}`),
		Entry("the resource of the request", "secrets", `"metadata":{"name":"a"}`),
	)

	DescribeTable("leaves texts that only look like it:", func(value string, operation jsonpatch.Operation) {
		patch := Must(json.Marshal([]any{operation}))
		got := composed(record.Options{}, secretOf(value), answerSaying(`,"warnings":["it is short"],"status":{"message":"fine"}`, operation))
		Expect(got.Review.Response.Patch).To(MatchJSON(patch))
		Expect(got.Review.Response.Warnings).To(Equal([]string{"it is short"}))
		Expect(got.Redacted).To(ConsistOf("request.object.items[0].data", "response.patch (made anew)"))
	},
		Entry("a short value", "string", op("add", "/a", "a string")),
		Entry("a short value in hexadecimal", "true", op("add", "/a", "74727565")),
		Entry("a short list of numbers", marker, op("add", "/a", []any{1, 2, 3, 4, 5, 6})),
		Entry("a part of the placeholder", "redacte", op("add", "/a", "redacte")),
		Entry("the name of an operation", "replace", op("replace", "/kind", "Pod")),
		Entry("a name of the review", "warnings", op("add", "/a", 1)),
		Entry("base64 of base64 of base64, which is not searched", marker, op("add", "/a", encoded(encoded(inBase64)))),
	)
})
