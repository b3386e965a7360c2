package examples_test

// This file runs the examples that change or refuse workloads.

import (
	"context"
	"crypto/tls"
	"net/http"
	"os"
	"path/filepath"
	"regexp"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"github.com/onsi/gomega/gexec"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	crclient "sigs.k8s.io/controller-runtime/pkg/client"

	"code.cloudfoundry.org/eirinix"
	"code.cloudfoundry.org/eirinix/examples/internal/programs"
	. "code.cloudfoundry.org/eirinix/internal/spectest"
)

var _ = Describe("the example sidecar", func() {
	var r readme
	BeforeEach(func() {
		r = readmeOf("sidecar")
		unregisterAfterwards("sidecar-example")
	})

	mounted := HaveField("VolumeMounts", ContainElement(And(HaveField("Name", "log-forwarder-logs"), HaveField("MountPath", "/var/log/app"))))

	hasSidecar := func(g Gomega, pod *corev1.Pod, image string) {
		sidecar := And(
			HaveField("Name", "log-forwarder"), HaveField("Image", image), mounted,
			HaveField("RestartPolicy", HaveValue(Equal(corev1.ContainerRestartPolicyAlways))),
			HaveField("StartupProbe", Not(BeNil())), HaveField("LivenessProbe", Not(BeNil())),
		)
		g.Expect(pod.Spec.InitContainers).To(HaveExactElements(sidecar, And(HaveField("Name", "prepare"), mounted)))
		g.Expect(pod.Spec.Containers).To(HaveEach(mounted))
		g.Expect(pod.Spec.Volumes).To(ConsistOf(And(HaveField("Name", "log-forwarder-logs"), HaveField("EmptyDir", Not(BeNil())))))
	}

	It("injects a native sidecar in a cluster, but not where the annotation says no", func(ctx SpecContext) {
		program := r.deploy(ctx)
		Eventually(func(g Gomega) {
			pods, err := r.apply(ctx, "pods.yaml")
			g.Expect(err).NotTo(HaveOccurred())
			hasSidecar(g, as[corev1.Pod](pods["Pod/with-sidecar"]), "fluent/fluent-bit:4.0")
			without := as[corev1.Pod](pods["Pod/without-sidecar"]).Spec
			g.Expect(without.InitContainers).To(BeEmpty())
			g.Expect(without.Volumes).To(BeEmpty())
		}, programs.Patience).Should(Succeed())

		_, err := client.CoreV1().Pods("default").Create(ctx, podWith("log-forwarder"), metav1.CreateOptions{})
		Expect(err).To(And(
			Satisfy(apierrors.IsForbidden), MatchError(ContainSubstring(`the container name "log-forwarder" is taken by the sidecar`))))
		programs.StopsCleanly(program)
	})

	It("gives the volume to a container that a later webhook adds, and adds nothing twice", func(ctx SpecContext) {
		r.start("-host")
		unregisterAfterwards("zz-later") // the API server calls configurations in the order of their names
		later := eirinix.NewManager(eirinix.ManagerOptions{
			RestConfig: plane.Config(), Namespace: "default", Host: "127.0.0.1", ListenAddress: "127.0.0.1:0",
			OperatorFingerprint: "zz-later", Logger: quiet(),
		})
		add := func(_ context.Context, _ *eirinix.Call, pod *corev1.Pod) error {
			pod.Spec.Containers = append(pod.Spec.Containers, corev1.Container{Name: "added", Image: "example/added"})
			return nil
		}
		Expect(later.AddExtension(eirinix.Mutation[*corev1.Pod]{ID: "add", Apply: add})).To(Succeed())
		run(ctx, later)
		Eventually(func(g Gomega) {
			pods, err := r.apply(ctx, "pods.yaml")
			g.Expect(err).NotTo(HaveOccurred())
			pod := as[corev1.Pod](pods["Pod/with-sidecar"])
			g.Expect(pod.Spec.Containers).To(HaveExactElements(HaveField("Name", "main"), HaveField("Name", "added")))
			hasSidecar(g, pod, "registry.example.org/log-forwarder:1.0")
		}, programs.Patience).Should(Succeed())
	})
})

// podWith is a pod whose containers have these names.
func podWith(names ...string) *corev1.Pod {
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{GenerateName: "pod-"}}
	for _, name := range names {
		pod.Spec.Containers = append(pod.Spec.Containers, corev1.Container{Name: name, Image: "example/" + name})
	}
	return pod
}

