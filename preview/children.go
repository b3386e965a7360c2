package preview

// This file derives the objects that the controllers of Kubernetes would create for an object.

import (
	"encoding/json"

	admissionv1 "k8s.io/api/admission/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/authentication/user"

	"code.cloudfoundry.org/eirinix/internal/apiserver"
)

// child describes the object that a controller of Kubernetes creates for another object.
type child struct {
	kind       schema.GroupVersionKind
	template   []string // path of the child's metadata and spec in the owner
	whole      bool     // the spec is that of the owner: a ReplicaSet has that of its Deployment
	controller string   // name of the service account that sends it
	suffix     string   // of its name; ends in - if the API server generates the rest
}

var pod = schema.GroupVersionKind{Version: "v1", Kind: "Pod"}

// children are the built-in kinds for which a controller creates other objects.
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

// previewUID is used as the UID of an owner that does not exist.
const previewUID = "00000000-0000-4000-8000-000000000000"

// childOf returns the request with which the controller of an admitted object would create its first child. The labels
// that controllers add are missing. It returns false for objects without children.
func childOf(s *result) (request, bool) {
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
	if err != nil { // metadata is not a map
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

// controllerUser returns the service account of a controller of kube-controller-manager.
func controllerUser(name string) user.DefaultInfo {
	const namespace = "kube-system"
	return user.DefaultInfo{
		Name:   "system:serviceaccount:" + namespace + ":" + name,
		Groups: []string{"system:serviceaccounts", "system:serviceaccounts:" + namespace, user.AllAuthenticated},
	}
}

// describe returns the kind and name of an object.
func describe(object *unstructured.Unstructured) string {
	name := object.GetName()
	if name == "" {
		name = object.GetGenerateName() + "*"
	}
	return object.GetKind() + " " + name
}
