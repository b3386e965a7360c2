package eirinixtest_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"

	"code.cloudfoundry.org/eirinix/conversion"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/randfill"

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

func fewer(o *eirinixtest.RoundTripOptions) { o.Objects = objects }

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

	It("takes 10,000 objects of each version by default", func() {
		failure := failureOf(func(t *fakeTest) {
			eirinixtest.NewHarness(t, disks{}.conversion()).CheckRoundTrip(func(o *eirinixtest.RoundTripOptions) {
				Expect(o.Objects).To(Equal(10_000))
				o.Objects = 1
			})
		})
		Expect(failure).To(BeEmpty())
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

	It("fills types with the values that the author allows", func() {
		_, failure := checked(refuses(negative).conversion(), func(o *eirinixtest.RoundTripOptions) {
			o.Fill = []any{func(j *int64, c randfill.Continue) { *j = c.Int63n(100) }}
		})
		Expect(failure).To(BeEmpty())
	})

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

		It("makes objects from samples", func() {
			losses, failure := checked(tree(rename("keeper", "owner"), rename("owner", "keeper")), samples)
			Expect(failure).To(BeEmpty())
			Expect(losses).To(BeEmpty())
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
