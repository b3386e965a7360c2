package eirinixtest_test

import (
	"context"

	. "github.com/onsi/ginkgo/v2"
	admissionv1 "k8s.io/api/admission/v1"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	flowcontrolv1 "k8s.io/api/flowcontrol/v1"
	networkingv1 "k8s.io/api/networking/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"code.cloudfoundry.org/eirinix"
	eirinixtest "code.cloudfoundry.org/eirinix/testing"
)

// addSubresourceWitnesses adds steps that report updates of subresources: a Mutation warns of the object that it sees, and a
// Subresource refuses with the one that it sees.
func addSubresourceWitnesses(w *bothWorlds) {
	settings := eirinix.Settings{Objects: selector("witness", "yes")}
	witness := func(resource schema.GroupVersionResource, subresource string, operation admissionregistrationv1.OperationType) {
		w.add(eirinix.Subresource[*unstructured.Unstructured]{
			Resource: resource, Subresource: subresource, Settings: eirinix.Settings{Operations: ops(operation), Objects: settings.Objects},
			Check: func(_ context.Context, _ *eirinix.Call, _, newObj *unstructured.Unstructured) error {
				newObj.SetManagedFields(nil) // the harness keeps none
				if operation == "CREATE" {   // no two have these in common
					for _, field := range []string{"uid", "creationTimestamp"} {
						if _, ok, _ := unstructured.NestedString(newObj.Object, "metadata", field); ok {
							_ = unstructured.SetNestedField(newObj.Object, "set", "metadata", field)
						}
					}
				}
				text, err := yaml.Marshal(newObj.Object)
				if err != nil {
					return err
				}
				return eirinix.Deny("%s", text)
			},
		})
		settings := settings
		settings.Rules = rulesFor(resource.Group, resource.Version, resource.Resource+"/"+subresource)
		settings.Rules[0].Operations = ops(operation)
		w.add(eirinix.Mutation[*unstructured.Unstructured]{
			ID: "sees-" + resource.Resource + "-" + subresource, Settings: settings,
			Apply: func(_ context.Context, c *eirinix.Call, obj *unstructured.Unstructured) error {
				spec, err := yaml.Marshal(obj.Object["spec"])
				c.Warn("%q in %q, %v, %v, %d bytes of spec", obj.GetName(), obj.GetNamespace(), obj.GetLabels(), obj.GetAnnotations(), len(spec))
				return err
			},
		})
	}
	for _, resource := range []schema.GroupVersionResource{
		corev1.SchemeGroupVersion.WithResource("pods"),
		corev1.SchemeGroupVersion.WithResource("services"),
		appsv1.SchemeGroupVersion.WithResource("deployments"),
		batchv1.SchemeGroupVersion.WithResource("jobs"),
		networkingv1.SchemeGroupVersion.WithResource("ingresses"),
		networkingv1.SchemeGroupVersion.WithResource("servicecidrs"),
		storagev1.SchemeGroupVersion.WithResource("volumeattachments"),
		flowcontrolv1.SchemeGroupVersion.WithResource("flowschemas"),
		gadgetKind("v1").GroupVersion().WithResource("gadgets"),
	} {
		witness(resource, "status", "UPDATE")
	}
	witness(corev1.SchemeGroupVersion.WithResource("pods"), "ephemeralcontainers", "UPDATE")
	witness(corev1.SchemeGroupVersion.WithResource("serviceaccounts"), "token", "CREATE")
}

// witnessed labels an object for the witnesses.
func witnessed[T client.Object](object T) T {
	object.SetGenerateName("witnessed-")
	object.SetLabels(map[string]string{"witness": "yes", "old": "label"})
	object.SetAnnotations(map[string]string{"old": "annotation"})
	return object
}

// compareSubresource stores an object and sends a subresource of it in both worlds, with changes, also of its metadata, of
// which an API server drops some.
func compareSubresource[T client.Object](ctx context.Context, w *bothWorlds, subresource string, object T, change func(T)) {
	GinkgoHelper()
	stored := w.stored(ctx, object).(T)
	updated := stored.DeepCopyObject().(T)
	updated.SetLabels(map[string]string{"witness": "yes", "new": "label"})
	updated.SetAnnotations(map[string]string{"new": "annotation"})
	updated.SetFinalizers([]string{"example.org/new"})
	updated.SetOwnerReferences([]metav1.OwnerReference{{APIVersion: "v1", Kind: "ConfigMap", Name: "new", UID: "new"}})
	updated.SetGeneration(99)
	updated.SetCreationTimestamp(metav1.Unix(1, 0))
	change(updated)
	w.compare(subresource, func(c client.Client) error {
		return c.SubResource(subresource).Update(ctx, updated.DeepCopyObject().(client.Object))
	}, func(h *eirinixtest.Harness) *eirinixtest.Result {
		return h.Send(eirinixtest.Request{Operation: admissionv1.Update, OldObject: stored, Object: updated, Subresource: subresource})
	})
}

