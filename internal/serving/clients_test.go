package serving_test

// This file is about the clients that may call: by their certificates, and for how long. It is also about the CAs of clients:
// where they are read from, and how their changes are followed.

import (
	"bufio"
	"context"
	"crypto"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptrace"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-logr/logr"
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"

	"code.cloudfoundry.org/eirinix/internal/ca"
	"code.cloudfoundry.org/eirinix/internal/cluster"
	"code.cloudfoundry.org/eirinix/internal/serving"
	. "code.cloudfoundry.org/eirinix/internal/spectest"
)

var _ = Describe("Clients", func() {
	var (
		clock            *clock
		clients          *serving.Clients
		trusted, another *ca.Authority
		caller           *tls.Certificate
	)
	BeforeEach(func() {
		clock = newClock(noon)
		trusted, another = NewCA(year, noon), NewCA(year, noon)
		clients = &serving.Clients{Names: []string{"front-proxy-client", "apiserver.cluster.example"}, Now: clock.now}
		Expect(clients.SetCAs(trusted.CertificatePEM)).To(Succeed())
		caller = clientCert(trusted, "front-proxy-client")
	})
	check := func(certificates ...*tls.Certificate) error { return clients.Check(connectionOf(certificates...)) }

	DescribeTable("judges a certificate, and remembers it:", func(reason, name string, edit func(*x509.Certificate)) {
		certificate := clientCert(trusted, name, edit)
		for range 2 {
			if reason == "" {
				Expect(check(certificate)).To(Succeed())
			} else {
				Expect(check(certificate)).To(And(MatchError(serving.ErrClientRefused), MatchError(ContainSubstring(reason))))
			}
		}
	},
		Entry("an allowed common name", "", "front-proxy-client", func(*x509.Certificate) {}),
		Entry("any allowed DNS name", "", "whatever", func(c *x509.Certificate) { c.DNSNames = []string{"other", "apiserver.cluster.example"} }),
		Entry("another name", `"CN=unlisted" with DNS names "[other]" is not a name that may call`, "unlisted", func(c *x509.Certificate) { c.DNSNames = []string{"other"} }),
		Entry("a name in capitals", "may call", "Front-Proxy-Client", func(*x509.Certificate) {}),
		Entry("a wildcard", "may call", "*", func(c *x509.Certificate) { c.DNSNames = []string{"*.cluster.example"} }),
		Entry("an organization of that name", "may call", "", func(c *x509.Certificate) { c.Subject = pkix.Name{Organization: []string{"front-proxy-client"}} }),
		Entry("a server", "incompatible key usage", "front-proxy-client", func(c *x509.Certificate) {
			c.ExtKeyUsage = []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth}
		}),
		Entry("an expired one", "has expired", "front-proxy-client", until(noon.Add(-time.Second))),
		Entry("one that is not valid yet", "not yet valid", "front-proxy-client", from(noon.Add(time.Minute))),
	)

	It("refuses a certificate of another CA, and a missing one", func() {
		foreign := clientCert(another, "front-proxy-client")
		Expect(check(foreign)).To(And(MatchError(serving.ErrClientRefused),
			MatchError(ContainSubstring("unknown authority")), MatchError(ContainSubstring(another.Certificate.Subject.SerialNumber))))
		Expect(check(foreign, caller)).NotTo(Succeed(), "only the first certificate is the client's")
		Expect(check()).To(MatchError(serving.ErrNoClientCertificate))
		Expect(clients.Check(nil)).To(MatchError(serving.ErrNoClientCertificate))
	})

	It("accepts any name of the CAs when no names are given, and none before there are CAs", func() {
		clients = &serving.Clients{Now: clock.now}
		Expect(check(caller)).To(And(MatchError(serving.ErrClientRefused), MatchError(ContainSubstring("have not been read yet"))))
		Expect(clients.SetCAs(trusted.CertificatePEM)).To(Succeed())
		Expect(check(clientCert(trusted, "any"))).To(Succeed())
		Expect(check(clientCert(another, "any"))).NotTo(Succeed())
		Expect(clients.Expected()).To(ContainSubstring("any name"))
	})

	It("verifies through the intermediates that a client sends, and for as long as they live", func() {
		middle := clientCert(trusted, "middle", intermediateCA, until(noon.Add(time.Hour)))
		below := certifiedBy(middle.Leaf, middle.PrivateKey.(crypto.Signer), "front-proxy-client", until(noon.Add(2*time.Hour)))
		Expect(check(below)).NotTo(Succeed(), "without the intermediate")
		Expect(check(below, middle)).To(Succeed(), "with it, at once")
		Expect(check(below)).NotTo(Succeed())
		clock.set(noon.Add(time.Hour + time.Second))
		Expect(check(below, middle)).To(MatchError(serving.ErrClientRefused), "the intermediate has expired")
	})

	Describe("SetCAs", func() {
		It("changes the verdict on clients that were seen before", func() {
			foreign := clientCert(another, "front-proxy-client")
			Expect(check(caller)).To(Succeed())
			Expect(check(foreign)).NotTo(Succeed())
			Expect(clients.SetCAs(ca.Bundle(trusted.CertificatePEM, another.CertificatePEM))).To(Succeed())
			Expect(check(caller)).To(Succeed())
			Expect(check(foreign)).To(Succeed())
			Expect(clients.SetCAs(another.CertificatePEM)).To(Succeed())
			Expect(check(caller)).To(MatchError(serving.ErrClientRefused))
			Expect(check(foreign)).To(Succeed())
		})

		It("keeps the last good bundle instead of one that is none", func() {
			whole := ca.Bundle(another.CertificatePEM, trusted.CertificatePEM)
			for _, bad := range [][]byte{
				nil, []byte("garbage"), trusted.PrivateKeyPEM,
				ca.EncodeCertificate(caller.Leaf), // not a CA's
				whole[:len(whole)-30],             // being written
			} {
				Expect(clients.SetCAs(bad)).NotTo(Succeed(), "%s", bad)
				Expect(check(caller)).To(Succeed(), "%s", bad)
			}
			Expect(clients.SetCAs(nil)).To(MatchError(serving.ErrNoClientCA))
			Expect(clients.SetCAs(whole[:len(whole)-30])).To(MatchError(ContainSubstring("is it complete")))
		})

		It("reads the CAs that are readable, and trusts no client's own certificate", func() {
			foreign := clientCert(another, "front-proxy-client")
			Expect(clients.SetCAs([]byte("# CAs\n" + string(ca.EncodeCertificate(foreign.Leaf)) + string(trusted.CertificatePEM)))).To(Succeed())
			Expect(check(caller)).To(Succeed())
			Expect(check(foreign)).NotTo(Succeed())
		})
	})

	Describe("a remembered decision", func() {
		It("ends with the certificate", func() {
			Expect(check(caller)).To(Succeed())
			clock.set(caller.Leaf.NotAfter.Add(time.Second))
			Expect(check(caller)).To(MatchError(ContainSubstring("has expired")))
		})

		It("is not from the future, and one of a refusal is soon made again", func() {
			young := clientCert(trusted, "front-proxy-client", from(noon.Add(-time.Minute)))
			Expect(check(young)).To(Succeed())
			clock.set(noon.Add(-time.Minute - time.Second)) // the clock was wrong and is set right
			Expect(check(young)).To(MatchError(ContainSubstring("not yet valid")))
			clock.set(clock.now().Add(serving.RefusalLife))
			Expect(check(young)).To(Succeed())
		})

		It("has a bounded number, and refusals do not push out acceptances", func() {
			Expect(check(caller)).To(Succeed())
			unlisted := clientCert(trusted, "unlisted")
			for i := range serving.MaxDecisions + 10 {
				copied := *unlisted.Leaf // other bytes are another certificate
				copied.Raw = fmt.Append(nil, i)
				Expect(clients.Check(&tls.ConnectionState{PeerCertificates: []*x509.Certificate{&copied}})).NotTo(Succeed())
			}
			accepted, refused := clients.Remembered()
			Expect(accepted).To(Equal(1))
			Expect(refused).To(BeNumerically("<=", serving.MaxDecisions))
		})
	})

	It("quotes the certificate of a refused client on one line of bounded length", func() {
		name := "a\r\nX-Forged: b\n" + strings.Repeat("x", 5000)
		refused := clientCert(another, name)
		middle, other := clientCert(another, name, intermediateCA), clientCert(another, name, intermediateCA)
		below := certifiedBy(middle.Leaf, middle.PrivateKey.(crypto.Signer), "x")
		for _, err := range []error{check(refused), check(below, other)} { // crypto/x509 quotes the other one's name
			Expect(err.Error()).NotTo(ContainSubstring("\n"))
			Expect(len(err.Error())).To(BeNumerically("<", 1200))
		}
	})

	It("is safe for concurrent use", func() {
		both := ca.Bundle(trusted.CertificatePEM, another.CertificatePEM)
		foreign := clientCert(another, "unlisted")
		var group sync.WaitGroup
		for i := range 8 {
			group.Go(func() {
				defer GinkgoRecover()
				for range 50 {
					Expect(clients.SetCAs([][]byte{trusted.CertificatePEM, both}[i%2])).To(Succeed())
					Expect(check(caller)).To(Succeed())
					Expect(check(foreign)).NotTo(Succeed())
				}
			})
		}
		group.Wait()
	})
})

