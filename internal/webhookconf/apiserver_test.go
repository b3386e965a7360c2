package webhookconf_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"code.cloudfoundry.org/eirinix/internal/webhookconf"
	eirinixtest "code.cloudfoundry.org/eirinix/testing"
)

var _ = Describe("The API server", Ordered, func() {
	var clients kubernetes.Interface

	BeforeAll(func() {
		var err error
		clients, err = kubernetes.NewForConfig(eirinixtest.StartControlPlane(GinkgoT()).Config())
		Expect(err).NotTo(HaveOccurred())
	})

	apply := func(ctx context.Context, steps ...webhookconf.Step) error {
		o, entries := serviceOptions(), webhookconf.Group(steps)
		o.Fingerprint = fmt.Sprint("spec-", time.Now().UnixNano())
		for _, c := range webhookconf.Configurations(clients.AdmissionregistrationV1(), o.Fingerprint, owner) {
			if _, err := c.Apply(ctx, o, entries, always(o.CABundle)); err != nil {
				return err
			}
			DeferCleanup(c.Delete)
		}
		return nil
	}

	Describe("is of Check's opinion", Label("S18", "S20", "S26"), func() {
		for _, f := range faults {
			It("because of "+f.because, func(ctx SpecContext) {
				err := apply(ctx, step("volumes", f.change))
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

	It("has what we have built as we have built it", func(ctx SpecContext) {
		steps := []webhookconf.Step{
			step("a"), step("b", updates, ifNeeded), step("c", validating, conditions(condition("yes", "true"))),
			step("d", isolated, critical, rules(rule("*", "*", "*/*", "*"))), step("e", validating, namespaces(labels1("a", "1")), objects(labels1("b", "2"))),
		}
		o, entries := serviceOptions(), webhookconf.Group(steps)
		for _, c := range webhookconf.Configurations(clients.AdmissionregistrationV1(), o.Fingerprint, owner) {
			Expect(c.Apply(ctx, o, entries, always(o.CABundle))).To(Equal(webhookconf.Created))
			Expect(c.Apply(ctx, o, webhookconf.Group(steps), always(o.CABundle))).To(Equal(webhookconf.Unchanged), "nothing was left to be defaulted")
			Expect(c.Look(ctx, o.Fingerprint, entries)).To(Equal(webhookconf.Live{Exists: true, Bundles: [][]byte{[]byte("bundle")}}))
		}
		m, err := clients.AdmissionregistrationV1().MutatingWebhookConfigurations().Get(ctx, "eirini-x-mutating-hook", metav1.GetOptions{})
		Expect(err).NotTo(HaveOccurred())
		Expect(m.Webhooks).To(HaveLen(3))

		for _, c := range webhookconf.Configurations(clients.AdmissionregistrationV1(), o.Fingerprint, owner) {
			Expect(c.Apply(ctx, o, nil, always(o.CABundle))).To(Equal(webhookconf.Updated), "an empty list in one update")
			Expect(c.Apply(ctx, o, nil, always(o.CABundle))).To(Equal(webhookconf.Unchanged))
			Expect(c.Delete(ctx)).To(Equal(webhookconf.Deleted))
			Expect(c.Apply(ctx, o, nil, always(o.CABundle))).To(Equal(webhookconf.Absent), "never created to be empty")
			Expect(c.Look(ctx, o.Fingerprint, entries)).To(And(HaveField("Exists", false), HaveField("Missing", Not(BeEmpty())), HaveField("Bundles", BeEmpty())))
		}
	})

	It("hears of the Namespace that owns a configuration, once, beside other owners", func(ctx SpecContext) {
		o, entries := serviceOptions(), webhookconf.Group([]webhookconf.Step{step("a")})
		o.Fingerprint = fmt.Sprint("owned-", time.Now().UnixNano())
		ns, err := clients.CoreV1().Namespaces().Get(ctx, "default", metav1.GetOptions{})
		Expect(err).NotTo(HaveOccurred())
		o.OwnedBy = webhookconf.OwnedByNamespace(ns)
		c := webhookconf.Configurations(clients.AdmissionregistrationV1(), o.Fingerprint, owner)[0]
		DeferCleanup(c.Delete)
		Expect(c.Apply(ctx, o, entries, always(o.CABundle))).To(Equal(webhookconf.Created))
		Expect(c.Apply(ctx, o, entries, always(o.CABundle))).To(Equal(webhookconf.Unchanged))

		hooks := clients.AdmissionregistrationV1().MutatingWebhookConfigurations()
		live, err := hooks.Get(ctx, c.Name(), metav1.GetOptions{})
		Expect(err).NotTo(HaveOccurred())
		Expect(live.OwnerReferences).To(ConsistOf(*webhookconf.OwnedByNamespace(ns)))
		live.OwnerReferences = []metav1.OwnerReference{
			{APIVersion: "v1", Kind: "Namespace", Name: "default", UID: "of-one-that-is-gone"},
			{APIVersion: "apps/v1", Kind: "Deployment", Name: "somebody", UID: "else"},
		}
		_, err = hooks.Update(ctx, live, metav1.UpdateOptions{})
		Expect(err).NotTo(HaveOccurred())
		Expect(c.Apply(ctx, o, entries, always(o.CABundle))).To(Equal(webhookconf.Updated))
		live, err = hooks.Get(ctx, c.Name(), metav1.GetOptions{})
		Expect(err).NotTo(HaveOccurred())
		Expect(live.OwnerReferences).To(ConsistOf(HaveField("Kind", "Deployment"), Equal(*webhookconf.OwnedByNamespace(ns))))
	})
})

func always(bundle []byte) func([][]byte) ([]byte, error) {
	return func([][]byte) ([]byte, error) { return bundle, nil }
}
