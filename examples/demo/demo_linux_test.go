package main

import (
	"errors"
	"io"
	"os"
	"strconv"
	"syscall"
	"unsafe"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"github.com/onsi/gomega/gbytes"

	"code.cloudfoundry.org/eirinix/examples/internal/programs"
)

// On Linux the kernel ends the servers with the demo; elsewhere the next start of a control plane does.
var _ = Describe("the demo on Linux", Label("api-server"), func() {
	It("stays in a terminal, in colour, until Ctrl-C", func() {
		cmd := command()
		cmd.Env = append(cmd.Env, "TERM=xterm")
		terminal, tty := openTerminal()
		cmd.Stdin, cmd.Stdout = tty, tty
		stderr := gbytes.NewBuffer()
		cmd.Stderr = io.MultiWriter(stderr, GinkgoWriter)
		cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Setctty: true}
		Expect(cmd.Start()).To(Succeed())
		DeferCleanup(func() { _ = cmd.Process.Kill() }) // an error means that it has ended
		Expect(tty.Close()).To(Succeed())

		screen := gbytes.NewBuffer()
		go func() { _, _ = io.Copy(io.MultiWriter(screen, GinkgoWriter), terminal) }() // ends with an error when the demo does
		Eventually(screen.Contents, 2*programs.Patience).Should(And(
			ContainSubstring("\x1b[32m+    example.org/greeted: \"true\"\x1b[0m"),
			MatchRegexp(`kubectl --kubeconfig=\S+ -n eirinix-demo-\w+ run mine `), ContainSubstring("Ctrl-C ends the demo")))
		folder := string(logsIn.FindSubmatch(stderr.Contents())[1])
		Expect(servers(folder)).To(HaveLen(3))

		_, err := terminal.Write([]byte{3}) // Ctrl-C
		Expect(err).NotTo(HaveOccurred())
		Expect(cmd.Wait()).To(Succeed(), "exit code 0")
		Expect(servers(folder)).To(BeEmpty())
		Expect(folder).NotTo(BeADirectory())
	})
})

// openTerminal returns both ends of a pseudo-terminal.
func openTerminal() (terminal, tty *os.File) {
	GinkgoHelper()
	terminal, err := os.OpenFile("/dev/ptmx", os.O_RDWR, 0)
	Expect(err).NotTo(HaveOccurred())
	DeferCleanup(terminal.Close)
	connection, err := terminal.SyscallConn()
	Expect(err).NotTo(HaveOccurred())
	var number, unlock uint32
	var failure error
	Expect(connection.Control(func(fd uintptr) {
		_, _, lock := syscall.Syscall(syscall.SYS_IOCTL, fd, syscall.TIOCSPTLCK, uintptr(unsafe.Pointer(&unlock)))
		_, _, name := syscall.Syscall(syscall.SYS_IOCTL, fd, syscall.TIOCGPTN, uintptr(unsafe.Pointer(&number)))
		for _, errno := range []syscall.Errno{lock, name} {
			if errno != 0 {
				failure = errors.Join(failure, errno)
			}
		}
	})).To(Succeed())
	Expect(failure).NotTo(HaveOccurred())
	tty, err = os.OpenFile("/dev/pts/"+strconv.Itoa(int(number)), os.O_RDWR|syscall.O_NOCTTY, 0)
	Expect(err).NotTo(HaveOccurred())
	return terminal, tty
}
