package inforce_test

// This file holds the program under test: its replicas, its account, and its steps.

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"go.uber.org/zap"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"code.cloudfoundry.org/eirinix"
	. "code.cloudfoundry.org/eirinix/internal/spectest"
	"code.cloudfoundry.org/eirinix/internal/webhookconf"
	"code.cloudfoundry.org/eirinix/testing/internal/load"
)

const (
	serviceName = "replicas"

	// refusal is in the message of each rule, and in no other.
	refusal = "the rule refuses"

	// labelled is the label of the objects that the step label has seen.
	labelled = "labelled"

	// drain is what the API server needs to notice that a replica stops, while another one lives.
	drain = 500 * time.Millisecond
)

// program runs in replicas behind a Service.
type program struct {
	namespace string // of the Service and the Secret, and the fingerprint
	objects   string // the namespace whose objects are admitted
	shops     shops
	balancer  *load.Balancer
	replicas  []*replica
	started   int

	// Of replicas that are started from now on:
	steps []any
	user  string // their account; empty for an administrator
	split bool   // they serve, and do not register

	forbids atomic.Bool // each list and watch of ConfigMaps is answered with 403
}

// replica is one Manager.
type replica struct {
	*load.Replica
	endpoint string
}

// deploy returns a program without replicas.
func deploy(ctx context.Context) *program {
	GinkgoHelper()
	p := &program{namespace: NewNamespace(ctx, clients, nil).Name, objects: NewNamespace(ctx, clients, nil).Name}
	p.shops = shops{p.namespace + ".example.org"}
	Must(clients.CoreV1().Services(p.namespace).Create(ctx, &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Name: serviceName},
		// There is no kube-proxy here; an ExternalName is resolved by the API server itself.
		Spec: corev1.ServiceSpec{Type: corev1.ServiceTypeExternalName, ExternalName: "localhost"},
	}, metav1.CreateOptions{}))
	p.balancer = load.NewBalancer("127.0.0.1:0")
	DeferCleanup(func(ctx context.Context) {
		hooks := clients.AdmissionregistrationV1()
		Expect(client.IgnoreNotFound(hooks.MutatingWebhookConfigurations().Delete(ctx, p.namespace+"-mutating-hook", metav1.DeleteOptions{}))).To(Succeed())
		Expect(client.IgnoreNotFound(hooks.ValidatingWebhookConfigurations().Delete(ctx, p.validating(), metav1.DeleteOptions{}))).To(Succeed())
	})
	DeferCleanup(func(ctx context.Context) {
		last := slices.Clone(p.replicas)
		for _, r := range last {
			p.dismiss(r)
		}
		for _, r := range last {
			load.ExpectEnd(ctx, r.Replica)
		}
	})
	return p
}

func (p *program) validating() string { return p.namespace + "-validating-hook" }

// manager returns a Manager with the options of the program and these steps.
func (p *program) manager(name string, steps ...any) *eirinix.ExtensionManager {
	GinkgoHelper()
	config := plane.Config()
	if p.user != "" {
		config = Must(plane.User(p.user))
	}
	config.Wrap(func(next http.RoundTripper) http.RoundTripper {
		return RoundTrip(func(r *http.Request) (*http.Response, error) {
			if p.forbids.Load() && r.Method == http.MethodGet && strings.HasSuffix(r.URL.Path, "/configmaps") {
				return forbidden(r), nil
			}
			return next.RoundTrip(r)
		})
	})
	m := eirinix.NewManager(eirinix.ManagerOptions{
		Namespace:           p.objects,
		OperatorFingerprint: p.namespace,
		ServiceName:         serviceName,
		WebhookNamespace:    p.namespace,
		Port:                p.balancer.Port(),
		ListenAddress:       "127.0.0.1:0",
		RegisterWebHook:     new(!p.split),
		RestConfig:          config,
		Logger:              zap.New(Log()).Named(name).Sugar(),
		DrainDelay:          drain,
	})
	for _, s := range steps {
		Expect(m.AddExtension(s)).To(Succeed())
	}
	return m
}

// forbidden is the answer of an API server that does not know of a right.
func forbidden(r *http.Request) *http.Response {
	const status = `{"kind":"Status","apiVersion":"v1","status":"Failure","reason":"Forbidden","code":403,"message":"configmaps is forbidden for some seconds"}`
	return &http.Response{
		StatusCode: http.StatusForbidden, Status: "403 Forbidden", Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1, Request: r,
		Header: http.Header{"Content-Type": {"application/json"}}, Body: io.NopCloser(strings.NewReader(status)), ContentLength: int64(len(status)),
	}
}

// start runs one more replica, and sends it calls once it is ready.
func (p *program) start(ctx context.Context) *replica {
	GinkgoHelper()
	p.started++
	name := fmt.Sprintf("replica-%d", p.started)
	r := &replica{Replica: load.Start(ctx, name, p.manager(name, p.steps...))}
	r.endpoint = r.Addr().String()
	p.replicas = append(p.replicas, r)
	p.balancer.Add(r.endpoint)
	return r
}

