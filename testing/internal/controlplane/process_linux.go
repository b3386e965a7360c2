package controlplane

// This file holds the parts of process handling that are specific to Linux.

import (
	"bytes"
	"errors"
	"os"
	"strconv"
	"syscall"

	"golang.org/x/sys/unix"
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

// waitFrozen waits until every thread of the child has stopped, or the child is gone. It leaves its status to the
// goroutine that waits for its end (WNOWAIT).
func waitFrozen(pid int) error {
	for {
		err := unix.Waitid(unix.P_PID, pid, nil, unix.WSTOPPED|unix.WEXITED|unix.WNOWAIT, nil)
		if !errors.Is(err, unix.EINTR) {
			return err
		}
	}
}
