package eirinix_test

// This file specifies the three kinds of steps as an API server calls them, the recording of its calls, and what steps do with the
// objects that controllers of Kubernetes make and with kinds that a CustomResourceDefinition adds.

import (
	"context"
	"fmt"
	"maps"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"go.uber.org/zap/zaptest/observer"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	appsv1 "k8s.io/api/apps/v1"
	autoscalingv1 "k8s.io/api/autoscaling/v1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/client-go/kubernetes"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"code.cloudfoundry.org/eirinix"
	. "code.cloudfoundry.org/eirinix/internal/spectest"
	"code.cloudfoundry.org/eirinix/preview"
	"code.cloudfoundry.org/eirinix/recording"
	eirinixtest "code.cloudfoundry.org/eirinix/testing"
)

// managerWith returns a Manager with these extensions.
func managerWith(o eirinix.ManagerOptions, added ...any) *eirinix.ExtensionManager {
	GinkgoHelper()
	m := eirinix.NewManager(o)
	for _, a := range added {
		Expect(m.AddExtension(a)).To(Succeed())
	}
	return m
}

// serveSteps runs a Manager with these steps in the namespace.
func serveSteps(ctx context.Context, namespace string, steps ...any) *eirinix.ExtensionManager {
	GinkgoHelper()
	m := managerWith(urlOptions(namespace), steps...)
	runManager(ctx, m)
	return m
}

func newConfigMap(name string, data map[string]string) *corev1.ConfigMap {
	return &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: name}, Data: data}
}

// stage adds the key mutation-stage-n to the data of config maps that have the key before it.
func stage(n int) eirinix.Mutation[*corev1.ConfigMap] {
	before := "mutation-start"
	if n > 1 {
		before = fmt.Sprintf("mutation-stage-%d", n-1)
	}
	return eirinix.Mutation[*corev1.ConfigMap]{ID: fmt.Sprintf("stage-%d", n), Apply: func(_ context.Context, _ *eirinix.Call, c *corev1.ConfigMap) error {
		if c.Data[before] == "yes" {
			c.Data[fmt.Sprintf("mutation-stage-%d", n)] = "yes"
		}
		return nil
	}}
}

var _ = Describe("A Mutation", Label("api-server"), func() {
	var namespace string
	BeforeEach(func(ctx SpecContext) { namespace = newNamespace(ctx) })

	It("changes objects of its kind in place, as the cluster calls it, on CREATE and UPDATE", func(ctx SpecContext) {
		m := serveSteps(ctx, namespace, eirinix.Mutation[*appsv1.Deployment]{Apply: func(_ context.Context, c *eirinix.Call, d *appsv1.Deployment) error {
			metav1.SetMetaDataAnnotation(&d.ObjectMeta, "operation", string(c.Operation))
			return nil
		}})
		rule := configuration(ctx, m).Webhooks[0].Rules[0]
		Expect(rule.APIGroups).To(Equal([]string{"apps"}))
		Expect(rule.Resources).To(Equal([]string{"deployments"}))
		Expect(rule.Operations).To(ConsistOf(admissionregistrationv1.Create, admissionregistrationv1.Update))

		of := clients().AppsV1().Deployments(namespace)
		Expect(of.Create(ctx, NewDeployment("web"), metav1.CreateOptions{})).To(HaveField("Annotations", HaveKeyWithValue("operation", "CREATE")))
		Expect(of.Patch(ctx, "web", types.MergePatchType, []byte(`{"spec":{"replicas":2}}`), metav1.PatchOptions{})).To(HaveField("Annotations", HaveKeyWithValue("operation", "UPDATE")))
	}, SpecTimeout(2*patience))

	It("sees the result of the ones before, in one call and one entry, and a Validation sees that of all", Label("S6"), func(ctx SpecContext) {
		seen := make(chan map[string]string, 1)
		m := serveSteps(ctx, namespace, checks("sees", eirinix.Settings{}, func(_ *eirinix.Call, c *corev1.ConfigMap) error {
			seen <- c.Data
			return nil
		}), stage(1), stage(2), stage(3))
		Expect(configuration(ctx, m).Webhooks).To(HaveLen(2), "theirs, and the canary's")
		Must(clients().CoreV1().ConfigMaps(namespace).Create(ctx, newConfigMap("staged", map[string]string{"mutation-start": "yes"}), metav1.CreateOptions{}))
		Expect(seen).To(Receive(Equal(map[string]string{"mutation-start": "yes", "mutation-stage-1": "yes", "mutation-stage-2": "yes", "mutation-stage-3": "yes"})))
	}, SpecTimeout(2*patience))
})

