package main

import (
	"context"
	"os"
	"os/exec"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"github.com/onsi/gomega/gbytes"
	"github.com/onsi/gomega/gexec"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"code.cloudfoundry.org/eirinix/examples/internal/programs"
	. "code.cloudfoundry.org/eirinix/internal/spectest"
	eirinixtest "code.cloudfoundry.org/eirinix/testing"
)

// TestMain lets this binary be the demo itself, so that there is no other to build.
func TestMain(m *testing.M) {
	if os.Getenv("EIRINIX_DEMO") != "" {
		main()
		return
	}
	os.Exit(m.Run())
}

// command returns that of the demo.
func command(args ...string) *exec.Cmd {
	cmd := programs.Command(os.Args[0], args...)
	cmd.Env = append(cmd.Env, "EIRINIX_DEMO=yes")
	return cmd
}

func TestDemo(t *testing.T) {
	RegisterFailHandler(Fail)
	RunSpecs(t, "Demo")
}

// The user's cluster. Starting it also sees to it that the demo finds the servers' binaries built.
var (
	kubeconfig string
	client     kubernetes.Interface
)

var _ = BeforeSuite(func() {
	if !RunsAPIServer() {
		return
	}
	plane := eirinixtest.StartControlPlane(GinkgoT(), func(o *eirinixtest.ControlPlaneOptions) { o.ControllerManager = true })
	kubeconfig, client = plane.Kubeconfig(), kubernetes.NewForConfigOrDie(plane.Config())
})

// start runs the demo with its output in a pipe, and a $KUBECONFIG that it must not look at.
func start(args ...string) *gexec.Session {
	GinkgoHelper()
	cmd := command(args...)
	cmd.Env = append(cmd.Env, "KUBECONFIG=/dev/null/kubeconfig")
	session := Must(gexec.Start(cmd, GinkgoWriter, GinkgoWriter))
	DeferCleanup(func() {
		session.Interrupt()
		Eventually(session, programs.Patience).Should(gexec.Exit())
	})
	return session
}

var logsIn = regexp.MustCompile(`logs in (\S+)`)

// folder waits until the control plane of a demo has one; every server has its path on the command line.
func folder(session *gexec.Session) string {
	GinkgoHelper()
	Eventually(session.Err.Contents, programs.Patience).Should(MatchRegexp(logsIn.String()))
	return string(logsIn.FindSubmatch(session.Err.Contents())[1])
}

// servers are the command lines of the servers that run in a folder.
func servers(folder string) []string {
	GinkgoHelper()
	output := Must(exec.Command("ps", "-A", "-ww", "-o", "args=").Output())
	var found []string
	for line := range strings.Lines(string(output)) {
		if strings.Contains(line, folder+string(os.PathSeparator)) {
			found = append(found, line)
		}
	}
	return found
}

// eventuallyServers looks at the servers in a folder until they are as expected.
func eventuallyServers(folder string) AsyncAssertion {
	GinkgoHelper()
	return Eventually(servers, programs.Patience, 100*time.Millisecond).WithArguments(folder)
}

var _ = Describe("the demo on a control plane of its own", Label("api-server"), func() {
	It("shows its steps, succeeds and leaves nothing behind", func() {
		demo := start()
		folder := folder(demo)
		eventuallyServers(folder).Should(Or(HaveLen(2), HaveLen(3)))
		Eventually(demo, 2*programs.Patience).Should(gexec.Exit(0))

		memory, text, both := strings.Cut(string(demo.Out.Contents()), "A real API server\n")
		Expect(both).To(BeTrue())
		Expect(memory).To(And(ContainSubstring("A pod, in memory"), MatchRegexp(`(?m)^  \+    example\.org/greeted: "true"$`)))
		Expect(text).NotTo(ContainSubstring("\x1b"))
		Expect(text).To(MatchRegexp(`(?m)^  \+    example\.org/greeted: "true"$`))
		Expect(strings.Count(text, "  +    - name: GREETING\n")).To(Equal(2), "both containers of the pod")
		Expect(text).NotTo(MatchRegexp(`(?m)^  -[^-]`), "the webhook takes nothing away, and nothing else changes")
		Expect(regexp.MustCompile(`(?m)^  world-\S+ +mutated +created by ReplicaSet world-`).FindAllString(text, -1)).To(HaveLen(2))
		Expect(text).To(And(
			MatchRegexp(`keys +ca\.crt, .*tls\.key`), MatchRegexp(`URL +https://127\.0\.0\.1:\d+/`),
			ContainSubstring("CREATE of pods"), ContainSubstring("failurePolicy Fail"), ContainSubstring("Every pod was mutated.")))
		Expect(text).NotTo(Or(ContainSubstring("BEGIN"), ContainSubstring("kubectl")), "no values of the Secret, and no invitation to a cluster that is gone")
		Expect(servers(folder)).To(BeEmpty())
		Expect(folder).NotTo(BeADirectory())
	})

	It("leaves nothing behind when it is interrupted while the servers start", func() {
		demo := start()
		folder := folder(demo)
		eventuallyServers(folder).ShouldNot(BeEmpty())
		demo.Interrupt()
		Eventually(demo, programs.Patience).Should(gexec.Exit(1))
		Expect(demo.Err).To(gbytes.Say("interrupted"))
		Expect(servers(folder)).To(BeEmpty())
		Expect(folder).NotTo(BeADirectory())
	})
})

