package balancing_test

// This file restarts the replicas of a program under load, lets other programs take an address that a replica gave up, and
// holds the API servers that call them.

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
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

// volume is how many restarts a spec makes, and how many calls at least.
func volume() (restarts, calls int) {
	if os.Getenv("EIRINIX_SOAK") != "" {
		return 30, 20_000
	}
	return 2, 300 // one restart of each sort
}

// startLoad sends pods one by one, and bursts of them. For a burst an API server opens connections, of which most are idle
// until the next one: calls of those meet a replica that has been told to stop.
func startLoad(p *program) *load.Stream {
	s := load.NewStream()
	s.Send("pod", 20*time.Millisecond, 20, func(ctx context.Context, _ int) error { return p.send(ctx) })
	s.Send("burst", 600*time.Millisecond, 1, func(ctx context.Context, _ int) error {
		const pods = 15
		sent := make(chan error, pods)
		for range pods {
			go func() { sent <- p.send(ctx) }()
		}
		var all []error
		for range pods {
			all = append(all, <-sent)
		}
		return errors.Join(all...)
	})
	return s
}

// expectSpread sees that calls one after the other reach all replicas if the API server balances calls. Otherwise most of
// them stay on the connection that the first of them opened.
func (p *program) expectSpread(ctx context.Context) {
	GinkgoHelper()
	clear(p.answered)
	for range 90 {
		Expect(p.send(ctx)).To(Succeed())
	}
	if p.server.balances {
		Expect(p.answered).To(HaveLen(len(p.replicas)))
		return
	}
	Expect(slices.Max(slices.Collect(maps.Values(p.answered)))).To(BeNumerically(">", 45))
}

var _ = Describe("Rolling restarts of three replicas behind a Service", func() {
	DescribeTable("fail no call, and no call goes to a program that took the address of a replica", Label("soak"),
		func(ctx SpecContext, server func() *apiServer) {
			restarts, calls := volume()
			p := deploy(ctx, server(), 3, 0) // the default of DrainDelay covers the time after which API servers know the endpoints
			p.expectSpread(ctx)
			began := time.Now()
			s := startLoad(p)
			var intruders []*intruder
			for n := range restarts {
				old := p.replicas[0]
				if n%3 == 0 {
					By("starting the successor at the same address, later")
					p.dismiss(ctx, old)
					p.bury(ctx, old)
					p.join(ctx, old.endpoint)
				} else {
					By("starting the successor at another address, before, and another program at the old one as soon as it is free")
					p.join(ctx, load.NewEndpoint())
					p.dismiss(ctx, old)
					intruders = append(intruders, intrude(ctx, old.endpoint))
					p.bury(ctx, old)
				}
				for _, r := range p.replicas {
					if p.server.balances {
						Eventually(p.answeredBy).WithArguments(r.Name).WithContext(ctx).Should(BeNumerically(">", 0), r.Name)
					}
				}
				Eventually(func() int { return p.answeredBy() }).WithContext(ctx).Should(BeNumerically(">=", (n+1)*calls/restarts))
				Expect(s.Failures()).To(BeEmpty(), "after %d restarts", n+1)
			}
			s.End()
			AddReportEntry(fmt.Sprintf("%d calls in %s, %d failed, %d restarts", p.answeredBy(), time.Since(began).Round(time.Second), len(s.Failures()), restarts), ReportEntryVisibilityAlways)
			Expect(s.Failures()).To(BeEmpty())
			for _, i := range intruders {
				i.expectNothing(ctx)
			}
		},
		Entry("which the API server dials itself (aggregator routing)", func() *apiServer { return dialsEndpoints }, SpecTimeout(time.Hour)),
		Entry("at its cluster IP", func() *apiServer { return dialsClusterIP }, SpecTimeout(time.Hour)),
	)
})

// intruder is another program. It counts the connections to it, and closes them.
type intruder struct {
	net.Listener
	connections atomic.Int64
}

// intrude runs another program at an endpoint, as soon as that is free, until the spec ends.
func intrude(ctx context.Context, endpoint string) *intruder {
	GinkgoHelper()
	i := &intruder{}
	Eventually(func() (err error) {
		i.Listener, err = net.Listen("tcp", endpoint)
		return err
	}).WithContext(ctx).WithPolling(time.Millisecond).Should(Succeed())
	DeferCleanup(i.Close)
	go func() {
		for conn, err := i.Accept(); err == nil; conn, err = i.Accept() {
			i.connections.Add(1)
			_ = conn.Close()
		}
	}()
	return i
}

// expectNothing sees that no connection came, and then that one would have been counted.
func (i *intruder) expectNothing(ctx context.Context) {
	GinkgoHelper()
	Expect(i.connections.Load()).To(BeZero(), "connections to the program that took %s", i.Addr())
	conn := Must((&net.Dialer{}).DialContext(ctx, "tcp", i.Addr().String()))
	defer conn.Close()
	Eventually(i.connections.Load).WithContext(ctx).Should(BeEquivalentTo(1))
}

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
