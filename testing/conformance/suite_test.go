package conformance_test

import (
	"testing"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	eirinixtest "code.cloudfoundry.org/eirinix/testing"
)

// patience bounds the time that a slow machine may take. A spec that passes does not wait for it.
const patience = 30 * time.Second

// pollMarker is how often the API server is asked whether it acts on a configuration: its informer takes some
// milliseconds.
const pollMarker = 5 * time.Millisecond

func TestConformance(t *testing.T) {
	RegisterFailHandler(Fail)
	SetDefaultEventuallyTimeout(patience)
	RunSpecs(t, "Conformance", Label("api-server"))
}

// started is one control plane for the whole suite.
var started *eirinixtest.ControlPlane

var _ = BeforeSuite(func(ctx SpecContext) {
	c, err := eirinixtest.NewControlPlane(ctx, eirinixtest.ControlPlaneOptions{Progress: GinkgoWriter})
	Expect(err).NotTo(HaveOccurred())
	started = c
	DeferCleanup(c.Stop)
	v, err := clients().Discovery().ServerVersion()
	Expect(err).NotTo(HaveOccurred())
	running = *v
	makeMarkerNamespace(ctx)
})

func controlPlane() *eirinixtest.ControlPlane { return started }
