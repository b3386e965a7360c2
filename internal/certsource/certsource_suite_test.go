package certsource_test

import (
	"testing"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	. "code.cloudfoundry.org/eirinix/internal/spectest"
	eirinixtest "code.cloudfoundry.org/eirinix/testing"
)

func TestCertsource(t *testing.T) {
	RegisterFailHandler(Fail)
	SetDefaultEventuallyTimeout(patience)
	SetDefaultEventuallyPollingInterval(5 * time.Millisecond)
	RunSpecs(t, "internal/certsource")
}

// patience bounds operations that take milliseconds on an idle machine.
const patience = 30 * time.Second

// started is one control plane for the whole suite.
var started *eirinixtest.ControlPlane

var _ = BeforeSuite(func(ctx SpecContext) {
	if !RunsAPIServer() {
		return // the fast half, while typing
	}
	c, err := eirinixtest.NewControlPlane(ctx, eirinixtest.ControlPlaneOptions{Progress: GinkgoWriter})
	Expect(err).NotTo(HaveOccurred())
	started = c
	DeferCleanup(c.Stop)
})
