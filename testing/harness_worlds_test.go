package eirinixtest_test

// This file holds the Manager that a real API server and the Harness call alike, and its steps.

import (
	"context"
	"encoding/json"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"sync"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"go.uber.org/zap"
	"gomodules.xyz/jsonpatch/v2"
	admissionv1 "k8s.io/api/admission/v1"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	appsv1 "k8s.io/api/apps/v1"
	autoscalingv1 "k8s.io/api/autoscaling/v1"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	policyv1 "k8s.io/api/policy/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/client-go/kubernetes"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/apiutil"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"
	"sigs.k8s.io/yaml"

	"code.cloudfoundry.org/eirinix"
	. "code.cloudfoundry.org/eirinix/internal/spectest"
	"code.cloudfoundry.org/eirinix/offline"
	eirinixtest "code.cloudfoundry.org/eirinix/testing"
)

// bothWorlds are a real API server and a Harness that call the same Manager.
type bothWorlds struct {
	config  *rest.Config
	admin   kubernetes.Interface
	manager *eirinix.ExtensionManager
	harness *eirinixtest.Harness
}

func newWorlds(ctx context.Context, plane *eirinixtest.ControlPlane) *bothWorlds {
	GinkgoHelper()
	w := &bothWorlds{config: plane.Config()}
	var err error
	w.admin, err = kubernetes.NewForConfig(w.config)
	Expect(err).NotTo(HaveOccurred())
	for _, name := range []string{selected, plain} {
		Must(w.admin.CoreV1().Namespaces().Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}}, metav1.CreateOptions{}))
	}
	Must(w.admin.RbacV1().ClusterRoleBindings().Create(ctx, &rbacv1.ClusterRoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: "developers"},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "cluster-admin"},
		Subjects:   []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: "Group", Name: "developers"}},
	}, metav1.CreateOptions{}))
	w.makeGadgets(ctx)
	w.manager = eirinix.NewManager(eirinix.ManagerOptions{
		Namespace: selected, OperatorFingerprint: "harness-a", Host: "127.0.0.1", ListenAddress: "127.0.0.1:0", RestConfig: w.config,
		Logger: zap.New(Log()).Sugar(),
	})
	return w
}

func (w *bothWorlds) add(step any) {
	GinkgoHelper()
	Expect(w.manager.AddExtension(step)).To(Succeed())
}

