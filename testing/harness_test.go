package eirinixtest_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"testing"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"github.com/onsi/gomega/types"
	"gomodules.xyz/jsonpatch/v2"
	admissionv1 "k8s.io/api/admission/v1"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	appsv1 "k8s.io/api/apps/v1"
	autoscalingv2 "k8s.io/api/autoscaling/v2"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"

	"code.cloudfoundry.org/eirinix"
	. "code.cloudfoundry.org/eirinix/internal/spectest"
	"code.cloudfoundry.org/eirinix/offline"
	eirinixtest "code.cloudfoundry.org/eirinix/testing"
)

// labeller sets a label of pods.
func labeller(key, value string) eirinix.Mutation[*corev1.Pod] {
	return eirinix.Mutation[*corev1.Pod]{ID: "label-" + value, Apply: func(_ context.Context, _ *eirinix.Call, pod *corev1.Pod) error {
		metav1.SetMetaDataLabel(&pod.ObjectMeta, key, value)
		return nil
	}}
}

// judging is a Validation of the creation of config maps, with these settings.
func judging(settings eirinix.Settings, verdict func(context.Context, *eirinix.Call, *corev1.ConfigMap) error) eirinix.Validation[*corev1.ConfigMap] {
	return eirinix.Validation[*corev1.ConfigMap]{ID: "judge", Settings: settings, Create: verdict}
}

func deny(context.Context, *eirinix.Call, *corev1.ConfigMap) error { return eirinix.Deny("no") }

