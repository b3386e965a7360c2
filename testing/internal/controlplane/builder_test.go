package controlplane

import (
	"archive/zip"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"code.cloudfoundry.org/eirinix/internal/spectest"
)

var _ = Describe("the builder of the binaries", func() {
	It("is found beside the source, and elsewhere downloaded in the same version", func(ctx context.Context) {
		dir := spectest.Must(builderDir(ctx))
		Expect(filepath.Join(dir, "main.go")).To(BeAnExistingFile())

		proxy, user := GinkgoT().TempDir(), GinkgoT().TempDir()
		publish(proxy, rootModule, "v0.9.0", nil)
		publish(proxy, rootModule+"/"+controlPlanePath, "v0.9.0", map[string]string{"main.go": "package main // v0.9.0"})
		publish(proxy, rootModule+"/"+controlPlanePath, "v0.9.1", map[string]string{"main.go": "package main // v0.9.1"})
		Expect(os.WriteFile(filepath.Join(user, "go.mod"),
			[]byte("module example.org/user\n\ngo 1.26.0\n\nrequire "+rootModule+" v0.9.0\n"), 0o600)).To(Succeed())
		for name, value := range map[string]string{
			"GOPROXY": "file://" + filepath.ToSlash(proxy), "GOSUMDB": "off", "GOWORK": "off",
			"GOFLAGS": "-mod=mod -modcacherw", "GOMODCACHE": GinkgoT().TempDir(),
		} {
			GinkgoT().Setenv(name, value)
		}
		Expect(downloadedBuilderDir(ctx, user, "GOPROXY=off")).Error().To(HaveOccurred(), "it is not on this machine yet")
		dir = spectest.Must(downloadedBuilderDir(ctx, user))
		Expect(downloadedBuilderDir(ctx, user, "GOPROXY=off")).To(Equal(dir))
		Expect(os.ReadFile(filepath.Join(dir, "main.go"))).To(ContainSubstring("v0.9.0"))

		Expect(os.WriteFile(filepath.Join(user, "go.mod"), []byte("module example.org/user\n\ngo 1.26.0\n"), 0o600)).To(Succeed())
		Expect(downloadedBuilderDir(ctx, user)).Error().To(MatchError(ContainSubstring("not a known dependency")))
	})

	It("is run with its progress passed on, and cleans up when the context ends", func(ctx context.Context) {
		dir := GinkgoT().TempDir()
		GinkgoT().Setenv("GOFLAGS", "-mod=vendor")
		Expect(os.WriteFile(filepath.Join(dir, "go.mod"), []byte("module example.org/builder\n\ngo 1.26.0\n"), 0o600)).To(Succeed())

		builder := func(main string) {
			source := "package main\n\nimport (\"fmt\"; \"os\"; \"os/signal\")\n\n" +
				"var _, _, _ = fmt.Println, os.Exit, signal.Notify\n\nfunc main() {\n" + main + "}\n"
			Expect(os.WriteFile(filepath.Join(dir, "main.go"), []byte(source), 0o600)).To(Succeed())
		}
		var progress strings.Builder

		builder(`fmt.Fprintln(os.Stderr, "half done"); fmt.Println("/the/assets")`)
		Expect(buildAssets(ctx, dir, allBinaries, &progressWriter{w: &progress})).To(Equal("/the/assets"))
		Expect(progress.String()).To(Equal("half done\n"))

		builder(`fmt.Fprintln(os.Stderr, "controlplane: make room"); os.Exit(1)`)
		Expect(buildAssets(ctx, dir, allBinaries, &progressWriter{})).Error().To(MatchError(ContainSubstring("exit status 1\ncontrolplane: make room")))

		builder(`this is no Go`)
		Expect(buildAssets(ctx, dir, allBinaries, &progressWriter{})).Error().To(MatchError(ContainSubstring("does not compile")))

		builder(`
			c := make(chan os.Signal, 1)
			signal.Notify(c, os.Interrupt)
			fmt.Fprintln(os.Stderr, "started")
			<-c
			fmt.Fprintln(os.Stderr, "cleaned up")
			os.Exit(1)
		`)

		ctx, cancel := context.WithCancel(ctx)
		defer cancel()

		Expect(buildAssets(ctx, dir, allBinaries, &progressWriter{w: writerFunc(func(string) { cancel() })})).Error().
			To(And(MatchError(context.Canceled), MatchError(ContainSubstring("cleaned up"))))
	})
})

// publish puts a module into a Go module proxy that is a folder.
func publish(proxy, module, version string, files map[string]string) {
	GinkgoHelper()
	dir := filepath.Join(proxy, filepath.FromSlash(module), "@v")
	Expect(os.MkdirAll(dir, 0o700)).To(Succeed())

	goMod := fmt.Sprintf("module %s\n\ngo 1.26.0\n", module)
	info := fmt.Sprintf(`{"Version":%q,"Time":"2026-01-02T03:04:05Z"}`, version)
	Expect(os.WriteFile(filepath.Join(dir, version+".mod"), []byte(goMod), 0o600)).To(Succeed())
	Expect(os.WriteFile(filepath.Join(dir, version+".info"), []byte(info), 0o600)).To(Succeed())

	archive := spectest.Must(os.Create(filepath.Join(dir, version+".zip")))
	defer archive.Close()

	w := zip.NewWriter(archive)
	defer w.Close()

	contents := map[string]string{"go.mod": goMod}
	for name, text := range files {
		contents[name] = text
	}
	for name, text := range contents {
		f := spectest.Must(w.Create(module + "@" + version + "/" + name))
		spectest.Must(f.Write([]byte(text)))
	}
}
