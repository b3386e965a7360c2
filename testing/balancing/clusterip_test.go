package balancing_test

// This file stands in for kube-proxy: it balances the connections to a cluster IP.

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"sync"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/client-go/informers"
	discoverylisters "k8s.io/client-go/listers/discovery/v1"

	. "code.cloudfoundry.org/eirinix/internal/spectest"
)

// proxy takes connections to one cluster IP. Each goes to a ready endpoint that is picked at random. Connections that
// stand are left alone when the endpoints change.
type proxy struct {
	listener  net.Listener
	endpoints discoverylisters.EndpointSliceNamespaceLister
}

// serveClusterIP runs a proxy until the spec ends.
func serveClusterIP(ctx context.Context, server *apiServer, namespace, clusterIP string) {
	GinkgoHelper()
	factory := informers.NewSharedInformerFactoryWithOptions(server, 0, informers.WithNamespace(namespace))
	slices := factory.Discovery().V1().EndpointSlices()
	p := &proxy{endpoints: slices.Lister().EndpointSlices(namespace)}
	informer := slices.Informer()
	stop := make(chan struct{})
	factory.Start(stop)
	DeferCleanup(func() {
		close(stop)
		factory.Shutdown()
	})
	Eventually(informer.HasSynced).WithContext(ctx).Should(BeTrue())
	p.listener = Must(net.Listen("tcp", net.JoinHostPort(clusterIP, fmt.Sprint(servicePort))))
	DeferCleanup(p.listener.Close)
	go p.serve()
}

func (p *proxy) serve() {
	for {
		conn, err := p.listener.Accept()
		if err != nil {
			return
		}
		go p.forward(conn.(*net.TCPConn))
	}
}

func (p *proxy) forward(from *net.TCPConn) {
	defer from.Close()
	endpoint, err := p.pick()
	if err != nil {
		return // the API server reports the call
	}
	dialled, err := net.Dial("tcp", endpoint)
	if err != nil {
		return
	}
	defer dialled.Close()
	to := dialled.(*net.TCPConn)
	var both sync.WaitGroup
	both.Go(func() { pipe(to, from) })
	both.Go(func() { pipe(from, to) })
	both.Wait()
}

// pick returns one of the ready endpoints.
func (p *proxy) pick() (string, error) {
	all, err := p.endpoints.List(labels.Everything())
	if err != nil {
		return "", err
	}
	var ready []string
	for _, slice := range all {
		for _, e := range slice.Endpoints {
			if *e.Conditions.Ready && slice.AddressType == discoveryv1.AddressTypeIPv4 {
				ready = append(ready, endpointAt(e.Addresses[0]))
			}
		}
	}
	if len(ready) == 0 {
		return "", errors.New("no endpoint is ready")
	}
	return ready[rand.IntN(len(ready))], nil
}

// pipe copies until from ends, and passes the end on.
func pipe(to, from *net.TCPConn) {
	_, _ = io.Copy(to, from)
	_ = to.CloseWrite()
}
