package preview

import (
	"encoding/json"

	admissionv1 "k8s.io/api/admission/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/authentication/user"

	"code.cloudfoundry.org/eirinix/internal/apiserver"
)

// child is what a controller of Kubernetes makes of an object.
type child struct {
	kind       schema.GroupVersionKind
	template   []string // where metadata and spec of the child stand
	whole      bool     // the spec is that of the object itself: a ReplicaSet has that of its Deployment
	controller string   // the service account that sends it
	suffix     string   // of its name; ends in - where the API server generates the rest
}

var pod = schema.GroupVersionKind{Version: "v1", Kind: "Pod"}

// children are those of Kubernetes itself.
var children = map[schema.GroupKind]child{
	{Kind: "ReplicationController"}:      {pod, []string{"spec", "template"}, false, "replication-controller", "-"},
	{Group: "apps", Kind: "ReplicaSet"}:  {pod, []string{"spec", "template"}, false, "replicaset-controller", "-"},
	{Group: "apps", Kind: "DaemonSet"}:   {pod, []string{"spec", "template"}, false, "daemon-set-controller", "-"},
	{Group: "apps", Kind: "StatefulSet"}: {pod, []string{"spec", "template"}, false, "statefulset-controller", "-0"},
	{Group: "batch", Kind: "Job"}:        {pod, []string{"spec", "template"}, false, "job-controller", "-"},
	{Group: "apps", Kind: "Deployment"}: {
		schema.GroupVersionKind{Group: "apps", Version: "v1", Kind: "ReplicaSet"},
		[]string{"spec", "template"},
		true, "deployment-controller", "-5d4f8c7b9",
	},
	{Group: "batch", Kind: "CronJob"}: {
		schema.GroupVersionKind{Group: "batch", Version: "v1", Kind: "Job"},
		[]string{"spec", "jobTemplate"},
		false, "cronjob-controller", "-29700000",
	},
}

// previewUID stands for the UID of an owner that does not exist.
const previewUID = "00000000-0000-4000-8000-000000000000"

// childOf is the request for what the controller of an admitted object would send, the first of several, without the
// labels that controllers add. It is false for objects of which nobody makes others.
func childOf(s *seen) (request, bool) {
	owner := s.outcome.After.Unstructured()
	c, ok := children[s.document.Kind.GroupKind()]
	if !ok {
		return request{}, false
	}
	template, ok, err := unstructured.NestedMap(owner.Object, c.template...)
	if !ok || err != nil {
		return request{}, false
	}
	made := &unstructured.Unstructured{Object: template}
	if c.whole {
		metadata := template["metadata"]
		made.Object = map[string]any{"spec": map[string]any{}}
		if metadata != nil {
			made.Object["metadata"] = metadata
		}
		for _, field := range []string{"selector", "template", "replicas", "minReadySeconds"} {
			if value, ok, err := unstructured.NestedFieldCopy(owner.Object, "spec", field); ok && err == nil {
				_ = unstructured.SetNestedField(made.Object, value, "spec", field) // it is a map
			}
		}
	}
	made.SetGroupVersionKind(c.kind)
	ownerName := owner.GetName()
	if ownerName == "" {
		ownerName = owner.GetGenerateName() + "preview"
	}
	if name := ownerName + c.suffix; c.suffix == "-" {
		made.SetGenerateName(name)
	} else {
		made.SetName(name)
	}
	made.SetNamespace(owner.GetNamespace())
	err = unstructured.SetNestedSlice(made.Object, []any{map[string]any{
		"apiVersion": owner.GetAPIVersion(), "kind": owner.GetKind(), "name": ownerName, "uid": previewUID,
		"controller": true, "blockOwnerDeletion": true,
	}}, "metadata", "ownerReferences")
	if err != nil { // metadata that is none
		return request{}, false
	}
	raw, err := json.Marshal(made.Object)
	if err != nil {
		return request{}, false
	}
	return request{
		manifest: manifest{s.source, apiserver.NewDocument(c.kind, raw), made}, of: describe(s.object),
		Request: apiserver.Request{Operation: admissionv1.Create, DryRun: s.DryRun, User: controllerUser(c.controller)},
	}, true
}

// controllerUser is the service account of a controller of kube-controller-manager.
func controllerUser(name string) user.DefaultInfo {
	const namespace = "kube-system"
	return user.DefaultInfo{
		Name:   "system:serviceaccount:" + namespace + ":" + name,
		Groups: []string{"system:serviceaccounts", "system:serviceaccounts:" + namespace, user.AllAuthenticated},
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
