package diagnose

// This file sends the canary: an object for which the API server calls this program during a diagnosis.

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/util/rand"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"

	"code.cloudfoundry.org/eirinix/diagnosis"
	"code.cloudfoundry.org/eirinix/internal/wait"
	"code.cloudfoundry.org/eirinix/internal/webhookconf"
)

const (
	// CanaryName is the entry's name, and the prefix of the name of the sent object.
	CanaryName = "eirinix-canary"

	// CanaryLabel is the label that the entry selects. Its value is the fingerprint.
	CanaryLabel = "eirinix.cloudfoundry.org/canary"

	// canaryTimeout is how long the API server waits for the answer to a canary.
	canaryTimeout = 5 * time.Second

	// reached separates the canary's name from the instance that answered, in the warning.
	reached = " reached "
)

// Canary is a ConfigMap that the API server is asked to create in a dry run, only for the call that it makes on the
// way. Its entry has the same caBundle and address as all other entries.
//
// The answer is a warning with the random name of the ConfigMap. It proves that the call came through, even if the
// ConfigMap is rejected afterwards.
//
// The entry's failurePolicy is Fail, because the API server then reports why it cannot call, and only it knows: a firewall
// between the control plane and the nodes, for example, cannot be observed from anywhere else. That does no harm, because
// no other object matches. The entry requires the label with the fingerprint, this program's own namespace, a creation,
// and a dry run. An API server that is too old for the condition still checks the label. If the entry in the cluster has
// been changed to Ignore, Run still works, and looks for the reason from this process.
type Canary struct {
	Fingerprint string
	Namespace   string // the program's own namespace, in which the ConfigMap would be created; empty means no canary
	Validating  bool   // the entry is in the validating configuration, because the program only validates
	Instance    string // the process that answers, for example the pod's name
	Prefix      string // prefix of the path that is called
}

// Entry returns the canary's entry. It is registered after all other entries.
func (c Canary) Entry() webhookconf.Entry {
	return webhookconf.Entry{
		Name:       CanaryName,
		Path:       c.Prefix + webhookconf.PathOf(c.Validating, CanaryName),
		Validating: c.Validating,
		Settings: webhookconf.Settings{
			Rules: []admissionregistrationv1.RuleWithOperations{{
				Operations: []admissionregistrationv1.OperationType{admissionregistrationv1.Create},
				Rule: admissionregistrationv1.Rule{
					APIGroups: []string{""}, APIVersions: []string{"v1"}, Resources: []string{"configmaps"},
					Scope: new(admissionregistrationv1.NamespacedScope),
				},
			}},
			Namespaces: &metav1.LabelSelector{MatchLabels: map[string]string{corev1.LabelMetadataName: c.Namespace}},
			Objects:    &metav1.LabelSelector{MatchLabels: map[string]string{CanaryLabel: c.Fingerprint}},
			Conditions: []admissionregistrationv1.MatchCondition{{
				Name: "dry-run", Expression: "has(request.dryRun) && request.dryRun",
			}},
			FailurePolicy:        admissionregistrationv1.Fail,
			MatchPolicy:          admissionregistrationv1.Exact,
			Timeout:              canaryTimeout,
			Reinvoke:             admissionregistrationv1.NeverReinvocationPolicy,
			SideEffects:          admissionregistrationv1.SideEffectClassNone,
			AllowClusterCritical: true, // otherwise the program's own namespace is excluded
		},
	}
}

// Answer handles the calls on the entry's path.
func (c Canary) Answer(_ context.Context, req admission.Request) admission.Response {
	return admission.Allowed("").WithWarnings(req.Name + reached + c.Instance)
}

// call is the outcome of sending a canary.
type call struct {
	through  bool
	instance string // the process that answered
	took     time.Duration
	err      error // the API server's answer to the request, even if the call came through
}

// sendOnce sends one request to the API server.
func (d *diagnostic) sendOnce(ctx context.Context) call {
	ctx, cancel := context.WithTimeout(ctx, canaryTimeout+d.Timeout)
	defer cancel()
	c := d.Canary
	object := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{
		Namespace: c.Namespace, Name: CanaryName + "-" + rand.String(10),
		Labels: map[string]string{CanaryLabel: c.Fingerprint},
	}}
	began := time.Now()
	result := d.Clients.CoreV1().RESTClient().Post().
		Namespace(c.Namespace).Resource("configmaps").
		VersionedParams(&metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}}, scheme.ParameterCodec).
		MaxRetries(0).
		WarningHandlerWithContext(rest.NoWarnings{}).
		Body(object).
		Do(ctx)
	came := call{took: time.Since(began), err: result.Error()}
	for _, w := range result.Warnings() {
		if instance, ours := strings.CutPrefix(w.Text, object.Name+reached); ours {
			came.through, came.instance = true, instance
		}
	}
	return came
}

// slowAnswer is how long an answer may take before the findings so far are logged.
const slowAnswer = time.Second

