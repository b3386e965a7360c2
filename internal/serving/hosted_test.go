package serving_test

// This file is about serving on the webhook server of a program's own controller-runtime manager.

import (
	"context"
	"crypto/tls"
	"fmt"
	"net/http"
	"sync"

	"github.com/go-logr/logr/funcr"
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"sigs.k8s.io/controller-runtime/pkg/webhook"

	"code.cloudfoundry.org/eirinix/internal/serving"
	. "code.cloudfoundry.org/eirinix/internal/spectest"
)

var _ = Describe("Serving on the webhook server of a program's own manager", func() {
	echo := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { fmt.Fprint(w, "we answer ", r.URL.Path) })

	server := func() *webhook.DefaultServer {
		GinkgoHelper()
		certificate := selfSigned()
		return webhook.NewServer(webhook.Options{Host: "127.0.0.1", Port: int(FreePort()), TLSOpts: []func(*tls.Config){func(c *tls.Config) {
			c.GetCertificate = func(*tls.ClientHelloInfo) (*tls.Certificate, error) { return certificate, nil }
		}}}).(*webhook.DefaultServer)
	}

	It("waits until that answers, which is logged, and takes all below its prefix", func(ctx SpecContext) {
		host, lines := server(), make(chan string, 100)
		host.Register("/theirs", http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, "theirs") }))
		hosted := serving.NewHosted(host, echo, "/eirinix/ours", funcr.New(func(_, line string) { lines <- line }, funcr.Options{}))
		started := make(chan error, 1)
		go func() { started <- hosted.Start(ctx) }()
		Eventually(lines).Should(Receive(ContainSubstring("waiting for the KubeManager's webhook server")))
		Expect(started).NotTo(Receive())

		running, stop := context.WithCancel(ctx)
		var over sync.WaitGroup
		over.Go(func() {
			defer GinkgoRecover()
			Expect(host.Start(running)).To(Succeed())
		})
		DeferCleanup(over.Wait)
		DeferCleanup(stop)
		Eventually(started).Should(Receive(BeNil()))
		Expect(hosted.Addr().String()).To(Equal(fmt.Sprint("127.0.0.1:", host.Options.Port)))
		Expect(hosted.Addr().Network()).To(Equal("tcp"))
		Expect(lines).To(Receive(And(ContainSubstring("serving on the KubeManager's webhook server"), ContainSubstring(hosted.Addr().String()))))

		client := caller()
		Expect(getFrom(client, hosted.Addr(), "/eirinix/ours/of/another/version")).To(HaveField("Body", "we answer /of/another/version"), "without the prefix")
		Expect(getFrom(client, hosted.Addr(), "/eirinix/others/step")).To(HaveField("Body", Not(ContainSubstring("we answer"))))
		Expect(getFrom(client, hosted.Addr(), "/theirs")).To(HaveField("Body", "theirs"))

		Expect(hosted.Draining()).To(BeFalse())
		Expect(hosted.Shutdown(ctx)).To(Succeed())
		Expect(hosted.Draining()).To(BeTrue())
		Expect(getFrom(client, hosted.Addr(), "/eirinix/ours/step")).To(HaveField("Body", "we answer /step"), "the manager ends its server, not we")
		Expect(hosted.Err()).NotTo(HaveOccurred())
		Expect(hosted.Done()).NotTo(BeClosed())
	})

	It("does not wait longer than its context", func(ctx SpecContext) {
		over, cancel := context.WithCancel(ctx)
		cancel()
		Expect(serving.NewHosted(server(), echo, "/eirinix/ours", GinkgoLogr).Start(over)).To(MatchError(context.Canceled))
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
		other.Register("/hosted-theirs", echo)
		other.Register("/hosted-below/theirs", echo)
		one.Register("/hosted-b", echo)
		one.Register("/hosted-a", echo)
		one.Register("/hosted-below/", echo)
		Expect(serving.Registered(mux)).To(HaveExactElements("/hosted-a", "/hosted-b", "/hosted-below/"))
	})
})
