package audit

// Specs of the requests that steps are asked with, and of the answers.

import (
	"errors"
	"fmt"
	"strings"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	kjson "sigs.k8s.io/json"

	"code.cloudfoundry.org/eirinix/internal/chain"
	"code.cloudfoundry.org/eirinix/internal/hang"
)

var _ = DescribeTable("An object that is created again lacks what the cluster has added, and nothing else", func(stored, expected string) {
	typed := func(text string) string {
		return strings.TrimSuffix(`{"apiVersion":"v1","kind":"A",`+text[1:len(text)-1], ",") + "}"
	}
	_, created := resource{}.texts([]byte(typed(stored)))
	Expect(created).To(MatchJSON(typed(expected)))
	for _, member := range []string{`"n":12345678901234567890`, `"f":1.0`, `"t":"<a>\u00e9\/é"`} {
		if strings.Contains(stored, member) {
			Expect(string(created)).To(ContainSubstring(member), "its text stays as it is")
		}
	}
},
	Entry("the members of metadata",
		`{"metadata":{"name":"a","uid":"1","resourceVersion":"2","generation":3,"creationTimestamp":"x","deletionTimestamp":"x","deletionGracePeriodSeconds":4,"managedFields":[{}],"selfLink":"/","labels":{"uid":"kept"},"generateName":"g","finalizers":["f"],"ownerReferences":[{"uid":"kept"}]}}`,
		`{"metadata":{"finalizers":["f"],"generateName":"g","labels":{"uid":"kept"},"name":"a","ownerReferences":[{"uid":"kept"}]}}`),
	Entry("the status", `{"status":{"phase":"x"},"spec":{"status":{"kept":1}}}`, `{"spec":{"status":{"kept":1}}}`),
	Entry("numbers and texts stay as they are", `{"spec":{"n":12345678901234567890,"f":1.0,"t":"<a>\u00e9\/é"},"metadata":null}`, `{"metadata":null,"spec":{"n":12345678901234567890,"f":1.0,"t":"<a>\u00e9\/é"}}`),
	Entry("odd names", `{"a\"b":1,"<":2}`, `{"<":2,"a\"b":1}`),
	Entry("metadata that is a text", `{"metadata":"x"}`, `{"metadata":"x"}`),
	Entry("nothing", `{}`, `{}`),
)

var _ = Describe("An answer", func() {
	denied := func(message string) Verdict { return Verdict{Denied: &metav1.Status{Message: message}} }
	failed := func(text string) Verdict { return Verdict{Err: errors.New(text)} }
	patched := func(patch string) Verdict { return Verdict{Patch: []byte(patch)} }
	panicked := Verdict{Err: &hang.PanicError{Value: "x"}}

	DescribeTable("is the same for two users", func(a, b Verdict, same bool) {
		Expect(alike(a, b)).To(Equal(same))
		Expect(alike(b, a)).To(Equal(same))
	},
		Entry("if both admit", Verdict{}, Verdict{}, true),
		Entry("if both deny for the same reason", denied("no"), denied("no"), true),
		Entry("not if one denies", denied("no"), Verdict{}, false),
		Entry("not if the reasons differ", denied("no"), denied("not you"), false),
		Entry("if both make the same patch", patched("[1]"), patched("[1]"), true),
		Entry("not if the patches differ", patched("[1]"), patched("[2]"), false),
		Entry("not if one makes no patch", patched("[1]"), Verdict{}, false),
		Entry("if both fail, for any reason", failed("port 1"), failed("port 2"), true),
		Entry("not if one fails", failed("no"), denied("no"), false),
		Entry("not if one panics", failed("no"), panicked, false),
	)

	DescribeTable("holds", func(v Verdict, result Result, message string, paths ...string) {
		a := answerOf(v)
		Expect(a.Result).To(Equal(result))
		Expect(a.Message).To(Equal(message))
		Expect(strings.Join(a.Paths, " ")).To(Equal(strings.Join(paths, " ")))
	},
		Entry("nothing", Verdict{}, Passed, ""),
		Entry("the denial's message", denied("no"), Denied, "no"),
		Entry("the failure's text", failed("down"), Failed, "down"),
		Entry("a part of a long text, which stays UTF-8", failed(strings.Repeat("é", 600)), Failed, strings.Repeat("é", 500)+"..."),
		Entry("the panic's value", panicked, Failed, "it panicked: x. Later panics of the step are only counted"),
		Entry("paths in order, each once", patched(`[{"op":"add","path":"/b","value":"s3cret"},{"op":"remove","path":"/a"},{"op":"test","path":"/t"},{"op":"add","path":"/b"}]`), Drift, "it would change the object", "/a", "/b"),
		Entry("both ends of a move", patched(`[{"op":"move","from":"/a","path":"/c"},{"op":"copy","from":"/x","path":"/d"}]`), Drift, "it would change the object", "/a", "/c", "/d"),
	)

	It("names the field that does not decode, but no value", func() {
		var into struct {
			Spec struct {
				Replicas int `json:"replicas"`
			} `json:"spec"`
		}
		err := kjson.UnmarshalCaseSensitivePreserveInts([]byte(`{"spec":{"replicas":"hunter2"}}`), &into)
		Expect(err).To(HaveOccurred())
		a := answerOf(Verdict{Err: fmt.Errorf("%w: %w", chain.ErrUnreadable, err)})
		Expect(a.Message).To(Equal("the object does not decode into the type of the step: the field spec.replicas is no int"))
		a = answerOf(Verdict{Err: fmt.Errorf("%w: hunter2", chain.ErrUnreadable)})
		Expect(a.Message).To(Equal("the object does not decode into the type of the step"))
	})
})
