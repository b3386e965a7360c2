package certsource_test

// The real API server, and users of it with the rights that a spec gives them.

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync/atomic"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	. "code.cloudfoundry.org/eirinix/internal/spectest"
)

func admin() kubernetes.Interface { return Clients(started.Config()) }

func newNamespace(ctx context.Context) string {
	GinkgoHelper()
	return NewNamespace(ctx, admin(), nil).Name
}

var users atomic.Int64

// newUser has no rights but those it is granted.
func newUser() (name string, config *rest.Config) {
	GinkgoHelper()
	name = fmt.Sprintf("spec-%d-%d", GinkgoParallelProcess(), users.Add(1))
	return name, Must(started.User(name))
}

// grant gives a user verbs on a resource, in the whole cluster, until the spec ends.
func grant(ctx context.Context, user string, group, resource, name string, verbs ...string) {
	GinkgoHelper()
	rbac := admin().RbacV1()
	rule := rbacv1.PolicyRule{APIGroups: []string{group}, Resources: []string{resource}, Verbs: verbs}
	if name != "" {
		rule.ResourceNames = []string{name}
	}
	role := Must(rbac.ClusterRoles().Create(ctx, &rbacv1.ClusterRole{
		ObjectMeta: metav1.ObjectMeta{GenerateName: user + "-"}, Rules: []rbacv1.PolicyRule{rule},
	}, metav1.CreateOptions{}))
	Must(rbac.ClusterRoleBindings().Create(ctx, &rbacv1.ClusterRoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: role.Name},
		Subjects:   []rbacv1.Subject{{Kind: rbacv1.UserKind, APIGroup: rbacv1.GroupName, Name: user}},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: role.Name},
	}, metav1.CreateOptions{}))
	DeferCleanup(func(ctx SpecContext) {
		Expect(rbac.ClusterRoleBindings().Delete(ctx, role.Name, metav1.DeleteOptions{})).To(Succeed())
		Expect(rbac.ClusterRoles().Delete(ctx, role.Name, metav1.DeleteOptions{})).To(Succeed())
	})
}

// transport counts the requests of a connection, and may lose answers.
type transport struct {
	next     http.RoundTripper
	received atomic.Int64 // bytes of bodies
	requests atomic.Int64
	paths    chan string // of requests, as far as they are received
	lose     func(*http.Request) bool
}

func (t *transport) RoundTrip(r *http.Request) (*http.Response, error) {
	t.requests.Add(1)
	select {
	case t.paths <- r.Method + " " + r.URL.RequestURI():
	default:
	}
	resp, err := t.next.RoundTrip(r)
	if err != nil {
		return nil, err
	}
	if t.lose != nil && t.lose(r) {
		resp.Body.Close()
		return nil, fmt.Errorf("the connection is gone: %w", io.ErrUnexpectedEOF)
	}
	resp.Body = counted{resp.Body, &t.received}
	return resp, nil
}

type counted struct {
	io.ReadCloser
	n *atomic.Int64
}

func (c counted) Read(p []byte) (int, error) {
	n, err := c.ReadCloser.Read(p)
	c.n.Add(int64(n))
	return n, err
}

// through returns a copy of the configuration whose connections t sees.
func through(config *rest.Config, t *transport) *rest.Config {
	config = rest.CopyConfig(config)
	config.Wrap(func(next http.RoundTripper) http.RoundTripper {
		t.next = next
		return t
	})
	return config
}

// count is how many of the lines contain all of the words.
func count(lines []string, words ...string) (n int) {
	for _, line := range lines {
		all := true
		for _, word := range words {
			all = all && strings.Contains(line, word)
		}
		if all {
			n++
		}
	}
	return n
}

// never is a poll interval longer than any spec, so that only a watch can deliver.
const never = time.Hour
