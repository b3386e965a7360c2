package eirinix_test

// This file specifies what an audit finds in a real API server, for which objects it asks, at which cost, and which reports it
// writes.

import (
	"context"
	"errors"
	"fmt"
	"math"
	"net/http"
	"path/filepath"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	admissionv1 "k8s.io/api/admission/v1"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/envtest"
	ctrlmetrics "sigs.k8s.io/controller-runtime/pkg/metrics"

	"code.cloudfoundry.org/eirinix"
	"code.cloudfoundry.org/eirinix/audit"
	. "code.cloudfoundry.org/eirinix/internal/spectest"
	"code.cloudfoundry.org/eirinix/manifests"
	"code.cloudfoundry.org/eirinix/recording"
)

// noted is a connection that notes each request as its method and path, and the limits of lists.
func noted(requests, limits *[]string) *rest.Config {
	var mu sync.Mutex
	return between(func(r *http.Request, next http.RoundTripper) (*http.Response, error) {
		mu.Lock()
		defer mu.Unlock()
		*requests = append(*requests, r.Method+" "+r.URL.Path)
		if limit := r.URL.Query().Get("limit"); limit != "" && limits != nil {
			*limits = append(*limits, limit)
		}
		return next.RoundTrip(r)
	})
}

// auditOf audits a Manager with these options and steps, and returns all findings.
func auditOf(ctx context.Context, options eirinix.ManagerOptions, o audit.Options, added ...any) (found []audit.Finding, summary audit.Summary, err error) {
	GinkgoHelper()
	o.Finding = func(f audit.Finding) error { found = append(found, f); return nil }
	summary, err = audit.Run(ctx, managerWith(options, added...), o)
	return found, summary, err
}

// says matches a finding whose text has a part.
func says(step string, result audit.Result, name, part string) OmegaMatcher {
	return And(HaveField("Step", step), HaveField("Result", result), HaveField("Name", name), HaveField("Text()", ContainSubstring(part)))
}

// createMap creates a ConfigMap with labels that are given as pairs.
func createMap(ctx context.Context, namespace, name string, labels ...string) *corev1.ConfigMap {
	GinkgoHelper()
	cm := newConfigMap(name, map[string]string{"password": "hunter2"})
	for pair := range slices.Chunk(labels, 2) {
		metav1.SetMetaDataLabel(&cm.ObjectMeta, pair[0], pair[1])
	}
	return Must(clients().CoreV1().ConfigMaps(namespace).Create(ctx, cm, metav1.CreateOptions{}))
}

// checks is a Validation of ConfigMaps, on CREATE.
func checks(id string, s eirinix.Settings, check func(*eirinix.Call, *corev1.ConfigMap) error) eirinix.Validation[*corev1.ConfigMap] {
	return eirinix.Validation[*corev1.ConfigMap]{ID: id, Settings: s, Create: func(_ context.Context, c *eirinix.Call, cm *corev1.ConfigMap) error {
		return check(c, cm)
	}}
}

func denies(id string, s eirinix.Settings) eirinix.Validation[*corev1.ConfigMap] {
	return checks(id, s, func(*eirinix.Call, *corev1.ConfigMap) error { return eirinix.Deny("no") })
}

// stages is a Mutation that writes the label stage into ConfigMaps.
func stages(s eirinix.Settings) eirinix.Mutation[*corev1.ConfigMap] {
	return eirinix.Mutation[*corev1.ConfigMap]{ID: "stage", Settings: s, Apply: func(_ context.Context, _ *eirinix.Call, cm *corev1.ConfigMap) error {
		metav1.SetMetaDataLabel(&cm.ObjectMeta, "stage", "test")
		return nil
	}}
}

