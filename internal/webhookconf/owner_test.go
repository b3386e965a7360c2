package webhookconf_test

import (
	"context"
	"errors"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"code.cloudfoundry.org/eirinix/internal/webhookconf"
)

var _ = Describe("The configuration of another deployment", func() {
	time0 := &clock{now: noon}

	DescribeTable("is not touched, and the error says whose it is",
		func(ctx SpecContext, do func(context.Context, *process) error, steps ...webhookconf.Step) {
			before := foreign(build(urlOptions()))
			c := newCluster(before.DeepCopy())
			p := time0.start(c, steps...)
			err := do(ctx, p)
			owned, ok := errors.AsType[*webhookconf.OwnedElsewhereError](err)
			Expect(ok).To(BeTrue(), "%v", err)
			Expect(*owned).To(Equal(webhookconf.OwnedElsewhereError{
				Kind: "MutatingWebhookConfiguration", Configuration: configurationName, Owner: otherOwner, Us: owner,
			}))
			Expect(err).To(MatchError(And(ContainSubstring(otherOwner), ContainSubstring(owner), ContainSubstring("OperatorFingerprint"))))
			Expect(c.writes()).To(BeEmpty())
			Expect(c.stored()).To(Equal(before))
			Expect(p.asked).To(BeZero(), "its caBundles are none of our business")
		},
		Entry("by Register", register, step("volumes", isolated)),
		Entry("by Register with other steps", register, step("other", isolated)),
		Entry("by Register without steps of its kind", register, step("v", validating)),
		Entry("by Delete", remove, step("volumes", isolated)),
	)
})

func register(ctx context.Context, p *process) error {
	_, err := p.Register(ctx, p.trusts)
	return err
}

func remove(ctx context.Context, p *process) error {
	_, err := p.Delete(ctx)
	return err
}
