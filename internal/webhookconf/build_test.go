package webhookconf_test

import (
	"maps"
	"strings"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/util/validation"

	"code.cloudfoundry.org/eirinix/internal/typedconf"
	"code.cloudfoundry.org/eirinix/internal/webhookconf"
)

// urlOptions are the options of a Manager in URL mode, for all namespaces.
func urlOptions() webhookconf.Options {
	return webhookconf.Options{
		Fingerprint: "eirini-x",
		Target:      webhookconf.Target{Host: "webhook.example.org", Port: 8443},
		CABundle:    []byte("bundle"),
	}
}

// serviceOptions are those of one behind the Service cf/logger, for all namespaces.
func serviceOptions() webhookconf.Options {
	o := urlOptions()
	o.Target = webhookconf.Target{Service: "logger", Namespace: "cf", Port: 443}
	return o
}

// build makes the webhook of a step for pods, named volumes, with an entry of its own.
func build(o webhookconf.Options, changes ...change) []admissionregistrationv1.MutatingWebhook {
	return buildAll(o, step("volumes", append(changes, isolated)...))
}

func buildAll(o webhookconf.Options, steps ...webhookconf.Step) []admissionregistrationv1.MutatingWebhook {
	return mutatingOf(o, webhookconf.Group(steps))
}

// mutatingOf returns the webhooks of a mutating configuration.
func mutatingOf(o webhookconf.Options, entries []webhookconf.Entry) []admissionregistrationv1.MutatingWebhook {
	if c := typedconf.Of[admissionregistrationv1.MutatingWebhookConfiguration](o, webhookconf.Mutating, entries); c != nil {
		return c.Webhooks
	}
	return nil
}

// validatingOf returns the webhooks of a validating configuration.
func validatingOf(o webhookconf.Options, entries []webhookconf.Entry) []admissionregistrationv1.ValidatingWebhook {
	if c := typedconf.Of[admissionregistrationv1.ValidatingWebhookConfiguration](o, webhookconf.Validating, entries); c != nil {
		return c.Webhooks
	}
	return nil
}

func in(o webhookconf.Options, namespace string) webhookconf.Options {
	o.Namespace = namespace
	return o
}

func matches(selector *metav1.LabelSelector, on map[string]string) bool {
	GinkgoHelper()
	s, err := metav1.LabelSelectorAsSelector(selector)
	Expect(err).NotTo(HaveOccurred())
	return s.Matches(labels.Set(on))
}

func sendsNamespace(o webhookconf.Options, name string) bool {
	GinkgoHelper()
	return matches(build(o)[0].NamespaceSelector, map[string]string{"kubernetes.io/metadata.name": name})
}

