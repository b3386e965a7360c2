package record_test

import (
	"context"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strings"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"gomodules.xyz/jsonpatch/v2"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"

	"code.cloudfoundry.org/eirinix/internal/record"
)

// answerSaying is an answer with the members in its response, whose patch consists of the operations.
func answerSaying(members string, operations ...jsonpatch.Operation) string {
	GinkgoHelper()
	patch, err := json.Marshal(operations)
	Expect(err).NotTo(HaveOccurred())
	return strings.Replace(answerWith(base64.StdEncoding.EncodeToString(patch)), `"allowed":true`, `"allowed":true`+members, 1)
}

// secretOf is a review about a list with a Secret with these values.
func secretOf(values ...string) string {
	var data []string
	for i, value := range values {
		data = append(data, fmt.Sprintf(`"key%d":"%s"`, i, base64.StdEncoding.EncodeToString([]byte(value))))
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

var _ = Describe("A secret that the program repeats", func() {
	replay := func(body, answer string) (record.Recorded, string) {
		GinkgoHelper()
		w := newWorld(allow)
		ask(answering(w, answer), body)
		text := w.only()
		return w.read()[0], text
	}

	DescribeTable("goes from the patch:", func(body string, operation jsonpatch.Operation, want string) {
		got, text := replay(body, answerSaying("", operation))
		Expect(leaks(text)).To(BeFalse(), text)
		Expect(string(got.Review.Response.Patch)).To(MatchJSON("[" + want + "]"))
		Expect(got.Redacted).To(ContainElement("response.patch (made anew)"))
	},
		Entry("as it is", secretOf(marker), op("add", "/metadata/annotations/leak", marker), `{"op":"add","path":"/metadata/annotations/leak","value":"redacted"}`),
		Entry("in base64", secretOf(marker), op("add", "/metadata/annotations/leak", inBase64), `{"op":"add","path":"/metadata/annotations/leak","value":"cmVkYWN0ZWQ="}`),
		Entry("in base64 without padding", secretOf(marker), op("add", "/a", strings.TrimRight(inBase64, "=")), `{"op":"add","path":"/a","value":"cmVkYWN0ZWQ"}`),
		Entry("in base64 for URLs", secretOf("??>>"+marker), op("add", "/a", base64.URLEncoding.EncodeToString([]byte("??>>"+marker))), `{"op":"add","path":"/a","value":"cmVkYWN0ZWQ="}`),
		Entry("in base64 with more", secretOf(marker), op("add", "/a", base64.StdEncoding.EncodeToString([]byte("user:"+marker))), `{"op":"add","path":"/a","value":"`+withUser+`"}`),
		Entry("in base64 for URLs with more of its characters", secretOf(marker), op("add", "/a", base64.RawURLEncoding.EncodeToString([]byte("???"+marker))), `{"op":"add","path":"/a","value":"`+base64.RawURLEncoding.EncodeToString([]byte("???redacted"))+`"}`),
		Entry("in the base64 of base64", secretOf(marker), op("add", "/a", base64.StdEncoding.EncodeToString([]byte("x"+base64.StdEncoding.EncodeToString([]byte("user:"+marker))))), `{"op":"add","path":"/a","value":"`+base64.StdEncoding.EncodeToString([]byte("x"+withUser))+`"}`),
		Entry("in base64 with more, in which its own stands", secretOf(marker+"x"), op("add", "/a", base64.StdEncoding.EncodeToString([]byte("us:"+marker+"x!!"))), `{"op":"add","path":"/a","value":"`+base64.StdEncoding.EncodeToString([]byte("us:redacted!!"))+`"}`),
		Entry("in base64 for URLs with more", secretOf("??>>"+marker), op("add", "/a", base64.URLEncoding.EncodeToString([]byte("user:??>>"+marker))), `{"op":"add","path":"/a","value":"`+withUser+`"}`),
		Entry("in base64, of lines", secretOf(marker), op("add", "/a", "x: "+inLines(base64.StdEncoding.EncodeToString([]byte("user:"+marker)))+"!"), `{"op":"add","path":"/a","value":"x: `+withUser+`!"}`),
		Entry("in base64 behind a path", secretOf(marker), op("add", "/a", "a/path/"+base64.RawURLEncoding.EncodeToString([]byte("user:"+marker))+"?"), `{"op":"add","path":"/a","value":"a/path/`+strings.TrimRight(withUser, "=")+`?"}`),
		Entry("in a header", secretOf(marker), op("add", "/a", "Basic "+base64.StdEncoding.EncodeToString([]byte("user:"+marker))), `{"op":"add","path":"/a","value":"Basic `+withUser+`"}`),
		Entry("in a header, in a URL", secretOf(marker), op("add", "/a", "?h="+url.QueryEscape("Basic "+base64.StdEncoding.EncodeToString([]byte("user:"+marker)))), `{"op":"add","path":"/a","value":"?h=Basic+`+strings.TrimRight(withUser, "=")+`%3D%3D"}`),
		Entry("in the query of a URL", secretOf("a b/"+marker+"&+%"), op("add", "/a", "https://x/?p="+url.QueryEscape("a b/"+marker+"&+%")+"&q=1%20"), `{"op":"add","path":"/a","value":"https://x/?p=redacted&q=1%20"}`),
		Entry("in the path of a URL", secretOf("a b/"+marker+"&+%"), op("add", "/a", "https://x/"+url.PathEscape("a b/"+marker+"&+%")+"/1%20"), `{"op":"add","path":"/a","value":"https://x/redacted/1%20"}`),
		Entry("as the password of a URL", secretOf("p/:@"+marker), op("add", "/a", (&url.URL{Scheme: "db", User: url.UserPassword("u", "p/:@"+marker), Host: "h"}).String()), `{"op":"add","path":"/a","value":"db://u:redacted@h"}`),
		Entry("in hexadecimal", secretOf(marker), op("add", "/a", fmt.Sprintf("0x%x, %X", marker, marker)), `{"op":"add","path":"/a","value":"0x7265646163746564, 7265646163746564"}`),
		Entry("in hexadecimal with more", secretOf(marker), op("add", "/a", hex.EncodeToString([]byte("user:"+marker))), `{"op":"add","path":"/a","value":"757365723a7265646163746564"}`),
		Entry("as bytes that are printed", secretOf(marker), op("add", "/a", fmt.Sprintf("x %v 7", []byte("u:"+marker))), `{"op":"add","path":"/a","value":"x [117 58 114 101 100 97 99 116 101 100] 7"}`),
		Entry("as bytes in JSON in a text", secretOf(marker), op("add", "/a", strings.ReplaceAll(fmt.Sprint([]byte(marker)), " ", ",")), `{"op":"add","path":"/a","value":"[114,101,100,97,99,116,101,100]"}`),
		Entry("as bytes in JSON", secretOf(marker), op("add", "/a", []any{1000, numbers(marker), map[string]any{"b": numbers("u:" + marker)}}),
			`{"op":"add","path":"/a","value":[1000,[114,101,100,97,99,116,101,100],{"b":[117,58,114,101,100,97,99,116,101,100]}]}`),
		Entry("in the middle", secretOf(marker), op("add", "/a", "db://user:"+marker+"@host,"+marker), `{"op":"add","path":"/a","value":"db://user:redacted@host,redacted"}`),
		Entry("without the line's end", secretOf(marker+"\n"), op("add", "/a", marker), `{"op":"add","path":"/a","value":"redacted"}`),
		Entry("in JSON", secretOf("\"<\n"+marker+"\""), op("add", "/a", `{"x":"\"<\n`+marker+`\""}`), `{"op":"add","path":"/a","value":"{\"x\":\"redacted\"}"}`),
		Entry("in JSON for HTML", secretOf("<"+marker+"&"), op("add", "/a", `{"x":"\u003c`+marker+`\u0026"}`), `{"op":"add","path":"/a","value":"{\"x\":\"redacted\"}"}`),
		Entry("as several that begin alike", secretOf(marker[:7], marker[:8], marker[:9], marker, marker[:10], marker[:11]), op("add", "/a", strings.Repeat(marker+" ", 9)),
			`{"op":"add","path":"/a","value":"`+strings.Repeat("redacted ", 9)+`"}`),
		Entry("as two that overlap", secretOf(marker, "hunter2-and-more"), op("add", "/a", "x"+marker+"-and-morey"), `{"op":"add","path":"/a","value":"xredacted-and-morey"}`),
		Entry("as one in another", secretOf(marker, marker[2:10]), op("add", "/a", "x"+marker+"y"), `{"op":"add","path":"/a","value":"xredactedy"}`),
		Entry("deep below, and as the name of a label", secretOf(marker), op("add", "/a", map[string]any{"b": []any{marker, 1, map[string]any{"labels": map[string]any{marker: true}}}}), `{"op":"add","path":"/a","value":{"b":["redacted",1,{"labels":{"redacted":true}}]}}`),
		Entry("as a name in a path", secretOf(marker+"/~"), op("add", "/metadata/annotations/"+marker+"~1~0", "x"), `{"op":"add","path":"/metadata/annotations/redacted","value":"x"}`),
		Entry("from a Secret that is embedded", review(workOf(embedded, "")), op("add", "/a", marker), `{"op":"add","path":"/a","value":"redacted"}`),
		Entry("from the old one", review(pod, `"oldObject":`+secret), op("add", "/a", marker), `{"op":"add","path":"/a","value":"redacted"}`),
		Entry("from another operation", review(pod), op("add", "/a", map[string]any{"b": marker, "c": map[string]any{"kind": "Secret", "data": map[string]any{"p": inBase64}}}),
			`{"op":"add","path":"/a","value":{"b":"redacted","c":{"kind":"Secret","data":{"p":"cmVkYWN0ZWQ="}}}}`),
		Entry("from a token", review(`{"kind":"TokenReview","metadata":{"annotations":{}},"spec":{"token":"`+marker+`"}}`), op("add", "/metadata/annotations/a", "Bearer "+marker), `{"op":"add","path":"/metadata/annotations/a","value":"Bearer redacted"}`),
		Entry("from the user", strings.ReplaceAll(review(pod), `"username":"alice"`, `"username":"alice","extra":{"x-token":["`+marker+`"]}`), op("add", "/a", marker), `{"op":"add","path":"/a","value":"redacted"}`),
	)

	It("goes from warnings, messages and audit annotations", func() {
		got, text := replay(secretOf(marker), answerSaying(`,"warnings":["fine","it is `+marker+`"],"status":{"message":"not `+marker+`","details":{"causes":[{"message":"`+inBase64+`"}]}},`+
			`"auditAnnotations":{"a":"`+marker+`","`+marker+`":"b"}`))
		Expect(leaks(text)).To(BeFalse(), text)
		response := got.Review.Response
		Expect(response.Warnings).To(Equal([]string{"fine", "it is redacted"}))
		Expect(response.Result.Message).To(Equal("not redacted"))
		Expect(response.Result.Details.Causes[0].Message).To(Equal("cmVkYWN0ZWQ="))
		Expect(response.AuditAnnotations).To(Equal(map[string]string{"a": "redacted", "redacted": "b"}))
		Expect(got.Redacted).To(ConsistOf("request.object.items[0].data", "response.warnings (repeated a secret)", "response.status (repeated a secret)", "response.auditAnnotations (repeated a secret)"))
	})

	It("goes from warnings, errors and audit annotations in other spellings, too", func() {
		for _, spelt := range []string{
			url.QueryEscape("p/@" + marker), hex.EncodeToString([]byte("p/@" + marker)), fmt.Sprint([]byte("p/@" + marker)),
			"Basic " + base64.StdEncoding.EncodeToString([]byte("user:p/@"+marker)), base64.StdEncoding.EncodeToString([]byte(base64.StdEncoding.EncodeToString([]byte("user:p/@" + marker)))),
		} {
			_, text := replay(secretOf("p/@"+marker), answerSaying(`,"warnings":["it is `+spelt+`"],"auditAnnotations":{"a":"it is `+spelt+`"}`))
			Expect(text).NotTo(ContainSubstring(spelt))
			w := newWorld(func(context.Context, admission.Request) admission.Response {
				return admission.Errored(http.StatusInternalServerError, errors.New(spelt))
			})
			w.post(path, secretOf("p/@"+marker))
			Expect(w.read()[0].Error).NotTo(ContainSubstring(spelt))
		}
	})

	It("goes from an error, even where that is cut off", func() {
		const prefix = `step "volumes" failed: `
		var before int
		w := newWorld(func(context.Context, admission.Request) admission.Response {
			return admission.Errored(http.StatusInternalServerError, errors.New(strings.Repeat("x", before)+marker))
		})
		for _, end := range []int{10, 8, 6} {
			before = 16<<10 - len(prefix) - end
			w.post(path, secretOf(marker))
		}
		all := w.read()
		Expect(all).To(HaveLen(3))
		for _, r := range all {
			end := strings.TrimLeft(strings.TrimPrefix(r.Error, prefix), "x")
			Expect(end).To(HavePrefix("redact"))
		}
	})

	It("goes when the patch is made anew because of the hook", func() {
		w := newWorld(allow, redacting(func(o map[string]any) { delete(o, "x") }))
		ask(answering(w, answerSaying("", op("add", "/x", 1), op("add", "/leak", marker))), secretOf(marker))
		Expect(leaks(w.only())).To(BeFalse())
		Expect(string(w.read()[0].Review.Response.Patch)).To(MatchJSON(`[{"op":"add","path":"/leak","value":"redacted"}]`))
	})

	It("goes from a path even when the request has it as a value", func() {
		got, _ := replay(secretReview(`{"metadata":{"labels":{"a":"`+marker+`"}},"data":{"password":"`+inBase64+`"}}`), answerSaying("", op("add", "/metadata/labels/"+marker, "x")))
		Expect(string(got.Review.Response.Patch)).To(MatchJSON(`[{"op":"add","path":"/metadata/labels/redacted","value":"x"}]`))
	})

	DescribeTable("leaves values that only look like it:", func(value string, operation jsonpatch.Operation) {
		patch, err := json.Marshal([]any{operation})
		Expect(err).NotTo(HaveOccurred())
		got, _ := replay(secretOf(value), answerSaying(`,"warnings":["it is short"],"status":{"message":"fine"}`, operation))
		Expect(got.Review.Response.Patch).To(MatchJSON(patch))
		Expect(got.Review.Response.Warnings).To(Equal([]string{"it is short"}))
		Expect(got.Review.Response.Result.Message).To(Equal("fine"))
		Expect(got.Redacted).To(ConsistOf("request.object.items[0].data", "response.patch (made anew)"))
	},
		Entry("a short value", "short", op("add", "/a", "short")),
		Entry("a short value in hexadecimal", "true", op("add", "/a", "74727565")),
		Entry("the name of an operation", "replace", op("replace", "/kind", "Pod")),
		Entry("names that the request has", "metadata", op("add", "/metadata/labels", map[string]any{"a": "b"})),
		Entry("names of the review", "warnings", op("add", "/a", 1)),
		Entry("names below in the review", "message", op("add", "/a", 1)),
	)

	It("keeps a call unwritten when it stands in a malformed patch", func() {
		for _, patch := range []string{base64.StdEncoding.EncodeToString([]byte(`[{"` + marker)), inBase64} {
			w := newWorld(allow)
			ask(answering(w, answerWith(patch)), strings.ReplaceAll(review(pod), `"username":"alice"`, `"username":"alice","extra":{"x-token":["`+marker+`"]}`))
			w.close()
			Expect(w.files()).To(BeEmpty())
			Expect(w.counted()).To(Equal(record.Counts{Failed: 1}))
		}
	})

	It("stays on request", func() {
		w := newWorld(allow, func(o *record.Options) { o.SecretData = true })
		answer := answerSaying(`,"warnings":["`+marker+`"]`, op("add", "/leak", marker))
		ask(answering(w, answer), secretOf(marker))
		got := w.read()[0]
		Expect(got.Review.Response.Warnings).To(Equal([]string{marker}))
		Expect(string(got.Review.Response.Patch)).To(ContainSubstring(marker))
	})
})
