package webhookconf_test

import (
	"context"
	"errors"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	clienttesting "k8s.io/client-go/testing"

	"code.cloudfoundry.org/eirinix/internal/webhookconf"
)

// The other specs of the mutating kind hold for the validating one, too.
var _ = Describe("The validating kind", func() {
	const name, resource = "eirini-x-validating-hook", "validatingwebhookconfigurations"
	steps := []webhookconf.Step{step("m", isolated), step("a", isolated, validating), step("b", isolated, validating)}
	webhooks := validatingOf(urlOptions(), webhookconf.Group(steps))

	validatingIn := func(c *cluster) webhookconf.Configuration {
		_, v := both(c, urlOptions())
		return v
	}
	held := func(webhooks []admissionregistrationv1.ValidatingWebhook) *admissionregistrationv1.ValidatingWebhookConfiguration {
		c := &admissionregistrationv1.ValidatingWebhookConfiguration{ObjectMeta: configuration(nil).ObjectMeta, Webhooks: webhooks}
		c.Name = name
		return c
	}
	stored := func(c *cluster) *admissionregistrationv1.ValidatingWebhookConfiguration {
		GinkgoHelper()
		found, err := c.Tracker().Get(admissionregistrationv1.SchemeGroupVersion.WithResource(resource), "", name)
		Expect(err).NotTo(HaveOccurred())
		var typed admissionregistrationv1.ValidatingWebhookConfiguration
		Expect(runtime.DefaultUnstructuredConverter.FromUnstructured(found.(*unstructured.Unstructured).Object, &typed)).To(Succeed())
		typed.TypeMeta = metav1.TypeMeta{}
		for _, a := range c.Actions() {
			Expect(a.GetResource().Resource).To(Equal(resource))
		}
		return &typed
	}

	It("has names of its own", func() {
		Expect(webhookconf.Validating.ConfigurationName("x")).To(Equal("x-validating-hook"))
		Expect(webhookconf.Mutating.ConfigurationName("x")).To(Equal("x-mutating-hook"))
		m, v := both(newCluster(), urlOptions())
		Expect(m.String()).To(Equal("MutatingWebhookConfiguration eirini-x-mutating-hook"))
		Expect(v.String()).To(Equal("ValidatingWebhookConfiguration eirini-x-validating-hook"))
		Expect([]string{m.Name(), v.Name()}).To(Equal([]string{configurationName, name}))
		Expect([]string{webhookconf.Mutating.Resource, webhookconf.Validating.Resource}).To(Equal([]string{resourceName, resource}))
		Expect(m.Object()).To(Equal(untyped(&admissionregistrationv1.MutatingWebhookConfiguration{ObjectMeta: metav1.ObjectMeta{Name: configurationName}})))
		Expect(v.Object()).To(Equal(untyped(&admissionregistrationv1.ValidatingWebhookConfiguration{ObjectMeta: metav1.ObjectMeta{Name: name}})))
		Expect(v.Object()).NotTo(BeIdenticalTo(v.Object()))
	})

	It("holds entries of its own", func() {
		m, v := both(newCluster(), urlOptions())
		Expect(v.Holds(webhookconf.Group(steps))).To(BeTrue())
		Expect(v.Holds(webhookconf.Group(steps[:1]))).To(BeFalse())
		Expect(m.Holds(webhookconf.Group(steps[:1]))).To(BeTrue())
		Expect(m.Holds(webhookconf.Group(steps[1:]))).To(BeFalse())
	})

	It("is created, marked as ours, and then left alone", func(ctx SpecContext) {
		c, d := newCluster(), desired(urlOptions(), steps...)
		Expect(registers(ctx, validatingIn(c), d, "bundle")).To(Equal(webhookconf.Created))
		Expect(stored(c).Webhooks).To(Equal(webhooks))
		Expect(stored(c).Annotations).To(Equal(map[string]string{
			webhookconf.OwnerAnnotation: owner, webhookconf.VersionAnnotation: d.Version,
			webhookconf.StepsAnnotation: `{"version":"` + d.Version + `","steps":{"/validate/a":["a@v1/Pod"],"/validate/b":["b@v1/Pod"]}}`,
		}))
		Expect(stored(c).Labels).To(HaveKeyWithValue("app.kubernetes.io/managed-by", "eirinix"))
		Expect(registers(ctx, validatingIn(c), d, "bundle")).To(Equal(webhookconf.Unchanged))
		Expect(get(ctx, validatingIn(c)).Intact(*d)).To(BeTrue())
		Expect(c.verbs()).To(Equal([]string{"get", "create", "get", "get"}))
	})

	It("is updated in place, in the version that was found, and keeps the fields of others", func(ctx SpecContext) {
		c := newCluster(held(nil))
		registers(ctx, validatingIn(c), desired(urlOptions(), step("older", validating)), pem(0))
		before := stored(c)
		c.ClearActions()
		found := get(ctx, validatingIn(c))
		after, outcome, err := validatingIn(c).Put(ctx, found, trusting(desired(urlOptions(), steps...), "bundle"))
		Expect(err).NotTo(HaveOccurred())
		Expect(outcome).To(Equal(webhookconf.Updated))
		_, _, err = validatingIn(c).Put(ctx, found, webhookconf.Change{Bundle: []byte("late")})
		Expect(apierrors.IsConflict(err)).To(BeTrue(), "%v", err)
		Expect(c.verbs()).To(Equal([]string{"get", "update", "update"}))
		Expect(stored(c).Webhooks).To(Equal(webhooks))
		Expect(after.ResourceVersion).To(Equal(stored(c).ResourceVersion))
		before.Webhooks, before.ResourceVersion, before.ManagedFields = stored(c).Webhooks, stored(c).ResourceVersion, stored(c).ManagedFields
		before.Annotations[webhookconf.VersionAnnotation] = after.Version
		before.Annotations[webhookconf.StepsAnnotation] = stored(c).Annotations[webhookconf.StepsAnnotation]
		delete(before.Annotations, webhookconf.PinsAnnotation)
		Expect(stored(c)).To(Equal(before))
	})

	It("is trusted by itself", func(ctx SpecContext) {
		c := newCluster()
		registers(ctx, validatingIn(c), desired(urlOptions(), steps...), pem(0))
		before := stored(c)
		found, outcome := put(ctx, validatingIn(c), webhookconf.Change{Bundle: []byte(pem(1))})
		Expect(outcome).To(Equal(webhookconf.Updated))
		Expect(texts(found.Bundles)).To(Equal([]string{pem(1)}))
		Expect(found.Pins).To(Equal([]string{hash(1)}))
		for i := range before.Webhooks {
			before.Webhooks[i].ClientConfig.CABundle = []byte(pem(1))
		}
		Expect(stored(c).Webhooks).To(Equal(before.Webhooks))
	})

	It("is not touched when it belongs to another deployment", func(ctx SpecContext) {
		foreign := held(nil)
		foreign.Annotations[webhookconf.OwnerAnnotation] = otherOwner
		c := newCluster(foreign)
		_, got := validatingIn(c).Get(ctx)
		_, read := validatingIn(c).Read(ctx, holding(untyped(foreign)))
		_, deleted := validatingIn(c).Delete(ctx)
		for _, err := range []error{got, read, deleted} {
			owned, ok := errors.AsType[*webhookconf.OwnedElsewhereError](err)
			Expect(ok).To(BeTrue(), "%v", err)
			Expect(*owned).To(Equal(webhookconf.OwnedElsewhereError{Kind: "ValidatingWebhookConfiguration", Configuration: name, Owner: otherOwner, Us: owner}))
		}
		Expect(c.verbs()).To(Equal([]string{"get", "get"}))
	})

	It("is deleted as it was looked at", func(ctx SpecContext) {
		c := newCluster(held(webhooks))
		seen := stored(c)
		Expect(validatingIn(c).Delete(ctx)).To(Equal(webhookconf.Deleted))
		p := c.Actions()[1].(clienttesting.DeleteActionImpl).DeleteOptions.Preconditions
		Expect(p.UID).To(HaveValue(Equal(seen.UID)))
		Expect(p.ResourceVersion).To(HaveValue(Equal(seen.ResourceVersion)))
		Expect(validatingIn(c).Delete(ctx)).To(Equal(webhookconf.Absent))
	})

	DescribeTable("is named where a right is missing",
		func(ctx SpecContext, verb, rights string, do func(context.Context, webhookconf.Configuration) error) {
			c := newCluster()
			c.PrependReactor(verb, resource, func(clienttesting.Action) (bool, runtime.Object, error) {
				return true, nil, apierrors.NewForbidden(schema.GroupResource{Resource: resource}, name, nil)
			})
			err := do(ctx, validatingIn(c))
			Expect(apierrors.IsForbidden(err)).To(BeTrue(), "%v", err)
			Expect(err).To(MatchError(HavePrefix(`ValidatingWebhookConfiguration "eirini-x-validating-hook" (needs ` + rights + ` on validatingwebhookconfigurations.admissionregistration.k8s.io in a ClusterRole): `)))
		},
		Entry("to get", "get", "get", func(ctx context.Context, c webhookconf.Configuration) error {
			_, err := c.Get(ctx)
			return err
		}),
		Entry("to create", "create", "get, create and update", func(ctx context.Context, c webhookconf.Configuration) error {
			_, _, err := c.Put(ctx, webhookconf.Found{}, trusting(volumes(validating), "bundle"))
			return err
		}),
		Entry("to delete", "get", "get and delete", func(ctx context.Context, c webhookconf.Configuration) error {
			_, err := c.Delete(ctx)
			return err
		}),
	)

	It("is asked for its own entries only", func(ctx SpecContext) {
		d := *desired(urlOptions(), steps...)
		found := get(ctx, validatingIn(newCluster()))
		Expect(found.Missing(d)).To(Equal([]string{"a", "b"}))
		Expect(found.Bundles).To(BeEmpty())
		another := webhooks[1]
		another.Name, another.ClientConfig.CABundle = webhookconf.Options{Fingerprint: "eirini-x"}.WebhookName("x"), []byte("another")
		found = get(ctx, validatingIn(newCluster(held([]admissionregistrationv1.ValidatingWebhook{webhooks[1], another}))))
		Expect(found.Missing(d)).To(Equal([]string{"a"}))
		Expect(texts(found.Bundles)).To(Equal([]string{"bundle", "another"}))
	})
})