var _ = Describe("the demo on a cluster of the user", Label("api-server"), func() {
	expectClean := func(ctx context.Context) {
		GinkgoHelper()
		namespaces, err := client.CoreV1().Namespaces().List(ctx, metav1.ListOptions{})
		Expect(err).NotTo(HaveOccurred())
		for _, namespace := range namespaces.Items {
			Expect(namespace.Name).NotTo(HavePrefix("eirinix-demo"))
		}
		configurations := Must(client.AdmissionregistrationV1().MutatingWebhookConfigurations().List(ctx, metav1.ListOptions{}))
		Expect(configurations.Items).To(BeEmpty())
	}

	It("succeeds and leaves nothing behind", func(ctx SpecContext) {
		demo := start("-kubeconfig", kubeconfig)
		Eventually(demo, 2*programs.Patience).Should(gexec.Exit(0))
		Expect(demo.Out.Contents()).To(ContainSubstring("Every pod was mutated."))
		expectClean(ctx)
	})

	It("leaves nothing behind when it is interrupted", func(ctx SpecContext) {
		demo := start("-kubeconfig", kubeconfig)
		Eventually(demo.Out, programs.Patience).Should(gbytes.Say(`webhook +https://`))
		demo.Signal(syscall.SIGTERM)
		Eventually(demo, 2*programs.Patience).Should(gexec.Exit(1))
		Expect(demo.Err).To(gbytes.Say("interrupted"))
		expectClean(ctx)
	})

	It("names the remedy when the API server cannot reach it, and leaves nothing behind", func(ctx SpecContext) {
		demo := start("-kubeconfig", kubeconfig, "-host", "255.255.255.255") // no packet goes there
		Eventually(demo, 2*programs.Patience).Should(gexec.Exit(1))
		Expect(demo.Err.Contents()).To(And(
			ContainSubstring("the API server does not reach this program at https://255.255.255.255:"), ContainSubstring("give -host")))
		expectClean(ctx)
	})
})

var _ = Describe("the address that the API server calls", func() {
	DescribeTable("is", func(host, apiServer string, want address) {
		got := Must(callAddress(host, apiServer))
		got.why = ""
		Expect(got).To(Equal(want))
	},
		Entry("loopback for an API server on this machine", "", "https://127.0.0.1:6443", address{host: "127.0.0.1", listen: "127.0.0.1:0"}),
		Entry("IPv4 loopback for an API server on IPv6", "", "https://[::1]:6443", address{host: "127.0.0.1", listen: "127.0.0.1:0"}),
		Entry("a name that the user gives, on all addresses", "laptop.example", "https://127.0.0.1:6443", address{host: "laptop.example", listen: ":0"}),
		Entry("a loopback address that the user gives, and no other", "::1", "https://192.0.2.1", address{host: "::1", listen: "[::1]:0"}),
	)
})

var _ = Describe("a unified diff", func() {
	DescribeTable("shows", func(before, after, want string) {
		var lines []string
		for _, e := range unified(edits(strings.Fields(before), strings.Fields(after))) {
			lines = append(lines, string(e.kind)+e.text)
		}
		Expect(strings.Join(lines, "|")).To(Equal(want))
	},
		Entry("nothing for equals", "a b c", "a b c", ""),
		Entry("an addition", "a b", "a x b", "@@ -1,2 +1,3 @@| a|+x| b"),
		Entry("a change, the old line first", "a b c", "a x c", "@@ -1,3 +1,3 @@| a|-b|+x| c"),
		Entry("three lines of context", "1 2 3 4 5 6 7 8 9", "1 2 3 4 x 6 7 8 9", "@@ -2,7 +2,7 @@| 2| 3| 4|-5|+x| 6| 7| 8"),
		Entry("one hunk for changes whose contexts meet", "1 2 3 4 5 6 7 8", "x 2 3 4 5 6 7 y",
			"@@ -1,8 +1,8 @@|-1|+x| 2| 3| 4| 5| 6| 7|-8|+y"),
		Entry("two hunks for changes further apart", "1 2 3 4 5 6 7 8 9", "x 2 3 4 5 6 7 8 y",
			"@@ -1,4 +1,4 @@|-1|+x| 2| 3| 4|@@ -6,4 +6,4 @@| 6| 7| 8|-9|+y"),
		Entry("everything new", "", "a b", "@@ -1,0 +1,2 @@|+a|+b"),
	)

	It("leaves out the fields that differ between any two pods", func() {
		pod := &corev1.Pod{
			ObjectMeta: metav1.ObjectMeta{
				Name: "hello", UID: "u", ResourceVersion: "7", Generation: 1, CreationTimestamp: metav1.Now(),
				ManagedFields: []metav1.ManagedFieldsEntry{{Manager: "m"}},
			},
			Spec:   corev1.PodSpec{NodeName: "node", Containers: []corev1.Container{{Name: "main"}}},
			Status: corev1.PodStatus{Phase: corev1.PodRunning},
		}
		Expect(podYAML(pod)).To(Equal("metadata:\n  name: hello\nspec:\n  containers:\n  - name: main\n    resources: {}"))
	})
})
