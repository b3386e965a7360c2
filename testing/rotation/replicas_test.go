package rotation_test

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"

	"code.cloudfoundry.org/eirinix"
	"code.cloudfoundry.org/eirinix/internal/ca"
	"code.cloudfoundry.org/eirinix/internal/certsecret"

	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
)

const serviceName = "replicas"

// deployment is a program that runs in several replicas behind a Service.
type deployment struct {
	namespace string // of the Service and the Secret, and the fingerprint
	objects   string // the namespace whose objects are admitted
	rotation  eirinix.Rotation
	source    eirinix.CertificateSource // of replicas that are started from now on; nil for our own CA
	more      []any                     // steps that replicas have which are started from now on, beside those of all
	balancer  *balancer
	replicas  []*replica
	started   int

	crash atomic.Pointer[crash] // where the next replica is lost; nil for nowhere

	calls    atomic.Int64 // of steps
	closing  sync.Map     // the servers that close each connection after its first answer
	renewals atomic.Int64 // of serving certificates
}

// replica is one Manager.
type replica struct {
	*eirinix.ExtensionManager
	name   string
	server int // the API server that it is connected to
	line   *line
	done   <-chan error
}

// deploy starts a program with that many replicas, which take turns with the API servers.
func deploy(ctx context.Context, replicas int, rotation eirinix.Rotation) *deployment {
	GinkgoHelper()
	d := &deployment{rotation: rotation}
	d.namespace = newNamespace(ctx)
	d.objects = newNamespace(ctx)
	b, err := newBalancer()
	Expect(err).NotTo(HaveOccurred())
	DeferCleanup(b.listener.Close)
	d.balancer = b
	_, err = clientsOf(0).CoreV1().Services(d.namespace).Create(ctx, &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Name: serviceName},
		// There is no kube-proxy here; an ExternalName is resolved by the API server itself.
		Spec: corev1.ServiceSpec{Type: corev1.ServiceTypeExternalName, ExternalName: "localhost"},
	}, metav1.CreateOptions{})
	Expect(err).NotTo(HaveOccurred())
	DeferCleanup(func(ctx context.Context) {
		hooks := clientsOf(0).AdmissionregistrationV1()
		Expect(hooks.MutatingWebhookConfigurations().Delete(ctx, d.mutating(), metav1.DeleteOptions{})).To(Succeed())
		Expect(hooks.ValidatingWebhookConfigurations().Delete(ctx, d.validating(), metav1.DeleteOptions{})).To(Succeed())
	})
	DeferCleanup(func(ctx context.Context) {
		for len(d.replicas) > 0 {
			d.retire(ctx, d.replicas[0])
		}
	})
	for n := range replicas {
		d.start(ctx, n%len(servers))
	}
	return d
}

func newNamespace(ctx context.Context) string {
	GinkgoHelper()
	ns, err := clientsOf(0).CoreV1().Namespaces().Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{GenerateName: "rotation-"}}, metav1.CreateOptions{})
	Expect(err).NotTo(HaveOccurred())
	return ns.Name
}

func (d *deployment) mutating() string   { return d.namespace + "-mutating-hook" }
func (d *deployment) validating() string { return d.namespace + "-validating-hook" }
func (d *deployment) secret() string     { return d.namespace + "-setupcertificate" }