func TestClientsCheckDoesNotAllocateOnceAClientIsKnown(t *testing.T) {
	RegisterTestingT(t)
	authority := NewCA(year, time.Now())
	clients := &serving.Clients{Names: []string{"front-proxy-client"}}
	Expect(clients.SetCAs(authority.CertificatePEM)).To(Succeed())
	for name, connection := range map[string]*tls.ConnectionState{
		"accepted": connectionOf(clientCert(authority, "front-proxy-client"), clientCert(authority, "middle", intermediateCA)),
		"refused":  connectionOf(clientCert(authority, "unlisted")),
		"none":     {},
	} {
		// A verification allocates: so this also proves that it does not happen.
		Expect(testing.AllocsPerRun(100, func() { _ = clients.Check(connection) })).To(BeZero(), name)
	}
}

var _ = Describe("A server that asks who calls", func() {
	var (
		s                *serving.Server
		trusted, another *ca.Authority
		handled          atomic.Int32
	)
	BeforeEach(func() {
		handled.Store(0)
		s = newServer()
		s.Handler = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { handled.Add(1) })
		trusted, another = NewCA(year, time.Now()), NewCA(year, time.Now())
		s.Clients = &serving.Clients{Names: []string{"front-proxy-client"}}
		Expect(s.Clients.SetCAs(trusted.CertificatePEM)).To(Succeed())
	})
	// showing is a caller with a client certificate.
	showing := func(by *ca.Authority, name string) *http.Client {
		client := caller()
		client.Transport.(*http.Transport).TLSClientConfig.Certificates = []tls.Certificate{*clientCert(by, name)}
		return client
	}
	// asked returns the server's request for a certificate, if it wants any.
	asked := func() (info *tls.CertificateRequestInfo) {
		GinkgoHelper()
		Must(handshake(s, &tls.Config{GetClientCertificate: func(i *tls.CertificateRequestInfo) (*tls.Certificate, error) {
			info = i
			return &tls.Certificate{}, nil
		}}))
		return info
	}

	It("answers an allowed client, and another one with the reason, on every path", func(ctx SpecContext) {
		start(ctx, s)
		Expect(get(showing(trusted, "front-proxy-client"), s, "/mutate/x")).To(HaveField("Status", http.StatusOK))
		Expect(handled.Swap(0)).To(BeEquivalentTo(1))
		for _, path := range []string{"/", "/mutate/x", "/healthz/", "//healthz", "/healthz/../mutate", "/metrics"} {
			Expect(get(caller(), s, path)).To(And(HaveField("Status", http.StatusUnauthorized), HaveField("Body", And(
				HavePrefix("no client certificate; expected is a certificate for client authentication"),
				HaveSuffix("one of the names [\"front-proxy-client\"]\n")))), path)
		}
		for _, client := range []*http.Client{showing(another, "front-proxy-client"), showing(trusted, "other")} {
			Expect(get(client, s, "/mutate/x")).To(And(HaveField("Status", http.StatusForbidden),
				HaveField("Body", MatchRegexp(`^the client certificate is not accepted: "CN=.*".*; expected is a certificate .* \["front-proxy-client"\]\n$`))))
		}
		Expect(handled.Load()).To(BeZero())
	})

	It("answers every client about its health, such as kubelets, which present none", func(ctx SpecContext) {
		start(ctx, s)
		for _, client := range []*http.Client{caller(), showing(another, "other")} {
			for _, path := range []string{"/healthz", "/readyz"} {
				Expect(get(client, s, path)).To(HaveField("Body", "ok\n"), path)
			}
		}
	})

	It("refuses on an open connection whose CA is no longer one, and ends it", func(ctx SpecContext) {
		start(ctx, s)
		client, reused := showing(trusted, "front-proxy-client"), false
		trace := &httptrace.ClientTrace{GotConn: func(c httptrace.GotConnInfo) { reused = c.Reused }}
		status := func() int {
			resp := Must(client.Do(Must(http.NewRequestWithContext(httptrace.WithClientTrace(ctx, trace), http.MethodGet, "https://"+s.Addr().String()+"/x", nil))))
			Expect(resp.Body.Close()).To(Succeed())
			return resp.StatusCode
		}
		Expect(status()).To(Equal(http.StatusOK))
		Expect(s.Clients.SetCAs(another.CertificatePEM)).To(Succeed())
		Expect(status()).To(Equal(http.StatusForbidden))
		Expect(reused).To(BeTrue(), "otherwise this spec proves nothing")
		Eventually(func() bool { // the next connection may show another certificate
			status()
			return reused
		}).Should(BeFalse())
	})

	DescribeTable("judges a session that is resumed by the CAs of now, of TLS", func(ctx SpecContext, version uint16) {
		start(ctx, s)
		client := showing(trusted, "front-proxy-client")
		transport := client.Transport.(*http.Transport)
		transport.TLSClientConfig.ClientSessionCache = tls.NewLRUClientSessionCache(10)
		transport.TLSClientConfig.ServerName, transport.TLSClientConfig.MaxVersion = "localhost", version
		transport.DisableKeepAlives = true
		answered := func(code int, resumed bool) {
			GinkgoHelper()
			resp := Must(client.Get("https://" + s.Addr().String() + "/x"))
			Expect(resp.Body.Close()).To(Succeed())
			Expect(resp).To(And(HaveHTTPStatus(code), HaveField("TLS.DidResume", resumed)))
		}
		answered(http.StatusOK, false)
		answered(http.StatusOK, true)
		Expect(s.Clients.SetCAs(another.CertificatePEM)).To(Succeed())
		answered(http.StatusForbidden, true)
	},
		Entry("1.2", uint16(tls.VersionTLS12)),
		Entry("1.3", uint16(tls.VersionTLS13)),
	)

	It("does not wait for the body of a call that it refuses", func(ctx SpecContext) {
		start(ctx, s)
		conn := dial(s, "POST /mutate/x HTTP/1.1\r\nHost: x\r\nContent-Length: 100000\r\n\r\n") // and no body
		Expect(conn.SetDeadline(time.Now().Add(20 * time.Second))).To(Succeed())
		Expect(Must(http.ReadResponse(bufio.NewReader(conn), nil))).To(And(HaveHTTPStatus(http.StatusUnauthorized), HaveField("Close", true)))
	})

	It("requests a certificate without naming its CAs, so that a client sends the one that it has, and none where every client may call", func(ctx SpecContext) {
		start(ctx, s)
		Expect(asked()).To(And(Not(BeNil()), HaveField("AcceptableCAs", BeEmpty())))
		s = newServer()
		start(ctx, s)
		Expect(asked()).To(BeNil())
	})

	It("counts refused clients, and logs a few at a time", func(ctx SpecContext) {
		var logs logLines
		s.Log, s.Refused = logs.logger(), func(status int) { handled.Add(int32(status)) }
		start(ctx, s)
		for range 20 {
			Expect(get(caller(), s, "/mutate/x")).To(HaveField("Status", http.StatusUnauthorized))
		}
		Expect(handled.Load()).To(BeEquivalentTo(20 * http.StatusUnauthorized))
		refusals := logs.with("refused a client")
		Expect(len(refusals)).To(And(BeNumerically(">", 0), BeNumerically("<", 6)))
		Expect(refusals[0]).To(And(ContainSubstring("no client certificate"), ContainSubstring("front-proxy-client")))
	})
})

