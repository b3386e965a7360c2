package patch_test

// This file holds specs with the documents that Kubernetes publishes in the module k8s.io/api: an object of every kind,
// with every field, as the newest release and four older ones write it.

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"strings"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	admissionv1 "k8s.io/api/admission/v1"
	admissionv1beta1 "k8s.io/api/admission/v1beta1"
	apidiscoveryv2 "k8s.io/api/apidiscovery/v2"
	apidiscoveryv2beta1 "k8s.io/api/apidiscovery/v2beta1"
	imagepolicyv1alpha1 "k8s.io/api/imagepolicy/v1alpha1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	kjson "sigs.k8s.io/json"

	decoding "code.cloudfoundry.org/eirinix/internal/decode"
	"code.cloudfoundry.org/eirinix/internal/patch"
)

// newest is the folder of the documents that belong to the Go types of the module.
const newest = "HEAD"

// A document is a published object.
type document struct {
	release, file string
	kind          schema.GroupVersionKind
	raw           []byte
}

func (d document) String() string { return d.release + "/" + d.file }

// publishedIn lists the documents below testdata, by the names of their folders.
func publishedIn(testdata string) map[string][]document {
	GinkgoHelper()
	releases := map[string][]document{}
	paths, err := filepath.Glob(filepath.Join(testdata, "*", "*.json"))
	Expect(err).NotTo(HaveOccurred())
	for _, path := range paths {
		d := document{release: filepath.Base(filepath.Dir(path)), file: filepath.Base(path)}
		d.raw, err = os.ReadFile(path)
		Expect(err).NotTo(HaveOccurred())
		d.kind = kindIn(d.file)
		releases[d.release] = append(releases[d.release], d)
	}
	return releases
}

// kindIn returns the kind that the name of a file says: <group>.<version>.<kind>.json. A watch event has no other place
// for it.
func kindIn(file string) schema.GroupVersionKind {
	GinkgoHelper()
	name := strings.TrimSuffix(strings.TrimSuffix(file, filepath.Ext(file)), ".after_roundtrip")
	parts := strings.Split(name, ".")
	Expect(len(parts)).To(BeNumerically(">", 2), file)
	last := len(parts) - 1
	group := strings.Join(parts[:last-1], ".")
	if group == "core" {
		group = ""
	}
	return schema.GroupVersionKind{Group: group, Version: parts[last-1], Kind: parts[last]}
}

// testdataOf returns the folder testdata of a module.
func testdataOf(ctx context.Context, module string) string {
	GinkgoHelper()
	dir, err := exec.CommandContext(ctx, "go", "list", "-m", "-f", "{{.Dir}}", module).Output()
	Expect(err).NotTo(HaveOccurred())
	return filepath.Join(strings.TrimSpace(string(dir)), "testdata")
}

// kinds returns the Go types of all published kinds: those of client-go, and those that only servers use.
func kinds() *runtime.Scheme {
	GinkgoHelper()
	all := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{
		clientgoscheme.AddToScheme, admissionv1.AddToScheme, admissionv1beta1.AddToScheme,
		apidiscoveryv2.AddToScheme, apidiscoveryv2beta1.AddToScheme, imagepolicyv1alpha1.AddToScheme,
	} {
		Expect(add(all)).To(Succeed())
	}
	return all
}

// readAlike reads a document into two new values, which must come out equal, and returns the first one.
func readAlike(d document, fresh func() any) any {
	GinkgoHelper()
	mine, theirs := fresh(), fresh()
	err, want := decoding.Into(d.raw, mine), kjson.UnmarshalCaseSensitivePreserveInts(d.raw, theirs)
	Expect(want).NotTo(HaveOccurred(), "%s", d)
	Expect(err).NotTo(HaveOccurred(), "%s", d)
	if !reflect.DeepEqual(mine, theirs) {
		Expect(mine).To(Equal(theirs), "%s", d)
	}
	return mine
}

// isUnchanged expects no operations for an object that is as it was.
func isUnchanged(d document, before, copied any) {
	GinkgoHelper()
	ops, err := patch.Diff(d.raw, before, copied)
	Expect(err).NotTo(HaveOccurred(), "%s", d)
	Expect(ops).To(BeNil(), "%s", d)
}

// relabels expects an edit of the labels to be one operation, and to change nothing else in the document.
func relabels(d document, before runtime.Object) {
	GinkgoHelper()
	after := before.DeepCopyObject()
	object := after.(metav1.Object)
	is := object.GetLabels()
	Expect(is).To(HaveKey("labelsKey"), "%s", d)
	is["example.org/added"] = "here"
	object.SetLabels(is)
	ops, err := patch.Diff(d.raw, before, after)
	Expect(err).NotTo(HaveOccurred(), "%s", d)
	text := patch.AppendJSON(nil, ops)
	Expect(string(text)).To(Equal(`[{"op":"add","path":"/metadata/labels/example.org~1added","value":"here"}]`), "%s", d)

	applied, err := apply(d.raw, text)
	Expect(err).NotTo(HaveOccurred(), "%s", d)
	var was, become map[string]any
	Expect(kjson.UnmarshalCaseSensitivePreserveInts(d.raw, &was)).To(Succeed())
	Expect(kjson.UnmarshalCaseSensitivePreserveInts(applied, &become)).To(Succeed())
	Expect(unstructured.SetNestedField(was, "here", "metadata", "labels", "example.org/added")).To(Succeed())
	if !reflect.DeepEqual(become, was) {
		Expect(become).To(Equal(was), "%s", d)
	}
}

var _ = Describe("The published objects of Kubernetes", Label("sequential"), func() {
	var (
		releases map[string][]document
		all      *runtime.Scheme
	)
	BeforeEach(func(ctx SpecContext) {
		releases, all = publishedIn(testdataOf(ctx, "k8s.io/api")), kinds()
		Expect(releases).To(And(HaveKey(newest), WithTransform(func(all map[string][]document) int { return len(all) }, BeNumerically(">=", 5))))
	})

	It("are read as sigs.k8s.io/json does, need no patch unless they change, and a new label touches the label alone", func() {
		current := map[schema.GroupVersionKind]bool{}
		for _, d := range releases[newest] {
			current[d.kind] = true
		}
		var read, typed, labelled int
		for _, documents := range releases {
			read += len(documents)
			for _, d := range documents {
				tree := readAlike(d, func() any { return &map[string]any{} }).(*map[string]any)
				copied := runtime.DeepCopyJSON(*tree)
				isUnchanged(d, tree, &copied)
				if !all.Recognizes(d.kind) {
					Expect(current).NotTo(HaveKey(d.kind), "%s has a Go type", d) // the kind has gone since
					continue
				}
				typed++
				object := readAlike(d, func() any {
					fresh, err := all.New(d.kind)
					Expect(err).NotTo(HaveOccurred())
					return fresh
				}).(runtime.Object)
				isUnchanged(d, object, object.DeepCopyObject())
				if _, hasLabels := object.(metav1.Object); hasLabels {
					labelled++
					relabels(d, object)
				}
			}
		}
		AddReportEntry(fmt.Sprintf("%d documents: %d of kinds with a Go type, %d with labels", read, typed, labelled))
		Expect(typed).To(BeNumerically(">", read*9/10))
		Expect(labelled).To(BeNumerically(">", read*7/10))
	})
})
