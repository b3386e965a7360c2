package eirinixtest_test

import (
	"context"
	"encoding/json"
	"errors"
	"sync"

	"code.cloudfoundry.org/eirinix/offline"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"code.cloudfoundry.org/eirinix"
	eirinixtest "code.cloudfoundry.org/eirinix/testing"
)

var _ = Describe("The Harness with a Conversion", func() {
	const older = "{apiVersion: example.org/v1, kind: Disk, metadata: {name: d}, gibibytes: 3, history: [made], unknown: kept}"
	stepOf := func(version string, apply func(*unstructured.Unstructured) error) eirinix.Mutation[*unstructured.Unstructured] {
		return eirinix.Mutation[*unstructured.Unstructured]{
			Settings: eirinix.Settings{Rules: rulesFor("example.org", version, "disks")},
			Apply:    func(_ context.Context, _ *eirinix.Call, u *unstructured.Unstructured) error { return apply(u) },
		}
	}
	// grow is a step about version v2.
	grow := func(by int64) any {
		step := stepOf("v2", func(u *unstructured.Unstructured) error {
			size, _, err := unstructured.NestedInt64(u.Object, "spec", "gibibytes")
			if by == 0 || err != nil {
				return err
			}
			return unstructured.SetNestedField(u.Object, size+by, "spec", "gibibytes")
		})
		step.ID = "grow"
		return step
	}
	tree := func(r *eirinixtest.Result) (tree map[string]any) {
		GinkgoHelper()
		Expect(json.Unmarshal(r.JSON, &tree)).To(Succeed())
		return tree
	}

	It("sends an object in the version of the rule, and returns it in its own", func() {
		h := eirinixtest.NewHarness(GinkgoTB(), disks{}.conversion(), grow(4))
		result := h.Create(older)
		Expect(result).To(And(eirinixtest.BeAllowed(), eirinixtest.HaveRun("grow")))
		request := result.Calls[0].Request
		Expect(request.Kind).To(Equal(metav1.GroupVersionKind{Group: "example.org", Version: "v2", Kind: "Disk"}))
		Expect(request.Resource).To(Equal(metav1.GroupVersionResource{Group: "example.org", Version: "v2", Resource: "disks"}))
		Expect(request.RequestKind).To(HaveField("Version", "v1"))
		Expect(request.RequestResource).To(HaveField("Version", "v1"))
		Expect(string(request.Object.Raw)).To(And(ContainSubstring(`"apiVersion":"example.org/v2"`), ContainSubstring(`"spec":{"gibibytes":3}`)))
		Expect(result).To(eirinixtest.HavePatched(eirinixtest.Operation("replace", "/spec/gibibytes", 7)))
		Expect(tree(result)).To(Equal(map[string]any{
			"apiVersion": "example.org/v1", "kind": "Disk", "metadata": map[string]any{"name": "d", "namespace": "default"},
			"gibibytes": 7., "history": []any{"made"}, "unknown": "kept",
		}))
	})

	DescribeTable("converts nothing for a webhook that is not called", func(settings eirinix.Settings) {
		calls := 0
		d := disks{up: func(*OldDisk, *Disk) error { calls++; return nil }}
		uncalled := stepOf("v2", func(*unstructured.Unstructured) error { return errors.New("called") })
		settings.Rules = uncalled.Settings.Rules
		uncalled.ID, uncalled.Settings = "uncalled", settings
		Expect(eirinixtest.NewHarness(GinkgoTB(), d.conversion(), uncalled).Create(older)).To(And(eirinixtest.BeAllowed(), Not(eirinixtest.HaveRun("uncalled"))))
		Expect(calls).To(BeZero())
	},
		Entry("because of a selector", eirinix.Settings{Objects: selector("chosen", "yes")}),
		Entry("because of matchPolicy Exact", eirinix.Settings{MatchPolicy: "Exact"}),
	)

	// Three programs: "a" sets the class, which v2 alone has, "b" can be about v1, and "c" looks at the class in v2.
	DescribeTable("converts an object back when another version is needed, as an API server does", func(versionOfB, seen string, backs int) {
		downs := 0
		lossy := disks{lossy: true, down: func(_ *Disk, to *OldDisk) error { to.Class, downs = nil, downs+1; return nil }}
		class := ""
		parts := []any{lossy.conversion(), func(o *eirinixtest.HarnessOptions) {
			for _, version := range []string{"v1", "v2"} { // for the programs without the conversion
				o.Resources = append(o.Resources, offline.Resource{Kind: gadgetKind(version).GroupVersion().WithKind("Disk"), Resource: "disks"})
			}
		}}
		for name, step := range map[string]eirinix.Mutation[*unstructured.Unstructured]{
			"a": stepOf("v2", func(u *unstructured.Unstructured) error {
				return unstructured.SetNestedField(u.Object, "fast", "spec", "class")
			}),
			"b": stepOf(versionOfB, func(*unstructured.Unstructured) error { return nil }),
			"c": stepOf("v2", func(u *unstructured.Unstructured) error {
				class, _, _ = unstructured.NestedString(u.Object, "spec", "class")
				return nil
			}),
		} {
			step.ID = name
			m := eirinix.NewManager(eirinix.ManagerOptions{OperatorFingerprint: name})
			Expect(m.AddExtension(step)).To(Succeed())
			parts = append(parts, m)
		}
		result := eirinixtest.NewHarness(GinkgoTB(), parts...).Create(older)
		Expect(result).To(And(eirinixtest.BeAllowed(), eirinixtest.HaveRun("a"), eirinixtest.HaveRun("b"), eirinixtest.HaveRun("c")))
		Expect(class).To(Equal(seen))
		Expect(tree(result)).To(And(HaveKeyWithValue("apiVersion", "example.org/v1"), HaveKeyWithValue("gibibytes", 3.), Not(HaveKey("class"))))
		Expect(downs).To(Equal(backs))
	},
		Entry("not between two webhooks of one version", "v2", "fast", 1),
		Entry("for a webhook of the version that was sent", "v1", "", 1),
	)

	It("does not convert back an object that was not patched", func() {
		var mu sync.Mutex
		backs := 0
		d := disks{down: func(from *Disk, to *OldDisk) error {
			mu.Lock()
			defer mu.Unlock()
			to.Gibibytes, backs = -1, backs+1
			return nil
		}}
		result := eirinixtest.NewHarness(GinkgoTB(), d.conversion(), grow(0)).Create(older)
		Expect(result).To(And(eirinixtest.HaveRun("grow"), eirinixtest.BeUnchanged()))
		Expect(tree(result)).To(HaveKeyWithValue("gibibytes", 3.))
		Expect(backs).To(BeNumerically(">", 0), "the library looks for losses")
	})

	It("converts both objects of an update, for validations too", func() {
		var sizes []any
		h := eirinixtest.NewHarness(GinkgoTB(), disks{}.conversion(), eirinix.Validation[*unstructured.Unstructured]{
			ID: "sizes", Settings: eirinix.Settings{Rules: rulesFor("example.org", "v2", "disks")},
			Update: func(_ context.Context, _ *eirinix.Call, oldObj, newObj *unstructured.Unstructured) error {
				sizes = []any{oldObj.Object["spec"], newObj.Object["spec"]}
				return eirinix.Deny("no")
			},
		})
		result := h.Update(older, "{apiVersion: example.org/v1, kind: Disk, metadata: {name: d}, gibibytes: 9}")
		Expect(result).To(eirinixtest.BeDenied().WithMessage("no"))
		Expect(sizes).To(Equal([]any{map[string]any{"gibibytes": int64(3)}, map[string]any{"gibibytes": int64(9)}}))
	})

	It("fails as the API server does if an object cannot be converted", func() {
		d := disks{up: func(*OldDisk, *Disk) error { return errors.New("not today") }}
		Expect(eirinixtest.NewHarness(GinkgoTB(), d.conversion(), grow(1)).Create(older)).To(eirinixtest.HaveFailed(
			"conversion webhook for example.org/v1, Kind=Disk failed: object 0 (Disk default/d) from v1 to v2: the conversion from v1 to v2 failed: not today"))
	})
})
