package eirinix_test

// This file specifies that an API server takes a program's manifests, that their rights are enough, and that the program makes
// use of each of them.

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"regexp"
	"slices"
	"strings"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"go.uber.org/zap"
	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"code.cloudfoundry.org/eirinix"
	. "code.cloudfoundry.org/eirinix/internal/spectest"
	"code.cloudfoundry.org/eirinix/manifests"
)

var _ = Describe("The namespace of the program's own pod", func() {
	It("is not that of its manifests unless it is given", func() {
		eirinix.InPod("  mine\n")
		given := eirinix.ManagerOptions{ServiceName: "hooks", Logger: zap.NewNop().Sugar()}
		m := addEnvManager(given)
		o := manifests.Options{Image: "hooks:1", Args: []string{}}
		_, err := manifests.Of(m, o)
		Expect(err).To(MatchError(ContainSubstring("WebhookNamespace is empty; set it")), "this pod may be one that only prints")

		m.SetManagerOptions(m.GetManagerOptions())
		_, err = manifests.Of(m, o)
		Expect(err).To(MatchError(ContainSubstring("WebhookNamespace is empty; set it")))
		given.WebhookNamespace = "mine"
		m.SetManagerOptions(given)
		Expect(manifests.Of(m, o)).NotTo(BeEmpty(), "it is given")
	})
})

