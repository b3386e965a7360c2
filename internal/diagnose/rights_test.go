package diagnose_test

import (
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"code.cloudfoundry.org/eirinix/diagnosis"
	"code.cloudfoundry.org/eirinix/internal/diagnose"
)

var _ = Describe("A diagnosis by a user with few rights", Label("api-server"), func() {
	It("names the looks that it could not take, and the rights for them", func(ctx SpecContext) {
		d := newDeployment(ctx)
		d.behind(ctx, toLoopback())
		d.register(ctx)
		d.awaitCalls(ctx)
		name := "user-" + d.Canary.Namespace
		d.Clients = clientsFor(must(controlPlane.User(name)))
		r := d.run(ctx)
		Expect(r.Err()).NotTo(HaveOccurred())
		Expect(codes(r)).To(Equal([]diagnosis.Code{diagnosis.CheckSkipped}))
		Expect(r.String()).To(And(ContainSubstring("create configmaps in namespace "+d.Canary.Namespace), ContainSubstring("get services "+d.Canary.Namespace+"/hooks")))

		apply(ctx, must(diagnose.Manifest(d.Canary.Namespace, diagnose.SubjectOf(name), r.Rights())))
		Eventually(func() []diagnosis.Code { return codes(d.run(ctx)) }).WithTimeout(patience).Should(Equal([]diagnosis.Code{diagnosis.Healthy}))
	}, SpecTimeout(2*patience))

	It("needs no more than to create ConfigMaps to find no problem", func(ctx SpecContext) {
		d := newDeployment(ctx)
		d.register(ctx)
		d.awaitCalls(ctx)
		name := "user-" + d.Canary.Namespace
		d.Clients = clientsFor(must(controlPlane.User(name)))
		apply(ctx, must(diagnose.Manifest(d.Canary.Namespace, diagnose.SubjectOf(name), []diagnosis.Right{{Resource: "configmaps", Verb: "create", Namespace: d.Canary.Namespace}})))
		Eventually(func() []diagnosis.Code { return codes(d.run(ctx)) }).WithTimeout(patience).Should(Equal([]diagnosis.Code{diagnosis.Healthy, diagnosis.CheckSkipped}))

		Expect(d.server.Close()).To(Succeed())
		Expect(d.run(ctx)).To(haveOneProblem(diagnosis.NothingListens, ContainSubstring("failed to call webhook")))
	}, SpecTimeout(2*patience))

	It("waits for an API server that has not noticed the registration yet", func(ctx SpecContext) {
		d := newDeployment(ctx)
		name := "user-" + d.Canary.Namespace
		d.Clients = clientsFor(must(controlPlane.User(name)))
		apply(ctx, must(diagnose.Manifest(d.Canary.Namespace, diagnose.SubjectOf(name), []diagnosis.Right{{Resource: "configmaps", Verb: "create", Namespace: d.Canary.Namespace}})))
		d.Settle = time.Millisecond
		Eventually(func() string { return d.run(ctx).String() }).WithTimeout(patience).ShouldNot(ContainSubstring("create configmaps"))

		d.Settle = patience
		done := make(chan diagnosis.Report, 1)
		go func() { done <- d.run(ctx) }()
		Consistently(done).WithTimeout(300 * time.Millisecond).ShouldNot(Receive())
		d.register(ctx)
		var r diagnosis.Report
		Eventually(done).WithTimeout(patience).Should(Receive(&r))
		Expect(codes(r)).To(ContainElement(diagnosis.Healthy))
	}, SpecTimeout(3*patience))

	It("finds that nothing listens without any right", func(ctx SpecContext) {
		d := newDeployment(ctx)
		d.register(ctx)
		Expect(d.server.Close()).To(Succeed())
		d.Clients = clientsFor(must(controlPlane.User("user-" + d.Canary.Namespace)))
		Expect(d.run(ctx)).To(haveOneProblem(diagnosis.NothingListens))
	}, SpecTimeout(patience))
})
