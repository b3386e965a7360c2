package preview_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"

	"code.cloudfoundry.org/eirinix"
	"code.cloudfoundry.org/eirinix/conversion"
	. "code.cloudfoundry.org/eirinix/internal/spectest"
	"code.cloudfoundry.org/eirinix/offline"
	"code.cloudfoundry.org/eirinix/preview"
)

// lists is a step about pods that says which config maps it finds.
func lists(declared eirinix.Read) any {
	return eirinix.Validation[*corev1.Pod]{ID: "lists", Settings: eirinix.Settings{Reads: []eirinix.Read{declared}}, Create: func(ctx context.Context, c *eirinix.Call, _ *corev1.Pod) error {
		var found corev1.ConfigMapList
		if err := c.Reader().List(ctx, &found); err != nil {
			return err
		}
		var names []string
		for i := range found.Items {
			names = append(names, found.Items[i].Namespace+"/"+found.Items[i].Name)
		}
		c.Warn("found %s", strings.Join(names, " "))
		return nil
	}}
}

var configMaps = eirinix.Read{Object: &corev1.ConfigMap{}}

// configMap is the manifest of a config map.
func configMap(namespace, name string) string {
	return fmt.Sprintf("---\n{apiVersion: v1, kind: ConfigMap, metadata: {name: %s, namespace: %s, labels: {app: web}}}\n", name, namespace)
}

// emptyReads are those of the summary.
func emptyReads(p previewed) []map[string]string {
	GinkgoHelper()
	var report struct {
		Summary struct{ EmptyReads []map[string]string }
	}
	Expect(json.Unmarshal([]byte(p.stdout), &report)).To(Succeed(), p.stdout)
	return report.Summary.EmptyReads
}