var _ = Describe("A program's manifests, in a namespace of the Pod Security level restricted,", Label("api-server"), func() {
	var (
		apps, system string
		c            client.Client
		warnings     *heard
		options      eirinix.ManagerOptions
		deployment   manifests.Options
	)
	BeforeEach(func(ctx SpecContext) {
		apps, warnings = newNamespace(ctx), &heard{}
		system = NewNamespace(ctx, clients(), map[string]string{
			"pod-security.kubernetes.io/enforce": "restricted", "pod-security.kubernetes.io/warn": "restricted",
		}).Name
		config := controlPlane().Config()
		config.WarningHandler = warnings
		c = Must(client.New(config, client.Options{}))
		options = eirinix.ManagerOptions{Namespace: apps, ServiceName: "hooks", WebhookNamespace: system, OperatorFingerprint: apps}
		deployment = manifests.Options{Image: "registry.example.org/hooks:1.0"}
	})

	objectsOf := func(o eirinix.ManagerOptions, added ...any) []client.Object {
		GinkgoHelper()
		return Must(manifests.Of(managerWith(o, added...), deployment))
	}
	// apply is kubectl apply --server-side --dry-run=server of the YAML.
	apply := func(ctx context.Context, o client.Object) error {
		GinkgoHelper()
		var text bytes.Buffer
		Expect(manifests.Write(&text, o)).To(Succeed())
		u := &unstructured.Unstructured{}
		Expect(yaml.Unmarshal(text.Bytes(), &u.Object)).To(Succeed())
		return c.Apply(ctx, client.ApplyConfigurationFromUnstructured(u), client.DryRunAll, client.FieldOwner("spec"), client.ForceOwnership)
	}
	// pods returns the pods that controllers would make of the objects.
	pods := func(objects []client.Object) (pods []*corev1.Pod) {
		for _, o := range objects {
			var t corev1.PodTemplateSpec
			switch o := o.(type) {
			case *appsv1.Deployment:
				t = o.Spec.Template
			case *batchv1.Job:
				t = o.Spec.Template
			case *batchv1.CronJob:
				t = o.Spec.JobTemplate.Spec.Template
			default:
				continue
			}
			t.GenerateName, t.Namespace = "pod-", o.GetNamespace()
			pods = append(pods, &corev1.Pod{ObjectMeta: t.ObjectMeta, Spec: t.Spec})
		}
		return pods
	}

	DescribeTable("are accepted by the API server, without a warning,",
		func(ctx SpecContext, change func(*eirinix.ManagerOptions, *manifests.Options), added ...any) {
			change(&options, &deployment)
			objects := objectsOf(options, added...)
			for _, o := range objects {
				if _, ok := o.(*unstructured.Unstructured); ok {
					continue // a PodMonitor, which this API server does not know
				}
				Expect(apply(ctx, o)).To(Succeed(), "%T %s", o, o.GetName())
				Expect(c.Create(ctx, o.DeepCopyObject().(client.Object), client.DryRunAll, client.FieldValidation("Strict"))).To(Succeed(), "%T %s", o, o.GetName())
			}
			for _, pod := range pods(objects) {
				Expect(c.Create(ctx, pod, client.DryRunAll)).To(Succeed())
			}
			Expect(warnings.take()).To(BeEmpty())
		},
		Entry("called through a Service", func(*eirinix.ManagerOptions, *manifests.Options) {}, addEnv{}),
		Entry("called by URL on a high port, with ports for health and metrics", func(o *eirinix.ManagerOptions, _ *manifests.Options) {
			o.ServiceName, o.Host, o.ListenAddress, o.MetricsBindAddress, o.HealthProbeBindAddress = "", "webhook.example.org", ":8443", ":8080", ":8081"
		}, addEnv{}, &eventLog{}),
		Entry("split", func(o *eirinix.ManagerOptions, _ *manifests.Options) { o.RegisterWebHook = new(false) }, addEnv{}, &eventLog{}),
		Entry("with the longest names", func(o *eirinix.ManagerOptions, _ *manifests.Options) {
			o.RegisterWebHook, o.OperatorFingerprint, o.ServiceName = new(false), strings.Repeat("f", 63), strings.Repeat("s", 63)
		}, addEnv{}),
		Entry("with all that a user may choose", func(o *eirinix.ManagerOptions, d *manifests.Options) {
			o.UnregisterOnStop, o.MetricsBindAddress, d.PodMonitor = true, ":9090", true
			d.Command, d.Args, d.Env = []string{"/program"}, []string{"-v"}, []corev1.EnvVar{{Name: "A", Value: "b"}}
			d.Name, d.ServiceAccountName, d.Replicas = "name", "account.name", 1
			d.Labels, d.Annotations = map[string]string{"example.org/team": "t"}, map[string]string{"Example.org/Note": "a thing"}
			d.PriorityClassName, d.NodeSelector = "system-cluster-critical", map[string]string{"pool": "system"}
			d.Tolerations = []corev1.Toleration{
				{Operator: corev1.TolerationOpExists}, {Key: "dedicated", Value: "x", Effect: corev1.TaintEffectNoExecute, TolerationSeconds: new(int64(60))},
			}
			d.ImagePullSecrets = []corev1.LocalObjectReference{{Name: "registry"}}
			d.AuditSchedule = "@daily"
		}, addEnv{}),
	)

	It("are not sent to the program that they deploy", func(ctx SpecContext) {
		// A webhook that is down: its pods, in the very namespace whose pods it is for, must come up all the same.
		options.Namespace, options.RestConfig = system, controlPlane().Config()
		m := addEnvManager(options)
		Expect(m.RegisterExtensions()).To(Succeed())
		DeferCleanup(func(ctx context.Context) { Expect(m.Unregister(ctx)).To(Succeed()); m.Stop() })
		options.RegisterWebHook = new(false)
		own := append(pods(Must(manifests.Of(m, deployment))), pods(objectsOf(options, addEnv{}))...)
		Eventually(func() error {
			other := own[0].DeepCopy()
			other.Labels = nil
			return c.Create(ctx, other, client.DryRunAll)
		}).WithContext(ctx).WithTimeout(patience).Should(MatchError(ContainSubstring("failed calling webhook")))
		for _, pod := range own {
			Expect(c.Create(ctx, pod, client.DryRunAll)).To(Succeed())
		}
	}, SpecTimeout(2*patience))
})

// mode is one way to deploy a program, with its actions that need a right.
type mode struct {
	change      func(*play)
	registering bool // the half whose rights these are
	live        func(context.Context, *play, *rest.Config) error
	idle        []right // what this life does not use, though another needs it
}