// dismiss begins the end of a replica: its endpoint goes, and it is told to stop.
func (p *program) dismiss(r *replica) {
	p.balancer.Remove(r.endpoint)
	p.replicas = slices.DeleteFunc(p.replicas, func(other *replica) bool { return other == r })
	r.Stop()
}

// restart stops a replica and starts it again.
func (p *program) restart(ctx context.Context, r *replica) *replica {
	GinkgoHelper()
	p.dismiss(r)
	if len(p.replicas) == 0 {
		load.ExpectEnd(ctx, r.Replica)
		return p.start(ctx)
	}
	again := p.start(ctx)
	load.ExpectEnd(ctx, r.Replica)
	return again
}

// rollOut starts a replica of the next version, and then stops one of the old version.
func (p *program) rollOut(ctx context.Context, old *replica) {
	GinkgoHelper()
	p.start(ctx)
	p.dismiss(old)
	load.ExpectEnd(ctx, old.Replica)
}

// register does what the registering half of a split deployment does.
func (p *program) register(steps ...any) error {
	GinkgoHelper()
	return p.manager("registering", steps...).RegisterExtensions()
}

// settled waits until one version lives, and is registered.
func (p *program) settled(ctx context.Context) {
	GinkgoHelper()
	const record = "version.eirinix.cloudfoundry.org/"
	Eventually(func(g Gomega) {
		lease, err := clients.CoordinationV1().Leases(p.namespace).Get(ctx, p.namespace+"-versions", metav1.GetOptions{})
		if apierrors.IsNotFound(err) {
			return
		}
		g.Expect(err).NotTo(HaveOccurred())
		var living []string
		for key, text := range lease.Annotations {
			if version, ok := strings.CutPrefix(key, record); ok {
				var read struct{ Gone bool }
				g.Expect(json.Unmarshal([]byte(text), &read)).To(Succeed())
				if !read.Gone {
					living = append(living, version)
				}
			}
		}
		mutating, err := clients.AdmissionregistrationV1().MutatingWebhookConfigurations().Get(ctx, p.namespace+"-mutating-hook", metav1.GetOptions{})
		g.Expect(err).NotTo(HaveOccurred())
		g.Expect(living).To(HaveExactElements(mutating.Annotations[webhookconf.VersionAnnotation]))
	}).WithContext(ctx).Should(Succeed())
}

// entry returns the entry of the program's validations of a resource, or nil.
func (p *program) entry(ctx context.Context, resource string) (*admissionregistrationv1.ValidatingWebhook, error) {
	c, err := clients.AdmissionregistrationV1().ValidatingWebhookConfigurations().Get(ctx, p.validating(), metav1.GetOptions{})
	if err != nil {
		return nil, client.IgnoreNotFound(err)
	}
	return entryOf(c, resource), nil
}

func entryOf(c *admissionregistrationv1.ValidatingWebhookConfiguration, resource string) *admissionregistrationv1.ValidatingWebhook {
	for i := range c.Webhooks {
		if slices.ContainsFunc(c.Webhooks[i].Rules, func(r admissionregistrationv1.RuleWithOperations) bool { return slices.Contains(r.Resources, resource) }) {
			return &c.Webhooks[i]
		}
	}
	return nil
}

// hasAccount gives the replicas that are started from now on an account with all rights but that to read ConfigMaps.
func (p *program) hasAccount(ctx context.Context, name string) {
	GinkgoHelper()
	p.user = name + "-" + p.namespace
	all := []string{"*"}
	rules := []rbacv1.PolicyRule{
		{APIGroups: []string{""}, Verbs: all, Resources: []string{"secrets", "events", "namespaces", "services", "endpoints", "pods"}},
		{APIGroups: []string{""}, Verbs: []string{"create"}, Resources: []string{"configmaps"}}, // of the canary
	}
	for _, group := range []string{
		"admissionregistration.k8s.io", "apiextensions.k8s.io", "authorization.k8s.io", "coordination.k8s.io", "discovery.k8s.io", "events.k8s.io", p.shops.group,
	} {
		rules = append(rules, rbacv1.PolicyRule{APIGroups: []string{group}, Verbs: all, Resources: all})
	}
	rbac := clients.RbacV1()
	Must(rbac.ClusterRoles().Create(ctx, &rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: p.user}, Rules: rules}, metav1.CreateOptions{}))
	Must(rbac.ClusterRoleBindings().Create(ctx, &rbacv1.ClusterRoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: p.user}, Subjects: subjects(p.user),
		RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: p.user},
	}, metav1.CreateOptions{}))
	Must(rbac.Roles(p.objects).Create(ctx, &rbacv1.Role{ObjectMeta: metav1.ObjectMeta{Name: p.user}, Rules: []rbacv1.PolicyRule{{
		APIGroups: []string{""}, Resources: []string{"configmaps"}, Verbs: []string{"get", "list", "watch"},
	}}}, metav1.CreateOptions{}))
	p.mayList(ctx, p.user, false)
}

func subjects(user string) []rbacv1.Subject {
	return []rbacv1.Subject{{Kind: rbacv1.UserKind, Name: user, APIGroup: rbacv1.GroupName}}
}

