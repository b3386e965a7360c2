package webhookconf_test

// What an API server makes of our configurations: it agrees with Check, it stores them unchanged, and it lets a cluster
// live with a webhook that is down.

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
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
		config := plane.Config()
		config.QPS = -1
		clients, client = Must(kubernetes.NewForConfig(config)), Must(dynamic.NewForConfig(config))
	})
	BeforeEach(func() {
		o = serviceOptions()
		o.Fingerprint = fmt.Sprint("spec-", time.Now().UnixNano())
	})

	// configurations returns both, which go away after the spec.
	configurations := func() []webhookconf.Configuration {
		mutating, validating := both(client, o)
		for _, c := range []webhookconf.Configuration{mutating, validating} {
			DeferCleanup(func(ctx SpecContext) (webhookconf.Outcome, error) { return c.Delete(ctx, nil) })
		}
		return []webhookconf.Configuration{mutating, validating}
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

	It("stores a configuration exactly as we have built it, whatever the settings are, and is sent nothing for a state that it has already", func(ctx SpecContext) {
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
			Expect(outcome).To(Equal(webhookconf.Unchanged), "nothing was left to be defaulted")
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

			without := desired(o)
			Expect(registers(ctx, c, without, pem(0))).To(Equal(webhookconf.Updated), "an empty list in one update")
			Expect(registers(ctx, c, without, pem(0))).To(Equal(webhookconf.Unchanged))
			Expect(c.Delete(ctx, nil)).To(Equal(webhookconf.Deleted))
			Expect(registers(ctx, c, without, pem(0))).To(Equal(webhookconf.Absent), "never created to be empty")
		}
	})

	It("records the last writer of a configuration", func(ctx SpecContext) {
		m := configurations()[0]
		registers(ctx, m, desired(o, step("a")), pem(0))
		Expect(get(ctx, m).LastManager()).To(BeEmpty())
		mutating := clients.AdmissionregistrationV1().MutatingWebhookConfigurations()
		Must(mutating.Patch(ctx, m.Name(), types.JSONPatchType, []byte(`[{"op":"replace","path":"/webhooks/0/failurePolicy","value":"Ignore"}]`), metav1.PatchOptions{FieldManager: "argocd-controller"}))
		Expect(get(ctx, m).LastManager()).To(Equal("argocd-controller"))
		Expect(registers(ctx, m, desired(o, step("a")), pem(0))).To(Equal(webhookconf.Updated))
		Expect(Must(mutating.Get(ctx, m.Name(), metav1.GetOptions{})).ManagedFields).To(HaveEach(HaveField("Manager", BeElementOf("eirinix", "argocd-controller"))), "whatever this program is called")
	})
})

// This webhook has no server, and is called for every object in the cluster. Check would refuse it.
var _ = Describe("A cluster with a broken webhook for everything", Label("api-server", "S27"), Ordered, func() {
	var clients kubernetes.Interface
	dry := metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}}
	isRefused := MatchError(ContainSubstring("failed calling webhook"))

	// register puts the steps in the place of others and waits until they are in force.
	register := func(ctx context.Context, all ...admissionregistrationv1.RuleWithOperations) {
		GinkgoHelper()
		o := webhookconf.Options{Fingerprint: "broken", Target: webhookconf.Target{Host: "127.0.0.1", Port: 1}}
		_, c := both(Must(dynamic.NewForConfig(plane.Config())), o)
		// The caBundle is empty: the port is closed anyway.
		Expect(registers(ctx, c, desired(o, step("broken", validating, rules(all...))), "")).To(BeElementOf(webhookconf.Created, webhookconf.Updated, webhookconf.Unchanged))
		Eventually(func() error {
			_, err := clients.CoreV1().ConfigMaps("default").Create(ctx, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "any"}}, dry)
			return err
		}).WithContext(ctx).Should(isRefused)
	}

	meta := metav1.ObjectMeta{Name: "spec"}

	BeforeAll(func(ctx SpecContext) {
		clients = Must(kubernetes.NewForConfig(plane.Config()))
		Must(clients.CoreV1().ServiceAccounts("default").Create(ctx, &corev1.ServiceAccount{ObjectMeta: meta}, metav1.CreateOptions{}))
		Eventually(func() error { // the API server creates its own Service after it is ready
			_, err := clients.CoreV1().Services("default").Get(ctx, "kubernetes", metav1.GetOptions{})
			return err
		}).WithContext(ctx).Should(Succeed())
	})
	BeforeEach(func(ctx SpecContext) { register(ctx, rule("*", "*", "*/*", "*")) })

	allowed := &authorizationv1.ResourceAttributes{Verb: "get", Resource: "pods", Namespace: "default"}
	lease := func(ctx context.Context) error {
		_, err := clients.CoordinationV1().Leases("default").Create(ctx, &coordinationv1.Lease{ObjectMeta: meta}, dry)
		return err
	}
	node := func(ctx context.Context) error {
		_, err := clients.CoreV1().Nodes().Create(ctx, &corev1.Node{ObjectMeta: meta}, dry)
		return err
	}
	token := func(ctx context.Context) error {
		_, err := clients.CoreV1().ServiceAccounts("default").CreateToken(ctx, "spec", &authenticationv1.TokenRequest{}, dry)
		return err
	}
	service := func(ctx context.Context, name string) error {
		_, err := clients.CoreV1().Services("default").Patch(ctx, name, "application/merge-patch+json", []byte(`{"metadata":{"labels":{"a":"b"}}}`), metav1.PatchOptions{DryRun: []string{metav1.DryRunAll}})
		return err
	}
	review := func(ctx context.Context) error {
		_, err := clients.AuthorizationV1().LocalSubjectAccessReviews("default").Create(ctx, &authorizationv1.LocalSubjectAccessReview{
			ObjectMeta: metav1.ObjectMeta{Namespace: "default"}, Spec: authorizationv1.SubjectAccessReviewSpec{User: "x", ResourceAttributes: allowed},
		}, metav1.CreateOptions{})
		return err
	}
	DescribeTable("still admits",
		func(ctx SpecContext, request func(context.Context) error) {
			Expect(request(ctx)).To(Succeed())
		},
		Entry("Leases, by which controllers elect who works", lease),
		Entry("Nodes", node),
		Entry("access reviews in a namespace", review),
		Entry("tokens of ServiceAccounts", token),
		Entry("changes of its API servers' Service", func(ctx context.Context) error { return service(ctx, "kubernetes") }),
		Entry("the objects of kube-system", func(ctx context.Context) error {
			_, err := clients.CoreV1().ConfigMaps("kube-system").Create(ctx, &corev1.ConfigMap{ObjectMeta: meta}, dry)
			return err
		}),
	)

	It("calls the webhook for named resources", func(ctx SpecContext) {
		register(ctx, rule("*", "*", "*/*", "*"), rule("coordination.k8s.io", "v1", "leases", "*"), rule("", "v1", "nodes,serviceaccounts/token,services", "*"))
		for _, request := range []func(context.Context) error{lease, node, token, func(ctx context.Context) error { return service(ctx, "kubernetes") }} {
			Eventually(request).WithContext(ctx).Should(isRefused)
		}
		Expect(review(ctx)).To(Succeed(), "and nothing else")
	})
})
