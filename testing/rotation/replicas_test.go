package rotation_test

// This file holds the program of the specs: replicas on both API servers, behind a Service.

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/http"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	gomegatypes "github.com/onsi/gomega/types"
	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"code.cloudfoundry.org/eirinix"
	"code.cloudfoundry.org/eirinix/internal/ca"
	"code.cloudfoundry.org/eirinix/internal/certsecret"
	. "code.cloudfoundry.org/eirinix/internal/spectest"
	eirinixtest "code.cloudfoundry.org/eirinix/testing"
	"code.cloudfoundry.org/eirinix/testing/internal/load"
)

// deployment is a program that runs in several replicas behind a Service.
type deployment struct {
	namespace string // of the Service and the Secret, and the fingerprint
	objects   string // the namespace whose objects are admitted
	rotation  lifetimes
	balancer  *load.Balancer
	replicas  []*replica      // that are called
	started   []*load.Replica // that were not killed
	launched  int             // replicas so far

	more []any // steps beside those of all, of replicas that are started from now on

	calls    atomic.Int64 // of steps
	renewals atomic.Int64 // of serving certificates
}

// replica is one Manager.
type replica struct {
	*load.Replica
	server int                // the API server that it is connected to
	cut    context.CancelFunc // from then on it learns and writes nothing more, but serves
}

func (r *replica) endpoint() string { return r.Addr().String() }

// lifetimes are those of a program's certificates. Zero means the default.
type lifetimes struct{ CA, Leaf, Retain time.Duration }

// deploy prepares a program, and starts so many replicas.
func deploy(ctx context.Context, replicas int, rotation lifetimes) *deployment {
	GinkgoHelper()
	d := &deployment{rotation: rotation, balancer: load.NewBalancer("127.0.0.1:0")}
	d.namespace, d.objects = NewNamespace(ctx, clientsOf(0), nil).Name, NewNamespace(ctx, clientsOf(0), nil).Name
	Must(clientsOf(0).CoreV1().Services(d.namespace).Create(ctx, &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Name: load.ServiceName},
		// There is no kube-proxy here; an ExternalName is resolved by the API server itself.
		Spec: corev1.ServiceSpec{Type: corev1.ServiceTypeExternalName, ExternalName: "localhost"},
	}, metav1.CreateOptions{}))
	DeferCleanup(func(ctx context.Context) error { // each replica has been told to stop
		load.ExpectEnd(ctx, d.started...)
		hooks := clientsOf(0).AdmissionregistrationV1()
		return errors.Join(client.IgnoreNotFound(hooks.MutatingWebhookConfigurations().Delete(ctx, d.mutating(), metav1.DeleteOptions{})),
			client.IgnoreNotFound(hooks.ValidatingWebhookConfigurations().Delete(ctx, d.validating(), metav1.DeleteOptions{})))
	})
	d.scale(ctx, replicas)
	return d
}

func (d *deployment) mutating() string   { return d.namespace + "-mutating-hook" }
func (d *deployment) validating() string { return d.namespace + "-validating-hook" }
func (d *deployment) secret() string     { return d.namespace + "-setupcertificate" }
func (d *deployment) lease() string      { return d.namespace + "-versions" }

// scale starts more replicas, which take turns with the API servers.
func (d *deployment) scale(ctx context.Context, replicas int) {
	GinkgoHelper()
	for n := range replicas {
		d.start(ctx, n%len(servers))
	}
}

// start runs one more replica, connected to that API server, and sends it calls once it is ready.
func (d *deployment) start(ctx context.Context, server int) {
	GinkgoHelper()
	d.launched++
	name := fmt.Sprintf("replica-%d", d.launched)
	m, cut := d.manager(server, name)
	r := &replica{load.Start(ctx, name, m), server, cut}
	d.replicas, d.started = append(d.replicas, r), append(d.started, r.Replica)
	d.closeEach(ctx, r)
	d.balancer.Add(r.endpoint())
}

