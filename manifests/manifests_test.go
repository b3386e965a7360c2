package manifests

// The objects that run a program in a cluster, with the rights that it needs and no others.

import (
	"bytes"
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
	"go.uber.org/zap/zaptest/observer"
	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	policyv1 "k8s.io/api/policy/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/watch"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"
	"sigs.k8s.io/yaml"

	"code.cloudfoundry.org/eirinix"
	"code.cloudfoundry.org/eirinix/conversion"
)

func TestManifests(t *testing.T) {
	RegisterFailHandler(Fail)
	RunSpecs(t, "manifests")
}

// valueExtension, namedExtension, watcher and reconciler are what a program adds. They do nothing.
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
	return must(Of(managerWith(o, added...), o.Deployment))
}

func must[T any](value T, err error) T {
	GinkgoHelper()
	Expect(err).NotTo(HaveOccurred())
	return value
}

func managerWith(o input, added ...any) *eirinix.ExtensionManager {
	GinkgoHelper()
	m := eirinix.NewManager(o.ManagerOptions)
	for _, v := range added {
		Expect(m.AddExtension(v)).To(Succeed())
	}
	return m
}

var _ = Describe("Manifests of a program with a Conversion", func() {
	DescribeTable("grant get on the Secret of its keys, unless it is Lossy", func(lossy bool, change func(*input), verbs ...string) {
		o := deployedOptions()
		change(&o)
		same := func(_ context.Context, u *unstructured.Unstructured) (*unstructured.Unstructured, error) {
			return u, nil
		}
		verbsOn := func(named string) (all []string) {
			for _, role := range allOf[*rbacv1.Role](manifestsOf(o, conversion.Of[*unstructured.Unstructured]{
				CRD: "shops.example.org", Version: "v1", Lossy: lossy, Spokes: []conversion.Spoke[*unstructured.Unstructured]{conversion.NewSpoke("v2", same, same)},
			})) {
				for _, r := range role.Rules {
					if slices.Contains(r.Resources, "secrets") && slices.Contains(r.ResourceNames, named) {
						all = append(all, r.Verbs...)
					}
				}
			}
			return all
		}
		Expect(verbsOn("eirini-x-conversions")).To(ConsistOf(verbs))
	},
		Entry("that runs as one", false, func(*input) {}, "get"),
		Entry("that is Lossy", true, func(*input) {}),
		Entry("with certificates of another source", false, func(o *input) { o.Certificates = eirinix.FromSecret("", "tls") }, "get"),
	)
})

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
	return string(must(json.Marshal(v)))
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
		Entry("called through a Service", deployedOptions(), []any{valueExtension{}},
			"ServiceAccount eirini-x", "Role eirinix:eirini-x", "RoleBinding eirinix:eirini-x", "ClusterRole eirinix:eirini-x", "ClusterRoleBinding eirinix:eirini-x",
			"Service hooks", "NetworkPolicy eirini-x", "PodDisruptionBudget eirini-x", "Deployment eirini-x"),
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
		again := func() []client.Object { return must(Of(m, o.Deployment)) }
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

	It("grant the rights that each kind of step and each option needs", func() {
		granted := func(o input, added ...any) string {
			var all []string
			for _, o := range manifestsOf(o, added...) {
				switch o := o.(type) {
				case *rbacv1.Role:
					all = append(all, o.Namespace+": "+rulesText(o.Rules))
				case *rbacv1.ClusterRole:
					all = append(all, "cluster: "+rulesText(o.Rules))
				}
			}
			return strings.Join(all, "\n")
		}
		const secret = "configmaps,secrets create; secrets/eirini-x-setupcertificate get,list,update,watch; " +
			"leases create; leases/eirini-x-versions get,list,update,watch; events create,patch"
		const serving = "secrets/eirini-x-setupcertificate get,list,watch; leases/eirini-x-versions get,list,watch"
		const mutating = "mutatingwebhookconfigurations create; mutatingwebhookconfigurations/eirini-x-mutating-hook get,list,update,watch"
		o := deployedOptions()
		Expect(granted(o, valueExtension{})).To(Equal("system: " + secret + "\ncluster: namespaces/system get; " + mutating))
		Expect(granted(o, validatePods())).To(Equal("system: " + secret + "\ncluster: namespaces/system get; " + strings.ReplaceAll(mutating, "mutating", "validating")))
		Expect(granted(o, &reconciler{})).To(BeEmpty())
		Expect(granted(o, &watcher{})).To(Equal("apps: pods list,watch"))
		o.UnregisterOnStop = true
		Expect(granted(o, valueExtension{})).To(HaveSuffix(strings.Replace(mutating, "get", "delete,get", 1)))
		Expect(granted(split(o), valueExtension{}, &watcher{})).To(Equal("system: " + serving + "\napps: pods list,watch\n" +
			"system: secrets create; secrets/eirini-x-setupcertificate get,update; leases create; leases/eirini-x-versions get,update; events create,patch\n" +
			"cluster: namespaces/system get; mutatingwebhookconfigurations create; mutatingwebhookconfigurations/eirini-x-mutating-hook get,update"))

		o = deployedOptions()
		o.Namespace = ""
		Expect(granted(o, &watcher{})).To(Equal("cluster: pods list,watch"))
		o.ClientCA = eirinix.ClientCA{ConfigMap: "kube-system/callers"}
		Expect(granted(o, valueExtension{})).To(ContainSubstring("\nkube-system: configmaps/callers get,list,watch\n"))
		o.ClientCA = eirinix.ClientCA{PEM: []byte("given")}
		o.SetupCertificate, o.SetupCertificateName = new(false), "ca"
		Expect(granted(o, valueExtension{})).To(HavePrefix("system: configmaps create; secrets/ca get,list,update,watch; "))
	})

	It("describe on the ServiceAccount that reconcilers need rights of their own", func() {
		Expect(the[*corev1.ServiceAccount](manifestsOf(deployedOptions(), &reconciler{})).Annotations).To(HaveKeyWithValue("kubernetes.io/description", ContainSubstring("reconcilers")))
		Expect(the[*corev1.ServiceAccount](manifestsOf(deployedOptions(), valueExtension{})).Annotations).To(BeEmpty())
	})

	It("have valid names and labels for the longest fingerprint", func() {
		long := strings.Repeat("f", 63)
		o := split(deployedOptions())
		o.OperatorFingerprint, o.WebhookNamespace, o.ServiceName = long, strings.Repeat("n", 63), strings.Repeat("s", 63)
		objects := manifestsOf(o, valueExtension{}, &watcher{})
		for _, object := range objects {
			for key, value := range object.GetLabels() {
				Expect(validation.IsQualifiedName(key)).To(BeEmpty())
				Expect(validation.IsValidLabelValue(value)).To(BeEmpty(), "%T: %s", object, value)
			}
			if !strings.HasPrefix(object.GetName(), "eirinix:") {
				Expect(validation.IsDNS1123Subdomain(object.GetName())).To(BeEmpty())
			}
		}
		Expect(validation.IsDNS1123Label(the[*batchv1.Job](objects).Name)).To(BeEmpty())
		Expect(len(the[*batchv1.CronJob](objects).Name)).To(BeNumerically("<=", 52))
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

	DescribeTable("say that the pods lack the arguments of the process,",
		func(commandLine, args []string, said int) {
			core, logs := observer.New(zapcore.InfoLevel)
			o := deployedOptions()
			o.Logger, o.Deployment.Args = zap.New(core).Sugar(), args
			defer func(own []string) { os.Args = own }(os.Args)
			os.Args = commandLine
			_, err := Of(managerWith(o, valueExtension{}), o.Deployment)
			Expect(err).NotTo(HaveOccurred())
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
	It("are rights in the manifests, and no more than they need", func() {
		m := eirinix.NewManager(eirinix.ManagerOptions{ServiceName: "hooks", WebhookNamespace: "hooks"})
		Expect(m.AddExtension(readingStep(
			eirinix.Read{Object: &corev1.Secret{}, Namespaces: []string{"vault"}, Fields: fields.OneTermEqualSelector("metadata.name", "keys")},
			eirinix.Read{Object: &corev1.Secret{}, Namespaces: []string{"vault"}, Fields: fields.OneTermEqualSelector("metadata.name", "more")},
			eirinix.Read{Object: &corev1.Service{}},
			eirinix.Read{Object: &corev1.Node{}},
		))).To(Succeed())
		objects := must(Of(m, Options{Image: "example.org/hooks:1", Args: []string{}, AuditSchedule: "@daily"}))
		rule := func(names []string, resources ...string) rbacv1.PolicyRule {
			return rbacv1.PolicyRule{APIGroups: []string{""}, Resources: resources, ResourceNames: names, Verbs: []string{"get", "list", "watch"}}
		}
		roles := map[string][]rbacv1.PolicyRule{}
		for _, o := range objects {
			switch o := o.(type) {
			case *rbacv1.Role:
				roles[o.Namespace+"/"+o.Name] = o.Rules
			case *rbacv1.ClusterRole:
				roles["/"+o.Name] = o.Rules
			}
		}
		Expect(roles).To(HaveKeyWithValue("vault/eirinix:eirini-x", ConsistOf(rule([]string{"keys", "more"}, "secrets"))))
		Expect(roles).To(HaveKeyWithValue("vault/eirinix:eirini-x:audit", ConsistOf(rule([]string{"keys", "more"}, "secrets"))))
		for _, name := range []string{"/eirinix:eirini-x", "/eirinix:eirini-x:audit"} {
			Expect(roles[name]).To(ContainElement(rule(nil, "nodes", "services")))
			Expect(roles[name]).NotTo(ContainElement(HaveField("Resources", ContainElement("secrets"))))
		}
	})

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

	It("grant the half that serves the rights to review callers, and not the other", func() {
		o := deployedOptions()
		o.RegisterWebHook, o.MetricsBindAddress = new(false), ":9090"
		for _, role := range allOf[*rbacv1.ClusterRole](manifestsOf(o, valueExtension{})) {
			Expect(reviews([]client.Object{role})).To(Equal(role.Name == "eirinix:eirini-x"), role.Name)
		}
	})

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