var _ = Describe("the example idle-image", func() {
	var r readme
	BeforeEach(func(ctx SpecContext) {
		r = readmeOf("idle-image")
		unregisterAfterwards("idle-image-example")
		Expect(client.CoreV1().Events("idle").DeleteCollection(ctx, metav1.DeleteOptions{}, metav1.ListOptions{})).To(Succeed())
	})

	imageOf := func(d *appsv1.Deployment) string { return d.Spec.Template.Spec.Containers[0].Image }
	const knative, idle = "knative:latest", "empty-container:latest"

	events := func(ctx context.Context, namespace string) []string {
		GinkgoHelper()
		list := Must(client.CoreV1().Events(namespace).List(ctx, metav1.ListOptions{FieldSelector: "involvedObject.name=test,reason=ImageReplaced"}))
		messages := make([]string, 0, len(list.Items))
		for _, event := range list.Items {
			messages = append(messages, event.Message)
		}
		return messages
	}

	It("swaps images where the namespace asks for it, in a cluster, with the rights that it prints", func(ctx SpecContext) {
		program := r.deploy(ctx)
		Eventually(func(g Gomega) {
			applied, err := r.apply(ctx, "workload.yaml")
			g.Expect(err).NotTo(HaveOccurred())
			g.Expect(imageOf(as[appsv1.Deployment](applied["Deployment/test"]))).To(Equal(idle))
			g.Expect(as[corev1.Service](applied["Service/test"]).Spec.PublishNotReadyAddresses).To(BeTrue())
		}, programs.Patience).Should(Succeed())
		Expect(events(ctx, "idle")).To(ContainElement("Idles instead of running " + knative))

		By("changing the image back")
		deployments := client.AppsV1().Deployments("idle")
		again, err := deployments.Patch(ctx, "test", types.JSONPatchType,
			[]byte(`[{"op":"replace","path":"/spec/template/spec/containers/0/image","value":"knative:2"}]`), metav1.PatchOptions{})
		Expect(err).NotTo(HaveOccurred())
		Expect(imageOf(again)).To(Equal(idle))
		Expect(events(ctx, "idle")).To(ContainElement("Idles instead of running knative:2"))

		By("asking for a dry run")
		again.ResourceVersion, again.Name = "", "test-dry"
		again.Spec.Template.Spec.Containers[0].Image = "knative:dry"
		again, err = deployments.Create(ctx, again, metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
		Expect(err).NotTo(HaveOccurred())
		Expect(imageOf(again)).To(Equal(idle))
		dry, err := client.CoreV1().Events("idle").List(ctx, metav1.ListOptions{FieldSelector: "involvedObject.name=test-dry"})
		Expect(err).NotTo(HaveOccurred())
		Expect(dry.Items).To(BeEmpty())

		By("creating it elsewhere")
		again.ResourceVersion, again.UID, again.Namespace = "", "", "default"
		again.Spec.Template.Spec.Containers[0].Image = knative
		elsewhere := Must(client.AppsV1().Deployments("default").Create(ctx, again, metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}}))
		Expect(imageOf(elsewhere)).To(Equal(knative))
		programs.StopsCleanly(program)
	})
})

var _ = Describe("the example job-retries", func() {
	It("caps the retries of terraform-controller's Jobs while the operator works as before, and admits them when it is down", func(ctx SpecContext) {
		r := readmeOf("job-retries")
		unregisterAfterwards("job-retries-example")
		jobs := client.BatchV1().Jobs("default")
		limitOf := func(job *batchv1.Job) int32 { return *job.Spec.BackoffLimit }
		ca := newAuthority()
		address, port := programs.FreeAddress()
		// A spec has its own folder in place of the README's folder certs, and its own port in place of 9443.
		operator := r.start("-host", "-port", port, "-listen", address, "-cert-dir", ca.folder("cert.pem", "key.pem", "ca.pem"))

		Eventually(func(g Gomega) {
			applied, err := r.apply(ctx, "jobs.yaml")
			g.Expect(err).NotTo(HaveOccurred())
			g.Expect(limitOf(as[batchv1.Job](applied["Job/terraform-apply"]))).To(BeZero())
			g.Expect(limitOf(as[batchv1.Job](applied["Job/unrelated"]))).To(Equal(int32(4)))
		}, programs.Patience).Should(Succeed())
		changed, err := jobs.Patch(ctx, "terraform-apply", types.MergePatchType, []byte(`{"spec":{"backoffLimit":3}}`), metav1.PatchOptions{})
		Expect(err).NotTo(HaveOccurred())
		Expect(limitOf(changed)).To(BeZero())

		for _, name := range []string{"terraform-apply", "unrelated"} {
			Eventually(func() (map[string]string, error) {
				job, err := jobs.Get(ctx, name, metav1.GetOptions{})
				return job.Annotations, err
			}, programs.Patience).Should(HaveKeyWithValue("example.org/failures", "0"), "the operator's own controller")
		}

		configuration, err := client.AdmissionregistrationV1().MutatingWebhookConfigurations().Get(ctx, "job-retries-example-mutating-hook", metav1.GetOptions{})
		Expect(err).NotTo(HaveOccurred())
		Expect(configuration.Webhooks).To(HaveEach(HaveField("ClientConfig.CABundle", Equal(ca.CertificatePEM))))
		Expect(configuration.Webhooks).To(ContainElement(And(
			HaveField("Name", HavePrefix("jobs-")), HaveField("FailurePolicy", HaveValue(Equal(admissionregistrationv1.Ignore))))))

		programs.StopsCleanly(operator)
		applied := Must(r.apply(ctx, "jobs.yaml"))
		Expect(limitOf(as[batchv1.Job](applied["Job/terraform-apply"]))).To(Equal(int32(2147483647)), "the step leaves it alone")
	})
})

