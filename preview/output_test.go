package preview_test

import (
	"context"
	"encoding/base64"
	"strings"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"code.cloudfoundry.org/eirinix"
	"code.cloudfoundry.org/eirinix/preview"
)

var _ = Describe("The output of a preview", func() {
	It("is JSON for programs", func() {
		p := command(program(), pod+"---\n"+denied+"\n"+configMap("apps", "m"), "-o", "json", "-")
		Expect(p.err).To(HaveOccurred())
		Expect(p.objects()).To(And(
			HaveKeyWithValue("Pod web", And(
				HaveKeyWithValue("allowed", true), HaveKeyWithValue("warnings", ConsistOf("labelled")), HaveKeyWithValue("operation", "CREATE"),
				HaveKeyWithValue("patch", ConsistOf(HaveKeyWithValue("op", "add"))),
				HaveKeyWithValue("steps", ConsistOf(HaveKeyWithValue("step", "label"))),
				HaveKeyWithValue("object", HaveKeyWithValue("metadata", HaveKeyWithValue("labels", HaveKeyWithValue("seen", "yes")))),
			)),
			HaveKeyWithValue("ConfigMap m", HaveKeyWithValue("notCalled", ConsistOf(HaveKeyWithValue("why", "its rules do not name CREATE of configmaps")))),
			HaveKeyWithValue("Pod bad", And(
				HaveKeyWithValue("allowed", false), Not(HaveKey("object")),
				HaveKeyWithValue("denial", And(HaveKeyWithValue("message", "not here"), HaveKeyWithValue("step", "label"), HaveKeyWithValue("code", 403.0))),
			)),
		))
		Expect(p.stdout).To(MatchRegexp(`"summary": \{\s+"objects": 3,\s+"changed": 1,\s+"denied": 1,\s+"failed": 0`))
	})

	It("is YAML for kubectl, with every field", func() {
		p := command(program(), pod+"---\n"+denied, "-o", "yaml", "-")
		Expect(p.err).To(HaveOccurred())
		Expect(p.stdout).To(MatchYAML("{apiVersion: v1, kind: Pod, metadata: {labels: {seen: 'yes'}, name: web, namespace: default}, spec: {containers: [{image: nginx, name: main, newField: kept}]}}"))
		Expect(p.stdout).To(ContainSubstring("---\n# standard input, document 2: create Pod bad in namespace default\n# admission webhook"))
		p = command(program(), workload("apps/v1", "Deployment", "template: %s"), "-o", "yaml", "-")
		Expect(p.stdout).To(And(ContainSubstring("kind: Deployment"), Not(ContainSubstring("kind: Pod"))), "the pod is not in the input")
	})

	DescribeTable("shows no data of Secrets, unless it is asked to", func(args ...string) {
		change := eirinix.Mutation[*corev1.Secret]{ID: "change", Apply: func(_ context.Context, _ *eirinix.Call, s *corev1.Secret) error {
			s.Data["changed"] = []byte("new-value")
			s.Data["added"] = []byte("added-value")
			return nil
		}}
		const secret = `{apiVersion: v1, kind: Secret, metadata: {name: s, annotations: {kubectl.kubernetes.io/last-applied-configuration: old-value}}, data: {changed: b2xkLXZhbHVl}, stringData: {kept: kept-value}}`
		values := []string{"old-value", "new-value", "added-value", "kept-value"}
		for _, v := range values {
			values = append(values, base64.StdEncoding.EncodeToString([]byte(v)))
		}
		p := command(program(change), secret, append(args, "-")...)
		Expect(p.err).NotTo(HaveOccurred())
		for _, v := range values {
			Expect(p.stdout).NotTo(ContainSubstring(v))
		}
		Expect(p.stdout).To(And(ContainSubstring("*** (before)"), ContainSubstring("*** (after)"), ContainSubstring("kept: '***'")))
		Expect(command(program(change), secret, append(args, "-show-secrets", "-")...).stdout).To(ContainSubstring(base64.StdEncoding.EncodeToString([]byte("new-value"))))
	},
		Entry("as a diff", "-o", "diff"),
		Entry("as JSON", "-o", "json"),
	)

	It("marks the steps that are called again", func() {
		again := eirinix.Settings{Reinvoke: admissionregistrationv1.IfNeededReinvocationPolicy, Isolated: true}
		one := eirinix.Mutation[*corev1.ConfigMap]{ID: "one", Settings: again, Apply: func(context.Context, *eirinix.Call, *corev1.ConfigMap) error { return nil }}
		two := eirinix.Mutation[*corev1.ConfigMap]{ID: "two", Settings: again, Apply: func(_ context.Context, _ *eirinix.Call, m *corev1.ConfigMap) error {
			metav1.SetMetaDataLabel(&m.ObjectMeta, "two", "yes")
			return nil
		}}
		Expect(command(program(one, two), `{apiVersion: v1, kind: ConfigMap, metadata: {name: a}}`, "-").stdout).To(ContainSubstring("ran: one\n  ran: two\n  ran: one (again)\n"))
	})

	It("has no line that a reader of YAML takes for one of its own", func() {
		p := command(program(), `{"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "a\u2028---\u2029kind: Evil\u202e", "labels": {"deny": "no"}}}`, "-o", "yaml", "-")
		Expect(p.stdout).To(And(HavePrefix("# "), Not(ContainSubstring("\u2028")), Not(ContainSubstring("\u2029")), Not(ContainSubstring("\u202e"))))
	})

	It("has colours where they are asked for", func() {
		p := command(program(), pod, "-color", "always", "-")
		Expect(p.stdout).To(And(ContainSubstring("\x1b[32m+    seen: \"yes\"\x1b[0m"), ContainSubstring("\x1b[33mwarning: labelled\x1b[0m")))
	})

	It("sends nothing to the terminal that steers it", func() {
		p := command(program(), `{"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "a", "labels": {"deny": "\u001b]0;evil\u0007"}}}`, "-")
		Expect(p.stdout).NotTo(ContainSubstring("\x1b"))
		Expect(p.stdout).To(ContainSubstring("]0;evil"))
	})

	It("is help where that is asked for", func() {
		p := command(program(), "", "-h")
		Expect(p.err).NotTo(HaveOccurred())
		Expect(p.stderr).To(And(HavePrefix("Usage: preview -f"), ContainSubstring("-as-group")))
	})

	It("refuses a Manager that runs, and leaves others as they were", func() {
		x := program()
		options := x.GetManagerOptions()
		Expect(command(x, pod, "-").err).NotTo(HaveOccurred())
		Expect(x.GetManagerOptions().RestConfig).To(Equal(options.RestConfig))
		Expect(x.GetManagerOptions().Logger).To(BeIdenticalTo(options.Logger))
	})

	It("ends with its context", func() {
		ctx, cancel := context.WithCancel(GinkgoT().Context())
		x := program(eirinix.Validation[*corev1.Pod]{ID: "cancel", Create: func(context.Context, *eirinix.Call, *corev1.Pod) error {
			cancel()
			return nil
		}})
		err := preview.Command(ctx, x, []string{"-"}, func(o *preview.Options) {
			o.Stdin, o.Stdout = strings.NewReader(pod), GinkgoWriter
		})
		Expect(err).To(MatchError(context.Canceled))
	})
})
