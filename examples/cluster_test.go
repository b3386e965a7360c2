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

	"code.cloudfoundry.org/eirinix/examples/internal/programs"
)

// deploy follows the README for a cluster. It creates the objects that the program prints, and runs the commands of their
// pods with the rights of the ServiceAccount and no others.
func (r readme) deploy(ctx context.Context) *gexec.Session {
	GinkgoHelper()
	args := append([]string{"manifests"}, r.command("go run ./examples/"+r.example+" manifests")...)
	address, port := programs.FreeAddress()
	session := programs.Start(programs.Build(r.example), append(args, "-port="+port)...)
	Eventually(session, programs.Patience).Should(gexec.Exit(0))
	objects := printedBy(session)
	create(ctx, objects)
	running := startPod(r.example, objects[0].GetNamespace(), podOf[*appsv1.Deployment](objects), "-listen", address)
	isReady(running)
	return running
}

// printedBy are the objects that a program has printed.
func printedBy(session *gexec.Session) (objects []crclient.Object) {
	GinkgoHelper()
	for document := range strings.SplitSeq(string(session.Out.Contents()), "---\n") {
		object, _, err := scheme.Codecs.UniversalDeserializer().Decode([]byte(document), nil, nil)
		Expect(err).NotTo(HaveOccurred())
		objects = append(objects, object.(crclient.Object))
	}
	return objects
}

// create creates objects, and their namespaces before, until the end of the spec. There is no kube-proxy here; an
// ExternalName is resolved by the API server itself.
func create(ctx context.Context, objects []crclient.Object) {
	GinkgoHelper()
	for _, object := range objects {
		if service, ok := object.(*corev1.Service); ok {
			service.Spec = corev1.ServiceSpec{Type: corev1.ServiceTypeExternalName, ExternalName: "localhost"}
		}
		if namespace := object.GetNamespace(); namespace != "" {
			err := c.Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: namespace}})
			Expect(crclient.IgnoreAlreadyExists(err)).To(Succeed())
		}
		Expect(c.Create(ctx, object)).To(Succeed())
		DeferCleanup(func(ctx SpecContext) error { return crclient.IgnoreNotFound(c.Delete(ctx, object)) })
	}
}

// asServiceAccount returns a kubeconfig with the rights of a ServiceAccount.
func asServiceAccount(namespace, name string) string {
	GinkgoHelper()
	config, err := clientcmd.LoadFromFile(kubeconfig)
	Expect(err).NotTo(HaveOccurred())
	for _, user := range config.AuthInfos {
		user.Impersonate = "system:serviceaccount:" + namespace + ":" + name
		user.ImpersonateGroups = []string{"system:serviceaccounts", "system:serviceaccounts:" + namespace, "system:authenticated"}
	}
	path := filepath.Join(GinkgoT().TempDir(), "kubeconfig")
	Expect(clientcmd.WriteToFile(*config, path)).To(Succeed())
	return path
}

// startPod runs the command of a pod with the rights of its ServiceAccount.
func startPod(example, namespace string, pod corev1.PodSpec, more ...string) *gexec.Session {
	GinkgoHelper()
	account := asServiceAccount(namespace, pod.ServiceAccountName)
	return programs.Start(programs.Build(example), append(append(pod.Containers[0].Args, "-kubeconfig", account), more...)...)
}

// podOf returns the pod template of the only object of a kind.
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

// unregisterAfterwards removes the configurations of a program at the end of the spec, if there are any.
func unregisterAfterwards(fingerprint string) {
	DeferCleanup(func(ctx SpecContext) {
		hooks := client.AdmissionregistrationV1()
		Expect(crclient.IgnoreNotFound(hooks.MutatingWebhookConfigurations().Delete(ctx, fingerprint+"-mutating-hook", metav1.DeleteOptions{}))).To(Succeed())
		Expect(crclient.IgnoreNotFound(hooks.ValidatingWebhookConfigurations().Delete(ctx, fingerprint+"-validating-hook", metav1.DeleteOptions{}))).To(Succeed())
	})
}
