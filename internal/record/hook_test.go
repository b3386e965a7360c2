package record_test

import (
	"encoding/base64"
	"encoding/json"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	jsonpatchv4 "gopkg.in/evanphx/json-patch.v4"

	"code.cloudfoundry.org/eirinix/internal/record"
)

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

func redacting(hook func(map[string]any)) func(*record.Options) {
	return func(o *record.Options) { o.Redact = hook }
}

func podWith(env string) string {
	return `{"kind":"Pod","metadata":{"name":"web-0","generation":12345678901234567890,"x":1.50},"spec":{"containers":[{"name":"web<1>","env":[{"name":"PASSWORD","value":"` + env + `"}]}]}}`
}

var _ = Describe("A value that only the program knows to be secret", func() {
	It("is taken out of both objects, by its hook, and numbers stay as they are spelt", func() {
		w := newWorld(allow, redacting(withoutEnv))
		w.allowed(review(podWith(marker), `"oldObject":`+podWith(marker)))
		text := w.only()
		Expect(leaks(text)).To(BeFalse(), text)
		got := w.read()[0]
		for _, raw := range [][]byte{got.Review.Request.Object.Raw, got.Review.Request.OldObject.Raw} {
			Expect(string(raw)).To(MatchJSON(podWith("none of your business")))
			Expect(string(raw)).To(And(ContainSubstring(`12345678901234567890`), ContainSubstring(`1.50`), ContainSubstring(`web<1>`)))
		}
		Expect(got.Redacted).To(Equal([]string{"request.object (by Redact)", "request.oldObject (by Redact)"}))
	})

	It("changes nothing where it takes out nothing", func() {
		w := newWorld(allow, redacting(withoutEnv))
		body := review(`{ "b":1.0, "a":"\u003c", "kind":"Pod" }`)
		w.allowed(body)
		Expect(w.only()).To(beTheRequestOf(body))
	})

	It("is shown Secrets as they will be written", func() {
		seen := make(chan map[string]any, 1)
		w := newWorld(allow, redacting(func(o map[string]any) { seen <- o }))
		w.allowed(secretReview(secret))
		w.close()
		text, err := json.Marshal(<-seen)
		Expect(err).NotTo(HaveOccurred())
		Expect(leaks(string(text))).To(BeFalse())
	})

	It("does not survive in a member that comes twice, of which the hook sees one", func() {
		w := newWorld(allow, redacting(withoutEnv))
		w.allowed(review(`{"kind":"Pod","spec":{"containers":[{"env":[{"value":"` + marker + `"}]}]},"spec":{}}`))
		Expect(leaks(w.only())).To(BeFalse())
	})

	DescribeTable("does not survive in the patch:", func(operations string) {
		original := podWith(marker)
		w := newWorld(allow, redacting(withoutEnv))
		ask(answering(w, answerWith(base64.StdEncoding.EncodeToString([]byte(operations)))), review(original))
		text := w.only()
		Expect(leaks(text)).To(BeFalse(), text)
		got := w.read()[0]

		// The recorded patch turns the recorded object into the redacted form of the real result.
		patch, err := jsonpatchv4.DecodePatch(got.Review.Response.Patch)
		Expect(err).NotTo(HaveOccurred())
		made, err := patch.Apply(got.Review.Request.Object.Raw)
		Expect(err).NotTo(HaveOccurred())
		patch, err = jsonpatchv4.DecodePatch([]byte(operations))
		Expect(err).NotTo(HaveOccurred())
		want, err := patch.Apply([]byte(original))
		Expect(err).NotTo(HaveOccurred())
		object := members(string(want))
		withoutEnv(object)
		left, err := json.Marshal(object)
		Expect(err).NotTo(HaveOccurred())
		Expect(string(made)).To(MatchJSON(left))
		Expect(got.Redacted).To(ContainElement("response.patch (made anew)"))
	},
		Entry("as a value", `[{"op":"add","path":"/spec/containers/0/env/-","value":{"name":"b","value":"`+marker+`"}}]`),
		Entry("in a container", `[{"op":"add","path":"/spec/containers/-","value":{"env":[{"value":"`+marker+`"}]}}]`),
		Entry("in a test", `[{"op":"test","path":"/spec/containers/0/env/0/value","value":"`+marker+`"},{"op":"add","path":"/metadata/a~1b~0c","value":"d"},{"op":"remove","path":"/kind"}]`),
		Entry("in a test of a value that is removed thereafter", `[{"op":"test","path":"/spec/containers/0/env/0/value","value":"`+marker+`"},{"op":"remove","path":"/spec"}]`),
		Entry("on the way", `[{"op":"add","path":"/x","value":"`+marker+`"},{"op":"remove","path":"/x"},{"op":"replace","path":"/metadata/name","value":null}]`),
	)

	It("does not survive in the patch of an object that held none", func() {
		w := newWorld(allow, redacting(withoutEnv))
		ask(answering(w, answerWith(base64.StdEncoding.EncodeToString([]byte(`[{"op":"add","path":"/spec/containers/-","value":{"env":[{"value":"`+marker+`"}]}}]`)))), review(pod))
		text := w.only()
		Expect(leaks(text)).To(BeFalse(), text)
		Expect(w.read()[0].Redacted).To(Equal([]string{"response.patch (made anew)"}))
	})

	It("may be looked for in Secrets, too, and the patch still applies to the redacted object", func() {
		w := newWorld(allow, redacting(func(o map[string]any) { delete(o, "type") }))
		ask(answering(w, answerWith(base64.StdEncoding.EncodeToString([]byte(`[{"op":"remove","path":"/metadata/annotations/kubectl.kubernetes.io~1last-applied-configuration"},`+
			`{"op":"test","path":"/metadata/annotations/a","value":"b"},{"op":"add","path":"/data/x","value":"`+inBase64+`"},{"op":"add","path":"/metadata/labels","value":{}}]`)))), secretReview(secret))
		text := w.only()
		Expect(leaks(text)).To(BeFalse(), text)
		Expect(string(w.read()[0].Review.Response.Patch)).To(MatchJSON(`[{"op":"add","path":"/data/x","value":"cmVkYWN0ZWQ="},{"op":"add","path":"/metadata/labels","value":{}}]`))
	})

	It("leaves a patch as it is where nothing was taken out", func() {
		operations := `[ {"op":"add","path":"/metadata/labels","value":{"a":"b"}} ]`
		w := newWorld(allow, redacting(withoutEnv))
		ask(answering(w, answerWith(base64.StdEncoding.EncodeToString([]byte(operations)))), review(pod))
		Expect(string(w.read()[0].Review.Response.Patch)).To(Equal(operations))
	})

	DescribeTable("keeps a call unwritten when the hook", func(hook func(map[string]any), answer, why string) {
		first := true
		w := newWorld(allow, redacting(func(o map[string]any) {
			if first {
				first = false
				hook(o)
			}
		}))
		ask(answering(w, answer), review(podWith(marker)))
		w.allowed(review(pod))
		Expect(w.read()).To(HaveLen(1), "the next call is recorded")
		Expect(w.counted()).To(Equal(record.Counts{Failed: 1, Written: 1}))
		Expect(w.logs.all()).To(ConsistOf(And(ContainSubstring(why), Not(ContainSubstring(marker)))))
	},
		Entry("panics", func(o map[string]any) { _ = o["spec"].(string) }, answerWith(""), "interface conversion: interface {} is map[string]interface {}, not string"),
		Entry("panics with the object", func(o map[string]any) { panic(o["spec"]) }, answerWith(""), "Redact panicked (with a map[string]interface {})"),
		Entry("leaves a value that is no JSON", func(o map[string]any) { o["a"] = make(chan int) }, answerWith(""), "Redact left an object that is not JSON"),
		Entry("cannot see the result of a patch that is no patch", func(map[string]any) {}, answerWith("eyJhIjoxfQ=="), "the patch is no JSON patch"),
		Entry("cannot see the result of a patch that does not apply", func(map[string]any) {}, answerWith(base64.StdEncoding.EncodeToString([]byte(`[{"op":"remove","path":"/nowhere"}]`))), "does not apply"),
	)
})
