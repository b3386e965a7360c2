package eirinixtest_test

import (
	"context"
	"flag"
	"fmt"
	"log"
	"os"
	"testing"

	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"code.cloudfoundry.org/eirinix"
	"code.cloudfoundry.org/eirinix/recording"
	eirinixtest "code.cloudfoundry.org/eirinix/testing"
)

// noRoot is the step that the examples test: it refuses pods that run as root.
var noRoot = eirinix.Validation[*corev1.Pod]{ID: "no-root", Create: func(_ context.Context, c *eirinix.Call, pod *corev1.Pod) error {
	if s := pod.Spec.SecurityContext; s == nil || s.RunAsUser == nil || *s.RunAsUser == 0 {
		return eirinix.Deny("%s would run as root", pod.Name)
	}
	c.Warn("thank you")
	return nil
}}

// A test needs an extension and a request.
func ExampleNewHarness() {
	_ = func(t *testing.T) {
		h := eirinixtest.NewHarness(t, noRoot)
		result := h.Create("{apiVersion: v1, kind: Pod, metadata: {name: naughty}}")
		NewWithT(t).Expect(result).To(eirinixtest.BeDenied().WithCode(403).WithMessage("would run as root"))
	}
}

// A result can be printed.
func ExampleResult_String() {
	h := eirinixtest.NewHarness(&printer{}, noRoot, labeller("seen", "yes"))
	fmt.Print(h.Create("{apiVersion: v1, kind: Pod, metadata: {name: nice}, spec: {securityContext: {runAsUser: 7}}}"))
	// Output:
	// allowed
	// warning: thank you
	// ran: label-yes
	// ran: no-root
	// --- sent
	// +++ admitted
	// @@ -1,6 +1,8 @@
	//  apiVersion: v1
	//  kind: Pod
	//  metadata:
	// +  labels:
	// +    seen: "yes"
	//    name: nice
	//    namespace: default
	//  spec:
}

// All properties are tested in one call. The failure names the necessary change.
func ExampleHarness_CheckProperties() {
	h := eirinixtest.NewHarness(&printer{}, eirinix.Mutation[*corev1.ConfigMap]{ID: "appender", Apply: func(_ context.Context, _ *eirinix.Call, m *corev1.ConfigMap) error {
		if m.Data != nil {
			m.Data["list"] += ",more"
		}
		return nil
	}})
	h.CheckProperties("{apiVersion: v1, kind: ConfigMap, metadata: {name: a}, data: {list: some}}")
	// Output:
	// eirinixtest: not idempotent: run a second time on its own result, it changed that again (step appender)
	//   --- sent
	//   +++ admitted
	//   @@ -1,6 +1,6 @@
	//    apiVersion: v1
	//    data:
	//   -  list: some,more
	//   +  list: some,more,more
	//    kind: ConfigMap
	//    metadata:
	//      name: a
	// What to change: look whether what you are about to add is there already, by its name and not by its position, and set values instead of adding to them: the API server may call a webhook twice for one object, and sends it again with every update.
}

// update has golden files written: go test -update.
var update = flag.Bool("update", false, "write golden files")

// Golden files hold the results of the objects in a folder.
func ExampleHarness_Golden() {
	folder, _ := os.MkdirTemp("", "golden")
	defer os.RemoveAll(folder)
	_ = os.WriteFile(folder+"/pods.yaml", []byte("{apiVersion: v1, kind: Pod, metadata: {name: naughty}}"), 0o600)

	*update = true
	defer func() { *update = false }()
	eirinixtest.NewHarness(&printer{}, noRoot).Golden(folder)

	text, _ := os.ReadFile(folder + "/pods.golden.yaml")
	fmt.Print(string(text))
	// Output:
	// # denied with 403 Forbidden: naughty would run as root
}

// A handler that needs a client gets one of an API in memory, which records its requests.
func ExampleNewAPI() {
	api := eirinixtest.NewAPI(&printer{}, func(o *eirinixtest.APIOptions) { o.Objects = []client.Object{configMap("settings", nil)} })
	counter := eirinix.Mutation[*corev1.Pod]{
		Settings: eirinix.Settings{SideEffects: "NoneOnDryRun"},
		Apply: func(ctx context.Context, c *eirinix.Call, pod *corev1.Pod) error {
			if *c.DryRun {
				return nil
			}
			return api.Client().Create(ctx, inNamespace("default", configMap("seen-"+pod.Name, nil)))
		},
	}
	h := eirinixtest.NewHarness(&printer{}, counter, func(o *eirinixtest.HarnessOptions) { o.API = api })
	h.Create(podOf("first", nil))
	h.Create(podOf("second", nil), eirinixtest.DryRun())
	for _, w := range api.Writes() {
		fmt.Println(w)
	}
	// Output:
	// create configmaps default/
}

// limited is a step that looks at other objects: it refuses pods in namespaces without a config map of limits.
var limited = eirinix.Validation[*corev1.Pod]{
	ID:       "limits",
	Settings: eirinix.Settings{Reads: []eirinix.Read{{Object: &corev1.ConfigMap{}}}},
	Create: func(ctx context.Context, c *eirinix.Call, pod *corev1.Pod) error {
		limits := &corev1.ConfigMap{}
		switch err := c.Reader().Get(ctx, client.ObjectKey{Namespace: pod.Namespace, Name: "limits"}, limits); {
		case apierrors.IsNotFound(err):
			return eirinix.Deny("namespace %s has no limits", pod.Namespace)
		case err != nil:
			return err
		}
		c.Warn("at most %s CPUs", limits.Data["cpu"])
		return nil
	},
}