// closeEach has a replica close every connection after its answer, by a call of the step that asks its server for that. It
// must be so before the first call of an API server: a connection that is closed later may be in use again.
func (d *deployment) closeEach(ctx context.Context, r *replica) {
	GinkgoHelper()
	const review = `{"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": {
		"uid": "first", "operation": "CREATE", "name": "first", "namespace": %q,
		"kind": {"version": "v1", "kind": "ConfigMap"}, "resource": {"version": "v1", "resource": "configmaps"},
		"object": {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "first"}}
	}}`
	post := Must(http.NewRequestWithContext(ctx, http.MethodPost, "https://"+r.endpoint()+"/mutate/mark", strings.NewReader(fmt.Sprintf(review, d.objects))))
	post.Header.Set("Content-Type", "application/json")
	transport := &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}}
	defer transport.CloseIdleConnections()
	resp := Must((&http.Client{Transport: transport}).Do(post))
	defer func() { _ = resp.Body.Close() }()
	Expect(resp).To(And(HaveHTTPStatus(http.StatusOK), HaveField("Close", BeTrue())))
}

// manager makes a Manager with the steps and the options of the deployment.
func (d *deployment) manager(server int, name string) (*eirinix.ExtensionManager, context.CancelFunc) {
	GinkgoHelper()
	line, cut := context.WithCancel(context.Background())
	config := servers[server].Config()
	config.Dial = func(ctx context.Context, network, address string) (net.Conn, error) {
		conn, err := (&net.Dialer{}).DialContext(ctx, network, address)
		if err == nil {
			context.AfterFunc(line, func() { _ = conn.Close() })
		}
		return conn, err
	}
	logs := zap.New(Log(), zap.Hooks(func(e zapcore.Entry) error {
		if e.Message == "serving certificate renewed" {
			d.renewals.Add(1)
		}
		return nil
	}))
	m := eirinix.NewManager(eirinix.ManagerOptions{
		Namespace:           d.objects,
		OperatorFingerprint: d.namespace,
		ServiceName:         load.ServiceName,
		WebhookNamespace:    d.namespace,
		Port:                d.balancer.Port(),
		ListenAddress:       "127.0.0.1:0",
		RestConfig:          config,
		Logger:              logs.Named(name).Sugar(),
		CALifetime:          d.rotation.CA,
		DrainDelay:          200 * time.Millisecond,
	})
	eirinixtest.SetLifetimes(m, eirinixtest.Lifetimes{Leaf: d.rotation.Leaf, Retain: d.rotation.Retain})
	for _, step := range append(d.steps(), d.more...) {
		Expect(m.AddExtension(step)).To(Succeed())
	}
	return m, cut
}

// steps are those of every replica. They change and check every ConfigMap, by one webhook entry each.
func (d *deployment) steps() []any {
	slow := eirinix.Settings{Timeout: 30 * time.Second, Isolated: true} // whether a busy machine is fast enough is not the question
	return []any{
		eirinix.Mutation[*corev1.ConfigMap]{ID: "mark", Settings: slow, Apply: func(ctx context.Context, _ *eirinix.Call, c *corev1.ConfigMap) error {
			d.called(ctx)
			metav1.SetMetaDataLabel(&c.ObjectMeta, "mutated", "yes")
			return nil
		}},
		eirinix.Validation[*corev1.ConfigMap]{ID: "check", Settings: slow, Create: func(ctx context.Context, _ *eirinix.Call, c *corev1.ConfigMap) error {
			d.called(ctx)
			if c.Labels["mutated"] != "yes" {
				return eirinix.Deny("it was not mutated")
			}
			return nil
		}},
	}
}

// called counts a call, and has the server close each connection after its answer, so that the next call needs a handshake.
func (d *deployment) called(ctx context.Context) {
	d.calls.Add(1)
	if server, ok := ctx.Value(http.ServerContextKey).(*http.Server); ok {
		server.SetKeepAlivesEnabled(false)
	}
}

// forget takes the endpoint of a replica away.
func (d *deployment) forget(r *replica) {
	d.balancer.Remove(r.endpoint())
	d.replicas = slices.DeleteFunc(d.replicas, func(other *replica) bool { return other == r })
}