// start has the Manager served, and waits until the API server is seen to call its configurations: each refuses a config map of this name with a step of its own, which comes last.
func (w *bothWorlds) start(ctx context.Context) {
	GinkgoHelper()
	marker := func(verdict string) func(context.Context, *eirinix.Call, *corev1.ConfigMap) error {
		return func(_ context.Context, _ *eirinix.Call, m *corev1.ConfigMap) error {
			if m.Name == verdict {
				return eirinix.Deny("%s is called", verdict)
			}
			return nil
		}
	}
	isolated := eirinix.Settings{Isolated: true}
	w.add(eirinix.Mutation[*corev1.ConfigMap]{ID: "marker-mutating", Settings: isolated, Apply: marker("marker-1")})
	w.add(eirinix.Validation[*corev1.ConfigMap]{ID: "marker-validating", Settings: isolated, Create: marker("marker-2")})
	done := make(chan error, 1)
	go func() { done <- w.manager.Run(context.WithoutCancel(ctx)) }()
	DeferCleanup(func() {
		w.manager.Stop()
		Eventually(done).WithTimeout(patience).Should(Receive(BeNil()))
	})
	for _, name := range []string{"marker-1", "marker-2"} {
		Eventually(func() error {
			_, err := w.admin.CoreV1().ConfigMaps(selected).Create(ctx, configMap(name, nil), metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
			return err
		}).WithContext(ctx).WithTimeout(patience).Should(MatchError(ContainSubstring("is called")))
	}
	w.harness = eirinixtest.NewHarness(GinkgoTB(), w.manager, func(o *eirinixtest.HarnessOptions) {
		for _, version := range []string{"v1", "v2"} {
			o.Resources = append(o.Resources, offline.Resource{Kind: gadgetKind(version)})
		}
	})
}

// as is a client of the real API server for the user of a request, and its warnings.
func (w *bothWorlds) as(options ...eirinixtest.RequestOption) (client.Client, *warningLog) {
	GinkgoHelper()
	var r eirinixtest.Request
	for _, o := range options {
		o(&r)
	}
	config, log := rest.CopyConfig(w.config), &warningLog{}
	config.WarningHandler = log
	if r.User.Name != "" {
		config.Impersonate = rest.ImpersonationConfig{UserName: r.User.Name, Groups: slices.DeleteFunc(slices.Clone(r.User.Groups), func(g string) bool { return g == user.AllAuthenticated })}
	}
	c := Must(client.New(config, client.Options{}))
	if r.DryRun {
		return client.NewDryRunClient(c), log
	}
	return c, log
}

// compareCreate creates an object in both worlds. An API server fills in defaults before the webhooks are called and
// after each of their patches, which a Harness leaves to others; so the Harness is given the object as the API server
// makes it where no webhook is called, and the Harness's result is completed there, too.
func (w *bothWorlds) compareCreate(ctx context.Context, object client.Object, options ...eirinixtest.RequestOption) {
	GinkgoHelper()
	if object.GetNamespace() == "" {
		object.SetNamespace(selected)
	}
	kind := Must(apiutil.GVKForObject(object, clientgoscheme.Scheme))
	clustered := kind.Kind == "ClusterRole"
	complete := func(raw []byte) map[string]any {
		u := &unstructured.Unstructured{}
		Expect(json.Unmarshal(raw, &u.Object)).To(Succeed())
		u.SetGroupVersionKind(kind)
		if clustered {
			u.SetNamespace("")
			return essence(u)
		}
		u.SetNamespace(plain)
		c, _ := w.as(eirinixtest.DryRun())
		Expect(c.Create(ctx, u)).To(Succeed())
		return essence(u)
	}
	raw := Must(json.Marshal(object))
	input := &unstructured.Unstructured{Object: complete(raw)}
	if !clustered {
		input.SetNamespace(object.GetNamespace())
	}
	result := w.harness.Create(input, options...)
	played := outcome{Warnings: result.Warnings}
	played.err(result.Err)
	if result.Allowed {
		played.Object = complete(result.JSON)
	}

	c, log := w.as(options...)
	var real outcome
	stored := &unstructured.Unstructured{}
	Expect(json.Unmarshal(raw, &stored.Object)).To(Succeed())
	stored.SetGroupVersionKind(kind)
	if clustered {
		stored.SetNamespace("")
	}
	if err := c.Create(ctx, stored); err != nil {
		real.err(err)
	} else {
		real.Object = essence(stored)
	}
	real.Warnings = log.all()
	Expect(played.yaml()).To(Equal(real.yaml()), result.String())
}

// compare does something in both worlds that leaves no object to look at.
func (w *bothWorlds) compare(description string, real func(client.Client) error, play func(*eirinixtest.Harness) *eirinixtest.Result) {
	GinkgoHelper()
	result := play(w.harness)
	played := outcome{Warnings: result.Warnings}
	played.err(result.Err)
	c, log := w.as()
	var seen outcome
	seen.err(real(c))
	seen.Warnings = log.all()
	Expect(played.yaml()).To(Equal(seen.yaml()), description)
}

// stored creates an object in the real world and returns it as it is stored.
func (w *bothWorlds) stored(ctx context.Context, object client.Object) client.Object {
	GinkgoHelper()
	object.SetNamespace(selected)
	c, _ := w.as()
	Expect(c.Create(ctx, object)).To(Succeed())
	return object
}

// makeGadgets makes a custom resource of two versions, of which v1 is stored.
func (w *bothWorlds) makeGadgets(ctx context.Context) {
	GinkgoHelper()
	version := func(name string, storage bool) map[string]any {
		return map[string]any{"name": name, "served": true, "storage": storage, "subresources": map[string]any{"status": map[string]any{}}, "schema": map[string]any{
			"openAPIV3Schema": map[string]any{"type": "object", "x-kubernetes-preserve-unknown-fields": true},
		}}
	}
	crd := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition", "metadata": map[string]any{"name": "gadgets.example.org"},
		"spec": map[string]any{
			"group": "example.org", "scope": "Namespaced", "names": map[string]any{"plural": "gadgets", "singular": "gadget", "kind": "Gadget"},
			"versions": []any{version("v1", true), version("v2", false)},
		},
	}}
	c, _ := w.as()
	Expect(c.Create(ctx, crd)).To(Succeed())
	Eventually(func() error {
		c, _ := w.as(eirinixtest.DryRun())
		return c.Create(ctx, inNamespace(plain, gadget("v2", "probe")))
	}).WithContext(ctx).WithTimeout(patience).Should(Succeed())
}

