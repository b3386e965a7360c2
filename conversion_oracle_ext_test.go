package eirinix_test

// This file compares random applies in two versions, of which each lacks something, with those of a kind that has all of it
// in both.

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"
	"sigs.k8s.io/structured-merge-diff/v6/fieldpath"

	"code.cloudfoundry.org/eirinix"
)

// lacking holds the members of spec that each version lacks. "items.x" is one of each item.
var lacking = map[string][]string{"v1": {}, "v2": {"size", "tags", "words", "items.note"}, "v3": {"color", "limits", "items.port", "more"}}

// without removes what a version lacks from a spec.
func without(version string, spec map[string]any) {
	for _, name := range lacking[version] {
		if inner, ok := strings.CutPrefix(name, "items."); ok {
			items, _ := spec["items"].([]any)
			for _, item := range items {
				delete(item.(map[string]any), inner)
			}
			continue
		}
		delete(spec, name)
	}
}

func things(group string) eirinix.Conversion[*unstructured.Unstructured] {
	to := func(version string) func(context.Context, *unstructured.Unstructured) (*unstructured.Unstructured, error) {
		return func(_ context.Context, o *unstructured.Unstructured) (*unstructured.Unstructured, error) {
			if spec, ok := o.Object["spec"].(map[string]any); ok {
				without(version, spec)
			}
			return o, nil
		}
	}
	return eirinix.Conversion[*unstructured.Unstructured]{
		CRD: "things." + group, Version: "v1",
		Spokes: []eirinix.Spoke[*unstructured.Unstructured]{
			eirinix.NewSpoke("v2", to("v1"), to("v2")), eirinix.NewSpoke("v3", to("v1"), to("v3")),
		},
	}
}

// thingsDefinition is the definition of things, which are stored in one of three versions with the same schema.
func thingsDefinition(group, stored string) *unstructured.Unstructured {
	var schema map[string]any
	Expect(json.Unmarshal([]byte(`{"openAPIV3Schema":{"type":"object","properties":{"spec":{"type":"object","properties":{
		"size":{"type":"integer"},"color":{"type":"string"},"shared":{"type":"string"},
		"limits":{"type":"object","additionalProperties":{"type":"string"}},
		"more":{"type":"object","x-kubernetes-map-type":"atomic","additionalProperties":{"type":"string"}},
		"tags":{"type":"array","x-kubernetes-list-type":"set","items":{"type":"string"}},
		"words":{"type":"array","x-kubernetes-list-type":"atomic","items":{"type":"string"}},
		"items":{"type":"array","x-kubernetes-list-type":"map","x-kubernetes-list-map-keys":["name"],"items":{"type":"object","required":["name"],
			"properties":{"name":{"type":"string"},"note":{"type":"string"},"port":{"type":"integer"},"image":{"type":"string"}}}}}}}}}`), &schema)).To(Succeed())
	var versions []any
	for _, name := range []string{"v1", "v2", "v3"} {
		versions = append(versions, map[string]any{"name": name, "served": true, "storage": name == stored, "schema": schema})
	}
	return &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition", "metadata": map[string]any{"name": "things." + group},
		"spec": map[string]any{
			"group": group, "scope": "Namespaced", "versions": versions,
			"names": map[string]any{"kind": "Thing", "plural": "things", "singular": "thing", "listKind": "ThingList"},
		},
	}}
}

// randomSpec makes a spec of what a version has.
func randomSpec(r *rand.Rand, version string) map[string]any {
	word := func() string { return string(rune('a' + r.IntN(3))) }
	some := func() bool { return r.IntN(3) == 0 }
	spec := map[string]any{}
	for _, name := range []string{"color", "shared"} {
		if some() {
			spec[name] = word()
		}
	}
	if some() {
		spec["size"] = int64(r.IntN(3))
	}
	for _, name := range []string{"limits", "more"} {
		if some() {
			spec[name] = map[string]any{word(): word(), word(): word()}
		}
	}
	for _, name := range []string{"tags", "words"} {
		if some() {
			all := map[string]any{word(): nil, word(): nil}
			var list []any
			for _, w := range slices.Sorted(maps.Keys(all)) {
				list = append(list, w)
			}
			spec[name] = list
		}
	}
	if !some() {
		var items []any
		for _, name := range []string{"x", "y", "z"} {
			if !some() {
				item := map[string]any{"name": name}
				if some() {
					item["note"] = word()
				}
				if some() {
					item["port"] = int64(r.IntN(3))
				}
				if some() {
					item["image"] = word()
				}
				items = append(items, item)
			}
		}
		if items != nil {
			spec["items"] = items
		}
	}
	without(version, spec)
	return spec
}

// ownersOf returns the fields of spec that each manager owns, of all its versions and operations.
func ownersOf(o *unstructured.Unstructured) map[string]string {
	owners := map[string]*fieldpath.Set{}
	for _, m := range o.GetManagedFields() {
		set := &fieldpath.Set{}
		Expect(set.FromJSON(strings.NewReader(m.FieldsV1.String()))).To(Succeed())
		spec := set.WithPrefix(fieldpath.PathElement{FieldName: new("spec")})
		if owners[m.Manager] != nil {
			spec = spec.Union(owners[m.Manager])
		}
		owners[m.Manager] = spec
	}
	all := map[string]string{}
	for manager, set := range owners {
		if !set.Empty() {
			all[manager] = set.String()
		}
	}
	return all
}

