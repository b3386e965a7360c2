package diagnose_test

// The path of a call, from the API server to this process: each fault on it is found, with the API server's message.

import (
	"context"
	"crypto/tls"
	"errors"
	"net"
	"net/http"
	"strings"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"

	"code.cloudfoundry.org/eirinix/diagnosis"
	"code.cloudfoundry.org/eirinix/internal/diagnose"
	"code.cloudfoundry.org/eirinix/internal/serving"
	"code.cloudfoundry.org/eirinix/internal/webhookconf"
)

// calls has the API server call a listener that is not this process.
func (d *deployment) calls(l net.Listener) { d.Options.Target.Port, d.Listen = portOf(l), "" }

// servesAll serves everything with one handler.
func (d *deployment) servesAll(h http.HandlerFunc) {
	GinkgoHelper()
	d.serve(h)
	d.Options.Target.Port, d.Listen = d.port(), d.listener.Addr().String()
}

// uses gives this process another certificate, and a server with it.
func (d *deployment) uses(leaf *serving.Leaf) {
	GinkgoHelper()
	Expect(leaf.Use(d.authority)).To(Succeed())
	d.leaf, d.Verify = leaf, leaf.Verify
	Expect(d.server.Close()).To(Succeed())
	d.serve(d.handler())
	d.Options.Target.Port, d.Listen = d.port(), d.listener.Addr().String()
}

func listen() net.Listener {
	GinkgoHelper()
	l := must(net.Listen("tcp", "127.0.0.1:0"))
	DeferCleanup(func() { _ = l.Close() })
	return l
}