// awaitCanary sends a canary, and calls slow if the answer is late.
func (d *diagnostic) awaitCanary(ctx context.Context) call {
	answered := make(chan call, 1)
	go func() { answered <- d.sendCanary(ctx) }()
	timer := time.NewTimer(slowAnswer)
	defer timer.Stop()
	select {
	case came := <-answered:
		return came
	case <-timer.C:
		d.slow()
		return <-answered
	}
}

// sendCanary gives the API server time to observe an entry that has just been registered. Until then the API server
// admits the canary without a call.
func (d *diagnostic) sendCanary(ctx context.Context) call {
	const pause = 100 * time.Millisecond
	deadline := time.Now().Add(d.Settle)
	for {
		came := d.sendOnce(ctx)
		if came.through || came.err != nil || !time.Now().Add(pause).Before(deadline) {
			return came
		}
		if err := wait.Sleep(ctx, pause); err != nil {
			return call{err: err}
		}
	}
}

// judgeCanary turns the outcome of the call into findings.
func (d *diagnostic) judgeCanary(ctx context.Context, came call) {
	namespace, target := "Namespace "+d.Canary.Namespace, d.Options.Target.String()
	switch {
	case came.through:
		message := fmt.Sprintf("the API server's call to %s came through in %s",
			target, came.took.Round(time.Millisecond))
		if came.instance != "" {
			message += ", answered by " + came.instance
		}
		d.add(note(diagnosis.Reached, target, message, ""))
	case came.err == nil:
		d.notCalled()
	case !errors.As(came.err, new(apierrors.APIStatus)): // it is not the API server's
		d.inconclusive = "the API server did not answer the canary"
		d.add(warning(diagnosis.CheckSkipped, "canary", d.inconclusive, "try again", came.err.Error()))
	case apierrors.IsForbidden(came.err) && strings.Contains(came.err.Error(), "cannot create resource"):
		d.noteMissingRight(came.err, diagnosis.Right{
			Resource: "configmaps", Verb: "create", Namespace: d.Canary.Namespace,
		})
		d.inconclusive, d.blind = "the right to send the canary is missing", true
	case apierrors.IsForbidden(came.err) && strings.Contains(came.err.Error(), "being terminated"):
		d.add(problem(diagnosis.NamespaceMissing, namespace,
			namespace+", in which this program runs, is being deleted", "wait for its end, and deploy again",
			came.err.Error()))
	case apierrors.IsNotFound(came.err):
		d.add(problem(diagnosis.NamespaceMissing, namespace,
			namespace+", in which this program should run, does not exist",
			"create it, or correct ManagerOptions.WebhookNamespace", came.err.Error()))
	default:
		d.add(d.explain(ctx, came.err.Error()))
	}
}

// notCalled reports a canary that was admitted without a call.
func (d *diagnostic) notCalled() {
	h, live := d.liveCanary()
	selector := d.Canary.excludedBy(h)
	switch {
	case !d.looked: // it may not be registered at all, so nothing follows
		d.inconclusive = "webhook configurations may not be read, and the canary was admitted without a call"
	case !live: // which has been reported
	case h.ignores():
		d.inconclusive = fmt.Sprintf("the webhook %s ignores failures, so the API server does not report them", h.Name)
	case selector != "":
		d.add(warning(diagnosis.Excluded, h.String(),
			fmt.Sprintf("the API server does not send the canary, because the %s of %s excludes it", selector, h),
			d.register()))
	default:
		d.add(problem(diagnosis.NotCalled, h.String(),
			fmt.Sprintf("the API server has admitted objects that %s selects without a call for more than %s", h, d.Settle),
			"check that every API server is healthy and has the admission plugins MutatingAdmissionWebhook and ValidatingAdmissionWebhook enabled"))
	}
}

// excludedBy names the selector of the entry that excludes the canary. It is empty if none does. Of the namespace's
// labels it knows only the one that every namespace has.
func (c Canary) excludedBy(h hook) string {
	if !webhookconf.Selects(h.NamespaceSelector, labels.Set{corev1.LabelMetadataName: c.Namespace}) {
		return fmt.Sprintf("namespaceSelector %q", metav1.FormatLabelSelector(h.NamespaceSelector))
	}
	if !webhookconf.Selects(h.ObjectSelector, labels.Set{CanaryLabel: c.Fingerprint}) {
		return fmt.Sprintf("objectSelector %q", metav1.FormatLabelSelector(h.ObjectSelector))
	}
	return ""
}

// WithoutCanary returns the step's object selector, extended to exclude the ConfigMap of a diagnosis. That ConfigMap is
// for no step, but can be in a namespace whose ConfigMaps are sent to steps.
func WithoutCanary(s webhookconf.Step, fingerprint string) *metav1.LabelSelector {
	if s.Kind != corev1.SchemeGroupVersion.WithKind("ConfigMap") {
		return s.Objects // a selector would also exclude objects without labels, such as the options of a CONNECT
	}
	objects := cmp.Or(s.Objects.DeepCopy(), &metav1.LabelSelector{})
	objects.MatchExpressions = append(objects.MatchExpressions, metav1.LabelSelectorRequirement{
		Key: CanaryLabel, Operator: metav1.LabelSelectorOpNotIn, Values: []string{fingerprint},
	})
	return objects
}