// A program may change a field that is immutable after the creation. The API server then refuses every edit of objects
// that are older than the program.
var _ = DescribeTable("objects that are older than the example can be edited still, and so can those that it has changed:",
	func(ctx SpecContext, example, file string, more func() []string) {
		r := readmeOf(example)
		unregisterAfterwards(example + "-example")
		var older []*unstructured.Unstructured
		for _, object := range programs.ObjectsIn(filepath.Join(example, file)) {
			if object.GetKind() != "Namespace" {
				object.SetName(object.GetName() + "-older")
				older = append(older, object)
			}
			// The API server may still know the webhook of the spec before for a moment.
			Eventually(func() error { return applyAfresh(ctx, object) }, programs.Patience).Should(Succeed())
		}
		Expect(older).NotTo(BeEmpty())
		r.start("-host", more()...)
		var changed map[string]*unstructured.Unstructured
		Eventually(func() (err error) {
			changed, err = r.apply(ctx, file)
			return err
		}, programs.Patience).Should(Succeed())
		edit := func(object *unstructured.Unstructured) {
			GinkgoHelper()
			annotate := crclient.RawPatch("application/merge-patch+json", []byte(`{"metadata":{"annotations":{"edited":"yes"},"labels":{"edited":"yes"}}}`))
			Expect(c.Patch(ctx, object, annotate)).To(Succeed(), "%s %s", object.GetKind(), object.GetName())
		}
		for _, object := range older {
			edit(object)
			Expect(remove(ctx, object)).To(Succeed())
		}
		for _, object := range changed {
			edit(object)
		}
	},
	Entry("sidecar", "sidecar", "pods.yaml", without),
	Entry("policies", "policies", "pod.yaml", without),
	Entry("idle-image", "idle-image", "workload.yaml", without),
	Entry("job-retries", "job-retries", "jobs.yaml", func() []string {
		address, port := programs.FreeAddress()
		return []string{"-port", port, "-listen", address, "-cert-dir", newAuthority().folder("cert.pem", "key.pem", "ca.pem")}
	}),
)

func without() []string { return nil }

