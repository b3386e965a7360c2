package eirinix_test

// This file holds the rows of the options that say for which objects and at which address the program is called, and what
// its own objects are called.

import (
	"fmt"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"code.cloudfoundry.org/eirinix"
)

// shows returns a row of an option that a registered entry shows.
func shows(set func(*scene, *eirinix.ManagerOptions), shown effect) row {
	return row{set: set, Start: shown, RegisterExtensions: shown}
}

// urlIs returns the effect that the API server calls this address.
func urlIs(address func(*scene) string) effect {
	return eachHook(func(s *scene) OmegaMatcher {
		return HaveField("ClientConfig.URL", HaveValue(HavePrefix("https://"+address(s)+"/")))
	})
}

// hasSecret is the effect that the Secret has this name.
func hasSecret(name func(*scene) string) effect {
	return func(ctx SpecContext, s *scene) {
		GinkgoHelper()
		Expect(clients().CoreV1().Secrets(s.namespace).Get(ctx, name(s), metav1.GetOptions{})).To(HaveField("Data", HaveKey("ca.crt")))
	}
}

var (
	ignored = eachHook(func(*scene) OmegaMatcher {
		return HaveField("FailurePolicy", HaveValue(Equal(admissionregistrationv1.Ignore)))
	})
	atPort    = urlIs(func(s *scene) string { return fmt.Sprint("127.0.0.1:", s.second) })
	ownSecret = hasSecret(func(*scene) string { return "own" })
	inSpace   = hasSecret(func(s *scene) string { return s.namespace + "-setupcertificate" })
)

var addressRows = map[string]row{
	"Namespace": shows(func(s *scene, o *eirinix.ManagerOptions) { o.Namespace = s.workloads }, eachHook(func(s *scene) OmegaMatcher {
		return HaveField("NamespaceSelector.MatchLabels", HaveKeyWithValue("kubernetes.io/metadata.name", s.workloads))
	})),
	"OperatorFingerprint": shows(func(s *scene, o *eirinix.ManagerOptions) { o.OperatorFingerprint = s.namespace + "-x" }, eachHook(func(s *scene) OmegaMatcher {
		return HaveField("Name", HaveSuffix("."+s.fingerprint()+".eirinix.cloudfoundry.org"))
	})).with(func(r *row) {
		r.Unregister = plays(func(ctx SpecContext, s *scene) {
			Expect(s.plain().RegisterExtensions()).To(Succeed())
			Expect(s.run(ctx, unregister)).To(Succeed())
			Expect(clients().AdmissionregistrationV1().MutatingWebhookConfigurations().Get(ctx, s.namespace+"-mutating-hook", metav1.GetOptions{})).NotTo(BeNil())
			Expect(s.plain().Unregister(ctx)).To(Succeed())
		})
		r.RotateCA = hasSecret(func(s *scene) string { return s.namespace + "-x-setupcertificate" })
	}),
	"Domain": shows(func(_ *scene, o *eirinix.ManagerOptions) { o.Domain = "lives.example.org" }, eachHook(func(s *scene) OmegaMatcher {
		return HaveField("Name", HaveSuffix("."+s.fingerprint()+".lives.example.org"))
	})),
	"SetupCertificateName": {
		set:   func(_ *scene, o *eirinix.ManagerOptions) { o.SetupCertificateName = "own" },
		Start: ownSecret, RegisterExtensions: ownSecret, RotateCA: ownSecret,
		Unregister: plays(func(ctx SpecContext, s *scene) { // a program with another Secret may not
			Expect(s.registered(ctx)).To(Succeed())
			Expect(s.plain().Unregister(ctx)).To(MatchError(ContainSubstring("belongs to")))
			Expect(s.hooks(ctx)).NotTo(BeEmpty())
			Expect(s.run(ctx, unregister)).To(Succeed())
		}),
	},
	"WebhookNamespace": {
		set:   func(s *scene, o *eirinix.ManagerOptions) { o.WebhookNamespace = s.namespace },
		Start: inSpace, RegisterExtensions: inSpace, RotateCA: inSpace,
	},
	"FailurePolicy": shows(func(_ *scene, o *eirinix.ManagerOptions) { o.FailurePolicy = new(admissionregistrationv1.Ignore) }, ignored),
	"ModesConfigMap": shows(func(_ *scene, o *eirinix.ManagerOptions) { o.ModesConfigMap = "modes" }, ignored).with(func(r *row) {
		r.prepare = func(ctx SpecContext, s *scene) {
			_, err := clients().CoreV1().ConfigMaps(s.namespace).Create(ctx, newConfigMap("modes", map[string]string{"team": "Shadow", "owner": "Shadow"}), metav1.CreateOptions{})
			Expect(err).NotTo(HaveOccurred())
		}
	}),
	"FilterEiriniApps": shows(func(_ *scene, o *eirinix.ManagerOptions) { o.FilterEiriniApps = new(true) }, func(ctx SpecContext, s *scene) {
		selects := HaveField("ObjectSelector.MatchLabels", HaveKeyWithValue(eirinix.LabelSourceType, "APP"))
		Expect(s.hooks(ctx)).To(HaveExactElements(selects, Not(selects)))
	}),
	"Host": shows(func(_ *scene, o *eirinix.ManagerOptions) { o.Host = "localhost" },
		urlIs(func(s *scene) string { return fmt.Sprint("localhost:", s.port) })),
	"Port": shows(func(s *scene, o *eirinix.ManagerOptions) { o.Port, o.ListenAddress = s.second, "" }, atPort),
	"ListenAddress": shows(func(s *scene, o *eirinix.ManagerOptions) { o.ListenAddress, o.Port = fmt.Sprint(":", s.second), 0 }, atPort).with(func(r *row) {
		r.Start = effect(func(ctx SpecContext, s *scene) {
			atPort(ctx, s)
			Expect(portOf(s.manager)).To(Equal(int(s.second)))
		})
	}),
	"ServiceName": shows(func(_ *scene, o *eirinix.ManagerOptions) { o.ServiceName, o.DrainDelay = "hooks", -1 }, eachHook(func(s *scene) OmegaMatcher {
		return HaveField("ClientConfig.Service", HaveValue(And(HaveField("Namespace", s.namespace), HaveField("Name", "hooks"), HaveField("Port", HaveValue(Equal(s.port))))))
	})).with(func(r *row) {
		r.prepare = func(ctx SpecContext, s *scene) { // the API server resolves such a Service itself, and speaks HTTP/1.1 as in production
			_, err := clients().CoreV1().Services(s.namespace).Create(ctx, &corev1.Service{
				ObjectMeta: metav1.ObjectMeta{Name: "hooks"}, Spec: corev1.ServiceSpec{Type: corev1.ServiceTypeExternalName, ExternalName: "localhost"},
			}, metav1.CreateOptions{})
			Expect(err).NotTo(HaveOccurred())
		}
		shown := r.Start.(effect)
		r.Start = effect(func(ctx SpecContext, s *scene) {
			shown(ctx, s)
			refuses(ctx, s)
		})
	}),
}