var _ = Describe("The Harness", func() {
	It("takes steps, extensions and Managers, in their order", func() {
		m := eirinix.NewManager(eirinix.ManagerOptions{OperatorFingerprint: "a-program", Namespace: "apps"})
		Expect(m.AddExtension(labeller("by", "manager"))).To(Succeed())
		h := eirinixtest.NewHarness(GinkgoTB(), labeller("by", "first"), envExtension{}, m, labeller("by", "last"))
		result := h.Create(inNamespace("apps", podOf("a", nil)))
		Expect(result).To(eirinixtest.BeAllowed())
		steps := []string{}
		for _, s := range result.Steps {
			steps = append(steps, s.Step)
			Expect(s.Took).To(BeNumerically(">", 0))
		}
		Expect(steps).To(Equal([]string{"label-manager", "label-first", "env-extension", "label-last"}), "configurations by name, steps as they were added")
		Expect(result.Calls).To(HaveLen(2), "three steps share a call")
		Expect(eirinixtest.As[*corev1.Pod](result).Labels["by"]).To(Equal("last"))
	})

	It("runs of the steps that share a call those that ask for the request", func() {
		asking := func(id string, objects *metav1.LabelSelector, operation admissionregistrationv1.OperationType) eirinix.Mutation[*corev1.Pod] {
			return eirinix.Mutation[*corev1.Pod]{
				ID: id, Settings: eirinix.Settings{Objects: objects, Operations: ops(operation)},
				Apply: func(context.Context, *eirinix.Call, *corev1.Pod) error { return nil },
			}
		}
		h := eirinixtest.NewHarness(GinkgoTB(), asking("created", selector("a", "1"), "CREATE"), asking("updated", selector("b", "1"), "UPDATE"))
		pod := func(labels ...string) *corev1.Pod {
			p := podOf("p", map[string]string{})
			for _, name := range labels {
				p.Labels[name] = "1"
			}
			return p
		}
		for _, of := range []struct {
			result           *eirinixtest.Result
			created, updated bool
		}{
			{h.Create(pod("a", "b")), true, false},
			{h.Update(pod("b"), pod("a", "b")), false, true},
			{h.Update(pod("b"), pod("a")), false, true},
			{h.Create(pod("b")), false, false},
			{h.Update(pod("a"), pod("a")), false, false},
		} {
			Expect([]bool{of.result.Ran("created"), of.result.Ran("updated")}).To(Equal([]bool{of.created, of.updated}), of.result.String())
			Expect(of.result.Calls).To(HaveLen(map[bool]int{true: 1}[of.created || of.updated]), of.result.String())
		}
	})

	It("keeps Managers away from clusters that the machine knows", func() {
		h := eirinixtest.NewHarness(GinkgoTB(), labeller("a", "b"))
		config := Must(h.Manager().GetKubeConnection())
		Expect(config.Host).To(Equal(h.API().RestConfig().Host))
	})

	It("finds the API that a Manager is connected to", func(ctx SpecContext) {
		api := eirinixtest.NewAPI(GinkgoTB())
		m := eirinix.NewManager(eirinix.ManagerOptions{RestConfig: api.RestConfig()})
		Expect(m.AddExtension(labeller("a", "b"))).To(Succeed())
		h := eirinixtest.NewHarness(GinkgoTB(), m)
		Expect(h.API()).To(Equal(api))
		h.CheckDryRun(podOf("a", nil))

		other := eirinixtest.NewAPI(GinkgoTB())
		Expect(failureOf(func(t *fakeTest) {
			eirinixtest.NewHarness(t, m, func(o *eirinixtest.HarnessOptions) { o.API = other }).CheckDryRun(podOf("a", nil))
		})).To(ContainSubstring("a RestConfig, KubeConfig or KubeManager of its own"), "its writes are not seen")
	})

	DescribeTable("refuses parts that cannot be tested, with the reason", func(message string, parts ...any) {
		Expect(failureOf(func(t *fakeTest) { eirinixtest.NewHarness(t, parts...) })).To(ContainSubstring(message))
	},
		Entry("nothing", "nothing to test"),
		Entry("a value that is no extension", "no Extension, Mutation, Validation", 42),
		Entry("a condition that does not compile", `.eirinix.cloudfoundry.org": correct Settings.Conditions: matchConditions[0].expression: Invalid value: "object.": compilation failed`,
			judging(eirinix.Settings{Conditions: conditions("object.")}, deny)),
		Entry("an unknown resource", "offline.Options.Resources", eirinix.Mutation[*unstructured.Unstructured]{
			Settings: eirinix.Settings{Rules: rulesFor("example.org", "v1", "gizmos")},
			Apply:    func(context.Context, *eirinix.Call, *unstructured.Unstructured) error { return nil },
		}),
	)

	DescribeTable("refuses requests that make no sense, with the reason", func(message string, send func(h *eirinixtest.Harness)) {
		Expect(failureOf(func(t *fakeTest) { send(eirinixtest.NewHarness(t, labeller("a", "b"))) })).To(ContainSubstring(message))
	},
		Entry("no object", "neither Object nor OldObject", func(h *eirinixtest.Harness) { h.Create(nil) }),
		Entry("no kind", "no apiVersion or no kind", func(h *eirinixtest.Harness) { h.Create(`{"metadata": {"name": "x"}}`) }),
		Entry("no object at all", "given as int", func(h *eirinixtest.Harness) { h.Create(1) }),
		Entry("a kind without plural", "HarnessOptions.Resources", func(h *eirinixtest.Harness) { h.Create(gadget("v1", "x")) }),
		Entry("an update without old object", "both OldObject and Object", func(h *eirinixtest.Harness) { h.Update(nil, podOf("a", nil)) }),
		Entry("an object of another type than asked for", "is a *v1.Pod", func(h *eirinixtest.Harness) { eirinixtest.As[*corev1.Secret](h.Create(podOf("a", nil))) }),
	)

	DescribeTable("takes objects in every form, and loses nothing", func(object any) {
		result := eirinixtest.NewHarness(GinkgoTB(), labeller("a", "b")).Create(object)
		Expect(result).To(eirinixtest.HaveChanged(func(pod *corev1.Pod) { metav1.SetMetaDataLabel(&pod.ObjectMeta, "a", "b") }))
		Expect(string(result.JSON)).To(ContainSubstring(`"unknown":"x"`))
	},
		Entry("JSON", `{"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "a"}, "spec": {"unknown": "x"}}`),
		Entry("YAML", "apiVersion: v1\nkind: Pod\nmetadata: {name: a}\nspec:\n  unknown: x\n"),
		Entry("an unstructured object", &unstructured.Unstructured{Object: map[string]any{
			"apiVersion": "v1", "kind": "Pod", "metadata": map[string]any{"name": "a"}, "spec": map[string]any{"unknown": "x"},
		}}),
	)

	DescribeTable("calls whom an API server would call", func(settings eirinix.Settings, called bool, options ...eirinixtest.RequestOption) {
		h := eirinixtest.NewHarness(GinkgoTB(), judging(settings, deny), func(o *eirinixtest.HarnessOptions) {
			o.Namespaces = map[string]map[string]string{"team-a": {"team": "a"}}
		})
		result := h.Create(configMap("subject", map[string]string{"key": "value"}), options...)
		if called {
			Expect(result).To(eirinixtest.BeDenied())
		} else {
			Expect(result).To(And(eirinixtest.BeUnchanged(), Not(eirinixtest.HaveRun("judge")), HaveField("Calls", BeEmpty())))
		}
	},
		Entry("everybody", eirinix.Settings{}, true),
		Entry("but not for the cluster's own namespaces", eirinix.Settings{}, false, eirinixtest.InNamespace("kube-system")),
		Entry("by the labels of the namespace", eirinix.Settings{Namespaces: selector("team", "a")}, true, eirinixtest.InNamespace("team-a")),
		Entry("and not for others", eirinix.Settings{Namespaces: selector("team", "a")}, false, eirinixtest.InNamespace("team-b")),
		Entry("by the labels of the object", eirinix.Settings{Objects: selector("a", "b")}, false),
		Entry("by a condition that is true", eirinix.Settings{Conditions: conditions("object.data.key == 'value' && 'developers' in request.userInfo.groups")}, true, eirinixtest.AsUser("jane", "developers")),
		Entry("by a condition that cannot be evaluated, under Ignore", eirinix.Settings{FailurePolicy: "Ignore", Conditions: conditions("object.data.missing == ''")}, false),
		Entry("by the rights of the user, of which an administrator has all", eirinix.Settings{Conditions: conditions("authorizer.group('').resource('secrets').check('get').allowed()")}, true),
		Entry("by the rights of the user, of which others have none", eirinix.Settings{Conditions: conditions("authorizer.group('').resource('secrets').check('get').allowed()")}, false, eirinixtest.AsUser("jane")),
	)

	It("asks the configured authorizer for rights", func() {
		var asked authorizer.Attributes
		h := eirinixtest.NewHarness(GinkgoTB(), judging(eirinix.Settings{Conditions: conditions("authorizer.group('apps').resource('deployments').check('bypass').allowed()")}, deny),
			func(o *eirinixtest.HarnessOptions) {
				o.Authorizer = authorizer.AuthorizerFunc(func(_ context.Context, a authorizer.Attributes) (authorizer.Decision, string, error) {
					asked = a
					return authorizer.DecisionAllow, "", nil
				})
			})
		Expect(h.Create(configMap("subject", nil), eirinixtest.AsUser("jane"))).To(eirinixtest.BeDenied())
		Expect(asked.GetUser().GetName() + " " + asked.GetVerb() + " " + asked.GetResource()).To(Equal("jane bypass deployments"))
	})

	It("selects by the labels of an object that goes away", func() {
		h := eirinixtest.NewHarness(GinkgoTB(), eirinix.Validation[*corev1.Pod]{
			Settings: eirinix.Settings{Objects: selector("keep", "yes")},
			Delete:   func(context.Context, *eirinix.Call, *corev1.Pod) error { return eirinix.Deny("stays") },
		})
		Expect(h.Delete(podOf("a", map[string]string{"keep": "yes"}))).To(eirinixtest.BeDenied())
		Expect(h.Delete(podOf("a", nil))).To(eirinixtest.BeUnchanged())
	})

	It("refuses labels of the options of a CONNECT, which have none", func() {
		exec := func(t eirinixtest.TB, objects *metav1.LabelSelector) *eirinixtest.Result {
			h := eirinixtest.NewHarness(t, eirinix.Subresource[*corev1.PodExecOptions]{
				Resource: corev1.SchemeGroupVersion.WithResource("pods"), Subresource: "exec", Settings: eirinix.Settings{Operations: ops("CONNECT"), Objects: objects},
				Check: func(context.Context, *eirinix.Call, *corev1.PodExecOptions, *corev1.PodExecOptions) error {
					return eirinix.Deny("no")
				},
			})
			return h.Connect(podOf("a", nil), "exec", &corev1.PodExecOptions{})
		}
		Expect(exec(GinkgoTB(), nil)).To(eirinixtest.BeDenied())
		Expect(failureOf(func(t *fakeTest) {
			exec(t, &metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{{Key: "skip", Operator: metav1.LabelSelectorOpDoesNotExist}}})
		})).To(ContainSubstring("leave out Settings.Objects"))
	})

	It("names the version that it cannot convert, which a webhook with matchPolicy Exact does not need", func() {
		autoscaler := &autoscalingv2.HorizontalPodAutoscaler{ObjectMeta: metav1.ObjectMeta{Name: "a"}}
		for policy, result := range map[admissionregistrationv1.MatchPolicyType]OmegaMatcher{
			"Equivalent": eirinixtest.HaveFailed("without a cluster, a HorizontalPodAutoscaler of autoscaling/v2 cannot be converted to autoscaling/v1"),
			"Exact":      And(eirinixtest.BeUnchanged(), HaveField("Calls", BeEmpty())),
		} {
			h := eirinixtest.NewHarness(GinkgoTB(), eirinix.Validation[*unstructured.Unstructured]{
				ID: "v1-only", Settings: eirinix.Settings{Rules: rulesFor("autoscaling", "v1", "horizontalpodautoscalers"), MatchPolicy: policy},
				Create: func(context.Context, *eirinix.Call, *unstructured.Unstructured) error { return eirinix.Deny("no") },
			})
			Expect(h.Create(autoscaler)).To(result, "%s", policy)
		}
	})

	It("ends a request when its own time is over, whatever the failurePolicy", func() {
		h := eirinixtest.NewHarness(GinkgoTB(), judging(eirinix.Settings{FailurePolicy: "Ignore"}, func(ctx context.Context, _ *eirinix.Call, _ *corev1.ConfigMap) error {
			<-ctx.Done()
			<-time.After(100 * time.Millisecond) // until the request's time is over, too
			return ctx.Err()
		}))
		result := h.Create(configMap("slow", nil), eirinixtest.Timeout(300*time.Millisecond))
		Expect(result).To(eirinixtest.HaveFailed("request did not complete within requested timeout"))
		Expect(apierrors.IsTimeout(result.Err)).To(BeTrue())
	})

	It("distinguishes an ignored failure from silence", func() {
		h := eirinixtest.NewHarness(GinkgoTB(), judging(eirinix.Settings{FailurePolicy: "Ignore"}, func(context.Context, *eirinix.Call, *corev1.ConfigMap) error {
			return errors.New("the database is away")
		}))
		result := h.Create(configMap("lucky", nil))
		Expect(result).To(eirinixtest.BeUnchanged())
		Expect(result.Calls).To(ConsistOf(And(HaveField("Ignored", true), HaveField("Err", MatchError(ContainSubstring("the database is away"))))))
		Expect(result.String()).To(ContainSubstring("ignored: failed calling webhook"))
	})

	It("sends the fields that users may not change as an API server does", func() {
		var seen *admissionv1.AdmissionRequest
		h := eirinixtest.NewHarness(GinkgoTB(), judging(eirinix.Settings{}, func(_ context.Context, c *eirinix.Call, m *corev1.ConfigMap) error {
			seen = &c.AdmissionRequest
			if m.UID == "forged" || m.CreationTimestamp.Year() < 2000 {
				return fmt.Errorf("uid %q of %s", m.UID, m.CreationTimestamp)
			}
			return nil
		}))
		forged := configMap("a", nil)
		forged.UID, forged.CreationTimestamp = "forged", metav1.Unix(0, 0)
		Expect(h.Create(forged, eirinixtest.DryRun())).To(eirinixtest.BeAllowed())
		Expect(seen.UserInfo.Username).To(Equal("kubernetes-admin"))
		Expect(*seen.DryRun).To(BeTrue())
		Expect(string(seen.Options.Raw)).To(MatchJSON(`{"apiVersion": "meta.k8s.io/v1", "kind": "CreateOptions", "dryRun": ["All"]}`))
	})

	It("sends a namespace under its own name, by the labels that it has or is stored with", func() {
		ofTeam := eirinix.Settings{Namespaces: selector("team", "a")}
		h := eirinixtest.NewHarness(GinkgoTB(), eirinix.Mutation[*corev1.Namespace]{
			Settings: ofTeam,
			Apply: func(_ context.Context, c *eirinix.Call, n *corev1.Namespace) error {
				n.Annotations = map[string]string{"seen": c.Namespace}
				return nil
			},
		}, eirinix.Validation[*corev1.Namespace]{
			Settings: ofTeam,
			Delete:   func(context.Context, *eirinix.Call, *corev1.Namespace) error { return eirinix.Deny("stays") },
		})
		named := func(labels map[string]string) *corev1.Namespace {
			return &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "new", Labels: labels}}
		}
		own := map[string]string{"team": "a", corev1.LabelMetadataName: "new"}
		Expect(h.Create(named(own))).To(eirinixtest.HaveChanged(func(n *corev1.Namespace) { n.Annotations = map[string]string{"seen": "new"} }))
		Expect(h.Delete(named(own))).To(eirinixtest.BeDenied())
		Expect(h.Delete(named(nil))).To(eirinixtest.BeUnchanged())
	})

	It("refuses a patch that makes another kind of an object", func() {
		h := eirinixtest.NewHarness(GinkgoTB(), handlerOf{handler{func(context.Context, eirinix.Manager, *corev1.Pod, admission.Request) admission.Response {
			return admission.Patched("", jsonpatch.NewOperation("replace", "/kind", "Secret"))
		}}, eirinix.Settings{}})
		Expect(h.Create(podOf("a", nil)).Allowed).To(BeFalse())
	})

	It("sends the status apart", func() {
		h := eirinixtest.NewHarness(GinkgoTB(), eirinix.Subresource[*appsv1.Deployment]{
			Resource: appsv1.SchemeGroupVersion.WithResource("deployments"), Subresource: "status", Settings: eirinix.Settings{Operations: ops("UPDATE")},
			Check: func(_ context.Context, _ *eirinix.Call, oldObj, newObj *appsv1.Deployment) error {
				return eirinix.Deny("from %d to %d", oldObj.Status.Replicas, newObj.Status.Replicas)
			},
		})
		before, after := &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Name: "a"}}, &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Name: "a"}, Status: appsv1.DeploymentStatus{Replicas: 2}}
		Expect(h.Update(before, after)).To(eirinixtest.BeUnchanged())
		Expect(h.UpdateStatus(before, after)).To(eirinixtest.BeDenied().WithMessage("from 0 to 2"))
	})

	It("never sends webhook configurations to webhooks", func() {
		h := eirinixtest.NewHarness(GinkgoTB(), eirinix.Validation[*unstructured.Unstructured]{
			ID: "all", Settings: eirinix.Settings{Rules: rulesFor("*", "*", "*"), AllowClusterCritical: true},
			Create: func(context.Context, *eirinix.Call, *unstructured.Unstructured) error { return eirinix.Deny("no") },
		})
		played := Must(offline.Of(h.Manager(), offline.Options{}))
		Expect(h.Create(played.Validating)).To(And(eirinixtest.BeUnchanged(), HaveField("Calls", BeEmpty())))
		Expect(h.Create(configMap("a", nil))).To(eirinixtest.BeDenied())
	})

	It("writes the program's log to the test's, and nothing once that is over", func() {
		var h *eirinixtest.Harness
		var test *fakeTest
		Expect(failureOf(func(t *fakeTest) {
			test = t
			h = eirinixtest.NewHarness(t, judging(eirinix.Settings{}, deny))
			h.Create(configMap("a", nil))
		})).To(BeEmpty())
		Expect(test.log).To(ContainElement(ContainSubstring("denied")))
		lines := len(test.log)
		h.Create(configMap("a", nil))
		Expect(test.log).To(HaveLen(lines))
	})

	Describe("with steps that watch", func() {
		watching := func(o eirinix.ManagerOptions, mode eirinix.Mode) *eirinix.ExtensionManager {
			GinkgoHelper()
			m := eirinix.NewManager(o)
			Expect(m.AddExtension(eirinix.Validation[*corev1.ConfigMap]{
				ID: "owner", Settings: eirinix.Settings{Mode: mode},
				Create: func(context.Context, *eirinix.Call, *corev1.ConfigMap) error {
					return eirinix.Deny("set the label owner")
				},
			})).To(Succeed())
			Expect(m.AddExtension(eirinix.Mutation[*corev1.ConfigMap]{
				ID: "stage", Settings: eirinix.Settings{Mode: mode},
				Apply: func(_ context.Context, _ *eirinix.Call, cm *corev1.ConfigMap) error {
					metav1.SetMetaDataLabel(&cm.ObjectMeta, "stage", "test")
					return nil
				},
			})).To(Succeed())
			return m
		}

		It("does not look at the ConfigMap with the modes", func() {
			m := watching(eirinix.ManagerOptions{Namespace: "cf", ModesConfigMap: "modes"}, eirinix.ModeWarn)
			h := eirinixtest.NewHarness(GinkgoTB(), m, having(inNamespace("cf", configMap("modes", map[string]string{"owner": "Deny"}))))
			Expect(h.Create(configMap("settings", nil))).To(eirinixtest.HaveWarned(ContainSubstring(`"owner" would deny this`)))
		})

		DescribeTable("shows what they report", func(mode eirinix.Mode, reported OmegaMatcher) {
			h := eirinixtest.NewHarness(GinkgoTB(), watching(eirinix.ManagerOptions{}, mode))
			Expect(h.Create(configMap("settings", nil))).To(And(reported, eirinixtest.HaveRun("owner")))
		},
			Entry("Deny", eirinix.ModeDeny, eirinixtest.BeDenied().WithMessage("set the label owner")),
			Entry("Warn", eirinix.ModeWarn, And(eirinixtest.BeUnchanged(), eirinixtest.HaveWarned(ContainSubstring(`"owner" would deny this: set the label owner`)),
				eirinixtest.HaveWarned(ContainSubstring(`"stage" would change this: /metadata/labels`)))),
			Entry("Shadow", eirinix.ModeShadow, And(eirinixtest.BeUnchanged(), eirinixtest.HaveAudited("would-deny", "owner: set the label owner"),
				eirinixtest.HaveAudited("would-change", "stage: /metadata/labels"))),
		)
	})
})

