package eirinix_test

import (
	"bytes"
	"context"
	"strings"
	"sync"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"go.uber.org/zap"
	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"code.cloudfoundry.org/eirinix"
	"code.cloudfoundry.org/eirinix/manifests"
)

// warningLog keeps the warnings of an API server.
type warningLog struct {
	mu   sync.Mutex
	said []string
}

func (w *warningLog) HandleWarningHeaderWithContext(_ context.Context, _ int, _, text string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.said = append(w.said, text)
}

var _ = Describe("The namespace of the program's own pod", func() {
	It("is not that of its manifests unless it is given", func() {
		eirinix.InPod("  mine\n")
		given := eirinix.ManagerOptions{ServiceName: "hooks", Logger: zap.NewNop().Sugar()}
		m := eirinix.NewManager(given)
		Expect(m.AddExtension(addEnv{})).To(Succeed())
		o := manifests.Options{Image: "hooks:1", Args: []string{}}
		_, err := manifests.Of(m, o)
		Expect(err).To(MatchError(ContainSubstring("WebhookNamespace is empty; set it")), "this pod may be one that only prints")

		m.SetManagerOptions(m.GetManagerOptions())
		_, err = manifests.Of(m, o)
		Expect(err).To(MatchError(ContainSubstring("WebhookNamespace is empty; set it")))
		given.WebhookNamespace = "mine"
		m.SetManagerOptions(given)
		Expect(manifests.Of(m, o)).NotTo(BeEmpty(), "it is given")
	})
})