var _ = Describe("A diagnosis of the path", Label("api-server"), func() {
	ignores := func(w *admissionregistrationv1.MutatingWebhook) {
		w.FailurePolicy = new(admissionregistrationv1.Ignore)
	}

	DescribeTable("reports success", func(ctx SpecContext, arrange func(context.Context, *deployment)) {
		d := newDeployment(ctx)
		arrange(ctx, d)
		d.register(ctx)
		r := d.run(ctx)
		Expect(codes(r)).To(Equal([]diagnosis.Code{diagnosis.Healthy}))
		Expect(r.String()).To(MatchRegexp(`^note Healthy: all is well: the API server's call to .+ came through in \S+, answered by pod-1\n$`))
	},
		Entry("in URL mode", func(context.Context, *deployment) {}, SpecTimeout(patience)),
		Entry("through a Service", func(ctx context.Context, d *deployment) { d.behind(ctx, toLoopback()) }, SpecTimeout(patience)),
		Entry("for a program that only validates", func(_ context.Context, d *deployment) {
			d.Canary.Validating = true
			d.Entries = append(webhookconf.Group([]webhookconf.Step{podStep(true)}), d.Canary.Entry())
		}, SpecTimeout(patience)),
		Entry("though the ConfigMap is refused afterwards", func(ctx context.Context, d *deployment) {
			must(admin().CoreV1().ResourceQuotas(d.Canary.Namespace).Create(ctx, &corev1.ResourceQuota{
				ObjectMeta: metav1.ObjectMeta{Name: "none"},
				Spec:       corev1.ResourceQuotaSpec{Hard: corev1.ResourceList{"count/configmaps": {}}},
			}, metav1.CreateOptions{}))
		}, SpecTimeout(patience)),
	)

	DescribeTable("reports", func(ctx SpecContext, arrange func(context.Context, *deployment), expected diagnosis.Code, texts ...string) {
		d := newDeployment(ctx)
		arrange(ctx, d)
		d.register(ctx)
		Expect(d.run(ctx)).To(haveOneProblem(expected, texts...))
	},
		Entry("that this process does not listen", func(_ context.Context, d *deployment) { Expect(d.server.Close()).To(Succeed()) },
			diagnosis.NothingListens, "this process does not answer on", "connection refused", "restart it", SpecTimeout(patience)),
		Entry("that a connection is refused", func(_ context.Context, d *deployment) { d.Options.Target.Port, d.Listen = freePort(), "" },
			diagnosis.ConnectionRefused, "connection refused", "ManagerOptions.Host and Port", SpecTimeout(patience)),
		Entry("that calls arrive at another port than the one listened on", func(_ context.Context, d *deployment) { d.Options.Target.Port = freePort() },
			diagnosis.PortMismatch, "arrive at port ", "set ManagerOptions.Port to ", "connection refused", SpecTimeout(patience)),
		Entry("that they do so through a Service", func(ctx context.Context, d *deployment) {
			d.behind(ctx, toLoopback())
			d.Options.Target.Port = freePort()
		}, diagnosis.PortMismatch, "arrive at port ", SpecTimeout(patience)),
		Entry("that there is no answer in time, and which port to open", func(_ context.Context, d *deployment) { d.Options.Target.Port, d.Listen = newBlackhole(), "" },
			diagnosis.TimedOut, "TCP port ", "this process gets no answer either", SpecTimeout(2*patience)),
		Entry("that only the API server gets no answer", func(_ context.Context, d *deployment) {
			d.servesAll(func(_ http.ResponseWriter, r *http.Request) {
				if r.Method == http.MethodPost { // a firewall would tell them apart by their addresses
					<-r.Context().Done()
				}
			})
		}, diagnosis.TimedOut, "this process gets an answer, so allow TCP port ", SpecTimeout(2*patience)),
		Entry("that the program hangs", func(_ context.Context, d *deployment) {
			d.servesAll(func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() })
		}, diagnosis.TimedOut, "it completes the handshake and sends nothing", SpecTimeout(2*patience)),
		Entry("that the caBundle is of another CA", func(_ context.Context, d *deployment) { d.Options.CABundle = newCA().CertificatePEM },
			diagnosis.UnknownAuthority, "does not verify against the caBundle", "failed to call webhook", "RegisterExtensions", SpecTimeout(patience)),
		Entry("that something else answers there", func(_ context.Context, d *deployment) {
			foreign, l := must(newCA().SignServing([]string{"127.0.0.1"}, time.Hour, time.Now())), listen()
			serveTLS(l, d.handler(), &tls.Config{Certificates: []tls.Certificate{*foreign}})
			d.Options.Target.Port = portOf(l)
		}, diagnosis.UnknownAuthority, "another server than this process answers", SpecTimeout(patience)),
		Entry("that the certificate is for other names", func(_ context.Context, d *deployment) {
			d.uses(serving.NewLeaf([]string{"hooks.example.org"}, 7*24*time.Hour, time.Now))
			d.Verify = nil // what this process would serve is not known
		}, diagnosis.NameMismatch, "if this program answers there, issue the certificate for 127.0.0.1", "; otherwise find the process", "x509", SpecTimeout(patience)),
		Entry("that the certificate of another server is for other names", func(_ context.Context, d *deployment) {
			d.uses(serving.NewLeaf([]string{"hooks.example.org"}, 7*24*time.Hour, time.Now))
		}, diagnosis.NameMismatch, "another server than this process answers", "; find the process that listens there", SpecTimeout(patience)),
		Entry("that the certificate has expired", func(_ context.Context, d *deployment) {
			d.uses(serving.NewLeaf([]string{"127.0.0.1"}, 24*time.Hour, func() time.Time { return time.Now().Add(-20 * 24 * time.Hour) })) // so the program itself is content
		}, diagnosis.Expired, "clocks", "has expired or is not yet valid", SpecTimeout(patience)),
		Entry("a server that speaks no TLS", func(_ context.Context, d *deployment) {
			l, plain := listen(), &http.Server{Handler: d.handler(), ReadHeaderTimeout: patience}
			go func() { _ = plain.Serve(l) }()
			DeferCleanup(plain.Close)
			d.calls(l)
		}, diagnosis.NotTLS, SpecTimeout(patience)),
		Entry("that a client certificate is asked for", func(_ context.Context, d *deployment) {
			l := listen()
			serveTLS(l, d.handler(), &tls.Config{GetCertificate: d.leaf.GetCertificate, ClientAuth: tls.RequireAnyClientCert})
			d.calls(l)
		}, diagnosis.CallerRefused, "ManagerOptions.ClientCA", SpecTimeout(patience)),
		Entry("a server that hangs up", func(_ context.Context, d *deployment) {
			l := listen()
			go func() {
				for connection, err := l.Accept(); err == nil; connection, err = l.Accept() {
					_ = connection.Close()
				}
			}()
			d.calls(l)
		}, diagnosis.ConnectionBroken, SpecTimeout(patience)),
		Entry("a server that answers 404", func(_ context.Context, d *deployment) { d.servesAll(http.NotFound) }, diagnosis.BadAnswer, SpecTimeout(patience)),
		Entry("a server that answers 503", func(_ context.Context, d *deployment) {
			d.servesAll(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusServiceUnavailable) })
		}, diagnosis.BadAnswer, SpecTimeout(patience)),
		Entry("a server that answers no review", func(_ context.Context, d *deployment) {
			d.servesAll(func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte(`{"hello":"world"}`)) })
		}, diagnosis.BadAnswer, SpecTimeout(patience)),
		Entry("a server that answers no JSON", func(_ context.Context, d *deployment) {
			d.servesAll(func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte(`<html>`)) })
		}, diagnosis.BadAnswer, SpecTimeout(patience)),
		Entry("a server that answers another question", func(_ context.Context, d *deployment) {
			d.servesAll(func(w http.ResponseWriter, _ *http.Request) {
				_, _ = w.Write([]byte(`{"apiVersion":"admission.k8s.io/v1","kind":"AdmissionReview","response":{"uid":"x","allowed":true}}`))
			})
		}, diagnosis.BadAnswer, SpecTimeout(patience)),
		Entry("that the name does not resolve", func(ctx context.Context, d *deployment) {
			// Go's resolver sends no query for a label that is too long.
			d.behind(ctx, corev1.ServiceSpec{Type: corev1.ServiceTypeExternalName, ExternalName: strings.Repeat("x", 64) + ".invalid"})
		}, diagnosis.NoSuchHost, SpecTimeout(patience)),
		Entry("that it is the API server that does not answer this process", func(_ context.Context, d *deployment) {
			d.Clients = clientsFor(&rest.Config{Host: "https://127.0.0.1:" + itoa(freePort())})
		}, diagnosis.APIServerUnreachable, "kubeconfig", SpecTimeout(patience)),
	)

	It("touches no ConfigMap but its own while the webhook is down", func(ctx SpecContext) {
		d := newDeployment(ctx)
		d.register(ctx)
		d.awaitCalls(ctx)
		Expect(d.server.Close()).To(Succeed())
		Expect(d.run(ctx)).To(haveOneProblem(diagnosis.NothingListens))

		create := func(labels map[string]string, dryRun ...string) error {
			_, err := admin().CoreV1().ConfigMaps(d.Canary.Namespace).Create(ctx,
				&corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{GenerateName: "spec-", Labels: labels}}, metav1.CreateOptions{DryRun: dryRun})
			return err
		}
		ours := map[string]string{diagnose.CanaryLabel: d.Options.Fingerprint}
		Expect(create(nil, metav1.DryRunAll)).To(Succeed())
		Expect(create(ours)).To(Succeed())
		Expect(create(map[string]string{diagnose.CanaryLabel: "another"}, metav1.DryRunAll)).To(Succeed())
		Expect(create(ours, metav1.DryRunAll)).To(MatchError(apierrors.IsInternalError, "IsInternalError"))
		created := must(admin().CoreV1().ConfigMaps(d.Canary.Namespace).List(ctx, metav1.ListOptions{}))
		Expect(created.Items).To(HaveEach(HaveField("Name", HavePrefix("spec-"))), "a canary leaves nothing")
	}, SpecTimeout(patience))

	It("looks from this process where the API server ignores failures, and without a canary", func(ctx SpecContext) {
		d := newDeployment(ctx)
		d.Options.Target.Port, d.Listen, d.Settle = freePort(), "", time.Millisecond
		d.register(ctx, ignores)
		Expect(d.run(ctx)).To(haveOneProblem(diagnosis.ConnectionRefused, "the connection of this process was refused"))

		d = newDeployment(ctx)
		d.register(ctx, ignores)
		Expect(codes(d.run(ctx))).To(Equal([]diagnosis.Code{diagnosis.Healthy}), "the warning shows as much as with Fail")

		d.Canary, d.Entries = diagnose.Canary{}, d.Entries[:1]
		r := d.run(ctx)
		Expect(codes(r)).To(Equal([]diagnosis.Code{diagnosis.ReachedFromHere}))
		Expect(r.String()).To(ContainSubstring("because no canary was requested"))
	}, SpecTimeout(patience))
})

