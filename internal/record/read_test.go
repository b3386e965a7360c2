package record_test

import (
	"os"
	"path/filepath"
	"strings"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"code.cloudfoundry.org/eirinix/internal/record"
)

var _ = Describe("Reading", func() {
	var dir string
	put := func(name, text string) string {
		GinkgoHelper()
		file := filepath.Join(dir, name)
		Expect(os.WriteFile(file, []byte(text), 0o600)).To(Succeed())
		return file
	}
	with := func(own string) string { return strings.TrimSuffix(review(pod), "}") + `,"eirinix":` + own + `}` }

	BeforeEach(func() { dir = GinkgoT().TempDir() })

	It("returns the content of a file", func() {
		file := put("any.thing", with(`{"path":"/mutate/a","received":"2026-11-21T14:45:22.000000123Z","took":"1.5ms","status":500,"error":"no","redacted":["a"],"later":1}`))
		all, err := record.Read(file)
		Expect(err).NotTo(HaveOccurred())
		Expect(all).To(HaveLen(1))
		Expect(all[0].Review.Request.UID).To(BeEquivalentTo(uid))
		all[0].Review = nil
		Expect(all[0]).To(Equal(record.Recorded{File: file, Version: "v1", Circumstances: record.Circumstances{
			Path: "/mutate/a", Received: time.Date(2026, 11, 21, 14, 45, 22, 123, time.UTC), Took: metav1.Duration{Duration: 1500 * time.Microsecond},
			Status: 500, Error: "no", Redacted: []string{"a"},
		}}))
	})

	It("takes a review that another tool has kept", func() {
		all, err := record.Read(put("curl.json", review(pod)))
		Expect(err).NotTo(HaveOccurred())
		Expect(all[0].Path).To(BeEmpty())
		Expect(all[0].Version).To(Equal("v1"))
		Expect(all[0].Review.Request.UID).To(BeEquivalentTo(uid))
		Expect(all[0].Review.Response).To(BeNil())
	})

	It("reads the files of a folder by name, and passes over files of others", func() {
		for _, name := range []string{"c.json", "a.json", "b.json"} {
			put(name, review(pod))
		}
		put("notes.txt", "hello")
		put(".eirinix-1.tmp", `{"kind":"Adm`)
		Expect(os.Mkdir(filepath.Join(dir, "folder.json"), 0o700)).To(Succeed())
		all, err := record.Read(dir)
		Expect(err).NotTo(HaveOccurred())
		var names []string
		for _, r := range all {
			names = append(names, filepath.Base(r.File))
		}
		Expect(names).To(Equal([]string{"a.json", "b.json", "c.json"}))
	})

	It("returns nothing for an empty folder", func() {
		Expect(record.Read(dir)).To(BeEmpty())
	})

	It("names the missing file", func() {
		_, err := record.Read(filepath.Join(dir, "nowhere"))
		Expect(err).To(MatchError(os.ErrNotExist))
	})

	DescribeTable("names the file that is no recording:", func(text, why string) {
		put("a.json", review(pod))
		bad := put("b.json", text)
		_, err := record.Read(dir)
		Expect(err).To(MatchError(And(ContainSubstring(bad), ContainSubstring(why))))
	},
		Entry("empty", "", "not an AdmissionReview"),
		Entry("cut off", review(pod)[:200], "not an AdmissionReview"),
		Entry("another kind", `{"kind":"Pod","apiVersion":"v1"}`, `kind "Pod" of apiVersion "v1"`),
		Entry("another version", strings.Replace(review(pod), "k8s.io/v1", "k8s.io/v2", 1), `"admission.k8s.io/v2"`),
		Entry("no request", `{"kind":"AdmissionReview","apiVersion":"admission.k8s.io/v1","response":{}}`, "holds no request"),
		Entry("another shape of ours", with(`{"took":"long"}`), "invalid duration"),
		Entry("no shape of ours", with(`[]`), "not an AdmissionReview"),
	)
})
