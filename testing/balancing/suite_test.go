package balancing_test

// This file starts the control plane, in a network namespace.

import (
	"os"
	"strconv"
	"strings"
	"testing"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"k8s.io/client-go/kubernetes"

	. "code.cloudfoundry.org/eirinix/internal/spectest"
	eirinixtest "code.cloudfoundry.org/eirinix/testing"
	"code.cloudfoundry.org/eirinix/testing/internal/netns"
)

// patience bounds the time that a slow machine may take. A spec that passes does not wait for it.
const patience = time.Minute

func TestMain(m *testing.M) { os.Exit(netns.Main(m)) }

func TestBalancing(t *testing.T) {
	RegisterFailHandler(Fail)
	SetDefaultEventuallyTimeout(patience)
	RunSpecs(t, "Balancing", Label(APIServer))
}

// apiServer is one API server, and its way to a Service.
type apiServer struct {
	*eirinixtest.APIServer
	kubernetes.Interface

	routes   bool   // it calls the endpoints of a Service itself
	release  string // of Kubernetes
	balances bool   // it picks an endpoint for each call
}

// The API servers of one cluster, on one etcd.
var dialsClusterIP, dialsEndpoints *apiServer

var _ = BeforeSuite(func(ctx SpecContext) {
	netns.SetUp(podNetwork, serviceNetwork)
	plane, err := eirinixtest.NewControlPlane(ctx, eirinixtest.ControlPlaneOptions{Progress: GinkgoWriter})
	Expect(err).NotTo(HaveOccurred())
	DeferCleanup(plane.Stop)
	second, err := plane.AddAPIServer(ctx, "--enable-aggregator-routing=true")
	Expect(err).NotTo(HaveOccurred())
	dialsClusterIP, dialsEndpoints = newAPIServer(plane.APIServer(), false), newAPIServer(second, true)
})

func newAPIServer(server *eirinixtest.APIServer, routes bool) *apiServer {
	GinkgoHelper()
	s := &apiServer{APIServer: server, Interface: Clients(server.Config()), routes: routes}
	version := Must(s.Discovery().ServerVersion())
	minor := Must(strconv.Atoi(strings.TrimRight(version.Minor, "+")))
	s.release, s.balances = version.GitVersion, routes && minor >= 37
	return s
}

func (s *apiServer) String() string {
	if s.routes {
		return "Kubernetes " + s.release + ", aggregator routing on"
	}
	return "Kubernetes " + s.release + ", aggregator routing off"
}
