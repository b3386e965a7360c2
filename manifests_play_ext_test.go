package eirinix_test

// This file plays a program with the rights of its manifests.

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	authorizationv1 "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"code.cloudfoundry.org/eirinix"
	. "code.cloudfoundry.org/eirinix/internal/spectest"
	"code.cloudfoundry.org/eirinix/manifests"

	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
	"go.uber.org/zap/zaptest/observer"
)

// play is a program in one of its modes, in namespaces of its own, with the rights of its manifests or one less.
type play struct {
	pods, own string // namespaces; pods is the fingerprint too
	options   eirinix.ManagerOptions
	added     []any
	heard     *eventLog
	logs      *observer.ObservedLogs
	without   right  // the one that is taken away; the zero value is none
	tolerated string // a line of the log that is expected
	authority issuer // of certificates that the program does not make
	used      *usage
}

// usage is the rights that were made use of.
type usage struct {
	mu      sync.Mutex
	all     map[right]bool
	refused []right // the rights that requests lacked
}

// on records the requests of a connection.
func (u *usage) on(config *rest.Config) *rest.Config {
	config.Wrap(func(next http.RoundTripper) http.RoundTripper {
		return RoundTrip(func(r *http.Request) (*http.Response, error) {
			resp, err := next.RoundTrip(r)
			u.mu.Lock()
			defer u.mu.Unlock()
			switch {
			case err != nil:
			case resp.StatusCode == http.StatusForbidden:
				u.refused = append(u.refused, rightOf(r))
			default:
				u.all[rightOf(r)] = true
			}
			return resp, err
		})
	})
	return config
}

// rights are those that were made use of.
func (u *usage) rights() []right {
	u.mu.Lock()
	defer u.mu.Unlock()
	return slices.Collect(maps.Keys(u.all))
}

// refusals are the rights that were asked for and are missing.
func (u *usage) refusals() []right {
	u.mu.Lock()
	defer u.mu.Unlock()
	return slices.Clone(u.refused)
}

// rightOf is the right that a request needs.
func rightOf(r *http.Request) right {
	parts := strings.Split(strings.Trim(r.URL.Path, "/"), "/")
	parts = parts[min(len(parts)-1, map[string]int{"api": 2, "apis": 3}[parts[0]]):]
	if len(parts) > 2 && parts[0] == "namespaces" {
		parts = parts[2:]
	}
	verb := map[string]string{http.MethodPost: "create", http.MethodPut: "update", http.MethodPatch: "patch", http.MethodDelete: "delete"}[r.Method]
	switch {
	case verb != "":
	case r.URL.Query().Get("watch") == "true":
		verb = "watch"
	case len(parts) == 1:
		verb = "list"
	default:
		verb = "get"
	}
	return right{verb, parts[0]}
}

// right is one verb of one rule.
type right struct{ Verb, Resource string }

func newPlay(ctx context.Context, change func(*play)) *play {
	GinkgoHelper()
	core, logs := observer.New(zapcore.DebugLevel)
	p := &play{pods: newNamespace(ctx), own: newNamespace(ctx), heard: &eventLog{}, logs: logs, used: &usage{all: map[right]bool{}}, authority: newIssuer()}
	p.options = eirinix.ManagerOptions{
		Namespace: p.pods, OperatorFingerprint: p.pods, WebhookNamespace: p.own, Host: "127.0.0.1", DrainDelay: -1,
		Port: FreePort(), Logger: zap.New(core).Sugar(),
	}
	change(p)
	DeferCleanup(p.clear)
	return p
}

// manager makes the program, for the ServiceAccount or another user.
func (p *play) manager(config *rest.Config, changes ...func(*eirinix.ManagerOptions)) *eirinix.ExtensionManager {
	o := p.options
	o.RestConfig = config
	for _, change := range changes {
		change(&o)
	}
	m := eirinix.NewManager(o)
	for _, v := range p.added {
		_ = m.AddExtension(v) // Validate returns it again
	}
	return m
}

