package manifests

// The objects that run a program in a cluster, with the rights that it needs and no others.

import (
	"bytes"
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"strings"
	"testing"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
	"go.uber.org/zap/zaptest/observer"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	policyv1 "k8s.io/api/policy/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/watch"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"
	"sigs.k8s.io/yaml"

	"code.cloudfoundry.org/eirinix"
	"code.cloudfoundry.org/eirinix/conversion"
	. "code.cloudfoundry.org/eirinix/internal/spectest"
)

func TestManifests(t *testing.T) {
	RegisterFailHandler(Fail)
	RunSpecs(t, "manifests")
}

// valueExtension, namedExtension, watcher and reconciler are the parts of a program. They do nothing.
type (
	valueExtension struct{}
	namedExtension struct {
		valueExtension
		name string
	}
	watcher    struct{}
	reconciler struct{}
)

func (valueExtension) Handle(context.Context, eirinix.Manager, *corev1.Pod, admission.Request) admission.Response {
	return admission.Allowed("")
}

func (n namedExtension) Name() string { return n.name }

func (*watcher) Handle(eirinix.Manager, watch.Event) {}

func (*reconciler) Reconcile(context.Context, reconcile.Request) (reconcile.Result, error) {
	return reconcile.Result{}, nil
}
func (*reconciler) Register(eirinix.Manager) error { return nil }

// input is all that decides about the manifests of a program, but for what is added.
type input struct {
	eirinix.ManagerOptions
	Deployment Options
}

// deployedOptions are those of a program in a cluster, called through a Service.
func deployedOptions() input {
	return input{
		ManagerOptions: eirinix.ManagerOptions{Namespace: "apps", ServiceName: "hooks", WebhookNamespace: "system", Port: 443, ListenAddress: ":8443"},
		Deployment:     Options{Image: "registry.example.org/hooks:1.0"},
	}
}

// byURL has them called by URL.
func byURL(o input) input {
	o.ServiceName, o.Host = "", "webhook.example.org"
	return o
}

// validatePods is a step of the other kind.
func validatePods() eirinix.Validation[*corev1.Pod] {
	return eirinix.Validation[*corev1.Pod]{ID: "checks", Create: func(context.Context, *eirinix.Call, *corev1.Pod) error { return nil }}
}

func manifestsOf(o input, added ...any) []client.Object {
	GinkgoHelper()
	return Must(Of(managerWith(o, added...), o.Deployment))
}

func managerWith(o input, added ...any) *eirinix.ExtensionManager {
	GinkgoHelper()
	m := eirinix.NewManager(o.ManagerOptions)
	for _, v := range added {
		Expect(m.AddExtension(v)).To(Succeed())
	}
	return m
}

// the returns the only object of a type.
func the[T client.Object](objects []client.Object) T {
	GinkgoHelper()
	found := allOf[T](objects)
	Expect(found).To(HaveLen(1))
	return found[0]
}

func allOf[T client.Object](objects []client.Object) (found []T) {
	for _, o := range objects {
		if t, ok := o.(T); ok {
			found = append(found, t)
		}
	}
	return found
}

// kinds lists objects as "Kind name", with a star for the hash in a Job's.
func kinds(objects []client.Object) (all []string) {
	for _, o := range objects {
		all = append(all, o.GetObjectKind().GroupVersionKind().Kind+" "+regexp.MustCompile("-[0-9a-f]{8}$").ReplaceAllString(o.GetName(), "-*"))
	}
	return all
}

func asJSON(v any) string {
	GinkgoHelper()
	return string(Must(json.Marshal(v)))
}