// Steps find the objects that they declare in Settings.Reads among those of the Harness.
func ExampleHarnessOptions_objects() {
	limits := inNamespace("team-a", configMap("limits", map[string]string{"cpu": "4"}))
	h := eirinixtest.NewHarness(&printer{}, limited, func(o *eirinixtest.HarnessOptions) { o.Objects = []client.Object{limits} })
	fmt.Print(h.Create(podOf("web", nil), eirinixtest.InNamespace("team-a")))
	fmt.Println(h.Create(podOf("web", nil), eirinixtest.InNamespace("team-b")).Denial.Message)
	h.CheckReads(podOf("web", nil), eirinixtest.InNamespace("team-a"))
	// Output:
	// allowed
	// warning: at most 4 CPUs
	// ran: limits
	// the object is unchanged
	// namespace team-b has no limits
}

// Replay sends the recorded requests of production to a program on a developer's machine.
func ExampleHarness_Replay() {
	folder, _ := os.MkdirTemp("", "recorded")
	defer os.RemoveAll(folder)
	production := eirinixtest.NewHarness(&printer{}, noRoot)
	stop, err := recording.Start(production.Manager(), recording.Options{Dir: folder})
	if err != nil {
		fmt.Println(err)
		return
	}
	production.Create(podOf("naughty", nil))
	_ = stop(context.Background())

	h := eirinixtest.NewHarness(&printer{}, noRoot)
	for _, call := range h.Replay(folder) {
		fmt.Println(call.Allowed, call.Denial.Message, call.Difference() == "")
	}
	h.CheckReplay(folder) // fails where an answer is another one than then
	// Output:
	// false naughty would run as root true
}

// A real API server, and a Manager that it calls.
func ExampleStartManager() {
	_ = func(t *testing.T) {
		cluster := eirinixtest.StartControlPlane(t)
		m := eirinix.NewManager(eirinix.ManagerOptions{
			RestConfig: cluster.Config(), Namespace: "default", Host: "127.0.0.1", ListenAddress: "127.0.0.1:0",
		})
		_ = m.AddExtension(noRoot) // StartManager reports the error
		eirinixtest.StartManager(t, m)
	}
}

// A program, such as a demo, starts and stops a control plane by itself.
func ExampleNewControlPlane() {
	ctx := context.Background()

	plane, err := eirinixtest.NewControlPlane(ctx, eirinixtest.ControlPlaneOptions{})
	if err != nil {
		log.Fatal(err)
	}

	defer func() {
		if err := plane.Stop(); err != nil {
			log.Fatal(err)
		}
	}()

	client, err := kubernetes.NewForConfig(plane.Config())
	if err != nil {
		log.Fatal(err)
	}

	namespace, err := client.CoreV1().Namespaces().Get(ctx, "default", metav1.GetOptions{})
	if err != nil {
		log.Fatal(err)
	}

	fmt.Println(namespace.Name, namespace.Status.Phase)
}

// A test gets a control plane that stops when the test ends. In ginkgo, pass GinkgoT().
func ExampleStartControlPlane() {
	_ = func(t *testing.T) {
		plane := eirinixtest.StartControlPlane(t, func(o *eirinixtest.ControlPlaneOptions) {
			o.ControllerManager = true // Deployments get pods, owned objects are collected
		})

		developer, err := plane.User("jane", "developers")
		if err != nil {
			t.Fatal(err)
		}

		t.Logf("kubectl --kubeconfig %s; or as %s at %s", plane.Kubeconfig(), "jane", developer.Host)
	}
}

// The tests of a package share a control plane, in parallel too, each with a namespace of its own. Main stops it.
func ExampleShared() {
	_ = func(m *testing.M) { // TestMain
		os.Exit(eirinixtest.Main(m))
	}

	_ = func(t *testing.T) {
		t.Parallel()

		plane := eirinixtest.StartControlPlane(t, eirinixtest.Shared)
		t.Logf("%s at %s", plane.NewNamespace(t), plane.Config().Host)
	}
}

// A second API server on the same etcd has caches of its own, and can be frozen to test a program against a stale one.
func ExampleControlPlane_AddAPIServer() {
	_ = func(t *testing.T, plane *eirinixtest.ControlPlane) {
		second, err := plane.AddAPIServer(t.Context(), "--v=4")
		if err != nil {
			t.Fatal(err)
		}

		if err := second.Pause(); err != nil {
			t.Fatal(err)
		}

		// second learns of changes in the meantime after Resume.

		if err := second.Resume(); err != nil {
			t.Fatal(err)
		}
	}
}

// printer is a test whose failure is printed.
type printer struct{}

func (*printer) Helper()                           {}
func (*printer) Cleanup(func())                    {}
func (*printer) Failed() bool                      { return false }
func (*printer) Logf(string, ...any)               {}
func (*printer) Errorf(format string, args ...any) { fmt.Printf(format+"\n", args...) }
func (*printer) Fatalf(format string, args ...any) { fmt.Printf(format+"\n", args...) }
