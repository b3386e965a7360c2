package audit

// Specs of whole audits, before an API server of a few lines.

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/go-logr/logr"
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"github.com/prometheus/client_golang/prometheus"
	admissionv1 "k8s.io/api/admission/v1"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/discovery"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"

	"code.cloudfoundry.org/eirinix/internal/chain"
	"code.cloudfoundry.org/eirinix/internal/modes"
	. "code.cloudfoundry.org/eirinix/internal/spectest"
	"code.cloudfoundry.org/eirinix/internal/webhookconf"
)

func TestAudit(t *testing.T) {
	RegisterFailHandler(Fail)
	RunSpecs(t, "internal/audit")
}

// denying is a step that denies each object of its rules, with the object's name.
func denying(name string, rules ...admissionregistrationv1.RuleWithOperations) Step {
	matcher := Must(chain.NewMatcher(rules, nil, nil))
	return Step{
		Name: name, Registered: webhookconf.Step{Name: name, Validating: true, Settings: webhookconf.Settings{Mode: webhookconf.ModeWarn}},
		Webhook: admissionregistrationv1.MutatingWebhook{Rules: rules},
		Served: chain.Step{Name: name, Matcher: matcher, New: func() runtime.Object { return &unstructured.Unstructured{} }, Run: func(_ context.Context, _ *chain.Call, _, obj runtime.Object) error {
			return apierrors.NewForbidden(corev1.Resource(""), "", errors.New(obj.(*unstructured.Unstructured).GetName()))
		}},
	}
}

// asRule makes a step judge objects by a Rule alone.
func asRule(s *Step) {
	deny := s.Served.Run
	s.Served.Run, s.Served.Rule = nil, func(ctx context.Context, c *chain.Call, obj runtime.Object) error { return deny(ctx, c, nil, obj) }
}

// kept keeps all that it receives, in order.
type kept struct {
	all  []string
	full error
}

func (k *kept) Add(_ context.Context, f Finding) error {
	k.all = append(k.all, strings.TrimSuffix(fmt.Sprintf("%s %s %s", f.Step, f.Result, f.Name), " "))
	return k.full
}

func (k *kept) Gap(g Gap) {
	k.all = append(k.all, strings.TrimSuffix(fmt.Sprintf("gap %s %s%s", g.Step, g.Resource.Resource, g.Namespace), " "))
}

func (k *kept) Close(context.Context) error {
	k.all = append(k.all, "closed")
	return nil
}

