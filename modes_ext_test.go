package eirinix_test

import (
	"context"
	"fmt"
	"io"
	"net"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"go.uber.org/zap"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"

	"code.cloudfoundry.org/eirinix"
	"code.cloudfoundry.org/eirinix/diagnosis"
	. "code.cloudfoundry.org/eirinix/internal/spectest"
)

var _ = Describe("The modes in a ConfigMap", Label("api-server"), func() {
	const name = "modes"
	var namespace string
	BeforeEach(func(ctx SpecContext) { namespace = newNamespace(ctx) })

	// refusing returns a Manager with a step that refuses every ConfigMap, except the one with the modes.
	refusing := func(o eirinix.ManagerOptions, settings eirinix.Settings) *eirinix.ExtensionManager {
		GinkgoHelper()
		o.ModesConfigMap = name
		settings.Conditions = []admissionregistrationv1.MatchCondition{{Name: "other", Expression: fmt.Sprintf("object.metadata.name != %q", name)}}
		m := eirinix.NewManager(o)
		Expect(m.AddExtension(eirinix.Validation[*corev1.ConfigMap]{
			ID: "owner", Settings: settings,
			Create: func(context.Context, *eirinix.Call, *corev1.ConfigMap) error {
				return eirinix.Deny("set the label owner")
			},
		})).To(Succeed())
		return m
	}
	set := func(ctx context.Context, entry string) {
		GinkgoHelper()
		maps := clients().CoreV1().ConfigMaps(namespace)
		desired := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: name}, Data: map[string]string{"owner": entry}}
		_, err := maps.Update(ctx, desired, metav1.UpdateOptions{})
		if apierrors.IsNotFound(err) {
			_, err = maps.Create(ctx, desired, metav1.CreateOptions{})
		}
		Expect(err).NotTo(HaveOccurred())
	}
	policy := func(ctx context.Context) (admissionregistrationv1.FailurePolicyType, string) {
		GinkgoHelper()
		v, err := clients().AdmissionregistrationV1().ValidatingWebhookConfigurations().Get(ctx, namespace+"-validating-hook", metav1.GetOptions{})
		Expect(err).NotTo(HaveOccurred())
		return *v.Webhooks[0].FailurePolicy, v.ResourceVersion
	}
	// said creates a ConfigMap in a dry run, and returns how the user learns of the step.
	said := func(ctx context.Context, object string) string {
		warnings := &heard{}
		config := rest.CopyConfig(controlPlane().Config())
		config.WarningHandler = warnings
		_, err := Clients(config).CoreV1().ConfigMaps(namespace).Create(ctx, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: object}},
			metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
		switch all := warnings.take(); {
		case apierrors.IsForbidden(err):
			return "refused"
		case err != nil:
			return err.Error()
		case len(all) > 0:
			return "warned"
		}
		return ""
	}

	It("change the mode without a rollout and without a write, but for Shadow", func(ctx SpecContext) {
		logger, logs := Observed()
		o := urlOptions(namespace)
		o.Logger = logger
		m := refusing(o, eirinix.Settings{})
		runManager(ctx, m)
		Eventually(said).WithArguments(ctx, "x").Should(Equal("refused"), "its own mode is Deny")
		_, registered := policy(ctx)

		set(ctx, "Warn")
		Eventually(said).WithArguments(ctx, "x").Should(Equal("warned"))
		set(ctx, "Audit")
		Eventually(said).WithArguments(ctx, "x").Should(BeEmpty())
		_, now := policy(ctx)
		Expect(now).To(Equal(registered))

		By("keeping the last good entry")
		set(ctx, "Audit\nWarn")
		Eventually(func() int { return logs.FilterMessage("a mode cannot be used").Len() }).Should(Equal(1))
		Expect(fmt.Sprint(logs.FilterMessage("a mode cannot be used").All()[0].ContextMap())).To(ContainSubstring("line 2"))
		Expect(said(ctx, "x")).To(BeEmpty())
		refused, ok := m.Diagnose(ctx).Find(diagnosis.ModeRefused)
		Expect(ok).To(BeTrue())
		Expect(refused.Object).To(Equal("ConfigMap " + namespace + "/" + name))
		Expect(refused.Evidence).To(HavePrefix("owner: line 2: "))
		inForce, ok := m.Diagnose(ctx).Find(diagnosis.ModeSet)
		Expect(ok).To(BeTrue())
		Expect(inForce.Message).To(Equal("the mode of owner: Audit"))

		By("choosing by the labels of the namespace")
		set(ctx, "Warn where stage=test\nAudit")
		label := func(value string) {
			_, err := clients().CoreV1().Namespaces().Patch(ctx, namespace, types.MergePatchType, fmt.Appendf(nil, `{"metadata":{"labels":{"stage":%q}}}`, value), metav1.PatchOptions{})
			Expect(err).NotTo(HaveOccurred())
		}
		label("test")
		Eventually(said).WithArguments(ctx, "x").Should(Equal("warned"))
		label("prod")
		Eventually(said).WithArguments(ctx, "x").Should(BeEmpty())

		By("choosing by a percentage of objects")
		set(ctx, "Deny 50%\nWarn")
		Eventually(said).WithArguments(ctx, "x").ShouldNot(BeEmpty())
		first := map[string]string{}
		for i := range 40 {
			object := fmt.Sprintf("object-%d", i)
			first[object] = said(ctx, object)
		}
		Expect(first).To(And(ContainElement("refused"), ContainElement("warned"), HaveEach(BeElementOf("refused", "warned"))))
		for object, before := range first {
			Expect(said(ctx, object)).To(Equal(before))
		}
		_, now = policy(ctx)
		Expect(now).To(Equal(registered))

		By("failing open in Shadow, and closed before Deny is in force")
		set(ctx, "Shadow")
		Eventually(said).WithArguments(ctx, "x").Should(BeEmpty())
		Eventually(func() admissionregistrationv1.FailurePolicyType { p, _ := policy(ctx); return p }).WithTimeout(patience).Should(Equal(admissionregistrationv1.Ignore))
		Eventually(func() int { return logs.FilterMessage("would deny").FilterField(zap.String("mode", "Shadow")).Len() }).ShouldNot(BeZero())
		set(ctx, "Deny")
		Eventually(func(g Gomega) {
			g.Expect(said(ctx, "x")).To(Equal("refused"))
			p, _ := policy(ctx) // after the refusal, so a policy that is late would be seen
			Expect(p).To(Equal(admissionregistrationv1.Fail), "Deny was in force before the failurePolicy")
		}).WithTimeout(patience).Should(Succeed())
		Expect(logs.FilterMessage("step failed").All()).To(BeEmpty())

		By("returning to the mode of the program")
		set(ctx, "Warn")
		Eventually(said).WithArguments(ctx, "x").Should(Equal("warned"))
		Expect(clients().CoreV1().ConfigMaps(namespace).Delete(ctx, name, metav1.DeleteOptions{})).To(Succeed())
		Eventually(said).WithArguments(ctx, "x").Should(Equal("refused"))
	}, SpecTimeout(4*patience))

	It("apply at once to a program that starts, also to one whose steps were shadows", func(ctx SpecContext) {
		set(ctx, "Shadow")
		o := urlOptions(namespace)
		o.ListenAddress, o.Port = "", FreePort()
		first := refusing(o, eirinix.Settings{})
		done := startManager(ctx, first)
		Eventually(first.Ready()).WithContext(ctx).Should(BeClosed())
		p, _ := policy(ctx)
		Expect(p).To(Equal(admissionregistrationv1.Ignore))
		first.Stop()
		Eventually(done).WithContext(ctx).Should(Receive(BeNil()))

		set(ctx, "Deny")
		runManager(ctx, refusing(o, eirinix.Settings{}))
		Eventually(func(g Gomega) {
			g.Expect(said(ctx, "x")).To(Equal("refused"))
			p, _ := policy(ctx)
			Expect(p).To(Equal(admissionregistrationv1.Fail), "Deny was in force before the failurePolicy")
		}).WithTimeout(patience).Should(Succeed())
	}, SpecTimeout(3*patience))

	It("are in force in one replica only after the registration of all of them fails closed", func(ctx SpecContext) {
		set(ctx, "Shadow")
		between, err := net.Listen("tcp", "127.0.0.1:0")
		Expect(err).NotTo(HaveOccurred())
		DeferCleanup(between.Close)
		o := urlOptions(namespace)
		o.Port = int32(between.Addr().(*net.TCPAddr).Port)
		replicas := []*eirinix.ExtensionManager{refusing(o, eirinix.Settings{}), refusing(o, eirinix.Settings{})}
		for _, m := range replicas {
			startManager(ctx, m)
		}
		go alternate(between, replicas)
		for _, m := range replicas {
			Eventually(m.Ready()).WithContext(ctx).WithTimeout(patience).Should(BeClosed())
		}
		for range 3 {
			set(ctx, "Shadow")
			Eventually(func() admissionregistrationv1.FailurePolicyType { p, _ := policy(ctx); return p }).WithTimeout(patience).Should(Equal(admissionregistrationv1.Ignore))
			set(ctx, "Deny")
			refused := 0
			Eventually(func(g Gomega) {
				before, _ := policy(ctx)
				answer := said(ctx, "x")
				if answer == "refused" {
					refused++
					after, _ := policy(ctx)
					Expect(after).To(Equal(admissionregistrationv1.Fail), "Deny was in force before the failurePolicy, which was %s", before)
				}
				g.Expect(refused).To(BeNumerically(">=", 10), "both replicas have been asked")
			}).WithTimeout(2 * patience).Should(Succeed())
		}
	}, SpecTimeout(8*patience))

	It("draw once for an object, whatever request carries it", func(ctx SpecContext) {
		set(ctx, "Deny 50%\nWarn")
		o := urlOptions(namespace)
		o.ModesConfigMap = name
		m := eirinix.NewManager(o)
		refuse := func(context.Context, *eirinix.Call, *corev1.Pod, *corev1.Pod) error { return eirinix.Deny("no") }
		Expect(m.AddExtension(eirinix.Validation[*corev1.Pod]{
			ID: "owner", Create: func(context.Context, *eirinix.Call, *corev1.Pod) error { return eirinix.Deny("no") }, Update: refuse,
			Delete: func(context.Context, *eirinix.Call, *corev1.Pod) error { return eirinix.Deny("no") },
			Settings: eirinix.Settings{Rules: []admissionregistrationv1.RuleWithOperations{{
				Operations: []admissionregistrationv1.OperationType{"CREATE", "UPDATE", "DELETE"},
				Rule:       admissionregistrationv1.Rule{APIGroups: []string{""}, APIVersions: []string{"v1"}, Resources: []string{"pods", "pods/status", "pods/ephemeralcontainers"}},
			}}},
		})).To(Succeed())
		admin := clients().CoreV1().Pods(namespace)
		podOf := func(i int, hash string) *corev1.Pod {
			pod := &corev1.Pod{Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "app", Image: "app:1"}}}}
			switch owner := fmt.Sprintf("web-%d-%s", i, hash); i % 3 {
			case 0:
				pod.Name = fmt.Sprintf("bare-%d", i)
			case 1:
				pod.GenerateName = fmt.Sprintf("generated-%d-", i)
			default:
				pod.GenerateName, pod.Labels = owner+"-", map[string]string{"pod-template-hash": hash}
				pod.OwnerReferences = []metav1.OwnerReference{{APIVersion: "apps/v1", Kind: "ReplicaSet", Name: owner, UID: "1", Controller: new(true)}}
			}
			return pod
		}
		var pods []*corev1.Pod
		for i := range 20 { // before the step is registered
			pod, err := admin.Create(ctx, podOf(i, "6d4cf56db6"), metav1.CreateOptions{})
			Expect(err).NotTo(HaveOccurred())
			pods = append(pods, pod)
		}
		runManager(ctx, m)

		warnings := &heard{}
		config := rest.CopyConfig(controlPlane().Config())
		config.WarningHandler = warnings
		user := Clients(config).CoreV1().Pods(namespace)
		verdict := func(err error) string {
			GinkgoHelper()
			if all := warnings.take(); apierrors.IsForbidden(err) && len(all) == 0 {
				return "refused"
			} else if err == nil && len(all) == 1 {
				return "warned"
			} else {
				return fmt.Sprint(err, all)
			}
		}
		dry := []string{metav1.DryRunAll}
		Eventually(func() string {
			return verdict(user.Delete(ctx, pods[0].Name, metav1.DeleteOptions{DryRun: dry}))
		}).Should(BeElementOf("refused", "warned"))
		said := map[string]int{}
		for i, pod := range pods {
			first := verdict(user.Delete(ctx, pod.Name, metav1.DeleteOptions{DryRun: dry}))
			said[first]++
			Expect(verdict(user.DeleteCollection(ctx, metav1.DeleteOptions{DryRun: dry}, metav1.ListOptions{FieldSelector: "metadata.name=" + pod.Name}))).To(Equal(first), "deletecollection of %s", pod.Name)
			changed := pod.DeepCopy()
			metav1.SetMetaDataAnnotation(&changed.ObjectMeta, "changed", "yes")
			changed.GenerateName, changed.OwnerReferences = "mine-", nil
			_, err := user.Update(ctx, changed, metav1.UpdateOptions{DryRun: dry})
			Expect(verdict(err)).To(Equal(first), "update of %s", pod.Name)
			_, err = user.UpdateStatus(ctx, pod, metav1.UpdateOptions{DryRun: dry})
			Expect(verdict(err)).To(Equal(first), "update of the status of %s", pod.Name)
			changed = pod.DeepCopy()
			changed.Spec.EphemeralContainers = []corev1.EphemeralContainer{{EphemeralContainerCommon: corev1.EphemeralContainerCommon{Name: "debug", Image: "debug:1", TerminationMessagePolicy: "File"}}}
			_, err = user.UpdateEphemeralContainers(ctx, pod.Name, changed, metav1.UpdateOptions{DryRun: dry})
			Expect(verdict(err)).To(Equal(first), "ephemeral containers of %s", pod.Name)
			again := podOf(i, "5f6d7c8b9c") // of the next ReplicaSet
			if again.Name != "" {
				continue // it exists
			}
			_, err = user.Create(ctx, again, metav1.CreateOptions{DryRun: dry})
			Expect(verdict(err)).To(Equal(first), "creation of the next %s", pod.GenerateName)
		}
		Expect(said).To(And(HaveKeyWithValue("refused", BeNumerically(">", 3)), HaveKeyWithValue("warned", BeNumerically(">", 3))))
		// A collection ends at the first refusal, so what is left holds all that are protected.
		Expect(user.DeleteCollection(ctx, metav1.DeleteOptions{GracePeriodSeconds: new(int64(0))}, metav1.ListOptions{})).To(MatchError(apierrors.IsForbidden, "IsForbidden"))
		left, err := admin.List(ctx, metav1.ListOptions{})
		Expect(err).NotTo(HaveOccurred())
		Expect(len(left.Items)).To(BeNumerically(">=", said["refused"]))
	}, SpecTimeout(2*patience))

	It("choose the failurePolicy that RegisterExtensions writes", func(ctx SpecContext) {
		set(ctx, "Shadow")
		o := urlOptions(namespace)
		o.ListenAddress, o.Port = "", FreePort()
		m := refusing(o, eirinix.Settings{})
		Expect(m.RegisterExtensions()).To(Succeed())
		p, _ := policy(ctx)
		Expect(p).To(Equal(admissionregistrationv1.Ignore))
		o.RegisterWebHook = new(false)
		runManager(ctx, refusing(o, eirinix.Settings{}))
		set(ctx, "Deny")
		Consistently(func() admissionregistrationv1.FailurePolicyType { p, _ := policy(ctx); return p }).Should(Equal(admissionregistrationv1.Ignore), "a process that serves writes none")
		Expect(m.RegisterExtensions()).To(Succeed())
		p, _ = policy(ctx)
		Expect(p).To(Equal(admissionregistrationv1.Fail))
		Eventually(said).WithArguments(ctx, "x").WithTimeout(patience).Should(Equal("refused"))
	}, SpecTimeout(3*patience))

	It("do not change a step whose mode is fixed", func(ctx SpecContext) {
		set(ctx, "Warn")
		logger, logs := Observed()
		o := urlOptions(namespace)
		o.Logger = logger
		runManager(ctx, refusing(o, eirinix.Settings{FixedMode: true}))
		Eventually(said).WithArguments(ctx, "x").Should(Equal("refused"))
		Expect(logs.FilterMessage("a mode cannot be used").Len()).To(Equal(1))
	}, SpecTimeout(2*patience))

	It("stop a program that must not read them, with the rule to grant", func(ctx SpecContext) {
		account := namespace
		_, err := clients().RbacV1().ClusterRoles().Create(ctx, &rbacv1.ClusterRole{
			ObjectMeta: metav1.ObjectMeta{Name: account},
			Rules: []rbacv1.PolicyRule{
				{APIGroups: []string{""}, Resources: []string{"secrets", "namespaces"}, Verbs: []string{"*"}},
				{APIGroups: []string{"coordination.k8s.io"}, Resources: []string{"leases"}, Verbs: []string{"*"}},
				{APIGroups: []string{"admissionregistration.k8s.io"}, Resources: []string{"*"}, Verbs: []string{"*"}},
			},
		}, metav1.CreateOptions{})
		Expect(err).NotTo(HaveOccurred())
		_, err = clients().RbacV1().ClusterRoleBindings().Create(ctx, &rbacv1.ClusterRoleBinding{
			ObjectMeta: metav1.ObjectMeta{Name: account},
			RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: account},
			Subjects:   []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: rbacv1.UserKind, Name: account}},
		}, metav1.CreateOptions{})
		Expect(err).NotTo(HaveOccurred())
		o := urlOptions(namespace)
		o.RestConfig = rest.CopyConfig(controlPlane().Config())
		o.RestConfig.Impersonate = rest.ImpersonationConfig{UserName: account, Groups: []string{"system:authenticated"}}
		Expect(refusing(o, eirinix.Settings{}).Run(ctx)).To(MatchError(And(
			ContainSubstring("ConfigMap "+namespace+"/"+name+" of ManagerOptions.ModesConfigMap"), ContainSubstring("configmaps"))))
	}, SpecTimeout(2*patience))
})

// alternate passes the connections of a listener on to the replicas in turn, until the listener is closed.
func alternate(l net.Listener, replicas []*eirinix.ExtensionManager) {
	for n := 0; ; n++ {
		from, err := l.Accept()
		if err != nil {
			return
		}
		address := replicas[n%len(replicas)].Addr()
		if address == nil { // its port is not open yet
			_ = from.Close()
			continue
		}
		to, err := net.Dial("tcp", address.String())
		if err != nil {
			_ = from.Close()
			continue
		}
		pass := func(to, from net.Conn) {
			_, _ = io.Copy(to, from) // the end of either side ends both
			_, _ = from.Close(), to.Close()
		}
		go pass(to, from)
		go pass(from, to)
	}
}
