package controlplane

// This file specifies what a control plane is to its clients, how processes share one, and how its binaries are built.

import (
	"archive/zip"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"code.cloudfoundry.org/eirinix/internal/spectest"
)

var _ = Describe("Options", func() {
	DescribeTable("request the same control plane if they are equal", func(change func(*Options), same bool) {
		one := Options{Assets: "/a", APIServerArgs: []string{"--v=1", "--w=2"}}
		other := one
		change(&other)
		Expect(other.Key() == one.Key()).To(Equal(same))
	},
		Entry("wherever the progress goes", func(o *Options) { o.Progress = os.Stderr }, true),
		Entry("not other binaries", func(o *Options) { o.Assets = "/b" }, false),
		Entry("not a controller manager", func(o *Options) { o.ControllerManager = true }, false),
		Entry("not other flags", func(o *Options) { o.APIServerArgs = []string{"--v=1 --w=2"} }, false),
		Entry("not logs elsewhere", func(o *Options) { o.LogDir = "/l" }, false),
	)

	It("request another control plane if the environment names other binaries", func() {
		before := Options{}.Key()
		GinkgoT().Setenv(assetsVariable, "/elsewhere")
		Expect(Options{}.Key()).NotTo(Equal(before))
	})
})

var _ = Describe("A control plane", Ordered, Label("api-server"), func() {
	var plane *Plane
	BeforeAll(func(ctx context.Context) {
		plane = spectest.Must(New(context.WithoutCancel(ctx), Options{Assets: specAssets(ctx)}))
		DeferCleanup(func() { _ = plane.Stop() })
	})

	It("keeps its administrators out of etcd, of which a backup brings back all that was deleted, and nothing that was written later", func(ctx context.Context) {
		Expect(getOK(ctx, plane.keys.etcdTLS, plane.etcdURL+"/health")).To(Succeed())
		Expect(getOK(ctx, plane.keys.adminTLS, plane.etcdURL+"/health")).NotTo(Succeed())

		maps := kubernetes.NewForConfigOrDie(plane.APIServer().Config()).CoreV1().ConfigMaps("default")
		create := func(name string) *corev1.ConfigMap {
			GinkgoHelper()
			return spectest.Must(maps.Create(ctx, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: name}}, metav1.CreateOptions{}))
		}
		deleted := create("deleted")
		backup := filepath.Join(GinkgoT().TempDir(), "backup")
		Expect(plane.Backup(backup)).To(Succeed())
		Expect(maps.Delete(ctx, deleted.Name, metav1.DeleteOptions{})).To(Succeed())
		create("later")
		Expect(plane.Restore(ctx, backup)).To(Succeed())
		_, err := maps.Get(ctx, deleted.Name, metav1.GetOptions{})
		Expect(err).To(HaveOccurred(), "the API server is stopped")
		Expect(plane.APIServer().Restart(ctx)).To(Succeed(), "on the same port")
		Expect(maps.Get(ctx, deleted.Name, metav1.GetOptions{})).To(And(HaveField("UID", deleted.UID), HaveField("ResourceVersion", deleted.ResourceVersion)))
		_, err = maps.Get(ctx, "later", metav1.GetOptions{})
		Expect(err).To(Satisfy(apierrors.IsNotFound))
		create("again")
		Expect(plane.Running()).To(Succeed())
	})

	It("takes another port for a server when one is taken", func(ctx context.Context) {
		_, taken, _ := strings.Cut(strings.TrimPrefix(plane.APIServer().Config().Host, "https://"), ":")
		tried := 0
		p, port, err := plane.startOnFreePort(ctx, "kube-apiserver-7", func(port string) []string {
			if tried++; tried == 1 {
				port = taken
			}
			return plane.apiServerArgs(port, nil)
		}, plane.apiServerReady)
		Expect(err).NotTo(HaveOccurred())
		Expect(port).NotTo(Equal(taken))
		Expect(tried).To(Equal(2))
		p.kill()
	})

	It("reports a server that ended by itself", func() {
		Expect(plane.etcd.cmd.Process.Kill()).To(Succeed())
		Eventually(plane.etcd.exited).Should(BeClosed())
		Expect(plane.Stop()).To(MatchError(HavePrefix("etcd had ended by itself: signal: killed")))
		Expect(plane.Folder()).NotTo(BeADirectory())
	})
})

var _ = It("The log since a test began says that no server has logged anything", func() {
	dir := GinkgoT().TempDir()
	Expect(os.WriteFile(filepath.Join(dir, "etcd.log"), []byte("before\n"), 0o600)).To(Succeed())
	Expect(LogSizesIn(dir).LoggedSince(dir)).To(Equal("the control plane has logged nothing since the test began"))
})

