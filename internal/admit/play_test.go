package admit_test

// Specs of what a step that is played has in common with one that is called.

import (
	"context"
	"errors"

	"github.com/go-logr/logr"
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime"

	"code.cloudfoundry.org/eirinix/internal/audit"
	"code.cloudfoundry.org/eirinix/internal/chain"
	"code.cloudfoundry.org/eirinix/internal/hang"
)

var _ = Describe("A step that is played", func() {
	play := func(s chain.Step) audit.Verdict {
		return audit.NewPlayer(s, logr.Discard()).Play(context.Background(), request())
	}
	label := onPod("label", func(p *corev1.Pod) error { p.Labels = map[string]string{"a": secret}; return nil })
	refuse := check("refuse", newPod, func(_, _ runtime.Object) error {
		return apierrors.NewForbidden(corev1.Resource("pods"), "web-0", errors.New("too large"))
	})

	DescribeTable("makes the patch and the denial of a request, whatever its mode and failurePolicy", func(mode chain.Mode, ignore bool) {
		own := func(s chain.Step) chain.Step { s.Mode, s.Ignore = mode, ignore; return s }
		asked, _ := serve(chain.Config{Steps: []chain.Step{label}})
		v := play(own(label))
		Expect(v.Err).NotTo(HaveOccurred())
		Expect(v.Denied).To(BeNil())
		Expect(v.Patch).To(MatchJSON(asked.review("v1").Patch))
		Expect(chain.Paths(v.Patch)).To(Equal([]string{"/metadata/labels"}))
		Expect(v.Changed([]byte(pod))).To(ContainSubstring(`"labels":{"a":"` + secret + `"}`))
		asked, _ = serve(chain.Config{Validating: true, Steps: []chain.Step{refuse}})
		Expect(play(own(refuse)).Denied).To(Equal(asked.review("v1").Result))
		failed := play(own(check("fails", newPod, func(_, _ runtime.Object) error { return errors.New("down") })))
		Expect(failed.Err).To(And(MatchError("down"), Not(MatchError(chain.ErrUnreadable)), Not(BeAssignableToTypeOf(&hang.PanicError{}))))
	},
		Entry("Deny", chain.ModeDeny, false),
		Entry("Warn, Ignore", chain.ModeWarn, true),
		Entry("Audit", chain.ModeAudit, false),
		Entry("Shadow, Ignore", chain.ModeShadow, true),
	)
})