// outcome is the result of a request for its user.
type outcome struct {
	Code     int32                 `json:"code,omitempty"`
	Reason   metav1.StatusReason   `json:"reason,omitempty"`
	Message  string                `json:"message,omitempty"`
	Details  *metav1.StatusDetails `json:"details,omitempty"`
	Warnings []string              `json:"warnings,omitempty"`
	Object   map[string]any        `json:"object,omitempty"`
}

func (o *outcome) err(err error) {
	if err == nil {
		return
	}
	GinkgoHelper()
	status, ok := err.(apierrors.APIStatus)
	Expect(ok).To(BeTrue(), "%v", err)
	s := status.Status()
	o.Code, o.Reason, o.Message, o.Details = s.Code, s.Reason, withoutValues(s.Message), s.Details
	if o.Details != nil {
		for i := range o.Details.Causes {
			o.Details.Causes[i].Message = withoutValues(o.Details.Causes[i].Message)
		}
	}
}

// withoutValues leaves out the parts of a message that differ between two runs, or between the API server's own types and
// public ones.
func withoutValues(message string) string {
	message = stepSays.ReplaceAllString(message, "")
	message = podDifference.ReplaceAllString(message, "")
	return invalidValue.ReplaceAllString(message, "Invalid value: {...}: ")
}

// stepSays receives a late step's answer or not, because the step returns just when its time is over.
var stepSays = regexp.MustCompile(` \(the step says: [^)]*\)`)

// podDifference ends a message, after the list of the fields of a Pod that may change; invalidValue is a printed struct or list.
var (
	podDifference = regexp.MustCompile(`(?s) \(allow it to be set to 1 if it was previously negative\).*`)
	invalidValue  = regexp.MustCompile(`Invalid value: [\[{].*?[\]}]: `)
)

func (o *outcome) yaml() string {
	text := Must(yaml.Marshal(o))
	return string(text)
}

// essence returns an object without the fields that are unique to each object.
func essence(u *unstructured.Unstructured) map[string]any {
	u = u.DeepCopy()
	for _, f := range []string{"uid", "creationTimestamp", "resourceVersion", "managedFields", "generation", "namespace"} {
		unstructured.RemoveNestedField(u.Object, "metadata", f)
	}
	if u.GetGenerateName() != "" {
		unstructured.RemoveNestedField(u.Object, "metadata", "name")
	}
	delete(u.Object, "status")
	return u.Object
}

// warningLog collects the API server's warnings.
type warningLog struct {
	mu   sync.Mutex
	said []string
}

func (l *warningLog) HandleWarningHeader(_ int, _, text string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.said = append(l.said, text)
}

func (l *warningLog) all() []string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return slices.Clone(l.said)
}

