package preview

import (
	"bytes"
	"os"
	"path/filepath"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	. "code.cloudfoundry.org/eirinix/internal/spectest"
)

var _ = Describe("Colours", func() {
	It("are for terminals, unless NO_COLOR says otherwise", func() {
		terminal, err := os.OpenFile(os.DevNull, os.O_WRONLY, 0) // a character device, as terminals are
		Expect(err).NotTo(HaveOccurred())
		DeferCleanup(terminal.Close)
		file := Must(os.Create(filepath.Join(GinkgoT().TempDir(), "out")))
		DeferCleanup(file.Close)
		GinkgoT().Setenv("NO_COLOR", "")
		GinkgoT().Setenv("TERM", "xterm")

		auto := &flags{color: "auto"}
		Expect(auto.colored(terminal)).To(BeTrue())
		Expect(auto.colored(file)).To(BeFalse())
		Expect(auto.colored(&bytes.Buffer{})).To(BeFalse())
		Expect((&flags{color: "never"}).colored(terminal)).To(BeFalse())
		Expect((&flags{color: "always"}).colored(file)).To(BeTrue())
		GinkgoT().Setenv("NO_COLOR", "1")
		Expect(auto.colored(terminal)).To(BeFalse())
		GinkgoT().Setenv("NO_COLOR", "")
		GinkgoT().Setenv("TERM", "dumb")
		Expect(auto.colored(terminal)).To(BeFalse())
	})
})
