package diagnose_test

// Servers that want a client certificate, as a connection that broke shows them. TLS 1.3 judges the certificate after
// the client's end of the handshake, so the evidence of a call is one of several.

import (
	"context"
	"crypto/tls"
	"net"
	"net/http"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"code.cloudfoundry.org/eirinix/diagnosis"
	"code.cloudfoundry.org/eirinix/internal/diagnose"
	"code.cloudfoundry.org/eirinix/internal/serving"
	"code.cloudfoundry.org/eirinix/internal/webhookconf"
)

var _ = Describe("A connection that broke", func() {
	const broken = `failed to call webhook: Post "https://127.0.0.1:1/mutate/x?timeout=5s": write tcp 127.0.0.1:2->127.0.0.1:1: write: broken pipe`
	listen := func(edit func(*tls.Config)) net.Listener {
		leaf := serving.NewLeaf([]string{"127.0.0.1"}, 7*24*time.Hour, time.Now)
		Expect(leaf.Use(newCA())).To(Succeed())
		config := &tls.Config{GetCertificate: leaf.GetCertificate}
		edit(config)
		l := must(net.Listen("tcp", "127.0.0.1:0"))
		serveTLS(l, http.NotFoundHandler(), config)
		return l
	}
	asks := func(auth tls.ClientAuthType) func(*tls.Config) {
		return func(c *tls.Config) { c.ClientAuth = auth }
	}
	blame := func(ctx context.Context, port int32, listen string, asksClients bool, reason string) diagnosis.Finding {
		return diagnose.BrokenPath(ctx, diagnose.Config{
			Options: webhookconf.Options{Target: webhookconf.Target{Host: "127.0.0.1", Port: port}}, Listen: listen, AsksClients: asksClients, Timeout: 5 * time.Second,
		}, reason)
	}

	DescribeTable("is a refusal or not, by the handshake of a client without certificate",
		func(ctx SpecContext, edit func(*tls.Config), asksClients bool, expected diagnosis.Code) {
			Expect(blame(ctx, portOf(listen(edit)), "", asksClients, broken).Code).To(Equal(expected))
		},
		Entry("required", asks(tls.RequireAnyClientCert), false, diagnosis.CallerRefused, SpecTimeout(patience)),
		Entry("required and verified", asks(tls.RequireAndVerifyClientCert), false, diagnosis.CallerRefused, SpecTimeout(patience)),
		Entry("required in TLS 1.2", func(c *tls.Config) { c.ClientAuth, c.MaxVersion = tls.RequireAnyClientCert, tls.VersionTLS12 }, false, diagnosis.CallerRefused, SpecTimeout(patience)),
		Entry("welcome", asks(tls.RequestClientCert), false, diagnosis.ConnectionBroken, SpecTimeout(patience)),
		Entry("asked for, and required over HTTP", asks(tls.RequestClientCert), true, diagnosis.CallerRefused, SpecTimeout(patience)),
		Entry("not asked for", asks(tls.NoClientCert), false, diagnosis.ConnectionBroken, SpecTimeout(patience)),
		Entry("not asked for by a server that is not this process", asks(tls.NoClientCert), true, diagnosis.ConnectionBroken, SpecTimeout(patience)),
	)

	It("shows the alert as evidence", func(ctx SpecContext) {
		Expect(blame(ctx, portOf(listen(asks(tls.RequireAnyClientCert))), "", false, broken).Evidence).To(And(
			HavePrefix(broken), ContainSubstring("without a client certificate, gets: remote error: tls: certificate required")))
	}, SpecTimeout(patience))

	It("is judged by the port of this process where it cannot reach the other", func(ctx SpecContext) {
		own := listen(asks(tls.RequireAnyClientCert)).Addr().String()
		Expect(blame(ctx, freePort(), own, false, broken).Code).To(Equal(diagnosis.CallerRefused))
		Expect(blame(ctx, freePort(), "", true, broken).Code).To(Equal(diagnosis.CallerRefused))
		Expect(blame(ctx, freePort(), "", false, broken).Code).To(Equal(diagnosis.ConnectionBroken))
	}, SpecTimeout(patience))

	It("is asked about only if it broke", func(ctx SpecContext) {
		Expect(blame(ctx, portOf(listen(asks(tls.RequireAnyClientCert))), "", true, "connect: connection refused").Code).To(Equal(diagnosis.ConnectionRefused))
	}, SpecTimeout(patience))
})
