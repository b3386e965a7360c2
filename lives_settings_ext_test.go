package eirinix_test

import (
	"context"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	admissionv1 "k8s.io/api/admission/v1"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"code.cloudfoundry.org/eirinix"
	"code.cloudfoundry.org/eirinix/audit"
	"code.cloudfoundry.org/eirinix/diagnosis"
	. "code.cloudfoundry.org/eirinix/internal/spectest"
	"code.cloudfoundry.org/eirinix/manifests"
)

// entry returns a row of a setting that each life shows in the entries, if it shows them at all.
func entry(set func(*scene, *eirinix.Settings), matcher func(*scene) OmegaMatcher) row {
	return entries(func(s *scene, _ string, settings *eirinix.Settings) { set(s, settings) }, eachHook(matcher))
}

func entries(set func(*scene, string, *eirinix.Settings), shows effect) row {
	return row{
		settings: set, Start: shows, RegisterExtensions: shows, Offline: shows,
		Unregister: removesAll, RotateCA: onlyCAs, Audit: callsNothing, Diagnose: ownQuestion, Manifests: inNoObject,
	}
}

// finding returns the effect that there are findings, and that all match.
func finding(matcher func(*scene) OmegaMatcher) effect {
	return func(_ SpecContext, s *scene) {
		GinkgoHelper()
		Expect(s.findings).To(And(Not(BeEmpty()), HaveEach(matcher(s))))
	}
}

var (
	selected  = &metav1.LabelSelector{MatchLabels: map[string]string{"lives": "yes"}}
	condition = admissionregistrationv1.MatchCondition{Name: "named", Expression: `object.metadata.name != "other"`}
)

