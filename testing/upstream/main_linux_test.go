package upstream_test

// This file puts the tests into a network namespace of their own, where pods can have addresses. EndpointSlices refuse
// loopback addresses, and the machine's own network stays as it is.

import (
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"k8s.io/kubectl/pkg/cmd"

	"code.cloudfoundry.org/eirinix/testing/internal/netns"
)

// agnhostVariable is set in the network namespace, to the path of the program that runs instead of the image.
const agnhostVariable = "EIRINIX_UPSTREAM_AGNHOST"

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
	code, _, err := netns.Run(agnhostVariable + "=" + agnhost)
	if err != nil {
		fmt.Printf("SKIPPED: the specs need a network namespace of their own, and this machine permits none: %v\n", err)
	}
	return code
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

// copyTo copies a file to a writer. A missing file is empty.
func copyTo(w io.Writer, path string) {
	if content, err := os.ReadFile(path); err == nil {
		_, _ = w.Write(content)
	}
}
