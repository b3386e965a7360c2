package eirinix_test

// This file specifies the modes of steps as a user of the API server sees them, and how a ConfigMap changes them.

import (
	"context"
	"fmt"
	"sync"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"code.cloudfoundry.org/eirinix"
	"code.cloudfoundry.org/eirinix/diagnosis"
	. "code.cloudfoundry.org/eirinix/internal/spectest"
)

// heard are the warnings that a client has received.
type heard struct {
	mu  sync.Mutex
	all []string
}

func (h *heard) HandleWarningHeader(_ int, _, text string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.all = append(h.all, text)
}

// take returns the warnings since it was called last.
func (h *heard) take() (all []string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	all, h.all = h.all, nil
	return all
}

// hearing returns clients, and the warnings that they receive.
func hearing() (kubernetes.Interface, *heard) {
	warnings, config := &heard{}, rest.CopyConfig(controlPlane().Config())
	config.WarningHandler = warnings
	return Clients(config), warnings
}

var _ = Describe("The modes in a ConfigMap", Label("api-server"), func() {
	const name = "modes"
	var namespace string
	BeforeEach(func(ctx SpecContext) { namespace = newNamespace(ctx) })

	// rule refuses ConfigMaps without an owner, and labels all of them, except the one with the modes.
	rule := func(o eirinix.ManagerOptions) *eirinix.ExtensionManager {
		GinkgoHelper()
		o.ModesConfigMap = name
		other := eirinix.Settings{Conditions: []admissionregistrationv1.MatchCondition{{Name: "other", Expression: fmt.Sprintf("object.metadata.name != %q", name)}}}
		return managerWith(o, stages(other), checks("owner", other, func(_ *eirinix.Call, cm *corev1.ConfigMap) error {
			if cm.Labels["owner"] == "" {
				return eirinix.Deny("set the label owner")
			}
			return nil
		}))
	}
	set := func(ctx context.Context, entry string) {
		GinkgoHelper()
		maps, desired := clients().CoreV1().ConfigMaps(namespace), newConfigMap(name, map[string]string{"owner": entry, "stage": entry})
		_, err := maps.Update(ctx, desired, metav1.UpdateOptions{})
		if apierrors.IsNotFound(err) {
			_, err = maps.Create(ctx, desired, metav1.CreateOptions{})
		}
		Expect(err).NotTo(HaveOccurred())
	}
	// policies returns the failurePolicies of both steps, and the versions of their configurations.
	policies := func(ctx context.Context) (all []admissionregistrationv1.FailurePolicyType, versions string) {
		GinkgoHelper()
		hooks := clients().AdmissionregistrationV1()
		v := Must(hooks.ValidatingWebhookConfigurations().Get(ctx, namespace+"-validating-hook", metav1.GetOptions{}))
		m := Must(hooks.MutatingWebhookConfigurations().Get(ctx, namespace+"-mutating-hook", metav1.GetOptions{}))
		return append(all, *v.Webhooks[0].FailurePolicy, *m.Webhooks[0].FailurePolicy), v.ResourceVersion + " " + m.ResourceVersion
	}
	fails := func(ctx context.Context) []admissionregistrationv1.FailurePolicyType {
		all, _ := policies(ctx)
		return all
	}
	open, closed := HaveEach(admissionregistrationv1.Ignore), HaveEach(admissionregistrationv1.Fail)
	// said creates a ConfigMap without an owner in a dry run, and returns how the user learns of the steps.
	said := func(ctx context.Context, object string) string {
		api, warnings := hearing()
		cm, err := api.CoreV1().ConfigMaps(namespace).Create(ctx, newConfigMap(object, nil), metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
		switch all := warnings.take(); {
		case apierrors.IsForbidden(err):
			return "refused"
		case err != nil:
			return err.Error()
		case len(all) > 0:
			return fmt.Sprint("warned ", all)
		case len(cm.Labels) > 0:
			return "changed"
		}
		return ""
	}
	warned := HavePrefix("warned ")

	It("change the mode without a rollout and without a write, but for Shadow", func(ctx SpecContext) {
		logger, logs := Observed()
		o := urlOptions(namespace)
		o.Logger = logger
		m := rule(o)
		runManager(ctx, m)
		Eventually(said).WithArguments(ctx, "x").Should(Equal("refused"), "its own mode is Deny")
		owned := newConfigMap("owned", nil)
		owned.Labels = map[string]string{"owner": "me"}
		Expect(clients().CoreV1().ConfigMaps(namespace).Create(ctx, owned, metav1.CreateOptions{})).To(HaveField("Labels", HaveKeyWithValue("stage", "test")))
		_, registered := policies(ctx)

		set(ctx, "Warn")
		Eventually(said).WithArguments(ctx, "x").Should(Equal(
			`warned [step "stage" would change this: /metadata/labels step "owner" would deny this: set the label owner]`))
		set(ctx, "Audit")
		Eventually(said).WithArguments(ctx, "x").Should(BeEmpty())
		_, now := policies(ctx)
		Expect(now).To(Equal(registered))

		By("keeping the last good entry")
		set(ctx, "Audit\nWarn")
		Eventually(logs.FilterMessage).WithArguments("a mode cannot be used").Should(HaveField("Len()", 2), "one of each step")
		Expect(said(ctx, "x")).To(BeEmpty())
		refused, ok := m.Diagnose(ctx).Find(diagnosis.ModeRefused)
		Expect(ok).To(BeTrue())
		Expect(refused.Object).To(Equal("ConfigMap " + namespace + "/" + name))
		Expect(refused.Evidence).To(ContainSubstring("owner: line 2: "))
		inForce, ok := m.Diagnose(ctx).Find(diagnosis.ModeSet)
		Expect(ok).To(BeTrue())
		Expect(inForce.Message).To(ContainSubstring("owner: Audit"))

		By("choosing by the labels of the namespace")
		set(ctx, "Warn where stage=test\nAudit")
		label := func(value string) {
			GinkgoHelper()
			Must(clients().CoreV1().Namespaces().Patch(ctx, namespace, types.MergePatchType, fmt.Appendf(nil, `{"metadata":{"labels":{"stage":%q}}}`, value), metav1.PatchOptions{}))
		}
		label("test")
		Eventually(said).WithArguments(ctx, "x").Should(warned)
		label("prod")
		Eventually(said).WithArguments(ctx, "x").Should(BeEmpty())

		By("choosing by a percentage of objects")
		set(ctx, "Deny 50%\nWarn")
		Eventually(said).WithArguments(ctx, "x").ShouldNot(BeEmpty())
		outcomes := map[bool]int{}
		for i := range 20 {
			outcomes[said(ctx, fmt.Sprintf("object-%d", i)) == "refused"]++
		}
		Expect(outcomes).To(HaveLen(2))
		_, now = policies(ctx)
		Expect(now).To(Equal(registered))

		By("failing open in Shadow, and closed before Deny is in force")
		set(ctx, "Shadow")
		Eventually(said).WithArguments(ctx, "x").Should(BeEmpty())
		Eventually(fails).WithArguments(ctx).WithTimeout(patience).Should(open)
		for message, reason := range map[string]string{"would deny": "set the label owner", "would change": "/metadata/labels"} {
			Eventually(logs.FilterMessage).WithArguments(message).Should(HaveField("All()", ContainElement(
				HaveField("ContextMap()", And(HaveKeyWithValue("mode", "Shadow"), HaveKeyWithValue("reason", reason))))))
		}
		set(ctx, "Deny")
		Eventually(func(g Gomega) {
			g.Expect(said(ctx, "x")).To(Equal("refused"))
			Expect(fails(ctx)).To(closed, "Deny was in force before the failurePolicy") // read after the refusal, so a policy that is late would be seen
		}).WithTimeout(patience).Should(Succeed())
		Expect(logs.FilterMessage("step failed").All()).To(BeEmpty())

		By("returning to the mode of the program")
		set(ctx, "Warn")
		Eventually(said).WithArguments(ctx, "x").Should(warned)
		Expect(clients().CoreV1().ConfigMaps(namespace).Delete(ctx, name, metav1.DeleteOptions{})).To(Succeed())
		Eventually(said).WithArguments(ctx, "x").Should(Equal("refused"))
	}, SpecTimeout(4*patience))

	It("choose the failurePolicy that RegisterExtensions writes, and that the process that serves waits for", func(ctx SpecContext) {
		set(ctx, "Shadow")
		o := urlOptions(namespace)
		o.ListenAddress, o.Port = "", FreePort()
		m := rule(o)
		Expect(m.RegisterExtensions()).To(Succeed())
		Expect(fails(ctx)).To(open)
		o.RegisterWebHook = new(false)
		runManager(ctx, rule(o))
		set(ctx, "Deny")
		Consistently(fails).WithArguments(ctx).Should(open, "a process that serves writes none")
		Consistently(said).WithArguments(ctx, "x").Should(BeEmpty(), "and refuses nothing before it is written")
		Expect(m.RegisterExtensions()).To(Succeed())
		Expect(fails(ctx)).To(closed)
		Eventually(said).WithArguments(ctx, "x").WithTimeout(patience).Should(Equal("refused"))
	}, SpecTimeout(3*patience))

	It("stop a program that must not read them, with the rule to grant", func(ctx SpecContext) {
		o := urlOptions(namespace)
		o.RestConfig = userWith(ctx, namespace, nil, []rbacv1.PolicyRule{
			{APIGroups: []string{""}, Resources: []string{"secrets", "namespaces"}, Verbs: []string{"*"}},
			{APIGroups: []string{"coordination.k8s.io"}, Resources: []string{"leases"}, Verbs: []string{"*"}},
			{APIGroups: []string{"admissionregistration.k8s.io"}, Resources: []string{"*"}, Verbs: []string{"*"}},
		})
		Expect(rule(o).Run(ctx)).To(MatchError(And(
			ContainSubstring("ConfigMap "+namespace+"/"+name+" of ManagerOptions.ModesConfigMap"), ContainSubstring("configmaps"))))
	}, SpecTimeout(2*patience))
})
