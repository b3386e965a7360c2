package audit

// Specs of whole audits, before an API server of a few lines.

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"time"

	"github.com/go-logr/logr"
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
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

	"code.cloudfoundry.org/eirinix/internal/admit"
	. "code.cloudfoundry.org/eirinix/internal/spectest"
	"code.cloudfoundry.org/eirinix/internal/webhookconf"
)

// denying is a step that denies each object of its rules, with the object's name.
func denying(name string, rules ...admissionregistrationv1.RuleWithOperations) Step {
	matcher := Must(admit.NewMatcher(rules, nil, nil))
	return Step{
		Name: name, Registered: webhookconf.Step{Name: name, Validating: true, Settings: webhookconf.Settings{Mode: webhookconf.ModeWarn}},
		Webhook: admissionregistrationv1.MutatingWebhook{Rules: rules},
		Served: admit.Step{Name: name, Matcher: matcher, New: func() runtime.Object { return &unstructured.Unstructured{} }, Run: func(_ context.Context, _ *admit.Call, _, obj runtime.Object) error {
			return apierrors.NewForbidden(corev1.Resource(""), "", errors.New(obj.(*unstructured.Unstructured).GetName()))
		}},
	}
}

// kept keeps what it receives, in order.
type kept struct {
	all  []string
	full error
}

func (k *kept) Add(_ context.Context, f Finding) error {
	k.all = append(k.all, strings.TrimSuffix(fmt.Sprintf("%s %s %s", f.Step, f.Result, f.Name), " "))
	return k.full
}

func (k *kept) Asked(r schema.GroupVersionResource, namespace string) {
	k.all = append(k.all, "asked "+r.Resource+namespace)
}

func (k *kept) Close(_ context.Context, complete bool) error {
	k.all = append(k.all, fmt.Sprintf("closed %t", complete))
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
			Discovery: newDiscovered(servedText), Reports: reports, Log: logr.Discard(),
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
		s, err := run(ctx, c, l)
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
		changed := map[string]http.HandlerFunc{path: answer}
		for p, h := range objects {
			if p != path {
				changed[p] = h
			}
		}
		return changed
	}

	It("reports the findings by resource, and that it is complete", func(ctx SpecContext) {
		s, found, reports, err := audit(ctx, objects, nil)
		Expect(err).NotTo(HaveOccurred())
		Expect(reports.all).To(Equal([]string{
			"pods denied x", "all denied x", "pods denied y", "all denied y", "asked pods", "shops denied s", "asked shops", "asked configmaps", "closed true",
		}))
		Expect(found).To(HaveLen(5))
		Expect(found[4]).To(And(HaveField("Kind.Kind", "kind-of-shops"), HaveField("Mode", webhookconf.ModeWarn), HaveField("Namespace", "a")))
		Expect(s).To(Equal(Summary{
			Objects: 3, Asked: map[string]int{"pods": 2, "shops": 1, "all": 2},
			Findings: map[string]map[Result]int{"pods": {Denied: 2}, "shops": {Denied: 1}, "all": {Denied: 2}},
		}))
	})

	DescribeTable("is not complete", func(ctx SpecContext, change func(*Config)) {
		_, _, reports, err := audit(ctx, objects, change)
		Expect(err).NotTo(HaveOccurred())
		Expect(reports.all).To(endWith("closed false"))
	},
		Entry("if it is limited to a namespace", func(c *Config) { c.Namespace = "a" }),
		Entry("if it is limited to some steps", func(c *Config) { c.Partial = true }),
		Entry("if a group cannot be discovered", func(c *Config) {
			c.Steps = append(c.Steps, denying("every", ruleFor("*", "*", "*")))
			c.Discovery.(*discovered).err = &discovery.ErrGroupDiscoveryFailed{Groups: map[schema.GroupVersion]error{{Group: "metrics.example.org", Version: "v1"}: errors.New("down")}}
		}),
	)

	DescribeTable("goes on without a resource", func(ctx SpecContext, answer http.HandlerFunc, message string) {
		s, found, reports, err := audit(ctx, with("/api/v1/pods", answer), nil)
		Expect(err).NotTo(HaveOccurred())
		Expect(found).To(ContainElements(
			And(HaveField("Step", "pods"), HaveField("Result", Untold), HaveField("Message", ContainSubstring(message)), HaveField("Resource.Resource", "pods")),
			And(HaveField("Step", "all"), HaveField("Result", Untold)),
			And(HaveField("Step", "shops"), HaveField("Result", Denied)),
		))
		Expect(s.Findings["pods"][Untold]).To(Equal(1))
		Expect(reports.all).To(And(ContainElement("asked configmaps"), Not(ContainElement("asked pods")), endWith("closed false")))
	},
		Entry("that is forbidden", status(http.StatusForbidden, "Forbidden", ""), `pods may not be listed; grant it with this rule of a ClusterRole: {apiGroups: [""], resources: ["pods"], verbs: ["list"]}`),
		Entry("that is gone", status(http.StatusNotFound, "NotFound", ""), "pods cannot be listed to the end: no"),
		Entry("whose server is down", status(http.StatusServiceUnavailable, "ServiceUnavailable", ""), "pods cannot be listed to the end: no"),
		Entry("whose list is none", text(`<html>`), "is not a list in JSON"),
		Entry("whose list becomes none", text(`{"items":[`+one("a/x")+`,{]}`), "is not a list in JSON"),
	)

	DescribeTable("ends with an error", func(ctx SpecContext, answer http.HandlerFunc, change func(*Config), message string) {
		_, _, reports, err := audit(ctx, with("/api/v1/pods", answer), change)
		Expect(err).To(MatchError(ContainSubstring(message)))
		Expect(reports.all).To(endWith("closed false"))
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
		Expect(err).NotTo(HaveOccurred())
		Expect(found).To(ConsistOf(
			And(HaveField("Step", "gone"), HaveField("Result", Untold), HaveField("Message", ContainSubstring("serves no resource"))),
			And(HaveField("Step", "waits"), HaveField("Result", Untold), HaveField("Message", "no such kind")),
			And(HaveField("Step", "odd"), HaveField("Result", Failed), HaveField("Message", ContainSubstring("namespaceSelector"))),
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

// endWith matches a list whose last word is this one.
func endWith(word string) OmegaMatcher {
	return WithTransform(func(all []string) string { return all[len(all)-1] }, Equal(word))
}
