// Package programs builds the example programs and runs them as processes. It is only for tests: an error fails the
// running spec.
package programs

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/onsi/ginkgo/v2"
	"github.com/onsi/gomega"
	"github.com/onsi/gomega/gexec"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/yaml"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"
)

// Patience is the timeout for operations that take milliseconds on an idle machine.
const Patience = 2 * time.Minute

// apart are the programs that are built alone: controller-runtime gives them a flag that the others define themselves, or
// their specs need no binary of another.
var apart = []string{"demo", "job-retries", "kubebuilder/cmd", "migrate", "way-back"}

var (
	mu       sync.Mutex
	together string                // the binary of all others
	built    = map[string]string{} // directory -> binary
)

const examples = "code.cloudfoundry.org/eirinix/examples/"

// Build compiles the program in a directory of examples/ once, with the race detector if the tests use it, and returns
// the path of the binary. Most programs are one binary, which is linked once: it is whatever program it is called as.
// gexec.CleanupBuildArtifacts removes the binary when the suite ends.
func Build(folder string) string {
	ginkgo.GinkgoHelper()
	mu.Lock()
	defer mu.Unlock()
	if path := built[folder]; path != "" {
		return path
	}
	flags := append(slices.Clone(buildFlags), "-ldflags=-s")
	if slices.Contains(apart, folder) {
		built[folder] = must(gexec.Build(examples+folder, flags...))
		return built[folder]
	}
	if together == "" {
		overlay, main := join(ginkgo.GinkgoT().TempDir())
		together = must(gexec.Build(main, append(flags, "-overlay="+overlay)...))
	}
	built[folder] = filepath.Join(filepath.Dir(together), strings.ReplaceAll(folder, "/", "-"))
	gomega.Expect(os.Symlink(together, built[folder])).To(gomega.Succeed())
	return built[folder]
}

func must[T any](value T, err error) T {
	ginkgo.GinkgoHelper()
	gomega.Expect(err).NotTo(gomega.HaveOccurred())
	return value
}

// join writes an overlay for the compiler, in which each program is a package that the package main imports.
func join(dir string) (overlay, main string) {
	ginkgo.GinkgoHelper()
	replace := map[string]string{}
	file := func(path, text string) {
		replace[path] = filepath.Join(dir, strconv.Itoa(len(replace))+".go")
		gomega.Expect(os.WriteFile(replace[path], []byte(text), 0o600)).To(gomega.Succeed())
	}
	var imports, calls, root string
	list := exec.Command("go", "list", "-f", `{{if eq .Name "main"}}{{.ImportPath}} {{.Dir}} {{join .GoFiles " "}}{{end}}`, examples+"...")
	for line := range strings.Lines(string(must(list.Output()))) {
		words := strings.Fields(line)
		folder := strings.TrimPrefix(words[0], examples)
		if slices.Contains(apart, folder) {
			continue
		}
		for _, name := range words[2:] {
			text := string(must(os.ReadFile(filepath.Join(words[1], name))))
			text = regexp.MustCompile(`(?m)^package main$`).ReplaceAllString(text, "package program")
			file(filepath.Join(words[1], "program", name), regexp.MustCompile(`(?m)^func main\(`).ReplaceAllString(text, "func Main("))
		}
		name := strings.NewReplacer("/", "_", "-", "_").Replace(folder)
		imports += fmt.Sprintf("import %s %q\n", name, words[0]+"/program")
		calls += fmt.Sprintf("case %q: %s.Main()\n", strings.ReplaceAll(folder, "/", "-"), name)
		root = strings.TrimSuffix(words[1], filepath.FromSlash(folder))
	}
	file(filepath.Join(root, "programs", "main.go"), fmt.Sprintf(`package main
import ("os"; "path/filepath")
%sfunc main() { switch filepath.Base(os.Args[0]) {
%s} }`, imports, calls))
	overlay = filepath.Join(dir, "overlay.json")
	gomega.Expect(os.WriteFile(overlay, must(json.Marshal(map[string]any{"Replace": replace})), 0o600)).To(gomega.Succeed())
	return overlay, examples + "programs"
}

// Start runs a binary and copies its output to that of the spec. The process is stopped at the end of the spec if it is
// still running. It does not inherit the KUBECONFIG of the test's environment.
func Start(path string, args ...string) *gexec.Session {
	ginkgo.GinkgoHelper()
	return start(Command(path, args...))
}

// StartWith is Start with KUBECONFIG set.
func StartWith(kubeconfig, path string, args ...string) *gexec.Session {
	ginkgo.GinkgoHelper()
	cmd := Command(path, args...)
	cmd.Env = append(cmd.Env, "KUBECONFIG="+kubeconfig)
	return start(cmd)
}

func start(cmd *exec.Cmd) *gexec.Session {
	ginkgo.GinkgoHelper()
	session, err := gexec.Start(cmd, ginkgo.GinkgoWriter, ginkgo.GinkgoWriter)
	gomega.Expect(err).NotTo(gomega.HaveOccurred())
	ginkgo.DeferCleanup(func() {
		session.Terminate()
		gomega.Eventually(session, Patience).Should(gexec.Exit())
	})
	return session
}

// Command returns the command that Start runs.
func Command(path string, args ...string) *exec.Cmd {
	cmd := exec.Command(path, args...)
	for _, variable := range os.Environ() {
		if name, _, _ := strings.Cut(variable, "="); name != "KUBECONFIG" && name != "NO_COLOR" {
			cmd.Env = append(cmd.Env, variable)
		}
	}
	return cmd
}