const (
	configMutating   = "mutatingwebhookconfigurations"
	configValidating = "validatingwebhookconfigurations"
	requests         = "certificatesigningrequests"
)

// uses are rights by resource.
func uses(resource string, verbs ...string) (all []right) {
	for _, v := range verbs {
		all = append(all, right{v, resource})
	}
	return all
}

// runsAndRotates is the life of a Deployment's pod: it registers, serves, rotates the CA and stops.
func runsAndRotates(ctx context.Context, p *play, config *rest.Config) error {
	m := p.manager(config)
	return p.running(ctx, m, func(ctx context.Context) error {
		return errors.Join(p.called(ctx), m.RotateCA(ctx, eirinix.RotateOptions{}))
	})
}

// runs is the life of a pod that makes nothing in the cluster.
func runs(ctx context.Context, p *play, config *rest.Config) error {
	return p.running(ctx, p.manager(config), p.called)
}

// registers is the life of a Job, and of the next one, which goes on with a rotation.
func registers(ctx context.Context, p *play, config *rest.Config) error {
	if err := p.manager(config).RegisterExtensions(); err != nil {
		return err
	}
	Must(clients().CoreV1().Secrets(p.own).Patch(ctx, p.pods+"-setupcertificate", types.MergePatchType,
		[]byte(`{"metadata":{"annotations":{"eirinix.cloudfoundry.org/rotate-ca":"now"}}}`), metav1.PatchOptions{}))
	return p.manager(config).RegisterExtensions()
}

// adopts is the life of a pod that others make the Secret for, and that is deployed again with another port. The
// rotation on request needs them too.
func adopts(ctx context.Context, p *play, config *rest.Config) error {
	admin := p.manager(controlPlane().Config(), func(o *eirinix.ManagerOptions) { o.SetupCertificate = new(true) })
	Expect(errors.Join(admin.RegisterExtensions(), admin.Unregister(ctx))).To(Succeed())
	secrets := clients().CoreV1().Secrets(p.own)
	s := Must(secrets.Get(ctx, p.pods+"-setupcertificate", metav1.GetOptions{}))
	delete(s.Data, "state.json") // as if another tool had made it
	s.Annotations = map[string]string{"eirinix.cloudfoundry.org/rotate-ca": "now"}
	Must(secrets.Update(ctx, s, metav1.UpdateOptions{}))
	if err := runs(ctx, p, config); err != nil {
		return err
	}
	p.options.Port = FreePort()
	return runs(ctx, p, config)
}

