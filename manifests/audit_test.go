package manifests

// The CronJob of a program that audits, and the rights of its account.

import (
	"context"

	"code.cloudfoundry.org/eirinix/conversion"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"code.cloudfoundry.org/eirinix"
)

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
		Expect(must(metav1.LabelSelectorAsSelector(serving.Spec.Selector)).Matches(labels.Set(job.Spec.JobTemplate.Spec.Template.Labels))).To(BeFalse())
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
