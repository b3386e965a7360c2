package serving_test

import (
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"net"
	"net/http"
	"sync"
	"time"

	"github.com/go-logr/logr/funcr"
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"sigs.k8s.io/controller-runtime/pkg/webhook"

	"code.cloudfoundry.org/eirinix/internal/serving"
)

var _ = Describe("Serving on the webhook server of a program's own manager", func() {
	echo := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { fmt.Fprint(w, "we answer ", r.URL.Path) })

	server := func() *webhook.DefaultServer {
		GinkgoHelper()
		listener, err := net.Listen("tcp", "127.0.0.1:0")
		Expect(err).NotTo(HaveOccurred())
		port := listener.Addr().(*net.TCPAddr).Port
		Expect(listener.Close()).To(Succeed())
		certificate, err := leafCA(GinkgoTB(), leafYear, time.Now()).SignServing([]string{"127.0.0.1"}, leafDay, time.Now())
		Expect(err).NotTo(HaveOccurred())
		return webhook.NewServer(webhook.Options{Host: "127.0.0.1", Port: port, TLSOpts: []func(*tls.Config){func(c *tls.Config) {
			c.GetCertificate = func(*tls.ClientHelloInfo) (*tls.Certificate, error) { return certificate, nil }
		}}}).(*webhook.DefaultServer)
	}

	It("waits until that answers, which is logged once, and takes all below its prefix", func(ctx SpecContext) {
		host, lines := server(), make(chan string, 100)
		host.Register("/theirs", http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, "theirs") }))
		hosted := serving.NewHosted(host, echo, "/eirinix/ours", funcr.New(func(_, line string) { lines <- line }, funcr.Options{}))
		started := make(chan error, 1)
		go func() { started <- hosted.Start(ctx) }()
		Consistently(started, 600*time.Millisecond).ShouldNot(Receive())

		running, stop := context.WithCancel(ctx)
		var over sync.WaitGroup
		over.Go(func() {
			defer GinkgoRecover()
			Expect(host.Start(running)).To(Succeed())
		})
		DeferCleanup(over.Wait)
		DeferCleanup(stop)
		Eventually(started, 30*time.Second).Should(Receive(BeNil()))
		Expect(lines).To(HaveLen(2))
		Expect(<-lines).To(ContainSubstring("waiting for the KubeManager's webhook server"))
		Expect(<-lines).To(And(ContainSubstring("serving on the KubeManager's webhook server"), ContainSubstring(hosted.Addr().String())))
		Expect(hosted.Port()).To(Equal(host.Options.Port))
		Expect(hosted.Addr().Network()).To(Equal("tcp"))

		transport := &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}}
		defer transport.CloseIdleConnections()
		get := func(path string) string {
			GinkgoHelper()
			r, err := http.NewRequestWithContext(ctx, http.MethodGet, "https://"+hosted.Addr().String()+path, nil)
			Expect(err).NotTo(HaveOccurred())
			resp, err := transport.RoundTrip(r)
			Expect(err).NotTo(HaveOccurred())
			defer resp.Body.Close()
			text, err := io.ReadAll(resp.Body)
			Expect(err).NotTo(HaveOccurred())
			return string(text)
		}
		Expect(get("/eirinix/ours/step")).To(Equal("we answer /step"), "without the prefix")
		Expect(get("/eirinix/ours/of/another/version")).To(Equal("we answer /of/another/version"))
		Expect(get("/eirinix/others/step")).NotTo(ContainSubstring("we answer"))
		Expect(get("/theirs")).To(Equal("theirs"))

		Expect(hosted.Draining()).To(BeFalse())
		Expect(hosted.Shutdown(ctx)).To(Succeed())
		Expect(hosted.Draining()).To(BeTrue())
		Expect(get("/eirinix/ours/step")).To(Equal("we answer /step"), "the manager ends its server, not we")
		Expect(hosted.Err()).NotTo(HaveOccurred())
		Expect(hosted.Done()).NotTo(BeClosed())
	})

	It("does not wait longer than its context", func(ctx SpecContext) {
		short, cancel := context.WithTimeout(ctx, 10*time.Millisecond)
		defer cancel()
		Expect(serving.NewHosted(server(), echo, "/eirinix/ours", GinkgoLogr).Start(short)).To(MatchError(context.DeadlineExceeded))
	})

	It("refuses a path that is taken, with the remedy", func(ctx SpecContext) {
		host := server()
		host.Register("/eirinix/ours/", echo)
		Expect(serving.NewHosted(host, echo, "/eirinix/ours", GinkgoLogr).Start(ctx)).To(MatchError(
			And(ContainSubstring("/eirinix/ours"), ContainSubstring("an OperatorFingerprint of its own"))))
	})

	It("lists the paths that were registered on one server, and none of another's", func() {
		mux := http.NewServeMux()
		one, other := webhook.NewServer(webhook.Options{Port: -1, WebhookMux: mux}), webhook.NewServer(webhook.Options{Port: -1})
		Expect(serving.Registered(mux)).To(BeEmpty())
		other.Register("/hosted-theirs", echo)
		other.Register("/hosted-below/theirs", echo)
		one.Register("/hosted-b", echo)
		one.Register("/hosted-a", echo)
		one.Register("/hosted-below/", echo)
		Expect(serving.Registered(mux)).To(HaveExactElements("/hosted-a", "/hosted-b", "/hosted-below/"))
	})

	It("names controller-runtime's port where none is set", func() {
		hosted := serving.NewHosted(webhook.NewServer(webhook.Options{}).(*webhook.DefaultServer), echo, "/p", GinkgoLogr)
		Expect(hosted.Port()).To(Equal(9443))
		Expect(hosted.Addr().String()).To(Equal(":9443"))
	})
})
