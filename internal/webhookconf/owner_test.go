package webhookconf_test

import (
	"context"
	"errors"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"code.cloudfoundry.org/eirinix/internal/webhookconf"
)

var _ = Describe("The configuration of another deployment", func() {
	DescribeTable("is not touched, and the error names its owner",
		func(ctx SpecContext, do func(context.Context, *cluster, webhookconf.Configuration) error) {
			before := foreign(build(urlOptions()))
			c := newCluster(before.DeepCopy())
			err := do(ctx, c, mutatingIn(c))
			owned, ok := errors.AsType[*webhookconf.OwnedElsewhereError](err)
			Expect(ok).To(BeTrue(), "%v", err)
			Expect(*owned).To(Equal(webhookconf.OwnedElsewhereError{
				Kind: "MutatingWebhookConfiguration", Configuration: configurationName, Owner: otherOwner, Us: owner,
			}))
			Expect(err).To(MatchError(And(ContainSubstring(otherOwner), ContainSubstring(owner), ContainSubstring("OperatorFingerprint"))))
			Expect(c.writes()).To(BeEmpty())
			Expect(c.stored()).To(Equal(before))
		},
		Entry("by Get", func(ctx context.Context, _ *cluster, ours webhookconf.Configuration) error {
			found, err := ours.Get(ctx)
			Expect(found).To(Equal(webhookconf.Found{}), "its caBundles are its own")
			return err
		}),
		Entry("by Read", func(ctx context.Context, c *cluster, ours webhookconf.Configuration) error {
			found, err := ours.Read(ctx, holding(c.tree()))
			Expect(found).To(Equal(webhookconf.Found{}))
			return err
		}),
		Entry("by Put", put1(webhookconf.Change{Entries: volumes(), Bundle: []byte("x")})),
		Entry("by Put of trust alone", put1(webhookconf.Change{Bundle: []byte("x")})),
		Entry("by Put of a note alone", put1(webhookconf.Change{Unneeded: map[string]time.Time{}})),
		Entry("by Put without steps of its kind", put1(webhookconf.Change{Entries: volumes(validating)})),
		Entry("by Delete", func(ctx context.Context, _ *cluster, ours webhookconf.Configuration) error {
			_, err := ours.Delete(ctx)
			return err
		}),
	)
})

// put1 puts a change of the state that the other deployment found.
func put1(change webhookconf.Change) func(context.Context, *cluster, webhookconf.Configuration) error {
	return func(ctx context.Context, c *cluster, ours webhookconf.Configuration) error {
		theirs := webhookconf.Configurations(c, webhookconf.Options{Fingerprint: "eirini-x"}, otherOwner)[0]
		_, outcome, err := ours.Put(ctx, get(ctx, theirs), change)
		Expect(outcome).To(BeEmpty())
		return err
	}
}
