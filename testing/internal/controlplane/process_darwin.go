package controlplane

// This file holds the parts of process handling that are specific to macOS.

import (
	"os/exec"
	"strconv"
	"syscall"
)

// childAttributes puts a server into its own process group. Ctrl-C in a terminal then does not reach it, so that Stop
// can stop the servers in order. If this process is killed, the next NewControlPlane kills the servers.
func childAttributes() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setpgid: true}
}

// commandLine returns the arguments of a process, joined with spaces, or an empty string if the process does not
// exist.
func commandLine(pid int) string {
	output, err := exec.Command("ps", "-ww", "-o", "command=", "-p", strconv.Itoa(pid)).Output()
	if err != nil {
		return ""
	}
	return string(output)
}

// waitFrozen has nothing to wait for: the kernel of macOS suspends a process while it delivers the signal.
func waitFrozen(int) error { return nil }
