package rotation_test

import (
	"bytes"
	"context"
	"crypto/tls"
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"sync/atomic"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	admissionv1 "k8s.io/api/admission/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"code.cloudfoundry.org/eirinix"
	"code.cloudfoundry.org/eirinix/internal/ca"
	"code.cloudfoundry.org/eirinix/internal/certsecret"
	. "code.cloudfoundry.org/eirinix/internal/spectest"
	eirinixtest "code.cloudfoundry.org/eirinix/testing"

	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
)

const (
	serviceName = "replicas"
	drainDelay  = time.Second
)

// deployment is a program that runs in several replicas behind a Service.
type deployment struct {
	namespace string // of the Service and the Secret, and the fingerprint
	objects   string // the namespace whose objects are admitted
	rotation  lifetimes
	source    eirinix.CertificateSource     // of replicas that are started from now on; nil for our own CA
	more      []any                         // steps that replicas have which are started from now on, beside those of all
	change    func(*eirinix.ManagerOptions) // of replicas that are started from now on; nil for nothing
	balancer  *balancer
	replicas  []*replica
	started   int

	crash atomic.Pointer[crash] // where the next replica is lost; nil for nowhere

	calls    atomic.Int64 // of steps
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

func (r *replica) endpoint() string { return r.Addr().String() }

// lifetimes are those of a program's certificates. Zero means the default.
type lifetimes struct{ CA, Leaf, Retain time.Duration }

// deploy starts a program with that many replicas, which take turns with the API servers.
func deploy(ctx context.Context, replicas int, rotation lifetimes) *deployment {
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
		Expect(client.IgnoreNotFound(hooks.MutatingWebhookConfigurations().Delete(ctx, d.mutating(), metav1.DeleteOptions{}))).To(Succeed())
		Expect(client.IgnoreNotFound(hooks.ValidatingWebhookConfigurations().Delete(ctx, d.validating(), metav1.DeleteOptions{}))).To(Succeed())
	})
	DeferCleanup(func(ctx context.Context) {
		last := slices.Clone(d.replicas)
		for _, r := range last {
			d.dismiss(r)
		}
		d.stopped(ctx, last...)
	})
	for n := range replicas {
		d.start(ctx, n%len(servers))
	}
	return d
}

func newNamespace(ctx context.Context) string {
	GinkgoHelper()
	return NewNamespace(ctx, clientsOf(0), nil).Name
}

func (d *deployment) mutating() string   { return d.namespace + "-mutating-hook" }
func (d *deployment) validating() string { return d.namespace + "-validating-hook" }
func (d *deployment) secret() string     { return d.namespace + "-setupcertificate" }
func (d *deployment) lease() string      { return d.namespace + "-versions" }

// start runs one more replica, connected to that API server, and sends it calls once it is ready.
func (d *deployment) start(ctx context.Context, server int) *replica {
	GinkgoHelper()
	r := d.launch(ctx, server)
	Eventually(func() error {
		select {
		case <-r.Ready():
			return nil
		case err := <-r.done:
			return StopTrying(fmt.Sprintf("Run returned before Ready: %v", err))
		default:
			return fmt.Errorf("not ready")
		}
	}).WithContext(ctx).WithTimeout(patience).Should(Succeed())
	d.closeEach(ctx, r)
	d.replicas = append(d.replicas, r)
	d.balancer.add(r.endpoint())
	return r
}

