package webhookconf_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"

	. "code.cloudfoundry.org/eirinix/internal/spectest"
	"code.cloudfoundry.org/eirinix/internal/webhookconf"
)

var _ = Describe("The API server", Label("api-server"), Ordered, func() {
	var (
		clients kubernetes.Interface
		client  dynamic.Interface
		o       webhookconf.Options
	)

	BeforeAll(func() {
		config := controlPlane().config
		clients, client = Must(kubernetes.NewForConfig(config)), Must(dynamic.NewForConfig(config))
	})
	BeforeEach(func() {
		o = serviceOptions()
		o.Fingerprint = fmt.Sprint("spec-", time.Now().UnixNano())
	})

	// configurations returns both, which go away after the spec.
	configurations := func() []webhookconf.Configuration {
		mutating, validating := both(client, o)
		DeferCleanup(mutating.Delete)
		DeferCleanup(validating.Delete)
		return []webhookconf.Configuration{mutating, validating}
	}
	stored := func(ctx context.Context) *admissionregistrationv1.MutatingWebhookConfiguration {
		GinkgoHelper()
		return Must(clients.AdmissionregistrationV1().MutatingWebhookConfigurations().Get(ctx, o.Fingerprint+"-mutating-hook", metav1.GetOptions{}))
	}
	patch := func(ctx context.Context, manager, patch string) {
		GinkgoHelper()
		Must(clients.AdmissionregistrationV1().MutatingWebhookConfigurations().Patch(ctx, o.Fingerprint+"-mutating-hook",
			types.JSONPatchType, []byte(patch), metav1.PatchOptions{FieldManager: manager}))
	}
	many := []webhookconf.Step{
		step("a", objects(labels1("a", "1")), conditions(condition("yes", "true"))), step("b", isolated, ifNeeded), step("c", isolated, namespaces(labels1("a", "1"))),
		step("d", isolated, ignore, rules(rule("*", "*", "*/*", "*"))), step("v", validating), step("w", validating, isolated, ignore),
		step("e", isolated, critical, rules(rule("*", "*", "*/*", "*"))), step("f", updates, ifNeeded),
		step("x", validating, namespaces(labels1("a", "1")), objects(labels1("b", "2"))), step("y", validating, isolated, conditions(condition("yes", "true"))),
	}

	Describe("is of Check's opinion", Label("S18", "S20", "S26"), func() {
		for _, f := range faults {
			It("because of "+f.because, func(ctx SpecContext) {
				var err error
				for _, c := range configurations() {
					_, _, e := register(ctx, c, func(webhookconf.Found) webhookconf.Change {
						return trusting(desired(o, step("volumes", f.change)), "bundle")
					})
					err = errors.Join(err, e)
				}
				if len(f.reasons) == 0 || f.ours {
					Expect(err).NotTo(HaveOccurred())
					return
				}
				status, ok := errors.AsType[*apierrors.StatusError](err)
				Expect(ok).To(BeTrue(), "%v", err)
				Expect(apierrors.IsInvalid(status)).To(BeTrue(), "%v", err)
				var causes []string
				for _, c := range status.ErrStatus.Details.Causes {
					causes = append(causes, strings.TrimPrefix(c.Field, "webhooks[0].")+": "+c.Message)
				}
				Expect(causes).To(HaveLen(len(f.reasons)), "%v", causes)
				for i, reason := range f.reasons {
					Expect(causes[i]).To(ContainSubstring(reason))
				}
			})
		}
	})

	It("stores a configuration exactly as we have built it", func(ctx SpecContext) {
		d := desired(o, many...)
		all := webhookconf.Change{Entries: d, Bundle: []byte(pem(0)), Unneeded: map[string]time.Time{hash(0): noon}}
		for _, c := range configurations() {
			found, outcome := put(ctx, c, all)
			Expect(outcome).To(Equal(webhookconf.Created), c.String())
			for range 2 {
				Expect(found).To(And(HaveField("Exists", true), HaveField("Bundles", Equal([][]byte{[]byte(pem(0))})), HaveField("Version", d.Version),
					HaveField("Pins", Equal([]string{hash(0)})), HaveField("Unneeded", Equal(map[string]time.Time{hash(0): noon})),
					HaveField("ResourceVersion", Not(BeEmpty())), HaveField("UID", Not(BeEmpty()))))
				Expect(found.Missing(*d)).To(BeEmpty())
				Expect(found.Intact(*d)).To(BeTrue())
				var err error
				_, outcome, err = c.Put(ctx, found, all)
				Expect(err).NotTo(HaveOccurred())
				Expect(outcome).To(Equal(webhookconf.Unchanged), "nothing was left to be defaulted")
				found = get(ctx, c)
			}
		}
		Expect(stored(ctx).Generation).To(BeEquivalentTo(1))
		Expect(stored(ctx).Webhooks).To(HaveLen(6))

		for _, c := range configurations() {
			without := desired(o)
			Expect(registers(ctx, c, without, "bundle")).To(Equal(webhookconf.Updated), "an empty list in one update")
			Expect(registers(ctx, c, without, "bundle")).To(Equal(webhookconf.Unchanged))
			Expect(c.Delete(ctx)).To(Equal(webhookconf.Deleted))
			Expect(registers(ctx, c, without, "bundle")).To(Equal(webhookconf.Absent), "never created to be empty")
			found := get(ctx, c)
			Expect(found).To(And(HaveField("Exists", false), HaveField("Bundles", BeEmpty())))
			Expect(found.Missing(*d)).NotTo(BeEmpty())
		}
	})

	It("is sent nothing for a state that it has already, whatever the settings are", func(ctx SpecContext) {
		o.Namespace, o.OwnedBy = "workloads", webhookconf.OwnedByNamespace(Must(clients.CoreV1().Namespaces().Get(ctx, "default", metav1.GetOptions{})))
		var steps []webhookconf.Step
		for i, only := range []change{none, validating} {
			all := []change{only}
			for _, field := range slices.Sorted(maps.Keys(settingChanges)) {
				all = append(all, settingChanges[field])
				steps = append(steps, step(fmt.Sprintf("%s-%d", strings.ToLower(field), i), only, settingChanges[field], isolated))
			}
			steps = append(steps, step("all", all...))
		}
		for i, c := range configurations() {
			d := desired(o, steps...)
			all := webhookconf.Change{Entries: d, Bundle: []byte(pem(0)), Unneeded: map[string]time.Time{}}
			first, _ := put(ctx, c, all)
			object := get(ctx, c)
			Expect(object.Intact(*d)).To(BeTrue(), c.String())
			Expect(object.Missing(*d)).To(BeEmpty())
			again, outcome, err := c.Put(ctx, object, all)
			Expect(err).NotTo(HaveOccurred())
			Expect(outcome).To(Equal(webhookconf.Unchanged))
			Expect([]string{again.ResourceVersion, get(ctx, c).ResourceVersion}).To(HaveEach(first.ResourceVersion))

			for _, path := range []string{"/failurePolicy", "/timeoutSeconds", "/rules", "/namespaceSelector"} { // the API server defaults the first two
				_, err := client.Resource(schema.GroupVersionResource{Group: "admissionregistration.k8s.io", Version: "v1", Resource: []webhookconf.Kind{webhookconf.Mutating, webhookconf.Validating}[i].Resource}).
					Patch(ctx, c.Name(), types.JSONPatchType, fmt.Appendf(nil, `[{"op":"remove","path":"/webhooks/%d%s"}]`, i, path), metav1.PatchOptions{})
				Expect(err).NotTo(HaveOccurred())
			}
			Expect(get(ctx, c).Intact(*d)).To(BeFalse())
			_, outcome = put(ctx, c, all)
			Expect(outcome).To(Equal(webhookconf.Updated))
			_, outcome = put(ctx, c, all)
			Expect(outcome).To(Equal(webhookconf.Unchanged))
		}
	})

	It("takes trust alone, and keeps every other byte", func(ctx SpecContext) {
		m := configurations()[0]
		registers(ctx, m, desired(o, many...), pem(0))
		patch(ctx, "kubectl", `[{"op":"remove","path":"/webhooks/0/clientConfig/caBundle"},{"op":"replace","path":"/webhooks/1/failurePolicy","value":"Ignore"},`+
			`{"op":"add","path":"/metadata/labels","value":{"team":"x"}},{"op":"remove","path":"/metadata/annotations/eirinix.cloudfoundry.org~1certificate-secret"}]`)
		before := stored(ctx)
		found, outcome := put(ctx, m, webhookconf.Change{Bundle: []byte(pem(0, 1))})
		Expect(outcome).To(Equal(webhookconf.Updated))
		Expect(found.Intact(*desired(o, many...))).To(BeFalse())
		for i := range before.Webhooks {
			before.Webhooks[i].ClientConfig.CABundle = []byte(pem(0, 1))
		}
		before.Annotations[webhookconf.PinsAnnotation] = hash(0) + "," + hash(1)
		after := stored(ctx)
		before.ResourceVersion, before.ManagedFields, before.Generation = after.ResourceVersion, after.ManagedFields, after.Generation
		Expect(json.Marshal(after)).To(Equal(Must(json.Marshal(before))))
	})

	It("refuses a change of a configuration that was changed or deleted since it was found", func(ctx SpecContext) {
		m := configurations()[0]
		registers(ctx, m, desired(o, many...), pem(0))
		found := get(ctx, m)
		trust := webhookconf.Change{Bundle: []byte(pem(1))}
		_, _, err := m.Put(ctx, webhookconf.Found{}, trusting(desired(o, many...), pem(1)))
		Expect(apierrors.IsAlreadyExists(err)).To(BeTrue(), "%v", err)
		patch(ctx, "kubectl", `[{"op":"replace","path":"/webhooks/0/timeoutSeconds","value":9}]`)
		_, _, err = m.Put(ctx, found, trust)
		Expect(apierrors.IsConflict(err)).To(BeTrue(), "%v", err)
		Expect(m.Delete(ctx)).To(Equal(webhookconf.Deleted))
		_, _, err = m.Put(ctx, found, trust)
		Expect(apierrors.IsNotFound(err)).To(BeTrue(), "%v", err)
		registers(ctx, m, desired(o, many...), pem(0))
		_, _, err = m.Put(ctx, found, trust)
		Expect(apierrors.IsConflict(err)).To(BeTrue(), "%v", err)
	})

	It("records the last writer of a configuration", func(ctx SpecContext) {
		m := configurations()[0]
		registers(ctx, m, desired(o, many...), pem(0))
		Expect(get(ctx, m).LastManager()).To(BeEmpty())
		patch(ctx, "argocd-controller", `[{"op":"replace","path":"/webhooks/0/failurePolicy","value":"Ignore"}]`)
		Expect(get(ctx, m).LastManager()).To(Equal("argocd-controller"))
		Expect(registers(ctx, m, desired(o, many...), pem(0))).To(Equal(webhookconf.Updated))
		Expect(stored(ctx).ManagedFields).To(HaveEach(HaveField("Manager", BeElementOf("eirinix", "argocd-controller"))), "whatever this program is called")
	})

	It("hands over EiriniX's own configuration in one write, with the older entries in it", func(ctx SpecContext) {
		upstream, err := clients.AdmissionregistrationV1().MutatingWebhookConfigurations().Create(ctx, &admissionregistrationv1.MutatingWebhookConfiguration{
			ObjectMeta: metav1.ObjectMeta{Name: o.Fingerprint + "-mutating-hook"},
			Webhooks: []admissionregistrationv1.MutatingWebhook{
				upstreamEntry("0." + o.Fingerprint + ".org"), upstreamEntry("1." + o.Fingerprint + ".org"),
			},
		}, metav1.CreateOptions{FieldManager: "eirinix-program"})
		Expect(err).NotTo(HaveOccurred())
		m, d := configurations()[0], desired(o, step("a", isolated))
		found := get(ctx, m)
		Expect(found).To(And(HaveField("Exists", true), HaveField("Bundles", BeEmpty()), HaveField("Version", "")))
		Expect(found.Missing(*d)).To(ConsistOf("a"))
		Expect(registers(ctx, m, d, pem(0))).To(Equal(webhookconf.Updated))
		after := stored(ctx)
		Expect(after.UID).To(Equal(upstream.UID))
		Expect(after.Generation).To(Equal(upstream.Generation+1), "one write")
		Expect(after.Webhooks).To(ConsistOf(HaveField("Name", o.WebhookName("a"))))
		Expect(registers(ctx, m, d, pem(0))).To(Equal(webhookconf.Unchanged))
	})

	It("stores the Namespace that owns a configuration once, beside other owners", func(ctx SpecContext) {
		ns, err := clients.CoreV1().Namespaces().Get(ctx, "default", metav1.GetOptions{})
		Expect(err).NotTo(HaveOccurred())
		o.OwnedBy = webhookconf.OwnedByNamespace(ns)
		m, d := configurations()[0], desired(o, step("a"))
		Expect(registers(ctx, m, d, "bundle")).To(Equal(webhookconf.Created))
		Expect(registers(ctx, m, d, "bundle")).To(Equal(webhookconf.Unchanged))

		live := stored(ctx)
		Expect(live.OwnerReferences).To(ConsistOf(*webhookconf.OwnedByNamespace(ns)))
		live.OwnerReferences = []metav1.OwnerReference{
			{APIVersion: "v1", Kind: "Namespace", Name: "default", UID: "of-one-that-is-gone"},
			{APIVersion: "apps/v1", Kind: "Deployment", Name: "another", UID: "owner"},
		}
		Must(clients.AdmissionregistrationV1().MutatingWebhookConfigurations().Update(ctx, live, metav1.UpdateOptions{}))
		Expect(registers(ctx, m, d, "bundle")).To(Equal(webhookconf.Updated))
		Expect(stored(ctx).OwnerReferences).To(ConsistOf(HaveField("Kind", "Deployment"), Equal(*webhookconf.OwnedByNamespace(ns))))
	})
})

// upstreamEntry is one as EiriniX wrote it.
func upstreamEntry(name string) admissionregistrationv1.MutatingWebhook {
	return admissionregistrationv1.MutatingWebhook{
		Name: name,
		ClientConfig: admissionregistrationv1.WebhookClientConfig{
			URL: new("https://10.0.0.7:4545/" + name), CABundle: []byte("-----BEGIN CERTIFICATE-----\n-----END CERTIFICATE-----\n"),
		},
		Rules:                   []admissionregistrationv1.RuleWithOperations{rule("", "v1", "pods", "CREATE,UPDATE")},
		NamespaceSelector:       labels1("eirini-x-namespace", "eirini"),
		SideEffects:             new(admissionregistrationv1.SideEffectClassNone),
		AdmissionReviewVersions: []string{"v1beta1", "v1"},
	}
}
