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

// What the specs of Apply, Delete and Read say of the mutating kind holds for the validating one.
var _ = Describe("The validating kind", func() {
	const name, resource = "eirini-x-validating-hook", "validatingwebhookconfigurations"
	var webhooks, older []admissionregistrationv1.ValidatingWebhook

	group := func() []webhookconf.Entry {
		return webhookconf.Group([]webhookconf.Step{step("m", isolated), step("a", isolated, validating), step("b", isolated, validating)})
	}
	held := func(webhooks []admissionregistrationv1.ValidatingWebhook) *admissionregistrationv1.ValidatingWebhookConfiguration {
		return &admissionregistrationv1.ValidatingWebhookConfiguration{ObjectMeta: configuration(nil).ObjectMeta, Webhooks: webhooks}
	}
	stored := func(set *fake.Clientset) *admissionregistrationv1.ValidatingWebhookConfiguration {
		GinkgoHelper()
		found, err := set.Tracker().Get(admissionregistrationv1.SchemeGroupVersion.WithResource(resource), "", name)
		Expect(err).NotTo(HaveOccurred())
		return found.(*admissionregistrationv1.ValidatingWebhookConfiguration)
	}
	client := func(set *fake.Clientset) webhookconf.ClientOf[*admissionregistrationv1.ValidatingWebhookConfiguration] {
		return set.AdmissionregistrationV1().ValidatingWebhookConfigurations()
	}
	having := func(c *admissionregistrationv1.ValidatingWebhookConfiguration) *fake.Clientset {
		c.Name = name
		return fake.NewClientset(c)
	}
	verbs := func(set *fake.Clientset) (all []string) {
		for _, a := range set.Actions() {
			Expect(a.GetResource().Resource).To(Equal(resource))
			all = append(all, a.GetVerb())
		}
		return all
	}

	BeforeEach(func() {
		o := urlOptions()
		webhooks = o.Validating(group())
		o.CABundle = []byte("older bundle")
		older = o.Validating(group())
	})

	It("has names of its own", func() {
		Expect(webhookconf.Validating.ConfigurationName("x")).To(Equal("x-validating-hook"))
		Expect(webhookconf.Mutating.ConfigurationName("x")).To(Equal("x-mutating-hook"))
	})

	It("is created, marked as ours, and then left alone", func(ctx SpecContext) {
		set := fake.NewClientset()
		result, outcome, err := webhookconf.Validating.Apply(ctx, client(set), name, owner, webhooks)
		Expect(err).NotTo(HaveOccurred())
		Expect(outcome).To(Equal(webhookconf.Created))
		Expect(result.Webhooks).To(Equal(webhooks))
		Expect(stored(set).Webhooks).To(Equal(webhooks))
		Expect(stored(set).Annotations).To(HaveKeyWithValue(webhookconf.OwnerAnnotation, owner))
		Expect(stored(set).Labels).To(HaveKeyWithValue("app.kubernetes.io/managed-by", "eirinix"))

		_, outcome, err = webhookconf.Validating.Apply(ctx, client(set), name, owner, urlOptions().Validating(group()))
		Expect(err).NotTo(HaveOccurred())
		Expect(outcome).To(Equal(webhookconf.Unchanged))
		Expect(verbs(set)).To(Equal([]string{"get", "create", "get"}))
	})

	It("is updated in place, at the version that was compared, again after a conflict, and keeps what is not ours", func(ctx SpecContext) {
		set := having(held(older))
		before, conflicts := stored(set).DeepCopy(), 1
		set.PrependReactor("update", resource, func(clienttesting.Action) (bool, runtime.Object, error) {
			conflicts--
			return conflicts == 0, nil, conflict()
		})
		_, outcome, err := webhookconf.Validating.Apply(ctx, client(set), name, owner, webhooks)
		Expect(err).NotTo(HaveOccurred())
		Expect(outcome).To(Equal(webhookconf.Updated))
		Expect(verbs(set)).To(Equal([]string{"get", "update", "get", "update"}))
		update := set.Actions()[3].(clienttesting.UpdateAction).GetObject().(metav1.Object)
		Expect(update.GetResourceVersion()).To(Equal(before.ResourceVersion))
		after := stored(set)
		Expect(after.Webhooks).To(Equal(webhooks))
		before.Webhooks, before.ResourceVersion = after.Webhooks, after.ResourceVersion
		Expect(after).To(Equal(before))
	})

	It("is not touched when it belongs to another deployment", func(ctx SpecContext) {
		foreign := held(older)
		foreign.Annotations[webhookconf.OwnerAnnotation] = otherOwner
		set := having(foreign)
		_, _, err := webhookconf.Validating.Apply(ctx, client(set), name, owner, webhooks)
		owned, ok := errors.AsType[*webhookconf.OwnedElsewhereError](err)
		Expect(ok).To(BeTrue(), "%v", err)
		Expect(*owned).To(Equal(webhookconf.OwnedElsewhereError{Kind: "ValidatingWebhookConfiguration", Configuration: name, Owner: otherOwner, Us: owner}))
		_, err = webhookconf.Validating.Delete(ctx, client(set), name, owner)
		_, ok = errors.AsType[*webhookconf.OwnedElsewhereError](err)
		Expect(ok).To(BeTrue(), "%v", err)
		Expect(verbs(set)).To(Equal([]string{"get", "get"}))
	})

	It("is deleted as it was looked at", func(ctx SpecContext) {
		set := having(held(webhooks))
		seen := stored(set)
		Expect(webhookconf.Validating.Delete(ctx, client(set), name, owner)).To(Equal(webhookconf.Deleted))
		p := set.Actions()[1].(clienttesting.DeleteActionImpl).DeleteOptions.Preconditions
		Expect(p.UID).To(HaveValue(Equal(seen.UID)))
		Expect(p.ResourceVersion).To(HaveValue(Equal(seen.ResourceVersion)))
		Expect(webhookconf.Validating.Delete(ctx, client(set), name, owner)).To(Equal(webhookconf.Absent))
	})

	It("is named where a right is missing", func(ctx SpecContext) {
		set := fake.NewClientset()
		set.PrependReactor("get", resource, func(clienttesting.Action) (bool, runtime.Object, error) {
			return true, nil, apierrors.NewForbidden(schema.GroupResource{Resource: resource}, name, nil)
		})
		_, err := webhookconf.Validating.Read(ctx, client(set), name)
		Expect(apierrors.IsForbidden(err)).To(BeTrue(), "%v", err)
		Expect(err).To(MatchError(HavePrefix(`ValidatingWebhookConfiguration "eirini-x-validating-hook" (needs get on validatingwebhookconfigurations.admissionregistration.k8s.io in a ClusterRole): `)))
	})

	It("is read, also where there is none", func(ctx SpecContext) {
		set := having(held(webhooks))
		Expect(webhookconf.Validating.Read(ctx, client(set), name)).To(Equal(stored(set)))
		Expect(webhookconf.Validating.Read(ctx, client(fake.NewClientset()), name)).To(BeNil())
	})

	It("is asked for its own entries only", func() {
		c := held(webhooks[1:])
		Expect(webhookconf.Validating.Missing(c, "eirini-x", group())).To(Equal([]string{"a"}))
		Expect(webhookconf.Validating.Bundles(c, "eirini-x", group())).To(Equal([][]byte{[]byte("bundle")}))
		Expect(webhookconf.Validating.Missing(nil, "eirini-x", group())).To(Equal([]string{"a", "b"}))
		Expect(webhookconf.Validating.Bundles(nil, "eirini-x", group())).To(BeEmpty())
		Expect(webhookconf.Mutating.Missing(nil, "eirini-x", group())).To(Equal([]string{"m"}))
		c.Webhooks = append(c.Webhooks, c.Webhooks[0])
		c.Webhooks[1].Name, c.Webhooks[1].ClientConfig.CABundle = "a.eirini-x.eirinix.cloudfoundry.org", []byte("another")
		Expect(webhookconf.Validating.Bundles(c, "eirini-x", group())).To(Equal([][]byte{[]byte("another"), []byte("bundle")}))
	})
})

