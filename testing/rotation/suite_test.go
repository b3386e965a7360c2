package rotation_test

import (
	"os"
	"strconv"
	"testing"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"k8s.io/client-go/kubernetes"

	. "code.cloudfoundry.org/eirinix/internal/spectest"
	"code.cloudfoundry.org/eirinix/testing/internal/controlplane"
	"code.cloudfoundry.org/eirinix/testing/internal/load"
)

const patience = load.Patience

func TestRotation(t *testing.T) {
	RegisterFailHandler(Fail)
	SetDefaultEventuallyTimeout(patience)
	RunSpecs(t, "Rotation", Label("api-server"))
}

// rotations is how many a long spec makes. It usually makes fewer than with EIRINIX_ROTATIONS.
func rotations(usually int) int {
	if text := os.Getenv("EIRINIX_ROTATIONS"); text != "" {
		return Must(strconv.Atoi(text))
	}
	return usually
}

// The cluster, and its API servers on one etcd. Each has its own view of webhook configurations.
var (
	plane   *controlplane.Plane
	servers []*controlplane.APIServer
)

var _ = BeforeSuite(func(ctx SpecContext) {
	plane = Must(controlplane.New(ctx, controlplane.Options{Progress: GinkgoWriter}))
	DeferCleanup(plane.Stop)
	servers = []*controlplane.APIServer{plane.APIServer(), Must(plane.AddAPIServer(ctx))}
})

// clientsOf returns a client of one API server.
func clientsOf(server int) kubernetes.Interface {
	GinkgoHelper()
	return Clients(servers[server].Config())
}