// closeEach has a replica close every connection after its answer, by a call of the step that asks its server for that. It
// must be so before the first call of an API server: a connection that is closed later may be in use again.
func (d *deployment) closeEach(ctx context.Context, r *replica) {
	GinkgoHelper()
	review, err := json.Marshal(admissionv1.AdmissionReview{
		TypeMeta: metav1.TypeMeta{APIVersion: admissionv1.SchemeGroupVersion.String(), Kind: "AdmissionReview"},
		Request: &admissionv1.AdmissionRequest{
			UID: "first", Operation: admissionv1.Create, Name: "first", Namespace: d.objects,
			Kind: metav1.GroupVersionKind{Version: "v1", Kind: "ConfigMap"}, Resource: metav1.GroupVersionResource{Version: "v1", Resource: "configmaps"},
			Object: runtime.RawExtension{Raw: []byte(`{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"first","labels":{"spare":"yes"}}}`)},
		},
	})
	Expect(err).NotTo(HaveOccurred())
	post, err := http.NewRequestWithContext(ctx, http.MethodPost, "https://"+r.endpoint()+"/mutate/spare", bytes.NewReader(review))
	Expect(err).NotTo(HaveOccurred())
	post.Header.Set("Content-Type", "application/json")
	transport := &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}}
	defer transport.CloseIdleConnections()
	resp, err := (&http.Client{Transport: transport}).Do(post)
	Expect(err).NotTo(HaveOccurred())
	defer func() { _ = resp.Body.Close() }()
	Expect(resp).To(And(HaveHTTPStatus(http.StatusOK), HaveField("Close", BeTrue())))
}

// launch runs one more replica, and waits for nothing.
func (d *deployment) launch(ctx context.Context, server int) *replica {
	GinkgoHelper()
	r := d.manager(server, d.nextName())
	d.started++
	for _, step := range append(d.steps(), d.more...) {
		Expect(r.AddExtension(step)).To(Succeed())
	}
	done := make(chan error, 1)
	r.done = done
	go func() { done <- r.Run(context.WithoutCancel(ctx)) }()
	DeferCleanup(r.Stop)
	return r
}

func (d *deployment) nextName() string { return fmt.Sprintf("replica-%d", d.started+1) }

// manager makes a Manager with the options of the deployment, changed in this way, and without steps.
func (d *deployment) manager(server int, name string, changes ...func(*eirinix.ManagerOptions)) *replica {
	r := &replica{name: name, server: server}
	r.line = newLine(r, d)
	config := servers[server].Config()
	config.Wrap(r.line.wrap)
	o := eirinix.ManagerOptions{
		Namespace:           d.objects,
		OperatorFingerprint: d.namespace,
		ServiceName:         serviceName,
		WebhookNamespace:    d.namespace,
		Port:                d.balancer.port(),
		ListenAddress:       "127.0.0.1:0",
		RestConfig:          config,
		Logger:              d.logger(name),
		CALifetime:          d.rotation.CA,
		Certificates:        d.source,
		DrainDelay:          drainDelay,
	}
	if d.change != nil {
		changes = append(changes, d.change)
	}
	for _, change := range changes {
		change(&o)
	}
	r.ExtensionManager = eirinix.NewManager(o)
	eirinixtest.SetLifetimes(r.ExtensionManager, eirinixtest.Lifetimes{Leaf: d.rotation.Leaf, Retain: d.rotation.Retain})
	return r
}

// retire stops a replica as a rollout does: its endpoint goes first.
func (d *deployment) retire(ctx context.Context, r *replica) {
	GinkgoHelper()
	d.dismiss(r)
	d.stopped(ctx, r)
}

// dismiss is the first part of retire.
func (d *deployment) dismiss(r *replica) {
	d.forget(r)
	r.Stop()
}

// stopped waits for the end of replicas.
func (d *deployment) stopped(ctx context.Context, all ...*replica) {
	GinkgoHelper()
	for _, r := range all {
		Eventually(r.done).WithContext(ctx).WithTimeout(patience).Should(Receive(BeNil()), r.name)
	}
}

// forget takes the endpoint of a replica away.
func (d *deployment) forget(r *replica) {
	d.balancer.remove(r.endpoint())
	d.replicas = slices.DeleteFunc(d.replicas, func(other *replica) bool { return other == r })
}

// kill ends replicas without a shutdown, all at once, after the calls that they have begun: the library cannot prevent that
// those fail.
func (d *deployment) kill(ctx context.Context, all ...*replica) {
	GinkgoHelper()
	for _, r := range all {
		d.forget(r)
	}
	for _, r := range all {
		Eventually(d.balancer.standing).WithArguments(r.endpoint()).WithContext(ctx).WithTimeout(patience).WithPolling(5*time.Millisecond).Should(BeZero(), r.name)
	}
	for _, r := range all {
		r.line.cut()
	}
	for _, r := range all {
		r.Stop() // closes its listener, and writes nothing, because its line is cut
	}
}