var _ = Describe("A Validation", Label("api-server"), func() {
	var namespace string
	BeforeEach(func(ctx SpecContext) { namespace = newNamespace(ctx) })

	It("accepts and refuses with the code and causes of its error, on CREATE, UPDATE and DELETE", Label("S2", "S4"), func(ctx SpecContext) {
		m := serveSteps(ctx, namespace, eirinix.Validation[*corev1.ConfigMap]{
			Create: func(_ context.Context, _ *eirinix.Call, c *corev1.ConfigMap) error {
				if c.Data["e"] == "bad" {
					return eirinix.Invalid(field.ErrorList{field.Invalid(field.NewPath("data", "e"), "bad", "must be good")})
				}
				return nil
			},
			Update: func(_ context.Context, _ *eirinix.Call, old, now *corev1.ConfigMap) error {
				if old.Data["e"] != now.Data["e"] {
					return eirinix.Deny("e is %q and stays so", old.Data["e"])
				}
				return nil
			},
			Delete: func(_ context.Context, _ *eirinix.Call, c *corev1.ConfigMap) error {
				if c.Data["keep"] == "yes" {
					return apierrors.NewForbidden(corev1.Resource("configmaps"), c.Name, fmt.Errorf("nondeletable"))
				}
				return nil
			},
		})
		maps := clients().CoreV1().ConfigMaps(namespace)
		_, err := maps.Create(ctx, newConfigMap("a", map[string]string{"e": "bad"}), metav1.CreateOptions{})
		Expect(apierrors.IsInvalid(err)).To(BeTrue(), "%v", err)
		Expect(apierrors.HasStatusCause(err, metav1.CauseTypeFieldValueInvalid)).To(BeTrue(), "%v", err)
		Must(maps.Create(ctx, newConfigMap("a", map[string]string{"e": "good", "keep": "yes"}), metav1.CreateOptions{}))
		_, err = maps.Patch(ctx, "a", types.MergePatchType, []byte(`{"data":{"e":"other"}}`), metav1.PatchOptions{})
		Expect(apierrors.IsForbidden(err)).To(BeTrue(), "%v", err)
		Expect(err).To(MatchError(ContainSubstring(`e is "good" and stays so`)))
		Expect(apierrors.IsForbidden(maps.Delete(ctx, "a", metav1.DeleteOptions{}))).To(BeTrue())
		Must(maps.Patch(ctx, "a", types.MergePatchType, []byte(`{"data":{"keep":"no"}}`), metav1.PatchOptions{}))
		Expect(maps.Delete(ctx, "a", metav1.DeleteOptions{})).To(Succeed())

		_, err = clients().AdmissionregistrationV1().MutatingWebhookConfigurations().Get(ctx, configurationName(m), metav1.GetOptions{})
		Expect(apierrors.IsNotFound(err)).To(BeTrue(), "nothing mutates")
	}, SpecTimeout(2*patience))

	It("with a Rule lets objects that are older than it be labelled, scaled and let go, and made no worse", func(ctx SpecContext) {
		of := clients().AppsV1().Deployments(namespace)
		older := NewDeployment("older")
		older.Finalizers = []string{"example.org/wait"}
		older.Spec.Template.Spec.Containers[0].Image = "web:latest"
		Must(of.Create(ctx, older, metav1.CreateOptions{}))
		serveSteps(ctx, namespace, eirinix.Validation[*appsv1.Deployment]{ID: "versions", Rule: func(_ context.Context, _ *eirinix.Call, d *appsv1.Deployment) error {
			var faults field.ErrorList
			for i, c := range d.Spec.Template.Spec.Containers {
				if strings.HasSuffix(c.Image, ":latest") {
					faults = append(faults, field.Invalid(field.NewPath("spec", "template", "spec", "containers").Index(i).Child("image"), c.Image, "names no version"))
				}
			}
			return eirinix.Invalid(faults)
		}})
		_, err := of.Create(ctx, older, metav1.CreateOptions{})
		Expect(err).To(MatchError(ContainSubstring("names no version")))
		change := func(merge string) error {
			_, err := of.Patch(ctx, "older", types.StrategicMergePatchType, []byte(merge), metav1.PatchOptions{})
			return err
		}
		Expect(change(`{"metadata":{"labels":{"tier":"1"}}}`)).To(Succeed())
		Expect(change(`{"spec":{"replicas":2}}`)).To(Succeed())
		name := older.Spec.Template.Spec.Containers[0].Name
		Expect(change(fmt.Sprintf(`{"spec":{"template":{"spec":{"containers":[{"name":%q,"image":"other:latest"}]}}}}`, name))).To(MatchError(ContainSubstring("names no version")))
		Expect(change(`{"spec":{"template":{"spec":{"containers":[{"name":"first","image":"new:1"}]}}}}`)).To(Succeed(), "it is in front of the other")
		Expect(of.Delete(ctx, "older", metav1.DeleteOptions{})).To(Succeed())
		Expect(change(`{"metadata":{"finalizers":null}}`)).To(Succeed())
		_, err = of.Get(ctx, "older", metav1.GetOptions{})
		Expect(err).To(MatchError(apierrors.IsNotFound, "IsNotFound"))
	}, SpecTimeout(2*patience))

	It("is named in denials, beside the domain of the program", func(ctx SpecContext) {
		o := urlOptions(namespace)
		o.Domain = "admission.example.org"
		admits := checks("first", eirinix.Settings{}, func(*eirinix.Call, *corev1.ConfigMap) error { return nil })
		m := managerWith(o, admits, denies("second", eirinix.Settings{}))
		runManager(ctx, m)
		_, err := clients().CoreV1().ConfigMaps(namespace).Create(ctx, newConfigMap("a", nil), metav1.CreateOptions{})
		Expect(err).To(MatchError(MatchRegexp(`admission webhook "configmaps-[0-9a-f]{8}\.%s\.admission\.example\.org" denied the request: second: no`, namespace)))
		report := m.Diagnose(ctx)
		Expect(report.Err()).To(Succeed())
		Expect(report.Findings).To(ContainElement(HaveField("Message", ContainSubstring("first, second share one call"))))
	}, SpecTimeout(2*patience))
})

