package apiserver_test

import (
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"code.cloudfoundry.org/eirinix/internal/apiserver"
)

var _ = Describe("A text of objects", func() {
	DescribeTable("is taken apart as kubectl does", func(text string, expected ...string) {
		all, err := apiserver.Documents([]byte(text))
		Expect(err).NotTo(HaveOccurred())
		Expect(all).To(HaveLen(len(expected)))
		for i, e := range expected {
			Expect(all[i]).To(MatchJSON(e))
		}
	},
		Entry("nothing", ""),
		Entry("comments", "# a\n---\n# b\n"),
		Entry("YAML", "a: 1\n---\n# none\n---\nb: 2\n", `{"a": 1}`, `{"b": 2}`),
		Entry("with carriage returns", "a: 1\r\n---\r\nb: 2\r\n", `{"a": 1}`, `{"b": 2}`),
		Entry("with a byte order mark", "\ufeffa: 1\n", `{"a": 1}`),
		Entry("JSON", `{"a": 1}`, `{"a": 1}`),
		Entry("JSON after JSON", `{"a": 1}{"b": 2}`+"\n"+`{"c": 3}`, `{"a": 1}`, `{"b": 2}`, `{"c": 3}`),
		Entry("JSON after YAML", "a: 1\n---\n{\"b\": 2}\n", `{"a": 1}`, `{"b": 2}`),
		Entry("null", "null\n---\na: 1\n", `{"a": 1}`),
	)

	DescribeTable("that is none is refused, and not read by half", func(text, message string) {
		_, err := apiserver.Documents([]byte(text))
		Expect(err).To(MatchError(ContainSubstring(message)))
	},
		Entry("text after JSON", `{"a": 1} garbage: [`, "neither JSON nor YAML"),
		Entry("text after JSON, in a document of its own", "{\"a\": 1}\n---\ngarbage: [", "neither JSON nor YAML"),
		Entry("a template", "a: {{ .Values.a }}\nb: [", "neither JSON nor YAML"),
		Entry("UTF-16", "\xff\xfea\x00:\x00", "perhaps UTF-16"),
		Entry("UTF-16 without a mark", "a\x00:\x00 \x001\x00", "perhaps UTF-16"),
	)

	It("is one object where one is asked for", func() {
		_, err := apiserver.ReadDocument([]byte("{apiVersion: v1, kind: Pod}\n---\n{apiVersion: v1, kind: Pod}"))
		Expect(err).To(MatchError(ContainSubstring("several objects; give one at a time")))
		_, err = apiserver.ReadDocument([]byte("# nothing"))
		Expect(err).To(MatchError(ContainSubstring("the text holds no object")))
		d, err := apiserver.ReadDocument([]byte(`{"apiVersion": "v1", "kind": "Pod", "spec": {"big": 12345678901234567890.0}}`))
		Expect(err).NotTo(HaveOccurred())
		Expect(string(d.Raw)).To(ContainSubstring("12345678901234567890.0"))
	})
})