// retire stops a replica as a rollout does: its endpoint goes first.
func (d *deployment) retire(r *replica) {
	d.forget(r)
	r.Stop()
}

// kill ends a replica without a shutdown, after the calls that it has begun: the library cannot prevent that those fail.
func (d *deployment) kill(ctx context.Context, r *replica) {
	GinkgoHelper()
	d.forget(r)
	d.started = slices.DeleteFunc(d.started, func(other *load.Replica) bool { return other == r.Replica })
	Eventually(d.balancer.Standing).WithArguments(r.endpoint()).WithContext(ctx).WithPolling(5*time.Millisecond).Should(BeZero(), r.Name)
	r.cut()
	r.Stop() // closes its listener, and writes nothing
}

// replace has new replicas take the place of all, one after the other. The functions in how stop the first of them.
func (d *deployment) replace(ctx context.Context, how ...func(*replica)) {
	GinkgoHelper()
	for n, r := range slices.Clone(d.replicas) {
		d.start(ctx, r.server)
		if n < len(how) {
			how[n](r)
		} else {
			d.retire(r)
		}
	}
}

func (d *deployment) store() *certsecret.Store {
	return &certsecret.Store{Secrets: clientsOf(0).CoreV1().Secrets(d.namespace), Namespace: d.namespace, Name: d.secret(), Lifetime: d.rotation.CA, Now: time.Now}
}

// current is the number of the CA that signs.
func (d *deployment) current(ctx context.Context) (int64, error) {
	state, err := d.store().Load(ctx)
	if err != nil {
		return 0, err
	}
	return state.CurrentID, nil
}

// request asks for a rotation with the Secret's annotation.
func (d *deployment) request(ctx context.Context, value string) {
	GinkgoHelper()
	patch := fmt.Sprintf(`{"metadata":{"annotations":{%q:%q}}}`, certsecret.RotateAnnotation, value)
	Must(clientsOf(0).CoreV1().Secrets(d.namespace).Patch(ctx, d.secret(), types.MergePatchType, []byte(patch), metav1.PatchOptions{}))
}

func (d *deployment) configurations(ctx context.Context) (*admissionregistrationv1.MutatingWebhookConfiguration, *admissionregistrationv1.ValidatingWebhookConfiguration, error) {
	hooks := clientsOf(0).AdmissionregistrationV1()
	m, err := hooks.MutatingWebhookConfigurations().Get(ctx, d.mutating(), metav1.GetOptions{})
	if err != nil {
		return nil, nil, err
	}
	v, err := hooks.ValidatingWebhookConfigurations().Get(ctx, d.validating(), metav1.GetOptions{})
	return m, v, err
}

// bundles returns the caBundle of every webhook entry.
func (d *deployment) bundles(ctx context.Context) (all [][]byte, err error) {
	m, v, err := d.configurations(ctx)
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

func same(bundle []byte) gomegatypes.GomegaMatcher {
	return WithTransform(func(found []byte) bool { return ca.EqualBundles(found, bundle) }, BeTrue())
}

// settle waits until one CA stands everywhere and nothing is due. A Secret that a late replica has put back seems to be at
// rest, until another one corrects it; so it is read again with the caBundles.
func (d *deployment) settle(ctx context.Context) *certsecret.State {
	GinkgoHelper()
	var state *certsecret.State
	Eventually(func(g Gomega) {
		var err error
		state, err = d.store().Load(ctx)
		g.Expect(err).NotTo(HaveOccurred())
		g.Expect(state.Reason).To(BeEmpty())
		g.Expect(state.Phase).To(Equal(ca.Steady))
		g.Expect(state.Requested()).To(BeFalse())
		g.Expect(state.RegisteredBundle).To(same(state.Bundle()))
		g.Expect(d.bundles(ctx)).To(HaveEach(same(state.Bundle())))
	}).WithContext(ctx).Should(Succeed())
	return state
}
