package eirinixtest_test

// This file specifies what the Harness does with Conversions: the check of their round trips, and requests in several versions.

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"regexp"
	"strings"
	"sync"
	"sync/atomic"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/randfill"
	"sigs.k8s.io/yaml"

	"code.cloudfoundry.org/eirinix"
	"code.cloudfoundry.org/eirinix/conversion"
	"code.cloudfoundry.org/eirinix/offline"
	eirinixtest "code.cloudfoundry.org/eirinix/testing"
)

// Disk is the hub of a kind with two versions.
type Disk struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	Spec DiskSpec `json:"spec"`
}

type DiskSpec struct {
	Gibibytes int64             `json:"gibibytes"`
	Class     *string           `json:"class,omitempty"`
	Limits    map[string]string `json:"limits,omitempty"`
	Mounts    []Mount           `json:"mounts,omitempty"`
}

type Mount struct {
	Path string `json:"path"`
	Note string `json:"note,omitempty"`
}

// OldDisk is the same kind in an older version.
type OldDisk struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	Gibibytes int64             `json:"gibibytes"`
	Class     *string           `json:"class,omitempty"`
	Limits    map[string]string `json:"limits,omitempty"`
	Mounts    []Mount           `json:"mounts,omitempty"`
	History   []string          `json:"history,omitempty"`
}

func (d *Disk) DeepCopyObject() runtime.Object    { c := *d; return &c }
func (d *OldDisk) DeepCopyObject() runtime.Object { c := *d; return &c }

// disks are the conversions of a spec. Either can be changed.
type disks struct {
	up    func(*OldDisk, *Disk) error
	down  func(*Disk, *OldDisk) error
	lossy bool
}

// conversion returns a conversion that loses nothing but the history, if the spec changes nothing.
func (d disks) conversion() conversion.Of[*Disk] {
	return conversion.Of[*Disk]{CRD: "disks.example.org", Version: "v2", Lossy: d.lossy, Spokes: []conversion.Spoke[*Disk]{
		conversion.NewSpoke("v1",
			func(_ context.Context, from *OldDisk) (*Disk, error) {
				to := &Disk{ObjectMeta: from.ObjectMeta, Spec: DiskSpec{Gibibytes: from.Gibibytes, Class: from.Class, Limits: from.Limits, Mounts: from.Mounts}}
				if d.up != nil {
					return to, d.up(from, to)
				}
				return to, nil
			},
			func(_ context.Context, from *Disk) (*OldDisk, error) {
				s := from.Spec
				to := &OldDisk{ObjectMeta: from.ObjectMeta, Gibibytes: s.Gibibytes, Class: s.Class, Limits: s.Limits, Mounts: s.Mounts}
				if d.down != nil {
					return to, d.down(from, to)
				}
				return to, nil
			}),
	}}
}

// swap confuses two fields of the same type.
func swap(_ *OldDisk, to *Disk) error {
	for i, m := range to.Spec.Mounts {
		to.Spec.Mounts[i] = Mount{Path: m.Note, Note: m.Path}
	}
	return nil
}

// objects is a number of random objects that makes a spec quick.
const objects = 200

func fewer(o *eirinixtest.RoundTripOptions) {
	Expect(o.Objects).To(Equal(10_000), "by default")
	o.Objects = objects
}

// checked returns the losses of a conversion, or the failure.
func checked(part any, options ...func(*eirinixtest.RoundTripOptions)) (losses []string, failure string) {
	GinkgoHelper()
	failure = failureOf(func(t *fakeTest) {
		losses = eirinixtest.NewHarness(t, part).CheckRoundTrip(append([]func(*eirinixtest.RoundTripOptions){fewer}, options...)...)
	})
	return losses, failure
}

// refuses returns an error for some disks, in both directions.
func refuses(bad func(size int64, class *string, mounts []Mount) bool) disks {
	return disks{
		up: func(from *OldDisk, _ *Disk) error {
			if bad(from.Gibibytes, from.Class, from.Mounts) {
				return errors.New("no such disk")
			}
			return nil
		},
		down: func(from *Disk, _ *OldDisk) error {
			if bad(from.Spec.Gibibytes, from.Spec.Class, from.Spec.Mounts) {
				return errors.New("no such disk")
			}
			return nil
		},
	}
}

