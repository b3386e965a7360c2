package eirinix

// This file specifies how a Manager finds the API server, and the namespace of its Secret.

import (
	"net/http"
	"net/http/httptest"

	. "github.com/onsi/ginkgo/v2/dsl/core"
	. "github.com/onsi/ginkgo/v2/dsl/table"
	. "github.com/onsi/gomega"
	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
	"go.uber.org/zap/zaptest/observer"
	"k8s.io/client-go/rest"

	. "code.cloudfoundry.org/eirinix/internal/spectest"
)

var _ = Describe("GetKubeConnection", func() {
	var folder string

	BeforeEach(func() { folder = GinkgoT().TempDir() })

	It("comes once, from RestConfig, of which it is a copy", func() {
		o := validOptions()
		o.RestConfig = &rest.Config{Host: "https://rest.example.org"}
		m := NewManager(o)
		got, err := m.GetKubeConnection()
		Expect(err).NotTo(HaveOccurred())
		Expect(got).To(And(HaveField("Host", o.RestConfig.Host), HaveField("UserAgent", HaveSuffix(" eirinix/eirini-x"))))
		Expect(o.RestConfig).To(Equal(&rest.Config{Host: "https://rest.example.org"}))
		Expect(m.GetKubeConnection()).To(BeIdenticalTo(got))
	})

	It("reports the fault of the file to each caller", func() {
		m := NewManager(ManagerOptions{KubeConfig: "/no/such/file", Logger: zap.NewNop().Sugar()})
		_, err := m.GetKubeConnection()
		Expect(err).To(MatchError(And(HavePrefix(`eirinix: ManagerOptions.KubeConfig "/no/such/file"`), ContainSubstring("give the path of a kubeconfig file"))))
		_, other := m.GetKubeClient()
		Expect(other).To(MatchError(err.Error()))
		Expect(m.GetKubeManager()).To(BeNil())
	})

	It("asks for uncompressed responses in the library's own requests alone", func(ctx SpecContext) {
		accepted := make(chan string, 1)
		server := httptest.NewTLSServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { accepted <- r.Header.Get("Accept-Encoding") }))
		DeferCleanup(server.Close)
		o := validOptions()
		o.RestConfig = &rest.Config{Host: server.URL, TLSClientConfig: rest.TLSClientConfig{Insecure: true}}
		m := NewManager(o)
		_, own, err := m.given().own()
		Expect(err).NotTo(HaveOccurred())
		Expect(own.Discovery().RESTClient().Get().AbsPath("/version").Do(ctx).Error()).To(Succeed())
		Expect(accepted).To(Receive(BeEmpty()))
		users, err := m.GetKubeClient()
		Expect(err).NotTo(HaveOccurred())
		Expect(users.RESTClient().Get().AbsPath("/version").Do(ctx).Error()).To(Succeed())
		Expect(accepted).To(Receive(Equal("gzip")))
	})

	DescribeTable("decides on the namespace of the Secret:",
		func(change func(*ManagerOptions), pod, contextNamespace, expected string, said int) {
			inPod(pod)
			core, logs := observer.New(zapcore.InfoLevel)
			o := validOptions()
			o.Logger = zap.New(core).Sugar()
			o.KubeConfig = WriteKubeconfig(folder, "given", "https://given.example.org", contextNamespace)
			change(&o)
			m := NewManager(o)
			_, err := m.GetKubeConnection()
			Expect(err).NotTo(HaveOccurred())
			Expect(m.given().secretNamespace()).To(Equal(expected))
			Expect(logs.FilterMessageSnippet(`"default"`).Len()).To(Equal(said))
		},
		Entry("WebhookNamespace first", func(o *ManagerOptions) { o.WebhookNamespace, o.Namespace = "hooks", "cf" }, "own", "mine", "hooks", 0),
		Entry("then Namespace", func(o *ManagerOptions) { o.Namespace = "cf" }, "own", "mine", "cf", 0),
		Entry("then that of the pod", func(*ManagerOptions) {}, "own", "mine", "own", 0),
		Entry("then that of the kubeconfig's context", func(*ManagerOptions) {}, "", "mine", "mine", 0),
		Entry("then default, which is logged", func(*ManagerOptions) {}, "", "", "default", 1),
	)
})
