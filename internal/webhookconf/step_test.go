package webhookconf_test

// Steps, the registration of a program with them, and the options of its Manager.

import (
	"strings"
	"testing"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"code.cloudfoundry.org/eirinix/internal/webhookconf"
)

func TestWebhookconf(t *testing.T) {
	RegisterFailHandler(Fail)
	SetDefaultEventuallyTimeout(60 * time.Second) // of a busy machine
	RunSpecs(t, "webhookconf")
}

// change is one way in which a step differs from the ordinary.
type change = func(*webhookconf.Step)

// step is an ordinary one, for the creation of pods, but for the changes.
func step(name string, changes ...change) webhookconf.Step {
	s := webhookconf.Step{
		Name: name,
		Kind: schema.GroupVersionKind{Version: "v1", Kind: "Pod"},
		Settings: webhookconf.Settings{
			Rules:         []admissionregistrationv1.RuleWithOperations{rule("", "v1", "pods", "CREATE")},
			FailurePolicy: admissionregistrationv1.Fail,
			MatchPolicy:   admissionregistrationv1.Equivalent,
			Timeout:       5 * time.Second,
			Reinvoke:      admissionregistrationv1.NeverReinvocationPolicy,
			SideEffects:   admissionregistrationv1.SideEffectClassNone,
		},
	}
	for _, c := range changes {
		c(&s)
	}
	return s
}

// rule takes lists with commas.
func rule(group, version, resources, operations string) admissionregistrationv1.RuleWithOperations {
	r := admissionregistrationv1.RuleWithOperations{Rule: admissionregistrationv1.Rule{
		APIGroups: []string{group}, APIVersions: []string{version}, Resources: strings.Split(resources, ","),
	}}
	for o := range strings.SplitSeq(operations, ",") {
		r.Operations = append(r.Operations, admissionregistrationv1.OperationType(o))
	}
	return r
}

func rules(all ...admissionregistrationv1.RuleWithOperations) change {
	return func(s *webhookconf.Step) { s.Rules = all }
}

func kind(group, version, kind string) change {
	return func(s *webhookconf.Step) {
		s.Kind = schema.GroupVersionKind{Group: group, Version: version, Kind: kind}
	}
}

func labels1(key, value string) *metav1.LabelSelector {
	return &metav1.LabelSelector{MatchLabels: map[string]string{key: value}}
}

func objects(s *metav1.LabelSelector) change { return func(t *webhookconf.Step) { t.Objects = s } }

func namespaces(s *metav1.LabelSelector) change {
	return func(t *webhookconf.Step) { t.Namespaces = s }
}

func conditions(all ...admissionregistrationv1.MatchCondition) change {
	return func(s *webhookconf.Step) { s.Conditions = all }
}

var (
	none       change = func(*webhookconf.Step) {}
	validating change = func(s *webhookconf.Step) { s.Validating = true }
	ignore     change = func(s *webhookconf.Step) { s.FailurePolicy = admissionregistrationv1.Ignore }
	isolated   change = func(s *webhookconf.Step) { s.Isolated = true }
	critical   change = func(s *webhookconf.Step) { s.AllowClusterCritical = true }
	ifNeeded   change = func(s *webhookconf.Step) { s.Reinvoke = admissionregistrationv1.IfNeededReinvocationPolicy }
	updates    change = rules(rule("", "v1", "pods", "UPDATE"))
	exact      change = func(s *webhookconf.Step) { s.MatchPolicy = admissionregistrationv1.Exact }
	dry        change = func(s *webhookconf.Step) { s.SideEffects = admissionregistrationv1.SideEffectClassNoneOnDryRun }
)

func scoped(r admissionregistrationv1.RuleWithOperations) admissionregistrationv1.RuleWithOperations {
	r.Scope = new(admissionregistrationv1.NamespacedScope)
	return r
}

func clusterScoped(r admissionregistrationv1.RuleWithOperations) admissionregistrationv1.RuleWithOperations {
	r.Scope = new(admissionregistrationv1.ClusterScope)
	return r
}

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

// in are the options for one namespace.
func in(o webhookconf.Options, namespace string) webhookconf.Options {
	o.Namespace = namespace
	return o
}

// desired is the registration of a program with these steps.
func desired(o webhookconf.Options, steps ...webhookconf.Step) *webhookconf.Desired {
	o.CABundle = nil
	d := &webhookconf.Desired{Options: o, Entries: webhookconf.Group(steps)}
	d.Version = webhookconf.Digest(*d)
	return d
}

// volumes is the registration of one step, with an entry of its own.
func volumes(changes ...change) *webhookconf.Desired {
	return desired(urlOptions(), step("volumes", append(changes, isolated)...))
}

// trusting is a change of the entries and of the caBundle.
func trusting(d *webhookconf.Desired, bundle string) webhookconf.Change {
	return webhookconf.Change{Entries: d, Bundle: []byte(bundle)}
}