func negative(size int64, _ *string, _ []Mount) bool { return size < 0 }

var _ = Describe("CheckRoundTrip", func() {
	It("passes conversions that lose nothing, with the same objects of each version in every run", func() {
		seen := func() (n int64, last string) {
			var count atomic.Int64
			var name atomic.Value
			d := disks{up: func(from *OldDisk, _ *Disk) error {
				count.Add(1)
				name.Store(from.Name + fmt.Sprint(from.Labels, from.Mounts))
				return nil
			}}
			losses, failure := checked(d.conversion(), func(o *eirinixtest.RoundTripOptions) { Expect(o.Objects).To(Equal(objects)) })
			Expect(failure).To(BeEmpty())
			Expect(losses).To(ConsistOf("Disk v1 -> v2 -> v1: history"))
			return count.Load(), name.Load().(string)
		}
		n, last := seen()
		Expect(n).To(BeNumerically(">=", 2*objects))
		again, lastAgain := seen()
		Expect(again).To(Equal(n))
		Expect(lastAgain).To(Equal(last))
	})

	DescribeTable("returns what the functions lose, although the annotation restores it", func(d disks, expected ...string) {
		losses, failure := checked(d.conversion())
		Expect(failure).To(BeEmpty())
		Expect(losses).To(ConsistOf(append(expected, "Disk v1 -> v2 -> v1: history")))
	},
		Entry("that has no place", disks{down: func(_ *Disk, to *OldDisk) error {
			to.Class, to.Limits = nil, nil
			for i := range to.Mounts {
				to.Mounts[i].Note = ""
			}
			delete(to.Labels, "app")
			return nil
		}},
			"Disk v1 -> v2 -> v1: class", "Disk v1 -> v2 -> v1: limits", "Disk v1 -> v2 -> v1: mounts[].note", "Disk v1 -> v2 -> v1: metadata.labels",
			"Disk v2 -> v1 -> v2: spec.class", "Disk v2 -> v1 -> v2: spec.limits", "Disk v2 -> v1 -> v2: spec.mounts[].note", "Disk v2 -> v1 -> v2: metadata.labels"),
		Entry("that is swapped on the way back", disks{up: swap},
			"Disk v1 -> v2 -> v1: mounts[].note", "Disk v1 -> v2 -> v1: mounts[].path",
			"Disk v2 -> v1 -> v2: spec.mounts[].note", "Disk v2 -> v1 -> v2: spec.mounts[].path"),
		Entry("that is in a map, whose keys are a star", disks{down: func(_ *Disk, to *OldDisk) error {
			for key := range to.Limits {
				to.Limits[key] = "1"
			}
			return nil
		}}, "Disk v2 -> v1 -> v2: spec.limits.*", "Disk v1 -> v2 -> v1: limits.*"),
		Entry("that no annotation restores, if it is stable", disks{lossy: true, down: func(_ *Disk, to *OldDisk) error { to.Class = nil; return nil }},
			"Disk v2 -> v1 -> v2: spec.class", "Disk v1 -> v2 -> v1: class"),
	)

	DescribeTable("finds a broken conversion", func(d disks, expected ...string) {
		_, failure := checked(d.conversion())
		for _, text := range expected {
			Expect(failure).To(ContainSubstring(text))
		}
		Expect(failure).To(And(HavePrefix("eirinixtest: not reversible: "), ContainSubstring(", seed 1"), ContainSubstring("What to change: ")))
	},
		Entry("that panics", disks{down: func(from *Disk, to *OldDisk) error { to.Class = new(strings.Clone(*from.Spec.Class)); return nil }},
			"Disk v2 -> v1 -> v2 fails: object 0 (Disk default/object-", "from v2 to v1: the conversion panicked: runtime error: invalid memory address",
			"without the parts that do not matter:\n    apiVersion: example.org/v2\n    kind: Disk\n    metadata:\n      name: object-",
			"pointers and maps may be nil"),
		Entry("that returns an error for some objects", refuses(negative), "fails: object 0 (Disk default/object-", "from v2 to v1: the conversion from v2 to v1 failed: no such disk", "    gibibytes: -", "RoundTripOptions.Fill"),
		Entry("that changes metadata", disks{up: func(_ *OldDisk, to *Disk) error { to.Name = strings.ToUpper(to.Name); return nil }},
			"it changed metadata.name from", "copy ObjectMeta as a whole"),
		Entry("that is not the same in every call", disks{up: func() func(*OldDisk, *Disk) error {
			var calls atomic.Int64
			return func(_ *OldDisk, to *Disk) error { to.Spec.Gibibytes = calls.Add(1); return nil }
		}()}, "changes ", "gibibytes", " became ", "depend on their argument alone"),
		Entry("whose losses pile up", disks{lossy: true, up: swap},
			"a second round trip Disk v2 -> v1 -> v2 changes spec.mounts[0].note, spec.mounts[0].path again", "pile up"),
	)

	It("says which function cannot fill", func() {
		_, failure := checked(disks{}.conversion(), func(o *eirinixtest.RoundTripOptions) { o.Fill = []any{func(DiskSpec) {}} })
		Expect(failure).To(And(ContainSubstring("RoundTripOptions.Fill: "), ContainSubstring("func(*T, randfill.Continue)")))
	})

	It("checks samples first, by another seed", func() {
		d := disks{up: func(from *OldDisk, _ *Disk) error {
			if from.Name == "mine" {
				return errors.New("not this one")
			}
			return nil
		}}
		_, failure := checked(d.conversion(), func(o *eirinixtest.RoundTripOptions) {
			o.Samples = []any{"{apiVersion: example.org/v1, kind: Disk, metadata: {name: mine}, gibibytes: 1}"}
		})
		Expect(failure).To(And(ContainSubstring("not this one"), ContainSubstring("sample 1 of its version")))
		_, failure = checked(d.conversion(), func(o *eirinixtest.RoundTripOptions) { o.Seed = 77; o.Samples = []any{"nothing"} })
		Expect(failure).To(ContainSubstring("RoundTripOptions.Samples[0]: "))
	})

	It("refuses a Harness without conversions", func() {
		_, failure := checked(labeller("seen", "yes"))
		Expect(failure).To(ContainSubstring("there is no Conversion to check; give one to NewHarness"))
	})

	Describe("of unstructured versions", func() {
		tree := func(to, from func(map[string]any)) any {
			f := func(change func(map[string]any)) func(context.Context, *unstructured.Unstructured) (*unstructured.Unstructured, error) {
				return func(_ context.Context, u *unstructured.Unstructured) (*unstructured.Unstructured, error) {
					change(u.Object)
					return u, nil
				}
			}
			return conversion.Of[*unstructured.Unstructured]{CRD: "shops.example.org", Version: "v2", Spokes: []conversion.Spoke[*unstructured.Unstructured]{
				conversion.NewSpoke("v1", f(to), f(from)),
			}}
		}
		rename := func(from, to string) func(map[string]any) {
			return func(o map[string]any) {
				if v, ok := o[from]; ok {
					o[to] = v
					delete(o, from)
				}
			}
		}
		samples := func(o *eirinixtest.RoundTripOptions) {
			o.Samples = []any{
				"{apiVersion: example.org/v2, kind: Shop, metadata: {name: a}, owner: me, rooms: [{name: x, size: 3}, {name: y}], open: true}",
				"{apiVersion: example.org/v1, kind: Shop, metadata: {name: b}, keeper: me, rooms: [{name: x, size: 3}]}",
			}
		}

		It("names the remedy if there is nothing to make objects from", func() {
			_, failure := checked(tree(rename("keeper", "owner"), rename("owner", "keeper")))
			Expect(failure).To(And(ContainSubstring("there is nothing to make objects of example.org/v2 of shops.example.org from"), ContainSubstring("RoundTripOptions.Samples")))
		})

		It("finds a defect that a sample does not show", func() {
			_, failure := checked(tree(rename("keeper", "owner"), func(o map[string]any) {
				if o["rooms"].([]any) != nil {
					rename("owner", "keeper")(o)
				}
			}), samples)
			Expect(failure).To(And(ContainSubstring("Shop v2 -> v1 -> v2 fails: "), ContainSubstring("the conversion panicked: interface conversion")))
		})

		It("lets the author change the samples", func() {
			losses, failure := checked(tree(func(o map[string]any) { delete(o, "city"); rename("keeper", "owner")(o) }, rename("owner", "keeper")), samples,
				func(o *eirinixtest.RoundTripOptions) {
					o.Fill = []any{func(u *unstructured.Unstructured, c randfill.Continue) {
						if c.Bool() && strings.HasSuffix(u.GetAPIVersion(), "/v1") {
							u.Object["city"] = "Graz"
						}
					}}
				})
			Expect(failure).To(BeEmpty())
			Expect(losses).To(ConsistOf("Shop v1 -> v2 -> v1: city"))
		})
	})
})