// manifests are those of the program as it is in a cluster: all that differs is where it listens.
func (p *play) manifests() ([]client.Object, error) {
	m := p.manager(nil, func(o *eirinix.ManagerOptions) { o.ListenAddress = ":8443" })
	return manifests.Of(m, manifests.Options{Image: "registry.example.org/program:1"})
}

// rulesIn returns the rules of a role; nil for anything else.
func rulesIn(o client.Object) *[]rbacv1.PolicyRule {
	switch o := o.(type) {
	case *rbacv1.Role:
		return &o.Rules
	case *rbacv1.ClusterRole:
		return &o.Rules
	}
	return nil
}

// rulesOf returns the same rights as the rules of a role, with a rule for each resource; none for anything else.
func rulesOf(o client.Object) (all []rbacv1.PolicyRule) {
	rules := rulesIn(o)
	if rules == nil {
		return nil
	}
	for _, r := range *rules {
		for i := range max(1, len(r.Resources)) { // a rule about paths has none
			one := *r.DeepCopy()
			if len(r.Resources) > 0 {
				one.Resources = one.Resources[i : i+1]
			}
			all = append(all, one)
		}
	}
	return all
}

// resourceOf is the resource of a rule, or its path.
func resourceOf(r rbacv1.PolicyRule) string { return slices.Concat(r.Resources, r.NonResourceURLs)[0] }

// ofHalf keeps the objects of one half.
func ofHalf(objects []client.Object, registering bool) (kept []client.Object) {
	for _, o := range objects {
		if (o.GetLabels()["app.kubernetes.io/component"] == "register") == registering {
			kept = append(kept, o)
		}
	}
	return kept
}

// connect creates the accounts, roles and bindings of the manifests, without the right that is taken away, and returns
// the connection of a half's ServiceAccount.
func (p *play) connect(ctx context.Context, registering bool) *rest.Config {
	GinkgoHelper()
	c, account := Must(client.New(controlPlane().Config(), client.Options{})), ""
	objects := ofHalf(Must(p.manifests()), registering)
	for _, o := range objects {
		apart := rulesOf(o)
		for i, r := range apart {
			if p.without.Resource == resourceOf(r) {
				r.Verbs = slices.DeleteFunc(r.Verbs, func(v string) bool { return v == p.without.Verb })
			}
			if len(r.Verbs) == 0 { // which no rule may be
				r = rbacv1.PolicyRule{APIGroups: []string{"example.org"}, Resources: []string{"nothing"}, Verbs: []string{"get"}}
			}
			apart[i] = r
		}
		if rules := rulesIn(o); rules != nil {
			*rules = apart
		}
		switch o := o.(type) {
		case *corev1.ServiceAccount:
			account = o.Name
			Expect(c.Create(ctx, o)).To(Succeed())
		case *rbacv1.Role, *rbacv1.RoleBinding, *rbacv1.ClusterRole, *rbacv1.ClusterRoleBinding:
			Expect(c.Create(ctx, o)).To(Succeed())
		}
	}
	user := "system:serviceaccount:" + p.own + ":" + account
	for _, o := range objects {
		if !strings.HasSuffix(o.GetName(), ":metrics") { // that is for those who read metrics, and not for the program
			inForce(ctx, user, o)
		}
	}
	return p.used.on(Must(controlPlane().User(user, "system:serviceaccounts", "system:serviceaccounts:"+p.own)))
}

// live plays a life, and returns its error, with what the log says of missing rights.
func (p *play) live(ctx context.Context, m mode) error {
	GinkgoHelper()
	return errors.Join(m.live(ctx, p, p.connect(ctx, m.registering)), p.complaints())
}