var _ = Describe("the example agnhost", func() {
	var r readme
	BeforeEach(func(ctx SpecContext) {
		r = readmeOf("agnhost")
		unregisterAfterwards("agnhost-example")
		r.define(ctx, "widgets.yaml", "agnhost.example.org/v1", "Widget")
	})

	// attach asks for standard input of a container of a pod that is there, but does not run.
	attach := func(ctx context.Context, container string) error {
		return client.CoreV1().RESTClient().Get().Namespace("default").Resource("pods").Name("to-be-attached-pod").SubResource("attach").
			Param("container", container).Param("stdin", "true").Do(ctx).Error()
	}

	DescribeTable("does what its endpoints do", func(ctx SpecContext, start func(ctx context.Context) *gexec.Session) {
		start(ctx)
		allStages := map[string]any{"mutation-start": "yes", "mutation-stage-1": "yes", "mutation-stage-2": "yes"}
		var applied map[string]*unstructured.Unstructured
		Eventually(func(g Gomega) {
			var err error
			applied, err = r.apply(ctx, "objects.yaml")
			g.Expect(err).NotTo(HaveOccurred())
			pod := as[corev1.Pod](applied["Pod/webhook-to-be-mutated"])
			g.Expect(pod.Spec.InitContainers).To(ConsistOf(And(
				HaveField("Name", "webhook-added-init-container"), HaveField("TerminationMessagePolicy", corev1.TerminationMessageReadFile))))
			g.Expect(pod.Spec.Containers).To(HaveExactElements(HaveField("Name", "main"), HaveField("Name", "webhook-added-sidecar")))
			g.Expect(attach(ctx, "container1")).To(And(Satisfy(apierrors.IsForbidden), MatchError(ContainSubstring("is not allowed"))))
			for _, name := range []string{"ConfigMap/in-stages", "Widget/in-stages"} {
				g.Expect(applied[name].Object["data"]).To(Equal(allStages), name)
				g.Expect(applied[name].GetLabels()).To(HaveKeyWithValue("added-label", "yes"), name)
			}
		}, programs.Patience).Should(Succeed())
		Expect(attach(ctx, "container2")).NotTo(MatchError(ContainSubstring("is not allowed")))

		By("being refused unwanted objects")
		reasons := []string{
			"this webhook denies all requests", "the configmap contains unwanted key and value",
			"the pod contains unwanted container name; the pod contains unwanted label", "no answer before the deadline",
			"the custom resource contains unwanted data", "the crd contains unwanted label",
		}
		refused := programs.ObjectsIn("agnhost/refused.yaml")
		Expect(refused).To(HaveLen(len(reasons)))
		for i, object := range refused {
			err := applyAfresh(ctx, object)
			Expect(err).To(MatchError(ContainSubstring(reasons[i])))
			Expect(apierrors.IsForbidden(err)).To(Equal(object.GetName() != "hangs"), "%s: what hangs is a failure, and no refusal", reasons[i])
		}

		By("changing and deleting stored objects")
		unwanted := crclient.RawPatch("application/merge-patch+json", []byte(`{"data":{"webhook-e2e-test":"webhook-disallow"}}`))
		Expect(c.Patch(ctx, applied["ConfigMap/in-stages"].DeepCopy(), unwanted)).To(Satisfy(apierrors.IsForbidden))
		widget := applied["Widget/in-stages"]
		Expect(c.Patch(ctx, widget.DeepCopy(), unwanted)).To(Satisfy(apierrors.IsForbidden))
		Expect(c.Patch(ctx, widget, crclient.RawPatch("application/merge-patch+json", []byte(`{"data":{"webhook-e2e-test":"webhook-nondeletable"}}`)))).To(Succeed())
		Expect(c.Delete(ctx, widget)).To(MatchError(ContainSubstring("cannot be deleted")))
		Expect(c.Patch(ctx, widget, crclient.RawPatch("application/merge-patch+json", []byte(`{"data":{"webhook-e2e-test":null}}`)))).To(Succeed())
	},
		Entry("on this machine", func(context.Context) *gexec.Session { return r.start("-host") }),
		Entry("in a cluster", func(ctx context.Context) *gexec.Session { return r.deploy(ctx) }),
	)

	It("answers only callers that have the right certificate", func(ctx SpecContext) {
		callers := newAuthority()
		address, port := programs.FreeAddress()
		r.start("-listen", "-listen", address, "-port", port, "-client-ca", callers.file())
		answers := func(name string) int {
			certificate, key := Issue(callers.Authority, ForClient(name))
			pair := Must(tls.X509KeyPair(certificate, key))
			caller := &http.Client{Transport: &http.Transport{DisableKeepAlives: true, TLSClientConfig: &tls.Config{InsecureSkipVerify: true, Certificates: []tls.Certificate{pair}}}}
			answer := Must(caller.Post("https://"+address+"/", "application/json", http.NoBody))
			Expect(answer.Body.Close()).To(Succeed())
			return answer.StatusCode
		}
		Expect(answers("another")).To(Equal(http.StatusForbidden))
		Expect(answers("kube-apiserver")).To(Equal(http.StatusNotFound))

		Eventually(func() error {
			_, err := client.CoreV1().Pods("default").Create(ctx, podWith("webhook-disallow"), metav1.CreateOptions{})
			return err
		}, programs.Patience).Should(MatchError(ContainSubstring("failed calling webhook")))
	})
})

