package controlplane

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"code.cloudfoundry.org/eirinix/internal/spectest"
)

var _ = Describe("the search for the binaries", func() {
	var (
		home, cache string // the folder of all, and setup-envtest's in it
		said        *strings.Builder
		progress    *progressWriter
	)
	ended, end := context.WithCancel(context.Background())
	end() // so that an attempt to build fails with this instead

	BeforeEach(func(ctx context.Context) {
		home = GinkgoT().TempDir()
		cache = filepath.Join(home, ".local", "share", "kubebuilder-envtest", "k8s")
		if runtime.GOOS == "darwin" {
			cache = filepath.Join(home, "Library", "Application Support", "io.kubebuilder.envtest", "k8s")
		}
		said = &strings.Builder{}
		progress = &progressWriter{w: said}
		for _, variable := range []string{"GOCACHE", "GOMODCACHE"} { // these go with the user's
			output := spectest.Must(exec.CommandContext(ctx, "go", "env", variable).Output())
			GinkgoT().Setenv(variable, strings.TrimSpace(string(output)))
		}
		GinkgoT().Setenv("HOME", home)
		for _, variable := range []string{assetsVariable, "XDG_CACHE_HOME", "XDG_DATA_HOME"} {
			GinkgoT().Setenv(variable, "")
		}
	})
	downloaded := func(version string, binaries ...string) string {
		return install(filepath.Join(cache, version+"-"+runtime.GOOS+"-"+runtime.GOARCH), binaries...)
	}
	It("takes the newest release of setup-envtest's that will do, and names the releases that it passes over", func(ctx context.Context) {
		downloaded("1.30.2", "etcd", "kube-apiserver")
		newest := downloaded("1.30.10", "etcd", "kube-apiserver", "kubectl")
		downloaded("1.9.11", "etcd", "kube-apiserver")
		halved := downloaded("1.31.0", "kube-apiserver")
		install(filepath.Join(cache, "1.99.0-plan9-mips"), "etcd", "kube-apiserver")
		install(filepath.Join(cache, "v1.99.0"), "etcd", "kube-apiserver")

		Expect(findAssets(ctx, Options{}, progress)).To(Equal(newest))
		Expect(said.String()).To(And(
			ContainSubstring("passed over setup-envtest's "+halved+": no etcd"),
			ContainSubstring("binaries from "+newest+", the newest release in setup-envtest's cache"),
		))
		By("for a controller manager, which is none of its")
		Expect(findAssets(ended, Options{ControllerManager: true}, progress)).Error().To(MatchError(context.Canceled), "it builds")
		Expect(said.String()).To(ContainSubstring("passed over setup-envtest's " + newest + ": no kube-controller-manager"))
		Expect(os.WriteFile(filepath.Join(newest, "kube-controller-manager"), nil, 0o700)).To(Succeed())
		Expect(findAssets(ctx, Options{ControllerManager: true}, progress)).To(Equal(newest))
	})

	It("takes none that is too old, and names all places when nothing is found", func() {
		Expect(findAssets(ended, Options{}, progress)).Error().To(MatchError(ContainSubstring("there is no cache of setup-envtest (open " + cache)))

		downloaded("1.27.16", "etcd", "kube-apiserver")
		Expect(findAssets(ended, Options{}, progress)).Error().To(MatchError(And(
			HavePrefix("set KUBEBUILDER_ASSETS to a folder with etcd, kube-apiserver (setup-envtest downloads them"),
			ContainSubstring("KUBEBUILDER_ASSETS is not set; "),
			MatchRegexp("this module has not built "+home+"/.*/eirinix/controlplane/v1.* yet; "),
			ContainSubstring("setup-envtest's cache "+cache+" has none for "+runtime.GOOS+"/"+runtime.GOARCH+
				" but 1.27.16-"+runtime.GOOS+"-"+runtime.GOARCH+" (it is older than Kubernetes 1.28)"),
		)))
		downloaded("1.28.0", "etcd", "kube-apiserver")
		Expect(findAssets(ended, Options{}, progress)).To(HaveSuffix("1.28.0-" + runtime.GOOS + "-" + runtime.GOARCH))
	})

	It("prefers named assets to built ones, and those to downloaded ones", func(ctx context.Context) {
		downloaded("1.99.0", "etcd", "kube-apiserver")

		dir := spectest.Must(builderDir(ctx))
		built := spectest.Must(builderFolder(dir))
		install(built, allBinaries[:2]...)
		Expect(findAssets(ctx, Options{}, progress)).To(HaveSuffix("1.99.0-"+runtime.GOOS+"-"+runtime.GOARCH), "half built")

		install(built, allBinaries...)
		Expect(findAssets(ctx, Options{}, progress)).To(Equal(built))
		Expect(said.String()).To(HaveSuffix("binaries from " + built + ", which this module has built before\n"))

		mine, yours := install(filepath.Join(home, "mine"), allBinaries...), install(filepath.Join(home, "yours"), allBinaries...)
		GinkgoT().Setenv(assetsVariable, mine)
		Expect(findAssets(ctx, Options{}, progress)).To(Equal(mine))
		Expect(findAssets(ctx, Options{Assets: yours}, progress)).To(Equal(yours))
		Expect(said.String()).To(And(
			ContainSubstring(mine+", which KUBEBUILDER_ASSETS names"), HaveSuffix(yours+", which ControlPlaneOptions.Assets names\n")))

		By("even one that cannot be used, since it was requested")
		Expect(os.Remove(filepath.Join(mine, "etcd"))).To(Succeed())
		Expect(findAssets(ctx, Options{}, progress)).Error().To(MatchError(os.ErrNotExist))
	})

	It("knows the folder in which the builder builds", func(ctx context.Context) {
		dir := spectest.Must(builderDir(ctx))
		folder := install(spectest.Must(builderFolder(dir)), allBinaries...)

		ctx, cancel := context.WithCancel(ctx)
		defer cancel()

		// A builder that has another folder in mind would build, and say so.
		Expect(buildAssets(ctx, dir, allBinaries, &progressWriter{w: writerFunc(func(string) { cancel() })})).To(Equal(folder))
	})

	It("looks for built assets on this machine only", func(ctx context.Context) {
		dir, why := builtAssets(ctx, func(_ context.Context, env ...string) (string, error) {
			Expect(env).To(ConsistOf("GOPROXY=off"))
			return "", errors.New("module lookup disabled by GOPROXY=off")
		})
		Expect(dir).To(BeEmpty())
		Expect(why).To(Equal("this module's builder is not on this machine yet"))
	})

	DescribeTable("knows where setup-envtest keeps its downloads", func(goos string, env map[string]string, folder string) {
		dir, err := setupEnvtestDir(goos, func(name string) string { return env[name] })
		if folder == "" {
			Expect(err).To(MatchError(ContainSubstring("HOME or LocalAppData is not set")))
			return
		}
		Expect(err).NotTo(HaveOccurred())
		Expect(filepath.ToSlash(dir)).To(Equal(folder))
	},
		Entry("Linux", "linux", map[string]string{"HOME": "/h"}, "/h/.local/share/kubebuilder-envtest/k8s"),
		Entry("Linux, elsewhere", "linux", map[string]string{"HOME": "/h", "XDG_DATA_HOME": "/d"}, "/d/kubebuilder-envtest/k8s"),
		Entry("macOS", "darwin", map[string]string{"HOME": "/h", "XDG_DATA_HOME": "/d"},
			"/h/Library/Application Support/io.kubebuilder.envtest/k8s"),
		Entry("Windows", "windows", map[string]string{"HOME": "/h", "LocalAppData": "/l"}, "/l/kubebuilder-envtest/k8s"),
		Entry("without a home", "linux", map[string]string{}, ""),
	)
})

// install makes a folder with programs of these names and returns it.
func install(dir string, binaries ...string) string {
	GinkgoHelper()
	Expect(os.MkdirAll(dir, 0o700)).To(Succeed())
	for _, name := range binaries {
		Expect(os.WriteFile(filepath.Join(dir, name), nil, 0o700)).To(Succeed())
	}
	return dir
}