var _ = Describe("The rights in a program's manifests", Label("api-server"), func() {
	around := slices.Concat(uses("configmaps", "create"), uses("namespaces", "get"))
	events := uses("events", "create", "patch")
	// seldom is used where an API server cannot send a watch the present objects, for an Event that goes on, and while a program
	// runs on.
	seldom := slices.Concat(uses("secrets", "list"), uses("leases", "list"), uses(configMutating, "list"), uses(configValidating, "list"), uses("configmaps", "list"), uses("events", "patch"))
	// gets are for an API server that refuses a watch.
	gets := slices.Concat(uses("secrets", "get"), uses("leases", "get"), uses("configmaps", "get"))
	podsValidated := eirinix.Validation[*corev1.Pod]{ID: "checks", Create: func(context.Context, *eirinix.Call, *corev1.Pod) error { return nil }}

	DescribeTable("are enough, and none is too many,",
		func(ctx SpecContext, m mode) {
			p := newPlay(ctx, m.change)
			Expect(p.live(ctx, m)).To(Succeed())
			if p.options.Certificates != nil { // these rights are shown by use, and not by a review
				Expect(p.used.refusals()).NotTo(ContainElement(HaveField("Resource", BeElementOf("secrets", requests))))
			}
			for _, o := range ofHalf(Must(p.manifests()), m.registering) {
				for _, r := range rulesOf(o) {
					Expect(slices.Concat(p.used.rights(), seldom, m.idle)).To(ContainElements(uses(resourceOf(r), r.Verbs...)))
				}
			}
		},
		Entry("called through a Service, with steps of both kinds and UnregisterOnStop", mode{
			change: func(p *play) {
				p.options.ServiceName, p.options.UnregisterOnStop = "hooks", true
				p.added = []any{addEnv{}, podsValidated}
			},
			live: throughService(runsAndRotates),
		}, SpecTimeout(10*patience)),
		Entry("with a step that looks at other objects", mode{
			change: func(p *play) {
				looks := podsValidated
				looks.Settings.Reads = []eirinix.Read{
					{Object: &corev1.Service{}, Namespaces: []string{p.pods}, Fields: fields.OneTermEqualSelector("metadata.name", "gate")},
					{Object: &corev1.LimitRange{}},
				}
				p.added = []any{looks}
			},
			live: runsAndRotates,
			idle: slices.Concat(uses("services", "get", "list"), uses("limitranges", "get", "list"), uses(configMutating, "update")), // for API servers that cannot stream, and for completeness
		}, SpecTimeout(10*patience)),
		Entry("after a version with steps of the other kind", mode{
			change: func(p *play) { p.options.UnregisterOnStop, p.added = true, []any{addEnv{}} },
			live: func(ctx context.Context, p *play, config *rest.Config) error {
				admin, m := p.manager(controlPlane().Config()), p.manager(config)
				Expect(errors.Join(admin.AddExtension(podsValidated), admin.RegisterExtensions())).To(Succeed())
				return p.running(ctx, m, func(ctx context.Context) error {
					Eventually(func() any {
						return Must(clients().AdmissionregistrationV1().ValidatingWebhookConfigurations().Get(ctx, p.pods+"-validating-hook", metav1.GetOptions{})).Webhooks
					}).WithTimeout(patience).Should(BeEmpty())
					return m.RotateCA(ctx, eirinix.RotateOptions{})
				})
			},
			idle: slices.Concat(uses("secrets", "create"), uses("leases", "create"), uses(configMutating, "create")),
		}, SpecTimeout(10*patience)),
		Entry("with a Secret that another program makes", mode{
			change: func(p *play) {
				p.options.SetupCertificate, p.added, p.tolerated = new(false), []any{addEnv{}}, "this replica has no right"
			},
			live: adopts,
			// The Lease is there, RotateCA writes the Secret, and the program stops soon.
			idle: slices.Concat(uses("leases", "create"), uses("secrets", "update"), uses("configmaps", "create"), uses(configValidating, "update"), events),
		}, SpecTimeout(10*patience)),
		Entry("of the Job and the CronJob that register", mode{
			change: func(p *play) {
				p.options.RegisterWebHook, p.options.UnregisterOnStop = new(false), true
				p.added = []any{addEnv{}, podsValidated, p.heard}
			},
			live: registers, registering: true,
			idle: uses("leases", "update"), // while another version lives
		}, SpecTimeout(10*patience)),
		Entry("of the Deployment that serves the registration of others, with client CAs in a ConfigMap", mode{
			change: func(p *play) {
				p.options.RegisterWebHook, p.options.UnregisterOnStop, p.added = new(false), true, []any{addEnv{}}
				p.options.ClientCA.ConfigMap = p.pods + "/callers"
			},
			live: func(ctx context.Context, p *play, config *rest.Config) error {
				Must(clients().CoreV1().ConfigMaps(p.pods).Create(ctx, newConfigMap("callers", map[string]string{"ca.crt": string(config.CAData)}), metav1.CreateOptions{}))
				Expect(p.manager(controlPlane().Config()).RegisterExtensions()).To(Succeed())
				// The API server of the specs has no certificate to show, so that nothing is called.
				return p.running(ctx, p.manager(config), func(context.Context) error { return nil })
			},
			idle: gets,
		}, SpecTimeout(10*patience)),
		Entry("with certificates from a Secret that an issuer keeps", mode{
			change: func(p *play) {
				p.options.Certificates, p.added = eirinix.FromSecret("", "webhook-cert"), []any{addEnv{}}
			},
			live: issued(runs),
			idle: slices.Concat(events, around, uses(configMutating, "update"), uses(configValidating, "update")),
		}, SpecTimeout(10*patience)),
		Entry("with certificates from a signer", mode{
			change: func(p *play) {
				p.options.Certificates = eirinix.FromCSR("example.org/"+p.pods, eirinix.SignerOptions{TrustPEM: p.authority.CertificatePEM})
				p.added = []any{addEnv{}}
			},
			live: signed(runs),
			idle: slices.Concat(events, around, uses(configMutating, "update"), uses(configValidating, "update"), uses(requests, "list")),
		}, SpecTimeout(10*patience)),
		Entry("of a program whose metrics others reach", mode{
			change: func(p *play) { p.options.MetricsBindAddress, p.added = fmt.Sprintf(":%d", FreePort()), []any{p.heard} },
			live:   scraped,
			idle:   uses("/metrics", "get"), // by the program: it is for those who read them
		}, SpecTimeout(10*patience)),
		Entry("of a program that only watches, in all namespaces", mode{
			change: func(p *play) { p.options.Namespace, p.added = "", []any{p.heard} },
			live:   runs,
		}, SpecTimeout(10*patience)),
	)

	DescribeTable("are named where one is missing,", func(ctx SpecContext, missing right, said string, m mode) {
		p := newPlay(ctx, func(p *play) {
			p.without, p.added, p.options.RegisterWebHook, p.options.UnregisterOnStop = missing, []any{addEnv{}}, new(!m.registering), true
		})
		Expect(p.live(ctx, m)).To(MatchError(ContainSubstring(said)))
	},
		Entry("to see its namespace", right{"get", "namespaces"}, "will outlive the namespace", mode{live: runs}, SpecTimeout(3*patience)),
		Entry("to record that it stops", right{"update", "leases"}, "could not record in the Lease that this replica stops", mode{live: runs}, SpecTimeout(3*patience)),
		Entry("to see other versions", right{"get", "leases"}, "versions of this program cannot see each other", mode{live: registers, registering: true}, SpecTimeout(3*patience)),
	)

	It("are all that the program asks for while it runs on", func(ctx SpecContext) {
		p := newPlay(ctx, func(p *play) { p.added = []any{addEnv{}} })
		m := p.manager(p.connect(ctx, false))
		runManager(ctx, m)
		Eventually(p.logs.FilterMessageSnippet).WithArguments("the API server calls this program").WithTimeout(patience).ShouldNot(HaveField("Len()", 0))
		before := p.used.refusals()
		for range 2 { // each takes some passes over all objects
			c := configuration(ctx, m)
			c.Webhooks[0].ClientConfig.CABundle = nil
			Must(clients().AdmissionregistrationV1().MutatingWebhookConfigurations().Update(ctx, c, metav1.UpdateOptions{}))
			Eventually(func() []byte { return configuration(ctx, m).Webhooks[0].ClientConfig.CABundle }).WithTimeout(patience).ShouldNot(BeEmpty())
		}
		Expect(p.used.refusals()).To(Equal(before))
	}, SpecTimeout(3*patience))

	It("are those that the README lists", func(ctx SpecContext) {
		p := newPlay(ctx, func(p *play) { p.added = []any{addEnv{}} })
		role, clusterRole := documentedRules(p.pods, p.own)
		var rules []any
		for _, o := range Must(p.manifests()) {
			if r := rulesIn(o); r != nil {
				rules = append(rules, *r)
			}
		}
		Expect(rules).To(HaveExactElements(role, clusterRole))
	}, SpecTimeout(patience))
})

