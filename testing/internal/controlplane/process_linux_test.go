package controlplane

import (
	"bytes"
	"fmt"
	"os"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"code.cloudfoundry.org/eirinix/internal/spectest"
)

var _ = Describe("A paused process", func() {
	It("runs no more when pause returns, however busy it and the machine are", func() {
		l := newLauncher()
		DeferCleanup(l.close)
		dir := GinkgoT().TempDir()
		var all []*process
		for i := range 4 {
			p := spectest.Must(l.start("/bin", dir, dir, fmt.Sprintf("sh-%d", i), []string{"-c", "while :; do :; done"}))
			DeferCleanup(p.kill)
			all = append(all, p)
		}
		for range 25 {
			for _, p := range all {
				Expect(p.pause()).To(Succeed())
				stat := spectest.Must(os.ReadFile(fmt.Sprintf("/proc/%d/stat", p.cmd.Process.Pid)))
				// The state follows the name, which is in parentheses: proc_pid_stat(5).
				Expect(string(stat[bytes.LastIndexByte(stat, ')')+2])).To(Equal("T"))
				Expect(p.resume()).To(Succeed())
			}
		}
	})
})
