package examples_test

import (
	"context"
	"path/filepath"
	"strings"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"github.com/onsi/gomega/gexec"
	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/tools/clientcmd"
	crclient "sigs.k8s.io/controller-runtime/pkg/client"

	"code.cloudfoundry.org/eirinix/examples/hello/greeting"
	"code.cloudfoundry.org/eirinix/examples/internal/programs"
)

var _ = Describe("the example deploy", func() {
	var (
		apps, webhooks string
		address, port  string
		c              crclient.Client
	)

	BeforeEach(func(ctx SpecContext) {
		apps, webhooks = programs.Namespace(ctx, client), programs.Namespace(ctx, client)
		address, port = programs.FreeAddress()
		config, err := clientcmd.BuildConfigFromFlags("", kubeconfig)
		Expect(err).NotTo(HaveOccurred())
		c, err = crclient.New(config, crclient.Options{})
		Expect(err).NotTo(HaveOccurred())
		Expect(c.Patch(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: webhooks}}, crclient.RawPatch("application/merge-patch+json",
			[]byte(`{"metadata":{"labels":{"pod-security.kubernetes.io/enforce":"restricted"}}}`)))).To(Succeed())
	})

	// printed are the objects that the program prints.
	printed := func(flags ...string) (objects []crclient.Object) {
		GinkgoHelper()
		session := programs.Start(programs.Build("deploy"), append([]string{
			"manifests", "-image=registry.example.org/greeting:1.0", "-namespace=" + apps, "-service=greeter", "-webhook-namespace=" + webhooks, "-port=" + port,
		}, flags...)...)
		Eventually(session, programs.Patience).Should(gexec.Exit(0))
		for document := range strings.SplitSeq(string(session.Out.Contents()), "---\n") {
			object, _, err := scheme.Codecs.UniversalDeserializer().Decode([]byte(document), nil, nil)
			Expect(err).NotTo(HaveOccurred())
			objects = append(objects, object.(crclient.Object))
		}
		return objects
	}

	// apply creates them. There is no kube-proxy here; an ExternalName is resolved by the API server itself.
	apply := func(ctx context.Context, objects []crclient.Object) {
		GinkgoHelper()
		for _, object := range objects {
			if service, ok := object.(*corev1.Service); ok {
				service.Spec = corev1.ServiceSpec{Type: corev1.ServiceTypeExternalName, ExternalName: "localhost"}
			}
			Expect(c.Create(ctx, object)).To(Succeed())
			DeferCleanup(func(ctx SpecContext) error { return crclient.IgnoreNotFound(c.Delete(ctx, object)) })
		}
		DeferCleanup(func(ctx SpecContext) {
			Expect(client.AdmissionregistrationV1().MutatingWebhookConfigurations().Delete(ctx, "deploy-example-mutating-hook", metav1.DeleteOptions{})).To(Succeed())
		})
	}

	// start runs what a pod runs, with the rights of its ServiceAccount.
	start := func(pod corev1.PodSpec, more ...string) *gexec.Session {
		GinkgoHelper()
		config, err := clientcmd.LoadFromFile(kubeconfig)
		Expect(err).NotTo(HaveOccurred())
		for _, user := range config.AuthInfos {
			user.Impersonate = "system:serviceaccount:" + webhooks + ":" + pod.ServiceAccountName
			user.ImpersonateGroups = []string{"system:serviceaccounts", "system:serviceaccounts:" + webhooks, "system:authenticated"}
		}
		path := filepath.Join(GinkgoT().TempDir(), "kubeconfig")
		Expect(clientcmd.WriteToFile(*config, path)).To(Succeed())
		return programs.Start(programs.Build("deploy"), append(append(pod.Containers[0].Args, "-kubeconfig", path), more...)...)
	}

	greets := func(g Gomega, ctx SpecContext) {
		pod, err := programs.CreatePod(ctx, client, apps)
		g.Expect(err).NotTo(HaveOccurred())
		g.Expect(pod.Labels).To(HaveKeyWithValue(greeting.Label, "true"))
	}

	It("runs with what it prints", func(ctx SpecContext) {
		objects := printed()
		apply(ctx, objects)
		serve := start(podOf[*appsv1.Deployment](objects), "-listen", address)
		Eventually(greets, programs.Patience).WithContext(ctx).Should(Succeed())
		programs.StopsCleanly(serve)
	})

	It("runs with what it prints in two halves", func(ctx SpecContext) {
		objects := printed("-split")
		apply(ctx, objects)
		serve := start(podOf[*appsv1.Deployment](objects), "-listen", address)
		Eventually(func() string { return string(serve.Err.Contents()) }, programs.Patience).Should(ContainSubstring("waiting for the certificate Secret"))
		register := start(podOf[*batchv1.Job](objects))
		Eventually(register, programs.Patience).Should(gexec.Exit(0))
		Eventually(greets, programs.Patience).WithContext(ctx).Should(Succeed())
		programs.StopsCleanly(serve)
	})

	It("says what it misses", func() {
		session := programs.Start(programs.Build("deploy"), "manifests")
		Eventually(session, programs.Patience).Should(gexec.Exit(1))
		Expect(string(session.Err.Contents())).To(ContainSubstring("Deployment.Image is empty; set it"))
		Expect(session.Out.Contents()).To(BeEmpty())
	})
})

// podOf is what the only object of a kind runs.
func podOf[T crclient.Object](objects []crclient.Object) corev1.PodSpec {
	GinkgoHelper()
	for _, object := range objects {
		if _, ok := object.(T); !ok {
			continue
		}
		switch o := object.(type) {
		case *appsv1.Deployment:
			return o.Spec.Template.Spec
		case *batchv1.Job:
			return o.Spec.Template.Spec
		}
	}
	Fail("not printed")
	return corev1.PodSpec{}
}