var _ = Describe("A whole audit", func() {
	// audit runs with an API server that answers by path; other lists are empty.
	audit := func(ctx context.Context, answers map[string]http.HandlerFunc, change func(*Config)) (Summary, []Finding, *kept, error) {
		GinkgoHelper()
		server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Content-Type", "application/json")
			if answer := answers[r.URL.Path]; answer != nil {
				answer(w, r)
				return
			}
			_, _ = io.WriteString(w, `{"metadata":{},"items":[]}`)
		}))
		DeferCleanup(server.Close)
		var found []Finding
		reports := &kept{}
		c := Config{
			Discovery: newDiscovered(servedText), Reports: reports, Modes: modes.New([]modes.Step{{Name: "pods", Mode: chain.ModeWarn}, {Name: "all"}}), Log: logr.Discard(),
			Client: Must(rest.UnversionedRESTClientFor(&rest.Config{Host: server.URL, QPS: -1, ContentConfig: rest.ContentConfig{NegotiatedSerializer: clientgoscheme.Codecs.WithoutConversion()}})),
			Steps: []Step{
				denying("pods", ruleFor("", "v1", "pods")), denying("shops", ruleFor("shop.example.org", "v1", "shops")), denying("all", ruleFor("", "*", "pods configmaps")),
			},
			Finding: func(f Finding) error { found = append(found, f); return nil },
		}
		if change != nil {
			change(&c)
		}
		l := &lister{client: c.Client, rate: &turns{}, pageSize: 500, log: c.Log, patience: time.Nanosecond, pageTime: time.Minute}
		s, err := run(ctx, c, l, func(context.Context, time.Duration) error { return nil })
		return s, found, reports, err
	}
	objects := map[string]http.HandlerFunc{
		"/api/v1/pods":                                 text(list("", "a/x", "b/y")),
		"/apis/shop.example.org/v1/shops":              text(list("", "a/s")),
		"/api/v1/namespaces/a/pods":                    text(list("", "a/x")),
		"/api/v1/namespaces/a/configmaps":              text(list("", "a/c")),
		"/apis/shop.example.org/v1/namespaces/a/shops": text(list("", "a/s")),
	}
	with := func(path string, answer http.HandlerFunc) map[string]http.HandlerFunc {
		changed := maps.Clone(objects)
		changed[path] = answer
		return changed
	}

	It("reports the findings by resource, and what is content, and closes the reports", func(ctx SpecContext) {
		s, found, reports, err := audit(ctx, objects, nil)
		Expect(err).NotTo(HaveOccurred())
		Expect(reports.all).To(Equal([]string{"pods denied x", "all denied x", "pods denied y", "all denied y", "shops denied s", "closed"}))
		Expect(found).To(HaveLen(5))
		Expect(found[4]).To(And(HaveField("Kind.Kind", "kind-of-shops"), HaveField("Mode", webhookconf.ModeDeny), HaveField("Namespace", "a")))
		Expect(found[0].Mode).To(Equal(webhookconf.ModeWarn), "the mode in force")
		Expect(s).To(Equal(Summary{
			Objects: 3, Asked: map[string]int{"pods": 2, "shops": 1, "all": 2},
			Findings: map[string]map[Result]int{"pods": {Denied: 2}, "shops": {Denied: 1}, "all": {Denied: 2}},
		}))
	})

	It("has a gap for the steps of a group that cannot be discovered", func(ctx SpecContext) {
		s, _, reports, err := audit(ctx, objects, func(c *Config) {
			c.Steps = append(c.Steps, denying("every", ruleFor("*", "*", "*")))
			c.Discovery.(*discovered).err = &discovery.ErrGroupDiscoveryFailed{Groups: map[schema.GroupVersion]error{{Group: "metrics.example.org", Version: "v1"}: errors.New("down")}}
		})
		Expect(err).To(MatchError(ContainSubstring("the resources of metrics.example.org/v1 cannot be read: down; see to its APIService")))
		Expect(s.Gaps).To(HaveExactElements(And(HaveField("Step", "every"), HaveField("Resource", schema.GroupVersionResource{Group: "metrics.example.org", Version: "v1"}))))
		Expect(reports.all).To(ContainElements("gap every", "every denied x"))
	})

	DescribeTable("goes on without a resource, which is a gap", func(ctx SpecContext, answer http.HandlerFunc, message, remedy string) {
		registry := prometheus.NewRegistry()
		metrics := Must(NewMetrics(registry))
		s, found, reports, err := audit(ctx, with("/api/v1/pods", answer), func(c *Config) { c.Metrics = metrics })
		incomplete, ok := errors.AsType[*IncompleteError](err)
		Expect(ok).To(BeTrue(), "%v", err)
		Expect(incomplete.Gaps).To(Equal(s.Gaps))
		Expect(s.Gaps).To(HaveExactElements(
			And(HaveField("Step", "pods"), HaveField("Resource.Resource", "pods"), HaveField("Objects", 0), HaveField("Reason", ContainSubstring(message)), HaveField("Remedy", remedy)),
			HaveField("Step", "all"),
		))
		Expect(found).To(ContainElements(
			And(HaveField("Step", "pods"), HaveField("Result", Unknown), HaveField("Message", ContainSubstring(message)), HaveField("Resource.Resource", "pods")),
			And(HaveField("Step", "all"), HaveField("Result", Unknown)),
			And(HaveField("Step", "shops"), HaveField("Result", Denied)),
		))
		Expect(s.Findings["pods"][Unknown]).To(Equal(1))
		Expect(reports.all).To(ContainElements("gap pods pods", "gap all pods"))
		Expect(reports.all[len(reports.all)-1]).To(Equal("closed"))
		Expect(Must(registry.Gather())).To(BeEmpty(), "it is not complete")
	},
		Entry("that is forbidden", status(http.StatusForbidden, "Forbidden", ""), `pods cannot be listed to the end: no`, `grant it with this rule of a ClusterRole: {apiGroups: [""], resources: ["pods"], verbs: ["list"]}`),
		Entry("that is gone", status(http.StatusNotFound, "NotFound", ""), "pods cannot be listed to the end: no", remedyServed),
		Entry("whose server is down", status(http.StatusServiceUnavailable, "ServiceUnavailable", ""), "pods cannot be listed to the end: no", remedyAgain),
		Entry("whose second page is forbidden", pages(text(list("2", "a/x")), status(http.StatusForbidden, "Forbidden", "")), "pods cannot be listed to the end: no", `grant it with this rule of a ClusterRole: {apiGroups: [""], resources: ["pods"], verbs: ["list"]}`),
		Entry("whose tokens expire again and again", pages(text(list("2", "a/x")), expired("2")), "pods cannot be listed to the end: no", remedyAgain),
		Entry("whose list becomes none", text(`{"items":[`+one("a/x")+`,{]}`), "is not a list in JSON", remedyAgain),
	)

	It("has a gap for the one namespace that is forbidden", func(ctx SpecContext) {
		answers := with("/api/v1/namespaces/b/pods", status(http.StatusForbidden, "Forbidden", ""))
		s, _, reports, err := audit(ctx, answers, func(c *Config) {
			c.Steps = c.Steps[:1]
			c.Steps[0].Webhook.NamespaceSelector = &metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{{Key: corev1.LabelMetadataName, Operator: "In", Values: []string{"a", "b"}}}}
		})
		Expect(err).To(HaveOccurred())
		Expect(reports.all).To(Equal([]string{"pods denied x", "gap pods podsb", "closed"}))
		Expect(s.Gaps).To(HaveExactElements(And(HaveField("Namespace", "b"), HaveField("Remedy", HavePrefix("grant it with this rule of a Role in the namespace b: ")))))
	})

	Describe("with a step that selects namespaces by labels", func() {
		team := func(c *Config) {
			c.Steps = c.Steps[:1]
			c.Steps[0].Webhook.NamespaceSelector = &metav1.LabelSelector{MatchLabels: map[string]string{"team": "x"}}
		}
		labelled := `{"metadata":{},"items":[{"metadata":{"name":"a","labels":{"team":"x"}}}]}`
		answers := func(namespaces, young http.HandlerFunc) map[string]http.HandlerFunc {
			all := with("/api/v1/namespaces", namespaces)
			all["/api/v1/namespaces/b"] = young
			return all
		}
		DescribeTable("has a gap where they cannot be read", func(ctx SpecContext, namespaces, young http.HandlerFunc, of string, reports ...string) {
			s, _, kept, err := audit(ctx, answers(namespaces, young), team)
			Expect(err).To(HaveOccurred())
			Expect(kept.all).To(Equal(reports))
			Expect(s.Gaps).To(HaveExactElements(And(HaveField("Namespace", of), HaveField("Reason", ContainSubstring("needs the labels team of namespaces")))))
		},
			Entry("if none may be listed", status(http.StatusForbidden, "Forbidden", ""), nil, "", "gap pods pods", "closed"),
			Entry("if the list fails", status(http.StatusInternalServerError, "InternalError", ""), nil, "", "gap pods pods", "closed"),
			Entry("if a young one is forbidden", text(labelled), status(http.StatusForbidden, "Forbidden", ""), "b", "pods denied x", "gap pods podsb", "closed"),
		)

		It("has none for a namespace that is gone, or has other labels", func(ctx SpecContext) {
			for _, other := range []http.HandlerFunc{status(http.StatusNotFound, "NotFound", ""), text(`{"metadata":{"name":"b","labels":{"team":"y"}}}`)} {
				_, _, kept, err := audit(ctx, answers(text(labelled), other), team)
				Expect(err).NotTo(HaveOccurred())
				Expect(kept.all).To(Equal([]string{"pods denied x", "closed"}))
			}
		})
	})

	It("has a gap for the objects about which a step fails, and none for those that do not decode", func(ctx SpecContext) {
		s, found, reports, err := audit(ctx, objects, func(c *Config) {
			c.Steps = c.Steps[:1]
			c.Steps[0].Served.Run = func(_ context.Context, _ *chain.Call, _, obj runtime.Object) error {
				return errors.New(obj.(*unstructured.Unstructured).GetName() + " is too much")
			}
		})
		Expect(err).To(MatchError(ContainSubstring("x is too much")))
		Expect(found).To(HaveLen(2))
		Expect(s.Gaps).To(HaveExactElements(
			And(HaveField("Namespace", "a"), HaveField("Objects", 1), HaveField("Reason", "x is too much")), And(HaveField("Namespace", "b"), HaveField("Objects", 1)),
		))
		Expect(reports.all).To(ContainElements("pods failed x", "pods failed y"))

		_, found, _, err = audit(ctx, objects, func(c *Config) {
			c.Steps = c.Steps[:1]
			c.Steps[0].Served.New = func() runtime.Object { return &undecodable{} }
		})
		Expect(err).NotTo(HaveOccurred())
		Expect(found).To(HaveEach(HaveField("Result", Failed)))
	})

	Describe("with a Conversion", func() {
		const crd = "shops.shop.example.org"
		listed := func(c *Config) {
			c.Steps = append(c.Steps[1:2:2], Step{Name: crd, Webhook: Converted(crd, "v1"), Converts: converting(shops())})
		}
		page := func(names ...string) http.HandlerFunc {
			var all []string
			for _, name := range names {
				all = append(all, fmt.Sprintf(`{"apiVersion":"shop.example.org/v1","kind":"Shop","metadata":{"namespace":"a","name":%q},"color":"red"}`, name))
			}
			return text(fmt.Sprintf(`{"metadata":{},"items":[%s]}`, strings.Join(all, ",")))
		}

		It("lists the objects once, also for a step about them, and reports both", func(ctx SpecContext) {
			s, found, reports, err := audit(ctx, with("/apis/shop.example.org/v1/shops", page("x", "odd")), listed)
			Expect(err).NotTo(HaveOccurred())
			Expect(reports.all).To(Equal([]string{crd + " drift x", "shops denied x", crd + " failed odd", "shops denied odd", "closed"}))
			Expect(found[0]).To(Equal(Finding{
				Step: crd, Result: Drift, Message: "v2 cannot hold /color, which annotations keep", Paths: []string{"/color"}, Namespace: "a", Name: "x",
				Kind: schema.GroupVersionKind{Group: "shop.example.org", Version: "v1", Kind: "kind-of-shops"}, Resource: schema.GroupVersionResource{Group: "shop.example.org", Version: "v1", Resource: "shops"},
			}))
			Expect(s).To(Equal(Summary{
				Objects: 2, Asked: map[string]int{crd: 2, "shops": 2}, Findings: map[string]map[Result]int{crd: {Drift: 1, Failed: 1}, "shops": {Denied: 2}},
			}))
		})

		It("has a gap for a list that fails with an object, which it names", func(ctx SpecContext) {
			fails := func(w http.ResponseWriter, _ *http.Request) {
				w.WriteHeader(http.StatusInternalServerError)
				_, _ = io.WriteString(w, `{"kind":"Status","apiVersion":"v1","status":"Failure","reason":"InternalError","code":500,"message":"conversion webhook for shop.example.org/v2, Kind=Shop failed: object 0 (Shop a/odd) from v2 to v1: no"}`)
			}
			s, _, reports, err := audit(ctx, with("/apis/shop.example.org/v1/shops", fails), listed)
			Expect(err).To(HaveOccurred())
			Expect(s.Gaps).To(ContainElement(And(HaveField("Step", crd), HaveField("Reason", ContainSubstring("object 0 (Shop a/odd) from v2 to v1: no")),
				HaveField("Remedy", HavePrefix("one object that cannot be converted makes the whole list fail: mend the conversion of the one that is named")))))
			Expect(reports.all).To(ConsistOf("gap "+crd+" shops", "gap shops shops", "closed"))
		})

		It("has a gap for a version that is not served", func(ctx SpecContext) {
			s, _, _, err := audit(ctx, objects, func(c *Config) {
				c.Steps = []Step{{Name: crd, Webhook: Converted(crd, "v7"), Converts: converting(shops())}}
			})
			Expect(err).To(HaveOccurred())
			Expect(s.Gaps).To(HaveExactElements(And(HaveField("Step", crd), HaveField("Remedy", remedyServed))))
		})
	})

	It("runs a step once for each object, and for few of them as other users", func(ctx SpecContext) {
		var names []string
		for n := range 100 {
			names = append(names, fmt.Sprintf("a/%03d", n))
		}
		users, runs := map[string]int{}, map[string]int{}
		_, _, reports, err := audit(ctx, with("/api/v1/pods", text(list("", names...))), func(c *Config) {
			rule := ruleFor("", "v1", "pods")
			rule.Operations = []admissionregistrationv1.OperationType{admissionregistrationv1.Create, admissionregistrationv1.Update}
			step := denying("pods", rule)
			step.Served.Run = func(_ context.Context, call *chain.Call, _, obj runtime.Object) error {
				Expect(call.Request.Operation).To(BeEquivalentTo("CREATE"))
				users[call.Request.UserInfo.Username]++
				runs[obj.(*unstructured.Unstructured).GetName()]++
				return nil
			}
			c.Steps = []Step{step}
		})
		Expect(err).NotTo(HaveOccurred())
		Expect(reports.all).To(HaveLen(101))
		Expect(runs).To(HaveLen(100))
		Expect(users).To(HaveLen(3))
		Expect(users).To(And(HaveKeyWithValue("kubernetes-admin", 7), ContainElement(100)), "the 1st, 2nd, 4th ... 64th")
	})

	DescribeTable("reports whether an object that violates a step can be edited", func(ctx SpecContext, frozen bool, change func(*Step), operations ...admissionregistrationv1.OperationType) {
		_, found, _, err := audit(ctx, objects, func(c *Config) {
			step := denying("pods", ruleFor("", "v1", "pods", operations...))
			change(&step)
			c.Steps = []Step{step}
		})
		Expect(err).NotTo(HaveOccurred())
		Expect(found).To(HaveLen(2))
		Expect(found).To(HaveEach(And(HaveField("Result", Denied), HaveField("Frozen", frozen))))
		Expect(strings.Contains(found[0].Text(), " (frozen: ")).To(Equal(frozen))
	},
		Entry("not if it is asked about updates", true, func(*Step) {}, admissionregistrationv1.Create, admissionregistrationv1.Update),
		Entry("not if it is asked about updates alone", true, func(*Step) {}, admissionregistrationv1.Update),
		Entry("if it is not", false, func(*Step) {}),
		Entry("if it denies transitions", false, func(s *Step) {
			deny := s.Served.Run
			s.Served.Run = func(ctx context.Context, c *chain.Call, oldObj, obj runtime.Object) error {
				if oldObj != nil && reflect.DeepEqual(oldObj, obj) {
					return nil
				}
				return deny(ctx, c, oldObj, obj)
			}
		}, admissionregistrationv1.Create, admissionregistrationv1.Update),
		Entry("if it is a rule", false, asRule, admissionregistrationv1.Create, admissionregistrationv1.Update),
		Entry("if it is a rule about updates alone", false, asRule, admissionregistrationv1.Update),
	)

	It("waits for the rate of the requests that steps send", func(ctx SpecContext) {
		other := httptest.NewServer(http.NotFoundHandler())
		DeferCleanup(other.Close)
		var waited time.Duration
		c := Config{RequestsPerSecond: 4}
		e := &engine{Config: c, users: newUsers(), pause: func(_ context.Context, d time.Duration) error { waited += d; return nil }}
		asks := denying("asks", ruleFor("", "v1", "pods"))
		asks.Served.Run = func(ctx context.Context, _ *chain.Call, _, _ runtime.Object) error {
			for range 6 {
				response, err := other.Client().Do(Must(http.NewRequestWithContext(ctx, http.MethodGet, other.URL, nil)))
				if err != nil {
					return err
				}
				Expect(response.Body.Close()).To(Succeed())
			}
			return nil
		}
		s, _, _ := newStep(asks, nil, logr.Discard())
		o := &object{target: &target{resource: resource{GroupVersionResource: corev1.SchemeGroupVersion.WithResource("pods")}}, head: &head{}}
		o.created = []byte(one("a/x"))
		Must(e.play(ctx, s, o.request(admissionv1.Create), 0))
		Expect(waited).To(Equal(1500 * time.Millisecond))
	})

	DescribeTable("ends with an error", func(ctx SpecContext, answer http.HandlerFunc, change func(*Config), message string) {
		_, _, reports, err := audit(ctx, with("/api/v1/pods", answer), change)
		Expect(err).To(MatchError(ContainSubstring(message)))
		Expect(reports.all).NotTo(ContainElement("closed"))
	},
		Entry("if it is not authenticated any more", status(http.StatusUnauthorized, "Unauthorized", ""), nil, "the API server does not list pods"),
		Entry("if the API server is gone", func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) }, nil, "the API server does not list pods"),
		Entry("if the cluster cannot be discovered", nil, func(c *Config) { c.Discovery.(*discovered).err = errors.New("down") }, "the resources that the cluster serves cannot be read: down"),
		Entry("if its reports fail", text(list("", "a/x")), func(c *Config) { c.Reports.(*kept).full = errors.New("full") }, "full"),
	)

	It("reports steps that are asked about nothing", func(ctx SpecContext) {
		odd := denying("odd", ruleFor("", "v1", "pods"))
		odd.Webhook.NamespaceSelector = &metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{{Key: "a", Operator: "Like"}}}
		s, found, _, err := audit(ctx, objects, func(c *Config) {
			c.Steps = []Step{denying("gone", ruleFor("gone.example.org", "v1", "things")), {Name: "waits", Waits: errors.New("no such kind")}, odd}
		})
		Expect(err).To(HaveOccurred())
		Expect(s.Gaps).To(HaveLen(3))
		Expect(found).To(ConsistOf(
			And(HaveField("Step", "gone"), HaveField("Result", Unknown), HaveField("Message", ContainSubstring("serves no resource"))),
			And(HaveField("Step", "waits"), HaveField("Result", Unknown), HaveField("Message", HavePrefix("no such kind; "))),
			And(HaveField("Step", "odd"), HaveField("Result", Unknown), HaveField("Message", ContainSubstring("namespaceSelector"))),
		))
		Expect(s.Asked).To(Equal(map[string]int{"gone": 0, "waits": 0, "odd": 0}))
	})

	It("reports an object that is none, once for each step", func(ctx SpecContext) {
		s, found, _, err := audit(ctx, with("/api/v1/pods", text(`{"items":[5]}`)), func(c *Config) { c.Steps = c.Steps[:1] })
		Expect(err).NotTo(HaveOccurred())
		Expect(found).To(HaveExactElements(And(HaveField("Result", Failed), HaveField("Name", ""), HaveField("Message", ContainSubstring("does not decode")))))
		Expect(s.Objects).To(Equal(1))
	})
})

// pages answers the first request with the first answer, and all others with the second.
func pages(first, others http.HandlerFunc) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Query().Has("continue") {
			others(w, r)
			return
		}
		first(w, r)
	}
}

// undecodable is an object that no text decodes into.
type undecodable struct{ unstructured.Unstructured }

func (*undecodable) UnmarshalJSON([]byte) error { return errors.New("no") }