var _ = Describe("The CAs of clients", func() {
	It("are read from text or from a file, and errors name the option and the file", func(ctx SpecContext) {
		authority := NewCA(year, time.Now())
		accepted := connectionOf(clientCert(authority, "any"))
		text := &serving.ClientCAs{Clients: &serving.Clients{}, PEM: authority.CertificatePEM}
		Expect(text.Read(ctx)).To(Succeed())
		Expect(text.Clients.Check(accepted)).To(Succeed())
		text.PEM = []byte("garbage")
		Expect(text.Read(ctx)).To(MatchError(ContainSubstring("ManagerOptions.ClientCA.PEM")))
		text.Follow(ctx, func(f func()) { f() }) // has nothing to follow

		path := filepath.Join(GinkgoT().TempDir(), "ca.crt")
		file := &serving.ClientCAs{Clients: &serving.Clients{}, File: path}
		fails := MatchError(And(ContainSubstring("ManagerOptions.ClientCA.File"), ContainSubstring(path)))
		Expect(file.Read(ctx)).To(fails)
		Expect(os.WriteFile(path, authority.CertificatePEM, 0o600)).To(Succeed())
		Expect(file.Read(ctx)).To(Succeed())
		for _, bad := range []string{"", string(authority.CertificatePEM) + strings.Repeat("# longer than can be\n", 1<<16)} {
			Expect(os.WriteFile(path, []byte(bad), 0o600)).To(Succeed())
			Expect(file.Read(ctx)).To(fails)
			Expect(file.Clients.Check(accepted)).To(Succeed())
		}
	})

	It("are not known when the ConfigMap cannot be read in time", func(ctx SpecContext) {
		cas := inConfigMap(&configMap{}, GinkgoLogr)
		over, cancel := context.WithCancel(ctx)
		cancel()
		Expect(cas.Read(over)).To(And(MatchError(ContainSubstring("ConfigMap ca could not be read")), MatchError(context.Canceled)))
	})
})

