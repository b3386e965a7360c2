package eirinixtest_test

import (
	"context"
	"fmt"
	"strings"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"code.cloudfoundry.org/eirinix"
	eirinixtest "code.cloudfoundry.org/eirinix/testing"

	"go.uber.org/zap"
)

var _ = Describe("StartManager", Label("api-server"), Ordered, func() {
	const patience = 30 * time.Second
	var plane *eirinixtest.ControlPlane
	BeforeAll(func() { plane = eirinixtest.StartControlPlane(GinkgoTB(), eirinixtest.Shared) })

	options := func(fingerprint string) eirinix.ManagerOptions {
		return eirinix.ManagerOptions{
			RestConfig: plane.Config(), Namespace: "default", Host: "127.0.0.1", ListenAddress: "127.0.0.1:0",
			OperatorFingerprint: fingerprint, Logger: zap.NewNop().Sugar(),
		}
	}
	clients := func() kubernetes.Interface {
		c, err := kubernetes.NewForConfig(plane.Config())
		Expect(err).NotTo(HaveOccurred())
		return c
	}

	It("returns when the first object is sent to the Manager, and leaves nothing behind", func(ctx SpecContext) {
		test := &recorder{}
		m := eirinix.NewManager(options("started"))
		Expect(m.AddExtension(eirinix.Mutation[*corev1.ConfigMap]{ID: "mark", Apply: func(_ context.Context, _ *eirinix.Call, c *corev1.ConfigMap) error {
			c.Data = map[string]string{"marked": "yes"}
			return nil
		}})).To(Succeed())
		eirinixtest.StartManager(test, m)
		made, err := clients().CoreV1().ConfigMaps("default").Create(ctx, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{GenerateName: "first-"}}, metav1.CreateOptions{})
		Expect(err).NotTo(HaveOccurred())
		Expect(made.Data).To(HaveKeyWithValue("marked", "yes"))

		test.end()
		Expect(test.said).To(BeEmpty())
		_, err = clients().AdmissionregistrationV1().MutatingWebhookConfigurations().Get(ctx, "started-mutating-hook", metav1.GetOptions{})
		Expect(apierrors.IsNotFound(err)).To(BeTrue(), "%v", err)
		Expect(m.Run(ctx)).NotTo(Succeed(), "it has run")
	}, SpecTimeout(patience))

	It("fails the test with the fault", func(SpecContext) {
		test := &recorder{}
		eirinixtest.StartManager(test, eirinix.NewManager(eirinix.ManagerOptions{Logger: zap.NewNop().Sugar()}))
		Expect(test.fatal).To(And(ContainSubstring("Run returned before the Manager was ready"), ContainSubstring("Host is empty")))
		test.end()

		test = &recorder{}
		o := options("elsewhere")
		o.Port = 1 // where nothing listens
		m := eirinix.NewManager(o)
		Expect(m.AddExtension(eirinix.Mutation[*corev1.ConfigMap]{ID: "mark", Apply: func(context.Context, *eirinix.Call, *corev1.ConfigMap) error { return nil }})).To(Succeed())
		eirinixtest.StartManager(test, m)
		Expect(test.fatal).To(And(ContainSubstring("the API server does not call the Manager"), ContainSubstring("set ManagerOptions.Port to")))
		test.end()
	}, SpecTimeout(5*patience))
})

// recorder is a test that goes on when it has failed.
type recorder struct {
	fatal, said string
	cleanups    []func()
}

func (*recorder) Helper()            {}
func (r *recorder) Cleanup(f func()) { r.cleanups = append(r.cleanups, f) }
func (r *recorder) Failed() bool     { return r.fatal != "" }
func (r *recorder) Logf(format string, args ...any) {
	r.said += strings.TrimSpace(fmt.Sprintf(format, args...)) + "\n"
}
func (r *recorder) Errorf(format string, args ...any) { r.fatal += fmt.Sprintf(format, args...) }
func (r *recorder) Fatalf(format string, args ...any) { r.fatal += fmt.Sprintf(format, args...) }

// end runs the cleanups, as the end of a test does.
func (r *recorder) end() {
	for len(r.cleanups) > 0 {
		last := r.cleanups[len(r.cleanups)-1]
		r.cleanups = r.cleanups[:len(r.cleanups)-1]
		last()
	}
}
