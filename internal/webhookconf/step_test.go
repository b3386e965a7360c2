package webhookconf_test

import (
	"strings"
	"time"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"code.cloudfoundry.org/eirinix/internal/webhookconf"
)

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
