package preview_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"code.cloudfoundry.org/eirinix"
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
	It("come from files, folders and standard input, and are not sent", func() {
		folder := GinkgoT().TempDir()
		Expect(os.Mkdir(filepath.Join(folder, "below"), 0o700)).To(Succeed())
		Expect(os.WriteFile(filepath.Join(folder, "b.yaml"), []byte(configMap("apps", "in-folder")), 0o600)).To(Succeed())
		Expect(os.WriteFile(filepath.Join(folder, "below", "c.yaml"), []byte(configMap("apps", "below")), 0o600)).To(Succeed())
		list := `{"apiVersion": "v1", "kind": "ConfigMapList", "items": [{"metadata": {"name": "in-list"}}]}`
		args := []string{"-o", "json", "-f", file("pod.yaml", pod), "-with", file("a.yaml", configMap("apps", "in-file")), "-with", folder, "-with", "-", "-n", "mine"}
		p := command(program(lists(configMaps)), list, args...)
		Expect(p.err).NotTo(HaveOccurred())
		Expect(p.objects()).To(And(HaveLen(1), HaveKeyWithValue("Pod web", HaveKeyWithValue("warnings", ContainElement("found apps/in-file apps/in-folder mine/in-list")))))
		p = command(program(lists(configMaps)), list, append(args, "-R")...)
		Expect(p.objects()["Pod web"]).To(HaveKeyWithValue("warnings", ContainElement("found apps/below apps/in-file apps/in-folder mine/in-list")))
	})

	It("join the manifests, the results of those before, and the objects of the program", func() {
		mark := eirinix.Mutation[*corev1.ConfigMap]{ID: "mark", Apply: func(_ context.Context, _ *eirinix.Call, m *corev1.ConfigMap) error {
			m.Labels = map[string]string{"app": "changed"}
			return nil
		}}
		changed := configMaps
		changed.Labels = &metav1.LabelSelector{MatchLabels: map[string]string{"app": "changed"}}
		with := file("with.yaml", configMap("apps", "before")+configMap("apps", "same"))
		Expect(command(program(mark, lists(changed)), configMap("apps", "before")+"---\n"+pod+configMap("apps", "after"), "-", "-with", with).stdout).To(ContainSubstring("warning: found apps/before\n"))
		Expect(command(program(lists(configMaps)), pod+configMap("apps", "after"), "-", "-with", with).stdout).To(ContainSubstring("warning: found apps/after apps/before apps/same\n"))
		manifest := strings.ReplaceAll(configMap("apps", "before"), "app: web", "app: changed")
		Expect(command(program(lists(changed)), pod+manifest, "-", "-with", with).stdout).To(ContainSubstring("warning: found apps/before\n"), "as the manifest has it")

		var out bytes.Buffer
		Expect(preview.Command(GinkgoT().Context(), program(lists(configMaps)), []string{"-"}, func(o *preview.Options) {
			o.Stdin, o.Stdout = strings.NewReader(pod), &out
			o.Objects = []client.Object{&corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "given", Namespace: "apps"}}}
		})).To(Succeed())
		Expect(out.String()).To(ContainSubstring("warning: found apps/given\n"))
	})

	It("are found in every Go type, and with the kinds that CustomResourceDefinitions among them define", func() {
		goose := &unstructured.Unstructured{}
		goose.SetGroupVersionKind(schema.GroupVersionKind{Group: "example.org", Version: "v1", Kind: "Goose"})
		secret := &metav1.PartialObjectMetadata{}
		secret.SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind("Secret"))
		step := eirinix.Validation[*corev1.Pod]{ID: "all", Settings: eirinix.Settings{Reads: []eirinix.Read{configMaps, {Object: goose}, {Object: secret}}}, Create: func(ctx context.Context, c *eirinix.Call, _ *corev1.Pod) error {
			m, g, s := &corev1.ConfigMap{}, goose.NewEmptyInstance().(*unstructured.Unstructured), secret.DeepCopy()
			g.SetGroupVersionKind(goose.GroupVersionKind())
			err := errors.Join(
				c.Reader().Get(ctx, client.ObjectKey{Namespace: "default", Name: "m"}, m),
				c.Reader().Get(ctx, client.ObjectKey{Name: "g"}, g),
				c.Reader().Get(ctx, client.ObjectKey{Namespace: "default", Name: "s"}, s))
			c.Warn("%s, %v, %s", m.Data["a"], g.Object["size"], s.Labels["app"])
			return err
		}}
		const with = `{apiVersion: v1, kind: ConfigMap, metadata: {name: m}, data: {a: b}}
---
{apiVersion: example.org/v1, kind: Goose, metadata: {name: g}, size: 3}
---
{apiVersion: v1, kind: Secret, metadata: {name: s, labels: {app: web}}}
---
{apiVersion: apiextensions.k8s.io/v1, kind: CustomResourceDefinition, metadata: {name: geese.example.org}, spec: {group: example.org, scope: Cluster, names: {kind: Goose, plural: geese}, versions: [{name: v1}]}}
`
		p := command(program(step), pod, "-", "-with", file("with.yaml", with))
		Expect(p.err).NotTo(HaveOccurred())
		Expect(p.stdout).To(ContainSubstring("warning: b, 3, web\n"))
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

	It("need names", func() {
		Expect(command(program(), "{apiVersion: v1, kind: ConfigMap, metadata: {generateName: m-}}", file("pod.yaml", pod), "-with", "-").err).
			To(MatchError("preview: -with: standard input: ConfigMap has no name; set metadata.name, as every object in a cluster has it"))
	})

	It("are asked for where a step looks at objects of which there was none", func() {
		declared := eirinix.Read{Object: &corev1.ConfigMap{}, Namespaces: []string{"apps"}, Labels: &metav1.LabelSelector{MatchLabels: map[string]string{"app": "web"}}}
		p := command(program(lists(declared)), pod+configMap("other", "m"), "-")
		Expect(p.stdout).To(HaveSuffix("2 objects: 1 changed\n" +
			"step lists looks at eirinix.Read{Object: &v1.ConfigMap{}, Namespaces: [\"apps\"], Labels: app=web}, and there was none: give the objects with -with\n"))
		p = command(program(lists(declared)), pod, "-", "-o", "json")
		Expect(emptyReads(p)).To(ConsistOf(Equal(map[string]string{"step": "lists", "read": `eirinix.Read{Object: &v1.ConfigMap{}, Namespaces: ["apps"], Labels: app=web}`})))

		with := file("with.yaml", configMap("apps", "m"))
		Expect(emptyReads(command(program(lists(declared)), pod, "-", "-o", "json", "-with", with))).To(BeEmpty())
		Expect(emptyReads(command(program(lists(declared)), configMap("other", "m"), "-", "-o", "json"))).To(BeEmpty(), "the step did not run")
		Expect(emptyReads(command(program(lists(declared)), strings.ReplaceAll(pod, "web", "a")+"---\n"+pod+configMap("apps", "m"), "-", "-o", "json"))).To(BeEmpty())
		refused := eirinix.Validation[*corev1.ConfigMap]{ID: "refused", Create: func(context.Context, *eirinix.Call, *corev1.ConfigMap) error { return eirinix.Deny("no") }}
		lost := command(program(lists(declared), refused), pod+configMap("apps", "m")+"---\n"+strings.ReplaceAll(pod, "web", "last"), "-", "-o", "json")
		Expect(lost.objects()["Pod last"]).To(HaveKeyWithValue("warnings", ContainElement("found ")))
		Expect(emptyReads(lost)).To(BeEmpty(), "there was one before")
		both := pod + "---\n" + strings.ReplaceAll(pod, "web", "other")
		pods := eirinix.Validation[*corev1.Pod]{ID: "pods", Settings: eirinix.Settings{Reads: []eirinix.Read{{Object: &corev1.Pod{}}}}, Create: func(context.Context, *eirinix.Call, *corev1.Pod) error { return nil }}
		Expect(emptyReads(command(program(pods), pod, "-", "-o", "json"))).To(HaveLen(1), "a pod does not exist before it is created")
		Expect(emptyReads(command(program(pods), both, "-", "-o", "json"))).To(BeEmpty())
	})
})