// addWorkers adds the steps that change objects.
func addWorkers(w *bothWorlds) {
	w.add(eirinix.Mutation[*corev1.Pod]{
		ID:       "sidecar",
		Settings: eirinix.Settings{Objects: &metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{{Key: "skip", Operator: metav1.LabelSelectorOpDoesNotExist}}}},
		Apply: func(_ context.Context, c *eirinix.Call, pod *corev1.Pod) error {
			if c.Operation != "CREATE" {
				return nil
			}
			c.Warn("a sidecar is added to %q", pod.Name)
			pod.Spec.Containers = append(pod.Spec.Containers, corev1.Container{Name: "sidecar", Image: "sidecar:1"})
			return nil
		},
	})
	w.add(envExtension{})
	w.add(handlerOf{handler{func(context.Context, eirinix.Manager, *corev1.Pod, admission.Request) admission.Response {
		return admission.Response{Patches: []jsonpatch.JsonPatchOperation{{Operation: "remove", Path: "/spec/not/there"}}, AdmissionResponse: admissionv1.AdmissionResponse{Allowed: true}}
	}}, eirinix.Settings{Objects: selector("patch", "bad")}})
	w.add(eirinix.Mutation[*corev1.ConfigMap]{
		ID: "talker", Settings: eirinix.Settings{SideEffects: "NoneOnDryRun"},
		Apply: func(_ context.Context, c *eirinix.Call, m *corev1.ConfigMap) error {
			switch m.Data["say"] {
			case "warn":
				c.Warn("first")
				c.Warn("second")
				c.Warn("first")
			case "lots":
				for i := range 40 {
					c.Warn("%d %s", i, strings.Repeat("long ", 60))
				}
			case "user":
				slices.Sort(c.UserInfo.Groups)
				m.Data["user"] = c.UserInfo.Username + " of " + strings.Join(c.UserInfo.Groups, ",")
			case "dry-run":
				m.Data["dry-run"] = fmt.Sprint(*c.DryRun)
			case "move":
				m.Namespace = plain
			}
			return nil
		},
	})
	w.add(eirinix.Mutation[*rbacv1.ClusterRole]{
		ID: "roles",
		Settings: eirinix.Settings{Objects: &metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{
			{Key: "kubernetes.io/bootstrapping", Operator: metav1.LabelSelectorOpDoesNotExist},
		}}},
		Apply: func(_ context.Context, _ *eirinix.Call, r *rbacv1.ClusterRole) error {
			metav1.SetMetaDataAnnotation(&r.ObjectMeta, "seen", "yes")
			return nil
		},
	})
	w.add(eirinix.Mutation[*unstructured.Unstructured]{
		ID:       "gadgets",
		Settings: eirinix.Settings{Rules: rulesFor("example.org", "v1", "gadgets")},
		Apply: func(_ context.Context, c *eirinix.Call, u *unstructured.Unstructured) error {
			return unstructured.SetNestedField(u.Object, "seen as "+u.GetAPIVersion()+", sent as "+c.RequestKind.Version, "spec", "note")
		},
	})
}