var _ = Describe("A program's manifests, in a namespace of the Pod Security level restricted,", Label("api-server"), func() {
	var (
		apps, system string
		c            client.Client
		warnings     *warningLog
		options      eirinix.ManagerOptions
		deployment   manifests.Options
	)
	BeforeEach(func(ctx SpecContext) {
		apps, warnings = newNamespace(ctx), &warningLog{}
		ns, err := clients().CoreV1().Namespaces().Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{GenerateName: "spec-", Labels: map[string]string{
			"pod-security.kubernetes.io/enforce": "restricted", "pod-security.kubernetes.io/warn": "restricted",
		}}}, metav1.CreateOptions{})
		Expect(err).NotTo(HaveOccurred())
		system = ns.Name
		config := controlPlane().Config()
		config.WarningHandlerWithContext = warnings
		c, err = client.New(config, client.Options{})
		Expect(err).NotTo(HaveOccurred())
		options = eirinix.ManagerOptions{
			Namespace: apps, ServiceName: "hooks", WebhookNamespace: system, OperatorFingerprint: apps,
		}
		deployment = manifests.Options{Image: "registry.example.org/hooks:1.0"}
	})

	objectsOf := func(o eirinix.ManagerOptions, added ...any) []client.Object {
		GinkgoHelper()
		m := eirinix.NewManager(o)
		for _, v := range added {
			Expect(m.AddExtension(v)).To(Succeed())
		}
		objects, err := manifests.Of(m, deployment)
		Expect(err).NotTo(HaveOccurred())
		return objects
	}
	// apply is kubectl apply --server-side --dry-run=server of the YAML.
	apply := func(ctx context.Context, o client.Object) error {
		GinkgoHelper()
		var text bytes.Buffer
		Expect(manifests.Write(&text, o)).To(Succeed())
		u := &unstructured.Unstructured{}
		Expect(yaml.Unmarshal(text.Bytes(), &u.Object)).To(Succeed())
		return c.Apply(ctx, client.ApplyConfigurationFromUnstructured(u), client.DryRunAll, client.FieldOwner("spec"), client.ForceOwnership)
	}
	// pods returns the pods that controllers would make of the objects.
	pods := func(objects []client.Object) (pods []*corev1.Pod) {
		for _, o := range objects {
			var t corev1.PodTemplateSpec
			switch o := o.(type) {
			case *appsv1.Deployment:
				t = o.Spec.Template
			case *batchv1.Job:
				t = o.Spec.Template
			case *batchv1.CronJob:
				t = o.Spec.JobTemplate.Spec.Template
			default:
				continue
			}
			t.GenerateName, t.Namespace = "pod-", o.GetNamespace()
			pods = append(pods, &corev1.Pod{ObjectMeta: t.ObjectMeta, Spec: t.Spec})
		}
		return pods
	}

	DescribeTable("are accepted by the API server, without a warning,",
		func(ctx SpecContext, change func(*eirinix.ManagerOptions, *manifests.Options), added ...any) {
			change(&options, &deployment)
			objects := objectsOf(options, added...)
			for _, o := range objects {
				if _, ok := o.(*unstructured.Unstructured); ok {
					continue // a PodMonitor, which this API server does not know
				}
				Expect(apply(ctx, o)).To(Succeed(), "%T %s", o, o.GetName())
				Expect(c.Create(ctx, o.DeepCopyObject().(client.Object), client.DryRunAll, client.FieldValidation("Strict"))).To(Succeed(), "%T %s", o, o.GetName())
			}
			for _, pod := range pods(objects) {
				Expect(c.Create(ctx, pod, client.DryRunAll)).To(Succeed())
			}
			Expect(warnings.said).To(BeEmpty())
		},
		Entry("called through a Service", func(*eirinix.ManagerOptions, *manifests.Options) {}, addEnv{}),
		Entry("called by URL on a high port, with ports for health and metrics", func(o *eirinix.ManagerOptions, _ *manifests.Options) {
			o.ServiceName, o.Host, o.ListenAddress, o.MetricsBindAddress, o.HealthProbeBindAddress = "", "webhook.example.org", ":8443", ":8080", ":8081"
		}, addEnv{}, &eventLog{}),
		Entry("split", func(o *eirinix.ManagerOptions, _ *manifests.Options) { o.RegisterWebHook = new(false) }, addEnv{}, &eventLog{}),
		Entry("only watching, everywhere", func(o *eirinix.ManagerOptions, _ *manifests.Options) { o.Namespace = "" }, &eventLog{}),
		Entry("with the longest names", func(o *eirinix.ManagerOptions, _ *manifests.Options) {
			o.RegisterWebHook, o.OperatorFingerprint, o.ServiceName = new(false), strings.Repeat("f", 63), strings.Repeat("s", 63)
		}, addEnv{}),
		Entry("with all that a user may choose", func(o *eirinix.ManagerOptions, d *manifests.Options) {
			o.UnregisterOnStop, o.MetricsBindAddress, d.PodMonitor = true, ":9090", true
			d.Command, d.Args, d.Env = []string{"/program"}, []string{"-v"}, []corev1.EnvVar{{Name: "A", Value: "b"}}
			d.Name, d.ServiceAccountName, d.Replicas = "name", "account.name", 1
			d.Labels, d.Annotations = map[string]string{"example.org/team": "t"}, map[string]string{"Example.org/Note": "a thing"}
			d.PriorityClassName, d.NodeSelector = "system-cluster-critical", map[string]string{"pool": "system"}
			d.Tolerations = []corev1.Toleration{
				{Operator: corev1.TolerationOpExists}, {Key: "dedicated", Value: "x", Effect: corev1.TaintEffectNoExecute, TolerationSeconds: new(int64(60))},
			}
			d.ImagePullSecrets = []corev1.LocalObjectReference{{Name: "registry"}}
			d.AuditSchedule = "@daily"
		}, addEnv{}),
	)

	It("would not be with a pod that may do more", func(ctx SpecContext) {
		for _, pod := range pods(objectsOf(options, addEnv{})) {
			pod.Spec.Containers[0].SecurityContext.AllowPrivilegeEscalation = new(true)
			Expect(apierrors.IsForbidden(c.Create(ctx, pod, client.DryRunAll))).To(BeTrue())
		}
	})

	It("are not sent to the program that they deploy", func(ctx SpecContext) {
		// A webhook that is down: its pods, in the very namespace whose pods it is for, must come up all the same.
		options.Namespace, options.RestConfig = system, controlPlane().Config()
		m := addEnvManager(options)
		Expect(m.RegisterExtensions()).To(Succeed())
		DeferCleanup(func(ctx context.Context) { Expect(m.Unregister(ctx)).To(Succeed()); m.Stop() })
		objects, err := manifests.Of(m, deployment)
		Expect(err).NotTo(HaveOccurred())
		options.RegisterWebHook = new(false)
		own := append(pods(objects), pods(objectsOf(options, addEnv{}))...)
		Eventually(func() error {
			other := own[0].DeepCopy()
			other.Labels = nil
			return c.Create(ctx, other, client.DryRunAll)
		}).WithContext(ctx).WithTimeout(patience).Should(MatchError(ContainSubstring("failed calling webhook")))
		for _, pod := range own {
			Expect(c.Create(ctx, pod, client.DryRunAll)).To(Succeed())
		}
	}, SpecTimeout(2*patience))
})
