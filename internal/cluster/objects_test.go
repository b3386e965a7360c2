package cluster_test

// This file is about finding the cluster, and about Objects, Direct and Namespaces before a real API server.

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-logr/logr"
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"code.cloudfoundry.org/eirinix/internal/cluster"
	. "code.cloudfoundry.org/eirinix/internal/spectest"
	eirinixtest "code.cloudfoundry.org/eirinix/testing"
)

// patience bounds operations that take milliseconds on an idle machine.
const patience = 2 * time.Minute

func TestMain(m *testing.M) { os.Exit(eirinixtest.Main(m)) }

// plane is one control plane for the whole suite.
var plane *eirinixtest.ControlPlane

var _ = BeforeSuite(func() {
	SetDefaultEventuallyTimeout(patience)
	SetDefaultEventuallyPollingInterval(5 * time.Millisecond)
	if !RunsAPIServer() {
		return // the fast half, while typing
	}
	plane = eirinixtest.StartControlPlane(GinkgoTB(), eirinixtest.Shared)
})

func admin() client.Client {
	GinkgoHelper()
	return Must(client.New(plane.Config(), client.Options{}))
}

var names atomic.Int64

func newName() string { return fmt.Sprintf("spec-%d-%d", GinkgoParallelProcess(), names.Add(1)) }

// newUser has the verbs on the one object of a resource, in all namespaces, and no other right.
func newUser(ctx context.Context, group, resource, object string, verbs ...string) *rest.Config {
	GinkgoHelper()
	name := newName()
	grant(ctx, name, rbacv1.PolicyRule{APIGroups: []string{group}, Resources: []string{resource}, ResourceNames: []string{object}, Verbs: verbs})
	return Must(plane.User(name))
}

func grant(ctx context.Context, user string, rule rbacv1.PolicyRule) {
	GinkgoHelper()
	Expect(admin().Create(ctx, &rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: user}, Rules: []rbacv1.PolicyRule{rule}})).To(Succeed())
	Expect(admin().Create(ctx, &rbacv1.ClusterRoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: user},
		Subjects:   []rbacv1.Subject{{Kind: rbacv1.UserKind, APIGroup: rbacv1.GroupName, Name: user}},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: user},
	})).To(Succeed())
}

// line is a connection whose watches a spec can hold up or end, and which counts requests.
type line struct {
	next http.RoundTripper
	mu   sync.Mutex
	held chan struct{} // nil while watches flow
	sent []string
}

func (l *line) over(config *rest.Config) *rest.Config {
	config = rest.CopyConfig(config)
	config.Wrap(func(next http.RoundTripper) http.RoundTripper {
		l.next = next
		return l
	})
	return config
}

func (l *line) RoundTrip(r *http.Request) (*http.Response, error) {
	l.mu.Lock()
	l.sent = append(l.sent, r.Method+" "+r.URL.RequestURI())
	l.mu.Unlock()
	resp, err := l.next.RoundTrip(r)
	if err == nil && r.URL.Query().Get("watch") == "true" {
		resp.Body = &heldBody{ReadCloser: resp.Body, line: l, done: r.Context().Done()}
	}
	return resp, err
}

type heldBody struct {
	io.ReadCloser
	line *line
	done <-chan struct{}
}

func (b *heldBody) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	b.line.mu.Lock()
	held := b.line.held
	b.line.mu.Unlock()
	if held != nil {
		select {
		case <-held:
		case <-b.done:
		}
	}
	return n, err
}

func (l *line) hold() (release func()) {
	l.mu.Lock()
	defer l.mu.Unlock()
	held := make(chan struct{})
	l.held = held
	return sync.OnceFunc(func() {
		l.mu.Lock()
		defer l.mu.Unlock()
		l.held = nil
		close(held)
	})
}

func (l *line) count(part string) (n int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, s := range l.sent {
		if strings.Contains(s, part) {
			n++
		}
	}
	return n
}

// follow follows an object until the spec ends.
func follow(config *rest.Config, log logr.Logger, has cluster.Access, object client.Object) *cluster.Objects {
	GinkgoHelper()
	o := Must(cluster.NewObjects(config, log, cluster.Followed{Object: object, Access: func(context.Context) (cluster.Access, error) { return has, nil }}))
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() {
		defer close(done)
		o.Run(ctx)
	}()
	DeferCleanup(func() {
		cancel()
		Eventually(done).Should(BeClosed(), "Run ends with its context")
	})
	return o
}

