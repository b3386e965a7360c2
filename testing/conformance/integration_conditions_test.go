package conformance_test

// This file plays matchConditions, and a webhook on which the whole cluster depends.

import (
	"context"
	"fmt"
	"io"
	"strings"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"go.uber.org/zap"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"code.cloudfoundry.org/eirinix"
	. "code.cloudfoundry.org/eirinix/internal/spectest"
	"code.cloudfoundry.org/eirinix/preview"
	eirinixtest "code.cloudfoundry.org/eirinix/testing"
)

// where makes named conditions of expressions.
func where(expressions ...string) []admissionregistrationv1.MatchCondition {
	conditions := make([]admissionregistrationv1.MatchCondition, 0, len(expressions))
	for i, e := range expressions {
		conditions = append(conditions, admissionregistrationv1.MatchCondition{Name: fmt.Sprintf("condition-%d", i), Expression: e})
	}
	return conditions
}

var _ = Describe("S26 matchConditions", Label("S26"), func() {
	const fail, ignore = admissionregistrationv1.Fail, admissionregistrationv1.Ignore

	// steps returns a step of each kind, which count their calls.
	steps := func(calls *callLog, conditions []admissionregistrationv1.MatchCondition, policy admissionregistrationv1.FailurePolicyType) []any {
		settings := eirinix.Settings{Conditions: conditions, FailurePolicy: policy}
		note := func(kind string) func(context.Context, *eirinix.Call, *corev1.Pod) error {
			return func(_ context.Context, _ *eirinix.Call, p *corev1.Pod) error {
				calls.add(kind, p.Name)
				return nil
			}
		}
		return []any{
			eirinix.Mutation[*corev1.Pod]{ID: "mutating", Settings: settings, Apply: note("mutating")},
			eirinix.Validation[*corev1.Pod]{ID: "validating", Settings: settings, Create: note("validating")},
		}
	}

	const missing = "object.nonExistentProperty == 'someval'"
	eachMode(func(mode mode) {
		DescribeTable("decide who is called", func(ctx SpecContext, conditions []admissionregistrationv1.MatchCondition, policy admissionregistrationv1.FailurePolicyType, called []string, refused string) {
			namespace, calls := newNamespace(ctx), &callLog{}
			serve(ctx, mode, namespace, nil, steps(calls, conditions, policy)...)
			for _, name := range []string{"test1", "test2"} {
				_, err := createPod(ctx, namespace, NewPod(name, nil))
				if refused != "" {
					Expect(err).To(And(Satisfy(apierrors.IsForbidden), MatchError(ContainSubstring(refused))))
				} else {
					Expect(err).NotTo(HaveOccurred())
				}
			}
			var expected []string
			for _, name := range called {
				expected = append(expected, "mutating "+name, "validating "+name)
			}
			Expect(calls.list()).To(ConsistOf(expected))
		},
			Entry("one is true", where("object.metadata.name != 'test1'"), fail, []string{"test2"}, "", SpecTimeout(2*patience)),
			Entry("an error under Fail refuses, with 403 and without a call", where(missing, "true"), fail, nil, "no such key: nonExistentProperty", SpecTimeout(2*patience)),
			Entry("an error under Ignore skips", where(missing, "true"), ignore, nil, "", SpecTimeout(2*patience)),
		)
	})

	DescribeTable("that do not compile are refused by the API server, which ends the start, and by a preview",
		func(ctx SpecContext, expression, reason string) {
			o := optionsFor(ctx, urlMode, newNamespace(ctx))
			bad := func() *eirinix.ExtensionManager {
				m := eirinix.NewManager(o)
				for _, s := range steps(&callLog{}, where(expression), fail) {
					Expect(m.AddExtension(s)).To(Succeed())
				}
				return m
			}
			m := bad()
			Expect(m.Validate()).To(Succeed(), "it compiles nothing")
			Expect(m.Run(ctx)).To(And(Satisfy(apierrors.IsInvalid), MatchError(And(ContainSubstring(reason), ContainSubstring("webhooks[0].matchConditions[0].expression")))))
			Expect(m.Ready()).NotTo(BeClosed())

			By("previewing it without a cluster")
			Expect(preview.Command(ctx, bad(), []string{"-"}, func(o *preview.Options) {
				o.Stdin, o.Stdout, o.Stderr = strings.NewReader("{apiVersion: v1, kind: Pod, metadata: {name: a}}"), io.Discard, io.Discard
			})).To(MatchError(And(ContainSubstring("correct Settings.Conditions"), ContainSubstring(reason))), "for the same reason")
		},
		Entry("a syntax error", "object.metadata.", "compilation failed", SpecTimeout(patience)),
		Entry("not a boolean", "'yes'", "must evaluate to bool", SpecTimeout(patience)),
	)
})

// everything is a validation of all there is, of which the whole cluster depends.
func everything() eirinix.Validation[*unstructured.Unstructured] {
	allow := func(context.Context, *eirinix.Call, *unstructured.Unstructured) error { return nil }
	return eirinix.Validation[*unstructured.Unstructured]{
		ID: "everything",
		Settings: eirinix.Settings{
			Rules:                ruleFor("*", "*", []string{"*/*"}, admissionregistrationv1.OperationAll),
			Namespaces:           &metav1.LabelSelector{},
			FailurePolicy:        admissionregistrationv1.Fail,
			Timeout:              time.Second,
			AllowClusterCritical: true,
		},
		Create: allow, Delete: allow,
	}
}

var _ = Describe("S27 A broken webhook with failurePolicy Fail on everything", Label("S27"), func() {
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
			Expect(m.AddExtension(everything())).To(Succeed())
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
