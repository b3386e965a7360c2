package podsecurity

// This file reads the CPU time and the memory of other processes.

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// childAttributes end a program with this process.
func childAttributes() *syscall.SysProcAttr { return &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL} }

// cpuOf returns the CPU time of a process, its threads that have ended included. The identifier of a process's CPU clock
// is the complement of its number, shifted by three, and 2 for the time that the scheduler counts
// (include/linux/posix-timers_types.h).
func cpuOf(pid int) (time.Duration, error) {
	var t unix.Timespec
	if err := unix.ClockGettime(^int32(pid)<<3|2, &t); err != nil {
		return 0, fmt.Errorf("the CPU time of process %d: %w", pid, err)
	}
	return time.Duration(t.Nano()), nil
}

// memoryOf returns the resident memory of a process, in MiB: now, and the most that it ever was.
func memoryOf(pid int) (now, peak float64, err error) {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		return 0, 0, err
	}
	mib := func(key string) float64 {
		_, value, _ := strings.Cut(string(text), key+":")
		value, _, _ = strings.Cut(value, "kB")
		kib, err := strconv.ParseFloat(strings.TrimSpace(value), 64)
		if err != nil {
			return 0
		}
		return kib / 1024
	}
	return mib("VmRSS"), mib("VmHWM"), nil
}

// apiServerProcess returns the number of the child process kube-apiserver that started last.
func apiServerProcess() (pid int, err error) {
	files, err := filepath.Glob("/proc/[0-9]*/stat")
	if err != nil {
		return 0, err
	}
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			continue // it has ended
		}
		head, tail, _ := bytes.Cut(text, []byte(") "))
		number, name, _ := strings.Cut(string(head), " (")
		var state string
		var parent int
		if _, err := fmt.Sscan(string(tail), &state, &parent); err != nil || parent != os.Getpid() || name != "kube-apiserver" || state == "Z" {
			continue
		}
		found, err := strconv.Atoi(number)
		if err != nil {
			return 0, err
		}
		pid = max(pid, found)
	}
	if pid == 0 {
		return 0, fmt.Errorf("no child process is a kube-apiserver")
	}
	return pid, nil
}
