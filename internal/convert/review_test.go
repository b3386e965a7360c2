package convert_test

// This file holds the specs of reviews and their answers.

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"strings"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"code.cloudfoundry.org/eirinix/internal/convert"
)

var _ = Describe("A ConversionReview", func() {
	valid := string(review("v1"))

	DescribeTable("is refused",
		func(body, reason string) {
			answer, err := cronJobs().Answer(context.Background(), []byte(body), nil)
			Expect(answer).To(BeNil())
			var refusal *convert.Refusal
			Expect(errors.As(err, &refusal)).To(BeTrue(), "%v", err)
			Expect(refusal.Status).To(Equal(http.StatusBadRequest))
			Expect(refusal.Reason).To(ContainSubstring(reason))
			Expect(len(refusal.Reason)).To(BeNumerically("<", 600))
		},
		Entry("without a body", "", "not a ConversionReview"),
		Entry("that is not JSON", "x", "not well-formed"),
		Entry("that is cut short", valid[:len(valid)-1], "not well-formed"),
		Entry("that more text follows", valid+"x", "not well-formed"),
		Entry("that nests too deep", strings.Replace(valid, `"u-1"`, `"u-1","x":`+strings.Repeat("[", 20000)+strings.Repeat("]", 20000), 1), "nests too deep"),
		Entry("of another kind", strings.Replace(valid, "ConversionReview", "AdmissionReview", 1), `kind "AdmissionReview"`),
		Entry("of another version", strings.Replace(valid, "apiextensions.k8s.io/v1", "apiextensions.k8s.io/v2", 1), "send one of apiextensions.k8s.io/v1 or v1beta1"),
		Entry("without a request", `{"kind":"ConversionReview","apiVersion":"apiextensions.k8s.io/v1"}`, "no request"),
		Entry("whose request is null", `{"kind":"ConversionReview","apiVersion":"apiextensions.k8s.io/v1","request":null}`, "no request"),
		Entry("whose request is no object", `{"kind":"ConversionReview","apiVersion":"apiextensions.k8s.io/v1","request":7}`, "not well-formed"),
		Entry("without a uid", strings.Replace(valid, `"uid":"u-1",`, "", 1), "no uid"),
		Entry("whose uid is a number", strings.Replace(valid, `"u-1"`, `1`, 1), "not a string"),
		Entry("whose uid is too long", strings.Replace(valid, `u-1`, strings.Repeat("u", 254), 1), "uid has 254 bytes"),
		Entry("with two uids", strings.Replace(valid, `"uid"`, `"uid":"x","uid"`, 1), `"uid" occurs twice`),
		Entry("with two uids, of which one is escaped", strings.Replace(valid, `"uid"`, `"\u0075id":"x","uid"`, 1), `"uid" occurs twice`),
		Entry("whose objects are no list", strings.Replace(valid, "[]", "{}", 1), "not well-formed"),
		Entry("whose objects hold a syntax error behind a wrong object", strings.Replace(valid, "[]", "[7,{]", 1), "not well-formed"),
		Entry("whose desired version is a number", strings.Replace(valid, `"batch.example.com/v1"`, "1", 1), "desiredAPIVersion is not a string"),
	)

	It("takes the longest uid and returns it in the same form", func() {
		uid := strings.Repeat("é", 100) + `\u00e9\"` + strings.Repeat("u", 50)
		answer, err := cronJobs().Answer(context.Background(), []byte(strings.Replace(valid, "u-1", uid, 1)), nil)
		Expect(err).NotTo(HaveOccurred())
		Expect(string(answer)).To(ContainSubstring(`"uid":"` + uid + `"`))
	})

	It("is answered in its own version", func() {
		for _, version := range []string{"v1", "v1beta1"} {
			body := strings.Replace(string(review("v1", object("v1alpha1", "", `"schedule":"1"`))), "apiextensions.k8s.io/v1", "apiextensions.k8s.io/"+version, 1)
			answer, err := cronJobs().Answer(context.Background(), []byte(body), nil)
			Expect(err).NotTo(HaveOccurred())
			var meta metav1.TypeMeta
			Expect(json.Unmarshal(answer, &meta)).To(Succeed())
			Expect(meta).To(Equal(metav1.TypeMeta{Kind: "ConversionReview", APIVersion: "apiextensions.k8s.io/" + version}))
		}
	})

	It("can hold its members in any order, and unknown ones", func() {
		body := `{"response":{"x":[]},"request":{"objects":[` + object("v1alpha1", "", `"schedule":"1 2"`) +
			`],"more":{},"desiredAPIVersion":"batch.example.com\/v1","uid":"u-1"},"apiVersion":"apiextensions.k8s.io\/v1","kind":"ConversionReview"} `
		Expect(answered(cronJobs(), []byte(body)).ConvertedObjects).To(HaveLen(1))
	})

	DescribeTable("without objects is answered with none",
		func(objects string) {
			body := strings.Replace(valid, `"objects":[]`, objects, 1)
			answer, err := cronJobs().Answer(context.Background(), []byte(body), nil)
			Expect(err).NotTo(HaveOccurred())
			Expect(string(answer)).To(ContainSubstring(`"convertedObjects":[],`))
			Expect(string(answer)).To(ContainSubstring(`"status":"Success"`))
		},
		Entry("null", `"objects":null`),
		Entry("no member", `"x":1`),
	)

	DescribeTable("fails as a whole",
		func(to, object string, reasons ...string) {
			good := `{"apiVersion":"batch.example.com/v1alpha1","kind":"CronJob","metadata":{"name":"good"},"spec":{"schedule":"1"}}`
			message := failure(cronJobs(), review(to, good, object, good))
			for _, reason := range reasons {
				Expect(message).To(ContainSubstring(reason))
			}
			Expect(len(message)).To(BeNumerically("<", 1500))
		},
		Entry("for a version that there is not", "v3", object("v1", "", ""), `desiredAPIVersion is "batch.example.com/v3"`, "v1alpha1, v1beta1, v1"),
		Entry("with an object that is null", "v1", "null", "object 1", "it is null"),
		Entry("with an object that is a string", "v1", `"`+strings.Repeat("x", 5000)+`"`, "object 1", "send an object"),
		Entry("with an object of another kind", "v1", `{"apiVersion":"batch.example.com/v1","kind":"CronJobList"}`, "object 1", `kind is "CronJobList"`),
		Entry("with an object of a version that there is not", "v1", object("v9", "", ""), "object 1 (CronJob cf/nightly)", `"batch.example.com/v9"`),
		Entry("with an object without a kind", "v1", `{"apiVersion":"batch.example.com/v1"}`, "no kind"),
		Entry("with an object without an apiVersion", "v1", `{"kind":"CronJob"}`, "no apiVersion"),
		Entry("with an object that has two kinds", "v1", strings.Replace(object("v1alpha1", "", ""), `"kind"`, `"kind":"CronJob","kind"`, 1), `"kind" occurs twice`),
		Entry("with an object that has two names", "v1", object("v1alpha1", `,"name":"x"`, ""), `"name" occurs twice`),
		Entry("with metadata that is a list", "v1", `{"apiVersion":"batch.example.com/v1","kind":"CronJob","metadata":[]}`, "metadata is not an object"),
		Entry("with labels that are numbers", "v1", object("v1alpha1", `,"labels":{"a":1}`, ""), "from v1alpha1 to v1", "cannot be read as v1alpha1"),
		Entry("with a member of a wrong type", "v1", object("v1alpha1", "", `"schedule":{}`), "object 1 (CronJob cf/nightly) from v1alpha1 to v1", "schedule"),
		Entry("with a very long name", "v1", strings.Replace(object("v1alpha1", "", `"schedule":7`), "nightly", strings.Repeat("n", 9000), 1), "object 1 (CronJob cf/nnn"),
	)

	DescribeTable("is refused if another replica converts what it needs", func(to, object string) {
		k := cronJobs()
		k.Elsewhere = []string{"v3"}
		_, err := k.Answer(context.Background(), review(to, object), nil)
		refused, ok := errors.AsType[*convert.Refusal](err)
		Expect(ok).To(BeTrue(), "%v", err)
		Expect(refused.Status).To(Equal(http.StatusServiceUnavailable))
		Expect(refused.Reason).To(ContainSubstring("batch.example.com/v3 is converted by another version of the program"))
		Expect(failure(cronJobs(), review(to, object))).To(ContainSubstring("v3"), "without the other replica")
	},
		Entry("as the result", "v3", object("v1", "", "")),
		Entry("from an object", "v1", object("v3", "", "")),
	)

	It("can hold any kind if the versions name none", func() {
		k := cronJobs()
		k.Kind = ""
		other := strings.Replace(object("v1alpha1", "", `"schedule":"1"`), `"CronJob"`, `"OtherJob"`, 1)
		Expect(converted(k, "v1", other)).To(ContainSubstring(`"kind":"OtherJob"`))
		Expect(failure(cronJobs(), review("v1", other))).To(ContainSubstring(`its kind is "OtherJob"`))
	})
})
