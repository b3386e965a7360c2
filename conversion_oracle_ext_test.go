package eirinix_test

// This file specifies server-side apply of fields that some versions lack: it compares random edits in several versions, of
// which each lacks something, with those of a kind that has all of it in each.

import (
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"strings"
	"sync"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/structured-merge-diff/v6/fieldpath"

	"code.cloudfoundry.org/eirinix/conversion"
)

// members are those that a version can have, beside items.
var members = map[string][]string{
	"spec": {"color", "limits", "more", "shared", "size", "tags", "words"}, "status": {"counts", "phase", "ready"},
}

// lacking holds the members that each version lacks. "items.x" is one of each item.
var lacking = map[string][]string{
	"v1": {}, "v2": {"spec.size", "spec.tags", "spec.words", "spec.items.note", "status.phase"},
	"v3": {"spec.color", "spec.limits", "spec.items.port", "spec.more", "status.counts"},
}

// without removes the members that a version lacks from an object, and reports whether there was any of it.
func without(version string, o map[string]any) (lacked bool) {
	for _, path := range lacking[version] {
		part, name, _ := strings.Cut(path, ".")
		of, _ := o[part].(map[string]any)
		all := []any{of}
		if inner, ok := strings.CutPrefix(name, "items."); ok {
			all, _ = of["items"].([]any)
			name = inner
		}
		for _, m := range all {
			if m, _ := m.(map[string]any); m[name] != nil {
				lacked = true
				delete(m, name)
			}
		}
	}
	return lacked
}