// documentedRules returns the rules of docs/deploy.md, for this fingerprint.
func documentedRules(fingerprint, own string) (role, clusterRole []rbacv1.PolicyRule) {
	GinkgoHelper()
	text := Must(os.ReadFile("docs/deploy.md"))
	found := regexp.MustCompile("(?s)```yaml\n(.*?)```").FindSubmatch(text)
	Expect(found).NotTo(BeNil())
	text = []byte(strings.NewReplacer("eirini-x-", fingerprint+"-", "cf-system", own).Replace(string(found[1])))
	documents := strings.Split(string(text), "---\n")
	Expect(documents).To(HaveLen(2))
	var r rbacv1.Role
	var c rbacv1.ClusterRole
	Expect(yaml.UnmarshalStrict([]byte(documents[0]), &r)).To(Succeed())
	Expect(yaml.UnmarshalStrict([]byte(documents[1]), &c)).To(Succeed())
	return r.Rules, c.Rules
}

// userWith gives a user, who is the same for each namespace, these rights in the namespace and in the cluster.
func userWith(ctx context.Context, namespace string, role, clusterRole []rbacv1.PolicyRule) *rest.Config {
	GinkgoHelper()
	user, made, rbac := "user-"+namespace, metav1.ObjectMeta{GenerateName: "spec-"}, clients().RbacV1()
	subjects := []rbacv1.Subject{{Kind: rbacv1.UserKind, Name: user, APIGroup: rbacv1.GroupName}}
	r := Must(rbac.Roles(namespace).Create(ctx, &rbacv1.Role{ObjectMeta: made, Rules: role}, metav1.CreateOptions{}))
	Must(rbac.RoleBindings(namespace).Create(ctx, &rbacv1.RoleBinding{
		ObjectMeta: made, Subjects: subjects, RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: r.Name},
	}, metav1.CreateOptions{}))
	c := Must(rbac.ClusterRoles().Create(ctx, &rbacv1.ClusterRole{ObjectMeta: made, Rules: clusterRole}, metav1.CreateOptions{}))
	Must(rbac.ClusterRoleBindings().Create(ctx, &rbacv1.ClusterRoleBinding{
		ObjectMeta: made, Subjects: subjects, RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: c.Name},
	}, metav1.CreateOptions{}))
	return Must(controlPlane().User(user))
}