var _ = Describe("A program's manifests", func() {
	split := func(o input) input {
		o.RegisterWebHook = new(false)
		return o
	}

	DescribeTable("hold the objects that each mode needs",
		func(o input, added []any, expected ...string) {
			Expect(kinds(manifestsOf(o, added...))).To(Equal(expected))
		},
		Entry("called by URL", byURL(deployedOptions()), []any{valueExtension{}},
			"ServiceAccount eirini-x", "Role eirinix:eirini-x", "RoleBinding eirinix:eirini-x", "ClusterRole eirinix:eirini-x", "ClusterRoleBinding eirinix:eirini-x",
			"NetworkPolicy eirini-x", "PodDisruptionBudget eirini-x", "Deployment eirini-x"),
		Entry("registered by a Job", split(deployedOptions()), []any{valueExtension{}},
			"ServiceAccount eirini-x", "Role eirinix:eirini-x", "RoleBinding eirinix:eirini-x",
			"ServiceAccount eirini-x-register", "Role eirinix:eirini-x:register", "RoleBinding eirinix:eirini-x:register",
			"ClusterRole eirinix:eirini-x:register", "ClusterRoleBinding eirinix:eirini-x:register",
			"Service hooks", "NetworkPolicy eirini-x", "PodDisruptionBudget eirini-x",
			"Job eirini-x-register-*", "CronJob eirini-x-register", "Deployment eirini-x"),
		Entry("watching in one namespace that is not its own", deployedOptions(), []any{&watcher{}},
			"ServiceAccount eirini-x", "Role eirinix:eirini-x", "RoleBinding eirinix:eirini-x", "NetworkPolicy eirini-x", "Deployment eirini-x"),
		Entry("reconciling, with rights of the program's own", split(deployedOptions()), []any{&reconciler{}},
			"ServiceAccount eirini-x", "NetworkPolicy eirini-x", "Deployment eirini-x"),
	)

	It("are the same each time, share nothing, and need no kubeconfig", func() {
		o := split(deployedOptions())
		o.MetricsBindAddress, o.Deployment.PodMonitor, o.KubeConfig = ":9090", true, "/does/not/exist"
		o.Deployment.Args, o.Deployment.Env = []string{"-v"}, []corev1.EnvVar{{Name: "OWN", Value: "kept"}}
		m := managerWith(o, valueExtension{}, &watcher{})
		again := func() []client.Object { return Must(Of(m, o.Deployment)) }
		first, second := again(), again()
		Expect(second).To(Equal(first))
		d := the[*appsv1.Deployment](first)
		d.Labels["changed"] = "yes"
		c := &d.Spec.Template.Spec.Containers[0]
		c.Args[0], c.Env[len(c.Env)-1].Value = "changed", "changed"
		the[*batchv1.Job](first).Spec.Template.Spec.Containers[0].Args[1] = "changed"
		allOf[*rbacv1.ClusterRole](first)[0].Rules[0].Verbs[0] = "changed"
		the[*unstructured.Unstructured](first).Object["spec"] = nil
		Expect(second).NotTo(Equal(first))
		Expect(again()).To(Equal(second))
	})

	It("are YAML that reads back as the same objects, without the fields that only a cluster fills in", func() {
		o := split(deployedOptions())
		o.MetricsBindAddress, o.Deployment.PodMonitor = ":9090", true
		objects := manifestsOf(o, valueExtension{}, validatePods(), &watcher{}, &reconciler{})
		var text bytes.Buffer
		Expect(Write(&text, objects...)).To(Succeed())
		Expect(text.String()).NotTo(Or(ContainSubstring("status"), ContainSubstring("creationTimestamp"), ContainSubstring("null")))
		documents := strings.Split(text.String(), "---\n")
		Expect(documents).To(HaveLen(len(objects)))
		for i, document := range documents {
			read := reflect.New(reflect.TypeOf(objects[i]).Elem()).Interface().(client.Object)
			Expect(yaml.UnmarshalStrict([]byte(document), read)).To(Succeed())
			Expect(asJSON(read)).To(MatchJSON(asJSON(objects[i])))
		}
	})

	It("are written with the kind that the scheme knows, where an object names none", func() {
		var text bytes.Buffer
		Expect(Write(&text, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "own"}})).To(Succeed())
		Expect(text.String()).To(Equal("apiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: own\n"))
		Expect(Write(&text, &unknownObject{})).To(MatchError(And(HavePrefix("eirinix: manifests.Write: "), ContainSubstring("set its TypeMeta"))))
	})

	It("describe on the ServiceAccount that reconcilers need rights of their own", func() {
		Expect(the[*corev1.ServiceAccount](manifestsOf(deployedOptions(), &reconciler{})).Annotations).To(HaveKeyWithValue("kubernetes.io/description", ContainSubstring("reconcilers")))
		Expect(the[*corev1.ServiceAccount](manifestsOf(deployedOptions(), valueExtension{})).Annotations).To(BeEmpty())
	})

	It("select the pods that serve, and not those that register", func() {
		objects := manifestsOf(split(deployedOptions()), valueExtension{})
		serving, job := the[*appsv1.Deployment](objects).Spec.Template, the[*batchv1.Job](objects).Spec.Template
		for _, selector := range []*metav1.LabelSelector{
			the[*appsv1.Deployment](objects).Spec.Selector,
			{MatchLabels: the[*corev1.Service](objects).Spec.Selector},
			the[*policyv1.PodDisruptionBudget](objects).Spec.Selector,
			&the[*networkingv1.NetworkPolicy](objects).Spec.PodSelector,
			serving.Spec.TopologySpreadConstraints[0].LabelSelector,
			serving.Spec.Affinity.PodAntiAffinity.PreferredDuringSchedulingIgnoredDuringExecution[0].PodAffinityTerm.LabelSelector,
		} {
			Expect(metav1.LabelSelectorAsSelector(selector)).To(WithTransform(func(s labels.Selector) bool { return s.Matches(labels.Set(serving.Labels)) }, BeTrue()))
			Expect(metav1.LabelSelectorAsSelector(selector)).To(WithTransform(func(s labels.Selector) bool { return s.Matches(labels.Set(job.Labels)) }, BeFalse()))
		}
		for _, template := range []corev1.PodTemplateSpec{serving, job, the[*batchv1.CronJob](objects).Spec.JobTemplate.Spec.Template} {
			Expect(template.Labels).To(HaveKeyWithValue("eirinix.cloudfoundry.org/fingerprint", "eirini-x"))
		}
	})

	It("give a changed registering half a Job of another name, because a Job cannot be changed", func() {
		o := split(deployedOptions())
		job := the[*batchv1.Job](manifestsOf(o, valueExtension{}))
		o.Deployment.Image += "1"
		Expect(the[*batchv1.Job](manifestsOf(o, valueExtension{})).Name).NotTo(Equal(job.Name))
		Expect(job.Spec.Template.Spec.Containers[0].Args).To(Equal([]string{"register"}))
		o.Deployment.Args = []string{"-verbose"}
		Expect(the[*batchv1.CronJob](manifestsOf(o, valueExtension{})).Spec.JobTemplate.Spec.Template.Spec.Containers[0].Args).To(Equal([]string{"register", "-verbose"}))
		o.Deployment.RegisterArgs = []string{"-once"}
		Expect(the[*batchv1.Job](manifestsOf(o, valueExtension{})).Spec.Template.Spec.Containers[0].Args).To(Equal([]string{"-once"}))
	})

	It("grant get on the Secret of a Conversion's keys, unless it is Lossy", func() {
		keys := ContainElement(HaveField("Rules", ContainElement(And(HaveField("ResourceNames", ConsistOf("eirini-x-conversions")), HaveField("Verbs", ConsistOf("get"))))))
		same := func(_ context.Context, u *unstructured.Unstructured) (*unstructured.Unstructured, error) {
			return u, nil
		}
		shops := conversion.Of[*unstructured.Unstructured]{CRD: "shops.example.org", Version: "v1", Spokes: []conversion.Spoke[*unstructured.Unstructured]{conversion.NewSpoke("v2", same, same)}}
		Expect(allOf[*rbacv1.Role](manifestsOf(deployedOptions(), shops))).To(keys)
		shops.Lossy = true
		Expect(allOf[*rbacv1.Role](manifestsOf(deployedOptions(), shops))).NotTo(keys)
	})

	DescribeTable("say that the pods lack the arguments of the process,",
		func(commandLine, args []string, said int) {
			core, logs := observer.New(zapcore.InfoLevel)
			o := deployedOptions()
			o.Logger, o.Deployment.Args = zap.New(core).Sugar(), args
			defer func(own []string) { os.Args = own }(os.Args)
			os.Args = commandLine
			Must(Of(managerWith(o, valueExtension{}), o.Deployment))
			Expect(logs.FilterMessageSnippet("set manifests.Options.Args").Len()).To(Equal(said))
			Expect(fmt.Sprint(logs.All())).NotTo(ContainSubstring("hunter2"))
		},
		Entry("where it was given some", []string{"program", "-password=hunter2"}, nil, 1),
		Entry("unless there are none", []string{"program"}, nil, 0),
		Entry("unless it was said that they need none", []string{"program", "-v"}, []string{}, 0),
		Entry("unless they have some", []string{"program", "-v"}, []string{"-v"}, 0),
	)

	It("FlagArgs returns the flags that were set, as the program reads them again, and not nil where none was", func() {
		parsed := func(args ...string) *flag.FlagSet {
			flags := flag.NewFlagSet("program", flag.ContinueOnError)
			flags.String("service", "hooks", "")
			flags.Bool("split", false, "")
			flags.Duration("drain", 0, "")
			flags.String("image", "", "")
			Expect(flags.Parse(args)).To(Succeed())
			return flags
		}
		args := FlagArgs(parsed("-split", "-service", "a b=c", "-image=i", "-drain=90s", "serve"), "image", "no-such-flag")
		Expect(args).To(Equal([]string{"-drain=1m30s", "-service=a b=c", "-split=true"}))
		Expect(FlagArgs(parsed(args...))).To(Equal(args))
		Expect(FlagArgs(parsed("-image=i"), "image")).To(And(BeEmpty(), Not(BeNil())))
	})

	It("take their time from the drain and the longest call", func() {
		o := deployedOptions()
		grace := func() int64 {
			return *the[*appsv1.Deployment](manifestsOf(o, valueExtension{})).Spec.Template.Spec.TerminationGracePeriodSeconds
		}
		Expect(time.Duration(grace()) * time.Second).To(BeNumerically(">", (5+30)*time.Second))
		before := grace()
		o.DrainDelay = (5+90)*time.Second + time.Millisecond
		Expect(grace()).To(Equal(before + 91))
	})
})

