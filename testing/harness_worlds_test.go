package eirinixtest_test

import (
	"context"
	"encoding/json"
	"regexp"
	"slices"
	"sync"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"go.uber.org/zap"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/client-go/kubernetes"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/apiutil"
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
		_, err := w.admin.CoreV1().Namespaces().Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}}, metav1.CreateOptions{})
		Expect(err).NotTo(HaveOccurred())
	}
	_, err = w.admin.RbacV1().ClusterRoleBindings().Create(ctx, &rbacv1.ClusterRoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: "developers"},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "cluster-admin"},
		Subjects:   []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: "Group", Name: "developers"}},
	}, metav1.CreateOptions{})
	Expect(err).NotTo(HaveOccurred())
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
		Eventually(done).WithTimeout(10 * time.Second).Should(Receive(BeNil()))
	})
	for _, name := range []string{"marker-1", "marker-2"} {
		Eventually(func() error {
			_, err := w.admin.CoreV1().ConfigMaps(selected).Create(ctx, configMap(name, nil), metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
			return err
		}).WithContext(ctx).WithTimeout(20 * time.Second).Should(MatchError(ContainSubstring("is called")))
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
	c, err := client.New(config, client.Options{})
	Expect(err).NotTo(HaveOccurred())
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
	kind, err := apiutil.GVKForObject(object, clientgoscheme.Scheme)
	Expect(err).NotTo(HaveOccurred())
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
	raw, err := json.Marshal(object)
	Expect(err).NotTo(HaveOccurred())
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
	}).WithContext(ctx).WithTimeout(20 * time.Second).Should(Succeed())
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
	text, err := yaml.Marshal(o)
	Expect(err).NotTo(HaveOccurred())
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
