package eirinixtest_test

import (
	"context"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"github.com/onsi/gomega/types"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"code.cloudfoundry.org/eirinix"
	eirinixtest "code.cloudfoundry.org/eirinix/testing"
)

var _ = Describe("A Harness of steps that watch", func() {
	It("does not look at the ConfigMap with the modes", func() {
		m := eirinix.NewManager(eirinix.ManagerOptions{Namespace: "cf", ModesConfigMap: "modes"})
		Expect(m.AddExtension(eirinix.Validation[*corev1.ConfigMap]{
			ID: "owner", Settings: eirinix.Settings{Mode: eirinix.ModeWarn},
			Create: func(context.Context, *eirinix.Call, *corev1.ConfigMap) error {
				return eirinix.Deny("set the label owner")
			},
		})).To(Succeed())
		h := eirinixtest.NewHarness(GinkgoT(), m, having(inNamespace("cf", configMap("modes", map[string]string{"owner": "Deny"}))))
		Expect(h.Create(configMap("settings", nil))).To(eirinixtest.HaveWarned(ContainSubstring(`"owner" would deny this`)))
	})

	DescribeTable("shows what they report", func(mode eirinix.Mode, reported types.GomegaMatcher) {
		m := eirinix.NewManager(eirinix.ManagerOptions{})
		Expect(m.AddExtension(eirinix.Validation[*corev1.ConfigMap]{
			ID: "owner", Settings: eirinix.Settings{Mode: mode},
			Create: func(context.Context, *eirinix.Call, *corev1.ConfigMap) error {
				return eirinix.Deny("set the label owner")
			},
		})).To(Succeed())
		Expect(m.AddExtension(eirinix.Mutation[*corev1.ConfigMap]{
			ID: "stage", Settings: eirinix.Settings{Mode: mode},
			Apply: func(_ context.Context, _ *eirinix.Call, cm *corev1.ConfigMap) error {
				metav1.SetMetaDataLabel(&cm.ObjectMeta, "stage", "test")
				return nil
			},
		})).To(Succeed())
		h := eirinixtest.NewHarness(GinkgoT(), m)
		Expect(h.Create(&corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "settings", Namespace: "cf"}})).To(reported)
	},
		Entry("Deny", eirinix.ModeDeny, eirinixtest.BeDenied().WithMessage("set the label owner")),
		Entry("Warn", eirinix.ModeWarn, And(eirinixtest.BeUnchanged(), eirinixtest.HaveWarned(ContainSubstring(`"owner" would deny this: set the label owner`)),
			eirinixtest.HaveWarned(ContainSubstring(`"stage" would change this: /metadata/labels`)))),
		Entry("Audit", eirinix.ModeAudit, And(eirinixtest.BeUnchanged(), eirinixtest.HaveAudited("would-deny", "owner: set the label owner"),
			eirinixtest.HaveAudited("would-change", "stage: /metadata/labels"))),
		Entry("Shadow", eirinix.ModeShadow, And(eirinixtest.BeUnchanged(), eirinixtest.HaveRun("owner"), eirinixtest.HaveAudited("would-deny", "owner: set the label owner"),
			eirinixtest.HaveAudited("would-change", "stage: /metadata/labels"))),
	)
})
