package eirinixtest

import (
	"os/exec"
	"strconv"
	"syscall"
)

// childAttributes keep Ctrl-C in a terminal away from a server (its own process group), so that Stop can end
// the servers in order. If this process is killed, the next NewControlPlane ends them.
func childAttributes() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setpgid: true}
}

// commandLine returns the arguments of a process, joined with spaces; empty when there is none.
func commandLine(pid int) string {
	output, err := exec.Command("ps", "-ww", "-o", "command=", "-p", strconv.Itoa(pid)).Output()
	if err != nil {
		return ""
	}

	return string(output)
}