var _ = Describe("An audit", Label("api-server"), func() {
	var namespace string
	var options eirinix.ManagerOptions
	BeforeEach(func(ctx SpecContext) {
		namespace = newNamespace(ctx)
		options = urlOptions(namespace)
	})

	It("reports denials and drift with the object, writes nothing and registers nothing", func(ctx SpecContext) {
		var requests []string
		options.RestConfig = noted(&requests, nil)
		bare := createMap(ctx, namespace, "bare")
		createMap(ctx, namespace, "good", "owner", "me", "stage", "test")
		var odd []any // requests that are not as an API server sends them
		owner := checks("owner", eirinix.Settings{}, func(c *eirinix.Call, cm *corev1.ConfigMap) error {
			if c.DryRun == nil || !*c.DryRun || c.Name != cm.Name || c.Namespace != namespace || c.UID == "" || c.Options.Raw == nil ||
				cm.UID != "" || cm.ResourceVersion != "" || !cm.CreationTimestamp.IsZero() || len(cm.ManagedFields) > 0 {
				odd = append(odd, c)
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
			if c.DryRun == nil || !*c.DryRun || oldCM.UID == "" || oldCM.UID != cm.UID || cm.ResourceVersion == "" ||
				oldCM.Labels["stage"] == "test" && cm.Name == "bare" || cm.Labels["stage"] != "test" {
				odd = append(odd, c)
			}
			return nil
		}}
		var pages []audit.Progress
		found, summary, err := auditOf(ctx, options, audit.Options{Progress: func(p audit.Progress) { pages = append(pages, p) }}, stages(eirinix.Settings{}), owner, updates)
		Expect(err).NotTo(HaveOccurred())
		Expect(odd).To(BeEmpty())
		of := func(step string, result audit.Result, message string, paths ...string) audit.Finding {
			return audit.Finding{
				Step: step, Mode: eirinix.ModeDeny, Result: result, Operation: admissionv1.Create, Message: message, Paths: paths,
				Kind: corev1.SchemeGroupVersion.WithKind("ConfigMap"), Resource: corev1.SchemeGroupVersion.WithResource("configmaps"),
				Namespace: namespace, Name: "bare", UID: bare.UID,
			}
		}
		denied := of("owner", audit.Denied, "set the label owner")
		denied.Frozen = true
		Expect(found).To(Equal([]audit.Finding{of("stage", audit.Drift, "it would change the object", "/metadata/labels"), denied}))
		Expect(fmt.Sprint(found)).NotTo(ContainSubstring("hunter2"))
		Expect(summary).To(Equal(audit.Summary{
			Objects: 2, Asked: map[string]int{"stage": 2, "owner": 2, "updates": 2},
			Findings: map[string]map[audit.Result]int{"stage": {audit.Drift: 1}, "owner": {audit.Denied: 1}},
		}))
		Expect(pages).To(Equal([]audit.Progress{{Resource: corev1.SchemeGroupVersion.WithResource("configmaps"), Listed: 2, Objects: 2, Findings: 2}}))
		Expect(requests).To(HaveEach(HavePrefix("GET ")))
		Expect(requests).To(ContainElement(Equal("GET /api/v1/namespaces/"+namespace+"/configmaps"), &requests))
		Expect(requests).To(HaveLen(1))
		_, err = clients().AdmissionregistrationV1().MutatingWebhookConfigurations().Get(ctx, namespace+"-mutating-hook", metav1.GetOptions{})
		Expect(err).To(MatchError(ContainSubstring("not found")))
	}, SpecTimeout(patience))

	It("lists pages of 500 objects, at most ten in a second", func(ctx SpecContext) {
		var requests, limits []string
		options.RestConfig = noted(&requests, &limits)
		for n := range 7 {
			createMap(ctx, namespace, "n"+strconv.Itoa(n))
		}
		var remaining []int
		began := time.Now()
		_, summary, err := auditOf(ctx, options, audit.Options{PageSize: 3, Progress: func(p audit.Progress) { remaining = append(remaining, p.Remaining) }}, denies("no", eirinix.Settings{}))
		Expect(err).NotTo(HaveOccurred())
		Expect(time.Since(began)).To(BeNumerically(">=", 200*time.Millisecond))
		Expect(summary.Findings["no"]).To(HaveKeyWithValue(audit.Denied, 7))
		Expect(remaining).To(Equal([]int{4, 1, 0}))

		By("sending the requests of steps at their rate")
		began = time.Now()
		_, _, err = auditOf(ctx, options, audit.Options{StepRequestsPerSecond: 10}, eirinix.Validation[*corev1.ConfigMap]{ID: "asks", Create: func(ctx context.Context, c *eirinix.Call, cm *corev1.ConfigMap) error {
			_, err := Must(c.Manager.GetKubeClient()).ConfigMaps(cm.Namespace).Get(ctx, cm.Name, metav1.GetOptions{})
			return err
		}})
		Expect(err).NotTo(HaveOccurred())
		Expect(time.Since(began)).To(BeNumerically(">=", 700*time.Millisecond))
		Expect(limits).To(Equal([]string{"3", "3", "3", "500"}))
	}, SpecTimeout(patience))

	It("reports what each step would say, goes on after failures, and names what it cannot ask", func(ctx SpecContext) {
		for _, name := range []string{"a", "b", "c"} {
			createMap(ctx, namespace, name, "app", "web")
		}
		conditional := func(id, expression string) any {
			return denies(id, eirinix.Settings{Conditions: []admissionregistrationv1.MatchCondition{{Name: "c", Expression: expression}}})
		}
		keep := checks("keep", eirinix.Settings{}, func(*eirinix.Call, *corev1.ConfigMap) error { return nil })
		keep.Delete = func(context.Context, *eirinix.Call, *corev1.ConfigMap) error { panic("never asked") }
		found, summary, err := auditOf(ctx, options, audit.Options{},
			eirinix.Mutation[*corev1.ConfigMap]{ID: "many", Settings: eirinix.Settings{Mode: eirinix.ModeWarn}, Apply: func(_ context.Context, _ *eirinix.Call, cm *corev1.ConfigMap) error {
				for n := range 60 {
					if cm.Name == "c" {
						cm.Labels[fmt.Sprintf("l%02d", n)] = "x"
					}
				}
				return nil
			}},
			checks("panics", eirinix.Settings{}, func(_ *eirinix.Call, cm *corev1.ConfigMap) error {
				if cm.Name != "c" {
					panic("no label " + cm.Name)
				}
				return eirinix.Deny("calm")
			}),
			checks("fails", eirinix.Settings{FailurePolicy: admissionregistrationv1.Ignore}, func(_ *eirinix.Call, cm *corev1.ConfigMap) error {
				if cm.Name == "a" {
					return errors.New("the other side is down")
				}
				return nil
			}),
			keep,
			eirinix.Subresource[*corev1.PodExecOptions]{
				ID: "exec", Resource: corev1.SchemeGroupVersion.WithResource("pods"), Subresource: "exec",
				Check: func(context.Context, *eirinix.Call, *corev1.PodExecOptions, *corev1.PodExecOptions) error {
					panic("never asked")
				},
			},
			conditional("objects", "object.metadata.name == 'a' || object.metadata.name == 'c' && object.missing == 1"),
			conditional("users", "request.userInfo.username != 'a'"),
			conditional("broken", "object.spec ="),
			ofShops("gone.example.org", "shops"),
		)
		Expect(found).To(ConsistOf(
			And(says("many", audit.Drift, "c", "/metadata/labels/l00, /metadata/labels/l01"), HaveField("Paths", HaveLen(50)), HaveField("Message", ContainSubstring("10 more"))),
			says("panics", audit.Failed, "a", "it panicked: no label a"), says("panics", audit.Denied, "c", "calm"), // the second panic is only counted
			says("fails", audit.Failed, "a", "the other side is down"),
			says("keep", audit.Unknown, "", "DELETE of configmaps"),
			says("exec", audit.Unknown, "", "pods/exec"),
			says("objects", audit.Denied, "a", "no"),
			And(says("objects", audit.Failed, "c", "no such key"), HaveField("Message", HaveSuffix("; the API server then refuses the object"))),
			says("users", audit.Unknown, "", "depends on the user"),
			says("broken", audit.Unknown, "", "correct Settings.Conditions"),
			says("shops", audit.Unknown, "", "CustomResourceDefinition"),
		))
		Expect(summary.Asked).To(And(HaveKeyWithValue("keep", 3), HaveKeyWithValue("exec", 0)))
		Expect(summary.Findings["panics"]).To(Equal(map[audit.Result]int{audit.Failed: 2, audit.Denied: 1}))
		incomplete, ok := errors.AsType[*audit.IncompleteError](err)
		Expect(ok).To(BeTrue(), "%v", err)
		Expect(incomplete.Gaps).To(Equal(summary.Gaps))
		Expect(summary.Gaps).To(ContainElements(
			And(HaveField("Step", "fails"), HaveField("Objects", 1), HaveField("Reason", "the other side is down")), HaveField("Step", "shops")))
	}, SpecTimeout(patience))

	It("notices results that depend on the user, or on nothing", func(ctx SpecContext) {
		createMap(ctx, namespace, "a")
		createMap(ctx, namespace, "b")
		var asked, run, flaky atomic.Int64
		found, summary, err := auditOf(ctx, options, audit.Options{},
			checks("admins", eirinix.Settings{}, func(c *eirinix.Call, _ *corev1.ConfigMap) error {
				if slices.Contains(c.UserInfo.Groups, "system:masters") {
					return nil
				}
				return eirinix.Deny("ask an administrator")
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
		Expect(err).To(HaveOccurred())
		Expect(found).To(ConsistOf(
			says("admins", audit.Unknown, "", "depends on the user"), says("moody", audit.Unknown, "", "from run to run"),
			says("flaky", audit.Failed, "a", "try again"), says("knows", audit.Unknown, "", "Settings.DependsOnUser"),
		))
		Expect(asked.Load()).To(BeZero())
		Expect(summary.Asked).To(And(HaveKeyWithValue("knows", 0), HaveKeyWithValue("admins", 1), HaveKeyWithValue("flaky", 2)))
		Expect(summary.Gaps).To(HaveExactElements(And(HaveField("Step", "flaky"), HaveField("Objects", 1), HaveField("Reason", "try again"))))
	}, SpecTimeout(patience))

	It("asks about exactly those objects for which the API server would call the step", func(ctx SpecContext) {
		var requests []string
		options.RestConfig = noted(&requests, nil)
		options.ServiceName, options.WebhookNamespace, options.Host = "extensions", namespace, ""
		team := NewNamespace(ctx, clients(), map[string]string{"spec-team": namespace}).Name
		for _, in := range []string{namespace, team} {
			createMap(ctx, in, "plain")
			createMap(ctx, in, "web", "app", "web")
			owned := newConfigMap("owned", nil)
			owned.OwnerReferences = []metav1.OwnerReference{{APIVersion: "v1", Kind: "Pod", Name: "p", UID: "u", Controller: new(true)}}
			Must(clients().CoreV1().ConfigMaps(in).Create(ctx, owned, metav1.CreateOptions{}))
		}
		Must(createPod(ctx, namespace, NewPod("web", nil)))
		Must(createPod(ctx, namespace, NewPod("own", map[string]string{"eirinix.cloudfoundry.org/fingerprint": namespace})))
		ofTeam := eirinix.Settings{Namespaces: &metav1.LabelSelector{MatchLabels: map[string]string{"spec-team": namespace}}}
		webOfTeam := ofTeam
		webOfTeam.Objects = &metav1.LabelSelector{MatchLabels: map[string]string{"app": "web"}}
		steps := []any{
			denies("here", eirinix.Settings{}), denies("there", ofTeam), denies("web", webOfTeam),
			addEnv{},
			eirinix.Mutation[*corev1.ConfigMap]{ID: "unowned", Settings: eirinix.Settings{Owned: eirinix.OwnedSkip}, Apply: func(context.Context, *eirinix.Call, *corev1.ConfigMap) error { return eirinix.Deny("no") }},
			eirinix.Validation[*corev1.Namespace]{ID: "namespaces", Settings: ofTeam, Create: func(_ context.Context, c *eirinix.Call, _ *corev1.Namespace) error {
				return eirinix.Deny("%s/%s", c.Namespace, c.Name)
			}},
		}
		found, summary, err := auditOf(ctx, options, audit.Options{}, steps...)
		Expect(err).NotTo(HaveOccurred())
		names := map[string][]string{}
		for _, f := range found {
			names[f.Step] = append(names[f.Step], f.Namespace+"/"+f.Name)
		}
		Expect(names).To(Equal(map[string][]string{
			"here":       {namespace + "/owned", namespace + "/plain", namespace + "/web"},
			"there":      {team + "/owned", team + "/plain", team + "/web"},
			"web":        {team + "/web"},
			"unowned":    {namespace + "/plain", namespace + "/web"},
			"namespaces": {"/" + team},
			"add-env":    {namespace + "/web"},
		}))
		Expect(found).To(ContainElement(says("namespaces", audit.Denied, team, team+"/"+team)))
		Expect(summary.Objects).To(Equal(8))
		Expect(requests).NotTo(ContainElement("GET /api/v1/namespaces/"+team), "the labels of all namespaces come in lists")

		By("limiting the audit to one namespace and one step")
		found, summary, err = auditOf(ctx, options, audit.Options{Namespace: team, Steps: []string{"there"}}, steps...)
		Expect(err).NotTo(HaveOccurred())
		Expect(found).To(And(HaveLen(3), HaveEach(And(HaveField("Step", "there"), HaveField("Namespace", team)))))
		Expect(summary.Asked).To(Equal(map[string]int{"there": 3}))
	}, SpecTimeout(patience))

	It("reports the mode in force, and passes on what that changes", func(ctx SpecContext) {
		team := NewNamespace(ctx, clients(), map[string]string{"spec-team": namespace}).Name
		options.Namespace, options.WebhookNamespace, options.ModesConfigMap = "", namespace, "modes"
		for _, in := range []string{namespace, team} {
			createMap(ctx, in, "a", "spec-modes", "yes")
		}
		ours := eirinix.Settings{
			Mode: eirinix.ModeShadow, Objects: &metav1.LabelSelector{MatchLabels: map[string]string{"spec-modes": "yes"}},
			Namespaces: &metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{{Key: corev1.LabelMetadataName, Operator: metav1.LabelSelectorOpIn, Values: []string{namespace, team}}}},
		}
		sees := checks("sees", ours, func(_ *eirinix.Call, cm *corev1.ConfigMap) error { return eirinix.Deny("stage %q", cm.Labels["stage"]) })
		found := func(m *eirinix.ExtensionManager) (all []string) {
			GinkgoHelper()
			Must(audit.Run(ctx, m, audit.Options{Finding: func(f audit.Finding) error {
				place := map[string]string{namespace: "here", team: "team"}[f.Namespace]
				all = append(all, fmt.Sprintf("%s %s %s %s", f.Step, place, f.Mode, f.Message))
				return nil
			}}))
			return all
		}
		const changes = "it would change the object"
		Expect(found(managerWith(options, stages(ours), sees))).To(ConsistOf(
			"stage here Shadow "+changes, "stage team Shadow "+changes, `sees here Shadow stage ""`, `sees team Shadow stage ""`), "there is no ConfigMap yet")
		Must(clients().CoreV1().ConfigMaps(namespace).Create(ctx, newConfigMap("modes", map[string]string{
			"stage": "Deny where spec-team=" + namespace + "\nWarn", "sees": "Audit",
		}), metav1.CreateOptions{}))
		expected := ConsistOf("stage here Warn "+changes, "stage team Deny "+changes, `sees here Audit stage ""`, `sees team Audit stage "test"`)
		Expect(found(managerWith(options, stages(ours), sees))).To(expected)

		By("running")
		m := managerWith(options, stages(ours), sees)
		runManager(ctx, m)
		Eventually(found).WithArguments(m).WithContext(ctx).WithTimeout(patience).Should(expected)

		By("lacking the right to read the ConfigMap")
		options.RestConfig = userWith(ctx, namespace, nil, []rbacv1.PolicyRule{{APIGroups: []string{""}, Resources: []string{"configmaps", "namespaces"}, Verbs: []string{"list"}}})
		Eventually(func(g Gomega) {
			found, summary, err := auditOf(ctx, options, audit.Options{}, stages(ours), sees)
			g.Expect(err).NotTo(HaveOccurred())
			g.Expect(found).To(HaveEach(HaveField("Mode", eirinix.ModeShadow)))
			g.Expect(summary.Notes).To(ConsistOf(And(ContainSubstring("the modes are the program's own"), ContainSubstring(namespace+"/modes"))))
		}).WithContext(ctx).WithTimeout(patience).Should(Succeed())
	}, SpecTimeout(4*patience))

	It("converts the objects of a Conversion in the version in which they are stored, if that is served", func(ctx SpecContext) {
		group, cluster := namespace+".example.com", anyClient()
		crd := "shops." + group
		_, summary, err := auditOf(ctx, options, audit.Options{}, notedShops(group))
		Expect(err).To(HaveOccurred())
		Expect(summary.Gaps).To(HaveExactElements(And(
			HaveField("Step", crd), HaveField("Reason", And(ContainSubstring("its CustomResourceDefinition cannot be read"), ContainSubstring("not found"))),
			HaveField("Remedy", ContainSubstring("with its CustomResourceDefinition")))))

		Expect(cluster.Create(ctx, twoVersions(group))).To(Succeed())
		DeferCleanup(cluster.Delete, twoVersions(group))
		shop := newShop(group, namespace, "a")
		shop.Object["note"] = "red"
		Eventually(func() error { return cluster.Create(ctx, shop.DeepCopy()) }).WithContext(ctx).WithTimeout(patience).Should(Succeed())
		audited := func(version string, loses OmegaMatcher) {
			GinkgoHelper()
			Eventually(func(g Gomega) { // the API server observes the definition
				var requests []string
				options.RestConfig = noted(&requests, nil)
				found, summary, err := auditOf(ctx, options, audit.Options{Steps: []string{crd}}, notedShops(group), ofShops(group, "shops"))
				g.Expect(err).NotTo(HaveOccurred())
				g.Expect(found).To(loses)
				g.Expect(summary.Asked).To(Equal(map[string]int{crd: 1}))
				g.Expect(requests).To(And(HaveEach(HavePrefix("GET ")), ContainElement("GET /apis/"+group+"/"+version+"/shops")))
			}).WithContext(ctx).WithTimeout(patience).Should(Succeed())
		}
		loses := ConsistOf(says(crd, audit.Drift, "a", "v1beta1 cannot hold /note, which annotations keep"))
		audited("v1", loses)
		edit := func(patch string) {
			GinkgoHelper()
			Expect(cluster.Patch(ctx, definition(group), client.RawPatch(types.JSONPatchType, []byte(patch)))).To(Succeed())
		}
		edit(`[{"op":"replace","path":"/spec/versions/0/storage","value":false},{"op":"replace","path":"/spec/versions/1/storage","value":true}]`)
		audited("v1beta1", ConsistOf(says(crd, audit.Drift, "a", "v1 cannot hold /note, which annotations keep")))
		edit(`[{"op":"replace","path":"/spec/versions/1/served","value":false}]`)
		audited("v1", loses)
	}, SpecTimeout(4*patience))

	It("sets metrics when it is complete", func(ctx SpecContext) {
		createMap(ctx, namespace, "a")
		_, _, err := auditOf(ctx, options, audit.Options{}, denies("measured", eirinix.Settings{}))
		Expect(err).NotTo(HaveOccurred())
		Expect(Shown(ctrlmetrics.Registry, "eirinix_audit_objects", "eirinix_audit_findings", "eirinix_audit_duration_seconds", "eirinix_audit_last_completed_timestamp_seconds")).To(And(
			ContainSubstring(`eirinix_audit_objects{step="measured"} 1`), ContainSubstring(`eirinix_audit_findings{result="denied",step="measured"} 1`),
			ContainSubstring(`eirinix_audit_findings{result="unknown",step="measured"} 0`),
			MatchRegexp(`(?m)^eirinix_audit_duration_seconds .*[1-9]`), MatchRegexp(`(?m)^eirinix_audit_last_completed_timestamp_seconds [1-9].*e\+09`),
		))
	}, SpecTimeout(patience))
})

// ofShops is a step about a kind without a Go type, which denies.
func ofShops(group, id string) eirinix.Validation[*unstructured.Unstructured] {
	return eirinix.Validation[*unstructured.Unstructured]{
		ID: id, Settings: eirinix.Settings{Rules: []admissionregistrationv1.RuleWithOperations{{
			Operations: []admissionregistrationv1.OperationType{admissionregistrationv1.Create},
			Rule:       admissionregistrationv1.Rule{APIGroups: []string{group}, APIVersions: []string{"v1"}, Resources: []string{"shops"}},
		}}},
		Create: func(context.Context, *eirinix.Call, *unstructured.Unstructured) error { return eirinix.Deny("no") },
	}
}

var _ = DescribeTable("The options of an audit are checked, with a remedy",
	func(ctx SpecContext, o audit.Options, message string) {
		m := managerWith(eirinix.ManagerOptions{Host: "127.0.0.1", RestConfig: &rest.Config{Host: "https://127.0.0.1:1"}}, denies("no", eirinix.Settings{}))
		_, err := audit.Run(ctx, m, o)
		Expect(err).To(MatchError(ContainSubstring(message)))
	},
	Entry("an unknown step", audit.Options{Steps: []string{"owner"}}, `eirinix: audit.Options.Steps has "owner", but the steps are no`, SpecTimeout(patience)),
	Entry("a namespace that cannot be", audit.Options{Namespace: "a/b"}, `eirinix: audit.Options.Namespace is "a/b"`, SpecTimeout(patience)),
	Entry("a negative page", audit.Options{PageSize: -1}, "eirinix: audit.Options.PageSize is -1", SpecTimeout(patience)),
	Entry("an endless rate", audit.Options{StepRequestsPerSecond: math.Inf(1)}, "eirinix: audit.Options.StepRequestsPerSecond is +Inf", SpecTimeout(patience)),
	Entry("a rate that is no number", audit.Options{PagesPerSecond: math.NaN()}, "eirinix: audit.Options.PagesPerSecond is NaN", SpecTimeout(patience)),
	Entry("reports of some steps", audit.Options{Steps: []string{"no"}, PolicyReports: true}, "PolicyReports is set with Steps", SpecTimeout(patience)),
	Entry("a cluster that cannot be asked", audit.Options{}, "connection refused", SpecTimeout(patience)),
)

var _ = It("A package beside the root needs a Manager", func(ctx SpecContext) {
	_, ofAudit := audit.Run(ctx, nil, audit.Options{})
	_, ofManifests := manifests.Of(nil, manifests.Options{})
	_, ofRecording := recording.Start(nil, recording.Options{})
	Expect([]error{ofAudit, ofManifests, ofRecording}).To(HaveEach(MatchError("eirinix: there is no Manager; make one with NewManager")))
})

// installReports makes the cluster serve openreports.io until the spec ends.
func installReports() {
	GinkgoHelper()
	crds := envtest.CRDInstallOptions{Paths: []string{filepath.Join("internal", "audit", "reports", "testdata", "openreports.io.yaml")}, ErrorIfPathMissing: true}
	installed := Must(envtest.InstallCRDs(controlPlane().Config(), crds))
	DeferCleanup(func(ctx SpecContext) {
		Expect(envtest.UninstallCRDs(controlPlane().Config(), crds)).To(Succeed())
		Eventually(func(g Gomega) { // a finalizer of the API server removes their objects first
			for _, crd := range installed {
				err := Must(client.New(controlPlane().Config(), client.Options{})).Get(ctx, client.ObjectKeyFromObject(crd), crd.DeepCopy())
				g.Expect(err).To(Satisfy(apierrors.IsNotFound))
			}
			_, err := clients().Discovery().ServerResourcesForGroupVersion("openreports.io/v1alpha1")
			g.Expect(err).To(Satisfy(apierrors.IsNotFound))
		}).WithContext(ctx).WithTimeout(4 * patience).Should(Succeed())
	}, NodeTimeout(5*patience))
}

// reportsIn returns the reports of a namespace by name.
func reportsIn(ctx context.Context, namespace string) map[string]unstructured.Unstructured {
	GinkgoHelper()
	list := &unstructured.UnstructuredList{}
	list.SetAPIVersion("openreports.io/v1alpha1")
	list.SetKind("ReportList")
	Expect(anyClient().List(ctx, list, client.InNamespace(namespace))).To(Succeed())
	all := map[string]unstructured.Unstructured{}
	for _, r := range list.Items {
		all[r.GetName()] = r
	}
	return all
}

var _ = Describe("The reports of audits", Label("api-server"), func() {
	owner := func(id string, namespaces *metav1.LabelSelector) eirinix.Validation[*corev1.ConfigMap] {
		return checks(id, eirinix.Settings{Namespaces: namespaces}, func(_ *eirinix.Call, cm *corev1.ConfigMap) error {
			if cm.Labels["owner"] == "" {
				return eirinix.Deny("set an owner")
			}
			return nil
		})
	}

	It("keep what cannot be asked, and do not outlive the registration", func(ctx SpecContext) {
		installReports()
		namespace := NewNamespace(ctx, clients(), map[string]string{"spec-gaps": "yes"}).Name
		createMap(ctx, namespace, "bad")
		createMap(ctx, namespace, "good", "owner", "me")
		options := urlOptions(namespace)
		options.Namespace, options.WebhookNamespace = "", namespace
		here := &metav1.LabelSelector{MatchLabels: map[string]string{corev1.LabelMetadataName: namespace}}
		steps := []any{owner("labelled", &metav1.LabelSelector{MatchLabels: map[string]string{"spec-gaps": "yes"}}), owner("here", here)}
		audited := func() map[string]unstructured.Unstructured {
			GinkgoHelper()
			_, _, err := auditOf(ctx, options, audit.Options{PolicyReports: true}, steps...)
			Expect(err).NotTo(HaveOccurred())
			return reportsIn(ctx, namespace)
		}
		first, ofLabelled, ofHere := audited(), namespace+"-labelled-configmaps.v1", namespace+"-here-configmaps.v1"
		Expect(first).To(And(HaveLen(2), HaveKey(ofLabelled), HaveKey(ofHere)))
		report := first[ofLabelled]
		Expect(report.Object["results"]).To(HaveExactElements(And(HaveKeyWithValue("rule", "labelled"), HaveKeyWithValue("result", "fail"))))
		Expect(report.Object["summary"]).To(And(HaveKeyWithValue("pass", int64(1)), HaveKeyWithValue("fail", int64(1))))
		Expect(report.GetOwnerReferences()).To(ConsistOf(And(HaveField("Kind", "Namespace"), HaveField("Name", namespace))))
		Expect(audited()).To(Equal(first), "nothing changes the second time")

		By("lacking the right to list namespaces, while the objects are mended")
		Expect(clients().CoreV1().ConfigMaps(namespace).Delete(ctx, "bad", metav1.DeleteOptions{})).To(Succeed())
		rule := func(group, resource string, verbs ...string) rbacv1.PolicyRule {
			return rbacv1.PolicyRule{APIGroups: []string{group}, Resources: []string{resource}, Verbs: verbs}
		}
		options.RestConfig = userWith(ctx, namespace, nil, []rbacv1.PolicyRule{
			rule("", "configmaps", "list"), rule("openreports.io", "*", "list", "create", "patch", "delete"), rule("wgpolicyk8s.io", "*", "list", "create", "patch", "delete"),
		})
		Eventually(func(g Gomega) { // the authorizer learns of roles from a watch
			_, summary, err := auditOf(ctx, options, audit.Options{PolicyReports: true}, steps...)
			g.Expect(err).To(HaveOccurred())
			g.Expect(summary.Gaps).To(HaveExactElements(And(
				HaveField("Step", "labelled"), HaveField("Reason", ContainSubstring(`cannot list resource "namespaces"`)), HaveField("Remedy", ContainSubstring(`resources: ["namespaces"]`)))))
		}).WithContext(ctx).WithTimeout(patience).Should(Succeed())
		Expect(reportsIn(ctx, namespace)).To(Equal(map[string]unstructured.Unstructured{ofLabelled: report}), "the other step's is clean")
		options.RestConfig = controlPlane().Config()
		Expect(audited()).To(BeEmpty())

		By("unregistering, by hand and at the end of a run")
		createMap(ctx, namespace, "worse")
		options.Namespace = namespace
		Expect(audited()).To(HaveLen(2))
		Expect(managerWith(options, steps...).Unregister(ctx)).To(Succeed())
		Expect(reportsIn(ctx, namespace)).To(BeEmpty())
		options.UnregisterOnStop = true
		m := managerWith(options, steps...)
		done := startManager(ctx, m)
		Eventually(m.Ready()).WithContext(ctx).WithTimeout(patience).Should(BeClosed())
		Must(audit.Run(ctx, m, audit.Options{PolicyReports: true}))
		Expect(reportsIn(ctx, namespace)).To(HaveLen(2))
		m.Stop()
		Eventually(done).WithContext(ctx).WithTimeout(patience).Should(Receive(BeNil()))
		Expect(reportsIn(ctx, namespace)).To(BeEmpty())
	}, SpecTimeout(8*patience))

	It("are written by the CronJob of a program's manifests, with the rights that it has there", func(ctx SpecContext) {
		apps, system := newNamespace(ctx), newNamespace(ctx)
		group, admin := apps+".example.com", Must(client.New(controlPlane().Config(), client.Options{}))
		o := eirinix.ManagerOptions{Namespace: apps, ServiceName: "hooks", WebhookNamespace: system, OperatorFingerprint: apps, ModesConfigMap: "modes"}
		added := []any{owner("owner", nil), shopConversion(group)}
		for _, object := range Must(manifests.Of(managerWith(o, added...), manifests.Options{Image: "registry.example.org/hooks:1.0", AuditSchedule: "@daily"})) {
			if object.GetLabels()["app.kubernetes.io/component"] == "audit" {
				Expect(admin.Create(ctx, object)).To(Succeed())
				DeferCleanup(func(ctx context.Context) { Expect(client.IgnoreNotFound(admin.Delete(ctx, object))).To(Succeed()) })
			}
		}
		_, summary, err := auditOf(ctx, urlOptions(apps), audit.Options{PolicyReports: true}, added[0])
		Expect(err).NotTo(HaveOccurred())
		Expect(summary.Notes).To(ConsistOf(ContainSubstring("install the CustomResourceDefinitions of openreports.io")))

		installReports()
		createMap(ctx, apps, "a")
		Expect(admin.Create(ctx, twoVersions(group))).To(Succeed())
		DeferCleanup(admin.Delete, twoVersions(group))
		odd := newShop(group, apps, "odd")
		odd.Object["price"] = "a lot"
		Eventually(func() error { return admin.Create(ctx, odd.DeepCopy()) }).WithContext(ctx).WithTimeout(patience).Should(Succeed())
		var refused atomic.Int64
		o.RestConfig = between(func(r *http.Request, next http.RoundTripper) (*http.Response, error) {
			resp, err := next.RoundTrip(r)
			if err == nil && resp.StatusCode == http.StatusForbidden {
				refused.Add(1)
			}
			return resp, err
		})
		o.RestConfig.Impersonate = rest.ImpersonationConfig{UserName: "system:serviceaccount:" + system + ":" + apps + "-audit", Groups: []string{"system:serviceaccounts", "system:authenticated"}}
		Eventually(func(g Gomega) { // the authorizer learns of roles from a watch
			refused.Store(0)
			_, summary, err := auditOf(ctx, o, audit.Options{PolicyReports: true}, added...)
			g.Expect(err).NotTo(HaveOccurred())
			g.Expect(summary.Findings).To(Equal(map[string]map[audit.Result]int{"owner": {audit.Denied: 1}, "shops." + group: {audit.Failed: 1}}))
			g.Expect(refused.Load()).To(BeZero())
		}).WithContext(ctx).WithTimeout(patience).Should(Succeed())
		ofOwner, ofShop := apps+"-owner-configmaps.v1", apps+"-shops."+group+"-shops.v1."+group
		Expect(reportsIn(ctx, apps)[ofOwner].Object["results"]).To(ConsistOf(And(HaveKeyWithValue("rule", "owner"), HaveKeyWithValue("message", "set an owner"))))
		Expect(reportsIn(ctx, apps)[ofShop].Object["results"]).To(ConsistOf(And(
			HaveKeyWithValue("rule", "shops."+group), HaveKeyWithValue("result", "error"), HaveKeyWithValue("message", ContainSubstring(`price "a lot" is no amount`)))))

		Expect(clients().CoreV1().ConfigMaps(apps).Delete(ctx, "a", metav1.DeleteOptions{})).To(Succeed())
		_, _, err = auditOf(ctx, o, audit.Options{PolicyReports: true}, added...)
		Expect(err).NotTo(HaveOccurred())
		Expect(reportsIn(ctx, apps)).To(And(HaveLen(1), HaveKey(ofShop)), "the other one is clean")
		Expect(refused.Load()).To(BeZero())
	}, SpecTimeout(4*patience))
})