var _ = Describe("A Subresource", Label("api-server"), func() {
	var namespace string
	BeforeEach(func(ctx SpecContext) { namespace = newNamespace(ctx) })

	It("decides on exec into pods, and on evictions and scales with the old object and the new one", Label("S3"), func(ctx SpecContext) {
		serveSteps(ctx, namespace,
			eirinix.Subresource[*corev1.PodExecOptions]{
				Resource: corev1.SchemeGroupVersion.WithResource("pods"), Subresource: "exec",
				Check: func(_ context.Context, _ *eirinix.Call, _, o *corev1.PodExecOptions) error {
					return eirinix.Deny("no %s in here", strings.Join(o.Command, " "))
				},
			},
			eirinix.Subresource[*policyv1.Eviction]{
				Resource: corev1.SchemeGroupVersion.WithResource("pods"), Subresource: "eviction",
				Check: func(_ context.Context, _ *eirinix.Call, _, e *policyv1.Eviction) error {
					return eirinix.Deny("%s stays", e.Name)
				},
			},
			eirinix.Subresource[*autoscalingv1.Scale]{
				Resource: appsv1.SchemeGroupVersion.WithResource("deployments"), Subresource: "scale",
				Check: func(_ context.Context, _ *eirinix.Call, old, now *autoscalingv1.Scale) error {
					return eirinix.Deny("from %d to %d is too much", old.Spec.Replicas, now.Spec.Replicas)
				},
			})
		Must(createPod(ctx, namespace, NewPod("pod", nil)))
		err := clients().CoreV1().RESTClient().Post().Namespace(namespace).Resource("pods").Name("pod").SubResource("exec").
			Param("command", "sh").Param("stdin", "true").Do(ctx).Error()
		Expect(err).To(MatchError(ContainSubstring("no sh in here")))
		err = clients().PolicyV1().Evictions(namespace).Evict(ctx, &policyv1.Eviction{ObjectMeta: metav1.ObjectMeta{Name: "pod", Namespace: namespace}})
		Expect(err).To(MatchError(ContainSubstring("pod stays")))
		Must(clients().AppsV1().Deployments(namespace).Create(ctx, NewDeployment("web"), metav1.CreateOptions{}))
		_, err = clients().AppsV1().Deployments(namespace).UpdateScale(ctx, "web", &autoscalingv1.Scale{
			ObjectMeta: metav1.ObjectMeta{Name: "web", Namespace: namespace}, Spec: autoscalingv1.ScaleSpec{Replicas: 100},
		}, metav1.UpdateOptions{})
		Expect(err).To(MatchError(ContainSubstring("from 1 to 100 is too much")))
	}, SpecTimeout(2*patience))
})

