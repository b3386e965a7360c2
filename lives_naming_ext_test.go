package eirinix_test

import (
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"code.cloudfoundry.org/eirinix"
	"code.cloudfoundry.org/eirinix/diagnosis"
)

// The reasons that several fields share.
const (
	onlyCAs       = reason("it changes the Secret and the caBundles alone")
	removesAll    = reason("it removes the configurations as a whole")
	servesNothing = reason("nothing is served")
	callsNothing  = reason("no webhook is called, and the steps are asked in memory")
	needsNothing  = reason("it needs no cluster, and opens no port")
	inNoEntry     = reason("the entries do not hold it")
	inNoObject    = reason("the objects do not hold it; the program that they start sets it itself")
	ownQuestion   = reason("the question of a diagnosis has an entry of its own, which does not hold it")
)

// object returns the only object of a type among the manifests.
func object[T client.Object](s *scene) T {
	GinkgoHelper()
	var all []T
	for _, o := range s.objects {
		if typed, ok := o.(T); ok {
			all = append(all, typed)
		}
	}
	Expect(all).To(HaveLen(1))
	return all[0]
}

// container returns the container of the Deployment among the manifests.
func container(s *scene) corev1.Container {
	GinkgoHelper()
	return object[*appsv1.Deployment](s).Spec.Template.Spec.Containers[0]
}

// rulesOn returns the rules about a resource in the Roles among the manifests, and in the ClusterRoles.
func rulesOn(s *scene, resource string) (all []rbacv1.PolicyRule) {
	for _, o := range s.objects {
		for _, r := range rulesOf(o) {
			if resourceOf(r) == resource {
				all = append(all, r)
			}
		}
	}
	return all
}

// hasSecret is the effect that the Secret has this name in this namespace.
func hasSecret(place func(*scene) (namespace, name string)) effect {
	return func(ctx SpecContext, s *scene) {
		GinkgoHelper()
		namespace, name := place(s)
		Expect(clients().CoreV1().Secrets(namespace).Get(ctx, name, metav1.GetOptions{})).To(HaveField("Data", HaveKey("ca.crt")))
	}
}

// keepsOthers plays Unregister, and asserts that a program with another value of the field may not do the same.
func keepsOthers(change func(*scene, *eirinix.ManagerOptions)) plays {
	return func(ctx SpecContext, s *scene) {
		GinkgoHelper()
		Expect(s.registered(ctx)).To(Succeed())
		Expect(s.other(func(o *eirinix.ManagerOptions) { change(s, o) }).Unregister(ctx)).To(MatchError(ContainSubstring("belongs to")))
		Expect(s.hooks(ctx)).NotTo(BeEmpty())
		Expect(s.run(ctx, unregister)).To(Succeed())
	}
}

var (
	ignored = eachHook(func(*scene) OmegaMatcher {
		return HaveField("FailurePolicy", HaveValue(Equal(admissionregistrationv1.Ignore)))
	})
	ofProgram = eachHook(func(s *scene) OmegaMatcher {
		return HaveField("Name", HaveSuffix("."+s.fingerprint()+".eirinix.cloudfoundry.org"))
	})
	ofSpace = eachHook(func(s *scene) OmegaMatcher {
		return HaveField("NamespaceSelector.MatchLabels", HaveKeyWithValue("kubernetes.io/metadata.name", s.workloads))
	})
)