// issued puts a certificate where cert-manager would.
func issued(live func(context.Context, *play, *rest.Config) error) func(context.Context, *play, *rest.Config) error {
	return func(ctx context.Context, p *play, config *rest.Config) error {
		Must(clients().CoreV1().Secrets(p.own).Create(ctx, &corev1.Secret{
			ObjectMeta: metav1.ObjectMeta{Name: "webhook-cert"}, Type: corev1.SecretTypeTLS, Data: p.authority.issue(),
		}, metav1.CreateOptions{}))
		return live(ctx, p, config)
	}
}

// signed plays approver and signer.
func signed(live func(context.Context, *play, *rest.Config) error) func(context.Context, *play, *rest.Config) error {
	return func(ctx context.Context, p *play, config *rest.Config) error {
		signing, stop := context.WithCancel(ctx)
		done := make(chan struct{})
		go func() {
			defer GinkgoRecover()
			defer close(done)
			for signing.Err() == nil {
				SignRequests(signing, clients(), p.authority.Authority, "example.org/"+p.pods)
				time.Sleep(50 * time.Millisecond)
			}
		}()
		defer func() { stop(); <-done }()
		return live(ctx, p, config)
	}
}

// throughService has the API server call loopback through a Service.
func throughService(live func(context.Context, *play, *rest.Config) error) func(context.Context, *play, *rest.Config) error {
	return func(ctx context.Context, p *play, config *rest.Config) error {
		Must(clients().CoreV1().Services(p.own).Create(ctx, &corev1.Service{
			ObjectMeta: metav1.ObjectMeta{Name: p.options.ServiceName},
			Spec:       corev1.ServiceSpec{Type: corev1.ServiceTypeExternalName, ExternalName: "localhost"},
		}, metav1.CreateOptions{}))
		return live(ctx, p, config)
	}
}
