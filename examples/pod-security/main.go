// Pod-security refuses pods that violate the Pod Security Standard of their namespace, as Kubernetes' own admission
// plugin PodSecurity does. It is for API servers without that plugin, and shows a whole validating webhook.
package main

import (
	"context"
	"flag"
	"fmt"
	"log"
	"strings"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	corev1listers "k8s.io/client-go/listers/core/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"
	"k8s.io/pod-security-admission/api"
	"k8s.io/pod-security-admission/policy"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"code.cloudfoundry.org/eirinix"
	"code.cloudfoundry.org/eirinix/examples/cli"
)

func main() {
	log.SetFlags(0)
	p := &podSecurity{}
	levels := [3]string{}
	flag.StringVar(&levels[0], "enforce", "privileged:latest", "standard for namespaces without labels, and its version")
	flag.StringVar(&levels[1], "audit", "privileged:latest", "the same, for the audit log")
	flag.StringVar(&levels[2], "warn", "privileged:latest", "the same, for warnings")
	list(&p.exempt.users, "exempt-users", "names of users, separated by commas, whose pods are not checked")
	list(&p.exempt.namespaces, "exempt-namespaces", "names of namespaces whose pods are not checked")
	list(&p.exempt.runtimeClasses, "exempt-runtime-classes", "names of RuntimeClasses whose pods are not checked")
	x := eirinix.NewManager(cli.Options("pod-security-example"))
	if err := p.configure(levels); err != nil {
		log.Fatal(err)
	}
	for _, step := range p.steps() {
		if err := x.AddExtension(step); err != nil {
			log.Fatal(err)
		}
	}
	if cli.Serves() {
		config, err := x.GetKubeConnection()
		if err == nil {
			p.cluster, err = follow(x.GetContext(), config)
		}
		if err != nil {
			log.Fatal(err)
		}
	}
	if err := cli.Run(x, rights(x.GetManagerOptions())...); err != nil {
		log.Fatal(err)
	}
}

// list defines a flag whose value is a list of names.
func list(into *[]string, name, usage string) {
	flag.Func(name, usage, func(names string) error {
		*into = strings.Split(names, ",")
		return nil
	})
}

// configure sets the checks of Kubernetes, and the standards for namespaces without labels.
func (p *podSecurity) configure(levels [3]string) (err error) {
	if p.checks, err = policy.NewEvaluator(policy.DefaultChecks(), nil); err != nil {
		return err
	}
	p.cluster = noCluster{}
	for i, into := range []*api.LevelVersion{&p.defaults.Enforce, &p.defaults.Audit, &p.defaults.Warn} {
		level, version, _ := strings.Cut(levels[i], ":")
		if version == "" {
			version = "latest"
		}
		if into.Level, err = api.ParseLevel(level); err == nil {
			into.Version, err = api.ParseVersion(version)
		}
		if err != nil {
			return fmt.Errorf("the standard %q is wrong (%w); give one such as restricted:v1.37 or baseline", levels[i], err)
		}
	}
	return nil
}

// rights lets the program read namespaces and pods, besides the rights that the library needs.
func rights(o eirinix.ManagerOptions) []client.Object {
	meta := metav1.ObjectMeta{Name: o.OperatorFingerprint + "-policy"}
	account := rbacv1.Subject{Kind: rbacv1.ServiceAccountKind, Name: o.OperatorFingerprint, Namespace: o.WebhookNamespace}
	return []client.Object{
		&rbacv1.ClusterRole{
			TypeMeta: metav1.TypeMeta{APIVersion: rbacv1.SchemeGroupVersion.String(), Kind: "ClusterRole"}, ObjectMeta: meta,
			Rules: []rbacv1.PolicyRule{
				{APIGroups: []string{""}, Resources: []string{"namespaces"}, Verbs: []string{"get", "list", "watch"}},
				{APIGroups: []string{""}, Resources: []string{"pods"}, Verbs: []string{"list"}},
			},
		},
		&rbacv1.ClusterRoleBinding{
			TypeMeta: metav1.TypeMeta{APIVersion: rbacv1.SchemeGroupVersion.String(), Kind: "ClusterRoleBinding"}, ObjectMeta: meta,
			RoleRef:  rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: meta.Name},
			Subjects: []rbacv1.Subject{account},
		},
	}
}

// follower reads namespaces from a cache, and pods from the API server.
type follower struct {
	client     kubernetes.Interface
	namespaces corev1listers.NamespaceLister
}

// follow returns a cluster whose namespaces are watched until ctx ends.
func follow(ctx context.Context, config *rest.Config) (cluster, error) {
	c, err := kubernetes.NewForConfig(config)
	if err != nil {
		return nil, err
	}
	factory := informers.NewSharedInformerFactoryWithOptions(c, 0, informers.WithTransform(labelsOnly))
	f := follower{c, factory.Core().V1().Namespaces().Lister()}
	factory.Start(ctx.Done())
	if !cache.WaitForCacheSync(ctx.Done(), factory.Core().V1().Namespaces().Informer().HasSynced) {
		return nil, context.Cause(ctx)
	}
	return f, nil
}

// labelsOnly saves the memory of everything else.
func labelsOnly(o any) (any, error) {
	if ns, ok := o.(*corev1.Namespace); ok {
		return &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: ns.Name, Labels: ns.Labels, ResourceVersion: ns.ResourceVersion}}, nil
	}
	return o, nil
}

// namespaceLabels asks the API server for a namespace that the cache does not have yet.
func (f follower) namespaceLabels(ctx context.Context, name string) (map[string]string, error) {
	ns, err := f.namespaces.Get(name)
	if apierrors.IsNotFound(err) {
		ns, err = f.client.CoreV1().Namespaces().Get(ctx, name, metav1.GetOptions{})
	}
	if err != nil {
		return nil, err
	}
	return ns.Labels, nil
}

func (f follower) pods(ctx context.Context, namespace string) ([]corev1.Pod, error) {
	all, err := f.client.CoreV1().Pods(namespace).List(ctx, metav1.ListOptions{})
	if err != nil {
		return nil, err
	}
	return all.Items, nil
}

// noCluster is the cluster of a preview: its namespaces have no labels, and no pods.
type noCluster struct{}

func (noCluster) namespaceLabels(context.Context, string) (map[string]string, error) { return nil, nil }

func (noCluster) pods(context.Context, string) ([]corev1.Pod, error) { return nil, nil }
