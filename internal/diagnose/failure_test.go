package diagnose_test

// What an error of the API server means, which finding explains another, and which versions wait for which.

import (
	"crypto/x509"
	"fmt"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"code.cloudfoundry.org/eirinix/diagnosis"
	"code.cloudfoundry.org/eirinix/internal/diagnose"
	"code.cloudfoundry.org/eirinix/internal/webhookconf"
)

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

var _ = DescribeTable("An error of our own making means",
	func(err error, expected diagnosis.Code) {
		Expect(diagnose.Classify(fmt.Sprintf("wrapped: %v", err))).To(Equal(expected))
	},
	Entry(nil, x509.UnknownAuthorityError{}, diagnosis.UnknownAuthority),
	Entry(nil, x509.HostnameError{Certificate: &x509.Certificate{}, Host: "h"}, diagnosis.NameMismatch),
	Entry(nil, x509.CertificateInvalidError{Reason: x509.Expired}, diagnosis.Expired),
	Entry(nil, x509.CertificateInvalidError{Reason: x509.NotAuthorizedToSign}, diagnosis.Unexplained),
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
