package eirinix_test

// Specs of audits, against a real API server.

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	admissionv1 "k8s.io/api/admission/v1"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/rest"
	ctrlmetrics "sigs.k8s.io/controller-runtime/pkg/metrics"

	"code.cloudfoundry.org/eirinix"
	"code.cloudfoundry.org/eirinix/audit"
	. "code.cloudfoundry.org/eirinix/internal/spectest"
	"code.cloudfoundry.org/eirinix/manifests"
	"code.cloudfoundry.org/eirinix/recording"
)

// numbers is a ConfigMap whose values must be numbers, so that some stored ConfigMaps do not decode into it.
type numbers struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`
	Data              map[string]int `json:"data,omitempty"`
}

func (n *numbers) DeepCopyObject() runtime.Object {
	c := *n
	n.DeepCopyInto(&c.ObjectMeta)
	c.Data = maps.Clone(n.Data)
	return &c
}

// counted counts the requests of a client by verb and path.
type counted struct {
	mu         sync.Mutex
	all, pages []string // pages: those requests that continue a list
}

func (c *counted) wrap(config *rest.Config) *rest.Config {
	config = rest.CopyConfig(config)
	config.Wrap(func(next http.RoundTripper) http.RoundTripper {
		return roundTripper(func(r *http.Request) (*http.Response, error) {
			c.mu.Lock()
			c.all = append(c.all, r.Method+" "+r.URL.Path)
			if r.URL.Query().Has("continue") {
				c.pages = append(c.pages, r.Method+" "+r.URL.Path)
			}
			c.mu.Unlock()
			return next.RoundTrip(r)
		})
	})
	return config
}

func (c *counted) count(prefix string) (n int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, r := range c.all {
		if strings.HasPrefix(r, prefix) {
			n++
		}
	}
	return n
}

type roundTripper func(*http.Request) (*http.Response, error)

func (f roundTripper) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

// named selects the findings about an object of this name.
func named(name string) OmegaMatcher { return HaveField("Name", name) }

var _ = Describe("An audit", Label("api-server"), func() {
	var namespace string
	var options eirinix.ManagerOptions
	var found []audit.Finding

	BeforeEach(func(ctx SpecContext) {
		namespace, found = newNamespace(ctx), nil
		options = urlOptions(namespace)
	})

	create := func(ctx context.Context, in, name string, change ...func(*corev1.ConfigMap)) *corev1.ConfigMap {
		GinkgoHelper()
		cm := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: name}}
		for _, c := range change {
			c(cm)
		}
		return Must(clients().CoreV1().ConfigMaps(in).Create(ctx, cm, metav1.CreateOptions{}))
	}
	labelled := func(key, value string) func(*corev1.ConfigMap) {
		return func(cm *corev1.ConfigMap) { metav1.SetMetaDataLabel(&cm.ObjectMeta, key, value) }
	}
	ask := func(ctx context.Context, o audit.Options, steps ...any) audit.Summary {
		GinkgoHelper()
		m := eirinix.NewManager(options)
		for _, s := range steps {
			Expect(m.AddExtension(s)).To(Succeed())
		}
		o.Finding = func(f audit.Finding) error { found = append(found, f); return nil }
		summary, err := audit.Run(ctx, m, o)
		if len(summary.Gaps) == 0 {
			Expect(err).NotTo(HaveOccurred())
			return summary
		}
		incomplete, ok := errors.AsType[*audit.IncompleteError](err)
		Expect(ok).To(BeTrue(), "%v", err)
		Expect(incomplete.Gaps).To(Equal(summary.Gaps))
		return summary
	}
	// checks is a Validation of ConfigMaps, on CREATE.
	checks := func(id string, s eirinix.Settings, check func(*eirinix.Call, *corev1.ConfigMap) error) eirinix.Validation[*corev1.ConfigMap] {
		return eirinix.Validation[*corev1.ConfigMap]{ID: id, Settings: s, Create: func(_ context.Context, c *eirinix.Call, cm *corev1.ConfigMap) error {
			return check(c, cm)
		}}
	}
	denies := func(id string, s eirinix.Settings) eirinix.Validation[*corev1.ConfigMap] {
		return checks(id, s, func(*eirinix.Call, *corev1.ConfigMap) error { return eirinix.Deny("no") })
	}
	// stages writes a label into ConfigMaps.
	stages := func(mode eirinix.Mode) eirinix.Mutation[*corev1.ConfigMap] {
		return eirinix.Mutation[*corev1.ConfigMap]{ID: "stage", Settings: eirinix.Settings{Mode: mode}, Apply: func(_ context.Context, _ *eirinix.Call, cm *corev1.ConfigMap) error {
			metav1.SetMetaDataLabel(&cm.ObjectMeta, "stage", "test")
			return nil
		}}
	}

	It("reports denials and drift with the object, writes nothing and registers nothing", func(ctx SpecContext) {
		requests := &counted{}
		options.RestConfig = requests.wrap(options.RestConfig)
		bare := create(ctx, namespace, "bare", func(cm *corev1.ConfigMap) { cm.Data = map[string]string{"password": "hunter2"} })
		create(ctx, namespace, "good", labelled("owner", "me"), labelled("stage", "test"))
		var dry atomic.Bool
		dry.Store(true)
		var pages []audit.Progress
		owner := checks("owner", eirinix.Settings{}, func(c *eirinix.Call, cm *corev1.ConfigMap) error {
			if c.DryRun == nil || !*c.DryRun || c.Name != cm.Name || c.Namespace != namespace || c.UID == "" || c.Options.Raw == nil ||
				cm.UID != "" || cm.ResourceVersion != "" || !cm.CreationTimestamp.IsZero() || len(cm.ManagedFields) > 0 {
				dry.Store(false)
			}
			if cm.Labels["owner"] == "" {
				return eirinix.Deny("set the label owner")
			}
			return nil
		})
		owner.Update = func(context.Context, *eirinix.Call, *corev1.ConfigMap, *corev1.ConfigMap) error {
			return eirinix.Deny("it was asked with CREATE")
		}
		updates := eirinix.Validation[*corev1.ConfigMap]{ID: "updates", Update: func(_ context.Context, c *eirinix.Call, oldCM, cm *corev1.ConfigMap) error {
			if c.DryRun == nil || !*c.DryRun || oldCM.UID == "" || oldCM.UID != cm.UID || cm.ResourceVersion == "" || oldCM.Labels["stage"] == "test" && cm.Name == "bare" || cm.Labels["stage"] != "test" {
				dry.Store(false)
			}
			return nil
		}}
		summary := ask(ctx, audit.Options{Progress: func(p audit.Progress) { pages = append(pages, p) }}, stages(eirinix.ModeDeny), owner, updates)
		Expect(dry.Load()).To(BeTrue(), "the requests are as an API server sends them")
		of := func(step string, operation admissionv1.Operation, result audit.Result) audit.Finding {
			return audit.Finding{
				Step: step, Mode: eirinix.ModeDeny, Result: result, Operation: operation,
				Kind: corev1.SchemeGroupVersion.WithKind("ConfigMap"), Resource: corev1.SchemeGroupVersion.WithResource("configmaps"),
				Namespace: namespace, Name: "bare", UID: bare.UID,
			}
		}
		drift, denied := of("stage", admissionv1.Create, audit.Drift), of("owner", admissionv1.Create, audit.Denied)
		drift.Message, drift.Paths, denied.Message = "it would change the object", []string{"/metadata/labels"}, "set the label owner"
		Expect(found).To(Equal([]audit.Finding{drift, denied}))
		Expect(fmt.Sprint(found)).NotTo(ContainSubstring("hunter2"))
		Expect(summary).To(Equal(audit.Summary{
			Objects: 2, Asked: map[string]int{"stage": 2, "owner": 2, "updates": 2},
			Findings: map[string]map[audit.Result]int{"stage": {audit.Drift: 1}, "owner": {audit.Denied: 1}},
		}))
		Expect(pages).To(Equal([]audit.Progress{{Resource: drift.Resource, Listed: 2, Objects: 2, Findings: 2}}))
		Expect(requests.count("GET ")).To(Equal(len(requests.all)), "%v", requests.all)
		Expect(requests.count("GET /api/v1/namespaces/" + namespace + "/configmaps")).To(Equal(1))
		Expect(requests.count("GET /api/v1/configmaps")).To(BeZero())
		_, err := clients().AdmissionregistrationV1().MutatingWebhookConfigurations().Get(ctx, namespace+"-mutating-hook", metav1.GetOptions{})
		Expect(err).To(MatchError(ContainSubstring("not found")))
	}, SpecTimeout(patience))

	It("lists pages of 500 objects, at most ten in a second", func(ctx SpecContext) {
		requests, limits := &counted{}, []string{}
		options.RestConfig = requests.wrap(options.RestConfig)
		options.RestConfig.Wrap(func(next http.RoundTripper) http.RoundTripper {
			return roundTripper(func(r *http.Request) (*http.Response, error) {
				if limit := r.URL.Query().Get("limit"); limit != "" {
					limits = append(limits, limit)
				}
				return next.RoundTrip(r)
			})
		})
		began := time.Now()
		for n := range 7 {
			create(ctx, namespace, "n"+strconv.Itoa(n))
		}
		var pages []audit.Progress
		summary := ask(ctx, audit.Options{PageSize: 3, Progress: func(p audit.Progress) { pages = append(pages, p) }}, denies("no", eirinix.Settings{}))
		Expect(summary.Findings["no"]).To(HaveKeyWithValue(audit.Denied, 7))
		Expect(requests.count("GET /api/v1/namespaces/" + namespace + "/configmaps")).To(Equal(3))
		Expect(pages).To(HaveExactElements(HaveField("Remaining", 4), HaveField("Remaining", 1), HaveField("Remaining", 0)))
		Expect(time.Since(began)).To(BeNumerically(">=", 200*time.Millisecond))
		ask(ctx, audit.Options{}, denies("no", eirinix.Settings{}))
		Expect(limits).To(Equal([]string{"3", "3", "3", "500"}))
	}, SpecTimeout(patience))

	DescribeTable("passes a mutating step's changes on", func(ctx SpecContext, mode eirinix.Mode, denials int) {
		create(ctx, namespace, "bare")
		sees := checks("sees", eirinix.Settings{}, func(_ *eirinix.Call, cm *corev1.ConfigMap) error {
			if cm.Labels["stage"] == "" {
				return eirinix.Deny("no stage")
			}
			return nil
		})
		summary := ask(ctx, audit.Options{}, sees, stages(mode)) // the validating step comes last all the same
		Expect(summary.Findings["sees"][audit.Denied]).To(Equal(denials))
		Expect(summary.Findings["stage"][audit.Drift]).To(Equal(1))
	},
		Entry("in ModeDeny", eirinix.ModeDeny, 0, SpecTimeout(patience)),
		Entry("not in ModeWarn", eirinix.ModeWarn, 1, SpecTimeout(patience)),
		Entry("not in ModeShadow", eirinix.ModeShadow, 1, SpecTimeout(patience)),
	)

	It("reports at most 50 paths, and how many more there are", func(ctx SpecContext) {
		create(ctx, namespace, "many", labelled("a", "b"))
		ask(ctx, audit.Options{}, eirinix.Mutation[*corev1.ConfigMap]{ID: "many", Apply: func(_ context.Context, _ *eirinix.Call, cm *corev1.ConfigMap) error {
			for n := range 60 {
				cm.Labels[fmt.Sprintf("l%02d", n)] = "x"
			}
			return nil
		}})
		Expect(found).To(HaveExactElements(And(
			HaveField("Paths", And(HaveLen(50), HaveEach(HavePrefix("/metadata/labels/l")))), HaveField("Message", ContainSubstring("10 more")))))
		Expect(slices.IsSorted(found[0].Paths)).To(BeTrue())
	}, SpecTimeout(patience))

	It("reports objects that do not decode, without their values", func(ctx SpecContext) {
		options.Scheme = runtime.NewScheme()
		options.Scheme.AddKnownTypeWithName(corev1.SchemeGroupVersion.WithKind("ConfigMap"), &numbers{})
		create(ctx, namespace, "text", func(cm *corev1.ConfigMap) { cm.Data = map[string]string{"n": "hunter2"} })
		create(ctx, namespace, "empty")
		summary := ask(ctx, audit.Options{}, eirinix.Validation[*numbers]{ID: "numbers", Create: func(context.Context, *eirinix.Call, *numbers) error { return nil }})
		Expect(found).To(HaveExactElements(And(named("text"), HaveField("Result", audit.Failed), HaveField("Message", ContainSubstring("does not decode")))))
		Expect(found[0].Message).NotTo(ContainSubstring("hunter2"))
		Expect(summary.Asked).To(HaveKeyWithValue("numbers", 2))
	}, SpecTimeout(patience))

	It("reports the first panic of a step, and counts the others", func(ctx SpecContext) {
		create(ctx, namespace, "a")
		create(ctx, namespace, "b")
		create(ctx, namespace, "c", labelled("calm", "yes"))
		summary := ask(ctx, audit.Options{}, checks("panics", eirinix.Settings{}, func(_ *eirinix.Call, cm *corev1.ConfigMap) error {
			if cm.Labels["calm"] == "" {
				panic("no label " + cm.Name)
			}
			return eirinix.Deny("calm")
		}))
		Expect(found).To(HaveExactElements(
			And(named("a"), HaveField("Result", audit.Failed), HaveField("Message", ContainSubstring("it panicked: no label a"))),
			And(named("c"), HaveField("Result", audit.Denied)),
		))
		Expect(summary.Findings["panics"]).To(Equal(map[audit.Result]int{audit.Failed: 2, audit.Denied: 1}))
	}, SpecTimeout(patience))

	It("reports other failures for each object, and asks the other steps", func(ctx SpecContext) {
		create(ctx, namespace, "a")
		summary := ask(ctx, audit.Options{}, denies("no", eirinix.Settings{}),
			checks("fails", eirinix.Settings{FailurePolicy: admissionregistrationv1.Ignore}, func(*eirinix.Call, *corev1.ConfigMap) error { return errors.New("the other side is down") }))
		Expect(found).To(ConsistOf(
			And(HaveField("Step", "fails"), HaveField("Result", audit.Failed), HaveField("Message", "the other side is down")),
			HaveField("Step", "no"),
		))
		Expect(summary.Objects).To(Equal(1))
	}, SpecTimeout(patience))

	It("does not pass deletions and subresources as told", func(ctx SpecContext) {
		create(ctx, namespace, "a")
		keep := denies("keep", eirinix.Settings{})
		keep.Delete = func(context.Context, *eirinix.Call, *corev1.ConfigMap) error { panic("never asked") }
		exec := eirinix.Subresource[*corev1.PodExecOptions]{
			ID: "exec", Resource: corev1.SchemeGroupVersion.WithResource("pods"), Subresource: "exec",
			Check: func(context.Context, *eirinix.Call, *corev1.PodExecOptions, *corev1.PodExecOptions) error {
				panic("never asked")
			},
		}
		summary := ask(ctx, audit.Options{}, keep, exec)
		Expect(found).To(ConsistOf(
			And(HaveField("Step", "keep"), HaveField("Result", audit.Unknown), HaveField("Message", ContainSubstring("DELETE of configmaps")), named("")),
			And(HaveField("Step", "exec"), HaveField("Result", audit.Unknown), HaveField("Message", ContainSubstring("pods/exec")), named("")),
			And(HaveField("Step", "keep"), HaveField("Result", audit.Denied), named("a")),
		))
		Expect(summary.Asked).To(Equal(map[string]int{"keep": 1, "exec": 0}))
	}, SpecTimeout(patience))

	It("notices results that depend on the user, or on nothing", func(ctx SpecContext) {
		for n := range 30 {
			create(ctx, namespace, "a"+strconv.Itoa(n))
		}
		var asked, run, flaky atomic.Int64
		summary := ask(ctx, audit.Options{},
			checks("admins", eirinix.Settings{}, func(c *eirinix.Call, _ *corev1.ConfigMap) error {
				if slices.Contains(c.UserInfo.Groups, "system:masters") {
					return nil
				}
				return eirinix.Deny("ask an administrator")
			}),
			checks("greets", eirinix.Settings{}, func(c *eirinix.Call, _ *corev1.ConfigMap) error {
				return eirinix.Deny("%s must not", c.UserInfo.Username)
			}),
			checks("moody", eirinix.Settings{}, func(*eirinix.Call, *corev1.ConfigMap) error { return eirinix.Deny("run %d", run.Add(1)) }),
			checks("flaky", eirinix.Settings{}, func(*eirinix.Call, *corev1.ConfigMap) error {
				if flaky.Add(1) == 2 { // for the second user, once
					return errors.New("try again")
				}
				return nil
			}),
			checks("knows", eirinix.Settings{DependsOnUser: true}, func(*eirinix.Call, *corev1.ConfigMap) error { asked.Add(1); return nil }),
		)
		unknown := func(step, message string) OmegaMatcher {
			return And(HaveField("Step", step), HaveField("Result", audit.Unknown), HaveField("Message", ContainSubstring(message)), named(""))
		}
		Expect(found).To(ConsistOf(
			unknown("admins", "depends on the user"), unknown("greets", "depends on the user"),
			unknown("moody", "from run to run"), And(HaveField("Step", "flaky"), HaveField("Result", audit.Failed)), unknown("knows", "Settings.DependsOnUser"),
		))
		Expect(asked.Load()).To(BeZero())
		Expect(summary.Asked).To(And(HaveKeyWithValue("knows", 0), HaveKeyWithValue("admins", 1), HaveKeyWithValue("flaky", 30)))
		Expect(summary.Gaps).To(HaveExactElements(And(HaveField("Step", "flaky"), HaveField("Objects", 1), HaveField("Reason", "try again"))))
	}, SpecTimeout(patience))

	It("asks about exactly those objects for which the API server would call the step", func(ctx SpecContext) {
		team := NewNamespace(ctx, clients(), map[string]string{"spec-team": namespace}).Name
		for _, in := range []string{namespace, team} {
			create(ctx, in, "plain")
			create(ctx, in, "web", labelled("app", "web"))
			create(ctx, in, "owned", func(cm *corev1.ConfigMap) {
				cm.OwnerReferences = []metav1.OwnerReference{{APIVersion: "v1", Kind: "Pod", Name: "p", UID: "u", Controller: new(true)}}
			})
		}
		own := func(_ *eirinix.Call, cm *corev1.ConfigMap) error {
			return eirinix.Deny("%s", cm.Name)
		}
		settings := func(s eirinix.Settings) eirinix.Settings { return s }
		ofTeam := &metav1.LabelSelector{MatchLabels: map[string]string{"spec-team": namespace}}
		summary := ask(ctx, audit.Options{},
			checks("here", settings(eirinix.Settings{}), own),
			checks("there", settings(eirinix.Settings{Namespaces: ofTeam}), own),
			checks("web", settings(eirinix.Settings{Namespaces: ofTeam, Objects: &metav1.LabelSelector{MatchLabels: map[string]string{"app": "web"}}}), own),
			eirinix.Mutation[*corev1.ConfigMap]{ID: "unowned", Settings: eirinix.Settings{Owned: eirinix.OwnedSkip}, Apply: func(context.Context, *eirinix.Call, *corev1.ConfigMap) error { return eirinix.Deny("no") }},
			eirinix.Validation[*corev1.Namespace]{
				ID: "namespaces", Settings: eirinix.Settings{Namespaces: ofTeam},
				Update: func(context.Context, *eirinix.Call, *corev1.Namespace, *corev1.Namespace) error {
					return eirinix.Deny("no")
				},
			},
		)
		names := map[string][]string{}
		for _, f := range found {
			names[f.Step] = append(names[f.Step], strings.TrimPrefix(f.Namespace+"/"+f.Name, "/"))
		}
		for _, list := range names {
			slices.Sort(list)
		}
		Expect(names).To(Equal(map[string][]string{
			"here":       {namespace + "/owned", namespace + "/plain", namespace + "/web"},
			"there":      {team + "/owned", team + "/plain", team + "/web"},
			"web":        {team + "/web"},
			"unowned":    {namespace + "/plain", namespace + "/web"},
			"namespaces": {team},
		}))
		Expect(summary.Objects).To(Equal(7))
	}, SpecTimeout(patience))

	It("selects Namespaces by their own labels, and lists them once", func(ctx SpecContext) {
		requests := &counted{}
		options.RestConfig, options.Namespace = requests.wrap(options.RestConfig), ""
		team := NewNamespace(ctx, clients(), map[string]string{"spec-team": namespace}).Name
		ask(ctx, audit.Options{}, eirinix.Validation[*corev1.Namespace]{
			ID: "namespaces", Settings: eirinix.Settings{Namespaces: &metav1.LabelSelector{MatchLabels: map[string]string{"spec-team": namespace}}},
			Create: func(_ context.Context, c *eirinix.Call, _ *corev1.Namespace) error {
				return eirinix.Deny("%s/%s", c.Namespace, c.Name)
			},
		})
		Expect(found).To(HaveExactElements(And(named(team), HaveField("Namespace", ""), HaveField("Message", team+"/"+team))))
		Expect(requests.count("GET /api/v1/namespaces")-len(requests.pages)).To(Equal(1), "lists, of which each has a page for 500 Namespaces")
	}, SpecTimeout(patience))

	It("does not ask about the program's own pods, and asks a classic Extension", func(ctx SpecContext) {
		options.ServiceName, options.WebhookNamespace, options.Host = "extensions", namespace, ""
		Must(createPod(ctx, namespace, NewPod("web", nil)))
		Must(createPod(ctx, namespace, NewPod("own", map[string]string{"eirinix.cloudfoundry.org/fingerprint": namespace})))
		summary := ask(ctx, audit.Options{}, addEnv{})
		Expect(found).To(HaveExactElements(And(named("web"), HaveField("Result", audit.Drift), HaveField("Paths", Not(BeEmpty())))))
		Expect(summary.Asked).To(Equal(map[string]int{"add-env": 1}))
	}, SpecTimeout(patience))

	It("limits itself to one namespace and to some steps", func(ctx SpecContext) {
		options.Namespace = ""
		other := newNamespace(ctx)
		create(ctx, namespace, "a")
		create(ctx, other, "b")
		summary := ask(ctx, audit.Options{Namespace: other, Steps: []string{"no"}}, denies("no", eirinix.Settings{}), denies("never", eirinix.Settings{}),
			eirinix.Validation[*corev1.Namespace]{ID: "namespaces", Create: func(context.Context, *eirinix.Call, *corev1.Namespace) error { return eirinix.Deny("no") }})
		Expect(found).To(HaveExactElements(And(named("b"), HaveField("Step", "no"))))
		Expect(summary.Asked).To(Equal(map[string]int{"no": 1}))
	}, SpecTimeout(patience))

	It("expands wildcards, and asks about each object once", func(ctx SpecContext) {
		create(ctx, namespace, "a")
		Must(clients().CoreV1().Services(namespace).Create(ctx, &corev1.Service{ObjectMeta: metav1.ObjectMeta{Name: "s"}, Spec: corev1.ServiceSpec{Ports: []corev1.ServicePort{{Port: 80}}}}, metav1.CreateOptions{}))
		every := []admissionregistrationv1.RuleWithOperations{{
			Operations: []admissionregistrationv1.OperationType{admissionregistrationv1.Create},
			Rule:       admissionregistrationv1.Rule{APIGroups: []string{"", "apps"}, APIVersions: []string{"*"}, Resources: []string{"*"}},
		}}
		summary := ask(ctx, audit.Options{}, eirinix.Validation[*unstructured.Unstructured]{
			ID: "every", Settings: eirinix.Settings{Rules: every},
			Create: func(_ context.Context, _ *eirinix.Call, u *unstructured.Unstructured) error {
				if u.GetKind() == "" || u.GetAPIVersion() == "" {
					return errors.New("no kind")
				}
				return eirinix.Deny("no")
			},
		})
		kinds := map[string]int{}
		for _, f := range found {
			Expect(f).To(And(HaveField("Result", audit.Denied), HaveField("Namespace", namespace)))
			kinds[f.Kind.Kind+"/"+f.Name]++
		}
		Expect(kinds).To(And(HaveKeyWithValue("ConfigMap/a", 1), HaveKeyWithValue("Service/s", 1)))
		Expect(kinds).To(HaveEach(1))
		Expect(summary.Asked["every"]).To(Equal(len(kinds)))
	}, SpecTimeout(patience))

	Describe("evaluates conditions", func() {
		conditional := func(expression string) eirinix.Validation[*corev1.ConfigMap] {
			return denies("conditional", eirinix.Settings{Conditions: []admissionregistrationv1.MatchCondition{{Name: "c", Expression: expression}}})
		}
		It("of objects", func(ctx SpecContext) {
			create(ctx, namespace, "a")
			create(ctx, namespace, "b")
			create(ctx, namespace, "c")
			ask(ctx, audit.Options{}, conditional("object.metadata.name == 'a' || object.metadata.name == 'c' && object.missing == 1"))
			Expect(found).To(HaveExactElements(
				And(named("a"), HaveField("Result", audit.Denied)),
				And(named("c"), HaveField("Result", audit.Failed), HaveField("Message", MatchRegexp("no such key.*; the API server then refuses"))),
			))
		}, SpecTimeout(patience))

		DescribeTable("but not", func(ctx SpecContext, expression, message string) {
			create(ctx, namespace, "a")
			ask(ctx, audit.Options{}, conditional(expression))
			Expect(found).To(HaveExactElements(And(named(""), HaveField("Result", audit.Unknown), HaveField("Message", ContainSubstring(message)))))
		},
			Entry("those about the user", "request.userInfo.username != 'a'", "depends on the user", SpecTimeout(patience)),
			Entry("those about the user's rights", "authorizer.group('').resource('pods').check('get').allowed()", "depends on the user", SpecTimeout(patience)),
			Entry("those that do not compile", "object.spec =", "correct Settings.Conditions", SpecTimeout(patience)),
		)
	})

	Describe("with few rights", func() {
		list := func(group, resource string) rbacv1.PolicyRule {
			return rbacv1.PolicyRule{APIGroups: []string{group}, Resources: []string{resource}, Verbs: []string{"list"}}
		}
		It("names the rule to grant, and audits the rest", func(ctx SpecContext) {
			options.RestConfig = userWith(ctx, namespace, []rbacv1.PolicyRule{list("", "configmaps")}, nil)
			create(ctx, namespace, "a")
			summary := ask(ctx, audit.Options{}, denies("no", eirinix.Settings{}), eirinix.Validation[*corev1.Secret]{
				ID: "secrets", Create: func(context.Context, *eirinix.Call, *corev1.Secret) error { return nil },
			})
			Expect(found).To(ConsistOf(
				And(named("a"), HaveField("Step", "no")),
				And(HaveField("Step", "secrets"), HaveField("Result", audit.Unknown), HaveField("Message", And(
					ContainSubstring(`secrets is forbidden: User "`), HaveSuffix(`; grant it with this rule of a Role in the namespace `+namespace+`: {apiGroups: [""], resources: ["secrets"], verbs: ["list"]}`)))),
			))
			Expect(summary.Asked).To(Equal(map[string]int{"no": 1, "secrets": 0}))
		}, SpecTimeout(patience))

		It("does not guess the labels of namespaces", func(ctx SpecContext) {
			options.Namespace = ""
			options.RestConfig = userWith(ctx, namespace, []rbacv1.PolicyRule{list("", "configmaps")}, nil)
			create(ctx, namespace, "a")
			summary := ask(ctx, audit.Options{Namespace: namespace}, denies("no", eirinix.Settings{}),
				denies("labelled", eirinix.Settings{Namespaces: &metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{{Key: "team", Operator: metav1.LabelSelectorOpDoesNotExist}}}}))
			Expect(found).To(ConsistOf(
				And(named("a"), HaveField("Step", "no")),
				And(named(""), HaveField("Step", "labelled"), HaveField("Result", audit.Unknown), HaveField("Message", And(
					ContainSubstring("needs the labels team of namespaces"), ContainSubstring(`resources: ["namespaces"], verbs: ["get", "list"]`)))),
			))
			Expect(summary.Asked).To(HaveKeyWithValue("labelled", 0))
		}, SpecTimeout(patience))
	})

	It("says that a kind is not served", func(ctx SpecContext) {
		create(ctx, namespace, "a")
		shops := schema.GroupVersionKind{Group: "audit.example.org", Version: "v1", Kind: "Shop"}
		options.Scheme = runtime.NewScheme()
		Expect(corev1.AddToScheme(options.Scheme)).To(Succeed())
		options.Scheme.AddKnownTypeWithName(shops, &numbers{})
		ask(ctx, audit.Options{}, denies("no", eirinix.Settings{}), eirinix.Validation[*numbers]{ID: "shops", Create: func(context.Context, *eirinix.Call, *numbers) error { return nil }})
		Expect(found).To(ConsistOf(named("a"), And(HaveField("Step", "shops"), HaveField("Result", audit.Unknown), HaveField("Message", ContainSubstring("Shop")))))
	}, SpecTimeout(patience))

	It("ends with the error of its caller, or with its context, and keeps its counts", func(ctx SpecContext) {
		create(ctx, namespace, "a")
		create(ctx, namespace, "b")
		m := eirinix.NewManager(options)
		Expect(m.AddExtension(denies("no", eirinix.Settings{}))).To(Succeed())
		full := errors.New("the disk is full")
		summary, err := audit.Run(ctx, m, audit.Options{Finding: func(audit.Finding) error { return full }})
		Expect(err).To(MatchError(full))
		Expect(err).To(MatchError(HavePrefix("eirinix: audit: ")))
		Expect(summary.Findings["no"]).To(HaveKeyWithValue(audit.Denied, 1))
		short, cancel := context.WithCancelCause(ctx)
		gone := errors.New("enough")
		summary, err = audit.Run(short, m, audit.Options{Finding: func(audit.Finding) error { cancel(gone); return nil }})
		Expect(err).To(MatchError(gone))
		Expect(summary.Findings["no"]).To(HaveKeyWithValue(audit.Denied, 1))
	}, SpecTimeout(patience))

	It("sets metrics when it is complete", func(ctx SpecContext) {
		create(ctx, namespace, "a")
		ask(ctx, audit.Options{}, denies("measured", eirinix.Settings{}))
		families := Must(ctrlmetrics.Registry.Gather())
		values := map[string]float64{}
		for _, f := range families {
			for _, m := range f.GetMetric() {
				labels := ""
				for _, l := range m.GetLabel() {
					labels += " " + l.GetValue()
				}
				if strings.HasPrefix(f.GetName(), "eirinix_audit_") {
					values[f.GetName()+labels] = m.GetGauge().GetValue()
				}
			}
		}
		Expect(values).To(And(
			HaveKeyWithValue("eirinix_audit_objects measured", 1.), HaveKeyWithValue("eirinix_audit_findings denied measured", 1.),
			HaveKeyWithValue("eirinix_audit_findings unknown measured", 0.),
			HaveKeyWithValue("eirinix_audit_duration_seconds", BeNumerically(">", 0)),
			HaveKeyWithValue("eirinix_audit_last_completed_timestamp_seconds", BeNumerically(">", 1e9)),
		))
	}, SpecTimeout(patience))
})

