package drills_test

// This file starts the control plane, in a network namespace.

import (
	"os"
	"testing"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	. "code.cloudfoundry.org/eirinix/internal/spectest"
	eirinixtest "code.cloudfoundry.org/eirinix/testing"
	"code.cloudfoundry.org/eirinix/testing/internal/netns"
)

// patience bounds the time that a slow machine may take. A spec that passes does not wait for it.
const patience = time.Minute

func TestMain(m *testing.M) { os.Exit(netns.Main(m)) }

func TestDrills(t *testing.T) {
	RegisterFailHandler(Fail)
	SetDefaultEventuallyTimeout(patience)
	RunSpecs(t, "Drills", Label(APIServer))
}

var (
	config *rest.Config
	admin  kubernetes.Interface
)

var _ = BeforeSuite(func(ctx SpecContext) {
	netns.SetUp("10.88.0.1/16", "10.96.0.1/16")
	plane, err := eirinixtest.NewControlPlane(ctx, eirinixtest.ControlPlaneOptions{
		Progress: GinkgoWriter, APIServerArgs: append(auditArgs(), "--enable-aggregator-routing=true"),
	})
	Expect(err).NotTo(HaveOccurred())
	DeferCleanup(plane.Stop)
	config, admin = plane.Config(), Clients(plane.Config())
})
