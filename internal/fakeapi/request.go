package fakeapi

// This file parses requests and applies patches.

import (
	"encoding/json"
	"io"
	"net/http"
	"strings"

	jsonpatchv4 "gopkg.in/evanphx/json-patch.v4"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apimachinery/pkg/util/strategicpatch"
	"k8s.io/apiserver/pkg/endpoints/request"
	"sigs.k8s.io/yaml"
)

// requestInfo parses paths and verbs with the API server's own code.
var requestInfo = request.RequestInfoFactory{
	APIPrefixes: map[string]sets.Empty{"api": {}, "apis": {}}, GrouplessAPIPrefixes: map[string]sets.Empty{"api": {}},
}

// parseRequest reads a Request from method, path, query and body.
func parseRequest(r *http.Request) (Request, error) {
	info, err := requestInfo.NewRequestInfo(r)
	if err != nil || !info.IsResourceRequest {
		return Request{}, apierrors.NewNotFound(schema.GroupResource{}, r.URL.Path)
	}
	q := Request{
		Verb: info.Verb, Namespace: info.Namespace, DryRun: r.URL.Query().Get("dryRun") != "",
		Resource: schema.GroupVersionResource{Group: info.APIGroup, Version: info.APIVersion, Resource: info.Resource},
	}
	if len(info.Parts) > 1 { // the name alone: a fieldSelector can name an object too
		q.Name = info.Parts[1]
	}
	if len(info.Parts) > 2 {
		q.Subresource = strings.Join(info.Parts[2:], "/")
	}
	if q.Resource.Resource == "namespaces" {
		q.Namespace = "" // a Namespace is in none
	}
	if q.Verb == "" {
		return q, apierrors.NewMethodNotSupported(q.Resource.GroupResource(), r.Method)
	}
	body, err := io.ReadAll(r.Body)
	if len(body) > 0 {
		q.Body = body
	}
	var options metav1.DeleteOptions // they are in the body
	if r.Method == http.MethodDelete && json.Unmarshal(body, &options) == nil {
		q.DryRun = q.DryRun || len(options.DryRun) > 0
	}
	return q, err
}

// patched applies a patch of any of the four types. Server-side apply is treated as a merge, because no other manager
// owns fields here.
func (a *API) patched(existing *unstructured.Unstructured, kind types.PatchType, patch []byte) (*unstructured.Unstructured, error) {
	before, err := json.Marshal(existing.Object)
	if err != nil {
		return nil, err
	}
	var after []byte
	switch kind {
	case types.JSONPatchType:
		operations, decodeErr := jsonpatchv4.DecodePatch(patch)
		if decodeErr != nil {
			return nil, apierrors.NewBadRequest(decodeErr.Error())
		}
		after, err = operations.Apply(before)
	case types.StrategicMergePatchType, types.ApplyYAMLPatchType:
		if patch, err = yaml.YAMLToJSON(patch); err != nil {
			return nil, apierrors.NewBadRequest(err.Error())
		}
		if object, schemeErr := a.scheme.New(existing.GroupVersionKind()); schemeErr == nil {
			after, err = strategicpatch.StrategicMergePatch(before, patch, object)
			break
		}
		fallthrough
	default:
		after, err = jsonpatchv4.MergePatch(before, patch)
	}
	if err != nil {
		return nil, apierrors.NewInvalid(existing.GroupVersionKind().GroupKind(), existing.GetName(), nil)
	}
	return parseObject(after)
}
