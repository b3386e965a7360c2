package decode

import (
	"errors"
	"strings"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"

	"code.cloudfoundry.org/eirinix/internal/jsontext"
)

var _ = Describe("The index of a text", func() {
	It("is of that text, and of none that could not be decoded", func() {
		raw := []byte(`{"metadata":{"labels":{"a":"` + strings.Repeat("b", 100) + `"}}}`)
		doc := jsontext.Index{}
		_, err := Within(raw, new(corev1.Pod), &doc, nil)
		Expect(err).NotTo(HaveOccurred())
		Expect(doc.IsOf(raw)).To(BeTrue())

		many := []byte(`{"spec":{"containers":[` + strings.Repeat(`{"name":"a"},`, 10_000) + `{}]}}`)
		full := errors.New("full")
		_, err = Within(many, new(corev1.Pod), &doc, func(int64) error { return full })
		Expect(err).To(MatchError(full))
		Expect(doc.IsOf(many)).To(BeFalse(), "its end is not known")

		_, err = Within(raw, new(corev1.Pod), nil, nil)
		Expect(err).NotTo(HaveOccurred(), "one that no patch needs is not recorded")
	})
})
