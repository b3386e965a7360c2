package webhookconf_test

import (
	"errors"
	"fmt"
	"strings"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes"

	"code.cloudfoundry.org/eirinix/internal/webhookconf"
	eirinixtest "code.cloudfoundry.org/eirinix/testing"
)

var _ = Describe("The API server", Label("api-server"), Ordered, func() {
	var clients kubernetes.Interface

	BeforeAll(func() {
		var err error
		clients, err = kubernetes.NewForConfig(eirinixtest.StartControlPlane(GinkgoT()).Config())
		Expect(err).NotTo(HaveOccurred())
	})

	// start gives the processes that start now and register both kinds.
	start := func(o webhookconf.Options, steps ...webhookconf.Step) []*process {
		mutating, validating := processes((&clock{now: time.Now()}).writer(o, steps...), clients)
		DeferCleanup(mutating.Delete)
		DeferCleanup(validating.Delete)
		return []*process{mutating, validating}
	}

	Describe("is of Check's opinion", Label("S18", "S20", "S26"), func() {
		for _, f := range faults {
			It("because of "+f.because, func(ctx SpecContext) {
				o := serviceOptions()
				o.Fingerprint = fmt.Sprint("spec-", time.Now().UnixNano())
				var err error
				for _, p := range start(o, step("volumes", f.change)) {
					err = errors.Join(err, register(ctx, p))
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

	It("has what we have built as we have built it", func(ctx SpecContext) {
		steps := []webhookconf.Step{
			step("a"), step("b", updates, ifNeeded), step("c", validating, conditions(condition("yes", "true"))),
			step("d", isolated, critical, rules(rule("*", "*", "*/*", "*"))), step("e", validating, namespaces(labels1("a", "1")), objects(labels1("b", "2"))),
		}
		o := serviceOptions()
		both := start(o, steps...)
		for i, p := range both {
			Expect(p.register(ctx).Outcome).To(Equal(webhookconf.Created))
			Expect(start(o, steps...)[i].register(ctx).Outcome).To(Equal(webhookconf.Unchanged), "nothing was left to be defaulted")
			Expect(p.survey(ctx)).To(And(HaveField("Exists", true), HaveField("Missing", BeEmpty()), HaveField("Bundles", Equal([][]byte{[]byte("bundle")}))))
		}
		m, err := clients.AdmissionregistrationV1().MutatingWebhookConfigurations().Get(ctx, "eirini-x-mutating-hook", metav1.GetOptions{})
		Expect(err).NotTo(HaveOccurred())
		Expect(m.Webhooks).To(HaveLen(3))

		for i, without := range start(o) {
			Expect(without.register(ctx).Outcome).To(Equal(webhookconf.Updated), "an empty list in one update")
			Expect(without.register(ctx).Outcome).To(Equal(webhookconf.Unchanged))
			Expect(without.Delete(ctx)).To(Equal(webhookconf.Deleted))
			Expect(without.register(ctx).Outcome).To(Equal(webhookconf.Absent), "never created to be empty")
			Expect(both[i].survey(ctx)).To(And(HaveField("Exists", false), HaveField("Missing", Not(BeEmpty())), HaveField("Bundles", BeEmpty())))
		}
	})

	It("hears of the Namespace that owns a configuration, once, beside other owners", func(ctx SpecContext) {
		o := serviceOptions()
		o.Fingerprint = fmt.Sprint("owned-", time.Now().UnixNano())
		ns, err := clients.CoreV1().Namespaces().Get(ctx, "default", metav1.GetOptions{})
		Expect(err).NotTo(HaveOccurred())
		o.OwnedBy = webhookconf.OwnedByNamespace(ns)
		p := start(o, step("a"))[0]
		Expect(p.register(ctx).Outcome).To(Equal(webhookconf.Created))
		Expect(p.register(ctx).Outcome).To(Equal(webhookconf.Unchanged))

		name := webhookconf.Mutating.ConfigurationName(o.Fingerprint)
		hooks := clients.AdmissionregistrationV1().MutatingWebhookConfigurations()
		live, err := hooks.Get(ctx, name, metav1.GetOptions{})
		Expect(err).NotTo(HaveOccurred())
		Expect(live.OwnerReferences).To(ConsistOf(*webhookconf.OwnedByNamespace(ns)))
		live.OwnerReferences = []metav1.OwnerReference{
			{APIVersion: "v1", Kind: "Namespace", Name: "default", UID: "of-one-that-is-gone"},
			{APIVersion: "apps/v1", Kind: "Deployment", Name: "somebody", UID: "else"},
		}
		_, err = hooks.Update(ctx, live, metav1.UpdateOptions{})
		Expect(err).NotTo(HaveOccurred())
		Expect(p.register(ctx).Outcome).To(Equal(webhookconf.Updated))
		live, err = hooks.Get(ctx, name, metav1.GetOptions{})
		Expect(err).NotTo(HaveOccurred())
		Expect(live.OwnerReferences).To(ConsistOf(HaveField("Kind", "Deployment"), Equal(*webhookconf.OwnedByNamespace(ns))))
	})

	It("tells who watches a configuration of its changes, and of no other's", func(ctx SpecContext) {
		o, other := serviceOptions(), serviceOptions()
		o.Fingerprint, other.Fingerprint = fmt.Sprint("watched-", time.Now().UnixNano()), fmt.Sprint("other-", time.Now().UnixNano())
		p := start(o, step("a"))[0]
		w, err := p.Watch(ctx)
		Expect(err).NotTo(HaveOccurred())
		defer w.Stop()
		start(other, step("a"))[0].register(ctx)
		p.register(ctx)
		var event watch.Event
		Eventually(w.ResultChan()).WithContext(ctx).WithTimeout(10 * time.Second).Should(Receive(&event))
		Expect(event).To(And(HaveField("Type", watch.Added), HaveField("Object.Name", webhookconf.Mutating.ConfigurationName(o.Fingerprint))))
	})
})
