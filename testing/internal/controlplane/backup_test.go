package controlplane

import (
	"context"
	"path/filepath"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
)

var _ = Describe("A backup of a control plane", Label("api-server"), func() {
	It("is restored on the same ports: what was written since is gone, and what was deleted is back", func(ctx context.Context) {
		plane, err := New(ctx, Options{Assets: specAssets(ctx)})
		Expect(err).NotTo(HaveOccurred())
		DeferCleanup(plane.Stop)
		clients, err := kubernetes.NewForConfig(plane.APIServer().Config())
		Expect(err).NotTo(HaveOccurred())
		maps := clients.CoreV1().ConfigMaps("default")
		create := func(name string) *corev1.ConfigMap {
			GinkgoHelper()
			c, err := maps.Create(ctx, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: name}}, metav1.CreateOptions{})
			Expect(err).NotTo(HaveOccurred())
			return c
		}
		deleted := create("deleted")
		backup := filepath.Join(GinkgoT().TempDir(), "backup")
		Expect(plane.Backup(backup)).To(Succeed())
		Expect(maps.Delete(ctx, "deleted", metav1.DeleteOptions{})).To(Succeed())
		create("later")

		for range 2 { // a backup can be restored again
			Expect(plane.Restore(ctx, backup)).To(Succeed())
			_, err = maps.Get(ctx, "deleted", metav1.GetOptions{})
			Expect(err).To(HaveOccurred(), "the API server is stopped")
			Expect(plane.APIServer().Restart(ctx)).To(Succeed())
			found, err := maps.Get(ctx, "deleted", metav1.GetOptions{})
			Expect(err).NotTo(HaveOccurred())
			Expect(found.UID).To(Equal(deleted.UID))
			Expect(found.ResourceVersion).To(Equal(deleted.ResourceVersion))
			_, err = maps.Get(ctx, "later", metav1.GetOptions{})
			Expect(err).To(Satisfy(apierrors.IsNotFound))
			create("again")
			Expect(plane.Running()).To(Succeed())
		}
	})
})