// diskMembers are the members of a disk that both versions have, as schemas.
type diskMembers struct{ gibibytes, class, limits, mounts string }

// schema returns the schema of an object with these members, and more of it.
func (m diskMembers) schema(more string) string {
	or := func(given, without string) string {
		if given == "" {
			return without
		}
		return given
	}
	return fmt.Sprintf("{type: object, properties: {history: {type: array, items: {type: string}}, gibibytes: %s, class: %s, limits: %s, mounts: %s}%s}",
		or(m.gibibytes, "{type: integer}"), or(m.class, "{type: string}"), or(m.limits, "{type: object, additionalProperties: {type: string}}"),
		or(m.mounts, "{type: array, items: {type: object, properties: {path: {type: string}, note: {type: string}}}}"), more)
}

// definitionOf returns a definition whose versions have these schemas.
func definitionOf(plural, kind string, schemas map[string]string) string {
	text := fmt.Sprintf("{apiVersion: apiextensions.k8s.io/v1, kind: CustomResourceDefinition, metadata: {name: %s.example.org}, spec: {group: example.org, scope: Namespaced, names: {kind: %s, plural: %s}, versions: [",
		plural, kind, plural)
	for name, schema := range schemas {
		text += fmt.Sprintf("{name: %s, served: true, storage: %t, schema: {openAPIV3Schema: %s}},", name, name == "v2", schema)
	}
	return text + "]}}"
}

