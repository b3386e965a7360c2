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
	discoveryv1 "k8s.io/api/discovery/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/client-go/rest"

	"code.cloudfoundry.org/eirinix/diagnosis"
	"code.cloudfoundry.org/eirinix/internal/diagnose"
	"code.cloudfoundry.org/eirinix/internal/serving"
	. "code.cloudfoundry.org/eirinix/internal/spectest"
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
	l := Must(net.Listen("tcp", "127.0.0.1:0"))
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
			Must(admin().CoreV1().ResourceQuotas(d.Canary.Namespace).Create(ctx, &corev1.ResourceQuota{
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
			foreign, l := Must(newCA().SignServing([]string{"127.0.0.1"}, time.Hour, time.Now())), listen()
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
		Entry("a server that answers 404", func(_ context.Context, d *deployment) { d.servesAll(http.NotFound) }, diagnosis.BadAnswer, SpecTimeout(patience)),
		Entry("a server that answers no review", func(_ context.Context, d *deployment) {
			d.servesAll(func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte(`{"hello":"world"}`)) })
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
		created := Must(admin().CoreV1().ConfigMaps(d.Canary.Namespace).List(ctx, metav1.ListOptions{}))
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

var _ = It("A diagnosis that could not begin is a problem", func() {
	Expect(diagnose.Failed(errors.New("no kubeconfig found")).Err()).To(MatchError("NotStarted: no kubeconfig found"))
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

var _ = DescribeTable("The API server's message about a call means",
	func(reason string, expected diagnosis.Code) { Expect(diagnose.Classify(reason)).To(Equal(expected)) },
	Entry(nil, `failed to call webhook: Post "https://hooks.cf.svc:443/mutate/x?timeout=5s": service "hooks" not found`, diagnosis.ServiceMissing),
	Entry(nil, `failed to call webhook: Post "https://hooks.cf.svc:443/mutate/x?timeout=5s": no service port 443 found for service "hooks"`, diagnosis.PortMismatch),
	Entry(nil, `failed to call webhook: Post "https://hooks.cf.svc:443/mutate/x?timeout=5s": no endpoints available for service "hooks"`, diagnosis.NoReadyEndpoints),
	Entry(nil, `failed to call webhook: Post "https://10.0.0.1:443/mutate/x?timeout=5s": dial tcp 10.0.0.1:443: connect: connection refused`, diagnosis.ConnectionRefused),
	Entry(nil, `failed to call webhook: Post "https://10.0.0.1:443/mutate/x?timeout=5s": context deadline exceeded`, diagnosis.TimedOut),
	Entry(nil, `failed to call webhook: Post "https://10.0.0.1:443/mutate/x?timeout=5s": dial tcp 10.0.0.1:443: connect: no route to host`, diagnosis.NoRoute),
	Entry(nil, `failed to call webhook: Post "https://hooks.example.org/mutate/x?timeout=5s": dial tcp: lookup hooks.example.org on 10.0.0.10:53: no such host`, diagnosis.NoSuchHost),
	Entry(nil, `failed to call webhook: Post "https://hooks.cf.svc:443/mutate/x?timeout=5s": No agent available`, diagnosis.NoTunnel),
	Entry(nil, `failed to call webhook: Post "https://hooks.cf.svc:443/mutate/x?timeout=5s": proxy error from 127.0.0.1:6443 while dialing 10.42.0.7:443, code 502: 502 Bad Gateway`, diagnosis.NoTunnel),
	Entry(nil, `failed to call webhook: Post "https://h:443/x?timeout=5s": tls: failed to verify certificate: x509: certificate signed by unknown authority (possibly because of "x509: ECDSA verification failure" while trying to verify candidate authority certificate "eirini-x")`, diagnosis.UnknownAuthority),
	Entry(nil, `failed to call webhook: Post "https://h:443/x?timeout=5s": tls: failed to verify certificate: x509: certificate is valid for hooks.cf, not hooks.cf.svc`, diagnosis.NameMismatch),
	Entry(nil, `failed to call webhook: Post "https://h:443/x?timeout=5s": x509: certificate relies on legacy Common Name field, use SANs instead`, diagnosis.NameMismatch),
	Entry(nil, `failed to call webhook: Post "https://h:443/x?timeout=5s": tls: failed to verify certificate: x509: certificate has expired or is not yet valid: current time 2030-01-01T00:00:00Z is before 2031-01-01T00:00:00Z`, diagnosis.Expired),
	Entry(nil, `failed to call webhook: Post "https://h:443/x?timeout=5s": tls: first record does not look like a TLS handshake`, diagnosis.NotTLS),
	Entry(nil, `failed to call webhook: Post "https://h:443/x?timeout=5s": remote error: tls: bad certificate`, diagnosis.CallerRefused),
	Entry(nil, `failed to call webhook: the server has asked for the client to provide credentials`, diagnosis.CallerRefused),
	Entry(nil, `failed to call webhook: Post "https://h:443/x?timeout=5s": remote error: tls: internal error`, diagnosis.ConnectionBroken),
	Entry(nil, `failed to call webhook: Post "https://h:443/x?timeout=5s": EOF`, diagnosis.ConnectionBroken),
	Entry(nil, `failed to call webhook: Post "https://h:443/x?timeout=5s": write tcp 10.0.0.2:1->10.0.0.1:443: write: broken pipe`, diagnosis.ConnectionBroken),
	Entry(nil, `failed to call webhook: Post "https://h:443/x?timeout=5s": http2: client conn could not be established`, diagnosis.ConnectionBroken),
	Entry(nil, `failed to call webhook: Post "https://h:443/x?timeout=5s": http: server closed idle connection`, diagnosis.ConnectionBroken),
	Entry(nil, `failed to call webhook: the server is currently unable to handle the request`, diagnosis.BadAnswer),
	Entry(nil, `could not get REST client: unable to load root certificates: unable to parse bytes as PEM block`, diagnosis.BundleUnreadable),
	Entry(nil, `the moon is in the wrong quarter`, diagnosis.Unexplained),
)

type failure struct {
	webhook string
	denied  bool
	reason  string
}

var _ = DescribeTable("An error of the API server is about",
	func(text string, expected failure, ok bool) {
		var found failure
		var isFailure bool
		found.webhook, found.denied, found.reason, isFailure = diagnose.Blamed(text)
		Expect(isFailure).To(Equal(ok))
		Expect(found).To(Equal(expected))
	},
	Entry("a call that failed", `Internal error occurred: failed calling webhook "a.b.c": failed to call webhook: EOF`, failure{webhook: "a.b.c", reason: "failed to call webhook: EOF"}, true),
	Entry("a denial", `admission webhook "a.b.c" denied the request: no`, failure{webhook: "a.b.c", denied: true, reason: "no"}, true),
	Entry("a denial without a word", `admission webhook "a.b.c" denied the request without explanation`, failure{webhook: "a.b.c", denied: true, reason: " without explanation"}, true),
	Entry("something else", `configmaps "x" is forbidden: exceeded quota`, failure{}, false),
)

var _ = DescribeTable("An API server is too old",
	func(major, minor string, expected bool) {
		Expect(diagnose.Old(major, minor)).To(Equal(expected))
	},
	Entry(nil, "1", "29", true),
	Entry(nil, "1", "29+", true),
	Entry(nil, "1", "30", false),
	Entry(nil, "1", "30+", false),
	Entry(nil, "2", "0", false),
	Entry("or says nothing of itself", "", "", false),
)

var _ = Describe("A finding that explains another", func() {
	const at = "Service cf/hooks, port 443"
	fold := func(findings ...diagnosis.Finding) []diagnosis.Finding {
		target := webhookconf.Target{Service: "hooks", Namespace: "cf", Port: 443}
		return diagnose.Fold(diagnose.Config{Options: webhookconf.Options{Target: target}}, findings)
	}
	refused := diagnosis.Finding{Code: diagnosis.ConnectionRefused, Severity: diagnosis.Problem, Object: at, Evidence: "said"}

	It("takes its place and its evidence", func() {
		Expect(fold(refused, diagnosis.Finding{Code: diagnosis.NoReadyEndpoints, Severity: diagnosis.Problem, Object: "Service cf/hooks"})).
			To(Equal([]diagnosis.Finding{{Code: diagnosis.NoReadyEndpoints, Severity: diagnosis.Problem, Object: "Service cf/hooks", Evidence: "said"}}))
	})
	It("leaves findings that it does not explain", func() {
		for _, other := range []diagnosis.Finding{
			{Code: diagnosis.NoReadyEndpoints, Severity: diagnosis.Warning, Object: "Service cf/hooks"},
			{Code: diagnosis.BundleEmpty, Severity: diagnosis.Problem, Object: "webhook"},
			{Code: diagnosis.Shadowed, Severity: diagnosis.Problem, Object: "webhook"},
		} {
			Expect(fold(refused, other)).To(Equal([]diagnosis.Finding{refused, other}))
		}
	})
})

var _ = DescribeTable("Versions of a program",
	func(versions []diagnose.VersionInfo, expected ...string) {
		lines := []string{}
		for _, f := range diagnose.OfVersions(versions...) {
			Expect(f).To(And(HaveField("Code", diagnosis.SeveralVersions), HaveField("Remedy", Not(BeEmpty()))))
			lines = append(lines, string(f.Severity)+": "+f.Message)
		}
		Expect(lines).To(Equal(expected))
	},
	Entry("are no matter if there is one", []diagnose.VersionInfo{{Version: "3fa9", Ours: true, Registered: true}}),
	Entry("are no matter before one is registered", []diagnose.VersionInfo{{Version: "3fa9", Ours: true}, {Version: "77b1"}}),
	Entry("wait for ours", []diagnose.VersionInfo{{Version: "3fa9", Ours: true, Registered: true}, {Version: "77b1"}},
		"note: this version 3fa9 keeps the registration as long as its replicas answer; version 77b1 comes after it"),
	Entry("go before ours", []diagnose.VersionInfo{
		{Version: "3fa9", Registered: true, Steps: []string{"old"}}, {Version: "77b1", Ours: true, Steps: []string{"old", "new"}},
	}, "warning: version 3fa9 keeps the registration as long as its replicas answer; this version 77b1 comes after it, and until then its new steps are not called: new"),
	Entry("wait in a row", []diagnose.VersionInfo{{Version: "a", Registered: true}, {Version: "b"}, {Version: "c", Ours: true}},
		"note: version a keeps the registration as long as its replicas answer; version b comes after it",
		"warning: version a keeps the registration as long as its replicas answer; this version c comes after version b"),
	Entry("are known to the serving half of one that is not registered", []diagnose.VersionInfo{{Version: "a", Registered: true}, {Version: "b"}},
		"note: version a keeps the registration as long as its replicas answer; version b comes after it",
		"warning: version a is registered, and this process serves another one, so its new steps are not called"),
)

func clusterIP(port, targetPort int32) corev1.ServiceSpec {
	return corev1.ServiceSpec{
		Selector: map[string]string{"app": "hooks"},
		Ports:    []corev1.ServicePort{{Name: "https", Port: port, TargetPort: intstr.FromInt32(targetPort)}},
	}
}

// endpoints puts one endpoint behind the Service. Its address is one for documentation, which is never called.
func endpoints(ctx context.Context, namespace, service string, port int32, ready bool) {
	GinkgoHelper()
	Must(admin().DiscoveryV1().EndpointSlices(namespace).Create(ctx, &discoveryv1.EndpointSlice{
		ObjectMeta:  metav1.ObjectMeta{GenerateName: service + "-", Labels: map[string]string{discoveryv1.LabelServiceName: service}},
		AddressType: discoveryv1.AddressTypeIPv4,
		Ports:       []discoveryv1.EndpointPort{{Name: new("https"), Port: new(port), Protocol: new(corev1.ProtocolTCP)}},
		Endpoints:   []discoveryv1.Endpoint{{Addresses: []string{"192.0.2.1"}, Conditions: discoveryv1.EndpointConditions{Ready: new(ready)}}},
	}, metav1.CreateOptions{}))
}

var _ = Describe("A diagnosis of the Service", Label("api-server"), func() {
	It("warns of pods of the program that may lack its label", func(ctx SpecContext) {
		d := newDeployment(ctx) // which is called for the pods of its own namespace
		d.behind(ctx, clusterIP(443, 8443))
		d.register(ctx)
		Expect(codes(d.run(ctx))).NotTo(ContainElement(diagnosis.BlocksItself), "those with the label")
		services := admin().CoreV1().Services(d.Canary.Namespace)
		s := Must(services.Get(ctx, "hooks", metav1.GetOptions{}))
		delete(s.Spec.Selector, webhookconf.FingerprintLabel)
		Must(services.Update(ctx, s, metav1.UpdateOptions{}))
		r := d.run(ctx)
		found, ok := r.Find(diagnosis.BlocksItself)
		Expect(ok).To(BeTrue())
		Expect(found.Severity).To(Equal(diagnosis.Warning))
		Expect(found.Remedy).To(ContainSubstring("the label " + webhookconf.FingerprintLabel + "=" + d.Canary.Namespace))
	}, SpecTimeout(patience))

	// withoutCanary keeps the API server from dialing addresses that this machine has no use for.
	withoutCanary := func(d *deployment) *deployment {
		d.Canary, d.Entries = diagnose.Canary{}, d.Entries[:1]
		return d
	}

	It("reports that there is none", func(ctx SpecContext) {
		d := newDeployment(ctx)
		d.inServiceMode()
		d.register(ctx)
		Expect(d.run(ctx)).To(haveOneProblem(diagnosis.ServiceMissing,
			"Service "+d.Canary.Namespace+"/hooks, which the API server calls, does not exist", `service "hooks" not found`))
		Expect(codes(d.run(ctx))).NotTo(ContainElement(diagnosis.Shadowed), "our own webhook is no other program's")
		Expect(withoutCanary(d).run(ctx)).To(haveOneProblem(diagnosis.ServiceMissing), "seen from here as well")
	}, SpecTimeout(patience))

	It("reports that it is of the wrong kind", func(ctx SpecContext) {
		d := newDeployment(ctx)
		spec := clusterIP(443, 8443)
		spec.ClusterIP = corev1.ClusterIPNone
		d.behind(ctx, spec)
		d.Options.Target.Port = 443
		endpoints(ctx, d.Canary.Namespace, "hooks", 8443, true)
		d.register(ctx)
		Expect(d.run(ctx)).To(haveOneProblem(diagnosis.ServiceUnusable, `cannot route to service with ClusterIP "None"`))
	}, SpecTimeout(patience))

	It("reports that it has no such port", func(ctx SpecContext) {
		d := newDeployment(ctx)
		d.behind(ctx, clusterIP(8443, 8443))
		d.Options.Target.Port = 443
		d.register(ctx)
		Expect(d.run(ctx)).To(haveOneProblem(diagnosis.PortMismatch, "does not have the registered port 443", "one that it has (8443)", "no service port 443 found"))
		Expect(withoutCanary(d).run(ctx)).To(haveOneProblem(diagnosis.PortMismatch))
	}, SpecTimeout(patience))

	It("reports that no pod stands behind it, or none that is ready", func(ctx SpecContext) {
		d := withoutCanary(newDeployment(ctx))
		namespace := d.Options.Namespace
		Must(admin().CoreV1().Services(namespace).Create(ctx, &corev1.Service{ObjectMeta: metav1.ObjectMeta{Name: "hooks"}, Spec: clusterIP(443, 8443)}, metav1.CreateOptions{}))
		d.Options.Target = webhookconf.Target{Service: "hooks", Namespace: namespace, Port: 443}
		d.register(ctx)
		Expect(d.run(ctx)).To(haveOneProblem(diagnosis.NoReadyEndpoints, "its selector app=hooks"))
		endpoints(ctx, namespace, "hooks", 8443, false)
		Expect(d.run(ctx)).To(haveOneProblem(diagnosis.NoReadyEndpoints, "(not ready: 1)", "kubectl describe pods"))
	}, SpecTimeout(patience))
})

// An API server that runs on loopback alone never calls an endpoint, so these specs judge a symptom that is given to them.
var _ = DescribeTable("A Service that sends calls to a port of its pods",
	func(targetPort intstr.IntOrString, endpointPort int32, listen string, symptom diagnosis.Code, mismatch bool, open int32) {
		service := &corev1.Service{Spec: clusterIP(443, 0)}
		service.Spec.Ports[0].TargetPort = targetPort
		var slices []discoveryv1.EndpointSlice
		if endpointPort != 0 {
			slices = []discoveryv1.EndpointSlice{{
				Ports:     []discoveryv1.EndpointPort{{Name: new("metrics"), Port: new(int32(1))}, {Name: new("https"), Port: &endpointPort}},
				Endpoints: []discoveryv1.Endpoint{{Addresses: []string{"192.0.2.1"}}},
			}, {Ports: []discoveryv1.EndpointPort{{Name: new("https"), Port: new(int32(1))}}}} // this one holds no endpoint
		}
		target := webhookconf.Target{Service: "hooks", Namespace: "cf", Port: 443}
		findings, openPort := diagnose.JudgePorts(diagnose.Config{Options: webhookconf.Options{Target: target}, Listen: listen},
			service, slices, diagnosis.Finding{Code: symptom, Severity: diagnosis.Problem, Object: target.String()})
		Expect(openPort).To(Equal(open))
		if !mismatch {
			Expect(findings).To(BeEmpty())
			return
		}
		Expect(diagnosis.Report{Findings: findings}).To(haveOneProblem(diagnosis.PortMismatch,
			"set the targetPort of Service cf/hooks to 8443", "arrive at port "+itoa(open)))
	},
	Entry("the one that is listened on", intstr.FromInt32(8443), int32(0), "0.0.0.0:8443", diagnosis.ConnectionRefused, false, int32(8443)),
	Entry("another one", intstr.FromInt32(9443), int32(0), "0.0.0.0:8443", diagnosis.ConnectionRefused, true, int32(9443)),
	Entry("another one, which timed out", intstr.FromInt32(9443), int32(0), "0.0.0.0:8443", diagnosis.TimedOut, true, int32(9443)),
	Entry("another one by name", intstr.FromString("https"), int32(9443), "0.0.0.0:8443", diagnosis.ConnectionRefused, true, int32(9443)),
	Entry("one by name that no endpoint has", intstr.FromString("https"), int32(0), "0.0.0.0:8443", diagnosis.ConnectionRefused, false, int32(8443)),
	Entry("the port of the endpoints before that of the Service", intstr.FromInt32(9443), int32(8443), "0.0.0.0:8443", diagnosis.ConnectionRefused, false, int32(8443)),
	Entry("another one that is no reason", intstr.FromInt32(9443), int32(0), "0.0.0.0:8443", diagnosis.Shadowed, false, int32(9443)),
	Entry("where nothing is served here", intstr.FromInt32(9443), int32(0), "", diagnosis.ConnectionRefused, false, int32(9443)),
)
