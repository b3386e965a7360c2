package eirinix_test

// This file specifies the diagnosis of a program that is registered at an API server. Each finding is in internal/diagnose.

import (
	"context"
	"fmt"
	"net"
	"sync/atomic"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"code.cloudfoundry.org/eirinix"
	"code.cloudfoundry.org/eirinix/diagnosis"
	"code.cloudfoundry.org/eirinix/internal/diagnose"
	. "code.cloudfoundry.org/eirinix/internal/spectest"
)

var _ = Describe("A Manager that diagnoses its deployment", Label("api-server"), func() {
	var (
		namespace string
		options   eirinix.ManagerOptions
	)
	BeforeEach(func(ctx SpecContext) {
		namespace = newNamespace(ctx)
		options = urlOptions(namespace)
	})
	manager := func() *eirinix.ExtensionManager { return addEnvManager(options) }
	codes := func(r eirinix.Report) (all []diagnosis.Code) {
		for _, f := range r.Findings {
			if f.Severity == diagnosis.Problem {
				all = append(all, f.Code)
			}
		}
		return all
	}

	It("finds no problem, from within and from elsewhere, and logs this when it has become ready", func(ctx SpecContext) {
		logger, logs := Observed()
		options.Logger = logger
		m := manager()
		runManager(ctx, m)
		report := m.Diagnose(ctx)
		Expect(report.Err()).NotTo(HaveOccurred())
		_, well := report.Find(diagnosis.Healthy)
		Expect(well).To(BeTrue(), "%s", report)
		Eventually(func() int { return logs.FilterMessage("the API server calls this program").Len() }).WithTimeout(patience).Should(Equal(1))
		for _, line := range logs.All() {
			Expect(line.ContextMap()).NotTo(ContainElement(Equal("")), line.Message)
			Expect(fmt.Sprint(line.ContextMap())).NotTo(ContainSubstring("call RegisterExtensions"), "%s: it is about to do that itself", line.Message)
		}

		options.Port = int32(portOf(m))
		elsewhere := manager().Diagnose(ctx)
		Expect(elsewhere.Err()).NotTo(HaveOccurred())
		_, well = elsewhere.Find(diagnosis.Healthy)
		Expect(well).To(BeTrue(), "%s", elsewhere)
		Expect(m.Ready()).To(BeClosed())
	}, SpecTimeout(3*patience))

	It("reports a missing registration, and settings that keep steps apart, from a program that registers nothing", func(ctx SpecContext) {
		options.Port = 8443
		m := manager()
		Expect(m.AddExtension(eirinix.Mutation[*corev1.Pod]{
			ID: "apart", Settings: eirinix.Settings{Isolated: true}, Apply: func(context.Context, *eirinix.Call, *corev1.Pod) error { return nil },
		})).To(Succeed())
		report := m.Diagnose(ctx)
		Expect(codes(report)).To(ContainElement(diagnosis.NotRegistered))
		Expect(report.Findings).To(ContainElement(And(HaveField("Code", diagnosis.SharedCalls), HaveField("Message", ContainSubstring("because of Isolated")))))
		options.Host = ""
		Expect(codes(manager().Diagnose(ctx))).To(ConsistOf(diagnosis.NotStarted))
	}, SpecTimeout(patience))

	It("leaves nothing behind, and asks no step of the program about its own question", func(ctx SpecContext) {
		m := manager()
		var asked atomic.Int64
		Expect(m.AddExtension(eirinix.Mutation[*corev1.ConfigMap]{ID: "maps", Apply: func(context.Context, *eirinix.Call, *corev1.ConfigMap) error {
			asked.Add(1)
			return nil
		}})).To(Succeed())
		runManager(ctx, m)
		began := time.Now().Unix()
		Expect(m.Diagnose(ctx).Err()).NotTo(HaveOccurred())
		Expect(certificateMetrics(namespace)).To(HaveKeyWithValue("eirinix_canary_last_success_timestamp_seconds", BeNumerically(">=", began)))
		maps, err := clients().CoreV1().ConfigMaps(namespace).List(ctx, metav1.ListOptions{})
		Expect(err).NotTo(HaveOccurred())
		Expect(maps.Items).NotTo(ContainElement(HaveField("Name", HavePrefix(diagnose.CanaryName))))
		Expect(asked.Load()).To(BeZero())
		_, err = clients().CoreV1().ConfigMaps(namespace).Create(ctx, newConfigMap("one", nil), metav1.CreateOptions{})
		Expect(err).NotTo(HaveOccurred())
		Expect(asked.Load()).To(BeEquivalentTo(1))
	}, SpecTimeout(2*patience))

	It("prints the missing rights as a manifest when it lacks rights", func(ctx SpecContext) {
		config, err := controlPlane().User("powerless-" + namespace)
		Expect(err).NotTo(HaveOccurred())
		logger, logs := Observed()
		options.Logger, options.RestConfig = logger, config
		err = manager().Run(ctx)
		Expect(err).To(MatchError(And(
			ContainSubstring("needs get, create, update on secrets"),
			ContainSubstring("Grant the missing rights with kubectl apply -f -"),
			ContainSubstring("kind: ClusterRole\n"), ContainSubstring("kind: RoleBinding\n"), ContainSubstring("name: powerless-"+namespace))))
		Expect(logs.FilterMessageSnippet("rights are missing").Len()).To(Equal(1))
		options.Port = 8443
		Expect(manager().RegisterExtensions()).To(MatchError(ContainSubstring("Grant the missing rights with kubectl apply -f -")))
	}, SpecTimeout(patience))

	It("has a name that no extension may have", func() {
		m := eirinix.NewManager(options)
		Expect(m.AddExtension(handleFunc{name: diagnose.CanaryName, handle: addEnv{}.Handle})).To(Succeed())
		Expect(m.Validate()).To(MatchError(ContainSubstring("has the name of the webhook that Diagnose calls")))
	})
})

// portOf is the port that a Manager listens on.
func portOf(m *eirinix.ExtensionManager) int { return m.Addr().(*net.TCPAddr).Port }