var _ = DescribeTable("The options of an audit are checked, with a remedy",
	func(ctx SpecContext, o audit.Options, message string) {
		m := eirinix.NewManager(eirinix.ManagerOptions{Host: "127.0.0.1", RestConfig: &rest.Config{Host: "https://127.0.0.1:1"}})
		Expect(m.AddExtension(addEnv{})).To(Succeed())
		_, err := audit.Run(ctx, m, o)
		Expect(err).To(MatchError(And(HavePrefix("eirinix: audit.Options."), ContainSubstring(message))))
	},
	Entry("an unknown step", audit.Options{Steps: []string{"owner"}}, `Steps has "owner", but the steps are add-env`, SpecTimeout(patience)),
	Entry("a namespace that cannot be", audit.Options{Namespace: "a/b"}, `Namespace is "a/b"`, SpecTimeout(patience)),
	Entry("a negative page", audit.Options{PageSize: -1}, "PageSize is -1", SpecTimeout(patience)),
	Entry("a negative rate", audit.Options{PagesPerSecond: -0.5}, "PagesPerSecond is -0.5", SpecTimeout(patience)),
	Entry("a rate that is no number", audit.Options{PagesPerSecond: math.NaN()}, "PagesPerSecond is NaN", SpecTimeout(patience)),
	Entry("reports of some steps", audit.Options{Steps: []string{"add-env"}, PolicyReports: true}, "PolicyReports is set with Steps", SpecTimeout(patience)),
	Entry("an endless rate", audit.Options{PagesPerSecond: math.Inf(1)}, "PagesPerSecond is +Inf", SpecTimeout(patience)),
)

var _ = DescribeTable("A package beside the root needs a Manager",
	func(ctx SpecContext, use func(context.Context, *eirinix.ExtensionManager) error) {
		Expect(use(ctx, nil)).To(MatchError("eirinix: there is no Manager; make one with NewManager"))
	},
	Entry("audit", func(ctx context.Context, m *eirinix.ExtensionManager) error {
		_, err := audit.Run(ctx, m, audit.Options{})
		return err
	}),
	Entry("manifests", func(_ context.Context, m *eirinix.ExtensionManager) error {
		_, err := manifests.Of(m, manifests.Options{})
		return err
	}),
	Entry("recording", func(_ context.Context, m *eirinix.ExtensionManager) error {
		_, err := recording.Start(m, recording.Options{})
		return err
	}),
)