// unknownObject is of no kind that a scheme knows.
type unknownObject struct{ corev1.ConfigMap }

// rulesText is rules as "resource[/name] verb,verb; ...".
func rulesText(rules []rbacv1.PolicyRule) string {
	var all []string
	for _, r := range rules {
		resource := strings.Join(r.Resources, ",")
		if len(r.ResourceNames) > 0 {
			resource += "/" + strings.Join(r.ResourceNames, ",")
		}
		all = append(all, resource+" "+strings.Join(r.Verbs, ","))
	}
	return strings.Join(all, "; ")
}

// readingStep returns a step that refuses no pod, and declares Reads.
func readingStep(reads ...eirinix.Read) eirinix.Validation[*corev1.Pod] {
	return eirinix.Validation[*corev1.Pod]{
		ID: "looks", Settings: eirinix.Settings{Reads: reads}, Create: func(context.Context, *eirinix.Call, *corev1.Pod) error { return nil },
	}
}

var _ = Describe("The objects that steps read", func() {
	It("are an error in the manifests if the kind is in no namespace, or unknown without a cluster", func() {
		m := eirinix.NewManager(eirinix.ManagerOptions{ServiceName: "hooks", WebhookNamespace: "hooks"})
		shop := &unstructured.Unstructured{}
		shop.SetAPIVersion("example.org/v1")
		shop.SetKind("Shop")
		Expect(m.AddExtension(readingStep(eirinix.Read{Object: &corev1.Node{}, Namespaces: []string{"a"}}, eirinix.Read{Object: shop}))).To(Succeed())
		Expect(m.Validate()).To(Succeed())
		_, err := Of(m, Options{Image: "example.org/hooks:1", Args: []string{}})
		Expect(err).To(MatchError(SatisfyAll(ContainSubstring("Node is in no namespace"), ContainSubstring("Settings.Reads[1]"), ContainSubstring("ManagerOptions.Scheme"))))
	})
})

