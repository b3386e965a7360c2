package apiserver

import (
	"time"

	admissionv1 "k8s.io/api/admission/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/authentication/user"
)

// Request is what a user asks of the API server. Objects are Go objects of the scheme, unstructured ones, Documents, or
// JSON or YAML as []byte or string, in which nothing is lost that the Go types do not know. A Go object that is not
// unstructured gets its apiVersion and kind from the scheme. It has the fields of eirinixtest.Request.
type Request struct {
	Operation admissionv1.Operation
	Object    any // nil for DELETE; the options, such as PodExecOptions, for CONNECT
	OldObject any // for UPDATE and DELETE

	// Resource, Subresource, Namespace and Name are what stands in the URL. Left out, they follow from the object.
	Resource        schema.GroupVersionResource
	Subresource     string
	Namespace, Name string

	User           user.DefaultInfo // default kubernetes-admin of the group system:masters
	DryRun         bool
	Timeout        time.Duration // of the request with all its calls; 0 means 34 s
	WebhookTimeout time.Duration // in the place of every timeoutSeconds; 0 leaves each its own
}
