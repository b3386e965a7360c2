package rollout_test

// This file is about the object that holds the records.

import (
	"context"
	"encoding/json"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/dynamic/fake"
	clienttesting "k8s.io/client-go/testing"

	"code.cloudfoundry.org/eirinix/internal/rollout"
)

var _ = Describe("The Lease", func() {
	var (
		c     *fake.FakeDynamicClient
		lease *rollout.Lease
	)
	in := func(objects ...runtime.Object) {
		scheme := runtime.NewScheme()
		c = fake.NewSimpleDynamicClient(scheme, objects...)
		lease = &rollout.Lease{Client: c.Resource(rollout.Resource).Namespace("cf"), Namespace: "cf", Name: "versions"}
	}
	// stored is a Lease of a later API server, with annotations of others.
	stored := func() *unstructured.Unstructured {
		GinkgoHelper()
		found := &unstructured.Unstructured{}
		Expect(json.Unmarshal([]byte(`{
			"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "later": "of the object",
			"metadata": {"namespace": "cf", "name": "versions", "resourceVersion": "7", "uid": "u", "annotations": {"note": "do not touch"}, "labels": {"team": "a"}},
			"spec": {"leaseDurationSeconds": 15, "later": {"of": "the spec"}}}`), found)).To(Succeed())
		return found
	}
	read := func(ctx context.Context) *unstructured.Unstructured {
		GinkgoHelper()
		found, err := lease.Client.Get(ctx, lease.Name, metav1.GetOptions{})
		Expect(err).NotTo(HaveOccurred())
		return found
	}
	writes := func() (verbs []string) {
		for _, a := range c.Actions() {
			if a.GetVerb() != "get" {
				verbs = append(verbs, a.GetVerb())
			}
		}
		return verbs
	}
	join := func(found rollout.Versions) rollout.Versions {
		return found.Order("own", rollout.Record{Target: "here"})
	}

	It("is created with the records", func(ctx SpecContext) {
		in()
		Expect(lease.Change(ctx, join)).To(Succeed())
		found := read(ctx)
		Expect(rollout.Read(found.GetAnnotations())).To(HaveKey("own"))
		Expect(found.GroupVersionKind()).To(Equal(lease.Empty().GroupVersionKind()))
		Expect(writes()).To(Equal([]string{"create"}))
	})

	It("keeps the fields that our Go types do not know, and what others have noted on it", func(ctx SpecContext) {
		in(stored())
		Expect(lease.Change(ctx, join)).To(Succeed())
		Expect(writes()).To(Equal([]string{"update"}))
		found := read(ctx)
		Expect(rollout.Read(found.GetAnnotations())).To(HaveKey("own"))
		found.SetAnnotations(rollout.Versions{}.Write(found.GetAnnotations()))
		Expect(found).To(Equal(stored()))
	})

	It("is not written where nothing changes, and what was read stays as it is", func(ctx SpecContext) {
		in(stored())
		Expect(lease.Change(ctx, func(rollout.Versions) rollout.Versions { return nil })).To(Succeed())
		Expect(lease.Change(ctx, func(found rollout.Versions) rollout.Versions { return found })).To(Succeed())
		Expect(writes()).To(BeEmpty())
		seen := stored()
		Expect(lease.Write(ctx, seen, join(rollout.Versions{}))).To(Succeed())
		Expect(seen).To(Equal(stored()))
		Expect(c.Actions()[len(c.Actions())-1].(clienttesting.UpdateAction).GetObject().(*unstructured.Unstructured).GetResourceVersion()).To(Equal("7"), "the API server refuses it if another was faster")
	})

	It("is decided anew after a lost race", func(ctx SpecContext) {
		in(stored())
		lost := 0
		c.PrependReactor("update", "leases", func(clienttesting.Action) (bool, runtime.Object, error) {
			lost++
			return lost == 1, nil, apierrors.NewConflict(rollout.Resource.GroupResource(), "versions", nil)
		})
		decided := 0
		Expect(lease.Change(ctx, func(found rollout.Versions) rollout.Versions { decided++; return join(found) })).To(Succeed())
		Expect(decided).To(Equal(2))
	})

	It("names the rights that are missing", func(ctx SpecContext) {
		in(stored())
		c.PrependReactor("update", "leases", func(clienttesting.Action) (bool, runtime.Object, error) {
			return true, nil, apierrors.NewForbidden(rollout.Resource.GroupResource(), "versions", nil)
		})
		err := lease.Change(ctx, join)
		Expect(apierrors.IsForbidden(err)).To(BeTrue(), "%v", err)
		Expect(err).To(MatchError(ContainSubstring("the Lease cf/versions, in which versions of this program know each other (needs get, list, watch, create and update on leases.coordination.k8s.io)")))
	})
})
