package eirinixtest

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
)

var _ = Describe("ControlPlane", Ordered, func() {
	var (
		plane  *ControlPlane
		admin  kubernetes.Interface
		assets string
	)

	BeforeAll(func(ctx context.Context) {
		assets = specAssets(ctx)
		plane = StartControlPlane(GinkgoT(), func(o *ControlPlaneOptions) {
			o.Assets, o.ControllerManager = assets, true
			o.APIServerArgs = []string{"--anonymous-auth=false"}
		})
		admin = clientset(plane.Config())
	})

	It("tells the version of its binaries", func(ctx context.Context) {
		output, err := exec.CommandContext(ctx, filepath.Join(assets, "kube-apiserver"), "--version").Output()
		Expect(err).NotTo(HaveOccurred())

		served, err := admin.Discovery().ServerVersion()
		Expect(err).NotTo(HaveOccurred())
		Expect(strings.TrimSpace(string(output))).To(Equal("Kubernetes " + served.GitVersion))

		dir, err := builderDir(ctx)
		Expect(err).NotTo(HaveOccurred())

		print := exec.CommandContext(ctx, "go", "-C", dir, "run", ".", "-print-version")
		print.Env = append(os.Environ(), "GOFLAGS=-mod=mod", "GOWORK=off")
		output, err = print.Output()
		Expect(err).NotTo(HaveOccurred())

		version := strings.TrimSpace(string(output))
		Expect(version).To(MatchRegexp(`^v1\.\d+\.\d+$`))

		if strings.HasPrefix(filepath.Base(assets), version+"-") { // the builder's, not somebody else's
			Expect(served.GitVersion).To(Equal(version))
			Expect(served.Major + "." + served.Minor).To(Equal(version[1:strings.LastIndex(version, ".")]))
			Expect(served.GitTreeState).To(Equal("clean"))
		}
	})

	It("has what the API server makes for itself once it has started", func(ctx context.Context) {
		for _, name := range []string{"default", "kube-system"} {
			_, err := admin.CoreV1().Namespaces().Get(ctx, name, metav1.GetOptions{})
			Expect(err).NotTo(HaveOccurred())
		}

		_, err := admin.RbacV1().ClusterRoles().Get(ctx, "cluster-admin", metav1.GetOptions{})
		Expect(err).NotTo(HaveOccurred())
		_, err = admin.SchedulingV1().PriorityClasses().Get(ctx, "system-cluster-critical", metav1.GetOptions{})
		Expect(err).NotTo(HaveOccurred())
	})

	It("keeps its keys to its owner", func(ctx context.Context) {
		info, err := os.Stat(filepath.Dir(plane.Kubeconfig()))
		Expect(err).NotTo(HaveOccurred())
		Expect(info.Mode().Perm()).To(Equal(os.FileMode(0o700)))

		info, err = os.Stat(plane.Kubeconfig())
		Expect(err).NotTo(HaveOccurred())
		Expect(info.Mode().Perm()).To(Equal(os.FileMode(0o600)))

		config, err := clientcmd.BuildConfigFromFlags("", plane.Kubeconfig())
		Expect(err).NotTo(HaveOccurred())
		_, err = clientset(config).CoreV1().Secrets("kube-system").List(ctx, metav1.ListOptions{})
		Expect(err).NotTo(HaveOccurred())

		anonymous := rest.AnonymousClientConfig(plane.Config())
		_, err = clientset(anonymous).CoreV1().Secrets("kube-system").List(ctx, metav1.ListOptions{})
		Expect(apierrors.IsUnauthorized(err)).To(BeTrue(), "APIServerArgs forbid anonymous requests: %v", err)
		Expect(getOK(ctx, plane.certs.adminTLS, plane.etcdURL+"/health")).NotTo(Succeed())
	})

	It("turns a Deployment into a ReplicaSet and pods", func(ctx context.Context) {
		namespace := newNamespace(ctx, admin)
		labels := map[string]string{"app": "web"}
		replicas := int32(2)

		_, err := admin.AppsV1().Deployments(namespace.Name).Create(ctx, &appsv1.Deployment{
			ObjectMeta: metav1.ObjectMeta{Name: "web"},
			Spec: appsv1.DeploymentSpec{
				Replicas: &replicas,
				Selector: &metav1.LabelSelector{MatchLabels: labels},
				Template: corev1.PodTemplateSpec{
					ObjectMeta: metav1.ObjectMeta{Labels: labels},
					Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "web", Image: "web"}}},
				},
			},
		}, metav1.CreateOptions{})
		Expect(err).NotTo(HaveOccurred())

		Eventually(func(g Gomega) {
			pods, err := admin.CoreV1().Pods(namespace.Name).List(ctx, metav1.ListOptions{LabelSelector: "app=web"})
			g.Expect(err).NotTo(HaveOccurred())
			g.Expect(pods.Items).To(HaveLen(2))
			g.Expect(pods.Items[0].OwnerReferences[0].Kind).To(Equal("ReplicaSet"))
		}).WithTimeout(time.Minute).Should(Succeed())
	})

	It("collects a cluster object when the namespace that owns it goes", func(ctx context.Context) {
		namespace := newNamespace(ctx, admin)
		hooks := admin.AdmissionregistrationV1().ValidatingWebhookConfigurations()

		_, err := hooks.Create(ctx, &admissionregistrationv1.ValidatingWebhookConfiguration{
			ObjectMeta: metav1.ObjectMeta{
				Name: namespace.Name,
				OwnerReferences: []metav1.OwnerReference{
					{APIVersion: "v1", Kind: "Namespace", Name: namespace.Name, UID: namespace.UID},
				},
			},
		}, metav1.CreateOptions{})
		Expect(err).NotTo(HaveOccurred())
		Expect(admin.CoreV1().Namespaces().Delete(ctx, namespace.Name, metav1.DeleteOptions{})).To(Succeed())

		Eventually(func() bool {
			_, err := hooks.Get(ctx, namespace.Name, metav1.GetOptions{})

			return apierrors.IsNotFound(err)
		}).WithTimeout(time.Minute).Should(BeTrue())
	})

	It("refuses a user until RBAC binds them", func(ctx context.Context) {
		config, err := plane.User("jane", "developers")
		Expect(err).NotTo(HaveOccurred())

		jane := clientset(config)
		_, err = jane.CoreV1().ConfigMaps("default").List(ctx, metav1.ListOptions{})
		Expect(apierrors.IsForbidden(err)).To(BeTrue(), "%v", err)
		Expect(err).To(MatchError(ContainSubstring(`"jane"`)))

		_, err = admin.RbacV1().RoleBindings("default").Create(ctx, &rbacv1.RoleBinding{
			ObjectMeta: metav1.ObjectMeta{Name: "developers"},
			RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "view"},
			Subjects:   []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: "Group", Name: "developers"}},
		}, metav1.CreateOptions{})
		Expect(err).NotTo(HaveOccurred())

		Eventually(func() error {
			_, err := jane.CoreV1().ConfigMaps("default").List(ctx, metav1.ListOptions{})

			return err
		}).WithTimeout(30 * time.Second).Should(Succeed())

		_, err = plane.User("")
		Expect(err).To(MatchError(HavePrefix("eirinixtest: give User a name")))
	})

	It("runs several API servers on one etcd, each of which can be frozen, stopped and restarted", func(ctx context.Context) {
		audit := filepath.Join(GinkgoT().TempDir(), "audit.log")
		second, err := plane.AddAPIServer(ctx, "--audit-log-path="+audit)
		Expect(err).NotTo(HaveOccurred())
		Expect(audit).To(BeAnExistingFile())
		Expect(second.Config().Host).NotTo(Equal(plane.Config().Host))
		Expect(filepath.Join(plane.LogDir(), "kube-apiserver-2.log")).To(BeAnExistingFile())

		namespace := newNamespace(ctx, admin)
		lookUp := func() error {
			config := second.Config()
			config.Timeout = 2 * time.Second
			_, err := clientset(config).CoreV1().Namespaces().Get(ctx, namespace.Name, metav1.GetOptions{})

			return err
		}
		Expect(lookUp()).To(Succeed())

		Expect(second.Pause()).To(Succeed())
		Expect(lookUp()).To(MatchError(ContainSubstring("imeout")))
		_, err = admin.CoreV1().Namespaces().Get(ctx, namespace.Name, metav1.GetOptions{})
		Expect(err).NotTo(HaveOccurred(), "the first one is not frozen")
		Expect(second.Resume()).To(Succeed())
		Eventually(lookUp).WithTimeout(30 * time.Second).Should(Succeed())

		Expect(second.Stop()).To(Succeed())
		Expect(second.Stop()).To(Succeed())
		Expect(lookUp()).To(MatchError(ContainSubstring("connection refused")))
		Expect(second.Pause()).To(MatchError(ContainSubstring("call Restart first")))

		Expect(second.Restart(ctx)).To(Succeed())
		Expect(lookUp()).To(Succeed())
		Expect(second.Restart(ctx)).To(Succeed())
		Expect(lookUp()).To(Succeed())

		Expect(second.Pause()).To(Succeed(), "for Stop, which must end a frozen server too")
	})

	It("leaves nothing behind when it stops", func(ctx context.Context) {
		pids := serverPIDs(plane.dir.path)
		Expect(pids).To(HaveLen(4), "etcd, two API servers, controller manager")

		folder := plane.LogDir()
		Expect(plane.Stop()).To(Succeed())
		Expect(plane.Stop()).To(Succeed())
		Expect(folder).NotTo(BeADirectory())

		for _, pid := range pids {
			Expect(commandLine(pid)).To(BeEmpty())
		}

		_, err := plane.AddAPIServer(ctx)
		Expect(err).To(MatchError("eirinixtest: " + errStopped.Error()))
		Expect(plane.APIServer().Restart(ctx)).To(MatchError("eirinixtest: " + errStopped.Error()))
	})
})

func clientset(config *rest.Config) kubernetes.Interface {
	GinkgoHelper()

	client, err := kubernetes.NewForConfig(config)
	Expect(err).NotTo(HaveOccurred())

	return client
}

func newNamespace(ctx context.Context, client kubernetes.Interface) *corev1.Namespace {
	GinkgoHelper()

	namespace, err := client.CoreV1().Namespaces().Create(ctx,
		&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{GenerateName: "spec-"}}, metav1.CreateOptions{})
	Expect(err).NotTo(HaveOccurred())

	return namespace
}
