package cluster_test

import (
	"context"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/client-go/dynamic"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"code.cloudfoundry.org/eirinix/internal/cluster"
	. "code.cloudfoundry.org/eirinix/internal/spectest"
)

var _ = Describe("The labels of namespaces", Label("api-server"), func() {
	created := func(ctx context.Context) *corev1.Namespace {
		GinkgoHelper()
		ns := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: newName(), Labels: map[string]string{"team": "a"}}}
		Expect(admin().Create(ctx, ns)).To(Succeed())
		return ns
	}
	following := func(ctx context.Context, l *line) *cluster.Namespaces {
		ctx, cancel := context.WithCancel(ctx)
		n := cluster.NewNamespaces(ctx, Must(dynamic.NewForConfig(l.over(plane.Config()))))
		DeferCleanup(func() { cancel(); n.Wait() })
		return n
	}

	It("are watched from the first question on, without a request for each", func(ctx SpecContext) {
		l := &line{}
		n, ns := following(ctx, l), created(ctx)
		Expect(l.sent).To(BeEmpty())
		Expect(n.Labels(ctx, ns.Name)).To(HaveKeyWithValue("team", "a"))
		before := l.count("")
		for range 100 {
			Expect(n.Labels(ctx, ns.Name)).To(HaveKeyWithValue("team", "a"))
		}
		Expect(l.count("")).To(BeNumerically("<=", before+1)) // the watch begins after the list
		ns.Labels["team"] = "b"
		Expect(admin().Update(ctx, ns)).To(Succeed())
		Eventually(func() (labels.Set, error) { return n.Labels(ctx, ns.Name) }).Should(HaveKeyWithValue("team", "b"))
	}, SpecTimeout(patience))

	It("are read from the API server for a namespace that the watch has not shown yet", func(ctx SpecContext) {
		l := &line{}
		n := following(ctx, l)
		Expect(n.Labels(ctx, "default")).To(HaveKey(corev1.LabelMetadataName))
		defer l.hold()()
		Expect(n.Labels(ctx, created(ctx).Name)).To(HaveKeyWithValue("team", "a"))
		_, err := n.Labels(ctx, "missing")
		Expect(apierrors.IsNotFound(err)).To(BeTrue(), "%v", err)
	}, SpecTimeout(patience))

	It("begin with the latest state after an interruption, whatever version was seen before", func(ctx SpecContext) {
		l := &line{}
		n, ns := following(ctx, l), created(ctx)
		Expect(n.Labels(ctx, ns.Name)).To(HaveKeyWithValue("team", "a"))
		ns.Labels["team"] = "b"
		l.cut()
		Expect(admin().Update(ctx, ns)).To(Succeed())
		Eventually(func() (labels.Set, error) { return n.Labels(ctx, ns.Name) }).Should(HaveKeyWithValue("team", "b"))
		Expect(l.count("watch=true")).To(Equal(2))
		Expect(l.count("resourceVersion=")).To(BeZero(), "after a restore of etcd it would lie in the future")
	}, SpecTimeout(patience))

	It("are an error while they may not be read, and are watched once they may", func(ctx SpecContext) {
		name := newName()
		ctx2, cancel := context.WithCancel(ctx)
		user, err := plane.User(name)
		Expect(err).NotTo(HaveOccurred())
		n := cluster.NewNamespaces(ctx2, Must(dynamic.NewForConfig(user)))
		defer n.Wait()
		defer cancel()
		_, err = n.Labels(ctx, "default")
		Expect(apierrors.IsForbidden(err)).To(BeTrue(), "%v", err)
		for _, o := range []client.Object{
			&rbacv1.ClusterRole{
				ObjectMeta: metav1.ObjectMeta{Name: name},
				Rules:      []rbacv1.PolicyRule{{APIGroups: []string{""}, Resources: []string{"namespaces"}, Verbs: []string{"get", "list", "watch"}}},
			},
			&rbacv1.ClusterRoleBinding{
				ObjectMeta: metav1.ObjectMeta{Name: name},
				Subjects:   []rbacv1.Subject{{Kind: rbacv1.UserKind, APIGroup: rbacv1.GroupName, Name: name}},
				RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: name},
			},
		} {
			Expect(admin().Create(ctx, o)).To(Succeed())
		}
		Eventually(func() (labels.Set, error) { return n.Labels(ctx, "default") }).Should(HaveKey(corev1.LabelMetadataName))
		cancel()
		n.Wait()
		_, err = n.Labels(ctx, "default")
		Expect(err).To(HaveOccurred())
	}, SpecTimeout(patience))
})
