package balancing_test

// This file holds the program under test, and the API servers that call its replicas.

import (
	"context"
	"errors"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"go.uber.org/zap"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"code.cloudfoundry.org/eirinix"
	. "code.cloudfoundry.org/eirinix/internal/spectest"
	eirinixtest "code.cloudfoundry.org/eirinix/testing"
	"code.cloudfoundry.org/eirinix/testing/internal/load"
	"code.cloudfoundry.org/eirinix/testing/internal/netns"
)

func TestMain(m *testing.M) { os.Exit(netns.Main(m)) }

func TestBalancing(t *testing.T) {
	RegisterFailHandler(Fail)
	SetDefaultEventuallyTimeout(load.Patience)
	RunSpecs(t, "Balancing", Label(APIServer))
}

// apiServer is one API server, and its way to a Service.
type apiServer struct {
	*eirinixtest.APIServer
	kubernetes.Interface

	routes   bool // it calls the endpoints of a Service itself
	balances bool // it picks an endpoint for each call
}

// The API servers of one cluster, on one etcd.
var dialsClusterIP, dialsEndpoints *apiServer

var _ = BeforeSuite(func(ctx SpecContext) {
	plane := load.NewControlPlane(ctx)
	dialsClusterIP = &apiServer{APIServer: plane.APIServer(), Interface: Clients(plane.Config())}
	second := Must(plane.AddAPIServer(ctx, "--enable-aggregator-routing=true"))
	dialsEndpoints = &apiServer{APIServer: second, Interface: Clients(second.Config()), routes: true}
	version := Must(dialsEndpoints.Discovery().ServerVersion())
	dialsEndpoints.balances = Must(strconv.Atoi(strings.TrimRight(version.Minor, "+"))) >= 37
})

// program runs in several replicas behind a Service.
type program struct {
	server   *apiServer
	name     string        // its namespace and fingerprint
	objects  string        // the namespace whose pods are labelled
	drain    time.Duration // the DrainDelay of replicas; 0 for the default
	service  *load.Service
	balancer *load.Balancer // nil where the API server routes
	replicas []*replica     // that are listed as ready
	started  []*replica

	mu       sync.Mutex
	answered map[string]int // pods, by the replica that labelled them
}

// replica is at an address of its own.
type replica struct {
	*load.Replica
	endpoint string
}

// deploy starts a program that one API server calls.
func deploy(ctx context.Context, server *apiServer, replicas int, drain time.Duration) *program {
	GinkgoHelper()
	p := &program{server: server, drain: drain, answered: map[string]int{}}
	p.name, p.objects = NewNamespace(ctx, server, nil).Name, NewNamespace(ctx, server, nil).Name
	p.service = load.NewService(ctx, server, p.name, nil)
	if !server.routes {
		p.balancer = load.NewBalancer(p.service.ClusterIP + ":" + strconv.Itoa(load.ServicePort))
	}
	DeferCleanup(func(ctx context.Context) error { // each replica has been told to stop
		for _, r := range p.started {
			load.ExpectEnd(ctx, r.Replica)
		}
		hooks := server.AdmissionregistrationV1().MutatingWebhookConfigurations()
		return client.IgnoreNotFound(hooks.Delete(ctx, p.name+"-mutating-hook", metav1.DeleteOptions{}))
	})
	for range replicas {
		p.join(ctx, load.NewEndpoint())
	}
	Eventually(p.send).WithArguments(ctx).WithContext(ctx).Should(Succeed(), "the API server acts on the configuration")
	return p
}

// join starts one more replica at an endpoint, and lists it as ready.
func (p *program) join(ctx context.Context, endpoint string) {
	GinkgoHelper()
	name := "replica-" + strconv.Itoa(len(p.started)+1)
	m := eirinix.NewManager(eirinix.ManagerOptions{
		Namespace:           p.objects,
		OperatorFingerprint: p.name,
		ServiceName:         load.ServiceName,
		WebhookNamespace:    p.name,
		Port:                load.ServicePort,
		ListenAddress:       endpoint,
		RestConfig:          p.server.Config(),
		Logger:              zap.New(Log()).Named(name).Sugar(),
		DrainDelay:          p.drain,
	})
	Expect(m.AddExtension(eirinix.Mutation[*corev1.Pod]{
		ID: "label", Settings: eirinix.Settings{Timeout: 10 * time.Second}, // the speed of the machine is not the question
		Apply: func(_ context.Context, _ *eirinix.Call, pod *corev1.Pod) error {
			metav1.SetMetaDataLabel(&pod.ObjectMeta, "answered-by", name)
			return nil
		},
	})).To(Succeed())
	r := &replica{load.Start(ctx, name, m), endpoint}
	p.started, p.replicas = append(p.started, r), append(p.replicas, r)
	p.list(ctx)
}

// dismiss begins the end of a replica as a cluster does: the replica is listed as terminating, and its process is asked
// to stop. Neither waits for the effect of the other.
func (p *program) dismiss(ctx context.Context, r *replica) {
	GinkgoHelper()
	p.replicas = slices.DeleteFunc(p.replicas, func(other *replica) bool { return other == r })
	p.list(ctx, r.endpoint)
	r.Stop()
}

// bury waits for the end of a replica, and removes it from the list.
func (p *program) bury(ctx context.Context, r *replica) {
	GinkgoHelper()
	load.ExpectEnd(ctx, r.Replica)
	p.list(ctx)
}

func (p *program) list(ctx context.Context, terminating ...string) {
	GinkgoHelper()
	var ready []string
	for _, r := range p.replicas {
		ready = append(ready, r.endpoint)
	}
	p.service.List(ctx, ready, terminating...)
	if p.balancer != nil {
		p.balancer.Lead(func([]string) []string { return ready })
	}
}

// send has one pod admitted, and counts it for the replica that labelled it.
func (p *program) send(ctx context.Context) error {
	pod := NewPod("", nil)
	pod.GenerateName = "load-"
	pod, err := p.server.CoreV1().Pods(p.objects).Create(ctx, pod, metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
	if err != nil {
		return err
	}
	name := pod.Labels["answered-by"]
	if name == "" {
		return errors.New("admitted without the label")
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.answered[name]++
	return nil
}

// answeredBy is how many pods the replicas of these names have labelled; all replicas, if there is no name.
func (p *program) answeredBy(names ...string) (n int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for name, answered := range p.answered {
		if len(names) == 0 || slices.Contains(names, name) {
			n += answered
		}
	}
	return n
}
