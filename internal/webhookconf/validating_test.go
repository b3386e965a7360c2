package webhookconf_test

import (
	"errors"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"

	"code.cloudfoundry.org/eirinix/internal/webhookconf"
)

// What the other specs say of the mutating kind holds for the validating one.
var _ = Describe("The validating kind", func() {
	const name, resource = "eirini-x-validating-hook", "validatingwebhookconfigurations"
	var (
		time0    *clock
		webhooks []admissionregistrationv1.ValidatingWebhook
	)

	steps := []webhookconf.Step{step("m", isolated), step("a", isolated, validating), step("b", isolated, validating)}
	start := func(set *fake.Clientset) *process {
		_, v := processes(time0.writer(urlOptions(), steps...), set)
		return v
	}
	held := func(webhooks []admissionregistrationv1.ValidatingWebhook) *admissionregistrationv1.ValidatingWebhookConfiguration {
		c := &admissionregistrationv1.ValidatingWebhookConfiguration{ObjectMeta: configuration(nil).ObjectMeta, Webhooks: webhooks}
		c.Name = name
		return c
	}
	stored := func(set *fake.Clientset) *admissionregistrationv1.ValidatingWebhookConfiguration {
		GinkgoHelper()
		found, err := set.Tracker().Get(admissionregistrationv1.SchemeGroupVersion.WithResource(resource), "", name)
		Expect(err).NotTo(HaveOccurred())
		return found.(*admissionregistrationv1.ValidatingWebhookConfiguration)
	}
	verbs := func(set *fake.Clientset) (all []string) {
		for _, a := range set.Actions() {
			Expect(a.GetResource().Resource).To(Equal(resource))
			all = append(all, a.GetVerb())
		}
		return all
	}

	BeforeEach(func() { time0, webhooks = &clock{now: noon}, urlOptions().Validating(webhookconf.Group(steps)) })

	It("has names of its own", func() {
		Expect(webhookconf.Validating.ConfigurationName("x")).To(Equal("x-validating-hook"))
		Expect(webhookconf.Mutating.ConfigurationName("x")).To(Equal("x-mutating-hook"))
		m, v := processes(time0.writer(urlOptions()), fake.NewClientset())
		Expect(m.String()).To(Equal("MutatingWebhookConfiguration eirini-x-mutating-hook"))
		Expect(v.String()).To(Equal("ValidatingWebhookConfiguration eirini-x-validating-hook"))
	})

	It("holds entries of its own", func() {
		m, v := processes(time0.writer(urlOptions()), fake.NewClientset())
		Expect(v.Holds(webhookconf.Group(steps))).To(BeTrue())
		Expect(v.Holds(webhookconf.Group(steps[:1]))).To(BeFalse())
		Expect(m.Holds(webhookconf.Group(steps[:1]))).To(BeTrue())
		Expect(m.Holds(webhookconf.Group(steps[1:]))).To(BeFalse())
	})

	It("is created, marked as ours, and then left alone", func(ctx SpecContext) {
		set := fake.NewClientset()
		Expect(start(set).register(ctx).Outcome).To(Equal(webhookconf.Created))
		Expect(stored(set).Webhooks).To(Equal(webhooks))
		Expect(stored(set).Annotations).To(And(
			HaveKeyWithValue(webhookconf.OwnerAnnotation, owner), HaveKeyWithValue(webhookconf.SetsAnnotation, "a=a,b=b"),
			HaveKey(webhookconf.StepsAnnotation), HaveKeyWithValue(webhookconf.StartedAnnotation, "2030-03-01T12:00:00Z"),
		))
		Expect(stored(set).Labels).To(HaveKeyWithValue("app.kubernetes.io/managed-by", "eirinix"))
		Expect(start(set).register(ctx).Outcome).To(Equal(webhookconf.Unchanged))
		Expect(verbs(set)).To(Equal([]string{"get", "create", "get"}))
	})

	It("is updated in place, at the version that was compared, again after a conflict, and keeps what is not ours", func(ctx SpecContext) {
		set := fake.NewClientset(held(nil))
		older := start(set)
		older.bundle = "older bundle"
		older.register(ctx)
		set.ClearActions()
		before, conflicts := stored(set).DeepCopy(), 1
		set.PrependReactor("update", resource, func(clienttesting.Action) (bool, runtime.Object, error) {
			conflicts--
			return conflicts == 0, nil, conflict()
		})
		Expect(start(set).register(ctx).Outcome).To(Equal(webhookconf.Updated))
		Expect(verbs(set)).To(Equal([]string{"get", "update", "get", "update"}))
		update := set.Actions()[3].(clienttesting.UpdateAction).GetObject().(metav1.Object)
		Expect(update.GetResourceVersion()).To(Equal(before.ResourceVersion))
		after := stored(set)
		Expect(after.Webhooks).To(Equal(webhooks))
		before.Webhooks, before.ResourceVersion, before.ManagedFields = after.Webhooks, after.ResourceVersion, after.ManagedFields
		Expect(after).To(Equal(before))
	})

	It("is replaced by who started later, and looked after by who did not", func(ctx SpecContext) {
		set := fake.NewClientset()
		p := start(set)
		p.register(ctx)
		time0.pass(1)
		_, later := processes(time0.writer(urlOptions(), step("c", isolated, validating)), set)
		Expect(later.register(ctx).Outcome).To(Equal(webhookconf.Updated))
		Expect(stored(set).Webhooks).To(ConsistOf(HaveField("Name", webhookconf.WebhookName("c", "eirini-x"))))
		p.bundle = "another"
		Expect(p.register(ctx)).To(And(HaveField("Outcome", webhookconf.Updated), HaveField("Action", webhookconf.Yield)))
		Expect(stored(set).Webhooks).To(ConsistOf(And(
			HaveField("Name", webhookconf.WebhookName("c", "eirini-x")), HaveField("ClientConfig.CABundle", BeEquivalentTo("another")),
		)))
	})

	It("is not touched when it belongs to another deployment", func(ctx SpecContext) {
		foreign := held(nil)
		foreign.Annotations[webhookconf.OwnerAnnotation] = otherOwner
		set := fake.NewClientset(foreign)
		for _, err := range []error{register(ctx, start(set)), remove(ctx, start(set))} {
			owned, ok := errors.AsType[*webhookconf.OwnedElsewhereError](err)
			Expect(ok).To(BeTrue(), "%v", err)
			Expect(*owned).To(Equal(webhookconf.OwnedElsewhereError{Kind: "ValidatingWebhookConfiguration", Configuration: name, Owner: otherOwner, Us: owner}))
		}
		Expect(verbs(set)).To(Equal([]string{"get", "get"}))
	})

	It("is deleted as it was looked at", func(ctx SpecContext) {
		set := fake.NewClientset(held(webhooks))
		seen := stored(set)
		Expect(start(set).Delete(ctx)).To(Equal(webhookconf.Deleted))
		p := set.Actions()[1].(clienttesting.DeleteActionImpl).DeleteOptions.Preconditions
		Expect(p.UID).To(HaveValue(Equal(seen.UID)))
		Expect(p.ResourceVersion).To(HaveValue(Equal(seen.ResourceVersion)))
		Expect(start(set).Delete(ctx)).To(Equal(webhookconf.Absent))
	})

	It("is named where a right is missing", func(ctx SpecContext) {
		set := fake.NewClientset()
		set.PrependReactor("get", resource, func(clienttesting.Action) (bool, runtime.Object, error) {
			return true, nil, apierrors.NewForbidden(schema.GroupResource{Resource: resource}, name, nil)
		})
		_, err := start(set).Survey(ctx)
		Expect(apierrors.IsForbidden(err)).To(BeTrue(), "%v", err)
		Expect(err).To(MatchError(HavePrefix(`ValidatingWebhookConfiguration "eirini-x-validating-hook" (needs get on validatingwebhookconfigurations.admissionregistration.k8s.io in a ClusterRole): `)))
	})

	It("is asked for its own entries only", func(ctx SpecContext) {
		set := fake.NewClientset()
		Expect(start(set).survey(ctx)).To(And(HaveField("Missing", Equal([]string{"a", "b"})), HaveField("Bundles", BeEmpty())))
		another := webhooks[1]
		another.Name, another.ClientConfig.CABundle = webhookconf.WebhookName("x", "eirini-x"), []byte("another")
		set = fake.NewClientset(held([]admissionregistrationv1.ValidatingWebhook{webhooks[1], another}))
		s := start(set).survey(ctx)
		Expect(s.Missing).To(Equal([]string{"a"}))
		Expect(texts(s.Bundles)).To(Equal([]string{"bundle", "another"}))
	})
})
