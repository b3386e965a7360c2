package conformance_test

import (
	"context"
	"reflect"
	"strings"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"code.cloudfoundry.org/eirinix"
)

// A marker shows that the API server acts on a configuration, which it announces nowhere: it refuses every config
// map with its label in a namespace where nothing else is done, so a dry run there shows whether it is called.
type marker struct {
	fingerprint, kind string // kind: mutating or validating; each has an informer of its own
	step              any
}

// markerNamespace belongs to the markers alone.
const markerNamespace = "conformance-markers"

const markerLabel = "conformance-marker"

func makeMarkerNamespace(ctx context.Context) {
	GinkgoHelper()
	_, err := clients().CoreV1().Namespaces().Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: markerNamespace}}, metav1.CreateOptions{})
	Expect(err).NotTo(HaveOccurred())
}

// markersFor returns a marker for each configuration that the steps will be in.
func markersFor(fingerprint string, steps []any) []marker {
	var markers []marker
	needed := map[bool]bool{}
	for _, s := range steps {
		needed[validates(s)] = true
	}
	if needed[false] {
		m := marker{fingerprint: fingerprint, kind: "mutating"}
		m.step = eirinix.Mutation[*corev1.ConfigMap]{ID: "marker-mutating", Settings: m.settings(), Apply: func(context.Context, *eirinix.Call, *corev1.ConfigMap) error {
			return m.refusal()
		}}
		markers = append(markers, m)
	}
	if needed[true] {
		m := marker{fingerprint: fingerprint, kind: "validating"}
		m.step = eirinix.Validation[*corev1.ConfigMap]{ID: "marker-validating", Settings: m.settings(), Create: func(context.Context, *eirinix.Call, *corev1.ConfigMap) error {
			return m.refusal()
		}}
		markers = append(markers, m)
	}
	return markers
}

// markerSteps are the markers as steps: a Manager that takes another one's place must know them too.
func markerSteps(fingerprint string, steps []any) (all []any) {
	for _, m := range markersFor(fingerprint, steps) {
		all = append(all, m.step)
	}
	return all
}

// validates reports whether a step goes into the validating configuration.
func validates(step any) bool {
	name := reflect.TypeOf(step).Name()
	return strings.HasPrefix(name, "Validation[") || strings.HasPrefix(name, "Subresource[")
}

func (m marker) label() map[string]string {
	return map[string]string{markerLabel: m.fingerprint + "." + m.kind}
}

func (m marker) refusal() error { return eirinix.Deny("%s marker of %s", m.kind, m.fingerprint) }

func (m marker) settings() eirinix.Settings {
	return eirinix.Settings{
		Isolated:   true,
		Namespaces: &metav1.LabelSelector{MatchLabels: map[string]string{corev1.LabelMetadataName: markerNamespace}},
		Objects:    &metav1.LabelSelector{MatchLabels: m.label()},
		Rules: []admissionregistrationv1.RuleWithOperations{{
			Operations: []admissionregistrationv1.OperationType{admissionregistrationv1.Create},
			Rule:       admissionregistrationv1.Rule{APIGroups: []string{""}, APIVersions: []string{"v1"}, Resources: []string{"configmaps"}},
		}},
	}
}

// called reports whether the API server calls the marker now.
func (m marker) called(ctx context.Context) bool {
	_, err := clients().CoreV1().ConfigMaps(markerNamespace).Create(ctx, &corev1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{Name: "probe", Labels: m.label()},
	}, metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
	return err != nil && strings.Contains(err.Error(), m.refusal().Error())
}

func (m marker) await(ctx context.Context) {
	GinkgoHelper()
	Eventually(m.called).WithArguments(ctx).WithContext(ctx).WithPolling(pollMarker).Should(BeTrue(), "the API server never called the %s marker of %s", m.kind, m.fingerprint)
}
