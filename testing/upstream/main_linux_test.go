package upstream_test

// This file puts the tests into a network namespace of their own, where pods can have addresses. EndpointSlices refuse
// loopback addresses, and the machine's own network stays as it is.

import (
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"runtime"
	"syscall"
	"testing"

	"k8s.io/kubectl/pkg/cmd"
)

const (
	// agnhostVariable is set in the network namespace, to the path of the program that runs instead of the image.
	agnhostVariable = "EIRINIX_UPSTREAM_AGNHOST"

	// assetsVariable names the folder with the binaries of the control plane.
	assetsVariable = "KUBEBUILDER_ASSETS"
)

func TestMain(m *testing.M) {
	switch {
	case filepath.Base(os.Args[0]) == kubectl:
		playKubectl()
	case os.Getenv(agnhostVariable) == "":
		os.Exit(outside())
	default:
		os.Exit(m.Run())
	}
}

// kubectl is the name under which this program is kubectl. One of the specs calls it.
const kubectl = "kubectl"

func playKubectl() {
	if err := cmd.NewDefaultKubectlCommand().Execute(); err != nil {
		os.Exit(1)
	}
}

// outside runs this program again, in a network namespace. Programs are built before that, because Go may need the
// machine's network for it.
func outside() int {
	if os.Getenv(assetsVariable) == "" {
		fmt.Fprintf(os.Stderr, "set %s to the folder with the control plane's binaries, or run make upstream, which builds them\n", assetsVariable)
		return 1
	}
	dir, err := os.MkdirTemp("", "eirinix-upstream-")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer os.RemoveAll(dir)
	agnhost, err := build(dir, "agnhost")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return inNamespace(append(os.Environ(), agnhostVariable+"="+agnhost))
}

// build builds an example, with the modules of the library.
func build(dir, example string) (string, error) {
	path := filepath.Join(dir, example)
	command := exec.Command("go", "build", "-o", path, "./examples/"+example)
	command.Dir = filepath.Join("..", "..")
	command.Env = append(os.Environ(), "GOWORK=off")
	if output, err := command.CombinedOutput(); err != nil {
		return "", fmt.Errorf("examples/%s cannot be built: %w\n%s", example, err, output)
	}
	return path, nil
}

// inNamespace runs this program with its arguments in a new network namespace and returns its exit code. It returns 0
// and says why if the machine does not permit that.
func inNamespace(environment []string) int {
	runtime.LockOSThread() // Linux ends the program with the thread that started it
	defer runtime.UnlockOSThread()
	// An interrupt reaches both, and the specs clean up after it.
	signal.Notify(make(chan os.Signal, 1), os.Interrupt)
	command := exec.Command("/proc/self/exe", os.Args[1:]...)
	command.Env, command.Stdin, command.Stdout, command.Stderr = environment, os.Stdin, os.Stdout, os.Stderr
	command.SysProcAttr = namespace()
	if err := command.Start(); err != nil {
		fmt.Printf("SKIPPED: the specs need a network namespace of their own, and this machine permits none: %v\n", err)
		return 0
	}
	if err := command.Wait(); err != nil {
		if _, failed := errors.AsType[*exec.ExitError](err); !failed {
			fmt.Fprintln(os.Stderr, err)
		}
		return max(1, command.ProcessState.ExitCode())
	}
	return 0
}

// namespace makes the process of a command one with a network of its own. Users other than root need a user namespace
// for that, in which they are root.
func namespace() *syscall.SysProcAttr {
	attributes := &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWNET, Pdeathsig: syscall.SIGKILL}
	if os.Geteuid() != 0 {
		attributes.Cloneflags |= syscall.CLONE_NEWUSER
		attributes.UidMappings = []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Geteuid(), Size: 1}}
		attributes.GidMappings = []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Getegid(), Size: 1}}
	}
	return attributes
}

// copyTo copies a file to a writer. A missing file is empty.
func copyTo(w io.Writer, path string) {
	if content, err := os.ReadFile(path); err == nil {
		_, _ = w.Write(content)
	}
}