// recorded returns the files in a folder of recorded calls.
func recorded(folder string) []string {
	GinkgoHelper()
	return Must(filepath.Glob(filepath.Join(folder, "*.json")))
}

var _ = Describe("A Manager that runs", Label("api-server"), func() {
	It("records the calls of an API server until it is stopped, and can be replayed", func(ctx SpecContext) {
		namespace := newNamespace(ctx)
		options := urlOptions(namespace)
		logger, logs := Observed()
		options.Logger = logger
		setGate(ctx, namespace, "open")
		steps := []any{addEnv{}, looksAt(namespace, eirinix.Read{Required: true})}
		m := managerWith(options, steps...)
		ended := startManager(ctx, m)
		Eventually(m.Ready()).WithTimeout(patience).Should(BeClosed())
		dir, rest := GinkgoT().TempDir(), filepath.Join(GinkgoT().TempDir(), "rest")

		Eventually(func() (*corev1.Pod, error) { return createPod(ctx, namespace, NewPod("before", nil)) }).WithTimeout(patience).Should(beMutated())
		stop := Must(recording.Start(m, recording.Options{Dir: dir}))
		Expect(createPod(ctx, namespace, NewPod("first", nil))).To(beMutated())
		Expect(m.Diagnose(ctx).Err()).NotTo(HaveOccurred()) // whose call is no traffic
		Expect(stop(ctx)).To(Succeed())
		Expect(createPod(ctx, namespace, NewPod("between", nil))).To(beMutated())
		Expect(recorded(dir)).To(And(HaveLen(2), HaveEach(ContainSubstring("-first-"))), "one call of each step")
		Expect(Must(os.Stat(recorded(dir)[0])).Mode().Perm()).To(Equal(os.FileMode(0o600)))

		Must(recording.Start(m, recording.Options{Dir: rest}))
		Expect(createPod(ctx, namespace, NewPod("last", nil))).To(beMutated())
		m.Stop()
		Eventually(ended).WithTimeout(patience).Should(Receive(BeNil()))
		Expect(recorded(rest)).To(And(HaveLen(2), HaveEach(ContainSubstring("-last-"))), "the end of Run loses nothing")
		Expect(logs.FilterMessage("recording ended").All()).To(HaveLen(2), "and leaves no goroutine behind")

		By("replaying them without the cluster, with what the step has read")
		h := eirinixtest.NewHarness(GinkgoTB(), steps...)
		for _, folder := range []string{dir, rest} {
			h.CheckReplay(folder)
			calls := h.Replay(folder)
			Expect(calls).To(And(HaveLen(2), HaveEach(eirinixtest.BeAllowed())))
			Expect(calls[0].Patch).NotTo(BeEmpty())
			Expect(calls[0].Was.Patch).To(Equal(calls[0].Patch))
		}
	}, SpecTimeout(2*patience))

	It("is not previewed: its clients would reach the cluster", func(ctx SpecContext) {
		m := addEnvManager(urlOptions(newNamespace(ctx)))
		runManager(ctx, m)
		err := preview.Command(ctx, m, []string{"-"}, func(o *preview.Options) {
			o.Stdin, o.Stdout = strings.NewReader("{apiVersion: v1, kind: Pod, metadata: {name: a}}"), GinkgoWriter
		})
		Expect(err).To(MatchError("preview: the Manager is already running; use a Manager that has not been started"))
	}, SpecTimeout(2*patience))
})

const seenLabel = "seen"

// marks returns a step that marks the labels of a pod template.
func marks[T client.Object](id string, template func(T) map[string]string) any {
	return eirinix.Mutation[T]{ID: id, Apply: func(_ context.Context, _ *eirinix.Call, object T) error {
		template(object)[seenLabel] = "yes"
		return nil
	}}
}