// untyped is an empty object of a kind.
func untyped(apiVersion, kind, name string) *unstructured.Unstructured {
	u := &unstructured.Unstructured{}
	u.SetAPIVersion(apiVersion)
	u.SetKind(kind)
	u.SetName(name)
	return u
}

func named(ns, name string) metav1.ObjectMeta { return metav1.ObjectMeta{Namespace: ns, Name: name} }

var _ = Describe("A copy of an object", Label("api-server"), func() {
	It("is complete, typed or not, but for the managed fields", func(ctx SpecContext) {
		lease := untyped("coordination.k8s.io/v1", "Lease", newName())
		lease.SetNamespace("default")
		Expect(unstructured.SetNestedField(lease.Object, time.Now().UTC().Format(metav1.RFC3339Micro), "spec", "renewTime")).To(Succeed())
		tree := func() client.Object {
			empty := untyped("coordination.k8s.io/v1", "Lease", lease.GetName())
			empty.SetNamespace("default")
			return empty
		}
		typed := func() client.Object { return &coordinationv1.Lease{ObjectMeta: named("default", lease.GetName())} }
		Expect(admin().Create(ctx, lease)).To(Succeed())
		o, direct := follow(plane.Config(), GinkgoLogr, all, tree()), Must(cluster.NewDirect(plane.Config()))
		Expect(o.Seen(ctx)).To(Succeed())
		for _, cache := range []cluster.Cache{o, direct} {
			for _, empty := range []func() client.Object{tree, typed} {
				expected, copied := empty(), empty()
				Expect(admin().Get(ctx, client.ObjectKeyFromObject(lease), expected)).To(Succeed())
				Expect(expected.GetManagedFields()).NotTo(BeEmpty())
				expected.SetManagedFields(nil)
				Expect(cache.Get(ctx, copied)).To(Succeed())
				Expect(copied).To(Equal(expected))
			}
		}
	})
})

var _ = Describe("A short process", Label("api-server"), func() {
	It("reads everything anew", func(ctx SpecContext) {
		name := newName()
		l := &line{}
		d := Must(cluster.NewDirect(l.over(newUser(ctx, "", "secrets", name, "get"))))
		Expect(l.sent).To(BeEmpty())
		secret := func() *corev1.Secret { return &corev1.Secret{ObjectMeta: named("default", name)} }
		Expect(apierrors.IsNotFound(d.Get(ctx, secret()))).To(BeTrue())
		Expect(admin().Create(ctx, secret())).To(Succeed())
		Expect(d.Get(ctx, secret())).To(Succeed())
		d.Answered(secret())
		Expect(admin().Delete(ctx, secret())).To(Succeed())
		Expect(apierrors.IsNotFound(d.Get(ctx, secret()))).To(BeTrue())
		Expect(l.sent).To(HaveLen(3), "and asks for no kinds")

		for _, other := range []client.Object{
			&corev1.Secret{ObjectMeta: named("default", "other")},
			&coordinationv1.Lease{ObjectMeta: named("default", name)},
			&admissionregistrationv1.MutatingWebhookConfiguration{ObjectMeta: named("", name)},
			&admissionregistrationv1.ValidatingWebhookConfiguration{ObjectMeta: named("", name)},
			&corev1.ConfigMap{ObjectMeta: named("default", name)},
			untyped("apiextensions.k8s.io/v1", "CustomResourceDefinition", name),
		} {
			Expect(d.Get(ctx, other)).To(MatchError(cluster.ErrUnseen))
		}
	})
})

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
		Expect(n.Labels(ctx, "missing")).Error().To(MatchError(apierrors.IsNotFound, "IsNotFound"))
	}, SpecTimeout(patience))

	It("are an error while they may not be read, and are watched once they may", func(ctx SpecContext) {
		name := newName()
		over, cancel := context.WithCancel(ctx)
		n := cluster.NewNamespaces(over, Must(dynamic.NewForConfig(Must(plane.User(name)))))
		defer n.Wait()
		defer cancel()
		Expect(n.Labels(ctx, "default")).Error().To(MatchError(apierrors.IsForbidden, "IsForbidden"))
		grant(ctx, name, rbacv1.PolicyRule{APIGroups: []string{""}, Resources: []string{"namespaces"}, Verbs: []string{"get", "list", "watch"}})
		Eventually(func() (labels.Set, error) { return n.Labels(ctx, "default") }).Should(HaveKey(corev1.LabelMetadataName))
		cancel()
		n.Wait()
		Expect(n.Labels(ctx, "default")).Error().To(HaveOccurred())
	}, SpecTimeout(patience))
})

