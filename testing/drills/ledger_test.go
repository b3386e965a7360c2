package drills_test

// This file holds the custom resource of the drills, its rule, and the tenants whose programs have it.

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"go.uber.org/zap"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"

	"code.cloudfoundry.org/eirinix"
	. "code.cloudfoundry.org/eirinix/internal/spectest"
	eirinixtest "code.cloudfoundry.org/eirinix/testing"
	"code.cloudfoundry.org/eirinix/testing/internal/load"
)

// A ledger is a custom resource. Its Go type does not know the field hidden of its spec.
type ledger struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	Spec struct {
		Note  string `json:"note,omitempty"`
		Items []struct {
			Name  string `json:"name"`
			Image string `json:"image,omitempty"`
		} `json:"items,omitempty"`
	} `json:"spec"`
	Status struct {
		Phase string `json:"phase,omitempty"`
	} `json:"status"`
}

func (l *ledger) DeepCopyObject() runtime.Object {
	c := *l
	c.ObjectMeta, c.Spec.Items = *l.ObjectMeta.DeepCopy(), slices.Clone(l.Spec.Items)
	return &c
}

var ledgers = schema.GroupVersionResource{Group: "drills.example.org", Version: "v1", Resource: "ledgers"}

// defineLedgers makes the custom resource, and waits until it is served. Its version v1 has the subresource status, and
// v1beta1 does not.
func defineLedgers(ctx context.Context) {
	GinkgoHelper()
	const anything = `"type":"object","x-kubernetes-preserve-unknown-fields":true`
	const properties = `{"status":{` + anything + `},"spec":{` + anything + `,"properties":{"items":{"type":"array","x-kubernetes-list-type":"map",
		"x-kubernetes-list-map-keys":["name"],"items":{"type":"object","required":["name"],"properties":{"name":{"type":"string"},"image":{"type":"string"}}}}}}}`
	const served = `"served":true,"schema":{"openAPIV3Schema":{"type":"object","properties":` + properties + `}}`
	definitions := Must(dynamic.NewForConfig(config)).Resource(schema.GroupVersionResource{Group: "apiextensions.k8s.io", Version: "v1", Resource: "customresourcedefinitions"})
	Must(definitions.Create(ctx, object(`{"apiVersion":"apiextensions.k8s.io/v1","kind":"CustomResourceDefinition","metadata":{"name":"ledgers.drills.example.org"},"spec":{
		"group":"drills.example.org","scope":"Namespaced","names":{"plural":"ledgers","singular":"ledger","kind":"Ledger","listKind":"LedgerList"},
		"versions":[{"name":"v1","storage":true,"subresources":{"status":{}},%s},{"name":"v1beta1","storage":false,%s}]}}`, served, served), metav1.CreateOptions{}))
	Eventually(func() error {
		_, err := admin.Discovery().ServerResourcesForGroupVersion(ledgers.GroupVersion().String())
		get := admin.Discovery().RESTClient().Get
		return errors.Join(err, get().AbsPath("/apis/drills.example.org/v1/ledgers").Do(ctx).Error(), get().AbsPath("/apis/drills.example.org/v1beta1/ledgers").Do(ctx).Error())
	}).WithContext(ctx).Should(Succeed())
}

// judge refuses a bad value at each place that a tenant can write to.
func judge(_ context.Context, c *eirinix.Call, l *ledger) error {
	var faults field.ErrorList
	refuse := func(at *field.Path, value, ending string) {
		if strings.HasSuffix(value, ending) {
			faults = append(faults, field.Invalid(at, value, "is bad"))
		}
	}
	for i, it := range l.Spec.Items {
		refuse(field.NewPath("spec", "items").Index(i).Child("image"), it.Image, ":latest")
	}
	for i, o := range l.OwnerReferences {
		refuse(field.NewPath("metadata", "ownerReferences").Index(i).Child("name"), o.Name, "bad")
	}
	refuse(field.NewPath("metadata", "labels").Key("tier"), l.Labels["tier"], "bad")
	refuse(field.NewPath("status", "phase"), l.Status.Phase, "bad")
	switch {
	case len(faults) > 0:
		return eirinix.Invalid(faults)
	case l.Spec.Note == "bad":
		return eirinix.Deny("the note is bad")
	case bytes.Contains(c.Object.Raw, []byte(`"hidden":"bad"`)):
		return eirinix.Deny("the hidden field is bad")
	}
	return nil
}