var _ = Describe("Other objects in the cluster", func() {
	It("come from files, folders and standard input, are not sent, and need names", func() {
		folder := GinkgoT().TempDir()
		Expect(os.WriteFile(filepath.Join(folder, "b.yaml"), []byte(configMap("apps", "in-folder")), 0o600)).To(Succeed())
		list := `{"apiVersion": "v1", "kind": "ConfigMapList", "items": [{"metadata": {"name": "in-list"}}]}`
		p := command(program(lists(configMaps)), list, "-o", "json", "-f", file("pod.yaml", pod), "-with", file("a.yaml", configMap("apps", "in-file")), "-with", folder, "-with", "-", "-n", "mine")
		Expect(p.err).NotTo(HaveOccurred())
		Expect(p.objects()).To(And(HaveLen(1), HaveKeyWithValue("Pod web", HaveKeyWithValue("warnings", ContainElement("found apps/in-file apps/in-folder mine/in-list")))))
		Expect(command(program(), "{apiVersion: v1, kind: ConfigMap, metadata: {generateName: m-}}", file("pod.yaml", pod), "-with", "-").err).
			To(MatchError("preview: -with: standard input: ConfigMap has no name; set metadata.name, as every object in a cluster has it"))
	})

	It("join the manifests, the results of those before, and the objects of the program", func() {
		mark := eirinix.Mutation[*corev1.ConfigMap]{ID: "mark", Apply: func(_ context.Context, _ *eirinix.Call, m *corev1.ConfigMap) error {
			m.Labels = map[string]string{"app": "changed"}
			return nil
		}}
		changed := configMaps
		changed.Labels = &metav1.LabelSelector{MatchLabels: map[string]string{"app": "changed"}}
		with := file("with.yaml", configMap("apps", "before")+configMap("apps", "same"))
		manifests := configMap("apps", "before") + "---\n" + pod + configMap("apps", "after")
		Expect(command(program(mark, lists(changed)), manifests, "-", "-with", with).stdout).To(ContainSubstring("warning: found apps/before\n"))
		Expect(command(program(lists(configMaps)), manifests, "-", "-with", with).stdout).To(ContainSubstring("warning: found apps/after apps/before apps/same\n"))

		var out bytes.Buffer
		Expect(preview.Command(GinkgoT().Context(), program(lists(configMaps)), []string{"-"}, func(o *preview.Options) {
			o.Stdin, o.Stdout = strings.NewReader(pod), &out
			o.Objects = []client.Object{&corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "given", Namespace: "apps"}}}
		})).To(Succeed())
		Expect(out.String()).To(ContainSubstring("warning: found apps/given\n"))
	})

	It("are found with the kinds that CustomResourceDefinitions among them define", func() {
		goose := &unstructured.Unstructured{}
		goose.SetGroupVersionKind(schema.GroupVersionKind{Group: "example.org", Version: "v1", Kind: "Goose"})
		step := eirinix.Validation[*corev1.Pod]{ID: "all", Settings: eirinix.Settings{Reads: []eirinix.Read{{Object: goose}}}, Create: func(ctx context.Context, c *eirinix.Call, _ *corev1.Pod) error {
			found := goose.DeepCopy()
			err := c.Reader().Get(ctx, client.ObjectKey{Name: "g"}, found)
			c.Warn("of size %v", found.Object["size"])
			return err
		}}
		const with = "{apiVersion: example.org/v1, kind: Goose, metadata: {name: g}, size: 3}\n---\n" +
			"{apiVersion: apiextensions.k8s.io/v1, kind: CustomResourceDefinition, metadata: {name: geese.example.org}, spec: {group: example.org, scope: Cluster, names: {kind: Goose, plural: geese}, versions: [{name: v1}]}}\n"
		p := command(program(step), pod, "-", "-with", file("with.yaml", with))
		Expect(p.err).NotTo(HaveOccurred())
		Expect(p.stdout).To(ContainSubstring("warning: of size 3\n"))
	})

	It("give their labels to namespaces, unless the manifests do", func() {
		x := eirinix.NewManager(eirinix.ManagerOptions{Host: "webhook.example.org"})
		Expect(x.AddExtension(eirinix.Validation[*corev1.Pod]{
			ID: "selective", Settings: eirinix.Settings{Namespaces: &metav1.LabelSelector{MatchLabels: map[string]string{"team": "a"}}},
			Create: func(context.Context, *eirinix.Call, *corev1.Pod) error { return nil },
		})).To(Succeed())
		const namespace = "{apiVersion: v1, kind: Namespace, metadata: {name: default, labels: {team: %s}}}\n---\n"
		with := file("with.yaml", fmt.Sprintf(namespace, "a"))
		Expect(command(x, pod, "-", "-with", with).stdout).To(ContainSubstring("ran: selective"))
		Expect(command(x, pod, "-").stdout).To(ContainSubstring("whose labels are not known, because it is not among the manifests (give the Namespace with -with)"))
		Expect(command(x, fmt.Sprintf(namespace, "b")+pod, "-", "-with", with).stdout).NotTo(ContainSubstring("ran: selective"))
	})

	It("are asked for where a step looks at objects of which there was none", func() {
		declared := eirinix.Read{Object: &corev1.ConfigMap{}, Namespaces: []string{"apps"}, Labels: &metav1.LabelSelector{MatchLabels: map[string]string{"app": "web"}}}
		Expect(command(program(lists(declared)), pod+configMap("other", "m"), "-").stdout).To(HaveSuffix("2 objects: 1 changed\n" +
			"step lists looks at eirinix.Read{Object: &v1.ConfigMap{}, Namespaces: [\"apps\"], Labels: app=web}, and there was none: give the objects with -with\n"))
		asked := func(step any, manifests string, more ...string) []map[string]string {
			GinkgoHelper()
			return emptyReads(command(program(step), manifests, append(more, "-", "-o", "json")...))
		}
		Expect(asked(lists(declared), pod)).To(ConsistOf(Equal(map[string]string{"step": "lists", "read": `eirinix.Read{Object: &v1.ConfigMap{}, Namespaces: ["apps"], Labels: app=web}`})))
		Expect(asked(lists(declared), pod, "-with", file("with.yaml", configMap("apps", "m")))).To(BeEmpty())
		Expect(asked(lists(declared), configMap("other", "m"))).To(BeEmpty(), "the step did not run")
		Expect(asked(lists(declared), strings.ReplaceAll(pod, "web", "a")+"---\n"+pod+configMap("apps", "m"))).To(BeEmpty())
		pods := eirinix.Validation[*corev1.Pod]{ID: "pods", Settings: eirinix.Settings{Reads: []eirinix.Read{{Object: &corev1.Pod{}}}}, Create: func(context.Context, *eirinix.Call, *corev1.Pod) error { return nil }}
		Expect(asked(pods, pod)).To(HaveLen(1), "a pod does not exist before it is created")
		Expect(asked(pods, pod+"---\n"+strings.ReplaceAll(pod, "web", "other"))).To(BeEmpty())
	})
})

