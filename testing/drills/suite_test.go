package drills_test

// This file starts the control plane, in a network namespace.

import (
	"errors"
	"fmt"
	"os"
	"syscall"
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

// noNamespace is the reason why this process has no network namespace of its own; nil if it has one.
var noNamespace error

func TestMain(m *testing.M) {
	code, isOutside, err := netns.Run()
	if isOutside && err == nil {
		os.Exit(code)
	}
	noNamespace = err
	os.Exit(m.Run())
}

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
	err := noNamespace
	if err == nil {
		err = netns.SetUp("10.88.0.1/16", "10.96.0.1/16")
	}
	if noNamespace != nil || errors.Is(err, syscall.EPERM) {
		reason := fmt.Sprintf("the specs need a network namespace of their own, and this machine permits none: %v", err)
		fmt.Println("SKIPPED:", reason)
		Skip(reason)
	}
	Expect(err).NotTo(HaveOccurred())
	plane, err := eirinixtest.NewControlPlane(ctx, eirinixtest.ControlPlaneOptions{
		Progress: GinkgoWriter, APIServerArgs: append(auditArgs(), "--enable-aggregator-routing=true"),
	})
	Expect(err).NotTo(HaveOccurred())
	DeferCleanup(plane.Stop)
	config, admin = plane.Config(), Clients(plane.Config())
})