var _ = Describe("Random applies in several versions", Label("api-server"), func() {
	DescribeTable("end as if each version had all", func(ctx SpecContext, stored string, sequences int) {
		namespace := newNamespace(ctx)
		group, oracleGroup := namespace+".example.com", namespace+".example.org"
		cluster := anyClient()
		for _, crd := range []*unstructured.Unstructured{thingsDefinition(group, stored), thingsDefinition(oracleGroup, stored)} {
			Expect(cluster.Create(ctx, crd)).To(Succeed())
			DeferCleanup(cluster.Delete, crd)
		}
		m := eirinix.NewManager(urlOptions(namespace))
		Expect(m.AddExtension(things(group))).To(Succeed())
		runManager(ctx, m)
		config := controlPlane().Config()
		config.QPS = -1
		client, err := dynamic.NewForConfig(config)
		Expect(err).NotTo(HaveOccurred())
		at := func(group, version string) dynamic.ResourceInterface {
			return client.Resource(schema.GroupVersionResource{Group: group, Version: version, Resource: "things"}).Namespace(namespace)
		}
		Eventually(func(g Gomega) {
			for _, group := range []string{group, oracleGroup} {
				for _, version := range []string{"v1", "v2", "v3"} {
					_, err := at(group, version).List(ctx, metav1.ListOptions{})
					g.Expect(err).NotTo(HaveOccurred())
				}
			}
		}).WithContext(ctx).WithTimeout(patience).Should(Succeed())

		counts := map[string]int{}
		for n := range sequences {
			r := rand.New(rand.NewPCG(uint64(GinkgoRandomSeed()), uint64(n)))
			name, history := fmt.Sprintf("thing-%d", n), []string{}
			seen := map[string]bool{}
			for range 8 {
				version, manager, force := fmt.Sprint("v", r.IntN(3)+1), string(rune('A'+r.IntN(3))), r.IntN(3) == 0
				spec := randomSpec(r, version)
				text, err := json.Marshal(spec)
				Expect(err).NotTo(HaveOccurred())
				update := r.IntN(4) == 0 // of one member, as a controller writes it
				history = append(history, fmt.Sprintf("%s in %s force=%t update=%t: %s", manager, version, force, update, text))
				var errs [2]error
				var ends [2]*unstructured.Unstructured
				for i, group := range []string{group, oracleGroup} {
					data := fmt.Appendf(nil, `{"apiVersion":"%s/%s","kind":"Thing","metadata":{"name":"%s"},"spec":%s}`, group, version, name, text)
					options := metav1.PatchOptions{FieldManager: manager, Force: &force}
					kind := types.ApplyPatchType
					if update {
						data, kind, options.Force = fmt.Appendf(nil, `{"spec":{"shared":"u%d"}}`, r.IntN(1)), types.MergePatchType, nil
					}
					_, errs[i] = at(group, version).Patch(ctx, name, kind, data, options)
					if ends[i], err = at(group, "v1").Get(ctx, name, metav1.GetOptions{}); !errors.IsNotFound(err) {
						Expect(err).NotTo(HaveOccurred(), strings.Join(history, "\n"))
					}
				}
				ours, theirs := errs[0], errs[1]
				if ours != nil && theirs != nil {
					Expect(strings.ReplaceAll(ours.Error(), group, "")).To(Equal(strings.ReplaceAll(theirs.Error(), oracleGroup, "")), strings.Join(history, "\n"))
					seen["conflicted"] = true
				} else {
					Expect(ours).NotTo(HaveOccurred(), strings.Join(history, "\n"))
					Expect(theirs).NotTo(HaveOccurred(), strings.Join(history, "\n"))
				}
				if ends[0] == nil || ends[1] == nil {
					continue
				}
				was := ends[0].Object["spec"]
				Expect(was).To(Equal(ends[1].Object["spec"]), "seed %d, sequence %d:\n%s", GinkgoRandomSeed(), n, strings.Join(history, "\n"))
				Expect(ownersOf(ends[0])).To(Equal(ownersOf(ends[1])), "seed %d, sequence %d:\n%s", GinkgoRandomSeed(), n, strings.Join(history, "\n"))
				older, err := at(group, "v2").Get(ctx, name, metav1.GetOptions{})
				Expect(err).NotTo(HaveOccurred())
				for name := range older.GetAnnotations() {
					seen["lost"] = seen["lost"] || strings.HasPrefix(name, "conversion.")
				}
			}
			for what := range seen {
				counts[what]++
			}
		}
		AddReportEntry("sequences", fmt.Sprint(sequences, " sequences: ", counts))
		Expect(counts["lost"]).To(BeNumerically(">", sequences/2))
		Expect(counts["conflicted"]).To(BeNumerically(">", sequences/4))
	},
		Entry("stored with all", "v1", 100),
		Entry("stored without some", "v2", 100),
	)
})