var _ = Describe("A program's manifests, for those who read its metrics,", func() {
	// reading are the objects that are for them.
	reading := func(objects []client.Object) (all []string) {
		for _, o := range kinds(objects) {
			switch o {
			case "ClusterRole eirinix:eirini-x:metrics", "ClusterRoleBinding eirinix:eirini-x:metrics", "ServiceAccount eirini-x-metrics", "Secret eirini-x-metrics", "PodMonitor eirini-x":
				all = append(all, o)
			}
		}
		return all
	}
	// reviews says whether the program may ask about callers.
	reviews := func(objects []client.Object) (granted bool) {
		for _, role := range allOf[*rbacv1.ClusterRole](objects) {
			for _, r := range role.Rules {
				granted = granted || len(r.Resources) > 0 && r.Resources[0] == "tokenreviews"
			}
		}
		return granted
	}

	DescribeTable("hold rights only where callers are asked for them:",
		func(change func(*input), asked bool, expected ...string) {
			o := deployedOptions()
			change(&o)
			objects := manifestsOf(o, valueExtension{})
			Expect(reading(objects)).To(HaveExactElements(expected))
			Expect(reviews(objects)).To(Equal(asked))
		},
		Entry("without metrics", func(*input) {}, false),
		Entry("on loopback", func(o *input) { o.MetricsBindAddress = "localhost:9090" }, false),
		Entry("for every client", func(o *input) { o.MetricsBindAddress, o.MetricsUnauthenticated = ":9090", true }, false),
		Entry("for some", func(o *input) { o.MetricsBindAddress = ":9090" }, true, "ClusterRole eirinix:eirini-x:metrics"),
		Entry("for Prometheus", func(o *input) { o.MetricsBindAddress, o.Deployment.PodMonitor = ":9090", true }, true,
			"ClusterRole eirinix:eirini-x:metrics", "ServiceAccount eirini-x-metrics", "ClusterRoleBinding eirinix:eirini-x:metrics", "Secret eirini-x-metrics", "PodMonitor eirini-x"),
		Entry("for Prometheus and every client", func(o *input) {
			o.MetricsBindAddress, o.MetricsUnauthenticated, o.Deployment.PodMonitor = ":9090", true, true
		}, false, "PodMonitor eirini-x"),
	)

	It("have a PodMonitor that finds the pods that serve, their port and the token of an account of Prometheus' own", func() {
		o := deployedOptions()
		o.MetricsBindAddress, o.RegisterWebHook = ":9090", new(false)
		o.Deployment.PodMonitor, o.Deployment.Labels, o.Deployment.Annotations = true, map[string]string{"release": "prometheus"}, map[string]string{"a": "b"}
		objects := manifestsOf(o, valueExtension{})
		monitor := the[*unstructured.Unstructured](objects)
		Expect(monitor).To(And(HaveField("GetLabels()", HaveKeyWithValue("release", "prometheus")), HaveField("GetAnnotations()", map[string]string{"a": "b"}), HaveField("GetNamespace()", "system")))
		secret := the[*corev1.Secret](objects)
		Expect(secret.Type).To(Equal(corev1.SecretTypeServiceAccountToken))
		Expect(secret.Annotations).To(Equal(map[string]string{"kubernetes.io/service-account.name": "eirini-x-metrics", "a": "b"}))
		Expect(allOf[*rbacv1.ClusterRoleBinding](objects)).To(ContainElement(And(HaveField("Name", "eirinix:eirini-x:metrics"), HaveField("RoleRef.Name", "eirinix:eirini-x:metrics"),
			HaveField("Subjects", []rbacv1.Subject{{Kind: "ServiceAccount", Name: "eirini-x-metrics", Namespace: "system"}}))))
		selected, _, _ := unstructured.NestedStringMap(monitor.Object, "spec", "selector", "matchLabels")
		selector := labels.SelectorFromSet(selected)
		serving := the[*appsv1.Deployment](objects).Spec.Template
		Expect(selector.Matches(labels.Set(serving.Labels))).To(BeTrue())
		Expect(selector.Matches(labels.Set(the[*batchv1.Job](objects).Spec.Template.Labels))).To(BeFalse())
		Expect(serving.Spec.Containers[0].Ports).To(ContainElement(corev1.ContainerPort{Name: "metrics", ContainerPort: 9090, Protocol: corev1.ProtocolTCP}))
		Expect(asJSON(monitor.Object["spec"].(map[string]any)["podMetricsEndpoints"])).To(MatchJSON(`[{
			"port": "metrics", "path": "/metrics", "scheme": "https", "tlsConfig": {"insecureSkipVerify": true},
			"authorization": {"type": "Bearer", "credentials": {"name": "eirini-x-metrics", "key": "token"}}
		}]`))
		o.MetricsUnauthenticated = true
		monitor = the[*unstructured.Unstructured](manifestsOf(o, valueExtension{}))
		Expect(asJSON(monitor.Object["spec"].(map[string]any)["podMetricsEndpoints"])).To(MatchJSON(`[{"port": "metrics", "path": "/metrics", "scheme": "http"}]`))
	})
})

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

