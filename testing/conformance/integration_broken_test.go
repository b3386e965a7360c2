package conformance_test

import (
	"context"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"go.uber.org/zap"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"code.cloudfoundry.org/eirinix"
	. "code.cloudfoundry.org/eirinix/internal/spectest"
	eirinixtest "code.cloudfoundry.org/eirinix/testing"
)

// everything is a validation of all there is, of which the whole cluster depends.
func everything(critical bool) eirinix.Validation[*unstructured.Unstructured] {
	allow := func(context.Context, *eirinix.Call, *unstructured.Unstructured) error { return nil }
	return eirinix.Validation[*unstructured.Unstructured]{
		ID: "everything",
		Settings: eirinix.Settings{
			Rules:                ruleFor("*", "*", []string{"*/*"}, admissionregistrationv1.OperationAll),
			Namespaces:           &metav1.LabelSelector{},
			FailurePolicy:        admissionregistrationv1.Fail,
			Timeout:              time.Second,
			AllowClusterCritical: critical,
		},
		Create: allow, Delete: allow,
	}
}

var _ = Describe("S27 A broken webhook with failurePolicy Fail on everything", Label("S27"), func() {
	It("is refused to those who do not insist", func(ctx SpecContext) {
		namespace := newNamespace(ctx)
		m := eirinix.NewManager(optionsFor(ctx, urlMode, namespace))
		Expect(m.AddExtension(everything(false))).To(Succeed())
		Expect(m.Validate()).To(MatchError(And(ContainSubstring("stops the cluster"), ContainSubstring("AllowClusterCritical"))))
	}, SpecTimeout(patience))

	It("survives the API server's restart, and the cluster heals when its configuration is deleted, or its Manager comes back", func(ctx SpecContext) {
		// A control plane of its own: everything on it is refused for a while.
		plane, err := eirinixtest.NewControlPlane(ctx, eirinixtest.ControlPlaneOptions{Progress: GinkgoWriter})
		Expect(err).NotTo(HaveOccurred())
		DeferCleanup(plane.Stop)
		o := eirinix.ManagerOptions{
			Namespace: metav1.NamespaceDefault, Host: "127.0.0.1", ListenAddress: "127.0.0.1:0", RestConfig: plane.Config(),
			OperatorFingerprint: "broken", Logger: zap.New(Log()).Sugar(),
		}
		run := func() (m *eirinix.ExtensionManager, stop func()) {
			m = eirinix.NewManager(o)
			Expect(m.AddExtension(everything(true))).To(Succeed())
			done := make(chan error, 1)
			go func() { done <- m.Run(context.WithoutCancel(ctx)) }()
			stop = func() {
				m.Stop()
				Eventually(done).WithContext(ctx).Should(Receive(BeNil()))
			}
			DeferCleanup(m.Stop)
			Eventually(m.Ready()).WithContext(ctx).Should(BeClosed())
			return m, stop
		}
		create := func(ctx context.Context, name string) error {
			_, err := Clients(plane.Config()).AppsV1().Deployments(metav1.NamespaceDefault).Create(ctx, NewDeployment(name), metav1.CreateOptions{})
			return err
		}
		refused := And(Satisfy(apierrors.IsInternalError), MatchError(ContainSubstring("everything.broken.eirinix")))

		_, stop := run()
		Expect(create(ctx, "served")).To(Succeed())
		stop()
		Expect(create(ctx, "broken")).To(refused)

		By("restarting the API server")
		Expect(plane.APIServer().Restart(ctx)).To(Succeed())
		Expect(create(ctx, "restarted")).To(refused)

		By("starting the Manager again")
		m, stop := run()
		Eventually(create).WithArguments(ctx, "back").WithContext(ctx).Should(Succeed())
		stop()
		Expect(create(ctx, "broken-again")).To(refused)

		By("deleting the configuration")
		Expect(m.Unregister(ctx)).To(Succeed())
		Eventually(create).WithArguments(ctx, "healed").WithContext(ctx).Should(Succeed())
	}, SpecTimeout(6*patience))
})
