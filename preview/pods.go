package preview

import (
	"encoding/json"
	"slices"

	admissionv1 "k8s.io/api/admission/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/authentication/user"

	"code.cloudfoundry.org/eirinix/internal/apiserver"
)

// workload is a kind of which a controller makes pods.
type workload struct {
	template   []string // where the pod's template stands
	owner      schema.GroupVersionKind
	controller string // the service account that sends the pods
	suffix     string // of the owner's name, where that is another object made of this one
	numbered   bool   // pods are named <name>-0 instead of by the API server
}

// workloads are those of Kubernetes itself.
var workloads = map[schema.GroupKind]workload{
	{Kind: "ReplicationController"}:      {template: []string{"spec", "template"}, controller: "replication-controller"},
	{Group: "apps", Kind: "ReplicaSet"}:  {template: []string{"spec", "template"}, controller: "replicaset-controller"},
	{Group: "apps", Kind: "DaemonSet"}:   {template: []string{"spec", "template"}, controller: "daemon-set-controller"},
	{Group: "apps", Kind: "StatefulSet"}: {template: []string{"spec", "template"}, controller: "statefulset-controller", numbered: true},
	{Group: "apps", Kind: "Deployment"}: {
		template: []string{"spec", "template"}, controller: "replicaset-controller", suffix: "-5d4f8c7b9",
		owner: schema.GroupVersionKind{Group: "apps", Version: "v1", Kind: "ReplicaSet"},
	},
	{Group: "batch", Kind: "Job"}: {template: []string{"spec", "template"}, controller: "job-controller"},
	{Group: "batch", Kind: "CronJob"}: {
		template: []string{"spec", "jobTemplate", "spec", "template"}, controller: "job-controller", suffix: "-29700000",
		owner: schema.GroupVersionKind{Group: "batch", Version: "v1", Kind: "Job"},
	},
}

// previewUID stands for the UID of an owner that does not exist.
const previewUID = "00000000-0000-4000-8000-000000000000"

// podOf is the request for the first pod that the controller of an admitted object would send, without the labels that
// controllers add. It is false for objects of which nobody makes pods.
func podOf(s *seen) (request, bool) {
	owner := s.outcome.After.Unstructured()
	w, ok := workloads[s.document.Kind.GroupKind()]
	if !ok {
		return request{}, false
	}
	template, ok, err := unstructured.NestedMap(owner.Object, w.template...)
	if !ok || err != nil {
		return request{}, false
	}
	pod := &unstructured.Unstructured{Object: template}
	pod.SetAPIVersion("v1")
	pod.SetKind("Pod")
	name := owner.GetName()
	if name == "" {
		name = owner.GetGenerateName() + "preview"
	}
	name += w.suffix
	kind := w.owner
	if kind.Empty() {
		kind = owner.GroupVersionKind()
	}
	if w.numbered {
		pod.SetName(name + "-0")
	} else {
		pod.SetGenerateName(name + "-")
	}
	pod.SetNamespace(owner.GetNamespace())
	_ = unstructured.SetNestedSlice(pod.Object, []any{map[string]any{ // metadata, if there is any, is a map: NestedMap has seen it
		"apiVersion": kind.GroupVersion().String(), "kind": kind.Kind, "name": name, "uid": previewUID,
		"controller": true, "blockOwnerDeletion": true,
	}}, "metadata", "ownerReferences")
	raw, err := json.Marshal(pod.Object)
	if err != nil {
		return request{}, false
	}
	document := apiserver.NewDocument(pod.GroupVersionKind(), raw)
	return request{
		manifest: manifest{s.source, document, pod}, of: describe(s.object),
		Request: apiserver.Request{Operation: admissionv1.Create, DryRun: s.DryRun, User: controllerUser(w.controller)},
	}, true
}

// controllerUser is the service account of a controller of kube-controller-manager.
func controllerUser(name string) user.DefaultInfo {
	const namespace = "kube-system"
	return user.DefaultInfo{
		Name:   "system:serviceaccount:" + namespace + ":" + name,
		Groups: slices.Clone([]string{"system:serviceaccounts", "system:serviceaccounts:" + namespace, user.AllAuthenticated}),
	}
}

// describe is kind and name of an object.
func describe(object *unstructured.Unstructured) string {
	name := object.GetName()
	if name == "" {
		name = object.GetGenerateName() + "*"
	}
	return object.GetKind() + " " + name
}