// grant lets a user list ConfigMaps. It returns before the API server has noticed.
func (p *program) grant(ctx context.Context, user string) {
	GinkgoHelper()
	Must(clients.RbacV1().RoleBindings(p.objects).Create(ctx, &rbacv1.RoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: user}, Subjects: subjects(user),
		RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: user},
	}, metav1.CreateOptions{}))
}

// revoke takes the right away, and returns once the API server has noticed.
func (p *program) revoke(ctx context.Context, user string) {
	GinkgoHelper()
	Expect(clients.RbacV1().RoleBindings(p.objects).Delete(ctx, user, metav1.DeleteOptions{})).To(Succeed())
	p.mayList(ctx, user, false)
}

// mayList waits until the API server gives this answer to the question whether a user may list ConfigMaps, and lets the
// account do all else.
func (p *program) mayList(ctx context.Context, user string, may bool) {
	GinkgoHelper()
	allowed := func(resource string) bool {
		review := Must(clients.AuthorizationV1().SubjectAccessReviews().Create(ctx, &authorizationv1.SubjectAccessReview{Spec: authorizationv1.SubjectAccessReviewSpec{
			User: user, ResourceAttributes: &authorizationv1.ResourceAttributes{Namespace: p.objects, Verb: "list", Resource: resource},
		}}, metav1.CreateOptions{}))
		return review.Status.Allowed
	}
	Eventually(func() bool { return allowed("secrets") && allowed("configmaps") == may }).WithContext(ctx).Should(BeTrue())
}

// label is a step that never waits.
func label() any {
	return eirinix.Mutation[*corev1.ConfigMap]{ID: "label", Apply: func(_ context.Context, _ *eirinix.Call, c *corev1.ConfigMap) error {
		metav1.SetMetaDataLabel(&c.ObjectMeta, labelled, "yes")
		return nil
	}}
}

// harmless is what the next version has more.
func harmless() any {
	return eirinix.Validation[*corev1.Service]{ID: "harmless", Create: func(context.Context, *eirinix.Call, *corev1.Service) error { return nil }}
}

// podRule refuses pods, after a look at all objects of a kind.
func podRule(read eirinix.Read, list func() client.ObjectList) any {
	return eirinix.Validation[*corev1.Pod]{
		ID: "gate", Settings: eirinix.Settings{Reads: []eirinix.Read{read}},
		Create: func(ctx context.Context, c *eirinix.Call, _ *corev1.Pod) error {
			found := list()
			if err := c.Reader().List(ctx, found); err != nil {
				return err
			}
			return eirinix.Deny("%s: it has seen %d objects", refusal, meta.LenList(found))
		},
	}
}

// readsConfigMaps is a rule for pods that reads the ConfigMaps of the program's objects.
func (p *program) readsConfigMaps() any {
	return podRule(eirinix.Read{Object: &corev1.ConfigMap{}, Namespaces: []string{p.objects}}, func() client.ObjectList { return &corev1.ConfigMapList{} })
}

// readsShops is a rule for pods that reads shops.
func (p *program) readsShops() any {
	return podRule(eirinix.Read{Object: p.shops.empty("Shop")}, func() client.ObjectList {
		list := &unstructured.UnstructuredList{}
		list.SetGroupVersionKind(p.shops.empty("ShopList").GroupVersionKind())
		return list
	})
}

// refusesShops is a rule for shops.
func (p *program) refusesShops() any {
	return eirinix.Validation[*unstructured.Unstructured]{
		ID: "gate-of-shops",
		Settings: eirinix.Settings{Rules: []admissionregistrationv1.RuleWithOperations{{
			Operations: []admissionregistrationv1.OperationType{admissionregistrationv1.Create},
			Rule:       admissionregistrationv1.Rule{APIGroups: []string{p.shops.group}, APIVersions: []string{"v1"}, Resources: []string{"shops"}},
		}}},
		Create: func(context.Context, *eirinix.Call, *unstructured.Unstructured) error {
			return eirinix.Deny("%s", refusal)
		},
	}
}

// createPod creates a pod in a dry run.
func (p *program) createPod(ctx context.Context) error {
	pod := NewPod("", nil)
	pod.GenerateName = "pod-"
	_, err := clients.CoreV1().Pods(p.objects).Create(ctx, pod, metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
	return err
}

// createShop creates a shop in a dry run.
func (p *program) createShop(ctx context.Context) error {
	shop := p.shops.empty("Shop")
	shop.SetGenerateName("shop-")
	_, err := objects.Resource(p.shops.resource()).Namespace(p.objects).Create(ctx, shop, metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
	return err
}

// createConfigMap creates an object of the step label in a dry run.
func (p *program) createConfigMap(ctx context.Context) error {
	c, err := clients.CoreV1().ConfigMaps(p.objects).Create(ctx, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{GenerateName: "map-"}},
		metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
	if err == nil && c.Labels[labelled] == "" {
		return fmt.Errorf("admitted without the label")
	}
	return err
}
