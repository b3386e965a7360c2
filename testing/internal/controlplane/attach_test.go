package controlplane

// This file specifies the control plane that the packages of one run share.

import (
	"context"
	"path/filepath"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
)

var _ = Describe("A control plane that several packages use", Label("api-server"), func() {
	It("is had by one at a time, and acts for the next as if it were new", func(ctx context.Context) {
		assets := specAssets(ctx)
		owner, err := New(ctx, Options{Assets: assets})
		Expect(err).NotTo(HaveOccurred())
		DeferCleanup(owner.Stop)
		first, err := Attach(ctx, []string{owner.Folder()}, Options{Assets: assets})
		Expect(err).NotTo(HaveOccurred())
		Expect(first.Running()).To(Succeed())
		_, err = lockFile(filepath.Join(owner.Folder(), userLock), false)
		Expect(err).To(MatchError(errLocked))

		By("which can do with it what does not end it")
		config, err := first.User("someone", "system:masters")
		Expect(err).NotTo(HaveOccurred())
		clients, err := kubernetes.NewForConfig(config)
		Expect(err).NotTo(HaveOccurred())
		added, err := first.AddAPIServer(ctx)
		Expect(err).NotTo(HaveOccurred())
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
		before, err := roles.List(ctx, metav1.ListOptions{})
		Expect(err).NotTo(HaveOccurred())
		Eventually(func() error { // the webhook is in force a moment after it is written
			_, err := clients.CoreV1().ConfigMaps("default").Create(ctx, &corev1.ConfigMap{ObjectMeta: name},
				metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
			return err
		}).Should(MatchError(ContainSubstring("refuses.all.example.com")))

		By("which the next one does not find")
		next := make(chan *Plane)
		go func() {
			defer GinkgoRecover()
			second, err := Attach(ctx, []string{owner.Folder()}, Options{Assets: assets})
			Expect(err).NotTo(HaveOccurred())
			next <- second
		}()
		Expect(first.Stop()).To(Succeed())
		second := <-next
		Expect(second.APIServer().Config().Host).To(Equal(owner.APIServer().Config().Host))
		clients, err = kubernetes.NewForConfig(second.APIServer().Config())
		Expect(err).NotTo(HaveOccurred())
		roles = clients.RbacV1().ClusterRoles()
		_, err = roles.Create(ctx, &rbacv1.ClusterRole{ObjectMeta: name}, metav1.CreateOptions{})
		Expect(err).NotTo(HaveOccurred())
		Expect(second.clear(ctx)).To(Succeed())
		_, err = roles.Get(ctx, name.Name, metav1.GetOptions{})
		Expect(err).To(Satisfy(apierrors.IsNotFound))
		after, err := roles.List(ctx, metav1.ListOptions{})
		Expect(err).NotTo(HaveOccurred())
		Expect(after.Items).To(HaveLen(len(before.Items)), "the API server's own roles stay")

		Expect(second.Stop()).To(Succeed())
		Expect(owner.Running()).To(Succeed())
		Expect(owner.Stop()).To(Succeed())
		Expect(owner.Folder()).NotTo(BeADirectory())
	})
})