// start runs one more replica, connected to that API server, and sends it calls once it is ready.
func (d *deployment) start(ctx context.Context, server int) *replica {
	GinkgoHelper()
	d.started++
	r := &replica{name: fmt.Sprintf("replica-%d", d.started), server: server}
	r.line = newLine(r, d)
	config := servers[server].Config()
	config.Wrap(r.line.wrap)
	r.ExtensionManager = eirinix.NewManager(eirinix.ManagerOptions{
		Namespace:           d.objects,
		OperatorFingerprint: d.namespace,
		ServiceName:         serviceName,
		WebhookNamespace:    d.namespace,
		Port:                d.balancer.port(),
		ListenAddress:       "127.0.0.1:0",
		RestConfig:          config,
		Logger:              d.logger(r.name),
		Rotation:            d.rotation,
		Certificates:        d.source,
		DrainDelay:          time.Second,
	})
	for _, step := range append(d.steps(), d.more...) {
		Expect(r.AddExtension(step)).To(Succeed())
	}
	done := make(chan error, 1)
	r.done = done
	go func() { done <- r.Run(context.WithoutCancel(ctx)) }()
	Eventually(func() error {
		select {
		case <-r.Ready():
			return nil
		case err := <-done:
			return StopTrying(fmt.Sprintf("Run returned before Ready: %v", err))
		default:
			return fmt.Errorf("not ready")
		}
	}).WithContext(ctx).Should(Succeed())
	d.replicas = append(d.replicas, r)
	d.balancer.add(r.Addr().String())
	return r
}

// retire stops a replica as a rollout does: its endpoint goes first.
func (d *deployment) retire(ctx context.Context, r *replica) {
	GinkgoHelper()
	d.balancer.remove(r.Addr().String())
	d.replicas = slices.DeleteFunc(d.replicas, func(other *replica) bool { return other == r })
	r.Stop()
	Eventually(r.done).WithContext(ctx).Should(Receive(BeNil()), r.name)
}

// replace has a new replica take the place of r.
func (d *deployment) replace(ctx context.Context, r *replica) *replica {
	GinkgoHelper()
	successor := d.start(ctx, r.server)
	d.retire(ctx, r)
	return successor
}

// steps are what every replica does: change and check every ConfigMap, by one webhook entry each, and by one more that
// matches nothing.
func (d *deployment) steps() []any {
	slow := eirinix.Settings{Timeout: 30 * time.Second} // whether a busy machine is fast enough is not the question
	return []any{
		eirinix.Mutation[*corev1.ConfigMap]{ID: "mark", Settings: slow, Apply: func(ctx context.Context, _ *eirinix.Call, c *corev1.ConfigMap) error {
			d.called(ctx)
			if c.Data == nil {
				c.Data = map[string]string{}
			}
			c.Data["mutated"] = "yes"
			return nil
		}},
		eirinix.Mutation[*corev1.ConfigMap]{
			ID: "spare", Apply: func(context.Context, *eirinix.Call, *corev1.ConfigMap) error { return nil },
			Settings: eirinix.Settings{Isolated: true, Objects: &metav1.LabelSelector{MatchLabels: map[string]string{"spare": "yes"}}},
		},
		eirinix.Validation[*corev1.ConfigMap]{ID: "check", Settings: slow, Create: func(ctx context.Context, _ *eirinix.Call, c *corev1.ConfigMap) error {
			d.called(ctx)
			if c.Data["mutated"] != "yes" {
				return eirinix.Deny("it was not mutated")
			}
			return nil
		}},
	}
}

// called counts, and has the server close the connection after this answer, so that the next call needs a handshake.
func (d *deployment) called(ctx context.Context) {
	d.calls.Add(1)
	if server, ok := ctx.Value(http.ServerContextKey).(*http.Server); ok {
		if _, done := d.closing.LoadOrStore(server, true); !done {
			server.SetKeepAlivesEnabled(false)
		}
	}
}

func (d *deployment) logger(name string) *zap.SugaredLogger {
	core := zapcore.NewCore(zapcore.NewConsoleEncoder(zap.NewDevelopmentEncoderConfig()), zapcore.AddSync(GinkgoWriter), zapcore.InfoLevel)
	return zap.New(core, zap.Hooks(func(e zapcore.Entry) error {
		if e.Message == "serving certificate renewed" {
			d.renewals.Add(1)
		}
		return nil
	})).Named(name).Sugar()
}

// state reads the Secret through an API server.
func (d *deployment) state(ctx context.Context, clients kubernetes.Interface) *certsecret.State {
	GinkgoHelper()
	state, err := d.store(clients).Load(ctx)
	Expect(err).NotTo(HaveOccurred())
	return state
}

