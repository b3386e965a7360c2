package greeting_test

import (
	"testing"

	. "github.com/onsi/gomega"

	"code.cloudfoundry.org/eirinix/examples/hello/greeting"
	eirinixtest "code.cloudfoundry.org/eirinix/testing"
)

const pod = "{apiVersion: v1, kind: Pod, metadata: {name: web}, spec: {containers: [{name: main, image: nginx}]}}"

func TestPodsAreGreeted(t *testing.T) {
	h := eirinixtest.NewHarness(t, greeting.Extension{})
	NewWithT(t).Expect(h.Create(pod)).To(eirinixtest.HavePatched(
		eirinixtest.Operation("add", "/metadata/labels", map[string]string{greeting.Label: "true"}),
		eirinixtest.Operation("add", "/spec/containers/0/env", []any{map[string]string{"name": greeting.Variable, "value": greeting.Message}}),
	))
}

func TestWhatEveryWebhookPromises(t *testing.T) {
	eirinixtest.NewHarness(t, greeting.Extension{}).CheckProperties(pod)
}