var _ = Describe("Extensions with a client", func() {
	reader := eirinix.Validation[*corev1.Pod]{ID: "reader", Create: func(ctx context.Context, c *eirinix.Call, pod *corev1.Pod) error {
		kube, err := c.Manager.GetKubeClient()
		if err != nil {
			return err
		}
		if _, err := kube.Pods(pod.Namespace).Get(ctx, pod.Name, metav1.GetOptions{}); !apierrors.IsNotFound(err) {
			return errors.New("the pod is there before it is created")
		}
		settings, err := kube.ConfigMaps(pod.Namespace).Get(ctx, "settings", metav1.GetOptions{})
		if err != nil {
			return eirinix.Deny("no settings")
		}
		if _, err := kube.Secrets(pod.Namespace).Create(ctx, &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: "token"}}, metav1.CreateOptions{}); err != nil {
			return err
		}
		return eirinix.Deny("settings say %s", settings.Data["a"])
	}}
	const settings = `{apiVersion: v1, kind: ConfigMap, metadata: {name: settings}, data: {a: b}}`

	It("find the manifests in the cluster, whatever their order, and have their writes reported", func() {
		p := command(program(reader), pod+"---\n"+settings, "-")
		Expect(p.stdout).To(And(ContainSubstring("by reader: settings say b"), ContainSubstring("would write: create secrets default/")))
	})

	It("read directly through a controller-runtime manager, and never through the program's own", func() {
		elsewhere := false
		theirs, err := manager.New(&rest.Config{Host: "http://cluster.invalid", Transport: RoundTrip(func(*http.Request) (*http.Response, error) {
			elsewhere = true
			return nil, errors.New("this is the cluster")
		})}, manager.Options{Metrics: metricsserver.Options{BindAddress: "0"}, MapperProvider: func(*rest.Config, *http.Client) (meta.RESTMapper, error) {
			return meta.NewDefaultRESTMapper(nil), nil
		}})
		Expect(err).NotTo(HaveOccurred())
		x := eirinix.NewManager(eirinix.ManagerOptions{Host: "webhook.example.org", KubeManager: theirs})
		Expect(x.AddExtension(eirinix.Validation[*corev1.Pod]{ID: "cached", Create: func(ctx context.Context, c *eirinix.Call, _ *corev1.Pod) error {
			found := &corev1.ConfigMap{}
			if err := c.Manager.GetKubeManager().GetClient().Get(ctx, client.ObjectKey{Namespace: "default", Name: "settings"}, found); err != nil {
				return err
			}
			return eirinix.Deny("settings say %s", found.Data["a"])
		}})).To(Succeed())
		Expect(command(x, pod+"---\n"+settings, "-").stdout).To(ContainSubstring("by cached: settings say b"))
		Expect(elsewhere).To(BeFalse())
		Expect(x.GetKubeManager()).To(BeIdenticalTo(theirs), "the Manager is as it was")
	})

	It("are reported when they ask for an object outside of the manifests", func() {
		Expect(command(program(reader), pod, "-").stdout).To(And(
			ContainSubstring("by reader: no settings"), ContainSubstring("not among the manifests: get configmaps default/settings")))
	})
})

