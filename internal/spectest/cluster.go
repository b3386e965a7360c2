package spectest

// This file holds the fixtures of specs that use an API server.

import (
	"context"
	"path/filepath"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
)

// APIServer is the label of specs that need an API server.
const APIServer = "api-server"

// RunsAPIServer returns false if the label filter of this run leaves out the specs that need an API server.
func RunsAPIServer() bool { return Label(APIServer).MatchesLabelFilter(GinkgoLabelFilter()) }

// Clients returns a client for all kinds of Kubernetes.
func Clients(config *rest.Config) kubernetes.Interface {
	GinkgoHelper()
	return Must(kubernetes.NewForConfig(config))
}

// NewNamespace creates a namespace for one spec. It is never deleted, because only a controller manager empties a
// deleted namespace.
func NewNamespace(ctx context.Context, clients kubernetes.Interface, labels map[string]string) *corev1.Namespace {
	GinkgoHelper()
	return Must(clients.CoreV1().Namespaces().Create(ctx,
		&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{GenerateName: "spec-", Labels: labels}}, metav1.CreateOptions{}))
}

// NewPod returns a pod with one container.
func NewPod(name string, labels map[string]string) *corev1.Pod {
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: name, Labels: labels},
		Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "app", Image: "app:1"}}},
	}
}

// NewDeployment returns a Deployment whose pods have one container.
func NewDeployment(name string) *appsv1.Deployment {
	pod := NewPod("", map[string]string{"app": name})
	return &appsv1.Deployment{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: appsv1.DeploymentSpec{
			Selector: &metav1.LabelSelector{MatchLabels: pod.Labels},
			Template: corev1.PodTemplateSpec{ObjectMeta: pod.ObjectMeta, Spec: pod.Spec},
		},
	}
}

// WriteKubeconfig writes a kubeconfig without credentials into the folder and returns its path. Its only context is
// current; the namespace of the context may be empty.
func WriteKubeconfig(folder, name, host, namespace string) string {
	GinkgoHelper()
	config := clientcmdapi.NewConfig()
	config.Clusters["c"] = &clientcmdapi.Cluster{Server: host}
	config.Contexts["c"] = &clientcmdapi.Context{Cluster: "c", Namespace: namespace}
	config.CurrentContext = "c"
	path := filepath.Join(folder, name)
	Expect(clientcmd.WriteToFile(*config, path)).To(Succeed())
	return path
}
