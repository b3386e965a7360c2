package controlplane

import (
	"bufio"
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"syscall"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"code.cloudfoundry.org/eirinix/internal/spectest"
)

var _ = Describe("A control plane in trouble", Label("api-server"), func() {
	var assets string

	BeforeEach(func(ctx context.Context) {
		assets = specAssets(ctx)

		// Their own folder for run directories: these specs read its content.
		cache := GinkgoT().TempDir()
		GinkgoT().Setenv("XDG_CACHE_HOME", cache)
		GinkgoT().Setenv("HOME", cache)
	})

	It("stops everything when the context ends during the start", func(ctx context.Context) {
		ctx, cancel := context.WithCancel(ctx)
		defer cancel()

		Expect(New(ctx, Options{Assets: assets, Progress: writerFunc(func(line string) {
			if strings.Contains(line, "etcd is ready") {
				cancel()
			}
		})})).Error().To(And(MatchError(context.Canceled), MatchError(HavePrefix("kube-apiserver was not ready yet"))))
		Expect(runDirs()).To(BeEmpty())
	})

	It("names the server that failed and the reason, and stops the others", func(ctx context.Context) {
		logs := GinkgoT().TempDir()
		Expect(New(ctx, Options{Assets: assets, APIServerArgs: []string{"--no-such-flag"}, LogDir: logs})).Error().To(MatchError(And(
			HavePrefix("see the end of its log below and check ControlPlaneOptions.APIServerArgs: "),
			ContainSubstring("kube-apiserver ended before it was ready: exit status 1"),
			ContainSubstring("unknown flag: --no-such-flag"),
		)))
		Expect(runDirs()).To(BeEmpty())
		Expect(filepath.Join(logs, "kube-apiserver.log")).To(BeAnExistingFile())
	})

	It("names the file that is missing from the assets", func(ctx context.Context) {
		empty := GinkgoT().TempDir()
		Expect(New(ctx, Options{Assets: empty})).Error().To(And(MatchError(os.ErrNotExist),
			MatchError(HavePrefix("set ControlPlaneOptions.Assets to a folder with etcd, kube-apiserver, or unset it"))))
		for _, name := range []string{"etcd", "kube-apiserver"} {
			Expect(os.Symlink(filepath.Join(assets, name), filepath.Join(empty, name))).To(Succeed())
		}
		GinkgoT().Setenv(assetsVariable, empty)
		Expect(New(ctx, Options{ControllerManager: true})).Error().To(MatchError(And(
			HavePrefix("set KUBEBUILDER_ASSETS to a folder with etcd, kube-apiserver, kube-controller-manager"),
			ContainSubstring("no kube-controller-manager"))))
	})

	It("dies with its owner, and the next start cleans up", func(ctx context.Context) {
		owner := exec.CommandContext(ctx, os.Args[0])
		owner.Env = append(os.Environ(), helperVariable+"=control plane", assetsVariable+"="+assets)
		stdout := spectest.Must(owner.StdoutPipe())
		Expect(owner.Start()).To(Succeed())
		DeferCleanup(func() { _ = owner.Process.Kill(); _ = owner.Wait() })

		lines := make(chan string, 1)
		go func() {
			line, _ := bufio.NewReader(stdout).ReadString('\n')
			lines <- strings.TrimSpace(line)
		}()
		var folder string
		Eventually(lines).Should(Receive(&folder))
		Expect(folder).To(BeADirectory())

		pids := serverPIDs(folder)
		Expect(pids).To(HaveLen(3))
		for _, pid := range pids {
			Expect(commandLine(pid)).To(ContainSubstring(folder))
			DeferCleanup(func() { // so that a failure leaves none behind either
				if strings.Contains(commandLine(pid), folder) {
					_ = syscall.Kill(pid, syscall.SIGKILL)
				}
			})
		}
		living := spectest.Must(newRunDir())
		Expect(folder).To(BeADirectory(), "its owner lives")
		Expect(living.remove()).To(Succeed())

		Expect(owner.Process.Kill()).To(Succeed())
		if runtime.GOOS == "linux" { // elsewhere the next start kills them
			for _, pid := range pids {
				Eventually(commandLine).WithArguments(pid).Should(BeEmpty())
			}
		}
		_ = owner.Wait()

		next := spectest.Must(newRunDir())
		Expect(folder).NotTo(BeADirectory())
		Expect(next.remove()).To(Succeed())
		for _, pid := range pids {
			Eventually(commandLine).WithArguments(pid).Should(BeEmpty())
		}
	})

	It("kills the processes that a dead owner left running, and no others", func() {
		root := spectest.Must(runRoot())

		dead := filepath.Join(root, "1-dead")
		Expect(os.Mkdir(dead, 0o700)).To(Succeed())

		start := func(name string, args ...string) *exec.Cmd {
			cmd := exec.Command(os.Args[0], args...)
			cmd.Env = append(os.Environ(), helperVariable+"=sleep")
			Expect(cmd.Start()).To(Succeed())
			DeferCleanup(func() { _ = cmd.Process.Kill(); _ = cmd.Wait() })
			Expect(os.WriteFile(filepath.Join(dead, name+pidSuffix), []byte(strconv.Itoa(cmd.Process.Pid)), 0o600)).To(Succeed())
			Eventually(commandLine).WithArguments(cmd.Process.Pid).Should(ContainSubstring(os.Args[0]))
			return cmd
		}
		server := start("etcd", "--data-dir="+filepath.Join(dead, "etcd"))
		other := start("kube-apiserver", "--data-dir=elsewhere")
		Expect(os.WriteFile(filepath.Join(dead, "cut-off"+pidSuffix), nil, 0o600)).To(Succeed())

		dir := spectest.Must(newRunDir())
		DeferCleanup(dir.remove)

		Expect(dead).NotTo(BeADirectory())
		Expect(runDirs()).To(ConsistOf(filepath.Base(dir.path)))
		Eventually(commandLine).WithArguments(server.Process.Pid).Should(BeEmpty())
		Expect(commandLine(other.Process.Pid)).NotTo(BeEmpty())
	})
})

// runDirs returns the names of the control planes' folders.
func runDirs() (names []string) {
	GinkgoHelper()
	for _, entry := range spectest.Must(os.ReadDir(spectest.Must(runRoot()))) {
		if entry.IsDir() {
			names = append(names, entry.Name())
		}
	}
	return names
}

// serverPIDs returns the process IDs of the servers of the control plane in that folder.
func serverPIDs(folder string) (pids []int) {
	GinkgoHelper()
	for _, file := range spectest.Must(filepath.Glob(filepath.Join(folder, "*"+pidSuffix))) {
		pids = append(pids, spectest.Must(strconv.Atoi(string(spectest.Must(os.ReadFile(file))))))
	}
	return pids
}

type writerFunc func(string)

func (f writerFunc) Write(b []byte) (int, error) {
	f(string(b))
	return len(b), nil
}