// configMap is an API server that holds one ConfigMap, or none.
type configMap struct {
	mu   sync.Mutex
	data map[string]string
	n    int
}

func (c *configMap) set(data map[string]string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.data = data
	c.n++
}

func (c *configMap) RoundTrip(*http.Request) (*http.Response, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	code, text := http.StatusNotFound, `{"kind":"Status","apiVersion":"v1","status":"Failure","reason":"NotFound","code":404}`
	if c.data != nil {
		data, err := json.Marshal(c.data)
		if err != nil {
			return nil, err
		}
		code = http.StatusOK
		text = fmt.Sprintf(`{"kind":"ConfigMap","apiVersion":"v1","metadata":{"name":"ca","namespace":"kube-system","uid":"u","resourceVersion":"%d"},"data":%s}`, c.n, data)
	}
	return &http.Response{StatusCode: code, Header: http.Header{"Content-Type": {"application/json"}}, Body: io.NopCloser(strings.NewReader(text))}, nil
}

// inConfigMap are CAs in a ConfigMap that may be read, and not watched.
func inConfigMap(server *configMap, log logr.Logger) *serving.ClientCAs {
	GinkgoHelper()
	cas := &serving.ClientCAs{Clients: &serving.Clients{}, ConfigMap: types.NamespacedName{Namespace: "kube-system", Name: "ca"}, Key: "ca.crt", Log: log}
	cas.Objects = Must(cluster.NewObjects(&rest.Config{Host: "https://api.example.org", Transport: server}, log, cluster.Followed{
		Object: cas.Empty(), Access: func(context.Context) (cluster.Access, error) { return cluster.Access{Get: true}, nil },
	}))
	return cas
}