var _ = Describe("the example policies", func() {
	var r readme
	BeforeEach(func(ctx SpecContext) {
		r = readmeOf("policies")
		unregisterAfterwards("policies-example")
		for _, object := range programs.ObjectsIn("policies/pod.yaml")[:1] {
			Expect(applyAfresh(ctx, object)).To(Succeed())
		}
	})

	applyFile := func(ctx context.Context, file string) {
		GinkgoHelper()
		_, err := r.apply(ctx, file)
		Expect(err).NotTo(HaveOccurred())
	}
	newPod := func(image string) *corev1.Pod {
		return &corev1.Pod{ObjectMeta: metav1.ObjectMeta{GenerateName: "pod-", Namespace: "guarded"}, Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "main", Image: image}}}}
	}
	create := func(ctx context.Context, pod *corev1.Pod) (*corev1.Pod, error) {
		return client.CoreV1().Pods(pod.Namespace).Create(ctx, pod, metav1.CreateOptions{})
	}
	const own, foreign = "registry.example.org/app:1", "busybox"
	withheld := HaveField("Spec.AutomountServiceAccountToken", HaveValue(BeFalse()))
	silent := HaveField("Spec.AutomountServiceAccountToken", BeNil())
	isForbidden := And(Satisfy(apierrors.IsForbidden), MatchError(ContainSubstring("images from elsewhere: busybox")))

	DescribeTable("has the same outcome", func(ctx SpecContext, start func(ctx context.Context)) {
		start(ctx)
		Eventually(func(g Gomega) {
			applied, err := r.apply(ctx, "pod.yaml")
			g.Expect(err).NotTo(HaveOccurred())
			g.Expect(as[corev1.Pod](applied["Pod/own"])).To(withheld)
			_, err = create(ctx, newPod(foreign))
			g.Expect(err).To(isForbidden)
		}, programs.Patience).Should(Succeed())

		asks := newPod(own)
		asks.Spec.AutomountServiceAccountToken = new(true)
		created, err := create(ctx, asks)
		Expect(err).NotTo(HaveOccurred())
		Expect(created.Spec.AutomountServiceAccountToken).To(HaveValue(BeTrue()))
		created.Spec.Containers[0].Image = foreign
		_, err = client.CoreV1().Pods("guarded").Update(ctx, created, metav1.UpdateOptions{})
		Expect(err).To(isForbidden)
		prepared := newPod(own)
		prepared.Spec.InitContainers = []corev1.Container{{Name: "prepare", Image: foreign}}
		_, err = create(ctx, prepared)
		Expect(err).To(isForbidden)

		elsewhere := newPod(foreign)
		elsewhere.Namespace = "default"
		Expect(create(ctx, elsewhere)).To(silent)
	},
		Entry("as policies", func(ctx context.Context) { applyFile(ctx, "mutating.yaml"); applyFile(ctx, "validating.yaml") }),
		Entry("as a webhook in a cluster", func(ctx context.Context) { r.deploy(ctx) }),
	)

	// A policy that gives the token away shows which of two mutations came first: each leaves a field that is set.
	It("comes before the webhook of its sort, as docs/policies.md says", func(ctx SpecContext) {
		r.start("-host")
		Eventually(create).WithArguments(ctx, newPod(own)).WithTimeout(programs.Patience).Should(withheld)
		applied, err := r.apply(ctx, "mutating.yaml")
		Expect(err).NotTo(HaveOccurred())
		policy := applied["MutatingAdmissionPolicy/no-token.example.org"]
		mutations, found, err := unstructured.NestedSlice(policy.Object, "spec", "mutations")
		Expect(found, err).To(BeTrue())
		Expect(unstructured.SetNestedField(mutations[0].(map[string]any),
			"Object{spec: Object.spec{automountServiceAccountToken: true}}", "applyConfiguration", "expression")).To(Succeed())
		Expect(unstructured.SetNestedSlice(policy.Object, mutations, "spec", "mutations")).To(Succeed())
		Expect(c.Update(ctx, policy)).To(Succeed())
		applyFile(ctx, "validating.yaml")
		Eventually(func(g Gomega) {
			g.Expect(create(ctx, newPod(own))).To(HaveField("Spec.AutomountServiceAccountToken", HaveValue(BeTrue())))
			_, err := create(ctx, newPod(foreign))
			g.Expect(err).To(And(isForbidden, MatchError(ContainSubstring("ValidatingAdmissionPolicy"))))
		}, programs.Patience).Should(Succeed())
	})

	It("stands in docs/policies.md as it is applied here", func() {
		page, err := os.ReadFile(filepath.Join("..", "docs", "policies.md"))
		Expect(err).NotTo(HaveOccurred())
		snippets := regexp.MustCompile("(?s)```yaml\n# examples/([a-z/-]+\\.yaml)\n(.*?)```").FindAllStringSubmatch(string(page), -1)
		var files []string
		for _, found := range snippets {
			source := Must(os.ReadFile(found[1]))
			Expect(string(source)).To(Equal(found[2]), found[1])
			files = append(files, found[1])
		}
		Expect(files).To(ConsistOf("policies/mutating.yaml", "policies/validating.yaml"))
		Expect(regexp.MustCompile("```yaml\n[^#]").FindString(string(page))).To(BeEmpty(), "every YAML snippet names its file")
	})
})
