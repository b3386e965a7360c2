package manifests

// The pods of a program: what they may do, where they listen, how many there are, and what users set. The same of
// those of the CronJob that audits, and the rights of its account.

import (
	"context"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	policyv1 "k8s.io/api/policy/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/util/intstr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"code.cloudfoundry.org/eirinix"
	"code.cloudfoundry.org/eirinix/conversion"
	. "code.cloudfoundry.org/eirinix/internal/spectest"
)

var _ = Describe("The pods of a program's manifests", func() {
	podOf := func(o input, added ...any) corev1.PodSpec {
		GinkgoHelper()
		return the[*appsv1.Deployment](manifestsOf(o, added...)).Spec.Template.Spec
	}
	containerOf := func(o input, added ...any) corev1.Container {
		GinkgoHelper()
		spec := podOf(o, added...)
		Expect(spec.Containers).To(HaveLen(1))
		return spec.Containers[0]
	}

	It("may do nothing that a webhook need not", func() {
		o := deployedOptions()
		o.RegisterWebHook = new(false)
		objects := manifestsOf(o, valueExtension{})
		for _, spec := range []corev1.PodSpec{
			the[*appsv1.Deployment](objects).Spec.Template.Spec, the[*batchv1.Job](objects).Spec.Template.Spec, the[*batchv1.CronJob](objects).Spec.JobTemplate.Spec.Template.Spec,
		} {
			Expect(spec.HostNetwork || spec.HostPID || spec.HostIPC).To(BeFalse())
			Expect(spec).To(And(HaveField("Volumes", BeEmpty()), HaveField("PriorityClassName", ""),
				HaveField("SecurityContext.RunAsNonRoot", HaveValue(BeTrue())), HaveField("SecurityContext.SeccompProfile.Type", corev1.SeccompProfileTypeRuntimeDefault)))
			for _, c := range spec.Containers {
				Expect(c.SecurityContext).To(Equal(&corev1.SecurityContext{
					AllowPrivilegeEscalation: new(false), ReadOnlyRootFilesystem: new(true), RunAsNonRoot: new(true),
					SeccompProfile: &corev1.SeccompProfile{Type: corev1.SeccompProfileTypeRuntimeDefault}, Capabilities: &corev1.Capabilities{Drop: []corev1.Capability{"ALL"}},
				}))
				Expect(c.Resources).To(And(HaveField("Limits", HaveKey(corev1.ResourceMemory)), HaveField("Requests", HaveKey(corev1.ResourceMemory))))
			}
		}
		for _, account := range allOf[*corev1.ServiceAccount](objects) {
			Expect(*account.AutomountServiceAccountToken).To(BeFalse())
		}
	})

	It("are asked for their health where they listen, and called there", func() {
		o := deployedOptions()
		o.MetricsBindAddress, o.HealthProbeBindAddress = "127.0.0.1:8080", ":8081"
		objects := manifestsOf(o, valueExtension{})
		c := the[*appsv1.Deployment](objects).Spec.Template.Spec.Containers[0]
		for path, probe := range map[string]*corev1.Probe{"/readyz": c.ReadinessProbe, "/healthz": c.LivenessProbe} {
			Expect(probe.HTTPGet).To(Equal(&corev1.HTTPGetAction{Path: path, Port: intstr.FromInt32(8443), Scheme: corev1.URISchemeHTTPS}))
		}
		Expect(c.StartupProbe.HTTPGet).To(Equal(c.LivenessProbe.HTTPGet))
		Expect(c.Ports).To(HaveExactElements(
			corev1.ContainerPort{Name: "webhook", ContainerPort: 8443, Protocol: corev1.ProtocolTCP},
			corev1.ContainerPort{Name: "health", ContainerPort: 8081, Protocol: corev1.ProtocolTCP}))
		Expect(the[*corev1.Service](objects).Spec.Ports).To(HaveExactElements(And(HaveField("Port", int32(443)), HaveField("TargetPort", intstr.FromInt32(8443)))))
		policy := the[*networkingv1.NetworkPolicy](objects)
		Expect(policy.Spec.PolicyTypes).To(Equal([]networkingv1.PolicyType{networkingv1.PolicyTypeIngress}))
		Expect(policy.Spec.Ingress).To(HaveLen(1))
		Expect(policy.Spec.Ingress[0].From).To(BeEmpty())
		Expect(policy.Spec.Ingress[0].Ports).To(HaveExactElements(HaveField("Port", HaveValue(Equal(intstr.FromInt32(8443)))), HaveField("Port", HaveValue(Equal(intstr.FromInt32(8081))))))
		Expect(policy.Annotations).To(HaveKeyWithValue("kubernetes.io/description", ContainSubstring("API servers")))
	})

	It("may listen on a low port without a privilege", func() {
		o := deployedOptions()
		Expect(podOf(o, valueExtension{}).SecurityContext.Sysctls).To(BeEmpty())
		o.Port, o.ListenAddress, o.MetricsBindAddress = 0, "", ":8080"
		Expect(podOf(o, valueExtension{}).SecurityContext.Sysctls).To(Equal([]corev1.Sysctl{{Name: "net.ipv4.ip_unprivileged_port_start", Value: "443"}}))
		o.MetricsBindAddress = "[::]:81"
		Expect(podOf(o, valueExtension{}).SecurityContext.Sysctls).To(HaveExactElements(HaveField("Value", "81")))
	})

	It("that serve nothing have no port for calls, and are probed on their health port if they have one", func() {
		o := deployedOptions()
		c := containerOf(o, &watcher{})
		Expect(c.Ports).To(BeEmpty())
		Expect(c.ReadinessProbe).To(BeNil())
		Expect(the[*networkingv1.NetworkPolicy](manifestsOf(o, &watcher{})).Spec.Ingress).To(BeEmpty())
		o.HealthProbeBindAddress = ":8081"
		Expect(containerOf(o, &watcher{}).ReadinessProbe.HTTPGet).To(Equal(&corev1.HTTPGetAction{Path: "/readyz", Port: intstr.FromInt32(8081), Scheme: corev1.URISchemeHTTP}))
	})

	It("are two, spread, and replaced one by one; a single one has no budget", func() {
		o := deployedOptions()
		objects := manifestsOf(o, valueExtension{})
		d := the[*appsv1.Deployment](objects).Spec
		Expect(*d.Replicas).To(BeEquivalentTo(2))
		Expect(*d.Strategy.RollingUpdate.MaxUnavailable).To(Equal(intstr.FromInt32(0)))
		Expect(d.Template.Spec.Affinity.PodAntiAffinity.RequiredDuringSchedulingIgnoredDuringExecution).To(BeEmpty())
		Expect(d.Template.Spec.TopologySpreadConstraints).To(HaveExactElements(HaveField("WhenUnsatisfiable", corev1.ScheduleAnyway)))
		Expect(*the[*policyv1.PodDisruptionBudget](objects).Spec.MinAvailable).To(Equal(intstr.FromInt32(1)))

		o.Deployment.Replicas = 1
		objects = manifestsOf(o, valueExtension{})
		Expect(allOf[*policyv1.PodDisruptionBudget](objects)).To(BeEmpty())
		Expect(*the[*appsv1.Deployment](objects).Spec.Replicas).To(BeEquivalentTo(1))
		Expect(*the[*appsv1.Deployment](manifestsOf(deployedOptions(), &watcher{})).Spec.Replicas).To(BeEquivalentTo(1))
	})

	It("have the settings of Options, in both halves", func() {
		o := deployedOptions()
		o.RegisterWebHook = new(false)
		o.Deployment = Options{
			Image: "i", Command: []string{"c"}, Args: []string{"a"}, Name: "name", ServiceAccountName: "account", Replicas: 3,
			Labels: map[string]string{"team": "t"}, Annotations: map[string]string{"sidecar.istio.io/inject": "false"}, Env: []corev1.EnvVar{{Name: "E", Value: "e"}},
			Resources:         corev1.ResourceRequirements{Limits: corev1.ResourceList{corev1.ResourceMemory: resource.MustParse("1Gi")}},
			PriorityClassName: "system-cluster-critical", NodeSelector: map[string]string{"example.org/pool": "system"},
			Tolerations: []corev1.Toleration{{Key: "dedicated", Operator: corev1.TolerationOpExists}}, ImagePullSecrets: []corev1.LocalObjectReference{{Name: "registry"}},
		}
		objects := manifestsOf(o, valueExtension{}, &reconciler{})
		for _, object := range objects {
			Expect(object).To(And(HaveField("GetLabels()", HaveKeyWithValue("team", "t")), HaveField("GetAnnotations()", HaveKeyWithValue("sidecar.istio.io/inject", "false"))))
		}
		Expect(the[*networkingv1.NetworkPolicy](objects).Annotations).To(HaveKey("kubernetes.io/description"))
		d, jobs := the[*appsv1.Deployment](objects), the[*batchv1.CronJob](objects).Spec.JobTemplate
		Expect(d).To(And(HaveField("Name", "name"), HaveField("Spec.Replicas", HaveValue(BeEquivalentTo(3))), HaveField("Spec.Selector.MatchLabels", Not(HaveKey("team"))), HaveField("Spec.Template.Spec.ServiceAccountName", "account")))
		Expect(jobs.Annotations).To(HaveKeyWithValue("sidecar.istio.io/inject", "false"))
		for _, template := range []corev1.PodTemplateSpec{d.Spec.Template, the[*batchv1.Job](objects).Spec.Template, jobs.Spec.Template} {
			Expect(template.Annotations).To(Equal(o.Deployment.Annotations))
			Expect(template.Labels).To(HaveKeyWithValue("team", "t"))
			Expect(template.Spec).To(And(
				HaveField("PriorityClassName", "system-cluster-critical"), HaveField("Tolerations", o.Deployment.Tolerations),
				HaveField("NodeSelector", map[string]string{"kubernetes.io/os": "linux", "example.org/pool": "system"}), HaveField("ImagePullSecrets", o.Deployment.ImagePullSecrets),
				HaveField("Containers", HaveExactElements(And(HaveField("Image", "i"), HaveField("Command", []string{"c"}), HaveField("Args", ContainElement("a")),
					HaveField("Resources", o.Deployment.Resources), HaveField("Env", ContainElement(o.Deployment.Env[0])))))))
		}
	})

	It("pass the memory limit to Go, unless the user does or there is none", func() {
		o := deployedOptions()
		Expect(containerOf(o, valueExtension{}).Env).To(HaveExactElements(
			And(HaveField("Name", "MEMORY_LIMIT_MIB"), HaveField("ValueFrom.ResourceFieldRef.Resource", "limits.memory")),
			corev1.EnvVar{Name: "GOMEMLIMIT", Value: "$(MEMORY_LIMIT_MIB)000000B"}))
		Expect(asJSON(containerOf(o, valueExtension{}).Resources.Limits)).To(MatchJSON(`{"memory":"512Mi"}`))
		o.MaxRequestBytes = 4 << 20
		Expect(asJSON(containerOf(o, valueExtension{}).Resources.Limits)).To(MatchJSON(`{"memory":"288Mi"}`))

		own := corev1.EnvVar{Name: "GOMEMLIMIT", Value: "off"}
		o.Deployment.Env = []corev1.EnvVar{own}
		Expect(containerOf(o, valueExtension{}).Env).To(HaveExactElements(own))
		o.Deployment.Env = nil
		o.Deployment.Resources.Requests = corev1.ResourceList{corev1.ResourceMemory: resource.MustParse("1Gi")}
		Expect(containerOf(o, valueExtension{}).Env).To(BeEmpty())
	})
})

