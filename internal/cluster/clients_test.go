package cluster_test

// This file is about finding the cluster: in a pod, or by a kubeconfig.

import (
	"os"
	"path/filepath"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"code.cloudfoundry.org/eirinix/internal/cluster"
	. "code.cloudfoundry.org/eirinix/internal/spectest"
)

var _ = Describe("Finding the cluster", func() {
	var folder string

	file := func(name, text string) string {
		GinkgoHelper()
		path := filepath.Join(folder, name)
		Expect(os.WriteFile(path, []byte(text), 0o600)).To(Succeed())
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

	found := func(path string) string {
		GinkgoHelper()
		config, _, err := cluster.LoadConfig(path)
		Expect(err).NotTo(HaveOccurred())
		return config.Host
	}

	It("takes the file that is given, then $KUBECONFIG, then ~/.kube/config", func() {
		WriteKubeconfig(folder, ".kube/config", "https://home.example.org", "")
		Expect(found("")).To(Equal("https://home.example.org"))
		GinkgoT().Setenv("KUBECONFIG", WriteKubeconfig(folder, "env", "https://env.example.org", ""))
		Expect(found("")).To(Equal("https://env.example.org"))
		Expect(found(WriteKubeconfig(folder, "given", "https://given.example.org", ""))).To(Equal("https://given.example.org"))
	})

	DescribeTable("takes the namespace of the context", func(context, expected string) {
		_, namespace, err := cluster.LoadConfig(WriteKubeconfig(folder, "given", "https://given.example.org", context))
		Expect(err).NotTo(HaveOccurred())
		Expect(namespace).To(Equal(expected))
	},
		Entry("that names one", "mine", "mine"),
		Entry("that names none: none, so that the default can be logged", "", ""),
	)

	DescribeTable("names the reason and the remedy", func(prepare func() string, parts ...string) {
		config, _, err := cluster.LoadConfig(prepare())
		Expect(config).To(BeNil())
		Expect(err).To(MatchError(HavePrefix("eirinix: ")))
		for _, part := range parts {
			Expect(err).To(MatchError(ContainSubstring(part)))
		}
	},
		Entry("a file that is missing", func() string { return "/no/such/file" },
			`ManagerOptions.KubeConfig "/no/such/file"`, "give the path of a kubeconfig file", "no such file"),
		Entry("no file at all", func() string { return "" },
			"no kubeconfig found", ".kube/config", "$KUBECONFIG", "set ManagerOptions.KubeConfig"),
		Entry("a file that is no YAML", func() string { return file("broken", "{not: [yaml") },
			"ManagerOptions.KubeConfig", "broken", "give the path of a kubeconfig file"),
		Entry("a file in $KUBECONFIG that is no YAML", func() string {
			GinkgoT().Setenv("KUBECONFIG", file("broken", "{not: [yaml"))
			return ""
		}, "broken", "cannot be used"),
		Entry("a file without a context", func() string {
			path := filepath.Join(folder, "empty")
			Expect(clientcmd.WriteToFile(*clientcmdapi.NewConfig(), path)).To(Succeed())
			return path
		}, "ManagerOptions.KubeConfig", "empty"),
		Entry("a pod without service account", func() string {
			GinkgoT().Setenv("KUBERNETES_SERVICE_HOST", "127.0.0.1")
			GinkgoT().Setenv("KUBERNETES_SERVICE_PORT", "1")
			return ""
		}, "without usable service account", "automountServiceAccountToken", "ManagerOptions.KubeConfig"),
	)
})
