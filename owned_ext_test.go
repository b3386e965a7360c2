package eirinix_test

// This file specifies what steps do with the objects that controllers of Kubernetes make.

import (
	"context"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"go.uber.org/zap/zaptest/observer"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"code.cloudfoundry.org/eirinix"
	. "code.cloudfoundry.org/eirinix/internal/spectest"
	eirinixtest "code.cloudfoundry.org/eirinix/testing"
)

const seenLabel = "seen"

// marks returns a step that marks the labels of a pod template.
func marks[T client.Object](id string, template func(T) map[string]string) any {
	return eirinix.Mutation[T]{ID: id, Apply: func(_ context.Context, _ *eirinix.Call, object T) error {
		template(object)[seenLabel] = "yes"
		return nil
	}}
}

func labelsOfReplicaSet(r *appsv1.ReplicaSet) map[string]string { return r.Spec.Template.Labels }

var _ = Describe("An object with an owner, beside the controllers of Kubernetes", Ordered, Label("api-server"), func() {
	var (
		plane   *eirinixtest.ControlPlane
		clients kubernetes.Interface
	)
	BeforeAll(func(ctx SpecContext) {
		var err error
		plane, err = eirinixtest.NewControlPlane(ctx, eirinixtest.ControlPlaneOptions{Progress: GinkgoWriter, ControllerManager: true})
		Expect(err).NotTo(HaveOccurred())
		DeferCleanup(plane.Stop)
		clients = Clients(plane.Config())
	})

	// runs has a program mark objects in a namespace of its own, and returns its log, too.
	runs := func(ctx context.Context, steps ...any) (namespace string, log *observer.ObservedLogs) {
		GinkgoHelper()
		namespace = NewNamespace(ctx, clients, nil).Name
		o := urlOptions(namespace)
		o.RestConfig = plane.Config()
		logger, written := Observed()
		o.Logger = logger
		runManager(ctx, managerOf(o, steps...))
		return namespace, written
	}
	template := corev1.PodTemplateSpec{
		ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{"app": "web"}},
		Spec:       corev1.PodSpec{RestartPolicy: corev1.RestartPolicyAlways, Containers: []corev1.Container{{Name: "web", Image: "registry.example.org/web:1"}}},
	}
	selector := &metav1.LabelSelector{MatchLabels: map[string]string{"app": "web"}}
	deploys := func(ctx context.Context, namespace string) *appsv1.Deployment {
		return Must(clients.AppsV1().Deployments(namespace).Create(ctx, &appsv1.Deployment{
			ObjectMeta: metav1.ObjectMeta{Name: "web"}, Spec: appsv1.DeploymentSpec{Replicas: new(int32(1)), Selector: selector, Template: template},
		}, metav1.CreateOptions{}))
	}
	setsOf := func(ctx context.Context, namespace string) []appsv1.ReplicaSet {
		return Must(clients.AppsV1().ReplicaSets(namespace).List(ctx, metav1.ListOptions{})).Items
	}
	dryRun := []string{metav1.DryRunAll}

	It("is left alone if it is a ReplicaSet that the controller of Deployments makes and changes", func(ctx SpecContext) {
		namespace, log := runs(ctx, marks("sets", labelsOfReplicaSet))
		Expect(log.FilterMessage("webhook of this version").All()).To(HaveExactElements(HaveField("ContextMap()",
			HaveKeyWithValue("leavesAlone", "what a controller of Kubernetes or a kubelet keeps as it is"))))
		deployments := clients.AppsV1().Deployments(namespace)
		deploys(ctx, namespace)
		replicas := func() (all []int32) {
			for _, set := range setsOf(ctx, namespace) {
				all = append(all, *set.Spec.Replicas)
			}
			return all
		}
		Eventually(replicas).WithContext(ctx).WithTimeout(patience).Should(Equal([]int32{1}))
		_, err := deployments.Patch(ctx, "web", types.MergePatchType, []byte(`{"spec":{"replicas":2}}`), metav1.PatchOptions{})
		Expect(err).NotTo(HaveOccurred())
		Eventually(replicas).WithContext(ctx).WithTimeout(patience).Should(Equal([]int32{2}), "and no second set, which the controller makes when it does not know the first again")
		Expect(setsOf(ctx, namespace)).To(HaveEach(HaveField("Spec.Template.Labels", Not(HaveKey(seenLabel)))))

		By("changing it as a user")
		set := setsOf(ctx, namespace)[0]
		set.Labels["team"], set.ResourceVersion = "a", "" // the controller writes it meanwhile
		set = *Must(clients.AppsV1().ReplicaSets(namespace).Update(ctx, &set, metav1.UpdateOptions{DryRun: dryRun}))
		Expect(set.Spec.Template.Labels).NotTo(HaveKey(seenLabel), "labels alone")
		set.Spec.Template.Spec.Containers[0].Image, set.ResourceVersion = "registry.example.org/evil:1", ""
		set = *Must(clients.AppsV1().ReplicaSets(namespace).Update(ctx, &set, metav1.UpdateOptions{DryRun: dryRun}))
		Expect(set.Spec.Template.Labels).To(HaveKey(seenLabel), "its template")
	}, SpecTimeout(5*patience))

	It("is seen if its user wrote the owner, also in an update that changes more", func(ctx SpecContext) {
		namespace, _ := runs(ctx, marks("sets", labelsOfReplicaSet),
			marks("deployments", func(d *appsv1.Deployment) map[string]string { return d.Spec.Template.Labels }))
		deployment := deploys(ctx, namespace)
		Expect(deployment.Spec.Template.Labels).To(HaveKey(seenLabel))
		sets := clients.AppsV1().ReplicaSets(namespace)
		owner := []metav1.OwnerReference{{APIVersion: "apps/v1", Kind: "Deployment", Name: "web", UID: deployment.UID, Controller: new(true)}}
		set := &appsv1.ReplicaSet{
			ObjectMeta: metav1.ObjectMeta{Name: "own", OwnerReferences: owner},
			Spec:       appsv1.ReplicaSetSpec{Selector: selector, Template: template},
		}
		Expect(Must(sets.Create(ctx, set, metav1.CreateOptions{DryRun: dryRun})).Spec.Template.Labels).To(HaveKey(seenLabel))

		By("adding the owner later")
		set.OwnerReferences = nil
		set = Must(sets.Create(ctx, set, metav1.CreateOptions{}))
		set.OwnerReferences, set.ResourceVersion = owner, "" // the controller writes it meanwhile
		delete(set.Spec.Template.Labels, seenLabel)
		Expect(Must(sets.Update(ctx, set, metav1.UpdateOptions{DryRun: dryRun})).Spec.Template.Labels).To(HaveKey(seenLabel))
	}, SpecTimeout(5*patience))
})
