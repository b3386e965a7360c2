package conformance_test

import (
	"context"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	metav1validation "k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/uuid"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"code.cloudfoundry.org/eirinix"
)

// onUpdate makes a mutation of pods that have been there before.
func onUpdate(apply func(*corev1.Pod)) eirinix.Mutation[*corev1.Pod] {
	settings := eirinix.Settings{Operations: []admissionregistrationv1.OperationType{admissionregistrationv1.Update}}
	return eirinix.Mutation[*corev1.Pod]{ID: "careless", Settings: settings, Apply: func(_ context.Context, _ *eirinix.Call, p *corev1.Pod) error {
		apply(p)
		return nil
	}}
}

var _ = Describe("S31 A step that repeats an ownerReference", Label("S31"), func() {
	eachMode(func(mode mode) {
		It("is mended by the API server, with one warning, on patch and on update", func(ctx SpecContext) {
			namespace := newNamespace(ctx)
			serve(ctx, mode, namespace, nil, onUpdate(func(p *corev1.Pod) {
				p.OwnerReferences = append(p.OwnerReferences, p.OwnerReferences[0])
			}))
			client, heard := listening()
			owner := metav1.OwnerReference{APIVersion: "v1", Kind: "Node", Name: "fake-node", UID: uuid.NewUUID()}
			p := newPod("owned")
			p.OwnerReferences = []metav1.OwnerReference{owner}
			_, err := client.CoreV1().Pods(namespace).Create(ctx, p, metav1.CreateOptions{})
			Expect(err).NotTo(HaveOccurred())
			Expect(heard.take()).To(BeEmpty())

			warning := And(ContainSubstring(".metadata.ownerReferences contains duplicate entries after mutating admission happens"), ContainSubstring(string(owner.UID)))
			p, err = client.CoreV1().Pods(namespace).Patch(ctx, "owned", types.JSONPatchType, []byte("[]"), metav1.PatchOptions{})
			Expect(err).NotTo(HaveOccurred())
			Expect(p.OwnerReferences).To(ConsistOf(owner))
			Expect(heard.take()).To(ConsistOf(warning))

			p, err = client.CoreV1().Pods(namespace).Update(ctx, p, metav1.UpdateOptions{})
			Expect(err).NotTo(HaveOccurred())
			Expect(p.OwnerReferences).To(ConsistOf(owner))
			Expect(heard.take()).To(ConsistOf(warning))

			Expect(client.CoreV1().Pods(namespace).Delete(ctx, "owned", metav1.DeleteOptions{})).To(Succeed())
			Expect(heard.take()).To(BeEmpty())
		}, SpecTimeout(2*patience))
	})
})

var _ = Describe("S32 A step that breaks managedFields", Label("S32"), func() {
	eachMode(func(mode mode) {
		It("has them reset by the API server, with one warning, on patch and on update", func(ctx SpecContext) {
			namespace := newNamespace(ctx)
			serve(ctx, mode, namespace, nil, onUpdate(func(p *corev1.Pod) {
				if len(p.ManagedFields) > 0 {
					p.ManagedFields[0].APIVersion, p.ManagedFields[0].FieldsType, p.ManagedFields[0].FieldsV1 = "", "", nil
				}
			}))
			client, heard := listening()
			p, err := client.CoreV1().Pods(namespace).Create(ctx, newPod("managed"), metav1.CreateOptions{})
			Expect(err).NotTo(HaveOccurred())
			Expect(p.ManagedFields).NotTo(BeEmpty())
			Expect(heard.take()).To(BeEmpty())

			check := func(p *corev1.Pod, err error) {
				GinkgoHelper()
				Expect(err).NotTo(HaveOccurred())
				Expect(metav1validation.ValidateManagedFields(p.ManagedFields, field.NewPath("metadata", "managedFields"))).To(BeEmpty())
				Expect(heard.take()).To(ConsistOf(ContainSubstring(".metadata.managedFields was in an invalid state after admission")))
			}
			p, err = client.CoreV1().Pods(namespace).Patch(ctx, "managed", types.JSONPatchType, []byte("[]"), metav1.PatchOptions{})
			check(p, err)
			// An update that sends managedFields back has them in its object again.
			current, err := client.CoreV1().Pods(namespace).Patch(ctx, "managed", types.MergePatchType, []byte(`{"metadata":{"labels":{"a":"b"}}}`), metav1.PatchOptions{})
			check(current, err)
			p, err = client.CoreV1().Pods(namespace).Update(ctx, current, metav1.UpdateOptions{})
			check(p, err)
		}, SpecTimeout(2*patience))
	})
})