var _ = Describe("A diagnosis that could not begin", func() {
	It("is a problem", func() {
		Expect(diagnose.Failed(errors.New("no kubeconfig found")).Err()).To(MatchError("NotStarted: no kubeconfig found"))
	})
})

// TLS 1.3 judges the certificate of a client after the client's end of the handshake, so a broken connection alone does not
// show that it was refused.
var _ = Describe("A connection that broke", func() {
	const broken = `failed to call webhook: Post "https://127.0.0.1:1/mutate/x?timeout=5s": write tcp 127.0.0.1:2->127.0.0.1:1: write: broken pipe`
	asks := func(auth tls.ClientAuthType, version uint16) net.Listener {
		leaf := serving.NewLeaf([]string{"127.0.0.1"}, 7*24*time.Hour, time.Now)
		Expect(leaf.Use(newCA())).To(Succeed())
		l := listen()
		serveTLS(l, http.NotFoundHandler(), &tls.Config{GetCertificate: leaf.GetCertificate, ClientAuth: auth, MaxVersion: version})
		return l
	}
	blame := func(ctx context.Context, port int32, listen string, asksClients bool, reason string) diagnosis.Finding {
		return diagnose.BrokenPath(ctx, diagnose.Config{
			Options: webhookconf.Options{Target: webhookconf.Target{Host: "127.0.0.1", Port: port}}, Listen: listen, AsksClients: asksClients, Timeout: patience,
		}, reason)
	}

	DescribeTable("is a refusal or not, by the handshake of a client without certificate",
		func(ctx SpecContext, auth tls.ClientAuthType, version uint16, asksClients bool, expected diagnosis.Code) {
			Expect(blame(ctx, portOf(asks(auth, version)), "", asksClients, broken).Code).To(Equal(expected))
		},
		Entry("required", tls.RequireAnyClientCert, uint16(0), false, diagnosis.CallerRefused, SpecTimeout(patience)),
		Entry("required in TLS 1.2", tls.RequireAnyClientCert, uint16(tls.VersionTLS12), false, diagnosis.CallerRefused, SpecTimeout(patience)),
		Entry("welcome", tls.RequestClientCert, uint16(0), false, diagnosis.ConnectionBroken, SpecTimeout(patience)),
		Entry("asked for, and required over HTTP", tls.RequestClientCert, uint16(0), true, diagnosis.CallerRefused, SpecTimeout(patience)),
		Entry("not asked for by a server that is not this process", tls.NoClientCert, uint16(0), true, diagnosis.ConnectionBroken, SpecTimeout(patience)),
	)

	It("is asked about only if it broke, with the alert as evidence", func(ctx SpecContext) {
		port := portOf(asks(tls.RequireAnyClientCert, 0))
		Expect(blame(ctx, port, "", false, broken).Evidence).To(And(
			HavePrefix(broken), ContainSubstring("without a client certificate, gets: remote error: tls: certificate required")))
		Expect(blame(ctx, port, "", true, "connect: connection refused").Code).To(Equal(diagnosis.ConnectionRefused))
	}, SpecTimeout(patience))

	It("is judged by the port of this process where it cannot reach the other", func(ctx SpecContext) {
		own := asks(tls.RequireAnyClientCert, 0).Addr().String()
		Expect(blame(ctx, freePort(), own, false, broken).Code).To(Equal(diagnosis.CallerRefused))
		Expect(blame(ctx, freePort(), "", true, broken).Code).To(Equal(diagnosis.CallerRefused))
		Expect(blame(ctx, freePort(), "", false, broken).Code).To(Equal(diagnosis.ConnectionBroken))
	}, SpecTimeout(patience))
})
