package conformance_test

import (
	"context"
	"fmt"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/dynamic"
	ctrlmetrics "sigs.k8s.io/controller-runtime/pkg/metrics"

	. "code.cloudfoundry.org/eirinix/internal/spectest"
	eirinixtest "code.cloudfoundry.org/eirinix/testing"
)

// conversions returns how many calls have converted objects of c, and how many objects.
func (c crd) conversions() (calls, objects int) {
	GinkgoHelper()
	for _, f := range Must(ctrlmetrics.Registry.Gather()) {
		for _, m := range f.GetMetric() {
			of := false
			for _, l := range m.GetLabel() {
				of = of || l.GetValue() == c.name()
			}
			switch {
			case of && f.GetName() == "eirinix_conversion_duration_seconds":
				calls += int(m.GetHistogram().GetSampleCount())
			case of && f.GetName() == "eirinix_conversion_objects_total":
				objects += int(m.GetCounter().GetValue())
			}
		}
	}
	return calls, objects
}

var _ = Describe("A ConversionReview", func() {
	It("holds one object, whatever is read", Label("S38"), func(ctx SpecContext) {
		const objects = 50
		c := crdOf("counted")
		plane, in := c.onPlaneOfItsOwn(ctx, eirinixtest.ControlPlaneOptions{})
		all := Must(dynamic.NewForConfig(plane.Config()))
		awaitConversion(ctx, in("v2"), c.object("v1", "object-0", inVersion("v1", "object-0")), in("v1"))
		for i := 1; i < objects; i++ {
			name := fmt.Sprint("object-", i)
			_, err := in("v1").Create(ctx, c.object("v1", name, inVersion("v1", name)), metav1.CreateOptions{})
			Expect(err).NotTo(HaveOccurred())
		}

		// list reads all objects in a version, and returns the resourceVersion.
		list := func(g Gomega, version string, o metav1.ListOptions) string {
			got, at := 0, ""
			for {
				page, err := in(version).List(ctx, o)
				g.Expect(err).NotTo(HaveOccurred())
				for i := range page.Items {
					g.Expect(&page.Items[i]).To(dataIs(inVersion(version, page.Items[i].GetName())))
				}
				got, at = got+len(page.Items), page.GetResourceVersion()
				if o.Continue = page.GetContinue(); o.Continue == "" {
					g.Expect(got).To(Equal(objects))
					return at
				}
				o.ResourceVersion, o.ResourceVersionMatch = "", ""
			}
		}
		lists := func(o metav1.ListOptions) func(Gomega) {
			return func(g Gomega) { list(g, "v1", o); list(g, "v2", o) }
		}
		watches := func(version string) func(Gomega) {
			return func(g Gomega) {
				ctx, cancel := context.WithTimeout(ctx, patience)
				defer cancel()
				w, err := in(version).Watch(ctx, metav1.ListOptions{ResourceVersion: "0"})
				g.Expect(err).NotTo(HaveOccurred())
				defer w.Stop()
				for range objects {
					event := <-w.ResultChan()
					g.Expect(event.Type).To(Equal(watch.Added))
				}
			}
		}
		for _, situation := range []struct {
			name   string
			before func()
			read   func(Gomega)
		}{
			{"lists", nil, lists(metav1.ListOptions{})},
			{"lists from the cache", nil, lists(metav1.ListOptions{ResourceVersion: "0"})},
			{"pages", nil, lists(metav1.ListOptions{Limit: 10})},
			{"exact lists", nil, func(g Gomega) {
				at := list(g, "v1", metav1.ListOptions{})
				lists(metav1.ListOptions{ResourceVersion: at, ResourceVersionMatch: metav1.ResourceVersionMatchExact})(g)
			}},
			{"exact pages", nil, func(g Gomega) {
				at := list(g, "v1", metav1.ListOptions{})
				lists(metav1.ListOptions{ResourceVersion: at, ResourceVersionMatch: metav1.ResourceVersionMatchExact, Limit: 10})(g)
			}},
			{"watches", nil, watches("v2")},
			{"writes of all objects", nil, func(g Gomega) {
				for i := range objects {
					_, err := in("v2").Patch(ctx, fmt.Sprint("object-", i), types.MergePatchType, []byte(`{"metadata":{"labels":{"written":"yes"}}}`), metav1.PatchOptions{})
					g.Expect(err).NotTo(HaveOccurred())
				}
			}},
			{"lists after another version is stored", func() {
				_, err := all.Resource(definitions).Patch(ctx, c.name(), types.JSONPatchType, []byte(`[
					{"op":"replace","path":"/spec/versions/0/storage","value":false},
					{"op":"replace","path":"/spec/versions/1/storage","value":true}]`), metav1.PatchOptions{})
				Expect(err).NotTo(HaveOccurred())
			}, lists(metav1.ListOptions{})},
			{"lists of an API server that has just started", func() { Expect(plane.APIServer().Restart(ctx)).To(Succeed()) }, lists(metav1.ListOptions{})},
			{"watches of an API server that has just started", func() { Expect(plane.APIServer().Restart(ctx)).To(Succeed()) }, watches("v1")},
		} {
			calls, converted := c.conversions()
			if situation.before != nil {
				situation.before()
			}
			Eventually(situation.read).WithContext(ctx).WithTimeout(patience).Should(Succeed(), situation.name)
			moreCalls, more := c.conversions()
			AddReportEntry(situation.name, fmt.Sprintf("%d calls with %d objects", moreCalls-calls, more-converted))
		}
		Eventually(func(g Gomega) {
			calls, converted := c.conversions()
			g.Expect(calls).To(BeNumerically(">", 2*objects))
			g.Expect(converted).To(Equal(calls))
		}).WithContext(ctx).Should(Succeed())
	}, SpecTimeout(8*patience))
})
