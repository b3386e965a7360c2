package conformance_test

import (
	"context"
	"slices"
	"strings"
	"sync"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"

	"code.cloudfoundry.org/eirinix"
	. "code.cloudfoundry.org/eirinix/internal/spectest"
)

// A callLog keeps the calls of steps. It is safe for concurrent use.
type callLog struct {
	mu    sync.Mutex
	calls []string
}

func (t *callLog) add(call ...string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.calls = append(t.calls, strings.Join(call, " "))
}

func (t *callLog) list() []string {
	t.mu.Lock()
	defer t.mu.Unlock()
	return slices.Clone(t.calls)
}

// take returns the calls since the last time.
func (t *callLog) take() []string {
	t.mu.Lock()
	defer t.mu.Unlock()
	calls := t.calls
	t.calls = nil
	return calls
}

// counts returns the number of calls of each kind.
func (t *callLog) counts() map[string]int {
	counts := map[string]int{}
	for _, c := range t.list() {
		counts[c]++
	}
	return counts
}

// overheard collects the warnings that a client is sent.
type overheard struct{ callLog }

func (o *overheard) HandleWarningHeader(_ int, _, text string) { o.add(text) }

// listening returns clients of the suite's API server whose warnings are recorded.
func listening() (kubernetes.Interface, *overheard) {
	heard := &overheard{}
	config := rest.CopyConfig(controlPlane().Config())
	config.WarningHandler = heard
	return Clients(config), heard
}

// ruleFor is a rule for resources of one group and version; a resource may have a subresource behind a slash.
func ruleFor(group, version string, resources []string, operations ...admissionregistrationv1.OperationType) []admissionregistrationv1.RuleWithOperations {
	return []admissionregistrationv1.RuleWithOperations{{
		Operations: operations,
		Rule:       admissionregistrationv1.Rule{APIGroups: []string{group}, APIVersions: []string{version}, Resources: resources},
	}}
}

// labelOnce sets a label that is not there yet, so that it may be called again.
func labelOnce(id, key, value string, settings eirinix.Settings) eirinix.Mutation[*corev1.ConfigMap] {
	return eirinix.Mutation[*corev1.ConfigMap]{ID: id, Settings: settings, Apply: func(_ context.Context, _ *eirinix.Call, c *corev1.ConfigMap) error {
		metav1.SetMetaDataLabel(&c.ObjectMeta, key, value)
		return nil
	}}
}

// rawStep is an Extension that answers with a Response of its own making, for rules of its own.
type rawStep struct {
	name     string
	settings eirinix.Settings
	handle   func(admission.Request) admission.Response
}

func (s rawStep) Name() string               { return s.name }
func (s rawStep) Settings() eirinix.Settings { return s.settings }
func (s rawStep) Handle(_ context.Context, _ eirinix.Manager, _ *corev1.Pod, req admission.Request) admission.Response {
	return s.handle(req)
}