var _ = Describe("Manifests", func() {
	It("come from folders, as kubectl reads them, from links to them, and from lists", func() {
		folder := GinkgoT().TempDir()
		write := func(name, text string) {
			Expect(os.MkdirAll(filepath.Dir(filepath.Join(folder, name)), 0o700)).To(Succeed())
			Expect(os.WriteFile(filepath.Join(folder, name), []byte(text), 0o600)).To(Succeed())
		}
		write("real/b.yml", strings.ReplaceAll(pod, "web", "b"))
		write("real/a.json", `{"apiVersion": "v1", "kind": "List", "items": [{"apiVersion": "v1", "kind": "PodList", "items": [{"metadata": {"name": "a1"}}]}]}{"apiVersion": "v1", "kind": "Pod", "metadata": {"generateName": "a2-"}}`)
		write("real/notes.txt", "no manifest")
		write("real/below/c.yaml", strings.ReplaceAll(pod, "web", "c"))
		Expect(os.Symlink("real", filepath.Join(folder, "link"))).To(Succeed())
		Expect(command(program(), "", "-o", "json", "-f", filepath.Join(folder, "link")).objects()).To(And(HaveLen(3), HaveKey("Pod a1"), HaveKey("Pod a2-*"), HaveKey("Pod b")))
		Expect(command(program(), "", "-o", "json", "-R", filepath.Join(folder, "real")).objects()).To(And(HaveLen(4), HaveKey("Pod c")))
		Expect(os.Symlink("..", filepath.Join(folder, "real", "back"))).To(Succeed())
		Expect(command(program(), "", "-R", folder).err).To(MatchError(Or(ContainSubstring("check for a symbolic link to a folder above it"), ContainSubstring("too many levels of symbolic links"))))
	})

	It("that an API server could not read fail, and the others are previewed", func() {
		p := command(program(), "{apiVersion: v1, kind: Pod, metadata: {name: bad}, spec: {containers: {}}}\n---\n{apiVersion: v1, kind: Pod}\n---\n"+pod, "-o", "json", "-")
		Expect(p.err).To(MatchError("of 3 objects, 2 would fail"))
		Expect(p.objects()).To(And(
			HaveKeyWithValue("Pod bad", HaveKeyWithValue("failure", ContainSubstring("cannot unmarshal"))),
			HaveKeyWithValue("Pod *", HaveKeyWithValue("failure", ContainSubstring("name or generateName is required"))),
			HaveKeyWithValue("Pod web", HaveKeyWithValue("changed", true)),
		))
	})

	It("may be of unknown kinds, with the scope of their CustomResourceDefinition and the program's conversions", func() {
		touch := eirinix.Mutation[*unstructured.Unstructured]{
			ID: "goose", Settings: eirinix.Settings{Rules: []admissionregistrationv1.RuleWithOperations{{
				Operations: []admissionregistrationv1.OperationType{"CREATE"},
				Rule:       admissionregistrationv1.Rule{APIGroups: []string{"example.org"}, APIVersions: []string{"v1"}, Resources: []string{"geese"}},
			}}},
			Apply: func(_ context.Context, _ *eirinix.Call, u *unstructured.Unstructured) error {
				u.SetLabels(map[string]string{"owner": u.Object["owner"].(string)})
				return nil
			},
		}
		type tree = *unstructured.Unstructured
		moves := func(from, to string) func(context.Context, tree) (tree, error) {
			return func(_ context.Context, u tree) (tree, error) {
				u.Object[to] = u.Object[from]
				delete(u.Object, from)
				return u, nil
			}
		}
		geese := conversion.Of[tree]{CRD: "geese.example.org", Version: "v1", Spokes: []conversion.Spoke[tree]{
			conversion.NewSpoke("v2", moves("keeper", "owner"), moves("owner", "keeper")),
		}}
		const goose = "{apiVersion: example.org/v2, kind: Goose, metadata: {name: g}, keeper: Lee}\n---\n{apiVersion: example.org/v1, kind: Duck, metadata: {name: d}}\n"
		const crd = "---\n{apiVersion: apiextensions.k8s.io/v1, kind: CustomResourceDefinition, metadata: {name: geese.example.org}, spec: {group: example.org, scope: Cluster, names: {kind: Goose, plural: geese}, versions: [{name: v1}, {name: v2}]}}\n"
		p := command(program(touch, geese), goose+crd, "-o", "json", "-")
		Expect(p.err).NotTo(HaveOccurred())
		Expect(p.objects()).To(And(
			HaveKeyWithValue("Goose g", And(
				HaveKeyWithValue("diff", And(ContainSubstring("\n+    owner: Lee\n"), ContainSubstring("\n keeper: Lee\n"))),
				Not(HaveKey("namespace")),
			)),
			HaveKeyWithValue("Duck d", And(HaveKeyWithValue("changed", false), HaveKeyWithValue("namespace", "default"))),
			HaveKeyWithValue("CustomResourceDefinition geese.example.org", Not(HaveKey("namespace"))),
		))
		Expect(command(program(touch), pod, "-").err).To(MatchError(And(ContainSubstring("geese"), ContainSubstring("give CustomResourceDefinitions with -f"))))

		err := preview.Command(GinkgoT().Context(), program(touch), []string{"-"}, func(o *preview.Options) {
			o.Stdin, o.Stdout = strings.NewReader(pod), GinkgoWriter
			o.Resources = []offline.Resource{{Kind: schema.GroupVersionKind{Group: "example.org", Version: "v1", Kind: "Goose"}, Resource: "geese"}}
		})
		Expect(err).NotTo(HaveOccurred())
	})

	DescribeTable("that cannot be previewed are named, with the remedy", func(message string, args ...string) {
		p := command(program(), "just: text", args...)
		Expect(p.err).To(MatchError(And(HavePrefix("preview: "), ContainSubstring(message))))
		Expect(errors.As(p.err, new(*preview.RefusedError))).To(BeFalse())
		Expect(p.stdout).To(BeEmpty())
	},
		Entry("none", "there is nothing to preview; give -f"),
		Entry("no object", "standard input: the object has no apiVersion", "-"),
		Entry("no file", "no such file", "-f", "missing.yaml"),
		Entry("standard input twice", "standard input can be read once", "-", "-old", "-"),
		Entry("no file of other objects", "-with: stat missing.yaml: no such file", "testdata/pods.yaml", "-with", "missing.yaml"),
		Entry("an unknown flag", "-h lists the flags", "-x"),
		Entry("another operation", `give create, delete`, "-operation", "update", "-"),
		Entry("groups without a user", "-as-group is for the user whom -as names", "-as-group", "a", "-"),
	)

	It("and a folder without any", func() {
		Expect(command(program(), "", "-f", GinkgoT().TempDir()).err).To(MatchError(ContainSubstring("holds no .yaml, .yml or .json; -R")))
		Expect(command(program(), "# nothing\n", "-").err).To(MatchError(ContainSubstring("-: no object in it")))
	})
})