// addJudges adds the steps that refuse and fail.
func addJudges(w *bothWorlds) {
	judge := func(id string, settings eirinix.Settings, verdict func(context.Context, *corev1.ConfigMap) error) {
		settings.Namespaces = nil
		w.add(eirinix.Validation[*corev1.ConfigMap]{ID: id, Settings: settings, Create: func(ctx context.Context, _ *eirinix.Call, m *corev1.ConfigMap) error {
			return verdict(ctx, m)
		}})
	}
	judge("judge", eirinix.Settings{}, func(_ context.Context, m *corev1.ConfigMap) error {
		switch m.Data["verdict"] {
		case "deny":
			return eirinix.Deny("%s is not wanted here", m.Name)
		case "invalid":
			return invalidField()
		case "conflict":
			return apierrors.NewConflict(schema.GroupResource{Resource: "configmaps"}, m.Name, fmt.Errorf("another client was faster"))
		case "fail":
			return fmt.Errorf("the database is away")
		}
		return nil
	})
	judge("lenient", eirinix.Settings{FailurePolicy: "Ignore", Isolated: true}, func(_ context.Context, m *corev1.ConfigMap) error {
		if m.Data["verdict"] == "fail-ignored" {
			return fmt.Errorf("the database is away")
		}
		return nil
	})
	// It is called for its own objects alone: on a busy machine everything may take too long.
	called := conditions("has(object.data) && 'verdict' in object.data && object.data['verdict'] == 'slow'")
	judge("slow", eirinix.Settings{Timeout: 2 * time.Second, Isolated: true, Conditions: called}, func(ctx context.Context, _ *corev1.ConfigMap) error {
		<-ctx.Done()
		return ctx.Err()
	})
	judge("conditional", eirinix.Settings{Conditions: conditions("object.metadata.name != 'skip-condition' && object.metadata.name.startsWith('skip')")},
		func(context.Context, *corev1.ConfigMap) error { return eirinix.Deny("the condition was true") })
	judge("rights", eirinix.Settings{Conditions: conditions("has(object.data) && 'rights' in object.data && authorizer.group('').resource('secrets').namespace(request.namespace).check('get').allowed()")},
		func(context.Context, *corev1.ConfigMap) error { return eirinix.Deny("the user may read secrets") })
	judge("suspicious", eirinix.Settings{Conditions: conditions("'suspects' in request.userInfo.groups")},
		func(context.Context, *corev1.ConfigMap) error { return eirinix.Deny("a suspect") })
	judge("breakable", eirinix.Settings{Conditions: conditions(
		"has(object.data) && 'conditions' in object.data && object.data['missing'] == ''")},
		func(context.Context, *corev1.ConfigMap) error { return eirinix.Deny("the condition was true") })
	w.add(eirinix.Validation[*corev1.ConfigMap]{
		ID: "keeper",
		Update: func(_ context.Context, _ *eirinix.Call, oldObj, newObj *corev1.ConfigMap) error {
			if v := oldObj.Data["version"]; v != newObj.Data["version"] {
				return eirinix.Deny("version is %s and stays so", v)
			}
			return nil
		},
		Delete: func(_ context.Context, _ *eirinix.Call, m *corev1.ConfigMap) error {
			if m.Name == "keep-me" {
				return eirinix.Deny("%s stays", m.Name)
			}
			return nil
		},
	})
	w.add(eirinix.Validation[*corev1.Pod]{ID: "names", Create: func(_ context.Context, c *eirinix.Call, pod *corev1.Pod) error {
		if pod.GenerateName != "" && !strings.HasPrefix(pod.Name, pod.GenerateName) {
			return eirinix.Deny("a validating webhook knows the name by now")
		}
		if pod.UID == "" || pod.CreationTimestamp.IsZero() {
			return eirinix.Deny("a validating webhook knows UID and time by now")
		}
		return nil
	}})
	w.add(eirinix.Subresource[*autoscalingv1.Scale]{
		ID: "scale", Resource: appsv1.SchemeGroupVersion.WithResource("deployments"), Subresource: "scale", Settings: eirinix.Settings{Operations: ops("UPDATE")},
		Check: func(_ context.Context, c *eirinix.Call, oldObj, newObj *autoscalingv1.Scale) error {
			if newObj.Spec.Replicas > 10 {
				return eirinix.Deny("%s from %d to %d replicas is too much", c.Name, oldObj.Spec.Replicas, newObj.Spec.Replicas)
			}
			return nil
		},
	})
	w.add(eirinix.Subresource[*policyv1.Eviction]{
		ID: "eviction", Resource: corev1.SchemeGroupVersion.WithResource("pods"), Subresource: "eviction", Settings: eirinix.Settings{Operations: ops("CREATE")},
		Check: func(_ context.Context, c *eirinix.Call, _, newObj *policyv1.Eviction) error {
			if newObj.Name == "pinned" {
				return eirinix.Deny("%s stays where it is", c.Name)
			}
			return nil
		},
	})
	w.add(eirinix.Subresource[*corev1.PodExecOptions]{
		ID: "exec", Resource: corev1.SchemeGroupVersion.WithResource("pods"), Subresource: "exec", Settings: eirinix.Settings{Operations: ops("CONNECT")},
		Check: func(_ context.Context, c *eirinix.Call, _, newObj *corev1.PodExecOptions) error {
			return eirinix.Deny("no %s in %s of %s", newObj.Command, newObj.Container, c.Name)
		},
	})
}