func subresource[T client.Object](name, description string, object T, change func(T)) TableEntry {
	return Entry(description, func(ctx context.Context, w *bothWorlds) { compareSubresource(ctx, w, name, witnessed(object), change) }, SpecTimeout(patience))
}

// subresourceUpdates change more than their subresource.
var subresourceUpdates = []TableEntry{
	subresource("status", "the status of a Pod", podOf("", nil), func(pod *corev1.Pod) {
		pod.Spec.Containers[0].Image, pod.Spec.Hostname, pod.Status.Message = "app:2", "changed", "changed"
	}),
	subresource("status", "the status of a Pod as it is", podOf("", nil), func(*corev1.Pod) {}),
	subresource("status", "no status of a Pod", podOf("", nil), func(pod *corev1.Pod) { pod.Status = corev1.PodStatus{Phase: "Pending"} }),
	subresource("status", "the status of a Service", &corev1.Service{Spec: corev1.ServiceSpec{Type: "ExternalName", ExternalName: "localhost"}}, func(s *corev1.Service) {
		s.Spec.ExternalName, s.Status.Conditions = "elsewhere", []metav1.Condition{{Type: "Changed", Status: "True", Reason: "Changed", LastTransitionTime: metav1.Unix(1, 0)}}
	}),
	subresource("status", "the status of a Deployment", &appsv1.Deployment{Spec: appsv1.DeploymentSpec{
		Selector: selector("app", "x"), Template: corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{"app": "x"}}, Spec: podOf("", nil).Spec},
	}}, func(d *appsv1.Deployment) { d.Spec.Replicas, d.Status.Replicas = new(int32(7)), 7 }),
	subresource("status", "the status of a Job", heldJob(), func(j *batchv1.Job) { j.Spec.Parallelism, j.Status.Succeeded = new(int32(7)), 1 }),
	subresource("status", "the status of an Ingress", &networkingv1.Ingress{Spec: networkingv1.IngressSpec{IngressClassName: new("one"), Rules: []networkingv1.IngressRule{{Host: "example.org"}}}}, func(i *networkingv1.Ingress) {
		i.Spec.IngressClassName, i.Status.LoadBalancer.Ingress = new("other"), []networkingv1.IngressLoadBalancerIngress{{Hostname: "changed.example.org"}}
	}),
	subresource("status", "the status of a ServiceCIDR, which keeps its metadata", &networkingv1.ServiceCIDR{Spec: networkingv1.ServiceCIDRSpec{CIDRs: []string{"10.9.0.0/24"}}}, func(s *networkingv1.ServiceCIDR) {
		s.Spec.CIDRs, s.Status.Conditions = []string{"10.8.0.0/24"}, []metav1.Condition{{Type: "Ready", Status: "True", Reason: "Changed", LastTransitionTime: metav1.Unix(1, 0)}}
	}),
	subresource("status", "the status of a VolumeAttachment, which keeps its metadata", &storagev1.VolumeAttachment{Spec: storagev1.VolumeAttachmentSpec{
		Attacher: "example.org", NodeName: "node", Source: storagev1.VolumeAttachmentSource{PersistentVolumeName: new("volume")},
	}}, func(v *storagev1.VolumeAttachment) { v.Spec.NodeName, v.Status.Attached = "other", true }),
	subresource("status", "the status of a FlowSchema, which keeps its metadata", &flowcontrolv1.FlowSchema{Spec: flowcontrolv1.FlowSchemaSpec{
		PriorityLevelConfiguration: flowcontrolv1.PriorityLevelConfigurationReference{Name: "global-default"}, MatchingPrecedence: 9999,
	}}, func(f *flowcontrolv1.FlowSchema) {
		f.Spec.MatchingPrecedence = 9
		f.Status.Conditions = []flowcontrolv1.FlowSchemaCondition{{Type: "Dangling", Status: "True", Reason: "Changed", LastTransitionTime: metav1.Unix(1, 0)}}
	}),
	subresource("status", "the status of a custom resource, which keeps everything else", gadget("v1", ""), func(u *unstructured.Unstructured) {
		u.Object["spec"], u.Object["status"] = map[string]any{"size": int64(9)}, map[string]any{"size": int64(9)}
		u.Object["more"] = "yes"
	}),
	subresource("status", "no status of a custom resource", gadget("v1", ""), func(*unstructured.Unstructured) {}),
	subresource("ephemeralcontainers", "a Pod's ephemeral containers", podOf("", nil), func(pod *corev1.Pod) {
		pod.Spec.Containers[0].Image, pod.Spec.Hostname, pod.Status.Message = "app:2", "changed", "changed"
		pod.Spec.EphemeralContainers = []corev1.EphemeralContainer{{EphemeralContainerCommon: corev1.EphemeralContainerCommon{
			Name: "debug", Image: "debug:1", ImagePullPolicy: "Always", TerminationMessagePath: "/log", TerminationMessagePolicy: "File",
		}}}
	}),
	subresource("ephemeralcontainers", "a Pod's ephemeral containers, of which there are none", podOf("", nil), func(pod *corev1.Pod) { pod.Spec.Hostname = "changed" }),
}
