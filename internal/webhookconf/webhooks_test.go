package webhookconf_test

import (
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"code.cloudfoundry.org/eirinix/internal/webhookconf"
)

var _ = Describe("A webhook that is built of steps", func() {
	mutating := func(o webhookconf.Options, s webhookconf.Step) admissionregistrationv1.MutatingWebhook {
		GinkgoHelper()
		webhooks := mutatingOf(o, webhookconf.Group([]webhookconf.Step{s}))
		Expect(webhooks).To(HaveLen(1))
		return webhooks[0]
	}
	in := func(o webhookconf.Options, namespace string) webhookconf.Options {
		o.Namespace = namespace
		return o
	}
	yes := admissionregistrationv1.MatchCondition{Name: "yes", Expression: "true"}

	It("fills in every field of a mutating webhook", func() {
		s := step("volumes", isolated, ignore, ifNeeded, conditions(yes), objects(labels1("a", "1")))
		s.MatchPolicy, s.SideEffects, s.Timeout = admissionregistrationv1.Exact, admissionregistrationv1.SideEffectClassNoneOnDryRun, 7*time.Second
		Expect(mutating(in(serviceOptions(), "workloads"), s)).To(Equal(admissionregistrationv1.MutatingWebhook{
			Name: "volumes.eirini-x.eirinix.cloudfoundry.org",
			ClientConfig: admissionregistrationv1.WebhookClientConfig{
				CABundle: []byte("bundle"),
				Service: &admissionregistrationv1.ServiceReference{
					Namespace: "cf", Name: "logger", Port: new(int32(443)), Path: new("/mutate/volumes"),
				},
			},
			Rules: []admissionregistrationv1.RuleWithOperations{{
				Operations: []admissionregistrationv1.OperationType{admissionregistrationv1.Create},
				Rule: admissionregistrationv1.Rule{
					APIGroups: []string{""}, APIVersions: []string{"v1"}, Resources: []string{"pods"},
					Scope: new(admissionregistrationv1.AllScopes),
				},
			}},
			FailurePolicy:           new(admissionregistrationv1.Ignore),
			MatchPolicy:             new(admissionregistrationv1.Exact),
			NamespaceSelector:       labels1("kubernetes.io/metadata.name", "workloads"),
			ObjectSelector:          labels1("a", "1"),
			SideEffects:             new(admissionregistrationv1.SideEffectClassNoneOnDryRun),
			TimeoutSeconds:          new(int32(7)),
			AdmissionReviewVersions: []string{"v1", "v1beta1"},
			ReinvocationPolicy:      new(admissionregistrationv1.IfNeededReinvocationPolicy),
			MatchConditions:         []admissionregistrationv1.MatchCondition{yes},
		}))
	})

	It("is the same for a validating one, but for the reinvocationPolicy", func() {
		s := step("volumes", isolated, ignore, conditions(yes), objects(labels1("a", "1")), namespaces(labels1("b", "2")))
		m := mutating(serviceOptions(), s)
		s.Validating = true
		webhooks := validatingOf(serviceOptions(), webhookconf.Group([]webhookconf.Step{s}))
		Expect(webhooks).To(HaveLen(1))
		m.ClientConfig.Service.Path = new("/validate/volumes")
		Expect(webhooks[0]).To(Equal(admissionregistrationv1.ValidatingWebhook{
			Name: m.Name, ClientConfig: m.ClientConfig, Rules: m.Rules, FailurePolicy: m.FailurePolicy, MatchPolicy: m.MatchPolicy,
			NamespaceSelector: m.NamespaceSelector, ObjectSelector: m.ObjectSelector, SideEffects: m.SideEffects, TimeoutSeconds: m.TimeoutSeconds,
			AdmissionReviewVersions: m.AdmissionReviewVersions, MatchConditions: m.MatchConditions,
		}))
	})

	It("goes each into the configuration of its kind", func() {
		entries := webhookconf.Group([]webhookconf.Step{step("a", isolated), step("b", isolated, validating), step("c", isolated)})
		o := urlOptions()
		Expect(mutatingOf(o, entries)).To(HaveExactElements(
			HaveField("Name", "a.eirini-x.eirinix.cloudfoundry.org"), HaveField("Name", "c.eirini-x.eirinix.cloudfoundry.org")))
		Expect(validatingOf(o, entries)).To(HaveExactElements(HaveField("Name", "b.eirini-x.eirinix.cloudfoundry.org")))
	})

	It("shares nothing with the entries", func() {
		grouped := func() []webhookconf.Entry {
			return webhookconf.Group([]webhookconf.Step{step("a", isolated, conditions(yes), objects(labels1("a", "1")), namespaces(labels1("b", "2")))})
		}
		entries := grouped()
		w := mutatingOf(serviceOptions(), entries)[0]
		spoil(&w)
		w.MatchConditions[0].Name = "spoilt"
		Expect(entries).To(Equal(grouped()))
	})

	DescribeTable("sends the objects of namespaces",
		func(o webhookconf.Options, s webhookconf.Step, labels map[string]string, expected bool) {
			Expect(matches(mutating(o, s).NamespaceSelector, labels)).To(Equal(expected))
		},
		Entry("that the step selects", urlOptions(), step("a", namespaces(labels1("team", "a"))), named("x", "team", "a"), true),
		Entry("and no other", urlOptions(), step("a", namespaces(labels1("team", "a"))), named("x"), false),
		Entry("but not the cluster's, although it selects them", urlOptions(), step("a", namespaces(labels1("team", "a"))), named("kube-system", "team", "a"), false),
		Entry("nor the nodes' leases", urlOptions(), step("a", namespaces(labels1("team", "a"))), named("kube-node-lease", "team", "a"), false),
		Entry("nor the public namespace", urlOptions(), step("a", namespaces(labels1("team", "a"))), named("kube-public", "team", "a"), false),
		Entry("nor the webhook's own", serviceOptions(), step("a", namespaces(labels1("team", "a"))), named("cf", "team", "a"), false),
		Entry("of that namespace in URL mode, where only the Secret lies", urlIn("cf"), step("a"), named("cf"), true),
		Entry("the cluster's for those who know", serviceOptions(), step("a", critical), named("kube-system"), true),
		Entry("the webhook's own for those who know", serviceOptions(), step("a", critical), named("cf"), true),
		Entry("only the selected ones for those who know", serviceOptions(), step("a", critical, namespaces(labels1("team", "a"))), named("cf"), false),
		Entry("of the option where the step selects none", serviceOptions(), step("a"), named("cf"), false),
		Entry("of the option", in(serviceOptions(), "x"), step("a"), named("x"), true),
		Entry("of no other than the option's", in(serviceOptions(), "x"), step("a"), named("y"), false),
		Entry("of the option where the selector is empty", in(serviceOptions(), "x"), step("a", namespaces(&metav1.LabelSelector{})), named("y"), false),
		Entry("of the option for those who know", in(serviceOptions(), "x"), step("a", critical), named("y"), false),
		Entry("that the step selects against the option", in(serviceOptions(), "x"), step("a", namespaces(labels1("team", "a"))), named("y", "team", "a"), true),
		Entry("not of the option where the step selects others", in(serviceOptions(), "x"), step("a", namespaces(labels1("team", "a"))), named("x"), false),
		Entry("the webhook's own, of the option", in(serviceOptions(), "cf"), step("a"), named("cf"), true),
		Entry("not the webhook's own where the step selects others", in(serviceOptions(), "cf"), step("a", namespaces(labels1("team", "a"))), named("cf", "team", "a"), false),
		Entry("the cluster's, of the option", in(urlOptions(), "kube-system"), step("a"), named("kube-system"), true),
	)

	DescribeTable("leaves out the program's own pods",
		func(o webhookconf.Options, expected bool, steps ...webhookconf.Step) {
			w := mutatingOf(o, webhookconf.Group(steps))
			Expect(w).To(HaveLen(1))
			Expect(matches(w[0].ObjectSelector, map[string]string{webhookconf.FingerprintLabel: "eirini-x"})).NotTo(Equal(expected))
			Expect(matches(w[0].ObjectSelector, map[string]string{webhookconf.FingerprintLabel: "another"})).To(BeTrue())
		},
		Entry("in the one namespace that is selected", in(serviceOptions(), "cf"), true, step("a")),
		Entry("also of a wildcard", in(serviceOptions(), "cf"), true, step("a", rules(rule("", "v1", "*", "CREATE")))),
		Entry("not of another namespace", in(serviceOptions(), "x"), false, step("a")),
		Entry("not of all namespaces: the label would be a way past the webhook", serviceOptions(), false, step("a")),
		Entry("not of all namespaces for those who know", serviceOptions(), false, step("a", critical)),
		Entry("not where the step selects others", in(serviceOptions(), "cf"), false, step("a", namespaces(labels1("team", "a")))),
		Entry("not in URL mode", in(urlOptions(), "cf"), false, step("a")),
		Entry("not for other resources", in(serviceOptions(), "cf"), false, step("a", rules(rule("", "v1", "configmaps", "CREATE")), kind("", "v1", "ConfigMap"))),
		Entry("not for pods of another group", in(serviceOptions(), "cf"), false, step("a", rules(rule("metrics.k8s.io", "v1", "pods", "CREATE")), kind("metrics.k8s.io", "v1", "PodMetrics"))),
		Entry("not for objects without labels: they would never be sent", in(serviceOptions(), "cf"), false, step("a", rules(rule("", "v1", "pods/exec", "CONNECT")), kind("", "v1", "PodExecOptions"))),
		Entry("not for objects that may have no labels", in(serviceOptions(), "cf"), false, step("a", rules(rule("", "v1", "pods,pods/exec", "*")))),
	)
})

// urlIn are options in URL mode with the Secret in a namespace of its own.
func urlIn(namespace string) webhookconf.Options {
	o := urlOptions()
	o.Target.Namespace = namespace
	return o
}

// named is the labels of a namespace.
func named(name string, more ...string) map[string]string {
	labels := map[string]string{"kubernetes.io/metadata.name": name}
	for i := 0; i < len(more); i += 2 {
		labels[more[i]] = more[i+1]
	}
	return labels
}
