package apiserver

// This file holds the request of a user.

import (
	"time"

	admissionv1 "k8s.io/api/admission/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/authentication/user"
)

// Request is a user's request to the API server. Objects are Go objects of the scheme, unstructured ones, Documents,
// or JSON or YAML as []byte or string. JSON and YAML keep fields that the Go types do not know. A Go object that is
// not unstructured gets its apiVersion and kind from the scheme. Request has the fields of eirinixtest.Request.
type Request struct {
	Operation admissionv1.Operation
	Object    any // nil for DELETE; the options, such as PodExecOptions, for CONNECT
	OldObject any // for UPDATE and DELETE

	// Resource, Subresource, Namespace and Name are the parts of the URL. If they are empty, they follow from the
	// object.
	Resource        schema.GroupVersionResource
	Subresource     string
	Namespace, Name string

	User           user.DefaultInfo // default: kubernetes-admin of the group system:masters
	DryRun         bool
	Timeout        time.Duration // for the request with all its calls; 0 means 34 s
	WebhookTimeout time.Duration // replaces every timeoutSeconds; 0 keeps them
}
