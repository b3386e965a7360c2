package controlplane

// This file holds the parts of process handling that are specific to Linux.

import (
	"bytes"
	"os"
	"strconv"
	"syscall"
)

// childAttributes puts a server into its own process group. Ctrl-C in a terminal then does not reach it, so that Stop
// can stop the servers in order. The kernel kills the server when the launcher's thread ends, at the latest when this
// process ends.
func childAttributes() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
}

// commandLine returns the arguments of a process, joined with spaces, or an empty string if the process does not
// exist.
func commandLine(pid int) string {
	data, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/cmdline")
	if err != nil {
		return ""
	}
	return string(bytes.ReplaceAll(data, []byte{0}, []byte{' '}))
}