func selector(key, value string) *metav1.LabelSelector {
	return &metav1.LabelSelector{MatchLabels: map[string]string{key: value}}
}

// The unit tests of extensions in the field look like these.
var _ = Describe("EiriniX's Catalog", func() {
	catalog := eirinixtest.NewCatalog()

	request := func(pod *corev1.Pod) admission.Request {
		raw := Must(json.Marshal(pod))
		return admission.Request{AdmissionRequest: admissionv1.AdmissionRequest{Object: runtime.RawExtension{Raw: raw}}}
	}

	It("returns a manager that makes patches without a cluster", func() {
		pod := &corev1.Pod{Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "opi"}}}}
		response := catalog.SimpleExtension().Handle(context.Background(), catalog.SimpleManager(), pod, request(pod))
		Expect(response.Allowed).To(BeTrue())
		Expect(response.Patches).To(HaveLen(1))
		Expect(response.Patches[0].Json()).To(Equal(
			`{"op":"add","path":"/spec/containers/0/env","value":[{"name":"STICKY_MESSAGE","value":"Eirinix is awesome!"}]}`))
	})

	It("reports a request without pod, also of a program that is called through a Service", func() {
		response := catalog.SimpleExtension().Handle(context.Background(), catalog.SimpleManagerService(), nil, admission.Request{})
		Expect(response.Result.Code).To(BeEquivalentTo(400))
	})

	It("returns a watcher that keeps its events", func() {
		watcher := catalog.SimpleWatcher()
		event := watch.Event{Type: watch.Added, Object: &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "a"}}}
		watcher.Handle(catalog.SimpleManager(), event)
		Expect(watcher.(*eirinixtest.SimpleWatch).Handled).To(Equal([]watch.Event{event}))
	})
})