// namingRows are those of the options that say whose objects there are, and what they are called.
var namingRows = map[string]row{
	"Namespace": {
		set:   func(s *scene, o *eirinix.ManagerOptions) { o.Namespace = s.workloads },
		Start: ofSpace, RegisterExtensions: ofSpace, Offline: ofSpace,
		Unregister: removesAll, RotateCA: onlyCAs,
		Diagnose: finds(func(s *scene, o *eirinix.ManagerOptions) { o.Namespace = "elsewhere" }, diagnosis.Excluded),
		Audit: effect(func(_ SpecContext, s *scene) {
			Expect(s.findings).To(And(Not(BeEmpty()), HaveEach(HaveField("Namespace", s.workloads))))
		}),
		Manifests: reason("without WebhookNamespace they are in it; the row of that option has it"),
	},
	"OperatorFingerprint": {
		set:   func(s *scene, o *eirinix.ManagerOptions) { o.OperatorFingerprint = s.namespace + "-x" },
		Start: ofProgram, RegisterExtensions: ofProgram, Offline: ofProgram,
		Unregister: plays(func(ctx SpecContext, s *scene) {
			Expect(s.plain().RegisterExtensions()).To(Succeed())
			Expect(s.run(ctx, unregister)).To(Succeed())
			Expect(clients().AdmissionregistrationV1().MutatingWebhookConfigurations().Get(ctx, s.namespace+"-mutating-hook", metav1.GetOptions{})).NotTo(BeNil())
			Expect(s.plain().Unregister(ctx)).To(Succeed())
		}),
		RotateCA: hasSecret(func(s *scene) (string, string) { return s.namespace, s.namespace + "-x-setupcertificate" }),
		Diagnose: finds(func(s *scene, o *eirinix.ManagerOptions) { o.OperatorFingerprint = s.namespace }, diagnosis.NotRegistered),
		Audit:    reason("only the names of PolicyReports hold it, for which this cluster has no kind"),
		Manifests: effect(func(_ SpecContext, s *scene) {
			Expect(object[*appsv1.Deployment](s).Name).To(Equal(s.namespace + "-x"))
			Expect(rulesOn(s, "secrets")).To(ContainElement(HaveField("ResourceNames", ConsistOf(s.namespace+"-x-setupcertificate"))))
		}),
	},
	"Domain": {
		set:   func(_ *scene, o *eirinix.ManagerOptions) { o.Domain = "lives.example.org" },
		Start: inDomain, RegisterExtensions: inDomain, Offline: inDomain,
		Unregister: removesAll, RotateCA: onlyCAs, Audit: callsNothing, Manifests: inNoObject,
		Diagnose: finds(func(_ *scene, o *eirinix.ManagerOptions) { o.Domain = "" }, diagnosis.NotRegistered),
	},
	"SetupCertificateName": {
		set:   func(_ *scene, o *eirinix.ManagerOptions) { o.SetupCertificateName = "own" },
		Start: ownSecret, RegisterExtensions: ownSecret, RotateCA: ownSecret,
		Unregister: keepsOthers(func(_ *scene, o *eirinix.ManagerOptions) { o.SetupCertificateName = "" }),
		Diagnose:   finds(func(_ *scene, o *eirinix.ManagerOptions) { o.SetupCertificateName = "" }, diagnosis.OwnedElsewhere),
		Audit:      callsNothing,
		Manifests: effect(func(_ SpecContext, s *scene) {
			Expect(rulesOn(s, "secrets")).To(ContainElement(HaveField("ResourceNames", ConsistOf("own"))))
		}),
		Offline: needsNothing,
	},
	"WebhookNamespace": {
		set:   func(s *scene, o *eirinix.ManagerOptions) { o.WebhookNamespace = s.namespace },
		Start: inSpace, RegisterExtensions: inSpace, RotateCA: inSpace,
		Unregister: keepsOthers(func(s *scene, o *eirinix.ManagerOptions) { o.WebhookNamespace = s.workloads }),
		Diagnose:   finds(func(s *scene, o *eirinix.ManagerOptions) { o.WebhookNamespace = s.workloads }, diagnosis.OwnedElsewhere),
		Audit:      callsNothing,
		Manifests: effect(func(_ SpecContext, s *scene) {
			Expect(object[*appsv1.Deployment](s).Namespace).To(Equal(s.namespace))
		}),
		Offline: plays(func(ctx SpecContext, s *scene) {
			Expect(s.run(ctx, clusterless, func(o *eirinix.ManagerOptions) { o.ServiceName, o.Namespace = "hooks", "" })).To(Succeed())
			Expect(s.hooks(ctx)).To(And(HaveLen(2), HaveEach(And(
				HaveField("ClientConfig.Service.Namespace", s.namespace),
				HaveField("NamespaceSelector.MatchExpressions", ContainElement(HaveField("Values", ContainElement(s.namespace)))),
			))))
		}),
	},
}

var (
	inDomain = eachHook(func(s *scene) OmegaMatcher {
		return HaveField("Name", HaveSuffix("."+s.fingerprint()+".lives.example.org"))
	})
	ownSecret = hasSecret(func(s *scene) (string, string) { return s.namespace, "own" })
	inSpace   = hasSecret(func(s *scene) (string, string) { return s.namespace, s.namespace + "-setupcertificate" })
)