func (d *deployment) store(clients kubernetes.Interface) *certsecret.Store {
	return &certsecret.Store{
		Secrets: clients.CoreV1().Secrets(d.namespace), Namespace: d.namespace, Name: d.secret(), Lifetime: d.rotation.CALifetime,
	}
}

// request asks for a rotation with the Secret's annotation.
func (d *deployment) request(ctx context.Context, clients kubernetes.Interface, value string) {
	GinkgoHelper()
	patch := fmt.Sprintf(`{"metadata":{"annotations":{%q:%q}}}`, certsecret.RotateAnnotation, value)
	_, err := clients.CoreV1().Secrets(d.namespace).Patch(ctx, d.secret(), types.MergePatchType, []byte(patch), metav1.PatchOptions{})
	Expect(err).NotTo(HaveOccurred())
}

// bundles gives the caBundle of every webhook entry.
func (d *deployment) bundles(ctx context.Context, clients kubernetes.Interface) (all [][]byte, err error) {
	hooks := clients.AdmissionregistrationV1()
	m, err := hooks.MutatingWebhookConfigurations().Get(ctx, d.mutating(), metav1.GetOptions{})
	if err != nil {
		return nil, err
	}
	v, err := hooks.ValidatingWebhookConfigurations().Get(ctx, d.validating(), metav1.GetOptions{})
	if err != nil {
		return nil, err
	}
	for _, w := range m.Webhooks {
		all = append(all, w.ClientConfig.CABundle)
	}
	for _, w := range v.Webhooks {
		all = append(all, w.ClientConfig.CABundle)
	}
	return all, nil
}

// settle waits until one CA stands everywhere and nothing is due.
func (d *deployment) settle(ctx context.Context, clients kubernetes.Interface) *certsecret.State {
	GinkgoHelper()
	var state *certsecret.State
	Eventually(func(g Gomega) {
		var err error
		state, err = d.store(clients).Load(ctx)
		g.Expect(err).NotTo(HaveOccurred())
		g.Expect(state.Phase).To(Equal(ca.Steady))
		g.Expect(state.Requested()).To(BeFalse())
		bundles, err := d.bundles(ctx, clients)
		g.Expect(err).NotTo(HaveOccurred())
		g.Expect(bundles).To(HaveLen(4)) // of three steps, and the canary
		for _, bundle := range append(bundles, state.RegisteredBundle) {
			g.Expect(ca.EqualBundles(bundle, state.Bundle())).To(BeTrue(), "the caBundle holds %d CAs", len(ca.SplitBundle(bundle)))
		}
	}).WithContext(ctx).WithPolling(20 * time.Millisecond).Should(Succeed())
	return state
}

// expectNoFailure ends the load, reports its figures and sees that nothing failed, and that every call had a handshake
// of its own.
func (d *deployment) expectNoFailure(l *load, what string) {
	GinkgoHelper()
	l.end()
	d.report(l, what)
	failures := l.failing()
	Expect(failures).To(BeEmpty(), "%d of %d admissions failed", len(failures), int64(len(failures))+l.total())
	Expect(d.balancer.unserved.Load()).To(BeZero())
	Expect(d.balancer.resumed.Load()).To(BeZero(), "handshakes without a certificate")
	Expect(d.calls.Load()).To(BeNumerically(">=", 2*l.total()))
	Expect(d.balancer.handshakes.Load()).To(BeNumerically(">=", d.calls.Load()), "calls without a handshake of their own")
}

func (d *deployment) report(l *load, what string) {
	AddReportEntry(fmt.Sprintf("%s: %d admissions, %d failures, %d calls, %d handshakes, %d renewals of serving certificates",
		what, l.total(), len(l.failing()), d.calls.Load(), d.balancer.handshakes.Load(), d.renewals.Load()), ReportEntryVisibilityAlways)
}
