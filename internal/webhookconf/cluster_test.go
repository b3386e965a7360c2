package webhookconf_test

// A cluster without an API server, and what specs do in one of either kind.

import (
	"context"
	"crypto/x509"
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/dynamic/fake"
	"k8s.io/client-go/kubernetes/scheme"
	clienttesting "k8s.io/client-go/testing"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"code.cloudfoundry.org/eirinix/internal/ca"
	"code.cloudfoundry.org/eirinix/internal/list"
	. "code.cloudfoundry.org/eirinix/internal/spectest"
	"code.cloudfoundry.org/eirinix/internal/webhookconf"
	eirinixtest "code.cloudfoundry.org/eirinix/testing"
)

const (
	configurationName = "eirini-x-mutating-hook"
	resourceName      = "mutatingwebhookconfigurations"
	owner             = "cf/eirini-x-setupcertificate"
	otherOwner        = "other/eirini-x-setupcertificate"
)

var (
	mutatingResource = admissionregistrationv1.SchemeGroupVersion.WithResource(resourceName)
	groupResource    = mutatingResource.GroupResource()
)

// cluster is client-go's fake dynamic client, with the API server's optimistic lock, and with questions about the
// requests that reached it. It keeps the fields that no Go type knows.
type cluster struct {
	*fake.FakeDynamicClient
	uids int
}

func newCluster(objects ...runtime.Object) *cluster {
	c := &cluster{FakeDynamicClient: fake.NewSimpleDynamicClient(scheme.Scheme, objects...)}
	c.PrependReactor("create", "*", c.version)
	c.PrependReactor("update", "*", c.version)
	return c
}

// version gives each object that is written a new resourceVersion, and refuses updates of any but the last one.
func (c *cluster) version(a clienttesting.Action) (bool, runtime.Object, error) {
	written := a.(interface{ GetObject() runtime.Object }).GetObject().(*unstructured.Unstructured)
	if a.GetVerb() == "create" {
		c.uids++
		written.SetUID(types.UID(fmt.Sprint("uid-", c.uids)))
		written.SetResourceVersion("1")
		return false, nil, nil
	}
	found, err := c.Tracker().Get(a.GetResource(), "", written.GetName())
	if err != nil {
		return true, nil, err
	}
	live := found.(*unstructured.Unstructured)
	if written.GetResourceVersion() != live.GetResourceVersion() || written.GetUID() != live.GetUID() {
		return true, nil, conflict()
	}
	written.SetResourceVersion(after(live))
	return false, nil, nil
}

// after is the resourceVersion after that of the object.
func after(o *unstructured.Unstructured) string {
	return strconv.Itoa(Must(strconv.Atoi(o.GetResourceVersion())) + 1)
}

// verbs are those of the requests that have reached the cluster, in order.
func (c *cluster) verbs() []string { return list.Of(c.Actions(), clienttesting.Action.GetVerb) }

// writes are the verbs that change something.
func (c *cluster) writes() []string {
	return slices.DeleteFunc(c.verbs(), func(verb string) bool { return verb == "get" })
}

// once lets the next action of the verb meet something else, and then stands aside.
func (c *cluster) once(verb string, meets func() error) {
	done := false
	c.PrependReactor(verb, resourceName, func(clienttesting.Action) (bool, runtime.Object, error) {
		if done {
			return false, nil, nil
		}
		done = true
		err := meets()
		return err != nil, nil, err
	})
}

// always answers a verb with an error.
func (c *cluster) always(verb string, err error) {
	c.PrependReactor(verb, resourceName, func(clienttesting.Action) (bool, runtime.Object, error) { return true, nil, err })
}

// behindTheScenes changes the stored objects without recording an action.
func (c *cluster) behindTheScenes(change func(t clienttesting.ObjectTracker) error) {
	GinkgoHelper()
	Expect(change(c.Tracker())).To(Succeed())
}

// tamper changes the stored configuration, in a new version.
func (c *cluster) tamper(change func(*admissionregistrationv1.MutatingWebhookConfiguration)) {
	GinkgoHelper()
	found := c.stored()
	change(found)
	c.replace(untyped(found))
}

// replace changes the stored configuration, in a new version.
func (c *cluster) replace(next *unstructured.Unstructured) {
	GinkgoHelper()
	next.SetResourceVersion(after(next))
	c.behindTheScenes(func(t clienttesting.ObjectTracker) error { return t.Update(mutatingResource, next, "") })
}

func (c *cluster) lose() {
	GinkgoHelper()
	c.behindTheScenes(func(t clienttesting.ObjectTracker) error {
		return t.Delete(mutatingResource, "", configurationName)
	})
}

func (c *cluster) stored() *admissionregistrationv1.MutatingWebhookConfiguration {
	GinkgoHelper()
	var found admissionregistrationv1.MutatingWebhookConfiguration
	Expect(runtime.DefaultUnstructuredConverter.FromUnstructured(c.tree().Object, &found)).To(Succeed())
	found.TypeMeta = metav1.TypeMeta{}
	return &found
}

// tree returns a copy of the stored configuration with every field.
func (c *cluster) tree() *unstructured.Unstructured {
	GinkgoHelper()
	return Must(c.Tracker().Get(mutatingResource, "", configurationName)).(*unstructured.Unstructured).DeepCopy()
}

// untyped returns the object as it is stored.
func untyped(object runtime.Object) *unstructured.Unstructured {
	GinkgoHelper()
	var stored unstructured.Unstructured
	Expect(scheme.Scheme.Convert(object, &stored, nil)).To(Succeed())
	return &stored
}