// diskDefinition returns the definition of disks. Both versions limit the members.
func diskDefinition(m diskMembers, more string) string {
	return definitionOf("disks", "Disk", map[string]string{"v1": m.schema(more), "v2": "{type: object, required: [spec], properties: {spec: " + m.schema(more) + "}}"})
}

var _ = Describe("CheckRoundTrip with the definition", func() {
	with := func(definition any) func(*eirinixtest.RoundTripOptions) {
		return func(o *eirinixtest.RoundTripOptions) { o.Definitions = []any{definition} }
	}
	// oneClass loses all classes but fast and slow.
	oneClass := disks{down: func(_ *Disk, to *OldDisk) error {
		if to.Class != nil && *to.Class != "fast" && *to.Class != "slow" {
			to.Class = nil
		}
		return nil
	}}

	DescribeTable("names no loss of values that the schema refuses", func(form func(text string) any) {
		losses, failure := checked(oneClass.conversion(), with(form(diskDefinition(diskMembers{class: "{type: string, enum: [fast, slow]}"}, ""))))
		Expect(failure).To(BeEmpty())
		Expect(losses).To(ConsistOf("Disk v1 -> v2 -> v1: history"))
	},
		Entry("given as YAML", func(text string) any { return "---\n" + text }),
		Entry("given as a Go value", func(text string) any {
			crd := &apiextensionsv1.CustomResourceDefinition{}
			Expect(yaml.Unmarshal([]byte(text), crd)).To(Succeed())
			return crd
		}),
	)

	pattern := regexp.MustCompile(`^/[a-z]+(/[a-z]+)*-?$`)
	DescribeTable("does not fail on objects that the schema refuses", func(m diskMembers, more string, bad func(int64, *string, []Mount) bool) {
		_, failure := checked(refuses(bad).conversion())
		Expect(failure).To(ContainSubstring("no such disk"))
		_, failure = checked(refuses(bad).conversion(), with(diskDefinition(m, more)))
		Expect(failure).To(BeEmpty())
	},
		Entry("because of a minimum and a maximum", diskMembers{gibibytes: "{type: integer, minimum: 3, exclusiveMinimum: true, maximum: 9}"}, "",
			func(size int64, _ *string, _ []Mount) bool { return size < 4 || size > 9 }),
		Entry("because of a required member", diskMembers{}, ", required: [class]",
			func(_ int64, class *string, _ []Mount) bool { return class == nil }),
		Entry("because of a pattern, in items", diskMembers{mounts: "{type: array, items: {type: object, properties: {path: {type: string, pattern: '^/[a-z]+(/[a-z]+)*-?$'}, note: {type: string}}}}"}, "",
			func(_ int64, _ *string, mounts []Mount) bool {
				return len(mounts) > 0 && !pattern.MatchString(mounts[0].Path)
			}),
		Entry("because of lengths", diskMembers{class: "{type: string, minLength: 20, maxLength: 25}"}, ", required: [class]",
			func(_ int64, class *string, _ []Mount) bool {
				return class == nil || len([]rune(*class)) < 20 || len([]rune(*class)) > 25
			}),
		Entry("because of bounds on items", diskMembers{mounts: "{type: array, minItems: 1, maxItems: 1, items: {type: object, properties: {path: {type: string}, note: {type: string}}}}"}, ", required: [mounts]",
			func(_ int64, _ *string, mounts []Mount) bool { return len(mounts) != 1 }),
		Entry("because of keys of items", diskMembers{mounts: "{type: array, x-kubernetes-list-type: map, x-kubernetes-list-map-keys: [path], items: {type: object, required: [path], properties: {path: {type: string}, note: {type: string}}}}"}, "",
			func(_ int64, _ *string, mounts []Mount) bool {
				return len(mounts) == 2 && mounts[0].Path == mounts[1].Path
			}),
		Entry("because of a rule of CEL", diskMembers{}, `, x-kubernetes-validations: [{rule: "!has(self.class) || self.gibibytes > 0"}]`,
			func(size int64, class *string, _ []Mount) bool { return class != nil && size <= 0 }),
	)

	DescribeTable("judges an object by the schema of the version in which it starts", func(older, newer diskMembers, failing string) {
		_, failure := checked(refuses(negative).conversion(), with(definitionOf("disks", "Disk", map[string]string{
			"v1": older.schema(""), "v2": "{type: object, properties: {spec: " + newer.schema("") + "}}",
		})))
		Expect(failure).To(ContainSubstring(failing))
	},
		Entry("the older one", diskMembers{gibibytes: "{type: integer, minimum: 0}"}, diskMembers{}, "Disk v2 -> v1 -> v2 fails: "),
		Entry("the newer one", diskMembers{}, diskMembers{gibibytes: "{type: integer, minimum: 0}"}, "Disk v1 -> v2 -> v1 fails: "),
	)

	It("makes members that are required, and not empty ones, since those are absent in Go", func() {
		d := refuses(func(_ int64, _ *string, mounts []Mount) bool { return len(mounts) == 0 })
		_, failure := checked(d.conversion(), with(diskDefinition(diskMembers{}, ", required: [mounts]")))
		Expect(failure).To(BeEmpty())
	})

	It("sets the defaults of a stored object when it comes back", func() {
		losses, failure := checked(disks{}.conversion(), with(diskDefinition(diskMembers{limits: "{type: object, default: {}, additionalProperties: {type: string}}"}, "")))
		Expect(failure).To(BeEmpty())
		Expect(losses).To(ConsistOf("Disk v1 -> v2 -> v1: history"))
	})

	It("removes members that the schema does not have", func() {
		without := regexp.MustCompile(`history: {type: array, items: {type: string}}, `).ReplaceAllString(diskDefinition(diskMembers{}, ""), "")
		losses, failure := checked(disks{}.conversion(), with(without))
		Expect(failure).To(BeEmpty())
		Expect(losses).To(BeEmpty())
	})

	It("fails if a conversion writes what the schema does not have", func() {
		_, failure := checked(disks{}.conversion(), with(definitionOf("disks", "Disk", map[string]string{
			"v1": diskMembers{}.schema(""), "v2": "{type: object, properties: {spec: {type: object, properties: {gibibytes: {type: integer}, class: {type: string}, mounts: {type: array, items: {type: object, x-kubernetes-preserve-unknown-fields: true}}}}}}",
		})))
		Expect(failure).To(And(ContainSubstring("Disk v1 -> v2 -> v1 changes limits"),
			ContainSubstring("What to change: the schema of v2 has no spec.limits, so that the API server drops what the conversion writes there: add it to the definition")))
	})

	It("fails if the schema refuses almost everything, and says what and what to do", func() {
		rule := `, x-kubernetes-validations: [{rule: "self.gibibytes == 7", message: it is not seven}]`
		_, failure := checked(disks{}.conversion(), with(diskDefinition(diskMembers{}, rule)))
		Expect(failure).To(And(MatchRegexp(`the schema of example.org/v2, Kind=Disk refuses (199|200) of 200 random objects`),
			MatchRegexp(`\n  spec \((199|200) objects\): Invalid value: .*it is not seven\n`),
			ContainSubstring("\n  o.Fill = append(o.Fill, func(v *eirinixtest_test.Disk, c randfill.Continue) { c.FillNoCustom(v); ")))
		_, failure = checked(disks{}.conversion(), with(diskDefinition(diskMembers{}, rule)), func(o *eirinixtest.RoundTripOptions) {
			o.Fill = append(o.Fill,
				func(v *Disk, c randfill.Continue) { c.FillNoCustom(v); v.Spec.Gibibytes = 7 },
				func(v *OldDisk, c randfill.Continue) { c.FillNoCustom(v); v.Gibibytes = 7 })
		})
		Expect(failure).To(BeEmpty())
	})

	It("logs what it has left out", func() {
		var log []string
		Expect(failureOf(func(t *fakeTest) {
			eirinixtest.NewHarness(t, disks{}.conversion()).CheckRoundTrip(fewer,
				with(diskDefinition(diskMembers{}, `, x-kubernetes-validations: [{rule: "!has(self.class)", message: no class}]`)))
			log = t.log
		})).To(BeEmpty())
		Expect(log).To(ContainElements(
			MatchRegexp(`^eirinixtest: Disk v1 -> v2 -> v1 was checked without \d+ of 200 random objects, which the schema refuses:\n  the object \(\d+ objects\): .*no class$`),
			MatchRegexp(`^eirinixtest: Disk v2 -> v1 -> v2 was checked without \d+ of 200 random objects, which the schema refuses:\n  spec \(\d+ objects\): .*no class$`)))
	})

	It("names the paths of refusals without indexes, the most frequent first", func() {
		_, failure := checked(disks{}.conversion(), with(diskDefinition(diskMembers{
			mounts: `{type: array, items: {type: object, x-kubernetes-validations: [{rule: "false", message: never}], properties: {path: {type: string}, note: {type: string}}}}`,
			class:  `{type: string, x-kubernetes-validations: [{rule: "false", message: none}]}`,
		}, ", required: [class]")))
		Expect(failure).To(MatchRegexp(`(?s)\n  spec.class \(200 objects\): .*\n  spec.mounts\[\] \(\d+ objects\): `))
	})

	DescribeTable("refuses definitions that it cannot use", func(definition any, expected ...string) {
		_, failure := checked(disks{}.conversion(), with(definition))
		for _, text := range expected {
			Expect(failure).To(ContainSubstring(text))
		}
	},
		Entry("without a version", definitionOf("disks", "Disk", map[string]string{"v2": "{type: object}"}),
			"disks.example.org has no schema of v1, which the Conversion names", "add the version to spec.versions, or remove it from the Conversion"),
		Entry("of another kind", definitionOf("shops", "Shop", map[string]string{"v2": "{type: object}"}),
			`RoundTripOptions.Definitions[0]: no Conversion is of "shops.example.org"`, "disks.example.org"),
		Entry("that are something else", "{apiVersion: v1, kind: ConfigMap}", "RoundTripOptions.Definitions[0]: it is no CustomResourceDefinition"),
		Entry("that are nothing", nil, "RoundTripOptions.Definitions[0]: it is no CustomResourceDefinition"),
		Entry("that an API server would not accept", diskDefinition(diskMembers{class: "{enum: [a]}"}, ""), "the schema of v2 of disks.example.org cannot be used"),
	)

	It("refuses a sample that the schema refuses", func() {
		_, failure := checked(disks{}.conversion(), with(diskDefinition(diskMembers{gibibytes: "{type: integer, minimum: 0}"}, "")), func(o *eirinixtest.RoundTripOptions) {
			o.Samples = []any{"{apiVersion: example.org/v1, kind: Disk, metadata: {name: mine}, gibibytes: -1}"}
		})
		Expect(failure).To(And(ContainSubstring("the schema of example.org/v1, Kind=Disk refuses sample 1 of its version in RoundTripOptions.Samples: gibibytes: "), ContainSubstring("change the sample")))
	})

	It("shows no smaller object that the schema refuses", func() {
		d := disks{up: func(*OldDisk, *Disk) error { return errors.New("never") }}
		_, failure := checked(d.conversion(), with(diskDefinition(diskMembers{}, ", required: [class]")))
		Expect(failure).To(And(ContainSubstring("without the parts that do not matter"), ContainSubstring("class: "), Not(ContainSubstring("mounts:"))))
	})

	It("offers the definition and Fill where the schema may refuse the object, and the schema where it does not", func() {
		d := refuses(func(_ int64, class *string, _ []Mount) bool { return *class == "never" })
		_, failure := checked(d.conversion())
		Expect(failure).To(And(ContainSubstring("give the definition in RoundTripOptions.Definitions, or valid values in RoundTripOptions.Fill"), ContainSubstring("pointers and maps may be nil")))
		_, failure = checked(d.conversion(), with(diskDefinition(diskMembers{}, "")))
		Expect(failure).To(And(ContainSubstring("the schema in RoundTripOptions.Definitions allows this one"), Not(ContainSubstring("RoundTripOptions.Fill"))))
	})

	It("makes unstructured objects from the schema alone", func() {
		var lock sync.Mutex
		seen := map[string]map[string]any{}
		same := func(_ context.Context, u *unstructured.Unstructured) (*unstructured.Unstructured, error) {
			lock.Lock()
			defer lock.Unlock()
			if u.GetAPIVersion() == "example.org/v1" {
				seen[u.GetName()], _, _ = unstructured.NestedMap(u.Object, "spec")
			}
			return u, nil
		}
		shops := conversion.Of[*unstructured.Unstructured]{CRD: "shops.example.org", Version: "v2", Spokes: []conversion.Spoke[*unstructured.Unstructured]{
			conversion.NewSpoke("v1", same, same),
		}}
		schema := `{type: object, required: [spec], properties: {spec: {type: object, required: [size, name, rank, grade], properties: {
			rank: {type: integer, minimum: 5, maximum: 6, exclusiveMaximum: true}, grade: {type: string, allOf: [{enum: [p, q]}, {enum: [q]}]},
			size: {type: integer, minimum: 10, maximum: 40, multipleOf: 4}, name: {type: string, pattern: '^(a|b)[0-9]{2}$'}, ratio: {type: number, maximum: -1},
			port: {x-kubernetes-int-or-string: true}, since: {type: string, format: date-time}, open: {type: boolean}, nothing: {type: string, nullable: true},
			tags: {type: array, x-kubernetes-list-type: set, maxItems: 2, items: {type: string, enum: [a, b, c]}},
			sold: {type: object, minProperties: 1, maxProperties: 2, additionalProperties: {type: integer, minimum: 0}}}}}}`
		_, failure := checked(shops, with(definitionOf("shops", "Shop", map[string]string{"v1": schema, "v2": schema})))
		Expect(failure).To(BeEmpty())
		Expect(len(seen)).To(BeNumerically(">", 190), "almost all random objects are valid")
		sizes, members := map[any]bool{}, map[string]bool{}
		for _, spec := range seen {
			sizes[spec["size"]] = true
			for name := range spec {
				members[name] = true
			}
		}
		Expect(sizes).To(HaveLen(8))
		Expect(members).To(HaveLen(11))
	})
})

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
