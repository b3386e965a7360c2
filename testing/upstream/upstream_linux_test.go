package upstream_test

// This file runs the specs of Kubernetes, and counts them.

import (
	"context"
	"flag"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/onsi/ginkgo/v2"
	"github.com/onsi/ginkgo/v2/types"
	"github.com/onsi/gomega"
	"k8s.io/client-go/kubernetes"
	_ "k8s.io/kubernetes/test/e2e/apimachinery" // registers the specs
	"k8s.io/kubernetes/test/e2e/framework"

	eirinixtest "code.cloudfoundry.org/eirinix/testing"
	"code.cloudfoundry.org/eirinix/testing/upstream/kubelet"
)

// suites are the beginnings of the specs' names.
var suites = []string{
	"[sig-api-machinery] AdmissionWebhook [Privileged:ClusterAdmin]",
	"[sig-api-machinery] CustomResourceConversionWebhook [Privileged:ClusterAdmin]",
}

const (
	// requestTimeout bounds each request of the kubelet.
	requestTimeout = time.Minute

	// specs is their number in the release of Kubernetes that go.mod requires.
	specs = 25
)

func TestUpstream(t *testing.T) {
	network, err := kubelet.NewNetwork()
	if err != nil {
		t.Skipf("the pods of the specs need a network: %v", err)
	}
	plane := eirinixtest.StartControlPlane(t, func(o *eirinixtest.ControlPlaneOptions) {
		o.ControllerManager = true
		// The API server calls Services at the addresses of their pods, because there is no kube-proxy.
		o.APIServerArgs = []string{"--enable-aggregator-routing=true"}
	})
	config := plane.Config()
	config.Timeout = requestTimeout // also ends watches, which then begin anew
	client := kubernetes.NewForConfigOrDie(config)
	runKubelet(t, client, network)
	configure(t, plane.Kubeconfig())

	gomega.RegisterFailHandler(framework.Fail)
	suiteConfig, reporterConfig := framework.CreateGinkgoConfig()
	all := len(suiteConfig.FocusStrings) == 0 && suiteConfig.LabelFilter == ""
	suiteConfig.FocusStrings = focused(suiteConfig.FocusStrings)
	reporterConfig.SilenceSkips = true // the package has hundreds of others
	var report ginkgo.Report
	ginkgo.ReportAfterSuite("keep the report", func(r ginkgo.Report) { report = r })
	ginkgo.RunSpecs(t, "Kubernetes' own specs of webhooks", suiteConfig, reporterConfig)

	version, err := client.Discovery().ServerVersion()
	if err != nil {
		t.Fatal(err)
	}
	played := count(os.Stdout, report, version.GitVersion)
	if played == 0 || all && played != specs {
		t.Errorf("%d specs were selected of %d: correct the patterns of the command line, or the suites' names and their number here", played, specs)
	}
}

// runKubelet runs the pods until the end of the test. Their output is shown if it fails.
func runKubelet(t *testing.T, client kubernetes.Interface, network *kubelet.Network) {
	t.Helper()
	log, err := os.Create(filepath.Join(t.TempDir(), "pods.log"))
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	k := &kubelet.Kubelet{Client: client, Node: "process-kubelet", Programs: programs, Network: network, Folder: t.TempDir(), Log: log}
	go func() { ended <- k.Run(ctx) }()
	t.Cleanup(func() {
		stop()
		if err := <-ended; err != nil {
			t.Errorf("the process kubelet: %v", err)
		}
		if t.Failed() {
			copyTo(os.Stdout, log.Name())
		}
		_ = log.Close()
	})
}

// configure sets the options of the suite by its own flags, as those who run its program do.
func configure(t *testing.T, kubeconfig string) {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	kubectlPath := filepath.Join(t.TempDir(), kubectl)
	if err := os.Symlink(self, kubectlPath); err != nil {
		t.Fatal(err)
	}
	flags := flag.NewFlagSet("e2e", flag.PanicOnError)
	framework.RegisterCommonFlags(flags)
	framework.RegisterClusterFlags(flags)
	_ = flags.Parse([]string{"--provider=skeleton", "--kubeconfig=" + kubeconfig, "--kubectl-path=" + kubectlPath})
	framework.AfterReadingAllFlags(&framework.TestContext)
}

// focused limits the patterns of the command line to the suites.
func focused(patterns []string) (limited []string) {
	for _, suite := range suites {
		quoted := regexp.QuoteMeta(suite)
		if len(patterns) == 0 {
			limited = append(limited, quoted)
		}
		for _, pattern := range patterns {
			limited = append(limited, quoted+".*(?:"+pattern+")")
		}
	}
	return limited
}

// count writes which specs have passed, and returns the number of those that were selected.
func count(w io.Writer, report ginkgo.Report, version string) (selected int) {
	passed := 0
	fmt.Fprintf(w, "\n%-8s %6s  %s\n", "outcome", "time", "spec")
	for _, spec := range report.SpecReports {
		if spec.LeafNodeType != types.NodeTypeIt || spec.State == types.SpecStateSkipped && spec.Failure.Message == "" {
			continue // not selected
		}
		selected++
		if spec.State.Is(types.SpecStatePassed) {
			passed++
		}
		fmt.Fprintf(w, "%-8s %5.1fs  %s\n", spec.State, spec.RunTime.Seconds(), spec.LeafNodeText)
	}
	fmt.Fprintf(w, "Kubernetes %s: %d of %d specs of webhooks passed\n", version, passed, selected)
	return selected
}

// programs is what runs instead of the images that the specs use.
func programs(image string) (string, error) {
	_, name, _ := strings.Cut(image, "/")
	name, _, _ = strings.Cut(filepath.Base(name), ":")
	switch name {
	case "agnhost":
		return os.Getenv(agnhostVariable), nil
	case "pause":
		return kubelet.Idle, nil
	}
	return "", fmt.Errorf("no program is known for the image %s", image)
}
