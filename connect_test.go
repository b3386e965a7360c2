package eirinix

import (
	"os"
	"path/filepath"

	. "github.com/onsi/ginkgo/v2/dsl/core"
	. "github.com/onsi/ginkgo/v2/dsl/table"
	. "github.com/onsi/gomega"
	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
	"go.uber.org/zap/zaptest/observer"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
)

var _ = Describe("GetKubeConnection", func() {
	var folder string

	// kubeconfig writes one that leads to the host and gives its path.
	kubeconfig := func(name, host, namespace string) string {
		GinkgoHelper()
		config := clientcmdapi.NewConfig()
		config.Clusters["c"] = &clientcmdapi.Cluster{Server: host}
		config.Contexts["c"] = &clientcmdapi.Context{Cluster: "c", Namespace: namespace}
		config.CurrentContext = "c"
		path := filepath.Join(folder, name)
		Expect(clientcmd.WriteToFile(*config, path)).To(Succeed())
		return path
	}

	BeforeEach(func() {
		t := GinkgoT()
		folder = t.TempDir()
		t.Setenv("HOME", folder)
		t.Setenv("KUBECONFIG", "")
		t.Setenv("KUBERNETES_SERVICE_HOST", "")
		t.Setenv("KUBERNETES_SERVICE_PORT", "")
		// client-go looks for HOME when the program begins.
		home := clientcmd.RecommendedHomeFile
		clientcmd.RecommendedHomeFile = filepath.Join(folder, ".kube", "config")
		DeferCleanup(func() { clientcmd.RecommendedHomeFile = home })
	})

	connect := func(change func(*ManagerOptions)) (*rest.Config, error) {
		o := validOptions()
		change(&o)
		return NewManager(o).GetKubeConnection()
	}

	Describe("comes", func() {
		It("from the file of the option", func() {
			path := kubeconfig("given", "https://given.example.org", "")
			GinkgoT().Setenv("KUBECONFIG", kubeconfig("env", "https://env.example.org", ""))
			Expect(connect(func(o *ManagerOptions) { o.KubeConfig = path })).To(HaveField("Host", "https://given.example.org"))
		})

		It("from the file that $KUBECONFIG names", func() {
			GinkgoT().Setenv("KUBECONFIG", kubeconfig("env", "https://env.example.org", ""))
			kubeconfig(".kube/config", "https://home.example.org", "")
			Expect(connect(func(*ManagerOptions) {})).To(HaveField("Host", "https://env.example.org"))
		})

		It("from ~/.kube/config", func() {
			kubeconfig(".kube/config", "https://home.example.org", "")
			Expect(connect(func(*ManagerOptions) {})).To(HaveField("Host", "https://home.example.org"))
		})

		It("from RestConfig, of which it is a copy", func() {
			given := &rest.Config{Host: "https://rest.example.org"}
			got, err := connect(func(o *ManagerOptions) { o.RestConfig = given })
			Expect(err).NotTo(HaveOccurred())
			Expect(got.Host).To(Equal(given.Host))
			Expect(got).NotTo(BeIdenticalTo(given))
			Expect(given).To(Equal(&rest.Config{Host: "https://rest.example.org"}))
			Expect(got.UserAgent).To(HaveSuffix(" eirinix/eirini-x"))
		})

		It("once", func() {
			o := validOptions()
			o.RestConfig = &rest.Config{Host: "https://rest.example.org"}
			m := NewManager(o)
			first, err := m.GetKubeConnection()
			Expect(err).NotTo(HaveOccurred())
			Expect(m.GetKubeConnection()).To(BeIdenticalTo(first))
		})
	})

	DescribeTable("says what is wrong with the file and what to do about",
		func(prepare func() ManagerOptions, parts ...string) {
			o := prepare()
			o.Logger = zap.NewNop().Sugar()
			m := NewManager(o)
			_, err := m.GetKubeConnection()
			Expect(err).To(MatchError(HavePrefix("eirinix: ")))
			for _, part := range parts {
				Expect(err).To(MatchError(ContainSubstring(part)))
			}
			_, err2 := m.GetKubeClient()
			Expect(err2).To(MatchError(err.Error()))
			Expect(m.GetKubeManager()).To(BeNil())
		},
		Entry("one that is missing", func() ManagerOptions { return ManagerOptions{KubeConfig: "/no/such/file"} },
			`ManagerOptions.KubeConfig "/no/such/file"`, "give the path of a kubeconfig file", "no such file"),
		Entry("none at all", func() ManagerOptions { return ManagerOptions{} },
			"no kubeconfig found", ".kube/config", "$KUBECONFIG", "set ManagerOptions.KubeConfig"),
		Entry("one that is no YAML", func() ManagerOptions {
			path := filepath.Join(folder, "broken")
			Expect(os.WriteFile(path, []byte("{not: [yaml"), 0o600)).To(Succeed())
			return ManagerOptions{KubeConfig: path}
		}, "broken", "give the path of a kubeconfig file"),
		Entry("one in $KUBECONFIG that is no YAML", func() ManagerOptions {
			path := filepath.Join(folder, "broken")
			Expect(os.WriteFile(path, []byte("{not: [yaml"), 0o600)).To(Succeed())
			GinkgoT().Setenv("KUBECONFIG", path)
			return ManagerOptions{}
		}, "broken", "cannot be used"),
		Entry("one without a context", func() ManagerOptions {
			path := filepath.Join(folder, "empty")
			Expect(clientcmd.WriteToFile(*clientcmdapi.NewConfig(), path)).To(Succeed())
			return ManagerOptions{KubeConfig: path}
		}, "empty"),
		Entry("a pod without service account", func() ManagerOptions {
			GinkgoT().Setenv("KUBERNETES_SERVICE_HOST", "127.0.0.1")
			GinkgoT().Setenv("KUBERNETES_SERVICE_PORT", "1")
			return ManagerOptions{}
		}, "without usable service account", "automountServiceAccountToken", "ManagerOptions.KubeConfig"),
	)

	DescribeTable("decides on the namespace of the Secret:",
		func(change func(*ManagerOptions), contextNamespace, expected string, said int) {
			core, logs := observer.New(zapcore.InfoLevel)
			o := validOptions()
			o.Logger = zap.New(core).Sugar()
			o.KubeConfig = kubeconfig("given", "https://given.example.org", contextNamespace)
			change(&o)
			m := NewManager(o)
			_, err := m.GetKubeConnection()
			Expect(err).NotTo(HaveOccurred())
			Expect(m.secretNamespace()).To(Equal(expected))
			Expect(logs.FilterMessageSnippet(`"default"`).Len()).To(Equal(said))
		},
		Entry("WebhookNamespace first", func(o *ManagerOptions) { o.WebhookNamespace, o.Namespace = "hooks", "cf" }, "mine", "hooks", 0),
		Entry("then Namespace", func(o *ManagerOptions) { o.Namespace = "cf" }, "mine", "cf", 0),
		Entry("then that of the kubeconfig's context", func(*ManagerOptions) {}, "mine", "mine", 0),
		Entry("then default, which is logged", func(*ManagerOptions) {}, "", "default", 1),
	)
})