var _ = Describe("Apply without webhooks", func() {
	It("empties the configuration in one update, and then leaves it alone", func(ctx SpecContext) {
		c := newCluster(configuration(webhookconf.Mutating.Build(urlOptions(), webhookconf.Group([]webhookconf.Step{step("a")}))))
		before := c.stored()
		for _, expected := range []webhookconf.Outcome{webhookconf.Updated, webhookconf.Unchanged} {
			_, outcome, err := c.apply(ctx, nil)
			Expect(err).NotTo(HaveOccurred())
			Expect(outcome).To(Equal(expected))
		}
		Expect(c.writes()).To(Equal([]string{"update"}))
		Expect(c.stored().Webhooks).To(BeEmpty())
		Expect(c.stored().Labels).To(Equal(before.Labels))
		Expect(c.stored().UID).To(Equal(before.UID))
	})

	It("creates nothing", func(ctx SpecContext) {
		c := newCluster()
		result, outcome, err := c.apply(ctx, nil)
		Expect(err).NotTo(HaveOccurred())
		Expect(outcome).To(Equal(webhookconf.Absent))
		Expect(result).To(BeNil())
		Expect(c.writes()).To(BeEmpty())
	})

	It("is content when the configuration was deleted meanwhile", func(ctx SpecContext) {
		c := newCluster(configuration(webhookconf.Mutating.Build(urlOptions(), webhookconf.Group([]webhookconf.Step{step("a")}))))
		c.once("update", func() error {
			c.behindTheScenes(func(t clienttesting.ObjectTracker) error {
				return t.Delete(admissionregistrationv1.SchemeGroupVersion.WithResource(resourceName), "", configurationName)
			})
			return apierrors.NewNotFound(groupResource, configurationName)
		})
		_, outcome, err := c.apply(ctx, nil)
		Expect(err).NotTo(HaveOccurred())
		Expect(outcome).To(Equal(webhookconf.Absent))
	})

	It("does not empty the configuration of another deployment", func(ctx SpecContext) {
		foreign := configuration(webhookconf.Mutating.Build(urlOptions(), webhookconf.Group([]webhookconf.Step{step("a")})))
		foreign.Annotations[webhookconf.OwnerAnnotation] = otherOwner
		c := newCluster(foreign)
		_, _, err := c.apply(ctx, nil)
		_, ok := errors.AsType[*webhookconf.OwnedElsewhereError](err)
		Expect(ok).To(BeTrue(), "%v", err)
		Expect(c.writes()).To(BeEmpty())
	})
})
