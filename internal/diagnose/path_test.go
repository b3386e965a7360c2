package diagnose_test

import (
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

var _ = Describe("A diagnosis of the path", Label("api-server"), func() {
	Describe("where all is well", func() {
		It("reports success and names the instance, in URL mode", func(ctx SpecContext) {
			d := newDeployment(ctx)
			d.register(ctx)
			r := d.run(ctx)
			Expect(r.Err()).NotTo(HaveOccurred())
			Expect(codes(r)).To(Equal([]diagnosis.Code{diagnosis.Healthy}))
			Expect(r.String()).To(MatchRegexp(`^note Healthy: all is well: the API server's call to https://127.0.0.1:\d+ came through in \S+, answered by pod-1\n$`))
		}, SpecTimeout(patience))

		It("reports success through a Service", func(ctx SpecContext) {
			d := newDeployment(ctx)
			d.behind(ctx, toLoopback())
			d.register(ctx)
			Expect(codes(d.run(ctx))).To(Equal([]diagnosis.Code{diagnosis.Healthy}))
		}, SpecTimeout(patience))

		It("reports success for a program that only validates", func(ctx SpecContext) {
			d := newDeployment(ctx)
			d.Canary.Validating = true
			d.Entries = append(webhookconf.Group([]webhookconf.Step{podStep(true)}), d.Canary.Entry())
			d.register(ctx)
			Expect(codes(d.run(ctx))).To(Equal([]diagnosis.Code{diagnosis.Healthy}))
		}, SpecTimeout(patience))

		It("reports success though the ConfigMap is refused afterwards", func(ctx SpecContext) {
			d := newDeployment(ctx)
			must(admin().CoreV1().ResourceQuotas(d.Canary.Namespace).Create(ctx, &corev1.ResourceQuota{
				ObjectMeta: metav1.ObjectMeta{Name: "none"},
				Spec:       corev1.ResourceQuotaSpec{Hard: corev1.ResourceList{"count/configmaps": {}}},
			}, metav1.CreateOptions{}))
			d.register(ctx)
			Expect(codes(d.run(ctx))).To(Equal([]diagnosis.Code{diagnosis.Healthy}))
		}, SpecTimeout(patience))
	})

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
		Expect(create(nil)).To(Succeed())
		Expect(create(nil, metav1.DryRunAll)).To(Succeed())
		Expect(create(ours)).To(Succeed())
		Expect(create(map[string]string{diagnose.CanaryLabel: "another"}, metav1.DryRunAll)).To(Succeed())
		Expect(create(ours, metav1.DryRunAll)).To(MatchError(apierrors.IsInternalError, "IsInternalError"))
		created := must(admin().CoreV1().ConfigMaps(d.Canary.Namespace).List(ctx, metav1.ListOptions{}))
		Expect(created.Items).To(HaveEach(HaveField("Name", HavePrefix("spec-"))), "a canary leaves nothing")
	}, SpecTimeout(patience))

	It("reports that this process does not listen, with the API server's message", func(ctx SpecContext) {
		d := newDeployment(ctx)
		Expect(d.server.Close()).To(Succeed())
		d.register(ctx)
		Expect(d.run(ctx)).To(haveOneProblem(diagnosis.NothingListens, ContainSubstring(d.Listen), ContainSubstring("connection refused")))
	}, SpecTimeout(patience))

	It("reports that a connection is refused", func(ctx SpecContext) {
		d := newDeployment(ctx)
		d.Options.Target.Port, d.Listen = freePort(), ""
		d.register(ctx)
		Expect(d.run(ctx)).To(haveOneProblem(diagnosis.ConnectionRefused, ContainSubstring("connection refused"), ContainSubstring("ManagerOptions.Host and Port")))
	}, SpecTimeout(patience))

	DescribeTable("says that calls arrive at another port than the one listened on",
		func(ctx SpecContext, service bool) {
			d := newDeployment(ctx)
			if service {
				d.behind(ctx, toLoopback())
			}
			d.Options.Target.Port = freePort()
			d.register(ctx)
			Expect(d.run(ctx)).To(haveOneProblem(diagnosis.PortMismatch, And(
				ContainSubstring("arrive at port "+itoa(d.Options.Target.Port)), ContainSubstring("ManagerOptions.Port to "+itoa(d.port())), ContainSubstring("connection refused"))))
		},
		Entry("in URL mode", false, SpecTimeout(patience)),
		Entry("through a Service", true, SpecTimeout(patience)),
	)

	It("reports that there is no answer in time, and which port to open", func(ctx SpecContext) {
		d := newDeployment(ctx)
		hole := newBlackhole()
		d.Options.Target.Port, d.Listen = hole, ""
		d.register(ctx)
		Expect(d.run(ctx)).To(haveOneProblem(diagnosis.TimedOut, ContainSubstring("TCP port "+itoa(hole)), ContainSubstring("this process gets no answer either")))
	}, SpecTimeout(2*patience))

	It("reports that only the API server gets no answer", func(ctx SpecContext) {
		d := newDeployment(ctx)
		var h http.HandlerFunc = func(_ http.ResponseWriter, r *http.Request) {
			if r.Method == http.MethodPost { // a firewall would tell them apart by their addresses
				<-r.Context().Done()
			}
		}
		d.serve(h)
		d.Options.Target.Port, d.Listen = d.port(), d.listener.Addr().String()
		d.register(ctx)
		Expect(d.run(ctx)).To(haveOneProblem(diagnosis.TimedOut, ContainSubstring("this process gets an answer, so allow TCP port "+itoa(d.port()))))
	}, SpecTimeout(2*patience))

	It("reports that the program hangs", func(ctx SpecContext) {
		d := newDeployment(ctx)
		var h http.HandlerFunc = func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() }
		d.serve(h)
		d.Options.Target.Port, d.Listen = d.port(), d.listener.Addr().String()
		d.register(ctx)
		Expect(d.run(ctx)).To(haveOneProblem(diagnosis.TimedOut, ContainSubstring("it completes the handshake and sends nothing")))
	}, SpecTimeout(2*patience))

	It("reports that the caBundle is of another CA", func(ctx SpecContext) {
		d := newDeployment(ctx)
		d.Options.CABundle = newCA().CertificatePEM
		d.register(ctx)
		Expect(d.run(ctx)).To(haveOneProblem(diagnosis.UnknownAuthority, And(
			ContainSubstring("does not verify against the caBundle"), ContainSubstring("failed to call webhook"), ContainSubstring("RegisterExtensions"))))
	}, SpecTimeout(patience))

	It("reports that something else answers there", func(ctx SpecContext) {
		d := newDeployment(ctx)
		foreign := must(newCA().SignServing([]string{"127.0.0.1"}, time.Hour, time.Now()))
		l := must(net.Listen("tcp", "127.0.0.1:0"))
		serveTLS(l, d.handler(), &tls.Config{Certificates: []tls.Certificate{*foreign}})
		d.Options.Target.Port = portOf(l)
		d.register(ctx)
		Expect(d.run(ctx)).To(haveOneProblem(diagnosis.UnknownAuthority, ContainSubstring("another server than this process answers")))
	}, SpecTimeout(patience))

	It("reports that the certificate is for other names", func(ctx SpecContext) {
		d := newDeploymentWith(ctx, serving.NewLeaf([]string{"hooks.example.org"}, 7*24*time.Hour, time.Now))
		d.register(ctx)
		Expect(d.run(ctx)).To(haveOneProblem(diagnosis.NameMismatch, ContainSubstring("another server than this process answers"), ContainSubstring("; find the process that listens there")),
			"the certificate of this process is for the address")
		d.Verify = nil // what this process would serve is not known
		Expect(d.run(ctx)).To(haveOneProblem(diagnosis.NameMismatch, ContainSubstring("if this program answers there, issue the certificate for 127.0.0.1"), ContainSubstring("; otherwise find the process"), ContainSubstring("x509")))
	}, SpecTimeout(patience))

	It("reports that the certificate has expired", func(ctx SpecContext) {
		long := func() time.Time { return time.Now().Add(-20 * 24 * time.Hour) } // the clock is behind, so the program itself is content
		d := newDeploymentWith(ctx, serving.NewLeaf([]string{"127.0.0.1"}, 24*time.Hour, long))
		d.register(ctx)
		Expect(d.run(ctx)).To(haveOneProblem(diagnosis.Expired, ContainSubstring("clocks"), ContainSubstring("has expired or is not yet valid")))
	}, SpecTimeout(patience))

	It("reports a server that speaks no TLS", func(ctx SpecContext) {
		d := newDeployment(ctx)
		l := must(net.Listen("tcp", "127.0.0.1:0"))
		plain := &http.Server{Handler: d.handler(), ReadHeaderTimeout: patience}
		go func() { _ = plain.Serve(l) }()
		DeferCleanup(plain.Close)
		d.Options.Target.Port, d.Listen = portOf(l), ""
		d.register(ctx)
		Expect(d.run(ctx)).To(haveOneProblem(diagnosis.NotTLS))
	}, SpecTimeout(patience))

	It("reports that a client certificate is asked for", func(ctx SpecContext) {
		d := newDeployment(ctx)
		l := must(net.Listen("tcp", "127.0.0.1:0"))
		serveTLS(l, d.handler(), &tls.Config{GetCertificate: d.leaf.GetCertificate, ClientAuth: tls.RequireAnyClientCert})
		d.Options.Target.Port, d.Listen = portOf(l), ""
		d.register(ctx)
		Expect(d.run(ctx)).To(haveOneProblem(diagnosis.CallerRefused, ContainSubstring("ManagerOptions.ClientCA")))
	}, SpecTimeout(patience))

	It("reports a server that hangs up", func(ctx SpecContext) {
		d := newDeployment(ctx)
		l := must(net.Listen("tcp", "127.0.0.1:0"))
		DeferCleanup(l.Close)
		go func() {
			for {
				connection, err := l.Accept()
				if err != nil {
					return
				}
				_ = connection.Close()
			}
		}()
		d.Options.Target.Port, d.Listen = portOf(l), ""
		d.register(ctx)
		Expect(d.run(ctx)).To(haveOneProblem(diagnosis.ConnectionBroken))
	}, SpecTimeout(patience))

	DescribeTable("reports a server that is not this webhook",
		func(ctx SpecContext, status int, body string) {
			d := newDeployment(ctx)
			var h http.HandlerFunc = func(w http.ResponseWriter, _ *http.Request) {
				w.WriteHeader(status)
				_, _ = w.Write([]byte(body))
			}
			d.serve(h)
			d.Options.Target.Port, d.Listen = d.port(), d.listener.Addr().String()
			d.register(ctx)
			Expect(d.run(ctx)).To(haveOneProblem(diagnosis.BadAnswer))
		},
		Entry("404", http.StatusNotFound, "404 page not found", SpecTimeout(patience)),
		Entry("500", http.StatusInternalServerError, "oops", SpecTimeout(patience)),
		Entry("503", http.StatusServiceUnavailable, "", SpecTimeout(patience)),
		Entry("no review", http.StatusOK, `{"hello":"world"}`, SpecTimeout(patience)),
		Entry("no JSON", http.StatusOK, `<html>`, SpecTimeout(patience)),
		Entry("an answer to another question", http.StatusOK, `{"apiVersion":"admission.k8s.io/v1","kind":"AdmissionReview","response":{"uid":"x","allowed":true}}`, SpecTimeout(patience)),
	)

	It("reports that the name does not resolve", func(ctx SpecContext) {
		d := newDeployment(ctx)
		// Go's resolver sends no query for a label that is too long.
		d.behind(ctx, corev1.ServiceSpec{Type: corev1.ServiceTypeExternalName, ExternalName: strings.Repeat("x", 64) + ".invalid"})
		d.register(ctx)
		Expect(d.run(ctx)).To(haveOneProblem(diagnosis.NoSuchHost))
	}, SpecTimeout(patience))

	It("reports that it is the API server that does not answer this process", func(ctx SpecContext) {
		d := newDeployment(ctx)
		d.Clients = clientsFor(&rest.Config{Host: "https://127.0.0.1:" + itoa(freePort())})
		Expect(d.run(ctx)).To(haveOneProblem(diagnosis.APIServerUnreachable, ContainSubstring("kubeconfig")))
	}, SpecTimeout(patience))

	It("looks from this process where the API server ignores failures", func(ctx SpecContext) {
		d := newDeployment(ctx)
		d.Options.Target.Port, d.Listen, d.Settle = freePort(), "", time.Millisecond
		d.register(ctx, func(w *admissionregistrationv1.MutatingWebhook) {
			w.FailurePolicy = new(admissionregistrationv1.Ignore)
		})
		Expect(d.run(ctx)).To(haveOneProblem(diagnosis.ConnectionRefused, ContainSubstring("the connection of this process was refused")))

		d = newDeployment(ctx)
		d.register(ctx, func(w *admissionregistrationv1.MutatingWebhook) {
			w.FailurePolicy = new(admissionregistrationv1.Ignore)
		})
		Expect(codes(d.run(ctx))).To(Equal([]diagnosis.Code{diagnosis.Healthy}), "the warning shows as much as with Fail")
	}, SpecTimeout(patience))

	It("looks from this process without a canary", func(ctx SpecContext) {
		d := newDeployment(ctx)
		d.Canary = diagnose.Canary{}
		d.Entries = d.Entries[:1]
		d.register(ctx)
		r := d.run(ctx)
		Expect(r.Err()).NotTo(HaveOccurred())
		Expect(codes(r)).To(Equal([]diagnosis.Code{diagnosis.ReachedFromHere}))
		Expect(r.String()).To(ContainSubstring("because no canary was requested"))
	}, SpecTimeout(patience))
})

var _ = Describe("A diagnosis that could not begin", func() {
	It("is a problem", func() {
		Expect(diagnose.Failed(errors.New("no kubeconfig found")).Err()).To(MatchError("NotStarted: no kubeconfig found"))
	})
})