func things(group string) conversion.Of[*unstructured.Unstructured] {
	to := func(version string) conversion.Spoke[*unstructured.Unstructured] {
		return conversion.NewSpoke(version, unchanged, func(_ context.Context, o *unstructured.Unstructured) (*unstructured.Unstructured, error) {
			without(version, o.Object)
			return o, nil
		})
	}
	return conversion.Of[*unstructured.Unstructured]{CRD: "things." + group, Version: "v1", Spokes: []conversion.Spoke[*unstructured.Unstructured]{to("v2"), to("v3")}}
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
			"properties":{"name":{"type":"string"},"note":{"type":"string"},"port":{"type":"integer"},"image":{"type":"string"}}}}}},
		"status":{"type":"object","properties":{"phase":{"type":"string"},"ready":{"type":"boolean"},
			"counts":{"type":"object","additionalProperties":{"type":"integer"}}}}}}}`), &schema)).To(Succeed())
	var versions []any
	for _, name := range []string{"v1", "v2", "v3"} {
		versions = append(versions, map[string]any{"name": name, "served": true, "storage": name == stored, "schema": schema, "subresources": map[string]any{"status": map[string]any{}}})
	}
	return &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition", "metadata": map[string]any{"name": "things." + group},
		"spec": map[string]any{
			"group": group, "scope": "Namespaced", "versions": versions,
			"names": map[string]any{"kind": "Thing", "plural": "things", "singular": "thing", "listKind": "ThingList"},
		},
	}}
}

// randomPart makes a spec or a status of the members of a version.
func randomPart(r *rand.Rand, part, version string) map[string]any {
	word := func() any { return string(rune('a' + r.IntN(3))) }
	number := func() any { return int64(r.IntN(3)) }
	words := func() any {
		all := []any{"a", "b", "c"}
		first := r.IntN(3)
		return all[first : first+1+r.IntN(3-first)]
	}
	limits := func() any { return map[string]any{word().(string): word(), word().(string): word()} }
	values := map[string]func() any{
		"color": word, "shared": word, "size": number, "limits": limits, "more": limits, "tags": words, "words": words, "note": word, "port": number, "image": word,
		"phase": word, "ready": func() any { return r.IntN(2) == 0 }, "counts": func() any { return map[string]any{word().(string): number()} },
	}
	some := func(o map[string]any, names ...string) map[string]any {
		for _, name := range names {
			if r.IntN(3) == 0 {
				o[name] = values[name]()
			}
		}
		return o
	}
	content := some(map[string]any{}, members[part]...)
	var items []any
	for _, name := range []string{"x", "y", "z"} {
		if part == "spec" && r.IntN(2) == 0 {
			items = append(items, some(map[string]any{"name": name}, "note", "port", "image"))
		}
	}
	if items != nil {
		content["items"] = items
	}
	without(version, map[string]any{part: content})
	return content
}

// ownersOf returns the fields of spec and status that each manager owns, of all its versions and operations.
func ownersOf(o *unstructured.Unstructured) map[string]string {
	owners := map[string]*fieldpath.Set{}
	for _, m := range o.GetManagedFields() {
		if m.Manager == "before-first-apply" {
			continue // it owns what the first version had that was applied, and annotations of the rest
		}
		set := &fieldpath.Set{}
		Expect(set.FromJSON(strings.NewReader(m.FieldsV1.String()))).To(Succeed())
		for _, part := range []string{"spec", "status"} {
			of, key := set.WithPrefix(fieldpath.PathElement{FieldName: &part}), m.Manager+"."+part
			if owners[key] != nil {
				of = of.Union(owners[key])
			}
			owners[key] = of
		}
	}
	all := map[string]string{}
	for key, set := range owners {
		if !set.Empty() {
			all[key] = set.String()
		}
	}
	return all
}

// An edit is one request of a sequence.
type edit struct {
	version, manager, part string
	force, update          bool
	value                  map[string]any
}

// randomEdit returns an edit by one of some managers in one of some versions.
//
// Each manager edits the status in one version alone: no request to that subresource can change annotations, so one that
// gives up a status in a version that lacks it leaves it.
func randomEdit(r *rand.Rand, versions, managers int) edit {
	e := edit{version: fmt.Sprint("v", r.IntN(versions)+1), manager: string(rune('A' + r.IntN(managers))), part: "spec", force: r.IntN(3) == 0, update: r.IntN(4) == 0}
	if r.IntN(5) == 0 {
		e.part, e.version = "status", fmt.Sprint("v", int(e.manager[0]-'A')%versions+1)
	}
	e.value = randomPart(r, e.part, e.version)
	return e
}

// play sends an edit. An update sets and removes members that its version has, as a controller does.
func (e edit) play(ctx context.Context, at dynamic.ResourceInterface, group, name string) (*unstructured.Unstructured, error) {
	var subresources []string
	if e.part == "status" {
		subresources = []string{"status"}
	}
	if !e.update {
		o := &unstructured.Unstructured{Object: map[string]any{"apiVersion": group + "/" + e.version, "kind": "Thing", "metadata": map[string]any{"name": name}, e.part: e.value}}
		return at.Apply(ctx, name, o, metav1.ApplyOptions{FieldManager: e.manager, Force: e.force}, subresources...)
	}
	o, err := at.Get(ctx, name, metav1.GetOptions{})
	if err != nil {
		return nil, err
	}
	of, _ := o.Object[e.part].(map[string]any)
	if of == nil {
		of = map[string]any{}
	}
	for _, name := range members[e.part] {
		if value, has := e.value[name]; has {
			of[name] = runtime.DeepCopyJSONValue(value)
		} else if !slices.Contains(lacking[e.version], e.part+"."+name) {
			delete(of, name)
		}
	}
	o.Object[e.part] = of
	return at.Update(ctx, o, metav1.UpdateOptions{FieldManager: e.manager}, subresources...)
}

var _ = Describe("Random edits in several versions", Label("api-server"), func() {
	DescribeTable("end as if each version had all", func(ctx SpecContext, stored string, sequences int) {
		namespace := newNamespace(ctx)
		group, oracle := namespace+".example.com", namespace+".example.org"
		cluster := anyClient()
		for _, crd := range []*unstructured.Unstructured{thingsDefinition(group, stored), thingsDefinition(oracle, stored)} {
			Expect(cluster.Create(ctx, crd)).To(Succeed())
			DeferCleanup(cluster.Delete, crd)
		}
		runManager(ctx, managerWith(urlOptions(namespace), things(group)))
		config := rest.CopyConfig(controlPlane().Config())
		config.QPS = -1
		client, err := dynamic.NewForConfig(config)
		Expect(err).NotTo(HaveOccurred())
		at := func(group, version string) dynamic.ResourceInterface {
			return client.Resource(schema.GroupVersionResource{Group: group, Version: version, Resource: "things"}).Namespace(namespace)
		}
		Eventually(func(g Gomega) {
			for _, group := range []string{group, oracle} {
				for version := range lacking {
					_, err := at(group, version).List(ctx, metav1.ListOptions{})
					g.Expect(err).NotTo(HaveOccurred())
				}
			}
		}).WithContext(ctx).WithTimeout(patience).Should(Succeed())

		seed := uint64(1) // so that a failure is one of the change
		if os.Getenv("EIRINIX_SOAK") != "" {
			seed, sequences = uint64(GinkgoRandomSeed()), 35*sequences
		}

		// sequence plays edits of both kinds, and returns the story, and where they differ.
		sequence := func(n, again int) (seen map[string]bool, err error) {
			defer func() {
				if value := recover(); value != nil {
					err = value.(difference)
				}
			}()
			Expect := NewGomega(func(message string, _ ...int) { panic(difference(message)) }).Expect
			r := rand.New(rand.NewPCG(seed, uint64(n)))
			name, history := fmt.Sprintf("thing-%d-%d", n, again), &strings.Builder{}
			seen = map[string]bool{}
			fmt.Fprintf(history, "seed %d, sequence %d:\n", seed, n)
			about := func() string { return history.String() }
			versions, managers := 2+r.IntN(2), 2+r.IntN(2)
			var before *unstructured.Unstructured
			for range 8 {
				e := randomEdit(r, versions, managers)
				fmt.Fprintf(history, "%+v\n", e)
				ours, err := e.play(ctx, at(group, e.version), group, name)
				theirs, other := e.play(ctx, at(oracle, e.version), oracle, name)
				if holdsNull(err) || holdsNull(other) {
					return seen, nil
				}
				if apierrors.IsConflict(err) && apierrors.IsConflict(other) {
					seen["conflicted"] = true // ours can name the annotation that stands for a field
					continue
				}
				if err != nil && other != nil {
					Expect(strings.ReplaceAll(err.Error(), group, "")).To(Equal(strings.ReplaceAll(other.Error(), oracle, "")), about)
					continue
				}
				Expect(err).NotTo(HaveOccurred(), about)
				Expect(other).NotTo(HaveOccurred(), about)
				for name := range ours.GetAnnotations() {
					seen["lost"] = seen["lost"] || strings.HasPrefix(name, "conversion.")
				}
				without(e.version, theirs.Object) // it has what only other versions have
				Expect(contentOf(ours)).To(Equal(contentOf(theirs)), about)
				whole, err := at(group, "v1").Get(ctx, name, metav1.GetOptions{})
				Expect(err).NotTo(HaveOccurred(), about)
				expected, err := at(oracle, "v1").Get(ctx, name, metav1.GetOptions{})
				Expect(err).NotTo(HaveOccurred(), about)
				Expect(contentOf(whole)).To(Equal(contentOf(expected)), about)
				Expect(ownersOf(whole)).To(Equal(ownersOf(expected)), about)
				lacks := without(e.version, expected.Object)
				seen["restored"] = seen["restored"] || lacks
				seen["removed"] = seen["removed"] || before != nil && !lacks && without(e.version, before.Object)
				before = whole
			}
			return seen, nil
		}
		counts, mu := map[string]int{}, sync.Mutex{}
		var all sync.WaitGroup
		for worker := range 4 {
			all.Go(func() {
				defer GinkgoRecover()
				for n := worker; n < sequences; n += 4 {
					seen, err := sequence(n, 0)
					for again := 1; err != nil && again <= 20; again++ {
						// structured-merge-diff looks at versions in random order, so the same edits can end in several ways.
						if seen, err = sequence(n, again); err == nil {
							seen["repeated"] = true
						}
					}
					Expect(err).NotTo(HaveOccurred())
					mu.Lock()
					for what, is := range seen {
						if is {
							counts[what]++
						}
					}
					mu.Unlock()
				}
			})
		}
		all.Wait()
		AddReportEntry("sequences", fmt.Sprint(sequences, " sequences stored in ", stored, ": ", counts))
		for what, share := range map[string]int{"lost": 2, "restored": 2, "removed": 16, "conflicted": 4} {
			Expect(counts[what]).To(BeNumerically(">", sequences/share), what)
		}
		Expect(counts["repeated"]).To(BeNumerically("<=", sequences/10))
	},
		Entry("stored with all", "v1", 20),
		Entry("stored without some", "v2", 20),
		Entry("stored without others", "v3", 20),
	)
})

// holdsNull reports whether an edit is refused for a null, which structured-merge-diff leaves of a map or list that has
// lost all that its version has.
func holdsNull(err error) bool {
	return apierrors.IsInvalid(err) && strings.Contains(err.Error(), `"null"`)
}

// difference says in which members two objects differ.
type difference string

func (d difference) Error() string { return string(d) }

// contentOf returns the spec and the status of an object. An empty one is as one that is missing.
func contentOf(o *unstructured.Unstructured) map[string]any {
	content := map[string]any{}
	for _, part := range []string{"spec", "status"} {
		if of, _ := o.Object[part].(map[string]any); len(of) > 0 {
			content[part] = of
		}
	}
	return content
}