// The rule as programs write it, in a webhook that is called for each update, and as a Rule.
var (
	classic = eirinix.Validation[*ledger]{
		ID: "judge", Settings: eirinix.Settings{EveryUpdate: true}, Create: judge,
		Update: func(ctx context.Context, c *eirinix.Call, _, l *ledger) error { return judge(ctx, c, l) },
	}
	asRule = eirinix.Validation[*ledger]{ID: "judge", Rule: judge}
)

const (
	good    = `{"items":[{"name":"a","image":"app:1"},{"name":"b","image":"b:1"}]}` // specs of a ledger
	bad     = `{"items":[{"name":"a","image":"app:latest"},{"name":"b","image":"b:1"}]}`
	badNote = `{"note":"bad"}`
	waits   = "drills.example.org/wait" // a finalizer
	letGo   = `{"metadata":{"finalizers":null}}`
)

func object(format string, args ...any) *unstructured.Unstructured {
	GinkgoHelper()
	u := &unstructured.Unstructured{}
	Expect(u.UnmarshalJSON(fmt.Appendf(nil, format, args...))).To(Succeed())
	return u
}

func newLedger(name, spec string, finalizers ...string) *unstructured.Unstructured {
	GinkgoHelper()
	l := object(`{"apiVersion":"drills.example.org/v1","kind":"Ledger","metadata":{"name":%q},"spec":%s}`, name, spec)
	l.SetFinalizers(finalizers)
	return l
}

// A tenant is a namespace, and the program that judges its objects.
type tenant struct {
	namespace string
	clients   dynamic.Interface
	warnings  bytes.Buffer // of the API server
	replica   *load.Replica
}

func newTenant(ctx context.Context) *tenant {
	GinkgoHelper()
	t, c := &tenant{namespace: NewNamespace(ctx, admin, nil).Name}, rest.CopyConfig(config)
	c.WarningHandler = rest.NewWarningWriter(&t.warnings, rest.WarningWriterOptions{})
	t.clients = Must(dynamic.NewForConfig(c))
	return t
}

func (t *tenant) ledgers(version string) dynamic.ResourceInterface {
	return t.clients.Resource(ledgers.GroupResource().WithVersion(version)).Namespace(t.namespace)
}

func (t *tenant) create(ctx context.Context, l *unstructured.Unstructured) *unstructured.Unstructured {
	GinkgoHelper()
	return Must(t.ledgers("v1").Create(ctx, l, metav1.CreateOptions{}))
}

func (t *tenant) list(ctx context.Context) []unstructured.Unstructured {
	GinkgoHelper()
	return Must(t.ledgers("v1").List(ctx, metav1.ListOptions{})).Items
}