var _ = Describe("A mutating configuration", func() {
	DescribeTable("in URL mode, the URL",
		func(host string, port int32, expected string) {
			o := urlOptions()
			o.Target.Host, o.Target.Port = host, port
			c := build(o)[0].ClientConfig
			Expect(c.Service).To(BeNil())
			Expect(c.URL).To(HaveValue(Equal(expected)))
			Expect(o.Target.String()).To(Equal(strings.TrimSuffix(expected, "/mutate/volumes")))
			Expect(c.CABundle).To(Equal([]byte("bundle")))
		},
		Entry("holds a name", "webhook.example.org", int32(8443), "https://webhook.example.org:8443/mutate/volumes"),
		Entry("spells out port 443", "webhook.example.org", int32(443), "https://webhook.example.org:443/mutate/volumes"),
		Entry("holds an IPv4 address", "10.0.0.7", int32(9443), "https://10.0.0.7:9443/mutate/volumes"),
		Entry("puts an IPv6 address in brackets", "fd00::7", int32(9443), "https://[fd00::7]:9443/mutate/volumes"),
	)

	It("in Service mode, refers to the Service with its port and the entry's path", func() {
		o := serviceOptions()
		o.Target.Port = 8080
		c := build(o)[0].ClientConfig
		Expect(c).To(Equal(admissionregistrationv1.WebhookClientConfig{
			CABundle: []byte("bundle"),
			Service: &admissionregistrationv1.ServiceReference{
				Namespace: "cf", Name: "logger", Port: new(int32(8080)), Path: new("/mutate/volumes"),
			},
		}))
		Expect(o.Target.String()).To(Equal("Service cf/logger, port 8080"))
	})

	DescribeTable("has an address that is read back",
		func(target webhookconf.Target) {
			o := urlOptions()
			o.Target = target
			at, path := webhookconf.TargetOf(o.ClientConfig("/mutate/volumes"))
			Expect(at).To(Equal(target))
			Expect(path).To(Equal("/mutate/volumes"))
		},
		Entry("of a name", webhookconf.Target{Host: "webhook.example.org", Port: 8443}),
		Entry("of an IPv6 address", webhookconf.Target{Host: "fd00::7", Port: 443}),
		Entry("of a Service", webhookconf.Target{Service: "logger", Namespace: "cf", Port: 8080}),
	)

	DescribeTable("an address of another client is",
		func(c admissionregistrationv1.WebhookClientConfig, expected webhookconf.Target, path string) {
			at, found := webhookconf.TargetOf(c)
			Expect(at).To(Equal(expected))
			Expect(found).To(Equal(path))
		},
		Entry("nothing", admissionregistrationv1.WebhookClientConfig{}, webhookconf.Target{}, ""),
		Entry("a URL without a port", admissionregistrationv1.WebhookClientConfig{URL: new("https://x/y")}, webhookconf.Target{Host: "x", Port: 443}, "/y"),
		Entry("no URL", admissionregistrationv1.WebhookClientConfig{URL: new("https://[x")}, webhookconf.Target{Host: "https://[x"}, ""),
		Entry("a Service without a port and a path", admissionregistrationv1.WebhookClientConfig{Service: &admissionregistrationv1.ServiceReference{Namespace: "a", Name: "b"}},
			webhookconf.Target{Namespace: "a", Service: "b", Port: 443}, ""),
	)

	DescribeTable("sends pods",
		func(o webhookconf.Options, namespace, name string, expected bool) {
			o.Namespace = namespace
			Expect(sendsNamespace(o, name)).To(Equal(expected))
		},
		Entry("of the one namespace", urlOptions(), "workloads", "workloads", true),
		Entry("of no other than the one namespace", urlOptions(), "workloads", "elsewhere", false),
		Entry("of the one namespace, although it is the webhook's own", serviceOptions(), "cf", "cf", true),
		Entry("of any namespace", urlOptions(), "", "elsewhere", true),
		Entry("not of kube-system", urlOptions(), "", "kube-system", false),
		Entry("not of kube-node-lease", urlOptions(), "", "kube-node-lease", false),
		Entry("not of kube-public", urlOptions(), "", "kube-public", false),
		Entry("not of kube-system in Service mode", serviceOptions(), "", "kube-system", false),
		Entry("not of the webhook's own namespace in Service mode", serviceOptions(), "", "cf", false),
		Entry("of that namespace in URL mode, where nothing of ours runs", urlOptions(), "", "cf", true),
	)

	// The API server matches a Namespace by its own labels.
	DescribeTable("sends Namespaces",
		func(o webhookconf.Options, selector *metav1.LabelSelector, name string, expected bool) {
			s := build(o, rules(rule("", "v1", "namespaces", "DELETE")), kind("", "v1", "Namespace"), namespaces(selector))[0].NamespaceSelector
			Expect(matches(s, map[string]string{"kubernetes.io/metadata.name": name, "team": "a"})).To(Equal(expected))
		},
		Entry("whatever namespace is that of other objects", in(urlOptions(), "apps"), nil, "prod", true),
		Entry("not the cluster's own", in(urlOptions(), "apps"), nil, "kube-system", false),
		Entry("not the webhook's own", in(serviceOptions(), "apps"), nil, "cf", false),
		Entry("by their labels", urlOptions(), labels1("team", "a"), "prod", true),
		Entry("not by labels that they lack", urlOptions(), labels1("team", "b"), "prod", false),
		Entry("not the cluster's own by their labels", urlOptions(), labels1("team", "a"), "kube-system", false),
		Entry("that are named, be it the cluster's own", urlOptions(), labels1("kubernetes.io/metadata.name", "kube-system"), "kube-system", true),
		Entry("that are named, be it the webhook's own", serviceOptions(), &metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{
			{Key: "kubernetes.io/metadata.name", Operator: metav1.LabelSelectorOpIn, Values: []string{"cf", "kube-system", "kube-public", "kube-node-lease"}},
		}}, "cf", true),
	)

	It("names pods of the cluster's own namespaces in vain", func() {
		s := build(urlOptions(), namespaces(labels1("kubernetes.io/metadata.name", "kube-system")))[0].NamespaceSelector
		Expect(matches(s, map[string]string{"kubernetes.io/metadata.name": "kube-system"})).To(BeFalse())
	})

	It("ends names with the domain", func() {
		o := urlOptions()
		Expect(build(o)[0].Name).To(Equal("volumes.eirini-x.eirinix.cloudfoundry.org"))
		o.Domain = "admission.example.org"
		Expect(build(o)[0].Name).To(Equal("volumes.eirini-x.admission.example.org"))
	})

	It("excludes a system namespace once when the Service lives there", func() {
		o := serviceOptions()
		o.Target.Namespace = "kube-system"
		values := build(o)[0].NamespaceSelector.MatchExpressions[0].Values
		Expect(values).To(ConsistOf("kube-system", "kube-node-lease", "kube-public"))
	})

	Describe("the object selector", func() {
		ours := map[string]string{webhookconf.FingerprintLabel: "eirini-x"}

		app := objects(labels1("type", "APP"))

		It("is empty, not nil, where the step has none", func() {
			Expect(build(urlOptions())[0].ObjectSelector).To(Equal(&metav1.LabelSelector{}))
		})

		It("wants the step's labels", func() {
			s := build(urlOptions(), app)[0].ObjectSelector
			Expect(matches(s, map[string]string{"type": "APP"})).To(BeTrue())
			Expect(matches(s, map[string]string{"type": "TASK"})).To(BeFalse())
			Expect(matches(s, nil)).To(BeFalse())
		})

		It("leaves out the program's own pods where they live in the namespace that is selected", func() {
			o := serviceOptions()
			o.Namespace = "cf"
			s := build(o, app)[0].ObjectSelector
			own := maps.Clone(ours)
			own["type"] = "APP"
			Expect(matches(s, own)).To(BeFalse())
			own[webhookconf.FingerprintLabel] = "another"
			Expect(matches(s, own)).To(BeTrue(), "pods of another webhook are pods as any other")
			Expect(matches(s, map[string]string{"type": "APP"})).To(BeTrue())
		})

		DescribeTable("needs no such exclusion",
			func(o webhookconf.Options, namespace string) {
				o.Namespace = namespace
				Expect(matches(build(o)[0].ObjectSelector, ours)).To(BeTrue())
			},
			Entry("where another namespace is selected", serviceOptions(), "workloads"),
			Entry("where the own namespace is excluded as a whole", serviceOptions(), ""),
			Entry("in URL mode", urlOptions(), "cf"),
		)
	})

	It("fills in every field, so that nothing is left for the API server to default", func() {
		w := build(urlOptions(), ignore, rules(scoped(rule("", "v1", "pods", "CREATE"))), func(s *webhookconf.Step) { s.Timeout = 7 * time.Second })[0]
		Expect(w.FailurePolicy).To(HaveValue(Equal(admissionregistrationv1.Ignore)))
		Expect(w.TimeoutSeconds).To(HaveValue(Equal(int32(7))))
		Expect(w.MatchPolicy).To(HaveValue(Equal(admissionregistrationv1.Equivalent)))
		Expect(w.SideEffects).To(HaveValue(Equal(admissionregistrationv1.SideEffectClassNone)))
		Expect(w.ReinvocationPolicy).To(HaveValue(Equal(admissionregistrationv1.NeverReinvocationPolicy)))
		Expect(w.AdmissionReviewVersions).To(Equal([]string{"v1", "v1beta1"}))
		Expect(w.NamespaceSelector).NotTo(BeNil())
		Expect(w.ObjectSelector).NotTo(BeNil())
		Expect(w.Rules).To(Equal([]admissionregistrationv1.RuleWithOperations{{
			Operations: []admissionregistrationv1.OperationType{"CREATE"},
			Rule: admissionregistrationv1.Rule{
				APIGroups: []string{""}, APIVersions: []string{"v1"}, Resources: []string{"pods"},
				Scope: new(admissionregistrationv1.NamespacedScope),
			},
		}}), "the creation of pods and nothing else")
	})

	It("keeps the order of the entries, each with its own name and path", func() {
		built := buildAll(urlOptions(), step("b", isolated), step("a", isolated))
		Expect(built).To(HaveLen(2))
		Expect(built[0].Name).To(Equal("b.eirini-x.eirinix.cloudfoundry.org"))
		Expect(*built[0].ClientConfig.URL).To(HaveSuffix("/mutate/b"))
		Expect(built[1].Name).To(Equal("a.eirini-x.eirinix.cloudfoundry.org"))
		Expect(*built[1].ClientConfig.URL).To(HaveSuffix("/mutate/a"))
	})

	It("returns no entries for no entries", func() {
		Expect(buildAll(urlOptions())).To(BeEmpty())
	})

	It("does not change the webhooks that are there when one is added before them", func() {
		before := buildAll(urlOptions(), step("a"), step("b", isolated))
		Expect(buildAll(urlOptions(), step("first", updates, critical), step("a"), step("b", isolated))[1:]).To(Equal(before))
	})

	DescribeTable("names that the API server accepts, for",
		func(entry, fingerprint string) {
			name := webhookconf.Options{Fingerprint: fingerprint}.WebhookName(entry)
			Expect(validation.IsFullyQualifiedName(nil, name)).To(BeEmpty(), "at least three segments, 253 characters")
			Expect(validation.IsDNS1123Subdomain(name)).To(BeEmpty())
		},
		Entry("short ones", "a", "x"),
		Entry("the longest ones", strings.Repeat("a", 63), strings.Repeat("x", 63)),
	)

	Describe("purity", func() {
		full := func() webhookconf.Options {
			o := serviceOptions()
			o.Namespace = "cf"
			return o
		}
		entries := func() []webhookconf.Entry {
			return webhookconf.Group([]webhookconf.Step{step("a", objects(labels1("type", "APP"))), step("b", isolated, namespaces(labels1("b", "2")))})
		}

		It("returns equal webhooks for equal input", func() {
			Expect(mutatingOf(full(), entries())).To(Equal(mutatingOf(full(), entries())))
			o, e := full(), entries()
			Expect(mutatingOf(o, e)).To(Equal(mutatingOf(o, e)))
		})

		It("shares nothing with its input, nor between its webhooks", func() {
			o, e := full(), entries()
			built, expected := mutatingOf(o, e), mutatingOf(full(), entries())
			spoil(&built[0])
			Expect(o).To(Equal(full()))
			Expect(e).To(Equal(entries()))
			Expect(built[1]).To(Equal(expected[1]))

			built = mutatingOf(o, e)
			o.CABundle[0], e[0].Objects.MatchLabels["type"], e[0].Name, e[0].Rules[0].Resources[0] = 'X', "TASK", "renamed", "spoilt"
			Expect(built).To(Equal(expected))
		})

		It("shares nothing with an earlier result", func() {
			first := build(urlOptions())
			spoil(&first[0])
			first[0].NamespaceSelector.MatchExpressions[0].Values[0] = "spoilt"
			Expect(sendsNamespace(urlOptions(), "kube-system")).To(BeFalse())
		})
	})
})

// spoil writes through everything in w that could be shared.
func spoil(w *admissionregistrationv1.MutatingWebhook) {
	w.ClientConfig.CABundle[0] = 'X'
	if s := w.ClientConfig.Service; s != nil {
		*s.Path, *s.Port, s.Name = "/spoilt", 1, "spoilt"
	}
	*w.FailurePolicy, *w.MatchPolicy, *w.SideEffects = "spoilt", "spoilt", "spoilt"
	*w.TimeoutSeconds, *w.ReinvocationPolicy = 1, "spoilt"
	w.AdmissionReviewVersions[0] = "spoilt"
	w.Rules[0].Operations[0], w.Rules[0].Resources[0], *w.Rules[0].Scope = "spoilt", "spoilt", "spoilt"
	for key := range w.NamespaceSelector.MatchLabels {
		w.NamespaceSelector.MatchLabels[key] = "spoilt"
	}
	for key := range w.ObjectSelector.MatchLabels {
		w.ObjectSelector.MatchLabels[key] = "spoilt"
	}
	for _, e := range w.ObjectSelector.MatchExpressions {
		e.Values[0] = "spoilt"
	}
}
