package webhookconf_test

// A webhook that is built of an entry: its address, the requests that it is called for, and every field that the API
// server would default.

import (
	"encoding/json"
	"reflect"
	"slices"
	"strings"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/util/validation"

	"code.cloudfoundry.org/eirinix/internal/list"
	"code.cloudfoundry.org/eirinix/internal/settled"
	. "code.cloudfoundry.org/eirinix/internal/spectest"
	"code.cloudfoundry.org/eirinix/internal/typedconf"
	"code.cloudfoundry.org/eirinix/internal/webhookconf"
)

const wildcardCondition = "eirinix.cloudfoundry.org/wildcard"

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

func matches(selector *metav1.LabelSelector, on map[string]string) bool {
	GinkgoHelper()
	return Must(metav1.LabelSelectorAsSelector(selector)).Matches(labels.Set(on))
}

// named is the labels of a namespace.
func named(name string, more ...string) map[string]string {
	labels := map[string]string{"kubernetes.io/metadata.name": name}
	for i := 0; i < len(more); i += 2 {
		labels[more[i]] = more[i+1]
	}
	return labels
}

// settingChanges changes each setting of an ordinary step.
var settingChanges = map[string]change{
	"Rules":                updates,
	"Namespaces":           namespaces(labels1("a", "1")),
	"Objects":              objects(labels1("a", "1")),
	"Conditions":           conditions(condition("yes", "true")),
	"FailurePolicy":        ignore,
	"MatchPolicy":          exact,
	"Timeout":              func(s *webhookconf.Step) { s.Timeout = 7 * time.Second },
	"Reinvoke":             ifNeeded,
	"SideEffects":          dry,
	"Isolated":             isolated,
	"AllowClusterCritical": critical,
	"EveryUpdate":          everyUpdate,
}

func everyUpdate(s *webhookconf.Step) { s.EveryUpdate = true }