// addWitnesses adds steps that report the received parts of Secrets with the label witness: the metadata that the API
// server sets, and the text.
func addWitnesses(w *bothWorlds) {
	settings := eirinix.Settings{Objects: &metav1.LabelSelector{MatchLabels: map[string]string{"witness": "yes"}}}
	tell := func(c *eirinix.Call, step string, s *corev1.Secret) {
		c.Warn("%s sees uid %t, created %t, generation %d, %d data, %d texts, %s", step, s.UID != "", !s.CreationTimestamp.IsZero(), s.Generation, len(s.Data), len(s.StringData), s.Data["b"])
	}
	w.add(eirinix.Mutation[*corev1.Secret]{ID: "secret-mutation", Settings: settings, Apply: func(_ context.Context, c *eirinix.Call, s *corev1.Secret) error {
		tell(c, "mutation", s)
		return nil
	}})
	seen := func(_ context.Context, c *eirinix.Call, s *corev1.Secret) error {
		tell(c, "validation", s)
		return nil
	}
	w.add(eirinix.Validation[*corev1.Secret]{
		ID: "secret-validation", Settings: settings, Create: seen,
		Update: func(ctx context.Context, c *eirinix.Call, _, s *corev1.Secret) error { return seen(ctx, c, s) },
	})
}

// addSubresourceWitnesses adds steps that report updates of subresources: a Mutation warns of the object that it sees, and a
// Subresource refuses with the one that it sees.
func addSubresourceWitnesses(w *bothWorlds) {
	settings := eirinix.Settings{Objects: selector("witness", "yes")}
	witness := func(resource schema.GroupVersionResource, subresource string, operation admissionregistrationv1.OperationType) {
		w.add(eirinix.Subresource[*unstructured.Unstructured]{
			Resource: resource, Subresource: subresource, Settings: eirinix.Settings{Operations: ops(operation), Objects: settings.Objects},
			Check: func(_ context.Context, _ *eirinix.Call, _, newObj *unstructured.Unstructured) error {
				newObj.SetManagedFields(nil) // the harness keeps none
				if operation == "CREATE" {   // no two have these in common
					for _, field := range []string{"uid", "creationTimestamp"} {
						if _, ok, _ := unstructured.NestedString(newObj.Object, "metadata", field); ok {
							_ = unstructured.SetNestedField(newObj.Object, "set", "metadata", field)
						}
					}
				}
				text, err := yaml.Marshal(newObj.Object)
				if err != nil {
					return err
				}
				return eirinix.Deny("%s", text)
			},
		})
		settings := settings
		settings.Rules = rulesFor(resource.Group, resource.Version, resource.Resource+"/"+subresource)
		settings.Rules[0].Operations = ops(operation)
		w.add(eirinix.Mutation[*unstructured.Unstructured]{
			ID: "sees-" + resource.Resource + "-" + subresource, Settings: settings,
			Apply: func(_ context.Context, c *eirinix.Call, obj *unstructured.Unstructured) error {
				spec, err := yaml.Marshal(obj.Object["spec"])
				c.Warn("%q in %q, %v, %v, %d bytes of spec", obj.GetName(), obj.GetNamespace(), obj.GetLabels(), obj.GetAnnotations(), len(spec))
				return err
			},
		})
	}
	for _, resource := range []schema.GroupVersionResource{
		corev1.SchemeGroupVersion.WithResource("pods"),
		corev1.SchemeGroupVersion.WithResource("services"),
		appsv1.SchemeGroupVersion.WithResource("deployments"),
		networkingv1.SchemeGroupVersion.WithResource("servicecidrs"),
		gadgetKind("v1").GroupVersion().WithResource("gadgets"),
	} {
		witness(resource, "status", "UPDATE")
	}
	witness(corev1.SchemeGroupVersion.WithResource("pods"), "ephemeralcontainers", "UPDATE")
	witness(corev1.SchemeGroupVersion.WithResource("serviceaccounts"), "token", "CREATE")
}
