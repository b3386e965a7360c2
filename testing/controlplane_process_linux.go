package eirinixtest

import (
	"bytes"
	"os"
	"strconv"
	"syscall"
)

// childAttributes keep Ctrl-C in a terminal away from a server (its own process group), so that Stop can end
// the servers in order, and have the kernel kill it when the launcher's thread ends, at the latest with us.
func childAttributes() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
}

// commandLine returns the arguments of a process, joined with spaces; empty when there is none.
func commandLine(pid int) string {
	data, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/cmdline")
	if err != nil {
		return ""
	}

	return string(bytes.ReplaceAll(data, []byte{0}, []byte{' '}))
}