// holding returns a cache that holds the object.
func holding(object *unstructured.Unstructured) func(context.Context, client.Object) error {
	return func(_ context.Context, into client.Object) error {
		into.(*unstructured.Unstructured).Object = object.Object
		return nil
	}
}

func (c *cluster) holdsNothing() bool {
	_, err := c.Tracker().Get(mutatingResource, "", configurationName)
	return apierrors.IsNotFound(err)
}

func (c *cluster) names() []string {
	return list.Of(c.stored().Webhooks, func(w admissionregistrationv1.MutatingWebhook) string { return w.Name })
}

func (c *cluster) bundles() []string {
	return list.Of(c.stored().Webhooks, func(w admissionregistrationv1.MutatingWebhook) string { return string(w.ClientConfig.CABundle) })
}

// configuration is one of ours as it stands in a cluster after some use, without a version.
func configuration(webhooks []admissionregistrationv1.MutatingWebhook) *admissionregistrationv1.MutatingWebhookConfiguration {
	return &admissionregistrationv1.MutatingWebhookConfiguration{
		ObjectMeta: metav1.ObjectMeta{
			Name:            configurationName,
			UID:             "11111111-2222-3333-4444-555555555555",
			ResourceVersion: "41",
			Labels:          map[string]string{"app.kubernetes.io/managed-by": "eirinix", "team": "storage"},
			Annotations:     map[string]string{webhookconf.OwnerAnnotation: owner, "note": "do not touch"},
			Finalizers:      []string{"example.org/guard"},
			OwnerReferences: []metav1.OwnerReference{{APIVersion: "v1", Kind: "Namespace", Name: "cf", UID: "ns"}},
		},
		Webhooks: webhooks,
	}
}

func conflict() error {
	return apierrors.NewConflict(groupResource, configurationName, nil)
}

func forbidden() error {
	return apierrors.NewForbidden(groupResource, configurationName, nil)
}

var noon = time.Date(2030, time.March, 1, 12, 0, 0, 0, time.UTC)

// both returns the configurations of the options' fingerprint.
func both(in dynamic.Interface, o webhookconf.Options) (mutating, validating webhookconf.Configuration) {
	all := webhookconf.Configurations(in, o, owner)
	return all[0], all[1]
}

// mutatingIn returns the mutating configuration of the fingerprint "eirini-x".
func mutatingIn(in dynamic.Interface) webhookconf.Configuration {
	mutating, _ := both(in, urlOptions())
	return mutating
}

// register gets, decides and puts, again after each lost race. The decision is made anew each time.
func register(ctx context.Context, c webhookconf.Configuration, decide func(webhookconf.Found) webhookconf.Change) (webhookconf.Found, webhookconf.Outcome, error) {
	for {
		found, err := c.Get(ctx)
		if err != nil {
			return found, "", err
		}
		after, outcome, err := c.Put(ctx, found, decide(found))
		if apierrors.IsConflict(err) || apierrors.IsAlreadyExists(err) || apierrors.IsNotFound(err) {
			continue
		}
		return after, outcome, err
	}
}

// registers is a program that registers these entries and trusts this bundle.
func registers(ctx context.Context, c webhookconf.Configuration, d *webhookconf.Desired, bundle string) webhookconf.Outcome {
	GinkgoHelper()
	_, outcome, err := register(ctx, c, func(webhookconf.Found) webhookconf.Change { return trusting(d, bundle) })
	Expect(err).NotTo(HaveOccurred())
	return outcome
}

func get(ctx context.Context, c webhookconf.Configuration) webhookconf.Found {
	GinkgoHelper()
	return Must(c.Get(ctx))
}

// put puts a change of the configuration as it is now.
func put(ctx context.Context, c webhookconf.Configuration, change webhookconf.Change) (webhookconf.Found, webhookconf.Outcome) {
	GinkgoHelper()
	found, outcome, err := c.Put(ctx, get(ctx, c), change)
	Expect(err).NotTo(HaveOccurred())
	return found, outcome
}

func texts(all [][]byte) []string { return list.Of(all, func(b []byte) string { return string(b) }) }

// authorities are the CAs of the specs, made once.
var authorities = sync.OnceValue(func() (all []*x509.Certificate) {
	for range 3 {
		all = append(all, Must(ca.New("spec", time.Hour, time.Now())).Certificate)
	}
	return all
})

// pem returns the bundle of some of the authorities, by their index.
func pem(indices ...int) (bundle string) {
	for _, i := range indices {
		bundle += string(ca.EncodeCertificate(authorities()[i]))
	}
	return bundle
}

func hash(i int) string { return ca.HashOf(authorities()[i]) }

func blank(m *admissionregistrationv1.MutatingWebhookConfiguration) {
	for i := range m.Webhooks {
		m.Webhooks[i].ClientConfig.CABundle = nil
	}
}

func weaken(m *admissionregistrationv1.MutatingWebhookConfiguration) {
	m.Webhooks[0].FailurePolicy = new(admissionregistrationv1.Ignore)
}

func marshal(value any) []byte {
	GinkgoHelper()
	return Must(json.Marshal(value))
}

func TestWebhookconf(t *testing.T) {
	RegisterFailHandler(Fail)
	SetDefaultEventuallyTimeout(60 * time.Second) // of a busy machine
	RunSpecs(t, "webhookconf")
}

var plane *eirinixtest.ControlPlane

// No timeout holds here: other packages may use the control plane first.
var _ = BeforeSuite(func() {
	if RunsAPIServer() {
		plane = eirinixtest.StartControlPlane(GinkgoTB(), eirinixtest.Shared)
	}
})

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
	return webhookconf.Options{Fingerprint: "eirini-x", Target: webhookconf.Target{Host: "webhook.example.org", Port: 8443}, CABundle: []byte("bundle")}
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
