package preview_test

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"

	"code.cloudfoundry.org/eirinix/conversion"
	"code.cloudfoundry.org/eirinix/offline"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"code.cloudfoundry.org/eirinix"
	"code.cloudfoundry.org/eirinix/preview"
)

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

	It("may be of unknown kinds, and have the scope that CustomResourceDefinitions declare", func() {
		touch := eirinix.Mutation[*unstructured.Unstructured]{
			ID: "goose", Settings: eirinix.Settings{Rules: []admissionregistrationv1.RuleWithOperations{{
				Operations: []admissionregistrationv1.OperationType{"CREATE"},
				Rule:       admissionregistrationv1.Rule{APIGroups: []string{"example.org"}, APIVersions: []string{"v1"}, Resources: []string{"geese"}},
			}}},
			Apply: func(_ context.Context, _ *eirinix.Call, u *unstructured.Unstructured) error {
				u.SetLabels(map[string]string{"seen": "yes"})
				return nil
			},
		}
		const goose = "{apiVersion: example.org/v1, kind: Goose, metadata: {name: g}}\n---\n{apiVersion: example.org/v1, kind: Duck, metadata: {name: d}}\n"
		const crd = "---\n{apiVersion: apiextensions.k8s.io/v1, kind: CustomResourceDefinition, metadata: {name: geese.example.org}, spec: {group: example.org, scope: Cluster, names: {kind: Goose, plural: geese}, versions: [{name: v1}]}}\n"
		p := command(program(touch), goose+crd, "-o", "json", "-")
		Expect(p.err).NotTo(HaveOccurred())
		Expect(p.objects()).To(And(
			HaveKeyWithValue("Goose g", And(HaveKeyWithValue("changed", true), Not(HaveKey("namespace")))),
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

var _ = Describe("Manifests of another version", func() {
	It("are converted to the version of a step's rules, and back", func() {
		rename := func(from, to string) func(context.Context, *unstructured.Unstructured) (*unstructured.Unstructured, error) {
			return func(_ context.Context, u *unstructured.Unstructured) (*unstructured.Unstructured, error) {
				u.Object[to] = u.Object[from]
				delete(u.Object, from)
				return u, nil
			}
		}
		shops := conversion.Of[*unstructured.Unstructured]{CRD: "shops.example.org", Version: "v2", Spokes: []conversion.Spoke[*unstructured.Unstructured]{
			conversion.NewSpoke("v1", rename("keeper", "owner"), rename("owner", "keeper")),
		}}
		greet := eirinix.Mutation[*unstructured.Unstructured]{
			ID: "greet", Settings: eirinix.Settings{Rules: []admissionregistrationv1.RuleWithOperations{{
				Operations: []admissionregistrationv1.OperationType{"CREATE"},
				Rule:       admissionregistrationv1.Rule{APIGroups: []string{"example.org"}, APIVersions: []string{"v2"}, Resources: []string{"shops"}},
			}}},
			Apply: func(_ context.Context, _ *eirinix.Call, u *unstructured.Unstructured) error {
				u.Object["owner"] = u.Object["owner"].(string) + " and sons"
				return nil
			},
		}
		const crd = "---\n{apiVersion: apiextensions.k8s.io/v1, kind: CustomResourceDefinition, metadata: {name: shops.example.org}, spec: {group: example.org, scope: Namespaced, names: {kind: Shop, plural: shops}, versions: [{name: v1}, {name: v2}]}}\n"
		p := command(program(shops, greet), "{apiVersion: example.org/v1, kind: Shop, metadata: {name: s}, keeper: Lee}\n"+crd, "-o", "json", "-")
		Expect(p.err).NotTo(HaveOccurred())
		Expect(p.objects()).To(HaveKeyWithValue("Shop s", And(HaveKeyWithValue("changed", true), HaveKeyWithValue("apiVersion", "example.org/v1"),
			HaveKeyWithValue("diff", And(ContainSubstring("-keeper: Lee"), ContainSubstring("+keeper: Lee and sons"))))))
	})
})