var _ = Describe("The manifests of a program that audits", func() {
	daily := func(changes ...func(*input)) input {
		o := deployedOptions()
		o.Namespace, o.Deployment.AuditSchedule, o.Deployment.Args = "", "@daily", []string{"-v"}
		for _, c := range changes {
			c(&o)
		}
		return o
	}
	limited := func(o *input) { o.Namespace = "apps" }
	withoutReports := func(o *input) { o.Deployment.AuditArgs = []string{"audit"} }
	// granted returns the rules of the account of the CronJob, by namespace.
	granted := func(objects []client.Object) map[string]string {
		all := map[string]string{}
		for _, o := range objects {
			switch o := o.(type) {
			case *rbacv1.Role:
				if o.Name == "eirinix:eirini-x:audit" {
					all[o.Namespace] = rulesText(o.Rules)
				}
			case *rbacv1.ClusterRole:
				if o.Name == "eirinix:eirini-x:audit" {
					all[""] = rulesText(o.Rules)
				}
			}
		}
		return all
	}
	namespaces := eirinix.Validation[*corev1.Namespace]{ID: "namespaces", Create: func(context.Context, *eirinix.Call, *corev1.Namespace) error { return nil }}
	deletions := eirinix.Validation[*corev1.Secret]{ID: "deletions", Delete: func(context.Context, *eirinix.Call, *corev1.Secret) error { return nil }}
	shops := eirinix.Validation[*unstructured.Unstructured]{
		ID: "shops",
		Settings: eirinix.Settings{Rules: []admissionregistrationv1.RuleWithOperations{{
			Operations: []admissionregistrationv1.OperationType{admissionregistrationv1.Create},
			Rule:       admissionregistrationv1.Rule{APIGroups: []string{"example.org"}, APIVersions: []string{"v1"}, Resources: []string{"shops"}},
		}}},
		Create: func(context.Context, *eirinix.Call, *unstructured.Unstructured) error { return nil },
	}
	anything := eirinix.Validation[*unstructured.Unstructured]{
		ID: "anything",
		Settings: eirinix.Settings{FailurePolicy: admissionregistrationv1.Ignore, Rules: []admissionregistrationv1.RuleWithOperations{{
			Operations: []admissionregistrationv1.OperationType{admissionregistrationv1.OperationAll},
			Rule:       admissionregistrationv1.Rule{APIGroups: []string{"*"}, APIVersions: []string{"*"}, Resources: []string{"*/*"}},
		}}},
		Create: func(context.Context, *eirinix.Call, *unstructured.Unstructured) error { return nil },
	}

	same := func(_ context.Context, o *unstructured.Unstructured) (*unstructured.Unstructured, error) {
		return o, nil
	}
	converted := conversion.Of[*unstructured.Unstructured]{CRD: "shops.example.org", Version: "v1", Spokes: []conversion.Spoke[*unstructured.Unstructured]{conversion.NewSpoke("v1beta1", same, same)}}

	It("have a CronJob with an account and arguments of its own", func() {
		objects := manifestsOf(daily(), validatePods())
		job := the[*batchv1.CronJob](objects)
		Expect(job).To(And(HaveField("Name", "eirini-x-audit"), HaveField("Spec.Schedule", "@daily"), HaveField("Spec.ConcurrencyPolicy", batchv1.ForbidConcurrent),
			HaveField("Spec.JobTemplate.Spec.BackoffLimit", HaveValue(BeZero()))))
		pod := job.Spec.JobTemplate.Spec.Template.Spec
		Expect(pod).To(And(HaveField("RestartPolicy", corev1.RestartPolicyNever), HaveField("ServiceAccountName", "eirini-x-audit")))
		Expect(pod.Containers[0].Args).To(Equal([]string{"-v", "audit", "-policy-reports"}))
		Expect(pod.Containers[0].Ports).To(BeEmpty())
		Expect(kinds(objects)).To(ContainElement("ServiceAccount eirini-x-audit"))
		serving := the[*appsv1.Deployment](objects)
		Expect(Must(metav1.LabelSelectorAsSelector(serving.Spec.Selector)).Matches(labels.Set(job.Spec.JobTemplate.Spec.Template.Labels))).To(BeFalse())
		Expect(allOf[*batchv1.CronJob](manifestsOf(deployedOptions(), validatePods()))).To(BeEmpty())
	})

	DescribeTable("grant exactly the lists, and reports on wish", func(o input, expected map[string]string, added ...any) {
		Expect(granted(manifestsOf(o, added...))).To(Equal(expected))
	},
		Entry("in one namespace", daily(limited, withoutReports), map[string]string{
			"apps": "pods list", "": "namespaces get,list",
		}, validatePods(), namespaces, deletions),
		Entry("of the modes in force", daily(withoutReports, func(o *input) { o.ModesConfigMap, o.WebhookNamespace = "modes", "system" }), map[string]string{
			"system": "configmaps/modes get", "": "namespaces get,list; pods list",
		}, validatePods()),
		Entry("of what steps read", daily(withoutReports), map[string]string{"vault": "secrets/keys get,list,watch", "": "namespaces get,list; pods list"}, readingStep(eirinix.Read{Object: &corev1.Secret{}, Namespaces: []string{"vault"}, Fields: fields.OneTermEqualSelector("metadata.name", "keys")})),
		Entry("of everything", daily(withoutReports), map[string]string{"": "namespaces get,list; * list"}, anything),
		Entry("of custom resources without a Go type", daily(withoutReports), map[string]string{
			"": "namespaces get,list; shops list",
		}, shops),
		Entry("of the objects of a Conversion, which has no namespace", daily(limited, withoutReports), map[string]string{
			"": "namespaces get,list; customresourcedefinitions/shops.example.org get; shops list",
		}, converted),
		Entry("with reports as a flag that FlagArgs prints", daily(func(o *input) { o.Deployment.AuditArgs = []string{"audit", "--policy-reports=true"} }), map[string]string{
			"": "namespaces get,list; pods list; clusterreports,reports create,delete,list,patch; clusterpolicyreports,policyreports create,delete,list,patch",
		}, validatePods()),
		Entry("with reports", daily(), map[string]string{
			"": "namespaces get,list; pods list; clusterreports,reports create,delete,list,patch; clusterpolicyreports,policyreports create,delete,list,patch",
		}, validatePods()),
	)

	DescribeTable("refuse what cannot be", func(message string, o input, added ...any) {
		_, err := Of(managerWith(o, added...), o.Deployment)
		Expect(err).To(MatchError(ContainSubstring(message)))
	},
		Entry("a schedule of three fields", `AuditSchedule is "every two hours"; give the five fields of cron`,
			daily(func(o *input) { o.Deployment.AuditSchedule = "every two hours" }), validatePods()),
		Entry("arguments without a schedule", "AuditArgs is set, but AuditSchedule is not",
			daily(withoutReports, func(o *input) { o.Deployment.AuditSchedule = "" }), validatePods()),
		Entry("an audit without steps", "there is no extension to ask", daily(), &watcher{}),
	)
})