func labelsOfReplicaSet(r *appsv1.ReplicaSet) map[string]string { return r.Spec.Template.Labels }

var _ = Describe("An object with an owner, beside the controllers of Kubernetes", Ordered, Label("api-server"), func() {
	var (
		plane   *eirinixtest.ControlPlane
		clients kubernetes.Interface
	)
	BeforeAll(func(ctx SpecContext) {
		plane = Must(eirinixtest.NewControlPlane(ctx, eirinixtest.ControlPlaneOptions{Progress: GinkgoWriter, ControllerManager: true}))
		DeferCleanup(plane.Stop)
		clients = Clients(plane.Config())
	})

	// runs has a program mark objects in a namespace of its own, and returns its log, too.
	runs := func(ctx context.Context, steps ...any) (namespace string, log *observer.ObservedLogs) {
		GinkgoHelper()
		namespace = NewNamespace(ctx, clients, nil).Name
		o := urlOptions(namespace)
		o.RestConfig = plane.Config()
		logger, written := Observed()
		o.Logger = logger
		runManager(ctx, managerWith(o, steps...))
		return namespace, written
	}
	template := corev1.PodTemplateSpec{
		ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{"app": "web"}},
		Spec:       corev1.PodSpec{RestartPolicy: corev1.RestartPolicyAlways, Containers: []corev1.Container{{Name: "web", Image: "registry.example.org/web:1"}}},
	}
	selector := &metav1.LabelSelector{MatchLabels: map[string]string{"app": "web"}}
	deploys := func(ctx context.Context, namespace string) *appsv1.Deployment {
		return Must(clients.AppsV1().Deployments(namespace).Create(ctx, &appsv1.Deployment{
			ObjectMeta: metav1.ObjectMeta{Name: "web"}, Spec: appsv1.DeploymentSpec{Replicas: new(int32(1)), Selector: selector, Template: template},
		}, metav1.CreateOptions{}))
	}
	setsOf := func(ctx context.Context, namespace string) []appsv1.ReplicaSet {
		return Must(clients.AppsV1().ReplicaSets(namespace).List(ctx, metav1.ListOptions{})).Items
	}
	dryRun := []string{metav1.DryRunAll}

	It("is left alone if it is a ReplicaSet that the controller of Deployments makes and changes", func(ctx SpecContext) {
		namespace, log := runs(ctx, marks("sets", labelsOfReplicaSet))
		Expect(log.FilterMessage("webhook of this version").All()).To(HaveExactElements(HaveField("ContextMap()",
			HaveKeyWithValue("leavesAlone", "what a controller of Kubernetes or a kubelet keeps as it is"))))
		deployments := clients.AppsV1().Deployments(namespace)
		deploys(ctx, namespace)
		replicas := func() (all []int32) {
			for _, set := range setsOf(ctx, namespace) {
				all = append(all, *set.Spec.Replicas)
			}
			return all
		}
		Eventually(replicas).WithContext(ctx).WithTimeout(patience).Should(Equal([]int32{1}))
		Must(deployments.Patch(ctx, "web", types.MergePatchType, []byte(`{"spec":{"replicas":2}}`), metav1.PatchOptions{}))
		Eventually(replicas).WithContext(ctx).WithTimeout(patience).Should(Equal([]int32{2}), "and no second set, which the controller makes when it does not know the first again")
		Expect(setsOf(ctx, namespace)).To(HaveEach(HaveField("Spec.Template.Labels", Not(HaveKey(seenLabel)))))

		By("changing it as a user")
		set := setsOf(ctx, namespace)[0]
		set.Labels["team"], set.ResourceVersion = "a", "" // the controller writes it meanwhile
		set = *Must(clients.AppsV1().ReplicaSets(namespace).Update(ctx, &set, metav1.UpdateOptions{DryRun: dryRun}))
		Expect(set.Spec.Template.Labels).NotTo(HaveKey(seenLabel), "labels alone")
		set.Spec.Template.Spec.Containers[0].Image, set.ResourceVersion = "registry.example.org/evil:1", ""
		set = *Must(clients.AppsV1().ReplicaSets(namespace).Update(ctx, &set, metav1.UpdateOptions{DryRun: dryRun}))
		Expect(set.Spec.Template.Labels).To(HaveKey(seenLabel), "its template")
	}, SpecTimeout(5*patience))

	It("is seen if its user wrote the owner, also in an update that changes more", func(ctx SpecContext) {
		namespace, _ := runs(ctx, marks("sets", labelsOfReplicaSet),
			marks("deployments", func(d *appsv1.Deployment) map[string]string { return d.Spec.Template.Labels }))
		deployment := deploys(ctx, namespace)
		Expect(deployment.Spec.Template.Labels).To(HaveKey(seenLabel))
		sets := clients.AppsV1().ReplicaSets(namespace)
		owner := []metav1.OwnerReference{{APIVersion: "apps/v1", Kind: "Deployment", Name: "web", UID: deployment.UID, Controller: new(true)}}
		set := &appsv1.ReplicaSet{ObjectMeta: metav1.ObjectMeta{Name: "own", OwnerReferences: owner}, Spec: appsv1.ReplicaSetSpec{Selector: selector, Template: template}}
		Expect(Must(sets.Create(ctx, set, metav1.CreateOptions{DryRun: dryRun})).Spec.Template.Labels).To(HaveKey(seenLabel))

		By("adding the owner later")
		set.OwnerReferences = nil
		set = Must(sets.Create(ctx, set, metav1.CreateOptions{}))
		set.OwnerReferences, set.ResourceVersion = owner, "" // the controller writes it meanwhile
		delete(set.Spec.Template.Labels, seenLabel)
		Expect(Must(sets.Update(ctx, set, metav1.UpdateOptions{DryRun: dryRun})).Spec.Template.Labels).To(HaveKey(seenLabel))
	}, SpecTimeout(5*patience))
})

