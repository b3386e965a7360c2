package record_test

// A value that was taken out of a Secret or a token does not stay elsewhere in the call, in any usual spelling. Names,
// and texts that only look like a value, stay.

import (
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

	"code.cloudfoundry.org/eirinix/internal/record"
	. "code.cloudfoundry.org/eirinix/internal/spectest"
)

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
