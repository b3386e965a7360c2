package rotation_test

import (
	"os"
	"strconv"
	"testing"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"k8s.io/client-go/kubernetes"

	. "code.cloudfoundry.org/eirinix/internal/spectest"
	"code.cloudfoundry.org/eirinix/testing/internal/controlplane"
)

// patience bounds the time that a slow machine may take. A spec that passes does not wait for it.
const patience = time.Minute

func TestRotation(t *testing.T) {
	RegisterFailHandler(Fail)
	SetDefaultEventuallyTimeout(patience)
	RunSpecs(t, "Rotation", Label("api-server"))
}

// rotations is how many a long spec makes. It usually makes fewer than with EIRINIX_ROTATIONS.
func rotations(usually int) int {
	text := os.Getenv("EIRINIX_ROTATIONS")
	if text == "" {
		return usually
	}
	n, err := strconv.Atoi(text)
	Expect(err).NotTo(HaveOccurred(), "EIRINIX_ROTATIONS")
	return n
}

// servers are the API servers of one cluster, on one etcd; each has its own view of webhook configurations.
var servers []*controlplane.APIServer

// plane is the cluster.
var plane *controlplane.Plane

var _ = BeforeSuite(func(ctx SpecContext) {
	var err error
	plane, err = controlplane.New(ctx, controlplane.Options{Progress: GinkgoWriter})
	Expect(err).NotTo(HaveOccurred())
	DeferCleanup(plane.Stop)
	second, err := plane.AddAPIServer(ctx)
	Expect(err).NotTo(HaveOccurred())
	servers = []*controlplane.APIServer{plane.APIServer(), second}
})

// clientsOf returns a client of one API server.
func clientsOf(server int) kubernetes.Interface {
	GinkgoHelper()
	return Clients(servers[server].Config())
}