var _ = Describe("A folder of manifests", func() {
	account := func(name string) *corev1.ServiceAccount {
		return &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: "cf"}}
	}
	var dir string
	BeforeEach(func() { dir = filepath.Join(GinkgoT().TempDir(), "new", "base") })
	write := func(names ...string) error {
		GinkgoHelper()
		var objects []client.Object
		for _, n := range names {
			objects = append(objects, account(n))
		}
		return Kustomization(dir, objects...)
	}
	file := func(name string) string { return filepath.Join(dir, name) }

	It("is made, and not touched by a second call", func() {
		Expect(write("a")).To(Succeed())
		old := time.Now().Add(-time.Hour)
		Expect(os.Chtimes(file("serviceaccount-a.yaml"), old, old)).To(Succeed())
		Expect(write("a")).To(Succeed())
		info := Must(os.Stat(file("serviceaccount-a.yaml")))
		Expect(info.ModTime()).To(BeTemporally("~", old, time.Second))
	})

	It("loses what is not needed any more, and keeps the files of others", func() {
		Expect(write("a", "b")).To(Succeed())
		for name, text := range map[string]string{"README.md": "# Our notes\n", "empty": ""} {
			Expect(os.WriteFile(file(name), []byte(text), 0o600)).To(Succeed())
		}
		Expect(write("a")).To(Succeed())
		entries := Must(os.ReadDir(dir))
		Expect(entries).To(HaveExactElements(HaveField("Name()", "README.md"), HaveField("Name()", "empty"),
			HaveField("Name()", "kustomization.yaml"), HaveField("Name()", "serviceaccount-a.yaml")))
	})

	It("touches neither packages below it, nor a chart in the same folder", func() {
		deployment := &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Name: "a", Namespace: "cf"}}
		chart := Must(helmChart(deployment))
		for _, folder := range []string{dir, filepath.Join(dir, "below")} {
			Expect(Chart(folder, deployment)).To(Succeed())
		}
		Expect(write("a")).To(Succeed())
		Expect(Chart(dir, deployment)).To(Succeed())
		for name := range chart {
			Expect(file(name)).To(BeAnExistingFile())
			Expect(filepath.Join(dir, "below", name)).To(BeAnExistingFile())
		}
		Expect(file("kustomization.yaml")).To(BeAnExistingFile())
	})

	It("keeps a file of another that is in the way, and is not written then", func() {
		Expect(os.MkdirAll(dir, 0o700)).To(Succeed())
		Expect(os.WriteFile(file("serviceaccount-a.yaml"), []byte("ours: true\n"), 0o600)).To(Succeed())
		Expect(write("a")).To(MatchError(And(ContainSubstring(file("serviceaccount-a.yaml")), ContainSubstring("move it away, or choose another folder"))))
		Expect(os.ReadFile(file("serviceaccount-a.yaml"))).To(BeEquivalentTo("ours: true\n"))
		Expect(file("kustomization.yaml")).NotTo(BeAnExistingFile())
	})

	It("has a file for each object, also where two have one name", func() {
		other := account("a")
		other.Namespace = "other"
		files := Must(kustomization(account("a"), other))
		Expect(files).To(And(HaveLen(3), HaveKey("serviceaccount-a.yaml"), HaveKey("serviceaccount-a-2.yaml")))
		Expect(string(files["kustomization.yaml"])).To(ContainSubstring("- serviceaccount-a-2.yaml\n"))
	})

	It("leaves the objects as they are", func() {
		other := &unstructured.Unstructured{Object: map[string]any{
			"apiVersion": "example.org/v1", "kind": "Other", "status": "fine", "later": nil, "count": int64(1) << 60,
			"metadata": map[string]any{"name": "other", "namespace": "cf"},
		}}
		deployment := &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Name: "a", Namespace: "cf"}}
		before := other.DeepCopy()
		files := Must(helmChart(deployment, other))
		Expect(other).To(Equal(before))
		Expect(string(files["templates/other-other.yaml"])).To(And(ContainSubstring("count: 1152921504606846976\n"), Not(Or(ContainSubstring("status"), ContainSubstring("later")))))
	})

	It("is no chart without one Deployment", func() {
		deployment := &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Name: "a", Namespace: "cf"}}
		_, err := helmChart(account("a"))
		Expect(err).To(MatchError(ContainSubstring("there is no Deployment")))
		_, err = helmChart(deployment, deployment)
		Expect(err).To(MatchError(ContainSubstring(`two Deployments, "a" and "a"`)))
	})
})
