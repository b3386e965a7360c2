package record_test

import (
	"bytes"
	"compress/gzip"
	"encoding/base64"
	"encoding/json"
	"strings"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"gomodules.xyz/jsonpatch/v2"
)

// quoted is a text as a string of JSON.
func quoted(text string) string {
	GinkgoHelper()
	out, err := json.Marshal(text)
	Expect(err).NotTo(HaveOccurred())
	return string(out)
}

func packed(text string) string {
	GinkgoHelper()
	var b bytes.Buffer
	z := gzip.NewWriter(&b)
	_, err := z.Write([]byte(text))
	Expect(err).NotTo(HaveOccurred())
	Expect(z.Close()).To(Succeed())
	return base64.RawStdEncoding.EncodeToString(b.Bytes())
}

const (
	embedded  = `{"apiVersion":"v1","kind":"Secret","metadata":{"name":"db"},"stringData":{"password":"` + marker + `"}}`
	configMap = `{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"web"}}`
	atCopy    = "/metadata/annotations/kubectl.kubernetes.io~1last-applied-configuration"
	rancher   = "objectset.rio.cattle.io/applied"
)

// workOf is a ManifestWork, which has other objects in it; with a copy of it, unless that is empty.
func workOf(manifest, copied string, more ...string) string {
	GinkgoHelper()
	annotations := append([]string{`"a":"b"`}, more...)
	if copied != "" {
		annotations = append(annotations, quoted(copiedName)+":"+quoted(copied))
	}
	return `{"apiVersion":"work.open-cluster-management.io/v1","kind":"ManifestWork","metadata":{"name":"web","annotations":{` + strings.Join(annotations, ",") + `}},` +
		`"spec":{"workload":{"manifests":[` + manifest + `]}}}`
}

// redactedWithoutCopy records the body, expects that the record lacks the copy and keeps the other annotations, and returns
// the names of the removed members.
func redactedWithoutCopy(body string) []string {
	GinkgoHelper()
	w := newWorld(allow)
	w.allowed(body)
	text := w.only()
	Expect(leaks(text)).To(BeFalse(), text)
	Expect(text).NotTo(ContainSubstring(`last-applied-configuration":`))
	Expect(text).To(ContainSubstring(`"annotations":{"a":"b"}`), "others stay")
	return w.read()[0].Redacted
}

