package examples_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"github.com/onsi/gomega/gexec"
	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/kubernetes/scheme"
	crclient "sigs.k8s.io/controller-runtime/pkg/client"

	"code.cloudfoundry.org/eirinix/examples/internal/programs"
	"code.cloudfoundry.org/eirinix/internal/ca"
	. "code.cloudfoundry.org/eirinix/internal/spectest"
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

// startPod runs the command of a pod with the rights of its ServiceAccount.
func startPod(example, namespace string, pod corev1.PodSpec, more ...string) *gexec.Session {
	GinkgoHelper()
	account := programs.AsServiceAccount(kubeconfig, namespace, pod.ServiceAccountName)
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

// readme is the README of an example. Its specs run its command lines.
type readme struct {
	example string
	text    string
}

func readmeOf(example string) readme {
	GinkgoHelper()
	text := Must(os.ReadFile(filepath.Join(example, "README.md")))
	return readme{example, strings.ReplaceAll(string(text), "\\\n", " ")}
}

// command returns the arguments of the only command line that begins with these words, up to a pipe.
func (r readme) command(beginning string) []string {
	GinkgoHelper()
	var found []string
	for line := range strings.Lines(r.text) {
		if command, ok := strings.CutPrefix(line, "    "); ok && strings.HasPrefix(command, beginning+" ") {
			command, _, _ = strings.Cut(command, " | ")
			command, _, _ = strings.Cut(command, " # ")
			found = append(found, strings.TrimPrefix(command, beginning))
		}
	}
	Expect(found).To(HaveLen(1), "%s/README.md has one command that begins with %q", r.example, beginning)
	return strings.Fields(found[0])
}

// start runs the example by the README's "go run" line that continues with these words, and waits until it is ready.
func (r readme) start(continuation string, more ...string) *gexec.Session {
	GinkgoHelper()
	session := r.launch(continuation, more...)
	isReady(session)
	return session
}

// launch is start, without the wait.
func (r readme) launch(continuation string, more ...string) *gexec.Session {
	GinkgoHelper()
	args := append(strings.Fields(continuation), r.command("go run ./examples/"+r.example+" "+continuation)...)
	return programs.StartWith(kubeconfig, programs.Build(r.example), append(args, more...)...)
}

// isReady waits for the log line that the READMEs name.
func isReady(session *gexec.Session) {
	GinkgoHelper()
	Eventually(func() (string, error) {
		if code := session.ExitCode(); code >= 0 {
			return "", StopTrying(fmt.Sprintf("the program ended with %d", code))
		}
		return string(session.Err.Contents()), nil
	}, programs.Patience).Should(ContainSubstring(`"msg":"ready"`))
}

// apply replaces the README's "kubectl apply" of a file of the example. It deletes existing objects first, except namespaces
// and definitions. It returns the objects as the API server stored them, by kind and name.
func (r readme) apply(ctx context.Context, file string) (map[string]*unstructured.Unstructured, error) {
	GinkgoHelper()
	path := "examples/" + r.example + "/" + file
	Expect(r.text).To(MatchRegexp(`(?m)^    kubectl apply .*-f `+path+`\b`), "the README applies "+path)
	applied := map[string]*unstructured.Unstructured{}
	for _, object := range programs.ObjectsIn(filepath.Join(r.example, file)) {
		if err := applyAfresh(ctx, object); err != nil {
			return nil, err
		}
		applied[object.GetKind()+"/"+object.GetName()] = object
	}
	return applied, nil
}

// define applies the definition of a custom resource, and waits until it is served. It tries again: the API server may still
// know the webhook of the spec before for a moment.
func (r readme) define(ctx context.Context, file, apiVersion, kind string) {
	GinkgoHelper()
	Eventually(func() error {
		_, err := r.apply(ctx, file)
		return err
	}, programs.Patience).Should(Succeed())
	list := &unstructured.UnstructuredList{}
	list.SetAPIVersion(apiVersion)
	list.SetKind(kind + "List")
	Eventually(func() error { return c.List(ctx, list) }, programs.Patience).Should(Succeed())
}

// applyAfresh creates an object, in the namespace default unless it says otherwise, and takes it away after the spec.
func applyAfresh(ctx context.Context, object *unstructured.Unstructured) error {
	mapping, err := c.RESTMapper().RESTMapping(object.GroupVersionKind().GroupKind(), object.GroupVersionKind().Version)
	if err != nil {
		return err
	}
	if mapping.Scope.Name() == "namespace" && object.GetNamespace() == "" {
		object.SetNamespace(metav1.NamespaceDefault)
	}
	stays := object.GetKind() == "Namespace" || object.GetKind() == "CustomResourceDefinition"
	if !stays {
		if err := remove(ctx, object); err != nil {
			return err
		}
		DeferCleanup(func(ctx SpecContext) error { return remove(ctx, object) })
	}
	if err := c.Create(ctx, object); !stays || !apierrors.IsAlreadyExists(err) {
		return err
	}
	return nil
}

// remove deletes an object at once, if it is there. The objects that it owns stay, because no controller manager runs here.
func remove(ctx context.Context, object *unstructured.Unstructured) error {
	gone := &unstructured.Unstructured{}
	gone.SetGroupVersionKind(object.GroupVersionKind())
	gone.SetNamespace(object.GetNamespace())
	gone.SetName(object.GetName())
	return crclient.IgnoreNotFound(c.Delete(ctx, gone, crclient.GracePeriodSeconds(0), crclient.PropagationPolicy(metav1.DeletePropagationBackground)))
}

// as reads an object into its Go type.
func as[T any](object *unstructured.Unstructured) *T {
	GinkgoHelper()
	Expect(object).NotTo(BeNil())
	typed := new(T)
	Expect(c.Scheme().Convert(object, typed, nil)).To(Succeed())
	return typed
}

// authority is a CA for certificates that the library does not make.
type authority struct{ *ca.Authority }

func newAuthority() authority {
	GinkgoHelper()
	return authority{NewCA(time.Hour, time.Now())}
}

// file writes the CA's certificate to a file.
func (a authority) file() string { return writeFile(GinkgoT().TempDir(), "ca.crt", a.CertificatePEM) }

// folder holds a serving certificate for 127.0.0.1 in files with these names.
func (a authority) folder(certificateFile, keyFile, caFile string) string {
	GinkgoHelper()
	dir := GinkgoT().TempDir()
	certificate, key := Issue(a.Authority, ForServer("127.0.0.1"))
	writeFile(dir, certificateFile, certificate)
	writeFile(dir, keyFile, key)
	writeFile(dir, caFile, a.CertificatePEM)
	return dir
}

func writeFile(dir, name string, content []byte) string {
	GinkgoHelper()
	path := filepath.Join(dir, name)
	Expect(os.WriteFile(path, content, 0o600)).To(Succeed())
	return path
}