// widget is a custom resource of its own Go type, which belongs to no namespace and has an odd plural.
type widget struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata"`
	Spec              widgetSpec `json:"spec"`
}

type widgetSpec struct {
	Size    int               `json:"size,omitempty"`
	Colours map[string]string `json:"colours,omitempty"`
	Parts   []widgetPart      `json:"parts,omitempty"`
}

type widgetPart struct {
	Name string  `json:"name"`
	Note *string `json:"note,omitempty"`
}

func (w *widget) DeepCopyObject() runtime.Object {
	c := *w
	w.ObjectMeta.DeepCopyInto(&c.ObjectMeta)
	c.Spec.Colours = maps.Clone(w.Spec.Colours)
	c.Spec.Parts = append([]widgetPart(nil), w.Spec.Parts...)
	return &c
}

var widgetKind = schema.GroupVersionKind{Group: "example.org", Version: "v1", Kind: "Widget"}

var _ = Describe("The Harness with a custom resource", func() {
	var scheme *runtime.Scheme
	BeforeEach(func() {
		scheme = runtime.NewScheme()
		scheme.AddKnownTypeWithName(widgetKind, &widget{})
		metav1.AddToGroupVersion(scheme, widgetKind.GroupVersion())
		Expect(clientgoscheme.AddToScheme(scheme)).To(Succeed())
	})
	example := &widget{ObjectMeta: metav1.ObjectMeta{Name: "w"}, Spec: widgetSpec{Size: 1, Parts: []widgetPart{{Name: "a", Note: new("n")}}}}

	It("returns objects of its type", func() {
		h := eirinixtest.NewHarness(GinkgoTB(), eirinix.Mutation[*widget]{Apply: func(_ context.Context, _ *eirinix.Call, w *widget) error {
			w.Spec.Size = max(w.Spec.Size, 3)
			return nil
		}}, func(o *eirinixtest.HarnessOptions) {
			o.Manager.Scheme = scheme
			o.Resources = []offline.Resource{{Kind: widgetKind, Resource: "widgetry", ClusterScoped: true}}
		}, unhurried)
		result := h.Create(example)
		Expect(eirinixtest.As[*widget](result).Spec.Size).To(Equal(3))
		Expect(result).To(eirinixtest.HavePatched(eirinixtest.Operation("replace", "/spec/size", 3)))
		Expect(result.Calls[0].Request.Resource.Resource).To(Equal("widgetry"))
		Expect(result.Calls[0].Request.Namespace).To(BeEmpty())
		h.CheckProperties(example)
	})

	DescribeTable("finds what a step without a Go type breaks", func(property string, apply func(map[string]any), message string) {
		Expect(failureOf(func(t *fakeTest) {
			h := eirinixtest.NewHarness(t, eirinix.Mutation[*unstructured.Unstructured]{
				ID: "under-test", Settings: eirinix.Settings{Rules: rulesFor("example.org", "v1", "gadgets")},
				Apply: func(_ context.Context, _ *eirinix.Call, u *unstructured.Unstructured) error {
					apply(u.Object)
					return nil
				},
			}, func(o *eirinixtest.HarnessOptions) { o.Resources = []offline.Resource{{Kind: gadgetKind("v1")}} })
			checks[property](h, gadget("v1", "g"))
		})).To(And(ContainSubstring("not "+property), ContainSubstring(message)))
	},
		Entry("a panic", "total", func(o map[string]any) { _ = o["spec"].(map[string]any)["size"].(int64) }, "a part left out"),
		Entry("a lost field", "lossless", func(o map[string]any) {
			size, _, _ := unstructured.NestedInt64(o, "spec", "size")
			o["spec"] = map[string]any{"size": size}
		}, "spec.fieldThatGoTypesDoNotKnow"),
	)
})