var _ = Describe("Finding the cluster", func() {
	var folder string

	file := func(name, text string) string {
		GinkgoHelper()
		path := filepath.Join(folder, name)
		Expect(os.WriteFile(path, []byte(text), 0o600)).To(Succeed())
		return path
	}

	BeforeEach(func() {
		t := GinkgoT()
		folder = t.TempDir()
		t.Setenv("HOME", folder)
		t.Setenv("KUBECONFIG", "")
		t.Setenv("KUBERNETES_SERVICE_HOST", "")
		t.Setenv("KUBERNETES_SERVICE_PORT", "")
		// client-go looks for HOME when the program begins.
		home := clientcmd.RecommendedHomeFile
		clientcmd.RecommendedHomeFile = filepath.Join(folder, ".kube", "config")
		DeferCleanup(func() { clientcmd.RecommendedHomeFile = home })
	})

	found := func(path string) string {
		GinkgoHelper()
		config, _, err := cluster.LoadConfig(path)
		Expect(err).NotTo(HaveOccurred())
		return config.Host
	}

	It("takes the file that is given, then $KUBECONFIG, then ~/.kube/config", func() {
		WriteKubeconfig(folder, ".kube/config", "https://home.example.org", "")
		Expect(found("")).To(Equal("https://home.example.org"))
		GinkgoT().Setenv("KUBECONFIG", WriteKubeconfig(folder, "env", "https://env.example.org", ""))
		Expect(found("")).To(Equal("https://env.example.org"))
		Expect(found(WriteKubeconfig(folder, "given", "https://given.example.org", ""))).To(Equal("https://given.example.org"))
	})

	DescribeTable("takes the namespace of the context", func(context, expected string) {
		_, namespace, err := cluster.LoadConfig(WriteKubeconfig(folder, "given", "https://given.example.org", context))
		Expect(err).NotTo(HaveOccurred())
		Expect(namespace).To(Equal(expected))
	},
		Entry("that names one", "mine", "mine"),
		Entry("that names none: none, so that the default can be logged", "", ""),
	)

	DescribeTable("names the reason and the remedy", func(prepare func() string, parts ...string) {
		config, _, err := cluster.LoadConfig(prepare())
		Expect(config).To(BeNil())
		Expect(err).To(MatchError(HavePrefix("eirinix: ")))
		for _, part := range parts {
			Expect(err).To(MatchError(ContainSubstring(part)))
		}
	},
		Entry("a file that is missing", func() string { return "/no/such/file" },
			`ManagerOptions.KubeConfig "/no/such/file"`, "give the path of a kubeconfig file", "no such file"),
		Entry("no file at all", func() string { return "" },
			"no kubeconfig found", ".kube/config", "$KUBECONFIG", "set ManagerOptions.KubeConfig"),
		Entry("a file that is no YAML", func() string { return file("broken", "{not: [yaml") },
			"ManagerOptions.KubeConfig", "broken", "give the path of a kubeconfig file"),
		Entry("a file in $KUBECONFIG that is no YAML", func() string {
			GinkgoT().Setenv("KUBECONFIG", file("broken", "{not: [yaml"))
			return ""
		}, "broken", "cannot be used"),
		Entry("a file without a context", func() string {
			path := filepath.Join(folder, "empty")
			Expect(clientcmd.WriteToFile(*clientcmdapi.NewConfig(), path)).To(Succeed())
			return path
		}, "ManagerOptions.KubeConfig", "empty"),
		Entry("a pod without service account", func() string {
			GinkgoT().Setenv("KUBERNETES_SERVICE_HOST", "127.0.0.1")
			GinkgoT().Setenv("KUBERNETES_SERVICE_PORT", "1")
			return ""
		}, "without usable service account", "automountServiceAccountToken", "ManagerOptions.KubeConfig"),
	)
})