var _ = Describe("The copy of an object, in an annotation of it", func() {
	withoutCopy := func(manifest string) string { return workOf(manifest, "") }

	DescribeTable("goes when a Secret stands in the object:", func(object, oldObject string) {
		body := review(object, `"oldObject":`+oldObject)
		Expect(leaks(body)).To(BeTrue(), "the marker must be there to begin with")
		Expect(redactedWithoutCopy(body)).To(ContainElement(HaveSuffix(`.annotations["kubectl.kubernetes.io/last-applied-configuration"]`)))
	},
		Entry("the new one", workOf(embedded, withoutCopy(embedded)), "null"),
		Entry("the old one", "null", workOf(embedded, withoutCopy(embedded))),
		Entry("both", workOf(embedded, withoutCopy(embedded)), workOf(embedded, withoutCopy(embedded))),
		Entry("the new one, and the copies say less", workOf(embedded, `{"x":"`+marker+`"}`), workOf(configMap, `{"x":"`+marker+`"}`)),
		Entry("the old one, and the copies say less", workOf(configMap, `{"x":"`+marker+`"}`), workOf(embedded, `{"x":"`+marker+`"}`)),
		Entry("a token under review", workOf(`{"kind":"TokenReview","spec":{"token":"t"}}`, `{"spec":{"token":"`+marker+`"}}`), "null"),
		Entry("deep in a list of such", `{"kind":"List","items":[`+workOf(embedded, withoutCopy(embedded))+`]}`, "null"),
		Entry("beside it, in a list", `{"kind":"List","items":[`+workOf(configMap, `{"x":"`+marker+`"}`)+`,{"kind":"Secret","metadata":{}}]}`, "null"),
	)

	DescribeTable("goes when it holds a Secret itself, which the object does not:", func(copied string) {
		for _, body := range []string{review(workOf(configMap, copied)), review("null", `"oldObject":`+workOf(configMap, copied)), review(`{"kind":"List","items":[` + workOf(configMap, copied) + `]}`)} {
			Expect(redactedWithoutCopy(body)).To(ConsistOf(HaveSuffix(`["kubectl.kubernetes.io/last-applied-configuration"]`)))
		}
	},
		Entry("embedded", workOf(embedded, "")),
		Entry("a Secret", embedded+"\n"),
		Entry("in another case", `{"KIND":"secret","data":{"a":"`+marker+`"}}`),
		Entry("with escapes", `{"k\u0069nd":"S\u0065cret","data":{"a":"`+marker+`"}}`),
		Entry("a token", `{"kind":"TokenRequest","status":{"token":"`+marker+`"}}`),
		Entry("the copy of a copy", workOf(configMap, workOf(embedded, ""))),
		Entry("a string in JSON", `"{\"kind\":\"Secret\",\"data\":{\"a\":\"`+marker+`\"}}"`),
		Entry("base64", base64.StdEncoding.EncodeToString([]byte(embedded))),
	)

	DescribeTable("goes from a call with a Secret when it can hold an object:", func(copied string) {
		Expect(leaks(`"`+copied+`"`)).To(BeFalse(), "no repetition of a value is found here")
		w := newWorld(allow)
		w.allowed(review(workOf(embedded, copied, `"b":`+quoted("x, y: "+strings.Repeat("z", 200))+"")))
		text := w.only()
		Expect(text).NotTo(ContainSubstring(`last-applied-configuration":`))
		Expect(text).To(ContainSubstring(`"annotations":{"a":"b","b":"x, y: z`), "others stay")
	},
		Entry("JSON", `{"data":{"password":"b2xkZXI="}}`),
		Entry("a list", `["older"]`),
		Entry("a string in JSON", `"{}"`),
		Entry("cut off", `{"kind":"Secr`),
		Entry("JSON in base64", base64.StdEncoding.EncodeToString([]byte(`{"data":{"password":"b2xkZXI="}}`))),
		Entry("YAML", "data:\n  password: older\n"),
		Entry("YAML in base64", base64.StdEncoding.EncodeToString([]byte("data:\n  password: older\n"))),
		Entry("packed, as Rancher does", packed(`{"data":{"password":"b2xkZXI="}}`)),
		Entry("packed so that it cannot be unpacked", packed(`{"data":{"password":"b2xkZXI="}}`)[:40]),
		Entry("anything long", strings.Repeat("x ", 200)),
	)

	It("goes under the names that other tools give it", func() {
		for _, name := range []string{"kapp.k14s.io/original", "kapp.k14s.io/original-diff", "kopf.zalando.org/last-handled-configuration", "banzaicloud.com/last-applied", rancher, "KAPP.k14s.io\\/Original"} {
			w := newWorld(allow)
			w.allowed(review(workOf(configMap, "", `"`+name+`":`+quoted(embedded))))
			text := w.only()
			Expect(leaks(text)).To(BeFalse(), text)
		}
	})

	DescribeTable("goes under any name when it is JSON and holds a Secret:", func(copied string) {
		const mine = `"my.tool/copy"`
		for _, body := range []string{
			review(workOf(configMap, "", mine+":"+quoted(copied))), review(workOf(embedded, "", mine+":"+quoted(copied))),
			secretReview(`{"kind":"Secret","metadata":{"annotations":{"a":"b",` + mine + ":" + quoted(copied) + `}},"data":{"a":"` + inBase64 + `"}}`),
			review(pod, `"oldObject":{"metadata":{"ANNOTATIONS":{"a":"b",`+mine+":"+quoted(copied)+`}}}`),
		} {
			w := newWorld(allow)
			ask(answering(w, answerSaying(`,"warnings":["it is `+marker+`"]`)), body)
			text := w.only()
			Expect(leaks(text)).To(BeFalse(), text)
			Expect(text).To(And(ContainSubstring(`"a":"b"`), Not(ContainSubstring(mine+":"))))
			Expect(w.read()[0].Redacted).To(ContainElement(HaveSuffix(`["my.tool/copy"]`)))
		}
	},
		Entry("as it is", embedded),
		Entry("in a list", "["+embedded+"]"),
		Entry("in the copy of another tool", workOf(configMap, "", `"your.tool/copy":`+quoted(embedded))),
		Entry("in base64", base64.StdEncoding.EncodeToString([]byte(embedded))),
		Entry("as a string", quoted(embedded)),
		Entry("a token", `{"kind":"TokenRequest","status":{"token":"`+marker+`"}}`),
	)

	DescribeTable("stays when there is nothing secret in it:", func(object string) {
		w := newWorld(allow)
		body := review(object)
		w.allowed(body)
		Expect(w.only()).To(beTheRequestOf(body))
		Expect(w.read()[0].Redacted).To(BeEmpty())
	},
		Entry("nor in the object", workOf(configMap, withoutCopy(configMap))),
		Entry("but the name of a Secret", workOf(configMap, `{"volumes":[{"secret":{"secretName":"db"}}]}`)),
		Entry("a hash", workOf(configMap, "Zm9vYmFy")),
		Entry("packed", workOf(configMap, "", `"`+rancher+`":"`+packed(configMap)+`"`)),
		Entry("empty", workOf(configMap, "", quoted(copiedName)+`:""`)),
		Entry("but a reference to a Secret, in another annotation", workOf(configMap, "", `"example.com/x":`+quoted(`{"ref":{"kind":"Secret","name":"db"}}`))),
		Entry("but words about a Secret, in another annotation", workOf(configMap, "", `"example.com/x":"kind: Secret"`, `"example.com/y":"`+base64.StdEncoding.EncodeToString([]byte("the kind is Secret"))+`"`)),
		Entry("who manages it", `{"metadata":{"managedFields":[{"fieldsV1":{"f:metadata":{"f:annotations":{"f:kubectl.kubernetes.io/last-applied-configuration":{}}}}}]}}`),
	)

	DescribeTable("goes from a patch:", func(object string, operations ...jsonpatch.Operation) {
		checkPatch(review(object), operations...)
	},
		Entry("of an object that holds a Secret", workOf(embedded, withoutCopy(embedded)), op("replace", atCopy, `{"x":"`+marker+`"}`), op("add", "/x", 1), op("test", atCopy, `{"x":"`+marker+`"}`), op("remove", atCopy, nil)),
		Entry("of an item of a List that holds a Secret", `{"kind":"List","items":[`+workOf(embedded, withoutCopy(embedded))+`]}`, op("replace", "/items/0"+atCopy, `["`+marker+`"]`)),
		Entry("all annotations of an object that holds a Secret", workOf(embedded, ""), op("replace", "/metadata/annotations", map[string]any{"a": "b", copiedName: "{" + marker})),
		Entry("of an object whose copy alone holds a Secret", workOf(configMap, withoutCopy(embedded)), op("replace", atCopy, `{"x":"`+marker+`"}`)),
		Entry("that holds one itself", workOf(configMap, ""), op("add", atCopy, withoutCopy(embedded)), op("add", "/x", 1)),
		Entry("of any name that holds one itself", workOf(configMap, ""), op("add", "/metadata/annotations/my.tool~1copy", embedded), op("add", "/x", marker)),
		Entry("of any name that holds one itself, with the others", workOf(configMap, ""), op("replace", "/metadata/annotations", map[string]any{"a": "b", "my.tool/copy": embedded})),
		Entry("of any name that comes and goes", workOf(configMap, ""), op("add", "/metadata/annotations/my.tool~1copy", embedded), op("remove", "/metadata/annotations/my.tool~1copy", nil)),
		Entry("of any name that held one", workOf(configMap, "", `"my.tool/copy":`+quoted(embedded)), op("replace", "/metadata/annotations/my.tool~1copy", "x")),
		Entry("that adds a Secret", workOf(configMap, ""),
			op("add", "/spec/workload/manifests/-", map[string]any{"kind": "Secret", "stringData": map[string]any{"a": marker}}), op("add", atCopy, `{"x":"`+marker+`"}`)),
		Entry("of a token that is embedded", workOf(`{"kind":"TokenReview","spec":{}}`, ""), op("add", "/spec/workload/manifests/0/spec/token", marker)),
		Entry("of a token in a list", `{"kind":"List","items":[{"kind":"TokenReview","spec":{}}]}`, op("add", "/items/0/spec/token", marker)),
	)

	It("stays in a patch when there is nothing secret in it", func() {
		patch, err := json.Marshal([]any{op("replace", atCopy, withoutCopy(configMap)), op("add", "/metadata/annotations/x", `{"kind":"Secret"}`)})
		Expect(err).NotTo(HaveOccurred())
		w := newWorld(allow)
		ask(answering(w, answerWith(base64.StdEncoding.EncodeToString(patch))), review(workOf(configMap, withoutCopy(configMap))))
		w.close()
		Expect(string(w.read()[0].Review.Response.Patch)).To(Equal(string(patch)))
	})

	It("goes with the whole call when a patch holds a Secret and an invalid operation", func() {
		w := newWorld(allow)
		ask(answering(w, answerWith(base64.StdEncoding.EncodeToString([]byte(`[1,{"op":"add","path":"/x","value":`+embedded+`}]`)))), review(pod))
		w.close()
		Expect(w.files()).To(BeEmpty())
		Expect(w.counted()).To(HaveField("Failed", 1))
	})
})