// follow runs Follow until the test ends.
func follow(t *testing.T, cas *serving.ClientCAs) {
	ctx, cancel := context.WithCancel(t.Context())
	var running sync.WaitGroup
	cas.Follow(ctx, running.Go)
	if cas.Objects != nil {
		running.Go(func() { cas.Objects.Run(ctx) })
	}
	t.Cleanup(func() {
		cancel()
		running.Wait()
	})
	passes(0)
}

func TestClientCAsFollowAConfigMap(t *testing.T) {
	bubble(t, func(t *testing.T) {
		first, second := NewCA(year, time.Now()), NewCA(year, time.Now())
		byFirst, bySecond := connectionOf(clientCert(first, "any")), connectionOf(clientCert(second, "any"))
		server, logs := &configMap{}, &logLines{}
		cas := inConfigMap(server, logs.logger())
		follow(t, cas)
		becomes := func(data map[string]string) error {
			server.set(data)
			passes(40 * time.Second) // it is read every half minute
			return cas.Read(t.Context())
		}
		Expect(becomes(nil)).To(MatchError(And(ContainSubstring("ManagerOptions.ClientCA.ConfigMap kube-system/ca"), ContainSubstring("needs get, list and watch"))))
		Expect(becomes(map[string]string{"other": ""})).To(MatchError(ContainSubstring(`it has no key "ca.crt"`)))
		Expect(becomes(map[string]string{"ca.crt": string(first.CertificatePEM)})).To(Succeed())
		Expect(cas.Clients.Check(byFirst)).To(Succeed())

		server.set(map[string]string{"ca.crt": string(second.CertificatePEM)})
		passes(40 * time.Second)
		Expect(cas.Clients.Check(bySecond)).To(Succeed(), "a change is taken over, without a Read")
		Expect(cas.Clients.Check(byFirst)).NotTo(Succeed())
		for _, broken := range []map[string]string{{"ca.crt": "garbage"}, {}, nil} {
			before := len(logs.with("the last good ones stay"))
			server.set(broken)
			passes(40 * time.Second)
			Expect(cas.Clients.Check(bySecond)).To(Succeed(), "the last good ones stay in force")
			Expect(len(logs.with("the last good ones stay"))).To(BeNumerically(">", before), logs.String)
		}
		Expect(logs.with("client CAs read")).To(HaveLen(2), logs.String)
	})
}

