package controlplane

// This file specifies what a control plane is to its clients, and when two users may share one.

import (
	"context"
	"os"
	"path/filepath"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
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

var _ = Describe("A control plane", func() {
	It("keeps its administrators out of etcd, of which a backup brings back all that was deleted, and nothing that was written later", Label("api-server"), func(ctx context.Context) {
		plane := spectest.Must(New(ctx, Options{Assets: specAssets(ctx)}))
		DeferCleanup(plane.Stop)
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

	It("reports that no server has logged anything", func() {
		dir := GinkgoT().TempDir()
		Expect(os.WriteFile(filepath.Join(dir, "etcd.log"), []byte("before\n"), 0o600)).To(Succeed())
		Expect(LogSizesIn(dir).LoggedSince(dir)).To(Equal("the control plane has logged nothing since the test began"))
	})
})
