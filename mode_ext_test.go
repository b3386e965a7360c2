package eirinix_test

import (
	"bufio"
	"context"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"go.uber.org/zap"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"code.cloudfoundry.org/eirinix"
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

func (h *heard) take() (all []string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	all, h.all = h.all, nil
	return all
}

var _ = Describe("A rule that is rolled out", Label("api-server"), func() {
	// The rule refuses ConfigMaps without an owner, and writes a label into all of them.
	rule := func(o eirinix.ManagerOptions, mode eirinix.Mode) *eirinix.ExtensionManager {
		GinkgoHelper()
		m := eirinix.NewManager(o)
		Expect(m.AddExtension(
			eirinix.Validation[*corev1.ConfigMap]{
				ID: "owner", Settings: eirinix.Settings{Mode: mode},
				Create: func(_ context.Context, c *eirinix.Call, cm *corev1.ConfigMap) error {
					if cm.Labels["owner"] == "" {
						return eirinix.Deny("set the label owner")
					}
					return nil
				},
			},
		)).To(Succeed())
		Expect(m.AddExtension(
			eirinix.Mutation[*corev1.ConfigMap]{
				ID: "stage", Settings: eirinix.Settings{Mode: mode},
				Apply: func(_ context.Context, _ *eirinix.Call, cm *corev1.ConfigMap) error {
					metav1.SetMetaDataLabel(&cm.ObjectMeta, "stage", "test")
					return nil
				},
			},
		)).To(Succeed())
		return m
	}

	It("shows the user nothing in Shadow and Audit, warns in Warn, refuses in Deny, and keeps its registration", func(ctx SpecContext) {
		namespace, dir := newNamespace(ctx), GinkgoT().TempDir()
		policy, log := filepath.Join(dir, "policy.json"), filepath.Join(dir, "audit.log")
		Expect(os.WriteFile(policy, []byte(`{"apiVersion":"audit.k8s.io/v1","kind":"Policy","rules":[{"level":"Metadata","omitStages":["RequestReceived"],`+
			`"resources":[{"group":"","resources":["configmaps"]}],"namespaces":["`+namespace+`"]},{"level":"None"}]}`), 0o600)).To(Succeed())
		server, err := controlPlane().AddAPIServer(ctx, "--audit-policy-file="+policy, "--audit-log-path="+log, "--audit-log-mode=blocking")
		Expect(err).NotTo(HaveOccurred())
		DeferCleanup(func() { Expect(server.Stop()).To(Succeed()) })
		config, warnings := server.Config(), &heard{}
		config.WarningHandler = warnings
		objects := Clients(config).CoreV1().ConfigMaps(namespace)
		// create returns the object as it is stored, and the audit annotations of the request without their prefix.
		create := func(name string, labels map[string]string) (*corev1.ConfigMap, map[string]string, error) {
			GinkgoHelper()
			warnings.take()
			cm, err := objects.Create(ctx, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: labels}, Data: map[string]string{"password": "hunter2"}}, metav1.CreateOptions{})
			return cm, lastAnnotations(log), err
		}
		o := urlOptions(namespace)
		logger, logs := Observed()
		o.Logger = logger
		o.ListenAddress, o.Port = "", FreePort()
		registered := func() []string {
			GinkgoHelper()
			v, err := clients().AdmissionregistrationV1().ValidatingWebhookConfigurations().Get(ctx, namespace+"-validating-hook", metav1.GetOptions{})
			Expect(err).NotTo(HaveOccurred())
			return []string{v.ResourceVersion, configuration(ctx, rule(o, eirinix.ModeDeny)).ResourceVersion}
		}
		run := func(mode eirinix.Mode, play func()) {
			GinkgoHelper()
			m := rule(o, mode)
			done := startManager(ctx, m)
			Eventually(m.Ready()).WithContext(ctx).Should(BeClosed())
			play()
			m.Stop()
			Eventually(done).WithContext(ctx).Should(Receive(BeNil()))
		}

		policies := func() (all []admissionregistrationv1.FailurePolicyType) {
			GinkgoHelper()
			v, err := clients().AdmissionregistrationV1().ValidatingWebhookConfigurations().Get(ctx, namespace+"-validating-hook", metav1.GetOptions{})
			Expect(err).NotTo(HaveOccurred())
			return append(all, *v.Webhooks[0].FailurePolicy, *configuration(ctx, rule(o, eirinix.ModeDeny)).Webhooks[0].FailurePolicy)
		}
		run(eirinix.ModeShadow, func() {
			Expect(policies()).To(HaveEach(admissionregistrationv1.Ignore))
			Eventually(func(g Gomega) { // this API server learns of the webhooks, too
				cm, audit, err := create("shadowed", nil)
				g.Expect(objects.Delete(ctx, "shadowed", metav1.DeleteOptions{})).To(Succeed())
				g.Expect(err).NotTo(HaveOccurred())
				g.Expect(cm.Labels).To(BeEmpty())
				g.Expect(audit).To(BeEmpty())
				g.Expect(warnings.take()).To(BeEmpty())
				g.Expect(logs.FilterMessage("would deny").FilterField(zap.String("reason", "set the label owner")).All()).NotTo(BeEmpty())
				g.Expect(logs.FilterMessage("would change").FilterField(zap.String("reason", "/metadata/labels")).All()).NotTo(BeEmpty())
			}).WithContext(ctx).Should(Succeed())
		})
		var before []string
		run(eirinix.ModeAudit, func() {
			// The registration stays while a replica of the earlier version may live.
			Eventually(policies).WithContext(ctx).WithTimeout(patience).Should(HaveEach(admissionregistrationv1.Fail))
			Eventually(func(g Gomega) { // this API server learns of the new failurePolicy, too
				_, audit, err := create("probe", nil)
				g.Expect(objects.Delete(ctx, "probe", metav1.DeleteOptions{})).To(Succeed())
				g.Expect(err).NotTo(HaveOccurred())
				g.Expect(audit).To(HaveLen(2))
			}).WithContext(ctx).Should(Succeed())
			before = registered()
			cm, audit, err := create("audited", nil)
			Expect(err).NotTo(HaveOccurred())
			Expect(warnings.take()).To(BeEmpty())
			Expect(cm.Labels).To(BeEmpty())
			Expect(audit).To(And(
				HaveKeyWithValue("would-deny", "owner: set the label owner"),
				HaveKeyWithValue("would-change", "stage: /metadata/labels"),
			))
		})
		run(eirinix.ModeWarn, func() {
			cm, audit, err := create("warned", nil)
			Expect(err).NotTo(HaveOccurred())
			Expect(warnings.take()).To(ConsistOf(
				`step "owner" would deny this: set the label owner`, `step "stage" would change this: /metadata/labels`))
			Expect(cm.Labels).To(BeEmpty())
			Expect(audit).To(BeEmpty())
		})
		run(eirinix.ModeDeny, func() {
			_, audit, err := create("refused", nil)
			Expect(apierrors.IsForbidden(err)).To(BeTrue(), "%v", err)
			Expect(audit).To(BeEmpty())
			cm, _, err := create("accepted", map[string]string{"owner": "me"})
			Expect(err).NotTo(HaveOccurred())
			Expect(cm.Labels).To(HaveKeyWithValue("stage", "test"))
			Expect(warnings.take()).To(BeEmpty())
		})
		Expect(registered()).To(Equal(before))
	}, SpecTimeout(4*patience))

	It("ends with the program, also while it runs in Shadow", func(ctx SpecContext) {
		namespace, begun, ended := newNamespace(ctx), make(chan struct{}, 1), make(chan struct{})
		m := eirinix.NewManager(urlOptions(namespace))
		Expect(m.AddExtension(eirinix.Validation[*corev1.ConfigMap]{
			ID: "waits", Settings: eirinix.Settings{Mode: eirinix.ModeShadow, Timeout: 30 * time.Second},
			Create: func(ctx context.Context, _ *eirinix.Call, _ *corev1.ConfigMap) error {
				begun <- struct{}{}
				<-ctx.Done()
				close(ended)
				return nil
			},
		})).To(Succeed())
		done := startManager(ctx, m)
		Eventually(m.Ready()).WithContext(ctx).Should(BeClosed())
		Eventually(func(g Gomega) {
			_, err := clients().CoreV1().ConfigMaps(namespace).Create(ctx, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{GenerateName: "x-"}}, metav1.CreateOptions{})
			g.Expect(err).NotTo(HaveOccurred())
			g.Expect(begun).To(Receive())
		}).WithTimeout(patience).Should(Succeed())
		m.Stop()
		Eventually(done).WithContext(ctx).Should(Receive(BeNil()))
		Eventually(ended).Should(BeClosed())
	}, SpecTimeout(2*patience))
})

// lastAnnotations returns the annotations of webhooks in the last event of an audit log, without the webhooks' names.
func lastAnnotations(log string) map[string]string {
	GinkgoHelper()
	f, err := os.Open(log)
	Expect(err).NotTo(HaveOccurred())
	defer f.Close()
	found := map[string]string{}
	for lines := bufio.NewScanner(f); lines.Scan(); {
		var event struct {
			Verb        string
			Annotations map[string]string
		}
		Expect(json.Unmarshal(lines.Bytes(), &event)).To(Succeed())
		if event.Verb != "create" {
			continue
		}
		clear(found)
		for key, value := range event.Annotations {
			if webhook, key, _ := strings.Cut(key, "/"); strings.HasSuffix(webhook, ".eirinix.cloudfoundry.org") {
				found[key] = value
			}
		}
	}
	return found
}