// inForce waits until the API server has taken notice of a role's rules.
func inForce(ctx context.Context, user string, role client.Object) {
	GinkgoHelper()
	for _, r := range rulesOf(role) {
		asked := &authorizationv1.SubjectAccessReview{Spec: authorizationv1.SubjectAccessReviewSpec{User: user, ResourceAttributes: &authorizationv1.ResourceAttributes{
			Namespace: role.GetNamespace(), Group: r.APIGroups[0], Resource: r.Resources[0], Verb: r.Verbs[0],
		}}}
		if len(r.ResourceNames) > 0 {
			asked.Spec.ResourceAttributes.Name = r.ResourceNames[0]
		}
		Eventually(clients().AuthorizationV1().SubjectAccessReviews().Create).WithArguments(ctx, asked, metav1.CreateOptions{}).WithContext(ctx).WithTimeout(patience).
			Should(HaveField("Status.Allowed", true), "%s may not yet %s %s", user, r.Verbs[0], r.Resources[0])
	}
}

// until tries until it succeeds, ctx ends or patience does.
func until(ctx context.Context, try func() error) error {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	for {
		err := try()
		if err == nil {
			return nil
		}
		select {
		case <-ctx.Done():
			return err
		case <-time.After(20 * time.Millisecond):
		}
	}
}

// running runs a Manager while f does something with it. The context of f ends when Run returns.
func (p *play) running(ctx context.Context, m *eirinix.ExtensionManager, f func(context.Context) error) error {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	var ran error
	done := make(chan struct{})
	go func() {
		defer GinkgoRecover()
		defer close(done)
		defer cancel()
		ran = m.Run(context.WithoutCancel(ctx))
	}()
	var err error
	select {
	case <-m.Ready():
		err = f(ctx)
	case <-ctx.Done():
		err = errors.New("not ready")
	}
	m.Stop()
	<-done
	return errors.Join(ran, err)
}

// complaints are the lines that the log has where a right is missing that the program can do without.
func (p *play) complaints() error {
	var errs []error
	for _, entry := range p.logs.All() {
		for _, fallback := range []string{"may not be watched", "this replica has no right", "could not reconcile", "will outlive the namespace", "cannot see each other", "could not record in the Lease"} {
			if strings.Contains(entry.Message, fallback) && fallback != p.tolerated {
				errs = append(errs, fmt.Errorf("logged: %s: %v", entry.Message, entry.ContextMap()))
			}
		}
	}
	return errors.Join(errs...)
}

// called makes pods until the program has been called for one, and its watchers have heard of one.
func (p *play) called(ctx context.Context) error {
	has := func(match func(any) bool) bool { return slices.ContainsFunc(p.added, match) }
	mutates := has(func(v any) bool { _, is := v.(addEnv); return is })
	watches := has(func(v any) bool { return v == any(p.heard) })
	return until(ctx, func() error {
		pod := NewPod("", nil)
		pod.GenerateName = "pod-"
		created, err := createPod(ctx, p.pods, pod)
		if err != nil {
			return err
		}
		if mutates {
			if matches, err := beMutated().Match(created); err != nil || !matches {
				return errors.New("the pod was not mutated")
			}
		}
		if watches && len(p.heard.Seen()) == 0 {
			return errors.New("the watcher has not heard of a pod")
		}
		return nil
	})
}

// clear removes the objects outside of the namespaces.
func (p *play) clear(ctx context.Context) {
	hooks, rbac := clients().AdmissionregistrationV1(), clients().RbacV1()
	_ = hooks.MutatingWebhookConfigurations().Delete(ctx, p.pods+"-mutating-hook", metav1.DeleteOptions{})
	_ = hooks.ValidatingWebhookConfigurations().Delete(ctx, p.pods+"-validating-hook", metav1.DeleteOptions{})
	for _, name := range []string{"eirinix:" + p.pods, "eirinix:" + p.pods + ":register", "eirinix:" + p.pods + ":metrics"} {
		_ = rbac.ClusterRoles().Delete(ctx, name, metav1.DeleteOptions{})
		_ = rbac.ClusterRoleBindings().Delete(ctx, name, metav1.DeleteOptions{})
	}
}