// settingsRows are those of the settings of steps.
var settingsRows = map[string]row{
	"Operations": entry(func(_ *scene, s *eirinix.Settings) {
		s.Operations = []admissionregistrationv1.OperationType{admissionregistrationv1.Update}
	}, func(*scene) OmegaMatcher {
		return HaveField("Rules", HaveEach(HaveField("Operations", ConsistOf(admissionregistrationv1.Update))))
	}).with(func(r *row) {
		r.Audit = finding(func(*scene) OmegaMatcher { return HaveField("Operation", admissionv1.Update) })
		r.Manifests = allowsOwnPods
	}),
	"Rules": entries(func(_ *scene, step string, s *eirinix.Settings) {
		resources := map[string]string{"team": "pods", "owner": "configmaps"}
		s.Rules = []admissionregistrationv1.RuleWithOperations{{
			Operations: []admissionregistrationv1.OperationType{admissionregistrationv1.Create},
			Rule:       admissionregistrationv1.Rule{APIGroups: []string{""}, APIVersions: []string{"v1"}, Resources: []string{resources[step]}, Scope: new(admissionregistrationv1.AllScopes)},
		}}
	}, eachHook(func(*scene) OmegaMatcher {
		return HaveField("Rules", HaveEach(HaveField("Scope", HaveValue(Equal(admissionregistrationv1.AllScopes)))))
	})).with(func(r *row) {
		r.Audit = finding(func(*scene) OmegaMatcher { return HaveField("Resource.Resource", BeElementOf("pods", "configmaps")) })
		r.deploy = func(o *manifests.Options) { o.AuditSchedule = "@daily" }
		r.Manifests = effect(func(_ SpecContext, s *scene) {
			Expect(rulesOn(s, "configmaps")).To(ContainElement(HaveField("Verbs", ContainElement("list"))))
		})
	}),
	"Namespaces": entry(func(s *scene, settings *eirinix.Settings) {
		settings.Namespaces = &metav1.LabelSelector{MatchLabels: map[string]string{"kubernetes.io/metadata.name": s.workloads}}
	}, func(s *scene) OmegaMatcher {
		return HaveField("NamespaceSelector.MatchLabels", HaveKeyWithValue("kubernetes.io/metadata.name", s.workloads))
	}).with(func(r *row) {
		r.set = func(_ *scene, o *eirinix.ManagerOptions) { o.Namespace = "" }
		r.Audit = finding(func(s *scene) OmegaMatcher { return HaveField("Namespace", s.workloads) })
		r.Manifests = allowsOwnPods
	}),
	"Objects": entry(func(_ *scene, s *eirinix.Settings) { s.Objects = selected }, func(*scene) OmegaMatcher {
		return HaveField("ObjectSelector.MatchLabels", HaveKeyWithValue("lives", "yes"))
	}).with(func(r *row) {
		r.Audit = effect(func(_ SpecContext, s *scene) { Expect(s.findings).To(BeEmpty(), "no object has the label") })
		r.Manifests = allowsOwnPods
	}),
	"Conditions": entry(func(_ *scene, s *eirinix.Settings) {
		s.Conditions = []admissionregistrationv1.MatchCondition{condition}
	}, func(*scene) OmegaMatcher { return HaveField("MatchConditions", ContainElement(condition)) }),
	"FailurePolicy": entries(func(_ *scene, _ string, s *eirinix.Settings) { s.FailurePolicy = admissionregistrationv1.Ignore }, ignored).with(func(r *row) {
		r.Manifests = allowsOwnPods
	}),
	"MatchPolicy": entry(func(_ *scene, s *eirinix.Settings) { s.MatchPolicy = admissionregistrationv1.Exact }, func(*scene) OmegaMatcher {
		return HaveField("MatchPolicy", HaveValue(Equal(admissionregistrationv1.Exact)))
	}),
	"Timeout": entry(func(_ *scene, s *eirinix.Settings) { s.Timeout = 7 * time.Second }, func(*scene) OmegaMatcher {
		return HaveField("TimeoutSeconds", HaveValue(BeEquivalentTo(7)))
	}),
	"Reinvoke": entries(func(_ *scene, step string, s *eirinix.Settings) {
		if step == "team" { // only mutating steps are called again
			s.Reinvoke = admissionregistrationv1.IfNeededReinvocationPolicy
		}
	}, func(ctx SpecContext, s *scene) {
		Expect(s.hooks(ctx)[0].ReinvocationPolicy).To(HaveValue(Equal(admissionregistrationv1.IfNeededReinvocationPolicy)))
	}),
	"SideEffects": entry(func(_ *scene, s *eirinix.Settings) {
		s.SideEffects = admissionregistrationv1.SideEffectClassNoneOnDryRun
	}, func(*scene) OmegaMatcher {
		return HaveField("SideEffects", HaveValue(Equal(admissionregistrationv1.SideEffectClassNoneOnDryRun)))
	}),
	"Isolated": entries(func(_ *scene, step string, s *eirinix.Settings) { s.Isolated = step == "owner" }, func(ctx SpecContext, s *scene) {
		Expect(s.hooks(ctx)).To(HaveLen(3), "both steps about ConfigMaps have an entry")
	}).with(func(r *row) {
		r.add = func(_ *scene, m *eirinix.ExtensionManager) {
			Expect(m.AddExtension(eirinix.Validation[*corev1.ConfigMap]{
				ID: "like-owner", Create: func(context.Context, *eirinix.Call, *corev1.ConfigMap) error { return nil },
			})).To(Succeed())
		}
		r.Diagnose = effect(func(_ SpecContext, s *scene) {
			Expect(s.report.Findings).To(ContainElement(And(HaveField("Code", diagnosis.SharedCalls), HaveField("Message", ContainSubstring("because of Isolated")))))
		})
	}),
	"AllowClusterCritical": entry(func(s *scene, settings *eirinix.Settings) {
		settings.AllowClusterCritical = true
		settings.Namespaces = &metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{{
			Key: "kubernetes.io/metadata.name", Operator: metav1.LabelSelectorOpIn, Values: []string{"kube-system", s.workloads},
		}}}
		settings.Objects = &metav1.LabelSelector{MatchLabels: map[string]string{"lives": s.namespace}}
	}, func(s *scene) OmegaMatcher { return HaveField("NamespaceSelector.MatchExpressions", HaveLen(1)) }).with(func(r *row) {
		r.set = func(_ *scene, o *eirinix.ManagerOptions) { o.Namespace = "" }
	}),
	"Owned": entries(func(_ *scene, step string, s *eirinix.Settings) {
		if step == "team" { // only mutating steps leave objects alone
			s.Owned = eirinix.OwnedSkip
		}
	}, func(_ SpecContext, s *scene) {
		Expect(s.logged()).To(ContainSubstring("leavesAlone:whatever has a controller"))
	}).with(func(r *row) {
		r.prepare = func(ctx SpecContext, s *scene) {
			pod := NewPod("owned", nil)
			pod.OwnerReferences = []metav1.OwnerReference{{APIVersion: "v1", Kind: "ConfigMap", Name: "old", UID: "u", Controller: new(true)}}
			Must(createPod(ctx, s.workloads, pod))
		}
		r.Offline = inNoEntry
		r.Audit = effect(func(_ SpecContext, s *scene) {
			Expect(s.findings).To(And(ContainElement(HaveField("Step", "team")), Not(ContainElement(HaveField("Name", "owned")))))
		})
	}),
	"Mode": entries(func(_ *scene, _ string, s *eirinix.Settings) { s.Mode = eirinix.ModeShadow }, ignored).with(func(r *row) {
		r.Audit = finding(func(*scene) OmegaMatcher { return HaveField("Mode", eirinix.ModeShadow) })
		r.Manifests = allowsOwnPods
	}),
	"FixedMode": addressRows["ModesConfigMap"].with(func(r *row) {
		r.settings = func(_ *scene, _ string, s *eirinix.Settings) { s.FixedMode = true }
		r.Start, r.RegisterExtensions = fails, fails
		r.Diagnose = reports(diagnosis.ModeRefused)
	}),
	"DependsOnUser": entries(func(_ *scene, _ string, s *eirinix.Settings) { s.DependsOnUser = true }, nil).with(func(r *row) {
		r.Start, r.RegisterExtensions, r.Offline = inNoEntry, inNoEntry, inNoEntry
		r.Audit = finding(func(*scene) OmegaMatcher { return HaveField("Result", audit.Unknown) })
	}),
	"Reads": {
		prepare: func(ctx SpecContext, s *scene) {
			_, err := clients().CoreV1().ConfigMaps(s.namespace).Create(ctx, newConfigMap("words", map[string]string{"no": "not this one"}), metav1.CreateOptions{})
			Expect(err).NotTo(HaveOccurred())
		},
		add: func(s *scene, m *eirinix.ExtensionManager) {
			Expect(m.AddExtension(eirinix.Validation[*corev1.Pod]{
				ID: "reader", Settings: eirinix.Settings{Reads: []eirinix.Read{{Object: &corev1.ConfigMap{}, Namespaces: []string{s.namespace}}}},
				Create: func(ctx context.Context, c *eirinix.Call, _ *corev1.Pod) error {
					words := &corev1.ConfigMap{}
					if err := c.Reader().Get(ctx, client.ObjectKey{Namespace: s.namespace, Name: "words"}, words); err != nil {
						return err
					}
					return eirinix.Deny("%s", words.Data["no"])
				},
			})).To(Succeed())
		},
		Start: effect(func(ctx SpecContext, s *scene) {
			Eventually(func() error { return tryPod(ctx, s.workloads) }).WithContext(ctx).Should(MatchError(ContainSubstring("not this one")))
		}),
		RegisterExtensions: effect(func(ctx SpecContext, s *scene) {
			Expect(s.hooks(ctx)).To(HaveLen(3), "the step does not wait")
		}),
		Unregister: removesAll, RotateCA: onlyCAs,
		Diagnose: reason("another process cannot tell what the running one has read"),
		Audit: effect(func(_ SpecContext, s *scene) {
			Expect(s.findings).To(ContainElement(And(HaveField("Step", "reader"), HaveField("Message", "not this one"))))
		}),
		Manifests: effect(func(_ SpecContext, s *scene) {
			Expect(rulesOn(s, "configmaps")).To(ContainElement(HaveField("Verbs", ContainElements("get", "list", "watch"))))
		}),
		Offline: effect(func(_ SpecContext, s *scene) { Expect(s.played.Reads).To(HaveKey("reader")) }),
	},
}

// fails is the effect that the entries have failurePolicy Fail.
var fails = eachHook(func(*scene) OmegaMatcher {
	return HaveField("FailurePolicy", HaveValue(Equal(admissionregistrationv1.Fail)))
})