// look is as long as Follow may take to see that a file has changed.
const look = 5 * time.Second

func TestClientCAsFollowEveryKindOfChangeOfAFile(t *testing.T) {
	bubble(t, func(t *testing.T) {
		first, second := NewCA(year, time.Now()), NewCA(year, time.Now())
		byFirst, bySecond := connectionOf(clientCert(first, "any")), connectionOf(clientCert(second, "any"))
		path, clients := filepath.Join(t.TempDir(), "ca.crt"), &serving.Clients{}
		follow(t, &serving.ClientCAs{Clients: clients, File: path, Log: logr.Discard()})
		Expect(clients.Check(byFirst)).NotTo(Succeed(), "there is no file yet")
		Expect(os.WriteFile(path, first.CertificatePEM, 0o600)).To(Succeed())
		passes(look)
		Expect(clients.Check(byFirst)).To(Succeed(), "appeared")
		Expect(clients.Check(bySecond)).NotTo(Succeed())

		info := Must(os.Stat(path))
		Expect(os.WriteFile(path, ca.Bundle(first.CertificatePEM, second.CertificatePEM), 0o600)).To(Succeed())
		Expect(os.Chtimes(path, info.ModTime(), info.ModTime())).To(Succeed())
		passes(look)
		Expect(clients.Check(bySecond)).To(Succeed(), "written over, within the same tick of the file's clock")

		// As the kubelet updates a mounted ConfigMap.
		Expect(os.WriteFile(path+".new", first.CertificatePEM, 0o600)).To(Succeed())
		Expect(os.Symlink(path+".new", path+".link")).To(Succeed())
		Expect(os.Rename(path+".link", path)).To(Succeed())
		passes(look)
		Expect(clients.Check(bySecond)).NotTo(Succeed(), "replaced by a link")

		Expect(os.Remove(path)).To(Succeed())
		passes(look)
		Expect(clients.Check(byFirst)).To(Succeed(), "removed: the last good ones stay")
	})
}
