package manifests

// Options and steps that cannot be deployed are refused, with a remedy.

import (
	"context"
	"strings"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"code.cloudfoundry.org/eirinix"
)

var _ = Describe("The options and steps of a program's manifests", func() {
	DescribeTable("refuse, with a remedy,",
		func(change func(*input), added any, expected ...string) {
			o := deployedOptions()
			change(&o)
			m := eirinix.NewManager(o.ManagerOptions)
			if added != nil {
				Expect(m.AddExtension(added)).To(Succeed())
			}
			objects, err := Of(m, o.Deployment)
			Expect(objects).To(BeNil())
			for _, text := range expected {
				Expect(err).To(MatchError(ContainSubstring(text)))
			}
			for _, line := range strings.Split(err.Error(), "\n") {
				Expect(line).To(HavePrefix("eirinix: "))
			}
		},
		Entry("no image", func(o *input) { o.Deployment.Image = "" }, valueExtension{}, "manifests.Options.Image is empty; set it"),
		Entry("an image with spaces", func(o *input) { o.Deployment.Image += " " }, valueExtension{}, "remove the spaces"),
		Entry("several at once", func(o *input) { o.Deployment = Options{Name: "A", Replicas: -1}; o.Port = -1 }, valueExtension{},
			"manifests.Options.Image is empty", `manifests.Options.Name is "A"`, "manifests.Options.Replicas is -1", "ManagerOptions.Port is -1"),
		Entry("a bad label", func(o *input) { o.Deployment.Labels = map[string]string{"a b": "c", "d": "e f"} }, valueExtension{}, `holds a b="c"`, `holds d="e f"`),
		Entry("a label of ours", func(o *input) {
			o.Deployment.Labels = map[string]string{"eirinix.cloudfoundry.org/fingerprint": "x", "app.kubernetes.io/name": "y"}
		}, valueExtension{}, "fingerprint", "app.kubernetes.io/name", "remove it"),
		Entry("an annotation that is none, and one of ours", func(o *input) {
			o.Deployment.Annotations = map[string]string{"a b": "c", "kubernetes.io/description": "x", "Example.org/Any": "a thing"}
		}, valueExtension{}, `Annotations holds a b="c"`, `Annotations holds "kubernetes.io/description", which manifests.Of sets itself; remove it`),
		Entry("bad node labels", func(o *input) {
			o.Deployment.NodeSelector = map[string]string{"pool": "a b", "kubernetes.io/os": "windows"}
		}, valueExtension{}, `NodeSelector holds pool="a b"`, `NodeSelector holds "kubernetes.io/os"`),
		Entry("bad Secrets to pull with", func(o *input) {
			o.Deployment.ImagePullSecrets = []corev1.LocalObjectReference{{}, {Name: "a_b"}}
		}, valueExtension{},
			"ImagePullSecrets[0].Name is empty; set it", `ImagePullSecrets[1].Name is "a_b"`),
		Entry("bad tolerations", func(o *input) {
			o.Deployment.Tolerations = []corev1.Toleration{
				{},
				{Key: "a b"},
				{Key: "a", Operator: "In"},
				{Key: "a", Effect: "Never"},
				{Key: "a", Operator: corev1.TolerationOpExists, Value: "b"},
				{Key: "a", TolerationSeconds: new(int64(1))},
				{Key: "a", Value: "b c"},
				{Operator: corev1.TolerationOpExists},
			}
		}, valueExtension{}, "Tolerations[0]: Key is empty; set it", `Tolerations[1]: Key is "a b"`, `Tolerations[2]: Operator is "In"; it must be`, `Tolerations[3]: Effect is "Never"; it must be`,
			`Tolerations[4]: Value is "b", which the Operator Exists does not compare; leave it out`, "Tolerations[5]: TolerationSeconds is set; set Effect to NoExecute", "Tolerations[6]: a valid label"),
		Entry("a PodMonitor of metrics that there are not", func(o *input) { o.Deployment.PodMonitor = true }, valueExtension{},
			`manifests.Options.PodMonitor is set, but other pods cannot reach the program's metrics; set ManagerOptions.MetricsBindAddress`),
		Entry("a PodMonitor of metrics on loopback", func(o *input) { o.Deployment.PodMonitor, o.MetricsBindAddress = true, "127.0.0.1:9090" }, valueExtension{}, "PodMonitor is set"),
		Entry("nothing to deploy", func(o *input) {}, nil, "call AddExtension before"),
		Entry("no namespace", func(o *input) { *o = byURL(*o); o.Namespace, o.WebhookNamespace = "", "" }, valueExtension{}, "WebhookNamespace is empty; set it"),
		Entry("a port that is picked later", func(o *input) { o.ListenAddress = ":0" }, valueExtension{}, `set it to a fixed one`),
		Entry("an address that is no pod's", func(o *input) { o.ListenAddress = "127.0.0.1:8443" }, valueExtension{}, `set ManagerOptions.ListenAddress to ":8443"`),
		Entry("the load balancer's address to listen on", func(o *input) { *o = byURL(*o); o.Host, o.ListenAddress = "192.0.2.1", "" }, valueExtension{}, `listen only on 192.0.2.1:443`),
		Entry("own pods that are sent, in the one namespace", func(o *input) { *o = byURL(*o); o.WebhookNamespace = "apps" }, namedExtension{name: "volumes"},
			`step "volumes" would be called for the program's own pods in namespace "apps"`, "WebhookNamespace"),
		Entry("own pods that are validated", func(o *input) { *o = byURL(*o); o.Namespace = "" }, validatePods(), "own pods"),
	)

	DescribeTable("accept a step that leaves the own pods alone",
		func(change func(*input), s eirinix.Settings) {
			o := byURL(deployedOptions())
			o.WebhookNamespace = "apps"
			change(&o)
			manifestsOf(o, eirinix.Mutation[*corev1.Pod]{Settings: s, Apply: func(context.Context, *eirinix.Call, *corev1.Pod) error { return nil }})
		},
		Entry("through a Service", func(o *input) { *o = deployedOptions(); o.Namespace = "system" }, eirinix.Settings{}),
		Entry("by their labels", func(o *input) {}, eirinix.Settings{Objects: &metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{
			{Key: "eirinix.cloudfoundry.org/fingerprint", Operator: metav1.LabelSelectorOpDoesNotExist},
		}}}),
		Entry("because it wants applications only", func(o *input) { o.FilterEiriniApps = new(true) }, eirinix.Settings{}),
		Entry("by ignoring failures", func(o *input) { o.FailurePolicy = new(admissionregistrationv1.Ignore) }, eirinix.Settings{}),
		Entry("by another namespace", func(o *input) { o.WebhookNamespace = "system" }, eirinix.Settings{}),
		Entry("by a condition", func(o *input) {}, eirinix.Settings{Conditions: []admissionregistrationv1.MatchCondition{{Name: "c", Expression: "false"}}}),
	)
})