// anyClient reads and writes objects of any kind.
func anyClient() client.Client {
	GinkgoHelper()
	return Must(client.New(controlPlane().Config(), client.Options{Scheme: runtime.NewScheme()}))
}

// definition is that of the kind Shop in a group of the spec's own.
func definition(group string) *unstructured.Unstructured {
	return &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
		"metadata": map[string]any{"name": "shops." + group},
		"spec": map[string]any{
			"group": group, "scope": "Namespaced",
			"names": map[string]any{"kind": "Shop", "plural": "shops", "singular": "shop", "listKind": "ShopList"},
			"versions": []any{map[string]any{
				"name": "v1", "served": true, "storage": true,
				"schema": map[string]any{"openAPIV3Schema": map[string]any{"type": "object", "x-kubernetes-preserve-unknown-fields": true}},
			}},
		},
	}}
}

func newShop(group, namespace, name string) *unstructured.Unstructured {
	return &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": group + "/v1", "kind": "Shop", "metadata": map[string]any{"namespace": namespace, "name": name},
	}}
}

// shopStep opens shops.
func shopStep(group string) eirinix.Mutation[*unstructured.Unstructured] {
	return eirinix.Mutation[*unstructured.Unstructured]{
		ID: "shop-defaults",
		Settings: eirinix.Settings{Rules: []admissionregistrationv1.RuleWithOperations{{
			Operations: []admissionregistrationv1.OperationType{admissionregistrationv1.Create},
			Rule:       admissionregistrationv1.Rule{APIGroups: []string{group}, APIVersions: []string{"v1"}, Resources: []string{"shops"}},
		}}},
		Apply: func(_ context.Context, _ *eirinix.Call, shop *unstructured.Unstructured) error {
			return unstructured.SetNestedField(shop.Object, true, "open")
		},
	}
}