var _ = Describe("The matchers", func() {
	var harness *eirinixtest.Harness
	BeforeEach(func() {
		harness = eirinixtest.NewHarness(GinkgoTB(), eirinix.Mutation[*corev1.ConfigMap]{ID: "worker", Apply: func(_ context.Context, c *eirinix.Call, m *corev1.ConfigMap) error {
			if m.Data["work"] != "" {
				m.Data["work"] = "done"
				m.Data["new"] = "thing"
				c.Warn("work was done")
				c.Annotate("worked-on", m.Name)
			}
			return nil
		}}, judging(eirinix.Settings{}, func(_ context.Context, _ *eirinix.Call, m *corev1.ConfigMap) error {
			switch m.Data["verdict"] {
			case "deny":
				return eirinix.Deny("%s is not wanted", m.Name)
			case "invalid":
				return invalidField()
			case "fail":
				return context.Canceled
			}
			return nil
		}))
	})
	send := func(data map[string]string) *eirinixtest.Result { return harness.Create(configMap("subject", data)) }
	worked, idle := map[string]string{"work": "todo"}, map[string]string{"key": "value"}

	// Each matcher matches the first request, and not the second.
	DescribeTable("tell apart", func(m types.GomegaMatcher, matching, other map[string]string) {
		Expect(send(matching)).To(m)
		Expect(send(other)).NotTo(m)
	},
		Entry("allowed and denied", eirinixtest.BeAllowed(), worked, map[string]string{"verdict": "deny"}),
		Entry("denied and failed", eirinixtest.BeDenied(), map[string]string{"verdict": "deny"}, map[string]string{"verdict": "fail"}),
		Entry("failed and denied", eirinixtest.HaveFailed("context canceled"), map[string]string{"verdict": "fail"}, map[string]string{"verdict": "deny"}),
		Entry("codes", eirinixtest.BeDenied().WithCode(403), map[string]string{"verdict": "deny"}, map[string]string{"verdict": "invalid"}),
		Entry("messages, by a matcher", eirinixtest.BeDenied().WithMessage(Equal("subject is not wanted")), map[string]string{"verdict": "deny"}, map[string]string{"verdict": "invalid"}),
		Entry("causes", eirinixtest.BeDenied().WithCause("data.verdict"), map[string]string{"verdict": "invalid"}, map[string]string{"verdict": "deny"}),
		Entry("all of these", eirinixtest.BeDenied().WithCode(422).WithReason(metav1.StatusReasonInvalid).WithMessage("must not be that"), map[string]string{"verdict": "invalid"}, map[string]string{"verdict": "deny"}),
		Entry("warned and not", eirinixtest.HaveWarned("work was"), worked, idle),
		Entry("audited and not", eirinixtest.HaveAudited("worked-on", "subject"), worked, idle),
		Entry("patched and not, operation by operation",
			eirinixtest.HavePatched(eirinixtest.Operation("add", "/data/new", "thing"), eirinixtest.Operation("replace", "/data/work", "done")), worked, idle),
		Entry("patched and not, by effect", eirinixtest.HaveChanged(func(m *corev1.ConfigMap) { m.Data["work"], m.Data["new"] = "done", "thing" }), worked, idle),
		Entry("objects", eirinixtest.HaveBecome("apiVersion: v1\nkind: ConfigMap\nmetadata: {name: subject, namespace: default}\ndata: {work: done, new: thing}"), worked, idle),
		Entry("unchanged and not", eirinixtest.BeUnchanged(), idle, worked),
	)

	It("explain a mismatch with a diff of YAML", func() {
		m := eirinixtest.HaveChanged(func(m *corev1.ConfigMap) { m.Data["work"] = "half done" })
		result := send(worked)
		Expect(m.Match(result)).To(BeFalse())
		Expect(m.FailureMessage(result)).To(Equal(`Expected the request
  allowed
  warning: work was done
  audit: ` + result.Calls[0].Webhook + `/worked-on=subject
  ran: worker
  ran: judge
  --- sent
  +++ admitted
  @@ -1,6 +1,7 @@
   apiVersion: v1
   data:
  -  work: todo
  +  new: thing
  +  work: done
   kind: ConfigMap
   metadata:
     name: subject
to be allowed with just that change
The difference:
  --- expected
  +++ admitted
  @@ -1,6 +1,7 @@
   apiVersion: v1
   data:
  -  work: half done
  +  new: thing
  +  work: done
   kind: ConfigMap
   metadata:
     name: subject`))
	})

	It("explain a denial that is another one", func() {
		m := eirinixtest.BeDenied().WithCode(409).WithMessage("other")
		result := send(map[string]string{"verdict": "deny"})
		Expect(m.Match(result)).To(BeFalse())
		Expect(m.FailureMessage(result)).To(And(
			ContainSubstring("denied with 403 Forbidden: subject is not wanted"), HaveSuffix(`to be denied, with code 409, with message "other"`)))
	})

	It("refuse a value that is no result", func() {
		_, err := eirinixtest.BeAllowed().Match("yes")
		Expect(err).To(MatchError(ContainSubstring("not for string")))
		_, err = eirinixtest.HaveChanged(func(*corev1.Pod) {}).Match(send(idle))
		Expect(err).To(MatchError("the object is a *v1.ConfigMap, but the function is for *v1.Pod"))
		_, err = eirinixtest.HaveBecome(podOf("a", nil)).Match(send(idle))
		Expect(err).To(MatchError(ContainSubstring("Kind=Pod is expected of a request for a /v1, Kind=ConfigMap")))
	})
})

func TestMain(m *testing.M) { os.Exit(eirinixtest.Main(m)) }

func TestEirinixtest(t *testing.T) {
	RegisterFailHandler(Fail)
	SetDefaultEventuallyTimeout(30 * time.Second) // of a busy machine
	RunSpecs(t, "eirinixtest")
}