var _ = Describe("A control plane that several packages use", Label("api-server"), func() {
	It("is had by one at a time, and acts for the next as if it were new", func(ctx context.Context) {
		assets := specAssets(ctx)
		owner := spectest.Must(New(ctx, Options{Assets: assets}))
		DeferCleanup(owner.Stop)
		first := spectest.Must(Attach(ctx, []string{owner.Folder()}, Options{Assets: assets}))
		Expect(first.Running()).To(Succeed())
		_, err := lockFile(filepath.Join(owner.Folder(), userLock), false)
		Expect(err).To(MatchError(errLocked))

		By("and is left by one that cannot use it")
		empty := GinkgoT().TempDir()
		_, err = Attach(ctx, []string{empty}, Options{Assets: assets})
		Expect(err).To(MatchError(ContainSubstring("no control plane: ")))
		lock := spectest.Must(lockFile(filepath.Join(empty, userLock), false))
		Expect(lock.Close()).To(Succeed())

		By("which can do with it what does not end it")
		config := spectest.Must(first.User("someone", "system:masters"))
		clients := spectest.Must(kubernetes.NewForConfig(config))
		added := spectest.Must(first.AddAPIServer(ctx))
		Expect(added.Restart(ctx)).To(Succeed())
		Expect(first.APIServer().Restart(ctx)).To(MatchError(ContainSubstring("restart one of AddAPIServer")))
		Expect(first.APIServer().Pause()).NotTo(Succeed())

		By("and leaves a webhook behind that refuses all")
		name := metav1.ObjectMeta{Name: "left"}
		none, everything := admissionregistrationv1.SideEffectClassNone, admissionregistrationv1.RuleWithOperations{
			Operations: []admissionregistrationv1.OperationType{admissionregistrationv1.OperationAll},
			Rule:       admissionregistrationv1.Rule{APIGroups: []string{"*"}, APIVersions: []string{"*"}, Resources: []string{"*/*"}},
		}
		url := "https://127.0.0.1:1"
		_, err = clients.AdmissionregistrationV1().ValidatingWebhookConfigurations().Create(ctx,
			&admissionregistrationv1.ValidatingWebhookConfiguration{ObjectMeta: name, Webhooks: []admissionregistrationv1.ValidatingWebhook{{
				Name: "refuses.all.example.com", SideEffects: &none, AdmissionReviewVersions: []string{"v1"},
				Rules: []admissionregistrationv1.RuleWithOperations{everything}, ClientConfig: admissionregistrationv1.WebhookClientConfig{URL: &url},
			}}}, metav1.CreateOptions{})
		Expect(err).NotTo(HaveOccurred())
		roles := clients.RbacV1().ClusterRoles()
		before := spectest.Must(roles.List(ctx, metav1.ListOptions{}))
		Eventually(func() error { // the webhook is in force a moment after it is written
			_, err := clients.CoreV1().ConfigMaps("default").Create(ctx, &corev1.ConfigMap{ObjectMeta: name},
				metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
			return err
		}).Should(MatchError(ContainSubstring("refuses.all.example.com")))

		By("which the next one does not find")
		next := make(chan *Plane)
		go func() {
			defer GinkgoRecover()
			second := spectest.Must(Attach(ctx, []string{owner.Folder()}, Options{Assets: assets}))
			next <- second
		}()
		Expect(first.Stop()).To(Succeed())
		second := <-next
		Expect(second.APIServer().Config().Host).To(Equal(owner.APIServer().Config().Host))
		clients = spectest.Must(kubernetes.NewForConfig(second.APIServer().Config()))
		roles = clients.RbacV1().ClusterRoles()
		spectest.Must(roles.Create(ctx, &rbacv1.ClusterRole{ObjectMeta: name}, metav1.CreateOptions{}))
		Expect(second.clear(ctx)).To(Succeed())
		_, err = roles.Get(ctx, name.Name, metav1.GetOptions{})
		Expect(err).To(Satisfy(apierrors.IsNotFound))
		after := spectest.Must(roles.List(ctx, metav1.ListOptions{}))
		Expect(after.Items).To(HaveLen(len(before.Items)), "the API server's own roles stay")

		Expect(second.Stop()).To(Succeed())
		Expect(second.Stop()).To(Succeed(), "again")
		Expect(owner.Running()).To(Succeed())
		Expect(owner.Stop()).To(Succeed())
		Expect(owner.Folder()).NotTo(BeADirectory())
	})
})

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

// helperVariable makes the test binary another program, see helper.
const helperVariable = "EIRINIXTEST_HELPER"

func TestMain(m *testing.M) {
	if role := os.Getenv(helperVariable); role != "" {
		helper(role)
	}
	os.Exit(m.Run())
}

// helper is the program that a spec starts to kill it.
func helper(role string) {
	if role == "control plane" {
		plane, err := New(context.Background(), Options{Assets: os.Getenv(assetsVariable), ControllerManager: true})
		if err != nil {
			fmt.Println(err)
			os.Exit(1)
		}
		fmt.Println(plane.dir.path)
	}
	select {}
}

func TestControlPlane(t *testing.T) {
	RegisterFailHandler(Fail)
	SetDefaultEventuallyTimeout(time.Minute) // of a busy machine
	RunSpecs(t, "testing/internal/controlplane")
}

// specAssets returns the folder with the binaries. The first call may build them.
func specAssets(ctx context.Context) string {
	GinkgoHelper()
	return spectest.Must(findAssets(ctx, Options{ControllerManager: true}, &progressWriter{w: os.Stderr}))
}
