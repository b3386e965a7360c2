package drills_test

// This file has kube-controller-manager store objects anew that are older than a rule, half of which violate it.

import (
	"context"
	"os"
	"os/exec"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"github.com/onsi/gomega/gbytes"
	"github.com/onsi/gomega/gexec"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	utilversion "k8s.io/apimachinery/pkg/util/version"

	"code.cloudfoundry.org/eirinix"
	"code.cloudfoundry.org/eirinix/conversion"
	"code.cloudfoundry.org/eirinix/diagnosis"
	. "code.cloudfoundry.org/eirinix/internal/spectest"
	eirinixtest "code.cloudfoundry.org/eirinix/testing"
	"code.cloudfoundry.org/eirinix/testing/internal/load"
)

var _ = Describe("A storage migration of objects that are older than a rule", Ordered, Label("slow"), func() {
	many := 1000
	if os.Getenv("EIRINIX_SOAK") != "" {
		many = 10_000
	}
	var (
		few, all *sized
		command  string
	)
	BeforeAll(func(ctx SpecContext) {
		version := Must(admin.Discovery().ServerVersion())
		if utilversion.MustParseGeneric(version.GitVersion).LessThan(utilversion.MajorMinor(1, 37)) {
			Skip("the control plane is Kubernetes " + version.GitVersion + ", and StorageVersionMigration is on from 1.37")
		}
		DeferCleanup(gexec.CleanupBuildArtifacts)
		command = Must(gexec.Build("code.cloudfoundry.org/eirinix/examples/migrate", "-ldflags=-s"))
		plane := Must(eirinixtest.NewControlPlane(ctx, eirinixtest.ControlPlaneOptions{Progress: GinkgoWriter}))
		DeferCleanup(plane.Stop)
		requests := Clients(plane.Config()).Discovery().RESTClient()
		few = &sized{plural: "gadgets", plane: plane, requests: requests}
		all = &sized{plural: "widgets", plane: plane, requests: requests}
		few.define(ctx, 100)
		all.define(ctx, many)
		Expect(plane.StartControllerManager(ctx)).To(Succeed(), "which looks for new kinds every 30 s")
	}, NodeTimeout(5*patience))

	migrate := func(s *sized) *gexec.Session {
		session := Must(gexec.Start(exec.Command(command, "-kubeconfig", s.plane.Kubeconfig(), "-resource", s.name()), GinkgoWriter, GinkgoWriter))
		DeferCleanup(func() { session.Kill() })
		return session
	}
	says := func(ctx context.Context, s *sized, session *gexec.Session, text string) {
		GinkgoHelper()
		Eventually(func() bool {
			s.churn(ctx)
			ended := session.ExitCode() >= 0
			said := Must(gbytes.Say(text).Match(session.Err))
			if ended && !said {
				StopTrying("it has ended").Now()
			}
			return said
		}).WithContext(ctx).WithTimeout(8*patience).WithPolling(time.Second).Should(BeTrue(), text)
	}
	const succeeds = `has succeeded after .*\nstatus.storedVersions lists v2 alone: v1 may leave spec.versions`

	It("fails where a step judges them anew, and the diagnosis follows it; with a Rule it succeeds", func(ctx SpecContext) {
		same := func(_ context.Context, o *unstructured.Unstructured) (*unstructured.Unstructured, error) {
			return o, nil
		}
		conversions := conversion.Of[*unstructured.Unstructured]{
			CRD: few.name(), Version: "v1", Lossy: true, Spokes: []conversion.Spoke[*unstructured.Unstructured]{conversion.NewSpoke("v2", same, same)},
		}
		update := func(ctx context.Context, c *eirinix.Call, _, o *unstructured.Unstructured) error {
			return few.judge(ctx, c, o)
		}
		r := few.run(ctx, true, eirinix.Validation[*unstructured.Unstructured]{Create: few.judge, Update: update}, conversions)
		since := few.storeInV2(ctx)
		found := diagnose(ctx, r.ExtensionManager, diagnosis.StillStored)
		Expect(found.Message).To(ContainSubstring("may still be stored in v1, "))
		Expect(found.Remedy).To(ContainSubstring("examples/migrate@latest -resource " + few.name()))

		session := migrate(few)
		says(ctx, few, session, `has failed: \d+/\d+ not yet migrated.* denied the request: spec.size: Invalid value: 0: must be positive\nremedy: .*Validation.Rule.*\nuntil then, keep v1 in spec.versions`)
		Eventually(session).WithContext(ctx).Should(gexec.Exit(1))
		Expect(few.written(ctx, since)).To(BeNumerically("<", 100))
		found = diagnose(ctx, r.ExtensionManager, diagnosis.StillStored)
		Expect(found.Severity).To(Equal(diagnosis.Warning))
		r.Stop()
		load.ExpectEnd(ctx, r)

		r = few.run(ctx, true, eirinix.Validation[*unstructured.Unstructured]{Rule: few.judge}, conversions)
		session = migrate(few)
		says(ctx, few, session, succeeds)
		Eventually(session).WithContext(ctx).Should(gexec.Exit(0))
		Expect(few.written(ctx, since)).To(Equal(100))
		expectWell(ctx, r.ExtensionManager, diagnosis.StillStored)
	}, SpecTimeout(20*patience))

	It("waits while the program is down, and then stores all anew without a question to the step", func(ctx SpecContext) {
		step := eirinix.Validation[*unstructured.Unstructured]{Rule: all.judge}
		r := all.run(ctx, false, step)
		r.Stop()
		load.ExpectEnd(ctx, r)
		since := all.storeInV2(ctx)
		session := migrate(all)
		says(ctx, all, session, `starts the migration .* of \d{4,} objects\n`)
		says(ctx, all, session, `not yet migrated; transient error: .*connection refused`)
		session.Interrupt()
		Eventually(session).WithContext(ctx).Should(gexec.Exit(1))
		Expect(session.Err).To(gbytes.Say(`goes on in the cluster`))

		session = migrate(all)
		says(ctx, all, session, `follows the migration`)
		all.run(ctx, false, step)
		says(ctx, all, session, succeeds)
		Eventually(session).WithContext(ctx).Should(gexec.Exit(0))
		Expect(all.written(ctx, since)).To(Equal(many))
		Expect(all.judged.Load()).To(BeZero())
	}, SpecTimeout(20*patience))
})