// StopsCleanly sends SIGTERM, as a kubelet does, and expects exit code 0.
func StopsCleanly(session *gexec.Session) {
	ginkgo.GinkgoHelper()
	session.Signal(syscall.SIGTERM)
	gomega.Eventually(session, Patience).Should(gexec.Exit(0))
}

// FreeAddress returns a loopback address on which no process listens, and its port.
func FreeAddress() (address, port string) {
	ginkgo.GinkgoHelper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	gomega.Expect(err).NotTo(gomega.HaveOccurred())
	address = listener.Addr().String()
	gomega.Expect(listener.Close()).To(gomega.Succeed())
	_, port, err = net.SplitHostPort(address)
	gomega.Expect(err).NotTo(gomega.HaveOccurred())
	return address, port
}

// AsServiceAccount returns a kubeconfig with the rights of a ServiceAccount, made of one of a cluster administrator.
func AsServiceAccount(kubeconfig, namespace, name string) string {
	ginkgo.GinkgoHelper()
	config, err := clientcmd.LoadFromFile(kubeconfig)
	gomega.Expect(err).NotTo(gomega.HaveOccurred())
	for _, user := range config.AuthInfos {
		user.Impersonate = "system:serviceaccount:" + namespace + ":" + name
		user.ImpersonateGroups = []string{"system:serviceaccounts", "system:serviceaccounts:" + namespace, "system:authenticated"}
	}
	path := filepath.Join(ginkgo.GinkgoT().TempDir(), "kubeconfig")
	gomega.Expect(clientcmd.WriteToFile(*config, path)).To(gomega.Succeed())
	return path
}

// Namespace creates a new namespace for a spec and returns its name.
func Namespace(ctx context.Context, client kubernetes.Interface) string {
	ginkgo.GinkgoHelper()
	namespace, err := client.CoreV1().Namespaces().Create(ctx,
		&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{GenerateName: "example-"}}, metav1.CreateOptions{})
	gomega.Expect(err).NotTo(gomega.HaveOccurred())
	return namespace.Name
}

// CreatePod creates a pod with two containers and a name that the API server generates.
func CreatePod(ctx context.Context, client kubernetes.Interface, namespace string) (*corev1.Pod, error) {
	return client.CoreV1().Pods(namespace).Create(ctx, &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{GenerateName: "pod-"},
		Spec: corev1.PodSpec{Containers: []corev1.Container{
			{Name: "main", Image: "example/main"},
			{Name: "sidecar", Image: "example/sidecar", Env: []corev1.EnvVar{{Name: "OWN", Value: "kept"}}},
		}},
	}, metav1.CreateOptions{})
}

// ExpectGenerated expects that a generator makes the files of a project as they are. The file, of a folder in the project,
// has the go:generate line, and the sources are in the folder api. The generator writes beside the sources, so it is
// given a copy of them, inside the module.
func ExpectGenerated(ctx context.Context, project, file string, generated ...string) {
	ginkgo.GinkgoHelper()
	read := func(path ...string) string {
		text, err := os.ReadFile(filepath.Join(path...))
		gomega.Expect(err).NotTo(gomega.HaveOccurred())
		return string(text)
	}
	line := regexp.MustCompile(`(?m)^//go:generate (.*)$`).FindStringSubmatch(read(project, file))
	gomega.Expect(line).NotTo(gomega.BeNil())
	copied, err := os.MkdirTemp(project, "generated-")
	gomega.Expect(err).NotTo(gomega.HaveOccurred())
	ginkgo.DeferCleanup(os.RemoveAll, copied)
	gomega.Expect(os.CopyFS(filepath.Join(copied, "api"), os.DirFS(filepath.Join(project, "api")))).To(gomega.Succeed())
	for _, name := range generated {
		if err := os.Remove(filepath.Join(copied, name)); !errors.Is(err, os.ErrNotExist) {
			gomega.Expect(err).NotTo(gomega.HaveOccurred())
		}
	}
	words := strings.Fields(line[1])
	cmd := exec.CommandContext(ctx, words[0], words[1:]...)
	cmd.Dir = filepath.Join(copied, filepath.Dir(file))
	gomega.Expect(os.MkdirAll(cmd.Dir, 0o755)).To(gomega.Succeed())
	session, err := gexec.Start(cmd, ginkgo.GinkgoWriter, ginkgo.GinkgoWriter)
	gomega.Expect(err).NotTo(gomega.HaveOccurred())
	gomega.Eventually(session, 5*Patience).Should(gexec.Exit(0))
	for _, name := range generated {
		gomega.Expect(read(project, name)).To(gomega.Equal(read(copied, name)), "run go generate for %s: %s", project, name)
	}
}

// ObjectsIn reads the objects of a YAML file.
func ObjectsIn(path string) (objects []*unstructured.Unstructured) {
	ginkgo.GinkgoHelper()
	file, err := os.Open(path)
	gomega.Expect(err).NotTo(gomega.HaveOccurred())
	defer file.Close()
	for decoder := yaml.NewYAMLOrJSONDecoder(file, 4096); ; {
		object := &unstructured.Unstructured{}
		err := decoder.Decode(object)
		if errors.Is(err, io.EOF) {
			return objects
		}
		gomega.Expect(err).NotTo(gomega.HaveOccurred())
		if len(object.Object) > 0 {
			objects = append(objects, object)
		}
	}
}
