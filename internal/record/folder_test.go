package record

import (
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
)

var _ = Describe("Calls that came at once, by a coarse clock, about the same", func() {
	It("have a file each, in the order in which they are written", func() {
		dir := GinkgoT().TempDir()
		s, err := openFolder(dir, 10, 1<<20)
		Expect(err).NotTo(HaveOccurred())
		DeferCleanup(s.close)
		at := time.Date(2026, 11, 21, 14, 45, 22, 999_999_999, time.UTC)
		for _, n := range []string{"a", "b", "c"} {
			request := `{"uid":"` + n + `","operation":"CREATE"}`
			Expect(s.put(&file{received: at, about: "-create", text: []byte(`{"kind":"AdmissionReview","apiVersion":"admission.k8s.io/v1","request":` + request + `}`)})).To(Succeed())
		}
		all, err := Read(dir)
		Expect(err).NotTo(HaveOccurred())
		var uids []string
		for _, r := range all {
			uids = append(uids, string(r.Review.Request.UID))
		}
		Expect(uids).To(Equal([]string{"a", "b", "c"}))
		Expect(all[2].File).To(HaveSuffix("/20261121t144523.000000001z-create.json"))
	})
})