// run starts the program, with failurePolicy Fail, and waits until its rule is in force.
func (t *tenant) run(ctx context.Context, step any) *tenant {
	GinkgoHelper()
	o := eirinix.ManagerOptions{
		Namespace: t.namespace, OperatorFingerprint: t.namespace, Host: "127.0.0.1", Port: FreePort(), RestConfig: config,
		Logger: zap.New(Log()).Named(t.namespace).Sugar(), DrainDelay: -time.Second, Scheme: newScheme(),
	}
	m := eirinix.NewManager(o)
	Expect(m.AddExtension(step)).To(Succeed())
	t.replica = load.Start(ctx, t.namespace, m)
	DeferCleanup(m.Unregister)
	Eventually(func() error {
		_, err := t.ledgers("v1").Create(ctx, newLedger("canary", bad), metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
		return err
	}).WithContext(ctx).Should(beDenied("is bad"))
	return t
}

func newScheme() *runtime.Scheme {
	scheme := runtime.NewScheme()
	scheme.AddKnownTypeWithName(ledgers.GroupVersion().WithKind("Ledger"), &ledger{})
	return scheme
}

// A verdict is a test of a step's author, which keeps its failure.
type verdict struct {
	eirinixtest.TB
	failure string
}

func (v *verdict) Fatalf(format string, args ...any) { v.failure = fmt.Sprintf(format, args...) }

// unitTested returns the failure of a unit test of a step with an object that violates it.
func unitTested(step any, violating *unstructured.Unstructured) string {
	v := &verdict{TB: GinkgoTB()}
	eirinixtest.NewHarness(v, step, func(o *eirinixtest.HarnessOptions) { o.Manager.Scheme = newScheme() }).CheckUpdatable(violating)
	return v.failure
}

func (t *tenant) stop(ctx context.Context) {
	GinkgoHelper()
	t.replica.Stop()
	load.ExpectEnd(ctx, t.replica)
}

// release is one round of a controller that removes the finalizers of ledgers that are being deleted. It returns the refusals.
func (t *tenant) release(ctx context.Context) (refusals []error) {
	GinkgoHelper()
	for _, l := range t.list(ctx) {
		if l.GetDeletionTimestamp() == nil {
			continue
		}
		if err := merge(letGo)(ctx, t, l.GetName()); err != nil {
			refusals = append(refusals, err)
		}
	}
	return refusals
}

// expectGone lets the controller work until the namespace is gone.
func (t *tenant) expectGone(ctx context.Context) {
	GinkgoHelper()
	Eventually(func(g Gomega) {
		g.Expect(t.release(ctx)).To(BeEmpty())
		_, err := admin.CoreV1().Namespaces().Get(ctx, t.namespace, metav1.GetOptions{})
		g.Expect(err).To(MatchError(apierrors.IsNotFound, "IsNotFound"))
	}).WithContext(ctx).WithPolling(time.Second / 4).Should(Succeed())
}

// rejections is the number of updates that the API server has refused because of the tenant's webhook.
func (t *tenant) rejections(ctx context.Context) (n int) {
	GinkgoHelper()
	metrics := string(Must(admin.Discovery().RESTClient().Get().AbsPath("/metrics").DoRaw(ctx)))
	for _, sample := range regexp.MustCompile(`webhook_rejection_count{[^}]*`+t.namespace+`[^}]*operation="UPDATE"[^}]*} (\d+)`).FindAllStringSubmatch(metrics, -1) {
		n += Must(strconv.Atoi(sample[1]))
	}
	return n
}

// An edit changes a ledger.
type edit func(ctx context.Context, t *tenant, name string) error

func mergeIn(version, patch string, subresources ...string) edit {
	return func(ctx context.Context, t *tenant, name string) error {
		_, err := t.ledgers(version).Patch(ctx, name, types.MergePatchType, []byte(patch), metav1.PatchOptions{}, subresources...)
		return err
	}
}

func merge(patch string) edit { return mergeIn("v1", patch) }

// apply has managers apply specs, one after the other.
func apply(managersAndSpecs ...string) edit {
	return func(ctx context.Context, t *tenant, name string) (err error) {
		for c := range slices.Chunk(managersAndSpecs, 2) {
			_, failed := t.ledgers("v1").Apply(ctx, name, newLedger(name, c[1]), metav1.ApplyOptions{FieldManager: c[0]})
			err = errors.Join(err, failed)
		}
		return err
	}
}

func rewrite(ctx context.Context, t *tenant, name string) error {
	_, err := t.ledgers("v1").Update(ctx, Must(t.ledgers("v1").Get(ctx, name, metav1.GetOptions{})), metav1.UpdateOptions{})
	return err
}

func beDenied(cause string) OmegaMatcher {
	return MatchError(And(ContainSubstring("denied the request"), ContainSubstring(cause)))
}

func beUnanswered() OmegaMatcher { return MatchError(ContainSubstring("failed calling webhook")) }
