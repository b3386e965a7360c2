package record_test

import (
	"encoding/base64"
	"encoding/json"
	"strings"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	jsonpatchv4 "gopkg.in/evanphx/json-patch.v4"
)

// sorted are members of an object as a recording has them.
func sorted(some string) string {
	GinkgoHelper()
	text, err := json.Marshal(members("{" + some + "}"))
	Expect(err).NotTo(HaveOccurred())
	return string(text[1 : len(text)-1])
}

var _ = Describe("A secret that the rest of the request repeats", func() {
	// holder is a Secret with the marker, and more members in its metadata and in itself.
	holder := func(metadata, more string) string {
		return secretReview(`{"apiVersion":"v1","kind":"Secret","metadata":{"name":"db"` + metadata + `},"data":{"password":"` + inBase64 + `"}` + more + `}`)
	}

	DescribeTable("goes from", func(body, want string) {
		w := newWorld(allow)
		w.allowed(body)
		text := w.only()
		Expect(leaks(text)).To(BeFalse(), text)
		Expect(text).To(ContainSubstring(sorted(want)))
		Expect(w.read()[0].Redacted).To(ContainElement(HaveSuffix(" (repeated a secret)")))
	},
		Entry("a label", holder(`,"labels":{"a":"x-`+marker+`"}`, ""), `"labels":{"a":"x-redacted"}`),
		Entry("the name of a label", holder(`,"labels":{"`+marker+`":"x"}`, ""), `"labels":{"redacted":"x"}`),
		Entry("the name of an annotation", holder(`,"annotations":{"`+marker+`":"x"}`, ""), `"annotations":{"redacted":"x"}`),
		Entry("an annotation of any name", holder(`,"annotations":{"my.tool/password":"it is `+marker+`"}`, ""), `"annotations":{"my.tool/password":"it is redacted"}`),
		Entry("an annotation with a text in JSON", holder(`,"annotations":{"my.tool/copy":"x {\"password\":\"`+inBase64+`\"}"}`, ""), `"annotations":{"my.tool/copy":"x {\"password\":\"cmVkYWN0ZWQ=\"}"}`),
		Entry("managed fields", holder(`,"managedFields":[{"manager":"`+marker+`","fieldsV1":{"f:metadata":{"f:labels":{"f:`+marker+`":{}}}}}]`, ""),
			`"managedFields":[{"manager":"redacted","fieldsV1":{"f:metadata":{"f:labels":{"f:redacted":{}}}}}]`),
		Entry("an owner", holder(`,"ownerReferences":[{"name":"`+marker+`"}]`, ""), `"ownerReferences":[{"name":"redacted"}]`),
		Entry("another member", holder("", `,"type":"`+marker+`"`), `"type":"redacted"`),
		Entry("a list of bytes", review(`{"kind":"List","items":[`+embedded+`],"more":[[1, 109, 52, 114, 107, 51, 114, 45, 104, 117, 110, 116, 101, 114, 50]]}`), `"more":[[1,114,101,100,97,99,116,101,100]]`),
		Entry("deep below", review(`{"kind":"List","items":[`+embedded+`],"more":{"password":[["`+marker+`"],1.50]}}`), `"more":{"password":[["redacted"],1.50]}`),
		Entry("binaryData and data of a ConfigMap beside it", review(`{"kind":"List","items":[`+embedded+`,{"kind":"ConfigMap","data":{"a":"x `+marker+`"},"binaryData":{"b":"`+base64.StdEncoding.EncodeToString([]byte("user:"+marker))+`"}}]}`),
			`"binaryData":{"b":"`+withUser+`"},"data":{"a":"x redacted"}`),
		Entry("a pod beside it", review(`{"kind":"List","items":[`+embedded+`,{"kind":"Pod","spec":{"containers":[{"env":[{"name":"P","value":"`+marker+`"}]}]}}]}`), `"env":[{"name":"P","value":"redacted"}]`),
		Entry("the old object", secretReview(`{"kind":"Secret","data":{"a":"`+inBase64+`"}}`, `"oldObject":{"metadata":{"labels":{"a":"`+marker+`"}}}`), `"oldObject":{"metadata":{"labels":{"a":"redacted"}}}`),
		Entry("the options", secretReview(`{"kind":"Secret","data":{"a":"`+inBase64+`"}}`, `"options":{"kind":"CreateOptions","fieldManager":"`+marker+`"}`), `"options":{"kind":"CreateOptions","fieldManager":"redacted"}`),
		Entry("the user", strings.ReplaceAll(holder("", ""), `"username":"alice"`, `"username":"`+marker+`","groups":["x:`+marker+`"],"extra":{"a":["`+marker+`"]}`), `"username":"redacted","groups":["x:redacted"],"extra":{"a":["redacted"]}`),
		Entry("members that are not known", strings.TrimSuffix(holder("", ""), "}}")+`,"more":{"a":"`+marker+`"}}}`, `"more":{"a":"redacted"}`),
	)

	It("goes when only the patch holds a Secret", func() {
		w := newWorld(allow)
		ask(answering(w, answerSaying("", op("add", "/items/-", json.RawMessage(embedded)))), review(`{"kind":"List","items":[],"metadata":{"labels":{"a":"`+marker+`"}}}`))
		text := w.only()
		Expect(leaks(text)).To(BeFalse(), text)
		Expect(text).To(ContainSubstring(`"labels":{"a":"redacted"}`))
	})

	DescribeTable("stays where it is", func(value, member string) {
		body := secretReview(`{"kind":"Secret",` + member + `,"data":{"key":"` + base64.StdEncoding.EncodeToString([]byte(value)) + `"}}`)
		w := newWorld(allow)
		w.allowed(body)
		Expect(w.only()).To(ContainSubstring(sorted(member)))
		Expect(w.read()[0].Redacted).To(ConsistOf("request.object.data"))
	},
		Entry("a name", "postgres", `"metadata":{"name":"postgres","namespace":"postgres-a","generateName":"postgres-"}`),
		Entry("a uid", "4d9d-a7e9", `"metadata":{"uid":"4d9d-a7e9"}`),
		Entry("a time", "2026-01-01T00:00:00Z", `"metadata":{"creationTimestamp":"2026-01-01T00:00:00Z","managedFields":[{"time":"2026-01-01T00:00:00Z"}]}`),
		Entry("a kind", "ConfigMap", `"metadata":{"ownerReferences":[{"apiVersion":"ConfigMap/v1","kind":"ConfigMap"}]}`),
		Entry("the name of a member", "metadata", `"metadata":{"labels":{}}`),
		Entry("the name of a member that it holds", "finalizers", `"metadata":{"finalizers":["x"]}`),
		Entry("words of the request", "secrets", `"metadata":{"name":"a"}`),
	)

	It("goes alike from the request and from its patch, so that the one still applies to the other", func() {
		body := holder(`,"labels":{"`+marker+`":"`+marker+`"},"annotations":{"a":"Basic `+base64.StdEncoding.EncodeToString([]byte("user:"+marker))+`"}`, "")
		w := newWorld(allow)
		ask(answering(w, answerSaying("", op("test", "/metadata/labels/"+marker, marker), op("replace", "/metadata/labels/"+marker, "x"),
			op("test", "/metadata/annotations/a", "Basic "+base64.StdEncoding.EncodeToString([]byte("user:"+marker))), op("test", "/data/password", inBase64))), body)
		Expect(leaks(w.only())).To(BeFalse())
		review := w.read()[0].Review
		patch, err := jsonpatchv4.DecodePatch(review.Response.Patch)
		Expect(err).NotTo(HaveOccurred())
		Expect(patch.Apply(review.Request.Object.Raw)).To(MatchJSON(
			`{"apiVersion":"v1","kind":"Secret","metadata":{"name":"db","labels":{"redacted":"x"},"annotations":{"a":"Basic ` + withUser + `"}},"data":{"password":"cmVkYWN0ZWQ="}}`))
	})
})