var _ = Describe("A webhook that is built of steps", func() {
	yes := condition("yes", "true")

	It("fills in every field of a mutating webhook", func() {
		s := step("volumes", isolated, ignore, ifNeeded, exact, dry, conditions(yes), objects(labels1("a", "1")), settingChanges["Timeout"])
		Expect(buildAll(in(serviceOptions(), "workloads"), s)).To(HaveExactElements(admissionregistrationv1.MutatingWebhook{
			Name: "volumes.eirini-x.eirinix.cloudfoundry.org",
			ClientConfig: admissionregistrationv1.WebhookClientConfig{
				CABundle: []byte("bundle"),
				Service:  &admissionregistrationv1.ServiceReference{Namespace: "cf", Name: "logger", Port: new(int32(443)), Path: new("/mutate/volumes")},
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

	It("is the same for a validating one, but for the reinvocationPolicy, and goes into the configuration of its kind", func() {
		s := step("volumes", isolated, ignore, conditions(yes), objects(labels1("a", "1")), namespaces(labels1("b", "2")))
		m := buildAll(serviceOptions(), s)[0]
		validates := s
		validates.Validating = true
		both := webhookconf.Group([]webhookconf.Step{step("a", isolated), validates, step("b", isolated)})
		found := validatingOf(serviceOptions(), both)
		m.ClientConfig.Service.Path, m.ReinvocationPolicy = new("/validate/volumes"), nil
		Expect(list.Of(found, typedconf.AsMutating)).To(HaveExactElements(m))
		Expect(json.Marshal(serviceOptions().Webhook(both[1]))).To(Equal(marshal(found[0])), "a digest does not tell the two forms apart")
		Expect(mutatingOf(serviceOptions(), both)).To(HaveExactElements(
			HaveField("Name", "a.eirini-x.eirinix.cloudfoundry.org"), HaveField("Name", "b.eirini-x.eirinix.cloudfoundry.org")), "in their order")
	})

	// A new field on either side fails here until this package knows it.
	It("has every field of the API's set, by settings of which each changes it", func() {
		var changes []change
		for field := range reflect.TypeFor[webhookconf.Settings]().Fields() {
			if slices.Contains([]string{"Operations", "Owned", "Mode", "FixedMode", "DependsOnUser"}, field.Name) {
				continue // Rules contain the operations, and the others write nothing
			}
			c := settingChanges[field.Name]
			Expect(c).NotTo(BeNil(), "%s has no change in this spec", field.Name)
			changes = append(changes, c)
			base := none
			if field.Name == "EveryUpdate" {
				base = updates
			}
			Expect(buildAll(serviceOptions(), step("a", base, c))).NotTo(Equal(buildAll(serviceOptions(), step("a", base))), field.Name)
			if !slices.Contains([]string{"Rules", "FailurePolicy", "Timeout"}, field.Name) { // which can be merged
				Expect(shared(step("a"), step("b", c))).To(Equal("a b"), field.Name)
			}
		}
		for _, only := range []change{none, validating} {
			entries := webhookconf.Group([]webhookconf.Step{step("a", append(changes, only)...)})
			for _, w := range []any{mutatingOf(serviceOptions(), entries), validatingOf(serviceOptions(), entries)} {
				for webhooks, i := reflect.ValueOf(w), 0; i < webhooks.Len(); i++ {
					for field := range webhooks.Index(i).NumField() {
						Expect(webhooks.Index(i).Field(field).IsZero()).To(BeFalse(), webhooks.Index(i).Type().Field(field).Name)
					}
				}
			}
		}
	})

	It("does not depend on the mode", func() {
		for _, mode := range []webhookconf.Mode{webhookconf.ModeWarn, webhookconf.ModeAudit} {
			watching := func(s *webhookconf.Step) { s.Mode = mode }
			Expect(webhookconf.Check([]webhookconf.Step{step("a", watching)}, serviceOptions())).To(Succeed())
			Expect(buildAll(serviceOptions(), step("a"), step("b", watching))).To(Equal(buildAll(serviceOptions(), step("a"), step("b"))))
		}
	})

	DescribeTable("has an address in URL mode that", func(host string, port int32, expected string) {
		o := urlOptions()
		o.Target = webhookconf.Target{Host: host, Port: port}
		c := build(o)[0].ClientConfig
		Expect(c).To(And(HaveField("Service", BeNil()), HaveField("URL", HaveValue(Equal(expected)))))
		Expect(o.Target.String()).To(Equal(strings.TrimSuffix(expected, "/mutate/volumes")))
		at, path := webhookconf.TargetOf(c)
		Expect(at).To(Equal(o.Target), "it is read back")
		Expect(path).To(Equal("/mutate/volumes"))
	},
		Entry("spells out port 443", "webhook.example.org", int32(443), "https://webhook.example.org:443/mutate/volumes"),
		Entry("puts an IPv6 address in brackets", "fd00::7", int32(9443), "https://[fd00::7]:9443/mutate/volumes"),
	)

	DescribeTable("is read from the address of another client as", func(c admissionregistrationv1.WebhookClientConfig, expected webhookconf.Target, path string) {
		at, found := webhookconf.TargetOf(c)
		Expect(at).To(Equal(expected))
		Expect(found).To(Equal(path))
	},
		Entry("nothing", admissionregistrationv1.WebhookClientConfig{}, webhookconf.Target{}, ""),
		Entry("a URL without a port", admissionregistrationv1.WebhookClientConfig{URL: new("https://x/y")}, webhookconf.Target{Host: "x", Port: 443}, "/y"),
		Entry("no URL", admissionregistrationv1.WebhookClientConfig{URL: new("https://[x")}, webhookconf.Target{Host: "https://[x"}, ""),
		Entry("a Service", serviceOptions().ClientConfig("/a"), webhookconf.Target{Namespace: "cf", Service: "logger", Port: 443}, "/a"),
		Entry("a Service without a port and a path", admissionregistrationv1.WebhookClientConfig{Service: &admissionregistrationv1.ServiceReference{Namespace: "a", Name: "b"}},
			webhookconf.Target{Namespace: "a", Service: "b", Port: 443}, ""),
	)

	DescribeTable("has a name that the API server accepts", func(entry, fingerprint, domain, expected string) {
		name := webhookconf.Options{Fingerprint: fingerprint, Domain: domain}.WebhookName(entry)
		Expect(validation.IsFullyQualifiedName(nil, name)).To(BeEmpty(), "at least three segments, 253 characters")
		Expect(name).To(HaveSuffix(expected))
	},
		Entry("of our domain", "a", "x", "", "a.x.eirinix.cloudfoundry.org"),
		Entry("of another domain", "a", "x", "admission.example.org", "a.x.admission.example.org"),
		Entry("of the greatest length", strings.Repeat("a", 63), strings.Repeat("x", 63), "", ".eirinix.cloudfoundry.org"),
	)
})

var _ = Describe("The requests that a webhook is called for", func() {
	team := namespaces(labels1("team", "a"))
	urlIn := func(namespace string) webhookconf.Options { // with the Secret in a namespace of its own
		o := urlOptions()
		o.Target.Namespace = namespace
		return o
	}

	DescribeTable("are those of namespaces", func(o webhookconf.Options, s webhookconf.Step, labels map[string]string, expected bool) {
		Expect(matches(buildAll(o, s)[0].NamespaceSelector, labels)).To(Equal(expected))
	},
		Entry("that the step selects", urlOptions(), step("a", team), named("x", "team", "a"), true),
		Entry("and no other", urlOptions(), step("a", team), named("x"), false),
		Entry("but not the cluster's, although it selects them", urlOptions(), step("a", team), named("kube-system", "team", "a"), false),
		Entry("nor the nodes' leases", urlOptions(), step("a", team), named("kube-node-lease", "team", "a"), false),
		Entry("nor the public namespace", urlOptions(), step("a", team), named("kube-public", "team", "a"), false),
		Entry("nor the webhook's own", serviceOptions(), step("a", team), named("cf", "team", "a"), false),
		Entry("nor by name", urlOptions(), step("a", namespaces(labels1("kubernetes.io/metadata.name", "kube-system"))), named("kube-system"), false),
		Entry("of that namespace in URL mode, where only the Secret lies", urlIn("cf"), step("a"), named("cf"), true),
		Entry("of every other where the step selects none", serviceOptions(), step("a"), named("x"), true),
		Entry("the cluster's and the webhook's own for those who know", serviceOptions(), step("a", critical), named("cf"), true),
		Entry("only the selected ones for those who know", serviceOptions(), step("a", critical, team), named("cf"), false),
		Entry("of the option", in(serviceOptions(), "x"), step("a"), named("x"), true),
		Entry("of no other than the option's, also where the selector is empty", in(serviceOptions(), "x"), step("a", namespaces(&metav1.LabelSelector{})), named("y"), false),
		Entry("of the option for those who know", in(serviceOptions(), "x"), step("a", critical), named("y"), false),
		Entry("that the step selects against the option", in(serviceOptions(), "x"), step("a", team), named("y", "team", "a"), true),
		Entry("not of the option where the step selects others", in(serviceOptions(), "x"), step("a", team), named("x"), false),
		Entry("the webhook's own, of the option", in(serviceOptions(), "cf"), step("a"), named("cf"), true),
		Entry("not the webhook's own where the step selects others", in(serviceOptions(), "cf"), step("a", team), named("cf", "team", "a"), false),
	)

	// The API server matches a Namespace by its own labels.
	DescribeTable("are those of Namespaces", func(o webhookconf.Options, selector *metav1.LabelSelector, name string, expected bool) {
		s := build(o, rules(rule("", "v1", "namespaces", "DELETE")), kind("", "v1", "Namespace"), namespaces(selector))[0].NamespaceSelector
		Expect(matches(s, named(name, "team", "a"))).To(Equal(expected))
	},
		Entry("whatever namespace is that of other objects", in(urlOptions(), "apps"), nil, "prod", true),
		Entry("not the cluster's own", in(urlOptions(), "apps"), nil, "kube-system", false),
		Entry("not the webhook's own", in(serviceOptions(), "apps"), nil, "cf", false),
		Entry("by their labels", urlOptions(), labels1("team", "a"), "prod", true),
		Entry("not the cluster's own by their labels", urlOptions(), labels1("team", "a"), "kube-system", false),
		Entry("that are named, be it the cluster's own", urlOptions(), labels1("kubernetes.io/metadata.name", "kube-system"), "kube-system", true),
		Entry("that are named, be it the webhook's own", serviceOptions(), selector("kubernetes.io/metadata.name", "In", "cf", "kube-system", "kube-public", "kube-node-lease"), "cf", true),
		Entry("not those that are excluded by name", urlOptions(), selector("kubernetes.io/metadata.name", "NotIn", "kube-system"), "kube-system", false),
	)

	It("exclude a system namespace once when the Service lives there", func() {
		o := serviceOptions()
		o.Target.Namespace = "kube-system"
		Expect(build(o)[0].NamespaceSelector.MatchExpressions[0].Values).To(ConsistOf("kube-system", "kube-node-lease", "kube-public"))
	})

	DescribeTable("leave out the program's own pods", func(o webhookconf.Options, expected bool, changes ...change) {
		s := build(o, append(changes, objects(labels1("type", "APP")))...)[0].ObjectSelector
		of := func(fingerprint string) map[string]string {
			return map[string]string{"type": "APP", webhookconf.FingerprintLabel: fingerprint}
		}
		Expect(matches(s, of("eirini-x"))).NotTo(Equal(expected))
		Expect(matches(s, of("another"))).To(BeTrue(), "pods of another webhook are pods as any other")
		Expect(matches(s, map[string]string{"type": "TASK"})).To(BeFalse(), "the step's labels are wanted, too")
	},
		Entry("in the one namespace that is selected", in(serviceOptions(), "cf"), true),
		Entry("also of a wildcard", in(serviceOptions(), "cf"), true, rules(rule("", "*", "*", "CREATE"))),
		Entry("not of another namespace", in(serviceOptions(), "x"), false),
		Entry("not of all namespaces: the label would be a way past the webhook", serviceOptions(), false),
		Entry("not where the step selects others", in(serviceOptions(), "cf"), false, team),
		Entry("not in URL mode", in(urlIn("cf"), "cf"), false),
		Entry("not for other resources", in(serviceOptions(), "cf"), false, rules(rule("", "v1", "configmaps", "CREATE"))),
		Entry("not for pods of another group", in(serviceOptions(), "cf"), false, rules(rule("metrics.k8s.io", "v1", "pods", "CREATE"))),
		Entry("not for pods of another version", in(serviceOptions(), "cf"), false, rules(rule("", "v2", "pods", "CREATE"))),
		Entry("not for objects without labels: they would never be sent", in(serviceOptions(), "cf"), false, rules(rule("", "v1", "pods,pods/exec", "*"))),
	)

	DescribeTable("are bounded where a wildcard would include the objects that a cluster starts and heals by",
		func(spares bool, scopes map[string]string, changes ...change) {
			w := build(urlOptions(), append(changes, everyUpdate, conditions(condition("yes", "true")))...)[0]
			found := map[string]string{}
			for _, r := range w.Rules {
				found[strings.Join(append(slices.Clone(r.APIGroups), r.Resources...), " ")] = string(*r.Scope)
			}
			Expect(found).To(Equal(scopes))
			names := []string{"yes"}
			if spares {
				names = append(names, wildcardCondition)
			}
			Expect(list.Of(w.MatchConditions, func(c admissionregistrationv1.MatchCondition) string { return c.Name })).To(Equal(names), "the step's own are in front")
		},
		Entry("everything, whatever the failurePolicy", true, map[string]string{"* */*": "Namespaced"}, ignore, rules(rule("*", "*", "*/*", "*"))),
		Entry("every status: those of Nodes, too", true, map[string]string{" */status": "Namespaced"}, rules(rule("", "v1", "*/status", "*"))),
		Entry("of Leases' group", true, map[string]string{"coordination.k8s.io *": "Namespaced"}, rules(rule("coordination.k8s.io", "v1", "*", "*"))),
		Entry("of a group in which nothing is to be spared", false, map[string]string{"apps *": "Namespaced"}, rules(rule("apps", "v1", "*", "*"))),
		Entry("of roles' group", false, map[string]string{"rbac.authorization.k8s.io *": "Namespaced"}, rules(rule("rbac.authorization.k8s.io", "v1", "*", "*"))),
		Entry("not of a group that is not Kubernetes' own", false, map[string]string{"example.org *": "*"}, rules(rule("example.org", "v1", "*", "*"))),
		Entry("not objects that are in namespaces only, but for the spared ones", true, map[string]string{"* *": "Namespaced"}, rules(scoped(rule("*", "*", "*", "*")))),
		Entry("not named resources", false, map[string]string{" nodes": "*", "coordination.k8s.io leases": "*", "* pods/*": "*"},
			rules(rule("", "v1", "nodes", "*"), rule("coordination.k8s.io", "v1", "leases", "*"), rule("*", "*", "pods/*", "*"))),
		Entry("not resources that are named beside it", true, map[string]string{" *": "Namespaced", " nodes": "*"}, rules(rule("", "v1", "*", "*"), rule("", "v1", "nodes", "UPDATE"))),
		Entry("not resources that are named beside it in one rule", true, map[string]string{" *": "Namespaced", " nodes/proxy": "*"}, rules(rule("", "v1", "*,nodes/proxy", "*"))),
		Entry("not for those who know", false, map[string]string{"* */*": "*"}, critical, rules(rule("*", "*", "*/*", "*"))),
	)

	DescribeTable("leave dying objects alone", func(leaves bool, changes ...change) {
		var expected []admissionregistrationv1.MatchCondition
		if leaves {
			expected = append(expected, condition("eirinix.cloudfoundry.org/dying", settled.Condition))
		}
		Expect(build(urlOptions(), append(changes, critical)...)[0].MatchConditions).To(Equal(expected))
	},
		Entry("that are updated", true, rules(rule("", "v1", "pods", "CREATE,UPDATE"))),
		Entry("that are deleted", true, rules(rule("", "v1", "pods", "DELETE"))),
		Entry("of every kind and operation", true, rules(rule("*", "*", "*/*", "*"))),
		Entry("beside their subresources", true, rules(rule("", "v1", "pods/*", "UPDATE"))),
		Entry("not if only subresources are changed", false, rules(rule("", "v1", "pods/status", "UPDATE"))),
		Entry("not if they are only created, or connected to", false, rules(rule("", "v1", "pods", "CREATE"), rule("", "v1", "pods", "CONNECT"))),
		Entry("not if the step sees every update", false, everyUpdate, rules(rule("", "v1", "pods", "UPDATE"))),
	)

	DescribeTable("are described for", func(o webhookconf.Options, namespaces, objects string, changes ...change) {
		said := o.Describe(webhookconf.Group([]webhookconf.Step{step("a", changes...)})[0])
		of := func(key string) any { return said[slices.Index(said, any(key))+1] }
		Expect([]any{of("namespaces"), of("objects")}).To(Equal([]any{namespaces, objects}))
	},
		Entry("all", urlOptions(), "all but the cluster's own", "all", objects(&metav1.LabelSelector{})),
		Entry("those of the option", in(urlOptions(), "apps"), "apps", "all"),
		Entry("those that are selected", in(urlOptions(), "apps"), "team=a", "a=b", team, objects(labels1("a", "b"))),
		Entry("Namespaces, which the option does not limit", in(urlOptions(), "apps"), "all but the cluster's own", "all", rules(rule("", "v1", "namespaces", "CREATE"))),
		Entry("Namespaces beside others, which the option limits", in(urlOptions(), "apps"), "apps", "all", rules(rule("", "v1", "namespaces,pods", "CREATE"))),
	)
})