// replace has a new replica take the place of r.
func (d *deployment) replace(ctx context.Context, r *replica) *replica {
	GinkgoHelper()
	successor := d.start(ctx, r.server)
	d.retire(ctx, r)
	return successor
}

// steps are those of every replica. They change and check every ConfigMap, by one webhook entry each, and by one more that
// matches nothing.
func (d *deployment) steps() []any {
	slow := eirinix.Settings{Timeout: 10 * time.Second} // whether a busy machine is fast enough is not the question
	return []any{
		eirinix.Mutation[*corev1.ConfigMap]{ID: "mark", Settings: slow, Apply: func(_ context.Context, _ *eirinix.Call, c *corev1.ConfigMap) error {
			d.calls.Add(1)
			if c.Data == nil {
				c.Data = map[string]string{}
			}
			c.Data["mutated"] = "yes"
			return nil
		}},
		eirinix.Mutation[*corev1.ConfigMap]{
			ID: "spare", Apply: func(ctx context.Context, _ *eirinix.Call, _ *corev1.ConfigMap) error {
				closeConnections(ctx)
				return nil
			},
			Settings: eirinix.Settings{Isolated: true, Objects: &metav1.LabelSelector{MatchLabels: map[string]string{"spare": "yes"}}},
		},
		eirinix.Validation[*corev1.ConfigMap]{ID: "check", Settings: slow, Create: func(_ context.Context, _ *eirinix.Call, c *corev1.ConfigMap) error {
			d.calls.Add(1)
			if c.Data["mutated"] != "yes" {
				return eirinix.Deny("it was not mutated")
			}
			return nil
		}},
	}
}

// closeConnections has the server that calls close each connection after its answer, so that the next call needs a
// handshake.
func closeConnections(ctx context.Context) {
	if server, ok := ctx.Value(http.ServerContextKey).(*http.Server); ok {
		server.SetKeepAlivesEnabled(false)
	}
}

func (d *deployment) logger(name string) *zap.SugaredLogger {
	return zap.New(Log(), zap.Hooks(func(e zapcore.Entry) error {
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
		Secrets: clients.CoreV1().Secrets(d.namespace), Namespace: d.namespace, Name: d.secret(), Lifetime: d.rotation.CA, Now: time.Now,
	}
}

// request asks for a rotation with the Secret's annotation.
func (d *deployment) request(ctx context.Context, clients kubernetes.Interface, value string) {
	GinkgoHelper()
	patch := fmt.Sprintf(`{"metadata":{"annotations":{%q:%q}}}`, certsecret.RotateAnnotation, value)
	_, err := clients.CoreV1().Secrets(d.namespace).Patch(ctx, d.secret(), types.MergePatchType, []byte(patch), metav1.PatchOptions{})
	Expect(err).NotTo(HaveOccurred())
}

// bundles returns the caBundle of every webhook entry.
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
func (d *deployment) expectNoFailure(l *load, phase string) {
	GinkgoHelper()
	l.end()
	d.report(l, phase)
	failures := l.failing()
	Expect(failures).To(BeEmpty(), "%d of %d admissions failed", len(failures), int64(len(failures))+l.total())
	Expect(d.balancer.unserved.Load()).To(BeZero(), "connections without a replica")
	Expect(d.balancer.resumed.Load()).To(BeZero(), "handshakes without a certificate")
	Expect(d.calls.Load()).To(BeNumerically(">=", 2*l.total()))
	Expect(d.balancer.handshakes.Load()).To(BeNumerically(">=", d.calls.Load()), "calls without a handshake of their own")
}

func (d *deployment) report(l *load, phase string) {
	AddReportEntry(fmt.Sprintf("%s: %d admissions, %d failures, %d calls, %d handshakes, %d renewals of serving certificates",
		phase, l.total(), len(l.failing()), d.calls.Load(), d.balancer.handshakes.Load(), d.renewals.Load()), ReportEntryVisibilityAlways)
}