var _ = Describe("A step about a kind that the cluster does not serve yet", Label("api-server"), func() {
	var namespace, group string
	BeforeEach(func(ctx SpecContext) {
		namespace = newNamespace(ctx)
		group = namespace + ".example.org"
	})

	opens := func(ctx context.Context) {
		GinkgoHelper()
		c := anyClient()
		Expect(c.Create(ctx, definition(group))).To(Succeed())
		DeferCleanup(func(ctx SpecContext) { Expect(c.Delete(ctx, definition(group))).To(Succeed()) })
		Eventually(func(g Gomega) {
			shop := newShop(group, namespace, "corner")
			_ = c.Delete(ctx, shop)
			g.Expect(c.Create(ctx, shop)).To(Succeed())
			g.Expect(shop.Object).To(HaveKeyWithValue("open", true))
		}).WithContext(ctx).WithTimeout(patience).Should(Succeed())
	}

	It("holds back its own step alone, and is registered once it can be, without a call of the others lost", func(ctx SpecContext) {
		waits := func() float64 { return certificateMetrics(namespace)["eirinix_registration_waiting kind"] }
		before := managerWith(urlOptions(namespace), shopStep(group))
		runManager(ctx, before)
		Expect(waits()).To(BeEquivalentTo(1))
		before.Stop()
		Eventually(waits).WithContext(ctx).WithTimeout(patience).Should(BeZero(), "a program that has ended waits for nothing")
		o := urlOptions(namespace)
		logger, logs := Observed()
		o.Logger = logger
		m := managerWith(o, shopStep(group), eirinix.Validation[*corev1.ConfigMap]{ID: "never", Create: func(context.Context, *eirinix.Call, *corev1.ConfigMap) error {
			return eirinix.Deny("no config maps")
		}})
		runManager(ctx, m)
		Expect(logs.FilterMessageSnippet("a step waits until the cluster serves its kind").All()).To(HaveExactElements(HaveField("ContextMap()", And(
			HaveKeyWithValue("step", "shop-defaults"), HaveKeyWithValue("reason", And(ContainSubstring("shops"), ContainSubstring(group)))))))
		Expect(waits()).To(BeEquivalentTo(1))

		skipped, unready, refusing, open := atomic.Int32{}, atomic.Int32{}, sync.WaitGroup{}, atomic.Bool{}
		refusing.Go(func() {
			for !open.Load() {
				if _, err := clients().CoreV1().ConfigMaps(namespace).Create(ctx, newConfigMap("skipped", nil), metav1.CreateOptions{DryRun: []string{"All"}}); err == nil {
					skipped.Add(1)
				}
				if health(m, "/readyz") != http.StatusOK {
					unready.Add(1)
				}
			}
		})
		opens(ctx)
		open.Store(true)
		refusing.Wait()
		Expect(skipped.Load()).To(BeZero())
		Expect(unready.Load()).To(BeZero(), "all replicas come to know of a kind at the same time")
		Eventually(waits).WithContext(ctx).WithTimeout(patience).Should(BeZero())
		Expect(m.Diagnose(ctx).Err()).To(Succeed())
	}, SpecTimeout(3*patience))
})

// limitedShop is the Go type of a Shop whose definition lets anything pass.
type limitedShop struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata"`
	Tills             []till `json:"tills,omitempty"`
}

type till struct {
	Limits corev1.ResourceList `json:"limits,omitempty"`
}

func (s *limitedShop) DeepCopyObject() runtime.Object {
	c := &limitedShop{TypeMeta: s.TypeMeta, ObjectMeta: *s.ObjectMeta.DeepCopy()}
	for _, t := range s.Tills {
		c.Tills = append(c.Tills, till{maps.Clone(t.Limits)})
	}
	return c
}

var _ = Describe("A custom resource with a typo that its definition admits", Label("api-server"), func() {
	It("is denied by typed steps with its path", func(ctx SpecContext) {
		namespace := newNamespace(ctx)
		group := namespace + ".example.org"
		o := urlOptions(namespace)
		o.Scheme = runtime.NewScheme()
		o.Scheme.AddKnownTypeWithName(schema.GroupVersionKind{Group: group, Version: "v1", Kind: "Shop"}, &limitedShop{})
		c := anyClient()
		Expect(c.Create(ctx, definition(group))).To(Succeed())
		DeferCleanup(c.Delete, definition(group))
		runManager(ctx, managerWith(o, eirinix.Validation[*limitedShop]{ID: "limits", Create: func(context.Context, *eirinix.Call, *limitedShop) error { return nil }}))
		shop := func(cpu string) *unstructured.Unstructured {
			s := newShop(group, namespace, "a")
			s.Object["tills"] = []any{map[string]any{}, map[string]any{"limits": map[string]any{"cpu": cpu}}}
			return s
		}
		denied := And(Satisfy(apierrors.IsBadRequest), MatchError(ContainSubstring(
			"denied the request: tills[1].limits.cpu cannot be read: quantities must match the regular expression")))
		Eventually(func() error { return c.Create(ctx, shop("1x"), client.DryRunAll) }).
			WithContext(ctx).WithTimeout(patience).Should(denied)
		Expect(c.Create(ctx, shop("1"))).To(Succeed())
	}, SpecTimeout(3*patience))
})
